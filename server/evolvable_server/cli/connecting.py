"""The commands that write our server into a client's configuration and take it out: connect, disconnect."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import say, show_diff, warn
from evolvable_server.config import read_machine
from evolvable_store.errors import InvalidArgument

if TYPE_CHECKING:
    from evolvable_server.clients.connection import Connection, Place

NAMES = ("claude-code", "codex", "claude-desktop", "cursor", "vscode")

_client = click.argument("client", type=click.Choice(NAMES))
_scope = click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="For you everywhere, or for the project that is open.",
)
_name = click.option("--name", default="evolvable", show_default=True, help="What the server is called in the client.")
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")


def _options(function: Callable[..., None]) -> Callable[..., None]:
    return _client(_scope(_name(_dry_run(function))))


@command("connect")
@_options
@click.option(
    "--env", "env", multiple=True, metavar="KEY=VALUE", help="Set in the server's environment; may be repeated."
)
def connect_command(state: State, client: str, scope: str, name: str, dry_run: bool, env: tuple[str, ...]) -> None:
    """Connect a client to the server.

    Writes the server into the client's configuration, with the path of this installation and of this library. All else
    in there stays as it is, and a copy of the file as it was is kept beside it. Run again, it changes nothing, or
    brings the entry up to date.
    """
    from evolvable_server.clients.connection import connect
    from evolvable_server.clients.starts import start_of

    start = start_of(state.config().home, dict(map(_variable, env)))
    result = connect(_place(state, client, scope, name), start, dry_run=dry_run)
    state.show(result, lambda: _show(result, dry_run))


@command("disconnect")
@_options
def disconnect_command(state: State, client: str, scope: str, name: str, dry_run: bool) -> None:
    """Take the server out of a client.

    Only its entry goes from the client's configuration; the library stays. A copy of the file is kept beside it.
    """
    from evolvable_server.clients.connection import disconnect

    result = disconnect(_place(state, client, scope, name), dry_run=dry_run)
    state.show(result, lambda: _show(result, dry_run))


def _place(state: State, client: str, scope: str, name: str) -> "Place":
    from evolvable_server.clients.all import CLIENTS
    from evolvable_server.clients.connection import place

    return place(read_machine(state.config().project), CLIENTS[client], scope, name)


def _variable(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals) or "\0" in text:
        raise InvalidArgument(f"{ascii(text[:80])} is not KEY=VALUE.", "Such as --env EVOLVABLE_EMBEDDER=off.")
    return key, value


_SAID = {
    ("connected", True): "{title} is connected: {name} in {path}",
    ("updated", True): "{title} was connected already; its entry {name} in {path} is up to date now.",
    ("unchanged", False): "{title} is already connected: {name} in {path}. Nothing changed.",
    ("disconnected", True): "{title} is disconnected: {name} is out of {path}",
    ("absent", False): "{title} is not connected: there is no {name} in {path}. Nothing changed.",
    ("connected", False): "{title} would be connected: {name} in {path}",
    ("updated", False): "{title} is connected already; its entry {name} in {path} would be brought up to date.",
    ("disconnected", False): "{title} would be disconnected: {name} would go from {path}",
}


def _show(result: "Connection", dry_run: bool) -> None:
    say(_SAID[result.done, result.written].format(title=result.title, name=result.name, path=result.path))
    if result.by:
        say(f"{'By' if result.written else 'It would be done by'}: {result.by}")
    if result.backup:
        say(f"The file as it was: {result.backup}")
    if dry_run and result.diff:
        say()
        show_diff(result.diff)
    for warning in result.warnings:
        warn(warning)
    for note in result.notes if result.done != "unchanged" else ():
        say(note)
    if result.check and not dry_run:
        say(f"Check: {'; '.join(result.check)}.")
