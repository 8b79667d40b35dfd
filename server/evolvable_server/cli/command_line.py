"""The `evolvable` program: import the module of the named command, run it, and turn errors into
exit codes.

The command `serve` is here too, so that a client does not wait for modules of other commands.
`serve` without options does not come here.
"""

import dataclasses
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from evolvable_server import plugins
from evolvable_server.cli.command_context import (
    CommandContext,
    home_option,
    json_option,
    pass_state,
    token_option,
)
from evolvable_server.cli.command_groups import (
    COMMANDS,
    BackupGroup,
    VerbCommand,
    VerbGroup,
    all_commands,
    first_commands,
    help_sections,
    hint_at_place,
    load_command,
    resolve_name,
    suggest_command,
)
from evolvable_server.cli.exit_codes import ExitCode
from evolvable_server.cli.serve_start import serve_on_stdio
from evolvable_server.cli.terminal import remark, show_usage_error
from evolvable_server.config import Config, toolsets_of
from evolvable_server.environment import NO_ACCOUNT_HOME, hint_at_removed_variables
from evolvable_store import __version__
from evolvable_store.errors import EvolvableError, InvalidArgument, LibraryError, LibraryFull
from evolvable_tools.verbs import ALIASES, GROUPS, HINTS, PLACES


def _make_group(word: str) -> click.Command | None:
    """Return the group of the commands that are placed below a word, None where there is none."""
    if not any(place.startswith(f"{word} ") for place in PLACES.values()):
        return None
    group = BackupGroup if word == "backup" else VerbGroup

    # click needs a function; the group itself does nothing.
    def run() -> None:
        pass

    return click.group(word, cls=group, help=GROUPS[word])(home_option(json_option(run)))


