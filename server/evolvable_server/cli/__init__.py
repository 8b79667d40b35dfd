"""The `evolvable` command: the verbs of evolvable_tools for a person at a terminal, and commands for persons only.

`serve` without options, as clients start it, runs from here: click and the registry of commands take time and memory
that a server has no use for.
"""

import contextlib
import dataclasses
import gc
import os
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

from evolvable_server.environment import hint_at_removed_variables

if TYPE_CHECKING:
    from evolvable_server.config import Config
    from evolvable_server.mcp.fast_start import FastStart

# Start time: every module of this package imports this one, and `serve` imports its server after it began to answer.


class ExitCode(IntEnum):
    """How a command ends; docs/cli.md has the same table.

    A hook always ends with DONE: a client takes another code of a hook for an order to stop.
    """

    DONE = 0
    """All that was asked for was done. A change that waits in the inbox counts as done, except where FOUND says so."""

    ERROR = 1
    """An error; or a resource with a secret was left out of `export`, `push`, `checkout` or `publish`, an entry of
    `rspl load-contract` drifted, or a model gave `model test` no answer."""

    USAGE = 2
    """The command line is wrong; click's own code for it."""

    NONE_FITS = 3
    """`find`: the library holds nothing for the task."""

    FOUND = 4
    """`scan`, `doctor`, `fsck`, `taskset check`, `audit --verify` or `diff` found something, or a part of an `import`,
    `pull`, `clone` or `undo` waits for a person or was refused. What else was asked for was done."""

    INTERRUPTED = 130
    """Ctrl-C, as a shell says it."""


def found_code(*found: object) -> ExitCode:
    """Return FOUND where any of these holds something, else DONE."""
    return ExitCode.FOUND if any(found) else ExitCode.DONE


LATE_VERBS = tuple(f"evolvable_tools.verbs.{name}" for name in ("edit", "proposal_inbox", "versions"))
"""Modules of tools that change the library: few clients begin with one, and the module of all tools names them."""


def main() -> NoReturn:
    """Run the command line of this process and end it with the command's exit code."""
    from evolvable_store.errors import ProgramReplaced
    from evolvable_store.program_files import guard_imports

    guard_imports()
    try:
        if sys.argv[1:] == ["serve"] and not _person_types():
            hint_at_removed_variables(os.environ)
            sys.exit(_serve_client())
        from evolvable_server.cli.command_line import cli  # a module of this package: at the top it would be a cycle

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


def _person_types() -> bool:
    """Return whether stdin is a terminal; a client may have started this process without any stdin."""
    return sys.stdin is not None and sys.stdin.isatty()


def _serve_client() -> int:
    """Run `serve` for the client that started this process; return the exit code of a failure."""
    from evolvable_server.config import read_config
    from evolvable_store.errors import EvolvableError

    try:
        serve_on_stdio(read_config())
    except (EvolvableError, OSError) as error:
        from evolvable_server.cli.command_line import report_failure

        return report_failure(error)


def serve_on_stdio(config: "Config") -> NoReturn:
    """Serve one client on stdin and stdout; end the process when the client is gone. Raise as Store.open."""
    from evolvable_server.config import process_session

    if _person_types():
        from evolvable_server.cli.terminal import remark

        remark("Waiting for an MCP client on stdin; Ctrl-C ends it. `evolvable connect` has your client start it.")
    # An eighth of the start goes into looking through modules again and again; `serving.return_free_memory` ends this.
    gc.disable()
    early = _begin_fast_start(config)
    from evolvable_server.mcp.sdk_import import defer_modules, light_sdk

    defer_modules(*LATE_VERBS)
    with light_sdk():
        from evolvable_server.serving import serve_stdio

    serve_stdio(dataclasses.replace(config, session=config.session or process_session()), early)


def _begin_fast_start(config: "Config") -> "FastStart | None":
    """Begin to answer while the rest is imported. What keeps the server from serving is told before any answer."""
    from evolvable_server.mcp.fast_start import FastStart, can_start_fast
    from evolvable_server.person_config import registered_homes
    from evolvable_store.paths import ADDRESS_FILE, LIBRARY_FILE, check_home
    from evolvable_store.storage.migrations import open_library

    if _has_settings_to_check(config):
        from evolvable_server.model_setup import approval_policies, open_search

        approval_policies(config)
        with open_search(config, serving=True):
            pass
    check_home(config.home, registered_homes, create=True)
    if (config.home / ADDRESS_FILE).exists():
        from evolvable_store.store import Store

        Store.open(config.home, create=True, registered=registered_homes).close()
    else:
        open_library(config.home / LIBRARY_FILE)[0].close()
    return FastStart.begin() if can_start_fast() and not (config.toolsets or config.tool_prefix) else None


def _has_settings_to_check(config: "Config") -> bool:
    """Return whether somebody set a model or a policy. Their modules take longer to import than the first answer."""
    models = config.embedder not in ("auto", "off") or config.judge not in ("auto", "off", "caller")
    return models or bool(config.review_policy or config.person.review_policy)
