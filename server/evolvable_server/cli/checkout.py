"""The command that writes the library's resources into the folders that clients read: checkout."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evolvable_server.cli import syncs
from evolvable_server.cli.state import KIND, State, command
from evolvable_server.cli.terminal import progress, remark, say, warn
from evolvable_server.config import Machine, project_scope, read_machine
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import USER_SCOPE, Kind, Ref

if TYPE_CHECKING:
    from evolvable_store.storage.bindings import WatchedFolder
    from evolvable_tools.library import Library

CLIENTS: dict[str, dict[Kind, str]] = {
    "claude-code": {Kind.SKILL: "skills", Kind.AGENT: "agents"},
    "codex": {Kind.SKILL: "skills"},
}
"""Client -> which kinds it reads from a folder, and that folder's name below the client's own."""


@dataclass(frozen=True, slots=True)
class Target:
    """A folder that is to hold the resources of one kind."""

    path: Path
    kind: Kind


@command("checkout")
@click.argument("where", nargs=-1, required=True, metavar="WHERE...")
@click.option("--kind", type=KIND, help="What to write; default: all that the client reads, of a folder skills.")
@click.option("--project", is_flag=True, help="Into the open project, and what belongs to it; else the user's.")
@click.option("--only", multiple=True, metavar="NAME", help="Only the resource of this name; can be repeated.")
@click.option("--verbose", is_flag=True, help="Show every warning.")
def checkout_command(
    state: State, where: tuple[str, ...], kind: str | None, project: bool, only: tuple[str, ...], verbose: bool
) -> None:
    """Write resources into the folders that clients read.

    WHERE is claude-code, codex or a folder. What lies there is taken in first, and nothing in the way is written over.
    Folder and library are kept in step from then on.
    """
    from evolvable_tools.secret_leaks import check_may_leave

    config = state.config()
    scope = (config.scope or project_scope(config.project)) if project else USER_SCOPE
    machine, wanted = read_machine(config.project), Kind(kind) if kind else None
    with state.library() as (library, _):
        targets = list(_targets(library, machine, where, wanted, scope, project))
        if not targets:
            raise InvalidArgument(f"The library has nothing of scope {scope} for {', '.join(where)}.", _HINT)
        leaving = [head.ref for target in targets for head in library.store.heads(target.kind, scope)]
        check_may_leave(library, "The checkout", [ref for ref in leaving if not only or ref.name in only])
        for name in only:
            if not any(_named(library, target.kind, scope, [name]) for target in targets):
                library.store.head(Ref(targets[0].kind, name, scope))  # says what is wrong
        results = [_check_out(library, target, scope, only) for target in targets]
        twice = list(_twice(library.working_copies.folders(), machine.user))
    result = syncs.Synced(results)
    state.show(result, lambda: _show(result, twice, verbose))


_HINT = "`evolvable list` shows what there is, `--project` takes what belongs to the open project."


def _targets(
    library: "Library", machine: Machine, where: Sequence[str], kind: Kind | None, scope: str, project: bool
) -> Iterator[Target]:
    for word in where:
        if word not in CLIENTS:
            if "/" not in word and not Path(word).is_dir():
                known = ", ".join(CLIENTS)
                raise InvalidArgument(
                    f"{word} is no client and no folder.", f"Name {known}, or a folder like ./{word}."
                )
            yield Target(Path(word), kind or Kind.SKILL)
            continue
        if kind is not None and kind not in CLIENTS[word]:
            reads = " and ".join(f"{read}s" for read in CLIENTS[word])
            raise InvalidArgument(f"{word} reads no folder of {kind}s.", f"It reads {reads}.")
        for read, name in CLIENTS[word].items():
            if kind in (None, read) and library.store.heads(read, scope):
                yield Target(_own(machine, word, project) / name, read)


def _own(machine: Machine, client: str, project: bool) -> Path:
    """Returns the folder of a client's own. Codex reads .agents in a project and at home, as others do too."""
    base = machine.project if project else machine.user
    if client == "codex":
        return base / ".agents"
    return base / ".claude" if project or machine.claude is None else machine.claude


def _check_out(library: "Library", target: Target, scope: str, only: Sequence[str]) -> syncs.SyncResult:
    remark(f"Writing {target.kind}s into {target.path}")
    with progress(str(target.path)) as show:
        sync = library.working_copies.check_out(
            target.path,
            scope=scope,
            kind=target.kind,
            names=_named(library, target.kind, scope, only) if only else None,
            progress=show,
        )
    library.working_copies.behind({taken.ref for taken in sync.taken})
    return syncs.result(sync)


def _named(library: "Library", kind: Kind, scope: str, names: Sequence[str]) -> list[str]:
    """Returns those of the names that a resource of this kind has."""
    return [head.name for head in library.store.heads(kind, scope) if head.name in names]


def _twice(folders: "Sequence[WatchedFolder]", home: Path) -> Iterator[str]:
    """Yields a warning when Codex reads two folders that hold the same skills: it shows each of them twice."""
    both = [home / ".codex/skills", home / ".agents/skills"]
    watched = [folder.path for folder in folders if folder.path in [path.resolve() for path in both]]
    if len(watched) > 1:
        yield f"Codex reads {watched[0]} and {watched[1]}, and shows a skill that lies in both twice: drop one of them."


def _show(result: syncs.Synced, twice: Sequence[str], verbose: bool) -> None:
    syncs.show(result.folders, verbose)
    for text in twice:
        warn(text)
    say("\nA running server keeps these folders and the library in step. `evolvable folders drop PATH` ends that.")
