"""Storage of the library: the protocol and its SQLite implementation."""
