"""Import folders, for `init`, `setup` and `recover`: what becomes of each, and what it brought."""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evolvable_server.cli.command_context import CommandContext
from evolvable_server.cli.folder_choice import FolderChoice, FolderChooser, settle_projects
from evolvable_server.cli.folder_reception import Confirmed, approve_arrivals, receive
from evolvable_server.cli.maintenance import warn_of_secrets
from evolvable_server.cli.terminal import progress, remark
from evolvable_server.client_folders import ClientHomes
from evolvable_server.index_worker import WORTHWHILE, start_index_worker
from evolvable_store import Identity, Principal, holds_library
from evolvable_store.errors import InvalidArgument, NoLibrary
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_store.workingcopy import DirectoryIssue, SyncReport, count_resources
from evolvable_tools import Library
from evolvable_tools.care import near_duplicate_lines, scan_for_secrets


@dataclass(frozen=True, slots=True)
class SyncedResource:
    """A directory that became a version. `how`: new, edited, returned or merged."""

    directory: str
    ref: str
    version: int
    how: str


@dataclass(frozen=True, slots=True)
class Waits:
    """A directory whose content waits in the inbox.

    proposal: its number. why: '' when it was held before.
    """

    directory: str
    ref: str
    proposal: int
    why: str


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a sync of one folder did; directories are relative to it.

    missing: the folder itself is not there. in_step: directories seen for the first time that hold
    what the library has. held: directories whose content waits in the inbox and is not served.
    replaced: those whose files another program replaced, with what puts back what was learned.
    untrusted: what a repository brought. unchanged: how many directories hold what the library has,
    those in in_step too. waiting_for_git: directories that are imported when git has finished, each
    with what git is doing. approved: what others brought and the person's yes to the folder
    approved.
    """

    path: str
    scope: str
    kind: str
    missing: bool
    taken: list[SyncedResource]
    in_step: list[str]
    written: list[str]
    removed: list[str]
    refused: list[DirectoryIssue]
    conflicts: list[DirectoryIssue]
    warnings: list[DirectoryIssue]
    held: list[Waits] = field(default_factory=list)
    replaced: list[Waits] = field(default_factory=list)
    untrusted: list[str] = field(default_factory=list)
    unchanged: int = 0
    waiting_for_git: list[str] = field(default_factory=list)
    approved: list[str] = field(default_factory=list)


def sync_result(sync: SyncReport) -> SyncResult:
    """Return what a sync did, as plain data."""
    folder = sync.folder
    return SyncResult(
        path=str(folder.path),
        scope=folder.scope,
        kind=folder.kind,
        missing=sync.stale,
        taken=[
            SyncedResource(resource.directory, str(resource.ref), resource.version, resource.how)
            for resource in sync.taken
        ],
        in_step=list(sync.bound),
        written=list(sync.written),
        removed=list(sync.removed),
        refused=sync.refused,
        conflicts=sync.conflicts,
        warnings=sync.warnings,
        held=[Waits(held.directory, str(held.ref), held.proposal, held.why) for held in sync.held],
        replaced=[
            Waits(replaced.directory, str(replaced.ref), replaced.proposal, replaced.why)
            for replaced in sync.replaced
        ],
        unchanged=len(sync.unchanged),
        waiting_for_git=[f"{directory} ({why})" for directory, why in sync.waiting_for_git.items()],
        untrusted=[
            str(resource.ref)
            for resource in sync.taken
            if resource.principal is Principal.REPOSITORY
        ],
    )


# Each of these files alone makes a folder a memory.
MEMORIES = ("SOUL", "USER", "MEMORY")


def _add_approved(library: Library, result: SyncResult, approved: Collection[str]) -> SyncResult:
    """Return what a folder brought, after these refs were approved."""
    released = [waits for waits in result.held if waits.ref in approved]
    taken = list(result.taken)
    for waits in released:
        version = library.store.head(Ref.parse(waits.ref)).latest
        taken.append(SyncedResource(waits.directory, waits.ref, version, "new"))
    foreign_refs = dict.fromkeys([*result.untrusted, *(waits.ref for waits in released)])
    return replace(
        result,
        taken=taken,
        held=[waits for waits in result.held if waits not in released],
        untrusted=[ref for ref in result.untrusted if ref not in approved],
        approved=[ref for ref in foreign_refs if ref in approved],
    )


def choose_folders(
    state: CommandContext,
    homes: ClientHomes,
    folders: Sequence[Path],
    kind: Kind | None = None,
    scope: str | None = None,
) -> list[FolderChoice]:
    """Return each folder with its kind, scope and project; make no library.

    kind, scope: those that the person named, or None. Raise InvalidArgument, Refused.
    """
    home = state.config().home
    with contextlib.ExitStack() as opened:
        # Before the first import there is no library to ask.
        store = None
        with contextlib.suppress(NoLibrary):
            store = opened.enter_context(state.library())[0].store
        chooser = FolderChooser(store, home, homes)
        choices = [chooser.choose(folder, kind, scope) for folder in folders]
    for choice in choices:
        _check_is_no_resource(choice)
    return choices


def _check_is_no_resource(choice: FolderChoice) -> None:
    names = MEMORIES if choice.kind is Kind.MEMORY else ("name",)
    # Some file systems ignore the case of names.
    mains = {main_file(choice.kind, name).casefold() for name in names}
    try:
        inside = {path.name.casefold() for path in choice.path.iterdir()}
    except OSError as error:
        raise InvalidArgument(
            f"{choice.path} cannot be read: {error.strerror}.", "Check its permissions."
        ) from error
    if inside & mains:
        parent = choice.path.absolute().parent
        raise InvalidArgument(
            f"{choice.path} is a {choice.kind} itself, not a folder of {choice.kind}s.",
            f"Name the folder that it lies in: evolvable init {parent}",
        )


def watched_paths(state: CommandContext) -> set[Path]:
    """Return the folders that are watched already."""
    with contextlib.suppress(NoLibrary), state.library() as (library, _):
        return {folder.path for folder in library.folders()}
    return set()


@dataclass(frozen=True, slots=True)
class ImportedFolders:
    """What an import brought.

    made: whether the library was made. doubles: lines about near duplicates.
    """

    made: bool
    folders: list[SyncResult]
    doubles: list[str]


def import_folders(
    state: CommandContext,
    choices: Sequence[FolderChoice],
    confirmed: Confirmed,
    *,
    yes: bool,
    watched: set[Path],
) -> ImportedFolders:
    """Import folders into the library, which is made where it is missing, and watch them.

    confirmed: the folders that the person said yes to. yes: whether an option said so. watched: the
    folders that were imported before.
    """
    config = state.config()
    received = {
        choice.path: receive(choice, config.person, yes=yes, watched=watched) for choice in choices
    }
    # Before the library opens, which would make it.
    is_new = not holds_library(config.home)
    expected = sum(count_resources(choice.path, choice.kind, WORTHWHILE) for choice in choices)
    with (
        start_index_worker(config.home, expected) as worker,
        state.library(create=True) as (library, caller),
    ):
        with progress("Writing the index"), worker.indexing() as all_read:
            settle_projects(library.store, choices)
            results = add_folders(
                library, choices, {path: reception.identity for path, reception in received.items()}
            )
            all_read()
            scan_for_secrets(library, progress)  # meanwhile the rest is indexed
        # After the import: what is approved has to be a version or a proposal.
        answered = {
            choice.path: confirmed.get(choice)
            for choice in choices
            if received[choice.path].approves
        }
        approved = approve_arrivals(library, caller, answered, config.person)
        results = [_add_approved(library, result, approved) for result in results]
        refs = [Ref.parse(resource.ref) for result in results for resource in result.taken]
        doubles = near_duplicate_lines(library, refs, progress)
        warn_of_secrets(library)
    return ImportedFolders(is_new, results, doubles)


def add_folders(
    library: Library, choices: Sequence[FolderChoice], makers: Mapping[Path, Identity | None]
) -> list[SyncResult]:
    """Import each folder, and return what it brought.

    Changes and links of a later folder reach the earlier ones. makers: who answers for what a
    folder holds.
    """
    syncs = list[SyncReport]()
    watched = {folder.path for folder in library.folders()}
    for choice in choices:
        if choice.path.resolve() not in watched:
            remark(f"Importing {choice.path}")
        with progress("Reading") as show:
            sync = library.working_copies.add(
                choice.path,
                scope=choice.scope,
                kind=choice.kind,
                progress=show,
                identity=makers.get(choice.path),
            )
        syncs.append(sync)
        # A single folder has no other that its changes could reach.
        if len(library.working_copies.folders()) > 1:
            library.working_copies.sync_behind({resource.ref for resource in sync.taken})
    # A link into a folder that was imported later could not be followed at first.
    for sync in syncs:
        linked = library.working_copies.copy(sync.folder).status.filter_linked(
            issue.directory for issue in sync.refused
        )
        sync.refused = [issue for issue in sync.refused if issue.directory not in linked]
    return [sync_result(sync) for sync in syncs]
