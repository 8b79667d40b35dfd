"""The command checkout: resources in the folders that clients read, in sync with the library from
then on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import ExitCode
from evolvable_server.cli.folder_choice import FolderChooser, check_work_tree, open_project
from evolvable_server.cli.folder_commands import show_sync
from evolvable_server.cli.folder_import import SyncResult, sync_result
from evolvable_server.cli.maintenance import warn_left_out
from evolvable_server.cli.options import KIND
from evolvable_server.cli.terminal import progress, remark, say, warn
from evolvable_server.client_folders import read_client_homes
from evolvable_server.clients import all_clients
from evolvable_server.clients.client import PROJECT, USER
from evolvable_server.config import Machine, read_machine
from evolvable_store import Head
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage import WatchedFolder
from evolvable_store.workingcopy import enter_project
from evolvable_tools import Caller, HeldBack, Library, check_anything_leaves, held_back, needed_by
from evolvable_tools.verbs import propose_forks

FORKS = "claude-code"
"""The client whose Skill tool starts the agent that two lines of a skill's head name."""


@dataclass(frozen=True, slots=True)
class Target:
    """A folder that is to hold the resources of one kind.

    client: whose it is, '' for another folder.
    """

    path: Path
    kind: Kind
    client: str = ""


@command("checkout")
@click.argument("where", nargs=-1, required=True, metavar="WHERE...")
@click.option(
    "--kind",
    type=KIND,
    help="What to write; default: all that the client reads, of a folder skills.",
)
@click.option(
    "--project",
    is_flag=True,
    help="Into the open project, and what belongs to it; else the user's.",
)
@click.option(
    "--only", multiple=True, metavar="NAME", help="Only the resource of this name; can be repeated."
)
@click.option("--verbose", is_flag=True, help="Show every warning.")
def checkout_command(
    state: CommandContext,
    where: tuple[str, ...],
    kind: str | None,
    project: bool,
    only: tuple[str, ...],
    verbose: bool,
) -> Output[dict[str, Any]]:
    """Write resources into the folders that clients read.

    WHERE is claude-code, codex, a plugin's client or a folder. Resources there are imported first,
    and nothing is overwritten. Folder and library are kept in sync from then on. For claude-code,
    --only brings the agent that a skill names as its delegate, and the skills that an agent names.
    The copy of a skill with a delegate has two lines more, by which the client's Skill tool starts
    the agent. Exit code 1: a resource with a secret was left out.
    """
    config = state.config()
    place = open_project(config.project) if project else config.project
    machine, only_kind = read_machine(place), Kind(kind) if kind else None
    with state.library() as (library, caller):
        chooser = FolderChooser(library.store, config.home, read_client_homes(config))
        scope = (config.scope or chooser.scope_of(place)) if project else USER_SCOPE
        targets = list(_find_targets(library, machine, where, only_kind, scope, project))
        if not targets:
            raise InvalidArgument(
                f"The library has nothing of scope {scope} for {', '.join(where)}.", _HINT
            )
        leaving = [head for target in targets for head in library.store.heads(target.kind, scope)]
        chosen, held_by_ref = _split_by_secret(
            library, targets, [head for head in leaving if not only or head.name in only]
        )
        more, remarks = chosen, list[str]()
        # Only Claude Code starts delegates, so only there the agents and their skills come along.
        if "claude-code" in where and only_kind is None:
            more, remarks = needed_by(library, chosen)
            more, parts = _split_by_secret(library, targets, more)
            held_by_ref |= parts
        check_anything_leaves("The checkout", held_by_ref.values(), more)
        # A name that no target has is an error, also where other names were found.
        for name in only:
            if not any(_filter_names(library, target.kind, scope, [name]) for target in targets):
                library.store.head(Ref(targets[0].kind, name, scope))  # says what is wrong
        if project:
            # Before the first file is written: a running server that sees the file needs the scope
            # of its project.
            enter_project(library.store, place, scope)
        # A list keeps out what was not chosen or holds a secret; without one all is written.
        heads = {target: more if target.client == "claude-code" else chosen for target in targets}
        results = _check_out_all(library, targets, scope, heads if only or held_by_ref else {})
        proposed = _start_delegates(library, caller, targets, scope)
        remarks += [_ON_PROPOSAL.format(ref=ref, number=number) for ref, number in proposed.items()]
        withheld = _describe_withheld(library, targets, scope)
        doubled = list(_warn_of_doubled_folders(library.working_copies.folders(), machine.user))
    left_out = list(held_by_ref.values())
    render = partial(_show_checkout, results, left_out, [*withheld, *remarks, *doubled], verbose)
    result = {"folders": results, "left_out": left_out, "out_of_force": withheld}
    return Output(result, lambda _: render(), ExitCode.ERROR if left_out else ExitCode.DONE)


