"""The `evolvable` program: finds the module of the command that is named, and turns every error into an exit code.

Exit codes: 0 done; 1 an error, with its hint; 2 wrong usage; 3 `find`: nothing fits; 130 interrupted.
"""

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from evolvable_server.cli import INTERRUPTED
from evolvable_server.cli.names import TOOLS
from evolvable_server.cli.state import State, home_option, json_option, token_option
from evolvable_store import __version__
from evolvable_store.errors import EvolvableError, InvalidArgument, LibraryError, LibraryFull

SECTIONS = {
    "Use": {"find": "finding", "load": "reading", "report": "reporting"},
    "Look": {
        "list": "finding",
        "get": "reading",
        "history": "reading",
        "log": "operations",
        "stats": "stats",
        "sessions": "sessions",
    },
    "Change": {
        "update": "updating",
        "restore": "changing",
        "remove": "changing",
        "undo": "changing",
        "review": "reviewing",
        "inbox": "inbox",
        "approvals": "approvals",
        "memory": "memory",
        "compress": "compressing",
        "publish": "publishing",
        "channel": "publishing",
    },
    "Evolve": {
        "taskset": "tasksets",
        "evolve": "evolving",
        "executor": "naming",
        "scorer": "naming",
        "judge": "naming",
        "reviewer": "naming",
        "proposer": "naming",
    },
    "Start": {
        "quickstart": "quickstart",
        "init": "folders",
        "folders": "folders",
        "trust": "trusting",
        "sync": "folders",
        "checkout": "checkout",
        "connect": "connecting",
        "disconnect": "connecting",
        "serve": "serving",
        "token": "tokens",
    },
    "Care": {
        "doctor": "doctor",
        "scan": "scanning",
        "fsck": "caring",
        "gc": "caring",
        "purge": "purging",
        "trash": "trash",
        "backup": "archives",
        "export": "archives",
        "import": "archives",
    },
}
"""Section of the help -> command -> the module of this package that holds it."""

COMMANDS = {name: module for section in SECTIONS.values() for name, module in section.items()}


class Program(click.Group):
    """The group of all commands. A command's module is imported when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of this name; the names of the MCP tools do as well."""
        name, _, action = TOOLS.get(cmd_name, cmd_name).partition(" ")
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"evolvable_server.cli.{COMMANDS[name]}")
        found: click.Command = getattr(module, f"{name}_command")
        return found.commands[action] if action and isinstance(found, click.Group) else found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and TOOLS.get(args[0], args[0]).split()[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            meant = f"Did you mean '{near[0]}'?" if near else "`evolvable --help` lists all commands."
            ctx.fail(f"No such command {ascii(args[0])}. {meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by section."""
        for section, names in SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(section):
                formatter.write_dl([(name, found.get_short_help_str(70)) for name, found in commands if found])

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Runs one command line and raises SystemExit with its exit code."""
        state = State()
        extra = {**extra, "standalone_mode": False, "obj": state}
        try:
            code = super().main(args, prog_name or "evolvable", **extra)
        except EvolvableError as error:
            state.fail(error)
            code = 1
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except click.Abort as abort:
            code = _aborted(state, abort)
        except OSError as error:
            state.json = _stdout_works() and state.json
            state.fail(_as_ours(error))
            code = 1
        sys.exit(code if isinstance(code, int) else 0)


def _aborted(state: State, abort: click.Abort) -> int:
    if not isinstance(abort.__cause__ or abort.__context__, EOFError):
        return INTERRUPTED
    click.echo(err=True)
    hint = "--yes answers it." if state.has_yes else "A person answers it at a terminal."
    state.fail(InvalidArgument("A question was asked, and there was nobody to answer it.", hint))
    return 1


def _stdout_works() -> bool:
    """Returns whether stdout takes what is written; if not, what is left for it is dropped when the process ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _as_ours(error: OSError) -> LibraryError:
    where = f"{error.filename}: " if error.filename else ""
    text = f"{where}{error.strerror or error}."
    if error.errno == errno.ENOSPC:
        return LibraryFull(text, "Free some space; nothing of the change was kept.")
    return LibraryError(text, "`evolvable doctor` looks at the library and its folders.")


@click.command(
    "evolvable", cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, package_name="evolvable", prog_name="evolvable")
@home_option
@json_option
@token_option
def cli() -> None:
    """A versioned library of skills: find the right one, change it, see its history, take any change back.

    A ref names a resource: skill:pdf or just pdf, skill:pdf@3 for version 3, skill:acme/pdf in project acme.
    `evolvable quickstart` shows everything working; `evolvable init` takes in the skills you have.
    """
