"""How work ended and what was used in it: the signals of sessions, their ingestion, and the report."""
