"""The commands connect and disconnect."""

from collections.abc import Callable
from typing import Any, NoReturn

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import say, show_diff, warn
from evolvable_server.clients import (
    PASTED,
    ClientConnection,
    ConfigurationEntry,
    all_clients,
    configuration_entry,
    connect,
    disconnect,
    entry_forms,
    server_start,
)
from evolvable_server.clients.client import SCOPES, Start
from evolvable_server.config import TOOL_PREFIX, read_machine, tool_prefix_of
from evolvable_store.errors import InvalidArgument


class _AnyClient(click.Choice[str]):
    """The name of a client, also of one that this program does not know."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        # Any other name passes: the command shows the entry to paste for it.
        return super().convert(value, param, ctx) if value in self.choices else value


def _add_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--dry-run", is_flag=True, help="Show what would change; change nothing."),
        click.option(
            "--name",
            default="evolvable",
            show_default=True,
            help="What the server is called in the client.",
        ),
        click.option(
            "--scope",
            type=click.Choice(SCOPES),
            default="user",
            show_default=True,
            help="For you everywhere, or for the project that is open.",
        ),
    ):
        function = option(function)
    return function


@command("connect")
@_add_options
@click.argument("client", type=_AnyClient(all_clients()))
@click.option(
    "--env",
    "env",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set in the server's environment; may be repeated.",
)
@click.option(
    "--prefix",
    metavar="TEXT",
    help="Before the names of the tools, for a client that adds none, such as evolvable_.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Let the client run all tools of it unasked (Qwen Code); yours to say.",
)
@click.option(
    "--hooks",
    is_flag=True,
    help="Write the client's hooks too, so that a prompt gets the skill that fits.",
)
def connect_command(
    state: CommandContext,
    client: str,
    scope: str,
    name: str,
    dry_run: bool,
    env: tuple[str, ...],
    prefix: str | None,
    trust: bool,
    hooks: bool,
) -> Output[ClientConnection]:
    """Connect a client to the server.

    Writes the server into the client's configuration, with the path of this installation and of
    this library. All else in there stays as it is, and a copy of the file as it was is kept beside
    it. Run again, it changes nothing, or brings the entry up to date. For a client that is not
    known, it shows the entry to paste.
    """
    variables = dict(map(_parse_variable, env))
    if prefix is not None:
        variables[TOOL_PREFIX] = tool_prefix_of(prefix)
    start = server_start(state.config().home, variables)
    if client in PASTED:
        _show_pasted(state, client, name, start)
    if client not in all_clients():
        # Not broken into lines for the screen: it is pasted.
        # With --json, stdout holds the error alone.
        click.echo(f"{entry_forms(name, start)}\n", err=state.json)
        names = ", ".join(all_clients())
        raise click.UsageError(
            f"{ascii(client[:60])} is none of the clients that are known: {names}. Nothing was "
            "written; paste the entry, in the form that its own documentation shows, into its "
            "configuration."
        )
    result = connect(
        _find_entry(state, client, scope, name), start, dry_run=dry_run, trust=trust, hooks=hooks
    )
    return Output(result, lambda _: _show_connection(result, dry_run))


def _show_pasted(state: CommandContext, client: str, name: str, start: Start) -> NoReturn:
    """Show the entry of a client whose file a person edits.

    Raise UsageError: nothing is connected yet.
    """
    pasted = PASTED[client]
    path = pasted.path(read_machine(state.config().project))
    # With --json, stdout holds the error alone.
    click.echo(f"{pasted.entry(name, start)}\n", err=state.json)
    raise click.UsageError(
        f"{pasted.title} keeps its servers in YAML, which you edit yourself. Nothing was written; "
        f"paste the entry into {path}. Where that has `mcpServers` already, paste the lines below "
        "that key into its list."
    )


@command("disconnect")
@_add_options
@click.argument("client", type=click.Choice(all_clients()))
def disconnect_command(
    state: CommandContext, client: str, scope: str, name: str, dry_run: bool
) -> Output[ClientConnection]:
    """Take the server out of a client.

    Only its entry goes from the client's configuration, and the hooks that `connect --hooks` wrote.
    The library stays. A copy of the file is kept beside it.
    """
    result = disconnect(_find_entry(state, client, scope, name), dry_run=dry_run)
    return Output(result, lambda _: _show_connection(result, dry_run))


def _find_entry(state: CommandContext, client: str, scope: str, name: str) -> ConfigurationEntry:
    return configuration_entry(
        read_machine(state.config().project), all_clients()[client], scope, name
    )


def _parse_variable(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    # No environment holds a null byte.
    if not (key and equals) or "\0" in text:
        raise InvalidArgument(
            f"{ascii(text[:80])} is not KEY=VALUE.", "Such as --env EVOLVABLE_EMBEDDER=off."
        )
    return key, value


# By what was done, and whether it was written: a trial run writes nothing.
_MESSAGES = {
    ("connected", True): "{title} is connected: {name} in {path}",
    ("updated", True): (
        "{title} was connected already; its entry {name} in {path} is up to date now."
    ),
    ("unchanged", False): "{title} is already connected: {name} in {path}. Nothing changed.",
    ("disconnected", True): "{title} is disconnected: {name} is out of {path}",
    ("absent", False): "{title} is not connected: there is no {name} in {path}. Nothing changed.",
    ("connected", False): "{title} would be connected: {name} in {path}",
    ("updated", False): (
        "{title} is connected already; its entry {name} in {path} would be brought up to date."
    ),
    ("disconnected", False): "{title} would be disconnected: {name} would go from {path}",
}


def _show_connection(result: ClientConnection, dry_run: bool) -> None:
    say(
        _MESSAGES[result.done, result.written].format(
            title=result.title, name=result.name, path=result.path
        )
    )
    if result.by:
        say(f"{'By' if result.written else 'It would be done by'}: {result.by}")
    if result.backup:
        say(f"The file as it was: {result.backup}")
    if result.hooks:
        change = "taken out of" if result.done in ("disconnected", "absent") else "written into"
        say(f"Its hooks {'would be' if dry_run else 'are'} {change} {result.hooks}")
    if dry_run and result.diff:
        say("")
        show_diff(result.diff)
    warn(*result.warnings)
    if result.done != "unchanged":
        say(*result.notes)
    if result.check and not dry_run:
        say(f"Check: {'; '.join(result.check)}.")
