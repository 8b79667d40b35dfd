"""Learning from a finished session: what it showed, what follows from it, and what a person is asked about."""