_ON_PROPOSAL = (
    "{ref}: proposal {number} has Claude Code's Skill tool start its delegate: evolvable inbox "
    "show {number}"
)

_HINT = "`evolvable list` shows what there is, `--project` takes what belongs to the open project."


def _split_by_secret(
    library: Library, targets: Sequence[Target], heads: Sequence[Head]
) -> tuple[list[Head], dict[str, HeldBack]]:
    """Return the heads that may be written, and by ref those that a secret holds back.

    What lies in every target already does not leave the library by this command.
    """
    ids_by_folder = {
        folder.path: _find_resources(library, folder) for folder in library.working_copies.folders()
    }
    present = [(target.kind, ids_by_folder.get(target.path.resolve(), set())) for target in targets]
    # What a target holds already has left the library before.
    absent = [
        head.ref
        for head in heads
        if any(head.kind is kind and head.id not in ids for kind, ids in present)
    ]
    held_by_ref = {item.ref: item for item in held_back(library, absent)}
    return [head for head in heads if str(head.ref) not in held_by_ref], held_by_ref


def _find_resources(library: Library, folder: WatchedFolder) -> set[int]:
    """Return the ids of the resources that a watched folder holds, itself or by a link."""
    copies = library.working_copies
    bound = {
        binding.resource
        for binding in copies.bindings.of_folder(folder).values()
        if binding.version is not None
    }
    return bound | copies.copy(folder).status.linked_resources()


def _describe_withheld(library: Library, targets: Sequence[Target], scope: str) -> list[str]:
    """Return a line for each resource of which these folders hold an approved value in place of a
    newer one.
    """
    places = {(target.path.resolve(), target.kind) for target in targets}
    folders = [
        watched
        for watched in library.working_copies.folders()
        if (watched.path, watched.kind) in places and watched.scope == scope
    ]
    bound = {id_ for folder in folders for id_ in _find_withheld_resources(library, folder)}
    # Two folders may hold the same resource, which gets one line.
    lines = dict[str, None]()
    for head in library.store.backend.heads_by_id(bound).values():
        if (withheld := library.powers(head)) is not None:
            lines[f"{withheld.line} (the folder has what you approved)"] = None
    return list(lines)


def _start_delegates(
    library: Library, caller: Caller, targets: Sequence[Target], scope: str
) -> dict[str, int]:
    """Have Claude Code's Skill tool start the delegates of skills, now that their agents lie beside
    them.

    Return the proposals, by ref, for the skills whose copies are not the checkout's own.
    """
    proposed, copies = dict[str, int](), library.working_copies
    paths = {
        target.path.resolve()
        for target in targets
        if target.client == FORKS and target.kind is Kind.SKILL
    }
    for folder in copies.folders():
        if folder.path in paths and (folder.scope, folder.kind) == (scope, Kind.SKILL):
            copies.copy(folder).sync(
                copies.copy(folder).status.powers.directories(), removals=False
            )
            proposed |= propose_forks(library, caller, folder)
    return proposed


