"""The report of a run: one page, one JSON file, and the same as text."""
