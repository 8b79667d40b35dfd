"""Look after a library: its health, copies of it, its recovery from a backup."""
