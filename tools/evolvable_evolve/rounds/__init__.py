"""Rounds over real sessions, and the pool of versions on trial."""
