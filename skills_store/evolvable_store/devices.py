"""Names that no file can have on Windows."""

DEVICES = frozenset(("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "123456789")))
"""What Windows takes for a device in any folder, with any ending, in capitals or not."""
