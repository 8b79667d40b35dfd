"""Decide what a sync does with each directory: its step, whether its content is fit, and whether it
is held.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath

from evolvable_store.errors import Refused, quote_text
from evolvable_store.objects import Files, Manifest, blob_hash, make_manifest
from evolvable_store.operation import Actor, Head, Identity, Principal
from evolvable_store.resource import Kind, Ref, add_number, main_file, normal_name
from evolvable_store.storage import Binding, Draft, HeldDirectory, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.validation import (
    Problem,
    added_conflicts,
    blocking_problems,
    find_problems,
    main_path,
)
from evolvable_store.workingcopy.atomic_dir import SINGLE, make_durable
from evolvable_store.workingcopy.discovery import is_single
from evolvable_store.workingcopy.incoming import (
    DirectoryIssue,
    HeldContent,
    HoldDecision,
    HoldPolicy,
    IncomingDirectory,
    SyncReport,
)
from evolvable_store.workingcopy.installer_locks import InstalledSkills
from evolvable_store.workingcopy.learned_changes import LostChanges, SourceKind, lost_changes
from evolvable_store.workingcopy.leftovers import copied_from
from evolvable_store.workingcopy.origins import FileOrigin, OriginResolver
from evolvable_store.workingcopy.status import DirectoryState, StatusReader
from evolvable_store.workingcopy.tree_reader import SYNC_COPY, FolderContents

ACTORS = {
    Principal.REPOSITORY: Actor.IMPORT,
    Principal.IMPORT: Actor.IMPORT,
    Principal.AGENT: Actor.AGENT,
}
"""Which actor a principal's operations name; every other change on disk counts as a human's."""

_TEMPORARY = ("unreadable", "it keeps changing")
"""How reasons begin for which a file was left out that is there."""


def unread_main(kind: Kind, name: str, reading: FolderContents) -> str:
    """Return why an existing main file was not read; '' when it was read or does not exist."""
    if main_path(kind, name, reading.files):
        return ""
    if "." in reading.left_out:
        return f"it is {reading.left_out['.']}"
    expected = main_file(kind, name).casefold()
    return next(
        (f"{path}: {why}" for path, why in reading.left_out.items() if path.casefold() == expected),
        "",
    )


def known_manifest(store: Store, binding: Binding | None, head: Head | None) -> Manifest:
    """Return the manifest of the version that a directory last held, by default of the newest.

    It is empty without a head.
    """
    if head is None or not head.latest:
        return Manifest({})
    return store.manifest(head, (binding.version if binding else None) or head.latest)


def unread_known(reading: FolderContents, known_paths: Iterable[str]) -> list[str]:
    """Return why files of the known version were not read although something lies in their place.

    Such a file is not deleted: it is too large now, a link, or cannot be opened.
    known_paths: the paths of that version.
    """
    if not reading.left_out:
        return []
    places = {str(place) for path in known_paths for place in (path, *PurePosixPath(path).parents)}
    return [
        f"{path}: {why}; {_describe_next_step(why)}"
        for path, why in reading.left_out.items()
        if path in places and why != SYNC_COPY
    ]


def _describe_next_step(why: str) -> str:
    if why.startswith(_TEMPORARY):
        return "the directory is imported when it can be read"
    return (
        "the known version, which has it, stays: put a regular file within the limits there, "
        "or remove it"
    )


KnownFiles = Callable[[Iterable[str]], Files]
"""Returns those of these files that a known version has, with their contents."""


def no_files(paths: Iterable[str]) -> Files:
    """Return no files: there is no known version."""
    return {}


def merge_marks(reading: FolderContents, read_known: KnownFiles) -> list[Problem]:
    """Return which files have conflict marks that their known content does not have."""
    marked = [path for path, file in reading.files.items() if b"<<<<<<<" in file.data]
    return added_conflicts(read_known(marked), reading.files) if marked else []


def known_files(store: Store, binding: Binding | None, head: Head | None) -> KnownFiles:
    """Return a function that reads files of the version that a directory last held.

    By default they are those of the newest version.
    """

    def read(paths: Iterable[str]) -> Files:
        manifest = known_manifest(store, binding, head)
        return store.files_of(
            Manifest({path: manifest[path] for path in paths if path in manifest})
        )

    return read


def reasons_against(
    kind: Kind,
    name: str,
    reading: FolderContents,
    known_paths: Iterable[str] = (),
    files: KnownFiles = no_files,
) -> list[str]:
    """Return why a directory of a person's own folder is not imported: only unsafe content counts.

    known_paths: the paths of the version that it last held. files: reads that version.
    """
    return check_directory(kind, name, reading, known_paths, files)[0]


def check_directory(
    kind: Kind,
    name: str,
    reading: FolderContents,
    known_paths: Iterable[str],
    files: KnownFiles = no_files,
) -> tuple[list[str], list[str]]:
    """Return `reasons_against` a directory, and the warnings of its import where there are none."""
    if why := unread_main(kind, name, reading) or reading.cut_short:
        return [why], []
    if unread := unread_known(reading, known_paths):
        return unread, []
    problems = find_problems(kind, name, reading.files)
    stops = [*blocking_problems(problems), *merge_marks(reading, files)]
    if stops:
        return [str(stop) for stop in stops], []
    return [], warning_texts(problems, reading)


def warning_texts(problems: Sequence[Problem], reading: FolderContents) -> list[str]:
    """Return the warnings of an import from a person's own folder.

    They name problems, files that were left out, and hard links.
    """
    linked = "it has another name by a hard link, and may be a private file"
    return [
        *(str(problem) for problem in problems if not problem.capability),
        *(f"{path}: {why}, so it is not kept" for path, why in reading.left_out.items()),
        *(f"{path}: {linked}" for path in reading.linked),
    ]


def name_taken(ref: Ref) -> str:
    """Return the warning about a directory that is kept as `ref`, and not under its own name."""
    return f"the library has another {ref.kind} of this name; this one is kept as {ref}"


class SyncStep(Enum):
    """The step that a sync takes with one directory."""

    NOTHING = "nothing"
    BIND = "the directory holds the head"
    SNAPSHOT = "a person's edit becomes a version"
    MERGE = "both sides changed"
    CHECKOUT = "the head is written out"
    REMOVE_DIRECTORY = "the resource was removed from the library"
    TOMBSTONE = "the person deleted the directory"
    FORGET = "resource and directory are both gone"
    RENAME = "another resource of the scope has the name"


def decide_step(
    binding: Binding | None,
    head: Head | None,
    tree: str | None,
    tree_of: Callable[[int], str],
    is_taken: bool,
) -> SyncStep:
    """Return the step for one directory.

    head: of the bound resource, or of the one that has the directory's name. tree: of the files in
    the directory, None when it is gone. tree_of: the tree of a version of that resource. is_taken:
    whether another directory of the scope is bound to it.
    """
    living = head is not None and head.version is not None
    bound_version = binding.version if binding else None
    if tree is None:
        return _decide_without_directory(binding, bound_version, living)
    if head is None:
        return SyncStep.SNAPSHOT
    if not living:
        # An edit after the removal brings the resource back; only an untouched directory goes.
        untouched = bound_version is not None and tree == tree_of(bound_version)
        return SyncStep.REMOVE_DIRECTORY if untouched else SyncStep.SNAPSHOT
    if tree == head.tree:
        return SyncStep.BIND
    if bound_version is None:
        return SyncStep.RENAME if is_taken else SyncStep.SNAPSHOT
    # Only the directory changed.
    if bound_version == head.version:
        return SyncStep.SNAPSHOT
    # A version after the known one that lies here was written by us, and a crash kept us from
    # noting it.
    assert head.version is not None
    # Newest first: a lagging directory is nearly always one version behind.
    numbers = range(head.version - 1, bound_version - 1, -1)
    ours = any(tree == tree_of(number) for number in numbers)
    return SyncStep.CHECKOUT if ours else SyncStep.MERGE


def _decide_for_plugin(
    step: SyncStep, binding: Binding | None, tree: str | None, tree_of: Callable[[int], str]
) -> SyncStep:
    """Return the step for a plugin's directory, which is never written.

    Its content is the next version as it is.
    """
    if step is SyncStep.MERGE:
        assert binding is not None and binding.version is not None
        return SyncStep.NOTHING if tree == tree_of(binding.version) else SyncStep.SNAPSHOT
    return SyncStep.NOTHING if step in (SyncStep.CHECKOUT, SyncStep.REMOVE_DIRECTORY) else step


def _decide_without_directory(
    binding: Binding | None, bound_version: int | None, living: bool
) -> SyncStep:
    if binding is None:
        return SyncStep.NOTHING
    if bound_version is None:
        return SyncStep.CHECKOUT if living else SyncStep.NOTHING
    return SyncStep.TOMBSTONE if living else SyncStep.FORGET


@dataclass(frozen=True, slots=True)
class Edit:
    """A directory whose content is to become a version of `ref`.

    how: as in ImportedDirectory. identity: who answers for it. waits: the reason to wait, '' for
    none. lost: the learned changes that are missing in it, where another program replaced the
    files.
    """

    state: DirectoryState
    ref: Ref
    how: str
    identity: Identity
    waits: str = ""
    lost: LostChanges | None = None

    @property
    def expected_version(self) -> int:
        head = self.state.head
        return (head.version if head is not None and head.ref == self.ref else None) or 0


class SyncPlan:
    """The decisions of one working copy.

    held: the directories that are held, by path. is_new: whether the folder is just imported.
    """

    def __init__(
        self,
        store: Store,
        folder: WatchedFolder,
        status_reader: StatusReader,
        identity: Identity,
        gate: HoldPolicy | None,
    ) -> None:
        self._store, self._folder, self._status_reader = store, folder, status_reader
        self._identity, self._gate = identity, gate
        self.origins = OriginResolver(folder, store.home, self._find_makers)
        self._installed: InstalledSkills | None = None
        self.is_new = False
        # A resource and the number of its version that does not count as known.
        self._judged: tuple[int, int] | None = None
        self._held_files, self._bindings = store.backend.held_directories, store.backend.bindings
        self.held: dict[str, HeldDirectory] = {}

    def begin(self) -> bool:
        """Note whether the folder is just imported, before anything is read, and return it."""
        self.is_new = self.origins.is_new
        self.origins.take_in()
        self._installed = None
        return self.is_new

    def _find_makers(self, data: bytes) -> set[Principal]:
        return self._store.backend.attestations.makers(blob_hash(data), self._judged)

    def decide(self, state: DirectoryState) -> SyncStep:
        """Return the next step of a directory that is not held."""
        step = self._decide(state)
        binds = step in (SyncStep.SNAPSHOT, SyncStep.BIND)
        if binds and state.resolved and state.resolved.unsynced:
            # What is bound without a pending checkout is believed after a power failure too.
            with suppress(Refused, OSError):
                make_durable(self._folder.path, state.directory)
        return step

    def _decide(self, state: DirectoryState) -> SyncStep:
        restart_step = self._decide_after_restart(state)
        if restart_step is not None:
            return restart_step
        head = state.head

        def tree_of(number: int) -> str:
            assert head is not None
            return head.tree if number == head.latest else self._store.version(head, number).tree

        step = decide_step(state.binding, head, state.tree, tree_of, self._is_taken(state))
        if self._folder.is_plugins:
            return _decide_for_plugin(step, state.binding, state.tree, tree_of)
        return step

    def _decide_after_restart(self, state: DirectoryState) -> SyncStep | None:
        """Return the step for a directory that was bound before the system was restarted.

        None where the step is decided as without a restart.
        """
        head, resolved = state.head, state.resolved
        if resolved is None or not resolved.before_restart:
            return None
        if not state.tree or head is None or head.version is None:
            return None
        if state.tree == head.tree:
            return SyncStep.BIND
        is_older = not resolved.is_known and self.find_version(head, state.tree, False) is not None
        # A power failure cut our files, or kept a directory from before the newest exchanges.
        return SyncStep.CHECKOUT if resolved.is_untouched or is_older else None

    def decide_held(self, state: DirectoryState, sync: SyncReport) -> SyncStep | None:
        """Return the step for a directory that is held, None for one that is not, or no longer."""
        held_directory = self.held.get(state.directory)
        if held_directory is None:
            return None
        living = state.head is not None and state.head.version is not None
        is_head = living and state.head is not None and state.head.tree == state.tree
        if is_head or state.tree != held_directory.tree:
            # It was edited, taken away, or is what the library has: it is decided on as any other
            # directory.
            self._release(state.directory)
            return None
        if held_directory.is_approved:
            self._release(state.directory)
            return SyncStep.CHECKOUT if living else None
        sync.held.append(
            HeldContent(state.directory, self._find_ref(state), held_directory.proposal)
        )
        return SyncStep.NOTHING

    def _release(self, directory: str) -> None:
        self._held_files.release(self._folder, [directory])
        self.held.pop(directory, None)

    def _find_ref(self, state: DirectoryState) -> Ref:
        if state.head is not None:
            return state.head.ref
        return Ref(self._folder.kind, state.name, self._folder.scope)

    def origin(self, state: DirectoryState, ref: Ref) -> FileOrigin:
        """Return the origin of a directory's content."""
        if self._folder.is_plugins:
            return FileOrigin(self._identity)
        head = state.head
        if head is None or head.ref != ref:
            return self._find_origin(state, Manifest({}))
        return self._find_origin(state, self._store.manifest(head))

    def origin_of_newest(self, state: DirectoryState, head: Head) -> FileOrigin:
        """Return the origin of the newest version, which a directory holds.

        It is decided as before the import of that version.
        """
        base = head.latest - 1
        base_manifest = self._store.manifest(head, base) if base > 0 else Manifest({})
        # Otherwise the version that is judged would vouch for its own bytes.
        self._judged = (head.id, head.latest)
        try:
            return self._find_origin(state, base_manifest)
        finally:
            self._judged = None

    def _find_origin(self, state: DirectoryState, base_manifest: Manifest) -> FileOrigin:
        assert state.reading is not None
        follows = self._find_followed_folder(state.directory)
        content = base_manifest, state.reading.files, self._identity, state.reading.links
        return self.origins.origin(state.directory, *content, is_new=self.is_new, follows=follows)

    def _find_followed_folder(self, directory: str) -> str:
        """Return the folder around a directory whose pulls the person follows, '' for none."""
        place = self._folder.path / directory
        around = (
            followed_folder
            for followed_folder in self._store.backend.followed_folders()
            if place.is_relative_to(followed_folder)
        )
        return min(around, default="")

    def edit(self, state: DirectoryState, ref: Ref, step: SyncStep) -> Edit:
        """Return the edit of a directory that becomes a version of `ref`."""
        how = "new" if step is SyncStep.RENAME else state.edit_kind
        origin = self.origin(state, ref)
        lost = self.find_lost(state, ref, origin) if step is SyncStep.SNAPSHOT else None
        return Edit(state, ref, how, origin.identity, origin.waits, lost)

    @property
    def has_read_locks(self) -> bool:
        """Whether this sync asked the lock files of installers."""
        return self._installed is not None

    @property
    def installed_skills(self) -> InstalledSkills:
        """The lock files of installers, read once in a sync."""
        if self._installed is None:
            self._installed = InstalledSkills(self._store.home, self._folder)
        return self._installed

    def find_lost(self, state: DirectoryState, ref: Ref, origin: FileOrigin) -> LostChanges | None:
        """Return the learned changes that a directory has lost, where its files were replaced."""
        head, principal = state.head, origin.identity.principal
        if head is None or head.ref != ref or head.latest < 2:
            return None
        if origin.waits or principal is Principal.AGENT:
            return None
        learned = self._store.backend.attestations.learned_candidates(head.id)
        # The cheap questions first: most resources never learned anything.
        if not learned or self._folder.is_plugins or state.reading is None:
            return None
        disk, by_git = state.reading.files, principal is Principal.REPOSITORY

        def find_source() -> SourceKind:
            if by_git:
                return SourceKind.GIT
            by_installer = self.installed_skills.is_replaced(state.directory)
            return SourceKind.INSTALLER if by_installer else SourceKind.NONE

        def was_in_source(files: Files) -> bool:
            return by_git and self.origins.was_committed(state.directory, files, disk)

        return lost_changes(self._store, head, disk, find_source, was_in_source)

    def hold(self, edit: Edit, sync: SyncReport) -> bool:
        """Hold the content if the gate says so, and return whether it is held.

        The files of content that is held stay on disk, and none of them is served.
        """
        state, head = edit.state, edit.state.head
        # A script with a person's token answers for itself.
        if edit.identity.principal not in (*ACTORS, Principal.UNKNOWN, Principal.PERSON):
            return False
        assert state.tree is not None
        arrival = self._describe_arrival(edit)
        holding = self._gate(arrival) if self._gate else None
        is_frozen = head is not None and head.frozen and head.ref == edit.ref
        if is_frozen and edit.identity.principal in ACTORS:
            holding = holding or HoldDecision("a person froze it")
        if holding is None:
            return False
        is_update = edit.lost is not None and edit.lost.source is not SourceKind.NONE
        # Made from the version that it updates, it is merged with what was learned since when a
        # person approves it.
        base = edit.lost.base if edit.lost is not None and is_update else edit.expected_version
        self._hold_back(arrival, base, state.tree, holding, sync)
        return True

    def _describe_arrival(self, edit: Edit) -> IncomingDirectory:
        state, head = edit.state, edit.state.head
        assert state.reading is not None
        before: Files = {}
        if head is not None and head.ref == edit.ref and head.version:
            before = self._store.files(head)
        return IncomingDirectory(
            self._folder,
            state.directory,
            edit.ref,
            head,
            before,
            state.reading.files,
            edit.identity,
            left_out=(*state.reading.left_out, *state.reading.ignored),
            unclaimed_elsewhere=self._is_unclaimed_elsewhere(edit),
        )

    def _is_unclaimed_elsewhere(self, edit: Edit) -> bool:
        """Return whether nobody answers for an edit in a checkout of another system than git.

        The objects of such a system are not read here.
        """
        unclaimed = edit.identity.principal is Principal.UNKNOWN
        return unclaimed and self.origins.is_other_system(edit.state.directory)

    def _hold_back(
        self,
        arrival: IncomingDirectory,
        base: int,
        tree: str,
        holding: HoldDecision,
        sync: SyncReport,
    ) -> None:
        draft = Draft(arrival.ref, base, arrival.files, holding.reason, findings=holding.findings)
        proposal = self._held_files.hold(
            self._folder, arrival.directory, tree, draft, self._store.now(), arrival.identity
        )
        sync.held.append(HeldContent(arrival.directory, arrival.ref, proposal, holding.reason))

    def _is_taken(self, state: DirectoryState) -> bool:
        """Return whether another directory, in any folder, holds the resource of this name."""
        if state.head is None or (state.binding is not None and state.binding.version is not None):
            return False
        here = (self._folder.id, state.directory)
        return any(
            binding.version is not None
            and (binding.folder, binding.directory) != here
            and self._is_there(binding)
            for binding in self._bindings.of_resources([state.head.id])
        )

    def _is_there(self, binding: Binding) -> bool:
        # Of a directory of this folder that is gone, the content may lie here now. Directories of
        # other folders count as there: their disk may not be mounted.
        return binding.folder != self._folder.id or os.path.lexists(
            self._folder.path / binding.directory
        )

    def is_fit(self, state: DirectoryState, step: SyncStep, sync: SyncReport) -> bool:
        """Return whether the directory may be imported.

        Report every problem, also those that do not stop it.
        """
        assert state.reading is not None
        kind, name = self._folder.kind, normal_name(Path(state.directory).name)
        if not state.name:
            self._refuse(state, sync, f"no name can be made of {quote_text(name)}")
            return False
        main = main_path(kind, state.name, state.reading.files) or main_file(kind, state.name)
        if main not in state.reading.files:
            # In the middle of a save, or no resource at all: what is known stays as it is.
            why = unread_main(kind, state.name, state.reading)
            if why:
                self._refuse(state, sync, why, remember=True)
            elif state.binding is not None and state.binding.version is not None:
                self._refuse(state, sync, f"{main}: is missing")
            return False
        if cut := state.reading.cut_short:
            # A part of a resource is no version of it: what is known stays as it is.
            self._refuse(state, sync, cut, remember=True)
            return False
        if state.binding is None and (
            why := copied_from(self._folder.path / state.directory, kind, state.files)
        ):
            # Not remembered as refused: that changes with the directory beside it.
            self._refuse(state, sync, why)
            return False
        if unread := self._find_unread(state, step):
            # Not remembered as refused: whether a path is tracked depends on the head too, not on
            # the files alone.
            self._refuse(state, sync, *unread)
            return False
        checked_name = name if kind is Kind.SKILL else state.name
        problems = find_problems(kind, checked_name, state.reading.files)
        marks = merge_marks(state.reading, known_files(self._store, state.binding, state.head))
        stops = [*blocking_problems(problems), *marks]
        if stops:
            self._refuse(state, sync, *map(str, stops), remember=True)
            return False
        # The problems of a version were reported when it came; an unchanged directory is read again
        # only soon after.
        is_known = (
            step is SyncStep.BIND
            and state.binding
            and state.head
            and state.binding.version == state.head.version
        )
        self._warn(state, [] if is_known else problems, sync)
        return True

    def _refuse(
        self, state: DirectoryState, sync: SyncReport, *reasons: str, remember: bool = False
    ) -> None:
        """Report why a directory is not imported.

        remember: by its signature, so that it is not read again before it changes.
        """
        sync.refused.append(DirectoryIssue(state.directory, reasons))
        if remember and state.reading is not None:
            signature = state.reading.signature if state.signature else ""
            self._status_reader.refused[state.directory] = signature

    def _find_unread(self, state: DirectoryState, step: SyncStep) -> list[str]:
        """Return why files of the known version were not read.

        Empty for a step that does not import: nothing would be deleted then.
        """
        assert state.reading is not None
        if step not in (SyncStep.SNAPSHOT, SyncStep.MERGE) or not state.reading.left_out:
            return []
        return unread_known(state.reading, known_manifest(self._store, state.binding, state.head))

    def _warn(self, state: DirectoryState, problems: Sequence[Problem], sync: SyncReport) -> None:
        assert state.reading is not None
        if texts := warning_texts(problems, state.reading):
            sync.warnings.append(DirectoryIssue(state.directory, tuple(texts)))

    def choose_ref(self, state: DirectoryState, step: SyncStep, names: set[str]) -> Ref:
        """Return the resource that an edit becomes a version of.

        names: those imported in the same batch.
        """
        kind, scope = self._folder.kind, self._folder.scope
        if state.binding is not None and state.head is not None and step is SyncStep.SNAPSHOT:
            return state.head.ref
        name, number = state.name, 1
        is_taken = step is SyncStep.RENAME or state.head is None and name in names
        while is_taken:
            number += 1
            name = add_number(state.name, number)
            is_taken = name in names or self._exists(Ref(kind, name, scope))
        return Ref(kind, name, scope)

    def _exists(self, ref: Ref) -> bool:
        return self._store.head_or_none(ref) is not None

    def find_version(self, head: Head, tree: str, single: bool) -> int | None:
        """Return the newest version with this tree, of its single file where `single`."""
        # What lies on disk is seldom more than a few versions behind.
        for past in self._store.backend.versions(head.id, 50):
            if tree == (self._compute_single_tree(head, past.number) if single else past.tree):
                return past.number
        return None

    def _compute_single_tree(self, head: Head, number: int) -> str:
        entries = self._store.manifest(head, number)
        main = main_file(head.kind, head.name)
        return Manifest({SINGLE: entries[main]}).tree if main in entries else ""

    def believed_tree(self, state: DirectoryState) -> str:
        """Return the tree of the files that lie on disk, as a swap knows it; '' for none."""
        if state.tree is None or state.reading is None:
            return ""
        if not is_single(self._folder.kind, state.directory):
            is_exact = not state.reading.links and state.reading.on_disk is None
            return state.tree if is_exact else make_manifest(state.reading.own).tree
        main, lying = main_file(self._folder.kind, state.name), state.reading.lying
        return make_manifest({SINGLE: lying[main]}).tree if main in lying else ""


def change_reason(place: str, edits: Sequence[Edit]) -> str:
    """Return the reason of the operation that imports these edits.

    place: the name of the folder in the reason.
    """
    hows = {edit.how for edit in edits}
    what = {"new": "imported from", "returned": "returned to", "edited": "edited in"}
    verb = what[hows.pop()] if len(hows) == 1 else "changed in"
    return f"{verb} {place}"
