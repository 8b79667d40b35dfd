"""The `evolvable` command: the verbs of evolvable_tools for a person at a terminal, and commands for persons only.

`serve` without options, as clients start it, runs from here: click and the registry of commands take time and memory
that a server has no use for.
"""

import contextlib
import os
import sys
from typing import NoReturn

from evolvable_server.cli.exit_codes import ExitCode
from evolvable_server.environment import hint_at_removed_variables

# Start time: every module of this package imports this one, and `serve` needs little of it.


def main() -> NoReturn:
    """Run the command line of this process and end it with the command's exit code."""
    from evolvable_store.errors import ProgramReplaced
    from evolvable_store.program_files import guard_imports

    guard_imports()
    try:
        if sys.argv[1:] == ["serve"]:
            from evolvable_server.cli.serve_start import person_types

            if not person_types():
                hint_at_removed_variables(os.environ)
                sys.exit(_serve_client())
        from evolvable_server.cli.command_line import cli

        with contextlib.suppress(AttributeError):  # a stream that somebody replaced
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        cli.main(prog_name="evolvable")
    except RuntimeError:
        if os.path.expanduser("~") != "~":
            raise
        from evolvable_server.cli.command_line import report_homeless

        sys.exit(report_homeless())
    except ProgramReplaced as error:  # what says errors may not be loaded either
        print(f"Error: {error}\nHint: {error.hint}", file=sys.stderr)
        sys.exit(ExitCode.ERROR)
    except KeyboardInterrupt:
        # Before the command could begin, or while it ended. What has to be closed was closed on the way here.
        os._exit(ExitCode.INTERRUPTED)
    raise AssertionError


def _serve_client() -> int:
    """Run `serve` for the client that started this process; return the exit code of a failure."""
    from evolvable_server.cli.serve_start import serve_on_stdio
    from evolvable_server.config import read_config
    from evolvable_store.errors import EvolvableError

    try:
        serve_on_stdio(read_config())
    except (EvolvableError, OSError) as error:
        from evolvable_server.cli.command_line import report_failure

        return report_failure(error)
