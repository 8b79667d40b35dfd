"""The state of the watched folders, which `status`, `folders`, `doctor` and the page show.

It is asked for often, so it reads rows and file times, and of a folder only directories that may
have changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from evolvable_store import Manifest
from evolvable_store.errors import quote_text
from evolvable_store.resource import Kind
from evolvable_store.storage import Binding, WatchedFolder
from evolvable_store.workingcopy import (
    DirectoryIssue,
    DirectoryState,
    copied_from,
    known_files,
    known_manifest,
    reasons_against,
)
from evolvable_tools.library import Library

MOST = 10
"""Directories that a sentence names."""

IN_SYNC = "in sync"


@dataclass(frozen=True, slots=True)
class WatchedRoot:
    """One watched folder, and all in which it differs from the library. Directories are relative to
    it.

    there: whether the folder is there. state: all that follows in a few words. resources: how many
    it holds. behind: directories that hold an older version than the library. conflicts: those with
    an open one, and what it is. obstacle: what keeps the folder from being read and written, '' for
    nothing; then no directory was looked at. not_imported: directories that no sync imports as they
    are, each with every reason. held: those whose content waits, each with its proposal. changed:
    those that the next sync imports. missing: those that the library knows and that are not there.
    read_only: whether nothing may be written into it. waiting_for_git: those of changed that are
    imported when git has finished, each with what git is doing. pulled: the commit of the newest
    pull that brought something here, where the person follows the pulls of the folder, '' for none.
    """

    path: str
    scope: str
    kind: str
    there: bool
    state: str
    resources: int
    behind: list[str]
    conflicts: list[str]
    obstacle: str = ""
    not_imported: list[DirectoryIssue] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    read_only: bool = False
    waiting_for_git: list[str] = field(default_factory=list)
    pulled: str = ""


def folder_states(library: Library) -> list[WatchedRoot]:
    """Return the watched folders in the order they were added, each with its state.

    Change nothing.
    """
    return [_describe_folder(library, folder) for folder in library.working_copies.folders()]


def _describe_folder(library: Library, folder: WatchedFolder) -> WatchedRoot:
    copy = library.working_copies.copy(folder)
    bound = library.working_copies.bindings.of_folder(folder)
    heads = library.store.backend.heads_by_id({binding.resource for binding in bound.values()})
    behind = sorted(
        place
        for place, binding in bound.items()
        if binding.version != heads[binding.resource].version
    )
    conflicts = sorted(
        f"{place}: {binding.conflict}" for place, binding in bound.items() if binding.conflict
    )
    exists, obstacle = folder.path.is_dir(), copy.obstacle()
    root = WatchedRoot(
        path=str(folder.path),
        scope=folder.scope,
        kind=folder.kind,
        there=exists,
        state="",
        resources=sum(1 for binding in bound.values() if binding.version is not None),
        behind=behind,
        conflicts=conflicts,
        obstacle=str(obstacle) if obstacle else "",
        read_only=exists and copy.is_read_only(""),
        pulled=_find_newest_pull(library, folder, bound),
    )
    if exists and not root.obstacle:
        root = replace(root, obstacle=_add_directories(library, folder, root))
    return replace(root, state=_describe_state(root, hindered=bool(obstacle)))


def _find_newest_pull(library: Library, folder: WatchedFolder, bound: dict[str, Binding]) -> str:
    """Return the commit of the newest pull into a folder whose pulls the person follows, '' for
    none.
    """
    followed = library.store.backend.followed_folders()
    if not any(folder.path.is_relative_to(path) for path in followed):
        return ""
    resources = {binding.resource for binding in bound.values()}
    newest_authors = library.store.backend.authorship.newest_authors(resources)
    version_authors = [
        author
        for authors in newest_authors.values()
        for author in (authors.maker, *authors.others.values())
    ]
    pulled = [author for author in version_authors if author.pull is not None]
    newest = max(pulled, key=lambda author: author.operation, default=None)
    return newest.pull.commit if newest is not None and newest.pull is not None else ""


def _add_directories(library: Library, folder: WatchedFolder, root: WatchedRoot) -> str:
    """Add the state of each directory of the folder.

    Return what keeps a sync from it, '' for nothing.
    """
    status = library.working_copies.copy(folder).status
    survey = status.everything()
    # An unmounted disk looks like a folder whose resources were all deleted; nothing may be removed
    # then.
    if survey.gone:
        return (
            f"{folder.path} holds none of what it held, as when a disk is not mounted. "
            "Bring it back."
        )
    held = library.store.backend.held_directories.of_folder(folder)
    root.not_imported.extend(
        DirectoryIssue(place, (why,)) for place, why in survey.left_out.items()
    )
    # What a sync leaves out is reported with its reason, and not read again here.
    rest = survey.directories - survey.left_out.keys()
    changed = status.filter_changed(rest - status.filter_linked(rest))
    for state in status.find_changed_states(sorted(changed)):
        waiting = held.get(state.directory)
        # Held only as long as the directory has the content that the proposal is about.
        if waiting is not None and state.tree == waiting.tree:
            root.held.append(f"{state.directory} (proposal {waiting.proposal})")
        elif _is_unsaved(library, state):
            _add_directory(library, folder, state, root)
    root.not_imported.sort(key=lambda issue: issue.directory)
    return ""


def _add_directory(
    library: Library, folder: WatchedFolder, state: DirectoryState, root: WatchedRoot
) -> None:
    if state.reading is None:
        root.missing.append(state.directory)
    elif reasons := _find_reasons(library, folder, state):
        root.not_imported.append(DirectoryIssue(state.directory, tuple(reasons)))
    else:
        root.changed.append(state.directory)
        if activity := library.working_copies.copy(folder).git_activity(state.directory):
            root.waiting_for_git.append(f"{state.directory} ({activity})")


def _find_reasons(library: Library, folder: WatchedFolder, state: DirectoryState) -> list[str]:
    """Return why a sync does not import a directory."""
    assert state.reading is not None
    place, kind = folder.path / state.directory, folder.kind
    if not state.name:
        return [f"no name can be made of {quote_text(place.name)}"]
    if state.binding is None and (why := copied_from(place, kind, state.files)):
        return [why]
    manifest = (
        known_manifest(library.store, state.binding, state.head) if state.reading.left_out else ()
    )
    # As a sync imports them: a skill has to have its directory's name, any other kind the name that
    # can be made of it.
    name = place.name if kind is Kind.SKILL else state.name
    files = known_files(library.store, state.binding, state.head)
    return reasons_against(kind, name, state.reading, manifest, files)


def _is_unsaved(library: Library, state: DirectoryState) -> bool:
    """Return whether a directory holds something else than the version that it is of."""
    head, empty = state.head, Manifest({}).tree
    if state.binding is not None and state.binding.version is None and state.tree is None:
        return False  # what a removal left of the person's is no resource
    version = (state.binding.version if state.binding else None) or (head.version if head else None)
    known_tree = empty
    if head is not None and version:
        known_tree = library.store.manifest(head, version).tree
    unread = state.reading is not None and not state.reading.files and bool(state.reading.left_out)
    return unread or (state.tree or empty) != known_tree


def _describe_state(root: WatchedRoot, *, hindered: bool) -> str:
    if hindered:
        return "not followed, a link leads elsewhere"
    if not root.there or root.obstacle:
        return "missing"
    counts: dict[str, Sequence[object]] = {
        "behind": root.behind,
        f"conflict{'s' * (len(root.conflicts) > 1)}": root.conflicts,
        "not imported": root.not_imported,
        "held": root.held,
        "changed on disk": root.changed,
        "waiting for git": root.waiting_for_git,
        "not there": root.missing,
    }
    return ", ".join(f"{len(what)} {words}" for words, what in counts.items() if what) or IN_SYNC


@dataclass(frozen=True, slots=True)
class FolderProblem:
    """What is wrong with a watched folder, and what to do."""

    what: str
    next: str


def folder_problems(folder: WatchedRoot) -> Iterator[FolderProblem]:
    """Yield what is wrong with a watched folder, the worst first.

    What the next sync brings in is no fault.
    """
    if folder.obstacle:
        yield FolderProblem(folder.obstacle, "")
    elif not folder.there:
        next_step = f"Bring it back, or `evolvable folders drop {folder.path}`."
        yield FolderProblem(f"{folder.path} is watched and not there.", next_step)
    if folder.behind and folder.read_only:
        yield FolderProblem(
            f"{folder.path} is read-only and behind in {_format_names(folder.behind)}.",
            "The library is right; the program that makes the folder has to bring it.",
        )
    elif folder.behind and folder.there and not folder.obstacle:
        yield FolderProblem(
            f"{folder.path} is behind in {_format_names(folder.behind)}.",
            "`evolvable folders sync`.",
        )
    for conflict in folder.conflicts:
        yield FolderProblem(
            f"{folder.path}/{conflict}.", "Edit the file as it should be, and save it."
        )
    for issue in folder.not_imported:
        reasons = "; ".join(issue.problems)
        next_step = "" if "`evolvable " in reasons else "Fix it, then `evolvable folders sync`."
        yield FolderProblem(
            f"{folder.path}/{issue.directory} is not imported: {reasons}.", next_step
        )
    if folder.held:
        names = _format_names(folder.held)
        yield FolderProblem(
            f"{folder.path} holds what is not served until you decide: {names}.",
            "`evolvable inbox` lists what waits; the files are left as they are.",
        )


def folder_notes(folder: WatchedRoot) -> Iterator[str]:
    """Yield what differs in a watched folder and is no fault: the next sync brings it in."""
    if folder.changed:
        names = _format_names(folder.changed)
        yield f"{folder.path}: {names} changed on disk; `evolvable diff` shows how."
    if folder.missing:
        yield (
            f"{folder.path}: {_format_names(folder.missing)} is not there; the next sync removes "
            "what is gone."
        )


def _format_names(names: list[str]) -> str:
    more = f" and {len(names) - MOST:,} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