def _find_withheld_resources(library: Library, folder: WatchedFolder) -> set[int]:
    records = library.working_copies.copy(folder).status.powers
    bound = library.working_copies.bindings.of_directories(folder, records.directories())
    return {binding.resource for binding in bound.values()}


def _find_targets(
    library: Library,
    machine: Machine,
    where: Sequence[str],
    kind: Kind | None,
    scope: str,
    project: bool,
) -> Iterator[Target]:
    clients = all_clients()
    for word in where:
        client = clients.get(word)
        if client is None or client.folders is None:
            # A word without a slash that is no folder is more likely a mistyped client than a new
            # folder.
            if "/" not in word and not Path(word).is_dir():
                readers = sorted(name for name, each in clients.items() if each.folders is not None)
                raise InvalidArgument(
                    f"{word} is no client and no folder.",
                    f"Name {', '.join(readers)}, or a folder like ./{word}.",
                )
            check_work_tree(Path(word).resolve(), library.folders())
            yield Target(Path(word), kind or Kind.SKILL)
            continue
        folders = client.folders(machine, PROJECT if project else USER)
        if kind is not None and kind not in folders:
            reads = " and ".join(f"{read}s" for read in folders)
            raise InvalidArgument(f"{word} reads no folder of {kind}s.", f"It reads {reads}.")
        for read, path in folders.items():
            # A folder of a kind that the library has nothing of would be watched for nothing.
            if kind in (None, read) and library.store.heads(read, scope):
                yield Target(path, read, word)


def _check_out_all(
    library: Library, targets: Sequence[Target], scope: str, chosen: Mapping[Target, Sequence[Head]]
) -> list[SyncResult]:
    """Write into each folder what is chosen for it, or all of its kind where nothing is chosen."""
    # A skill's copy names its agent only where the agent lies beside it.
    agents_first = sorted(targets, key=lambda target: target.kind is not Kind.AGENT)
    done = {
        target: _check_out(library, target, scope, chosen.get(target)) for target in agents_first
    }
    return [done[target] for target in targets]


def _check_out(
    library: Library, target: Target, scope: str, chosen: Sequence[Head] | None
) -> SyncResult:
    """Write the chosen resources into a folder, all of its kind where `chosen` is None."""
    names = None
    if chosen is not None:
        names = [head.name for head in chosen if head.kind is target.kind]
    remark(f"Writing {target.kind}s into {target.path}")
    with progress("Writing") as show:
        sync = library.working_copies.check_out(
            target.path,
            scope=scope,
            kind=target.kind,
            names=names,
            progress=show,
            forks=target.client == FORKS,
        )
    # Other folders may have links to what was imported here.
    library.working_copies.sync_behind({resource.ref for resource in sync.taken})
    return sync_result(sync)


def _filter_names(library: Library, kind: Kind, scope: str, names: Sequence[str]) -> list[str]:
    """Return those of the names that a resource of this kind has."""
    return [head.name for head in library.store.heads(kind, scope) if head.name in names]


def _warn_of_doubled_folders(folders: Sequence[WatchedFolder], home: Path) -> Iterator[str]:
    """Yield a warning when Codex reads two folders that hold the same skills: it shows each of them
    twice.
    """
    read_by_codex = {(home / name).resolve() for name in (".codex/skills", ".agents/skills")}
    watched = [folder.path for folder in folders if folder.path in read_by_codex]
    if len(watched) > 1:
        yield (
            f"Codex reads {watched[0]} and {watched[1]}, and shows a skill that lies in both "
            "twice: drop one of them."
        )


def _show_checkout(
    results: Sequence[SyncResult],
    left_out: Sequence[HeldBack],
    remarks: Sequence[str],
    verbose: bool,
) -> None:
    show_sync(results, verbose)
    warn(*remarks)
    warn_left_out(left_out)
    say(
        "\nA running server keeps these folders and the library in sync. `evolvable folders drop "
        "PATH` ends that."
    )
