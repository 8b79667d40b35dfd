"""The options of `evolvable remote forge`: name the forge behind a remote, whose merges are read over its interface."""

import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from evolvable_server import NamedRemote, PersonConfig
from evolvable_store.errors import InvalidArgument
from evolvable_teams.remotes import FORGES, Forge, MergeReader, named_forge, parse_forge

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--type", "kind", type=click.Choice(list(FORGES)), help="With forge: whose interface; gitea is Forgejo's."
    ),
    click.option("--repository", metavar="OWNER/NAME", help="With forge: the repository's path there."),
    click.option(
        "--merger", "mergers", multiple=True, metavar="LOGIN", help="With forge: whose merges count; repeatable."
    ),
    click.option("--token-file", type=click.Path(path_type=Path), help="With forge: the file that holds your token."),
    click.option("--token-command", metavar="COMMAND", help="With forge: the command that prints your token."),
)


def forge_options(function: _F) -> _F:
    """Add the options of `remote forge` to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def make_forge(
    address: str | None,
    proxy: str | None,
    kind: str | None,
    repository: str | None,
    mergers: Sequence[str],
    token_file: Path | None,
    token_command: str | None,
) -> Forge:
    """Return the forge that the options name, with the ids that it answers.

    Raises InvalidArgument, Refused for a token that others can read, RemoteFailed.
    """
    if kind is None or repository is None or not mergers:
        raise click.UsageError(
            "`remote forge` needs --type, --repository and --merger; `remote forge NAME none` ends it."
        )
    command = shlex.split(token_command) if token_command else []
    if command:
        # Resolved now, so that the PATH of a later project names no other program.
        command[0] = shutil.which(command[0]) or command[0]
    table = {"kind": kind, "address": address or FORGES[kind], "repository": repository}
    where: dict[str, Any] = {"token_command": command} if command else {}
    where |= {"token_file": str(token_file.expanduser().absolute())} if token_file else {}
    return named_forge(_parse(table | where), mergers, proxy)


def _parse(table: Mapping[str, Any]) -> Forge:
    try:
        return parse_forge(table)
    except ValueError as error:
        raise InvalidArgument(f"That is no forge: {error}.", "See `evolvable remote --help`.") from None


def describe_forge(one: NamedRemote) -> str:
    """Return the forge of a remote in words, '' for none. Raises InvalidArgument."""
    return str(_parse(one.forge)) if one.forge else ""


def open_merges(one: NamedRemote, person: PersonConfig) -> MergeReader | None:
    """Return what reads the merges of a remote's forge, None where the person named none. Raises InvalidArgument."""
    return MergeReader(_parse(one.forge), one.branch, person.models.get("proxy")) if one.forge else None
