"""Outcomes of finished sessions: which versions they used, how the uses ended, and reports over both."""
