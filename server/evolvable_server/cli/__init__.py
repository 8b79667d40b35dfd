"""The `evolvable` command: the verbs of evolvable_tools for a person at a terminal.

Begin with `main`, the entry point. A new command begins with `command` and `CommandContext`, which
open the library, print text or JSON and end with an `ExitCode`. `evolvable_server.cli.terminal` has
the functions that print. `serve` without options, as clients start it, runs from here: click and
the registry of commands take time and memory that a server has no use for.
"""

import contextlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from evolvable_server.cli.exit_codes import ExitCode
from evolvable_server.environment import hint_at_removed_variables
from evolvable_store import late_names

# Start time: every module of this package imports this one, and `serve` needs little of it.
if TYPE_CHECKING:
    from evolvable_server.cli.command_context import (
        CommandContext,
        Output,
        command,
        home_option,
        json_option,
        to_cli_words,
    )
    from evolvable_server.cli.command_groups import VerbGroup
    from evolvable_server.cli.editor_commands import show_updated
    from evolvable_server.cli.exit_codes import ExitCode, found_code
    from evolvable_server.cli.folder_choice import main_project
    from evolvable_server.cli.maintenance import warn_left_out, warn_of_secrets
    from evolvable_server.cli.options import KIND, REF, expect_option, read_source, reason_option
    from evolvable_server.cli.person_commands import MAX_FINDINGS, MAX_LISTED, show_tool_version
    from evolvable_server.cli.progress import announced_progress, paused_progress, set_label
else:
    __getattr__ = late_names(
        __name__,
        {
            "command_context": "CommandContext Output command home_option json_option to_cli_words",
            "command_groups": "VerbGroup",
            "editor_commands": "show_updated",
            "exit_codes": "ExitCode found_code",
            "folder_choice": "main_project",
            "maintenance": "warn_left_out warn_of_secrets",
            "options": "KIND REF expect_option read_source reason_option",
            "person_commands": "MAX_FINDINGS MAX_LISTED show_tool_version",
            "progress": "announced_progress paused_progress set_label",
        },
    )

__all__ = [
    "CommandContext",
    "ExitCode",
    "KIND",
    "MAX_FINDINGS",
    "MAX_LISTED",
    "Output",
    "REF",
    "VerbGroup",
    "announced_progress",
    "command",
    "expect_option",
    "found_code",
    "home_option",
    "json_option",
    "main",
    "main_project",
    "paused_progress",
    "read_source",
    "reason_option",
    "set_label",
    "show_tool_version",
    "show_updated",
    "to_cli_words",
    "warn_left_out",
    "warn_of_secrets",
]


def main() -> NoReturn:
    """Run the command line of this process and end it with the command's exit code."""
    from evolvable_store import guard_imports
    from evolvable_store.errors import ProgramReplaced

    # First: imports that follow must fail clearly where an upgrade replaced the program under this
    # process.
    guard_imports()
    try:
        # Compared before click is imported: a client waits for this start.
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
        # Path.home raises RuntimeError for an account without a home directory. Any other one is a
        # fault.
        if os.path.expanduser("~") != "~":
            raise
        from evolvable_server.cli.command_line import report_homeless

        sys.exit(report_homeless())
    except ProgramReplaced as error:  # what says errors may not be loaded either
        print(f"Error: {error}\nHint: {error.hint}", file=sys.stderr)
        sys.exit(ExitCode.ERROR)
    except KeyboardInterrupt:
        # Before the command could begin, or while it ended. What has to be closed was closed on the
        # way here.
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
