"""Watched folders: reading them, comparing them with the library, and writing to them safely."""
