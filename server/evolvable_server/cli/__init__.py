"""The `evolvable` command: the verbs of evolvable_tools for a person at a terminal, and commands for persons only."""

import contextlib
import os
import sys
from typing import NoReturn

INTERRUPTED = 130
"""The exit code of a shell for a program that Ctrl-C ended."""


def main() -> NoReturn:
    """Run the command line of this process and end it with the command's exit code."""
    try:
        from evolvable_server.cli.command_line import cli  # a module of this package: at the top it would be a cycle

        with contextlib.suppress(AttributeError):  # a stream that somebody replaced
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        cli.main(prog_name="evolvable")
    except KeyboardInterrupt:
        # Before the command could begin, or while it ended. What has to be closed was closed on the way here.
        os._exit(INTERRUPTED)
    raise AssertionError
