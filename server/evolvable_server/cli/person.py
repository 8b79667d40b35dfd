"""Whether a person is at this command: somebody at a terminal, and no client's shell."""

import os
import sys

MARKS = ("CLAUDECODE", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID")
"""Variables that clients set in the shells of their agents."""


def at_terminal() -> bool:
    """Return whether a question on the terminal reaches a person."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not any(os.environ.get(mark) for mark in MARKS)