class LazyGroup(click.Group):
    """The group of all commands. A command's module is imported when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        words = (name for summaries in help_sections().values() for name in summaries)
        return list(dict.fromkeys(word.partition(" ")[0] for word in words))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command or group of this name.

        The names of the MCP tools, aliases and old names do as well.
        """
        name, _, action = resolve_name(cmd_name).partition(" ")
        # `backup` is a command and a group at once, see BackupGroup.
        is_group = name not in COMMANDS or name == "backup"
        found = _make_group(name) if is_group else load_command(name)
        found = found or load_command(name)  # of another distribution
        if action and isinstance(found, click.Group):
            return found.get_command(ctx, action)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # The message of click knows neither aliases nor the nearest name.
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            suggest_command(ctx, args[0], (*all_commands(), *ALIASES), HINTS)
        if args and args[0] in PLACES and _make_group(args[0]) is None:
            hint_at_place(ctx, args[0], args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of every day, and where the others are."""
        with formatter.section("Commands"):
            formatter.write_dl(list(first_commands().items()))
        formatter.write_paragraph()
        formatter.write_text(
            "`evolvable help --all` shows all commands, by groups; `evolvable help COMMAND` "
            "one of them."
        )

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run one command line and raise SystemExit with its exit code."""
        # While a shell completes a line, everything printed would end up in its prompt.
        if "_EVOLVABLE_COMPLETE" not in os.environ:
            hint_at_removed_variables(os.environ)
        state = CommandContext()
        # click would print errors and end the process itself.
        extra = {**extra, "standalone_mode": False, "obj": state}
        try:
            code = super().main(args, prog_name or "evolvable", **extra)
        except EvolvableError as error:
            state.fail(error)
            code = ExitCode.ERROR
        except click.ClickException as error:
            show_usage_error(error)
            code = error.exit_code
        except click.Abort as abort:
            code = _report_abort(state, abort)
        except OSError as error:
            # stdout is a closed pipe or a full disk: the error goes to stderr as text.
            state.json = _can_write_stdout() and state.json
            state.fail(_to_library_error(error))
            code = ExitCode.ERROR
        sys.exit(code if isinstance(code, int) else ExitCode.DONE)


def _report_abort(state: CommandContext, abort: click.Abort) -> int:
    # click aborts at Ctrl-C and at the end of input; the cause tells the two apart.
    if not isinstance(abort.__cause__ or abort.__context__, EOFError):
        return ExitCode.INTERRUPTED
    click.echo(err=True)
    hint = "--yes answers it." if state.has_yes else "A person answers it at a terminal."
    state.fail(InvalidArgument("A question was asked, and there was nobody to answer it.", hint))
    return ExitCode.ERROR


def _can_write_stdout() -> bool:
    """Return whether stdout takes what is written; if not, point it at the null device."""
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes stdout once more as it ends, and would report the same error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def report_failure(error: EvolvableError | OSError) -> int:
    """Write the error of a command that ran without click; return the exit code."""
    CommandContext().fail(error if isinstance(error, EvolvableError) else _to_library_error(error))
    return ExitCode.ERROR


def report_homeless() -> int:
    """Write that this account has no home directory; return the exit code.

    pathlib raises a RuntimeError for it.
    """
    CommandContext().fail(LibraryError(NO_ACCOUNT_HOME, "Set HOME to a directory of this account."))
    return ExitCode.ERROR


def _to_library_error(error: OSError) -> LibraryError:
    where = f"{error.filename}: " if error.filename else ""
    text = f"{where}{error.strerror or error}."
    if error.errno == errno.ENOSPC:
        return LibraryFull(text, "Free some space; nothing of the change was kept.")
    return LibraryError(text, "`evolvable doctor` looks at the library and its folders.")


@click.command(
    "evolvable",
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, package_name="evolvable", prog_name="evolvable")
@home_option
@json_option
@token_option
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A versioned library of skills: find the right one, change it, see its history, take any
    change back.

    A ref names a resource: skill:pdf or just pdf, skill:pdf@3 for version 3, skill:acme/pdf in
    project acme. `evolvable setup` imports the skills you have and connects your clients.
    """  # noqa: D401  # the help of the command itself
    if ctx.invoked_subcommand is None:
        # By name, for the start time of every other command.
        importlib.import_module("evolvable_server.cli.status_command").show_overview(ctx.obj)


def _parse_address(
    _: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    if value is None:
        return None
    # From the right: an IPv6 address has colons itself.
    host, colon, port = value.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # Six digits are enough to be too large, and Python refuses to convert thousands of them.
    if not (colon and host and port.isascii() and port.isdigit() and int(port[:6]) < 2**16):
        raise click.BadParameter(
            f"{ascii(value)} is not HOST:PORT, such as 127.0.0.1:8765.", param=param
        )
    return host, int(port)


@click.command("serve", cls=VerbCommand)
@click.option("--toolsets", metavar="NAMES", help="More groups of tools to list, such as evolve.")
@click.option(
    "--http", callback=_parse_address, metavar="HOST:PORT", help="Serve streamable HTTP at /mcp."
)
@click.option(
    "--allowed-host", multiple=True, metavar="HOST", help="A name passed on by a proxy; repeatable."
)
@click.option(
    "--allowed-origin",
    multiple=True,
    metavar="URL",
    help="A web page's origin that may call; repeatable.",
)
@click.option(
    "--trusted-proxy",
    multiple=True,
    metavar="ADDRESS",
    help="Whose X-Forwarded-* is believed; repeatable.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    help="Time for running requests when the server ends [default: 10].",
)
@click.option(
    "--oauth-issuer", metavar="URL", help="The authorization server whose tokens are accepted."
)
@click.option(
    "--oauth-resource", metavar="URL", help="The public URL of /mcp that its tokens are issued for."
)
@click.option(
    "--oauth-jwks", metavar="URL", help="Where its keys are [default: what its metadata says]."
)
@click.option(
    "--oauth-introspection",
    metavar="URL",
    help="Ask it about every token instead of checking signatures.",
)
@click.option(
    "--postgres",
    type=click.Choice(["embedded"]),
    help="Start a PostgreSQL for the library, to try it.",
)
@click.option(
    "--postgres-data",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Its files [default: home].",
)
@home_option
@pass_state
def serve_command(
    state: CommandContext, /, toolsets: str | None, http: tuple[str, int] | None, **options: Any
) -> None:
    """Serve the library to an MCP client.

    Clients start this themselves, and talk to it on its stdin and stdout. The library is made when
    it is missing. Over HTTP it serves several; beyond this machine only with tokens (`evolvable
    team token add`) or an authorization server. The other options go with --http.
    """
    if http is None:
        # A grace of 0 seconds is an option too.
        if options["grace"] is not None or any(options.values()):
            raise click.UsageError("These options go with --http.")
        serve_on_stdio(_make_serve_config(state, toolsets))
    host, port = http
    service = plugins.HttpService(_make_serve_config(state, toolsets), host, port, options)
    if not plugins.hooks().serve_http(service=service, ready=lambda text: remark(text)):
        raise InvalidArgument(
            f"--http needs {plugins.TEAMS}, which is not installed.", "Serve on stdio."
        )


def _make_serve_config(state: CommandContext, toolsets: str | None) -> Config:
    config = state.config()
    if toolsets is None:
        return config
    return dataclasses.replace(config, toolsets=toolsets_of(toolsets))
