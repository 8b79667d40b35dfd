"""Sandboxes: run a command isolated from the rest of the machine."""
