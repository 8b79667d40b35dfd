"""Synchronise one folder on disk with the library, in both directions, without losing a person's
edit.

A difference from the last known version is a person's edit, and becomes a version before anything
is written. Contents are compared by hash: the writes of every process are recognised, and the next
sync repairs what a crash left.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from evolvable_store.errors import EvolvableError, Invalid, Refused, VersionConflict, may_pass
from evolvable_store.objects import Files
from evolvable_store.operation import PLUGIN_FILES, Actor, Head, Identity, Principal
from evolvable_store.power_fields import PowerPolicy
from evolvable_store.resource import Kind, main_file
from evolvable_store.storage import Binding, Proposal, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.transaction import Transaction
from evolvable_store.validation import blocking_problems, find_problems
from evolvable_store.workingcopy.atomic_dir import (
    SINGLE,
    RecoveredDirectory,
    StagingDirectory,
    discard,
    open_staging,
    read_back,
    remove_folder,
    remove_single,
    staging_for,
    still_holds,
    sweep,
    write_folder,
    write_single,
)
from evolvable_store.workingcopy.discovery import is_single, single_name
from evolvable_store.workingcopy.folder_lock import exclusive, is_held
from evolvable_store.workingcopy.folder_names import FolderNames, FolderObstacle, is_read_only
from evolvable_store.workingcopy.incoming import (
    DirectoryIssue,
    HeldContent,
    HoldPolicy,
    ImportedDirectory,
    SyncReport,
)
from evolvable_store.workingcopy.late_origin import RecentImports
from evolvable_store.workingcopy.learned_changes import MERGED, REPLACED, LostChanges, SourceKind
from evolvable_store.workingcopy.openat import PathAt, first_link
from evolvable_store.workingcopy.put_back import PutBack
from evolvable_store.workingcopy.resource_merge import merge_resource, name_overlaps
from evolvable_store.workingcopy.staging_dir import (
    complete_swaps,
    is_inside,
    list_stems,
    recovery_notes,
)
from evolvable_store.workingcopy.status import DirectoryState, StatusReader, built_signature
from evolvable_store.workingcopy.sync_plan import (
    ACTORS,
    Edit,
    SyncPlan,
    SyncStep,
    change_reason,
    name_taken,
)
from evolvable_store.workingcopy.trash import Trash
from evolvable_store.workingcopy.written_powers import ForkPolicy

# Longer than a batch takes; a process that works longer hangs.
LOCK_SECONDS = 30.0
"""How long a sync waits for another process that works on the same folder."""

# The lock of the folder is held for so many; an update of a client waits behind them.
BATCH = 200
"""Directories whose edits become one operation."""

# An editor or a client that opened a file just before can still save into it.
KEEP_SECONDS = 60.0
"""How long a replaced directory is kept, for readers that still have it open."""

# Each conflict means that another process moved a head; eight in a row are no accident.
_MAX_TRIES = 8


class WorkingCopy:
    """One folder of one library.

    Any number of processes may sync the same folder; they take turns.
    """

    def __init__(
        self,
        store: Store,
        folder: WatchedFolder,
        *,
        grace: float = 0.0,
        identity: Identity | None = None,
        gate: HoldPolicy | None = None,
        allowed: Callable[[], bool] = lambda: True,
        powers: PowerPolicy = lambda _: None,
        forks: ForkPolicy = lambda *_: "",
    ) -> None:
        """grace: seconds that a vanished directory may take to come back before its resource is
        removed.

        identity: who answers for what is imported; by default an unknown principal, as for any
        change on disk. What git holds is a repository's. gate: decides which contents are held;
        without one, none. allowed: asked with the folder's lock held; when it says no, a sync does
        nothing. powers: which powers of a version the folder is not given. forks: which agent the
        client of the folder starts for a skill that a checkout wrote.
        """
        self.store, self.folder, self.grace = store, folder, grace
        self._has_identity = identity is not None
        effective_identity = identity or Identity(Principal.UNKNOWN, "file")
        self._identity = PLUGIN_FILES if folder.is_plugins else effective_identity
        self._allowed = allowed
        self._held_files = store.backend.held_directories
        self._bindings = store.backend.bindings
        self.status = StatusReader(store, self._bindings, folder, powers, forks)
        self._plan = SyncPlan(store, folder, self.status, self._identity, gate)
        self.recent_imports = RecentImports(store, folder, self.status, self._plan, gate)
        self._put_back = PutBack(store, folder, gate, self._begin_transaction)
        self._removals = True
        self._swept_at: dict[str, float] = {}
        self._staging: StagingDirectory | None = None
        self._trash = Trash(store.home)
        self._names = FolderNames(store.home)
        self.can_exchange = True
        """Whether the file system can let two files change places in one step."""

    def sync(
        self,
        directories: Iterable[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        removals: bool = True,
    ) -> SyncReport:
        """Bring folder and library together and return a report.

        directories: only these, by default all. removals: whether a directory that is gone may
        remove its resource; otherwise it is only reported as missing. Raises LibraryBusy when
        another process works on the folder for longer than LOCK_SECONDS, and the library's own
        errors; a directory that cannot be read or written is reported, not raised.

        The folder's lock is given back after each BATCH: others wait for one batch, not for an
        import of thousands.
        """
        sync = SyncReport(self.folder)
        with self._hold_import_lock(directories is None) as imports:
            for done, count in self._take_turns(directories, sync, removals, imports):
                if progress:
                    progress(done, count)
        return sync

    def _take_turns(
        self, directories: Iterable[str] | None, sync: SyncReport, removals: bool, imports: bool
    ) -> Iterator[tuple[int, int]]:
        """Sync one batch after the other, each with the folder's lock.

        Yield how many directories are done, of all.
        """
        wanted_directories: list[str] | None = None
        done, is_new = 0, False
        while wanted_directories is None or done < len(wanted_directories):
            if self._is_stale(sync):
                return
            with self.lock():
                # Asked with the lock held: the folder may have been dropped, or the owner deposed,
                # while this waited.
                if not self._allowed() or not self._bindings.is_watched(self.folder):
                    sync.stale = True
                    return
                # Another thread may have had a turn of its own in between, with other values.
                self._removals = removals
                self.status.with_powers = self.status.powers.directories()
                if wanted_directories is None:
                    # First what a crash left: a sync would take the middle of a swap for an edit.
                    self._recover(sync)
                    # Once, in the first turn: later ones belong to the same import.
                    is_new = self._plan.begin()
                    sync.held += self.recent_imports.judge() if self.recent_imports.imported else []
                    wanted_directories = self._list_directories(directories, sync)
                self._plan.is_new = is_new
                self._plan.held = self._held_files.of_folder(self.folder)
                batch = wanted_directories[done : done + BATCH]
                if batch:
                    is_own_import = imports or self._has_identity
                    mine = batch if is_own_import else self._exclude_imported(batch)
                    self._sync_batch(mine, sync)
                is_last = done + len(batch) >= len(wanted_directories)
                has_lock_files = directories is None or self._plan.has_read_locks
                if is_last and has_lock_files and not sync.stale:
                    self._settle_installed(wanted_directories, sync)
            done += len(batch)
            if batch:
                yield done, len(wanted_directories)

    def _is_stale(self, sync: SyncReport) -> bool:
        """Return whether the folder cannot be synchronised now, and note so."""
        obstacle = self.obstacle()
        if obstacle is None and os.path.isdir(self.folder.path):
            return False
        sync.stale = True
        sync.refused += [DirectoryIssue(".", (str(obstacle),))] if obstacle else []
        self.status.missing.clear()
        return True

    def _list_directories(self, directories: Iterable[str] | None, sync: SyncReport) -> list[str]:
        if directories is None:
            survey = self.status.everything()
            directories, sync.stale = survey.directories, survey.gone
            sync.refused += [
                DirectoryIssue(directory, (why,)) for directory, why in survey.left_out.items()
            ]
        return sorted(self._exclude_links(set(directories))) if not sync.stale else []

    @contextlib.contextmanager
    def _hold_import_lock(self, everything: bool) -> Iterator[bool]:
        """Hold the lock of an import for the body, where this is one; yield whether it is.

        An import is the first look at a folder, or is on somebody's behalf: what it has not come to
        yet is left to it.
        """
        imports = everything and (self._has_identity or self._plan.origins.is_new)
        with contextlib.ExitStack() as locks:
            if imports:
                # A second lock, held across batches: others may sync what is bound, and leave the
                # rest to this import.
                locks.enter_context(
                    exclusive(self._locate_lock("import"), LOCK_SECONDS, str(self.folder.path))
                )
            yield imports

    def _exclude_imported(self, directories: Sequence[str]) -> Sequence[str]:
        """Return the directories without those that another process is about to import."""
        if not is_held(self._locate_lock("import")):
            return directories
        bound = self._bindings.of_directories(self.folder, directories)
        return [directory for directory in directories if directory in bound]

    def obstacle(self) -> FolderObstacle | None:
        """Return why the folder is not read or written, None for no reason."""
        return self._names.obstacle(self.folder)

    def git_activity(self, directory: str) -> str:
        """Return the activity of git around a directory, '' for none.

        Changes of an unknown principal wait for it.
        """
        return self._plan.origins.activity(directory)

    def is_read_only(self, directory: str) -> bool:
        """Return whether a directory of the folder cannot be written, because it or the folder is
        read-only.
        """
        return self.folder.is_plugins or any(
            map(is_read_only, (self.folder.path, self.folder.path / directory))
        )

    def _check_writable(self, state: DirectoryState, head: Head) -> None:
        if self.is_read_only(state.directory):
            raise Refused(
                f"{self.folder.path / state.directory} is read-only, so {head.ref} is not "
                "written there.",
                "The library is right; the program that makes the folder has to bring it.",
            )

    def directories_at(self, places: Iterable[str]) -> set[str]:
        """Return the directories of resources that these paths below the folder lie in, are, or
        contain.
        """
        return self.status.directories_at(places)

    def _exclude_links(self, directories: set[str]) -> set[str]:
        """Return the directories without those that are links to another folder's resources.

        These are not bound.
        """
        linked = self.status.filter_linked(filter(is_inside, directories))
        bound = self._bindings.of_directories(self.folder, linked) if linked else {}
        for binding in bound.values():
            self._bindings.unbind(binding)
        # A row of the library's file may say anything; only names below the folder are looked at.
        return {directory for directory in directories - linked if is_inside(directory)}

    def place(self, head: Head, *, forks: bool = False) -> SyncReport:
        """Write a resource that no directory holds yet into the folder, under its name.

        Nothing is written over. forks: the client of the folder starts agents by two lines of a
        skill's head, and the copy belongs to the checkout.
        """
        sync = SyncReport(self.folder)
        directory = single_name(head.kind, head.name, self.folder.path)
        if self.status.filter_linked([directory]):
            return sync  # it is written into the folder that the link leads to
        if directory in self._held_files.of_folder(self.folder):
            return self.sync([directory])  # what lies there waited for this decision
        if os.path.lexists(self.folder.path / directory):
            why = f"it is in the way of {head.ref}, which is not written here"
            sync.refused.append(DirectoryIssue(directory, (why,)))
            return sync
        with self.lock():
            if forks and head.kind is Kind.SKILL:
                self.status.powers.own(directory, head)
            # With no version: it is written as soon as the folder is there, if not now.
            self._bindings.bind([Binding(self.folder.id, directory, head.id, None, "")])
            sync.stale = not os.path.isdir(self.folder.path)
            if not sync.stale:
                self._sync_batch([directory], sync)
        return sync

    def staging(self) -> StagingDirectory:
        """Return where directories are built and replaced ones wait.

        Raise Refused when that cannot be.
        """
        if self._staging is None or not self._staging.is_usable():
            # What decides where bytes go lies in the library's home: anybody can commit a file to a
            # work tree.
            self._staging = staging_for(
                self.folder.path, recovery_notes(self.store.home, self.folder.id)
            )
        return self._staging

    def _keep(self, old: PathAt, directory: str) -> None:
        self._trash.put(old, self.folder.path, directory, time.time())

    def _bring_back(self, directory: str) -> None:
        """Put back files that belong to no version of a directory that was removed and is written
        again.
        """
        with contextlib.suppress(EvolvableError, OSError):
            staging = self.staging()
            sweep(staging, time.time(), 0.0, keep=self._keep, only=directory)
            entry = self._trash.newest_of(self.folder.path, directory)
            if entry is not None:
                with open_staging(staging) as place:
                    self._trash.put_back(entry.id, place.target(directory), all_files=False)

    def lock(self, seconds: float = LOCK_SECONDS) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of the folder for the body. Raise LibraryBusy."""
        return exclusive(self._locate_lock("folder"), seconds, str(self.folder.path))

    def _locate_lock(self, what: str) -> Path:
        place = self.store.home / "locks"
        if not place.is_dir():
            place.mkdir(mode=0o700, exist_ok=True)
        return place / f"{what}-{self.folder.id}.lock"

    def _sync_batch(self, directories: Sequence[str], sync: SyncReport) -> None:
        for _ in range(_MAX_TRIES):
            try:
                again = self._try_batch(directories, sync)
            except VersionConflict:
                continue  # another process moved a head between our look and our write: look again
            if not again:
                return
            directories = again
        why = "other processes change it all the time; it is looked at again"
        sync.refused += [DirectoryIssue(directory, (why,)) for directory in directories]
        sync.again |= set(directories)

    def _try_batch(self, directories: Sequence[str], sync: SyncReport) -> list[str]:
        """Take one step for each directory.

        Return those that have to be looked at again after the others.
        """
        edits: list[Edit] = []
        bound: list[Binding] = []
        later: list[tuple[DirectoryState, SyncStep]] = []
        again: list[str] = []
        names: set[str] = set()
        for state in self.status.find_changed_states(directories, sync.unchanged):
            if state.reading is not None and not state.signature:
                sync.unsettled.add(state.directory)
            step = self._plan.decide_held(state, sync) or self._plan.decide(state)
            reads_content = step in (SyncStep.SNAPSHOT, SyncStep.RENAME, SyncStep.BIND)
            if reads_content and not self._plan.is_fit(state, step, sync):
                continue
            may_rewrite = step is SyncStep.BIND and not self.folder.is_plugins
            if may_rewrite and self.status.is_given_otherwise(state):
                step = SyncStep.CHECKOUT
            if step is SyncStep.BIND:
                sync.unchanged.add(state.directory)
                binding = self._make_state_binding(state, state.head, state.tree, sync)
                bound += [binding] if binding != state.binding else []
            elif step in (SyncStep.SNAPSHOT, SyncStep.RENAME):
                ref = self._plan.choose_ref(state, step, names)
                if ref.name in names:
                    # A second directory of one resource is merged into the first.
                    again.append(state.directory)
                    continue
                names.add(ref.name)
                edit = self._plan.edit(state, ref, step)
                if edit.waits:
                    sync.waiting_for_git[state.directory] = edit.waits
                elif not self._plan.hold(edit, sync):
                    edits.append(edit)
            elif step is not SyncStep.NOTHING:
                later.append((state, step))
        # One write for all directories that hold the head.
        self._bindings.bind(bound)
        plain = [edit for edit in edits if edit.lost is None]
        for identity in dict.fromkeys(edit.identity for edit in plain):
            self._import_edits([edit for edit in plain if edit.identity == identity], sync)
        for edit in edits:
            if edit.lost is not None:
                self._take_replaced(edit, edit.lost, sync)
        for state, step in later:
            self._take_step(state, step, sync)
        return again

    def _import_edits(self, edits: Sequence[Edit], sync: SyncReport) -> None:
        if not edits:
            return
        try:
            replaced = [
                f"{REPLACED}: version {edit.expected_version}"
                for edit in edits
                if edit.lost is not None
            ]
            with self._begin_transaction(
                change_reason(self._place, edits), replaced, edits[0].identity
            ) as tx:
                for edit in edits:
                    assert edit.state.reading is not None
                    self.status.note_edit(edit.state)
                    tx.put(
                        edit.ref, edit.state.reading.files, expected_version=edit.expected_version
                    )
                    tx.bind(self.folder.id, edit.state.directory, edit.state.signature)
        except Invalid as error:
            # One that nobody foresaw must not keep the others out.
            if len(edits) == 1:
                sync.refused.append(DirectoryIssue(edits[0].state.directory, (error.text,)))
            else:
                for edit in edits:
                    self._import_edits([edit], sync)
            return
        for edit, written in zip(edits, tx.written, strict=True):
            assert written.version is not None
            principal = edit.identity.principal
            sync.taken.append(
                ImportedDirectory(
                    edit.state.directory, edit.ref, written.version, edit.how, principal
                )
            )
            place = self.folder.path / edit.state.directory
            if principal is Principal.UNKNOWN and self._plan.origins.repositories(place):
                self.recent_imports.note(edit.state.directory, written.version)
            if edit.ref.name != edit.state.name:
                sync.warnings.append(DirectoryIssue(edit.state.directory, (name_taken(edit.ref),)))

    def _take_replaced(self, edit: Edit, lost: LostChanges, sync: SyncReport) -> None:
        """Make a version of files that replaced the library's.

        Learned lines that are lost are put back, or a proposal does so.
        """
        state = edit.state
        assert state.reading is not None
        # The proposal comes first: a crash after it loses nothing, and the next sync finds the
        # files again.
        number = self._put_back.propose(state.directory, lost, state.reading.files)
        self._import_edits([edit], sync)
        head, proposals = self.store.head(edit.ref), self.store.backend.proposals
        if head.latest == lost.head.latest:
            # The import failed, so nothing replaced the learned lines.
            proposals.reject(number, "the files were not imported, so nothing is lost")
            return
        is_merged = False
        if lost.source is not SourceKind.NONE:
            proposal = proposals.get(number)
            is_merged = self._merge_back(state, head, proposal, edit.identity, sync)
        if not is_merged:
            sync.replaced.append(HeldContent(state.directory, edit.ref, number, lost.reason))

    def _merge_back(
        self,
        state: DirectoryState,
        head: Head,
        proposal: Proposal,
        identity: Identity,
        sync: SyncReport,
    ) -> bool:
        """Put learned lines back into a directory that holds the head.

        Return whether no person has to decide.
        """
        try:
            new = self._put_back.merge(state.directory, head, proposal, identity)
        except VersionConflict:
            return False
        except EvolvableError as error:
            sync.warnings.append(DirectoryIssue(state.directory, (error.text,)))
            return False
        if new is None or new.version is None:
            return False
        sync.taken.append(
            ImportedDirectory(state.directory, new.ref, new.version, "merged", identity.principal)
        )
        self._take_step(replace(state, head=new), SyncStep.CHECKOUT, sync)
        return True

    def _settle_installed(self, directories: Sequence[str], sync: SyncReport) -> None:
        """Merge waiting proposals of skills that an installer's lock file names as replaced.

        The hashes of the lock file are noted at the end.
        """
        changed = {
            candidate
            for candidate in directories
            if self._plan.installed_skills.is_replaced(candidate)
        }
        bound = self._bindings.of_directories(self.folder, sorted(changed)) if changed else {}
        resources = {binding.resource for binding in bound.values()}
        heads = self.store.backend.heads_by_id(resources) if resources else {}
        for directory, binding in bound.items():
            head = heads[binding.resource]
            holds_head = binding.version == head.version is not None
            proposal = self._put_back.waiting(head.ref) if holds_head else None
            if proposal is not None and directory not in self._plan.held:
                mark = self.status.signature(directory)
                state = self.status.read_state(
                    directory, binding, head, head.name, mark, time.time_ns()
                )
                if state.tree == head.tree and self._merge_back(
                    state, head, proposal, self._identity, sync
                ):
                    sync.replaced = [
                        content for content in sync.replaced if content.proposal != proposal.id
                    ]
        refused = {issue.directory for issue in sync.refused}
        unread = refused | sync.unsettled | sync.waiting_for_git.keys()
        with contextlib.suppress(OSError):
            self._plan.installed_skills.note(set(directories) - unread)

    @property
    def _place(self) -> str:
        """How a reason names the folder.

        The members of a shared library read it: paths stay on their machine.
        """
        is_shared = self.store.backend.journal == "postgresql"
        return self.folder.path.name if is_shared else str(self.folder.path)

    def _begin_transaction(
        self, reason: str, evidence: Sequence[str] = (), identity: Identity | None = None
    ) -> Transaction:
        effective_identity = identity or self._identity
        return self.store.transaction(
            ACTORS.get(effective_identity.principal, Actor.HUMAN),
            reason,
            evidence=evidence,
            identity=effective_identity,
        )

    def _take_step(self, state: DirectoryState, step: SyncStep, sync: SyncReport) -> None:
        try:
            if step is SyncStep.TOMBSTONE:
                self._remove_resource(state, sync)
            elif step is SyncStep.FORGET:
                assert state.binding is not None
                self._bindings.bind(
                    [self._make_binding(state.binding.resource, state.directory, None, "")]
                )
            elif step is SyncStep.REMOVE_DIRECTORY:
                self._remove_directory(state, sync)
            elif step is SyncStep.CHECKOUT:
                assert state.head is not None
                self._write(state, state.head, self.store.files(state.head), sync)
            elif step is SyncStep.MERGE:
                self._merge(state, sync)
        except VersionConflict:
            raise
        except (EvolvableError, OSError) as error:
            why = error.text if isinstance(error, EvolvableError) else _describe_write_error(error)
            sync.refused.append(DirectoryIssue(state.directory, (why,)))
            sync.again |= {state.directory} if may_pass(error) else set()

    def _remove_resource(self, state: DirectoryState, sync: SyncReport) -> None:
        # Editors and git delete a file before they write it again: the grace is for them.
        since = self.status.missing.setdefault(state.directory, time.monotonic())
        if first_link(self.folder.path / state.directory) is not None:
            # Somebody put a link there while this sync went on: what it leads to says nothing about
            # our directory.
            sync.missing.append(state.directory)
            return
        if not self._removals or time.monotonic() - since < self.grace:
            sync.missing.append(state.directory)
            return
        self.status.missing.pop(state.directory, None)
        assert state.binding is not None and state.head is not None
        others = [
            binding
            for binding in self._bindings.of_resources([state.head.id])
            if binding != state.binding and binding.version
        ]
        if others:
            # The resource lives on in another folder; only this directory is gone.
            self._bindings.unbind(state.binding)
        else:
            with self._begin_transaction(f"deleted from {self._place}") as tx:
                tx.remove(state.head.ref, expected_version=state.head.version)
                tx.bind(self.folder.id, state.directory, "")
        sync.removed.append(state.directory)

    def _remove_directory(self, state: DirectoryState, sync: SyncReport) -> None:
        assert state.head is not None and state.tree is not None
        self._check_writable(state, state.head)
        place, believed = self.folder.path / state.directory, self._plan.believed_tree(state)
        remove = remove_single if is_single(self.folder.kind, state.directory) else remove_folder
        replaced = remove(place, self.staging(), believed=believed, now=time.time())
        self._bindings.bind([self._make_binding(state.head.id, state.directory, None, "")])
        sync.removed.append(state.directory)
        if replaced is not None and not still_holds(replaced.old, believed, state.files):
            self.import_replaced(state.directory, state.head, believed, replaced.old, sync)

    def _write(
        self, state: DirectoryState, head: Head, files: Files, sync: SyncReport, conflict: str = ""
    ) -> None:
        self._check_writable(state, head)
        place, staging = self.folder.path / state.directory, self.staging()
        blocked = sorted(set(state.reading.left_out) & set(files)) if state.reading else []
        if blocked:
            raise Refused(
                f"{', '.join(blocked)}: on disk is something else that no version keeps, so "
                f"{head.ref} is not written.",
                "Move it away, then `evolvable folders sync`.",
            )
        lying = state.reading.lying if state.reading else {}
        # `give` notes the files before they are written: after a crash they do not look like an
        # edit.
        files = self.status.powers.give(state.directory, head, files, lying)
        links = self._find_kept_links(state, head, files)
        believed, now = self._plan.believed_tree(state), time.time()
        marks: list[str] = []
        single = is_single(self.folder.kind, state.directory)
        own = {path: file for path, file in files.items() if path not in links}
        write = partial(write_folder, place, own, links=links)
        if single:
            write = partial(write_single, place, files[main_file(head.kind, head.name)])
        replaced = write(
            staging,
            believed=believed,
            now=now,
            built=lambda new: marks.append(built_signature(new)),
        )
        # After the swap: a crash in between leaves an old row, and the next sync finds the head by
        # its content.
        self._bindings.bind(
            [self._make_binding(head.id, state.directory, head.version, marks[0], conflict)]
        )
        # After the binding: after a crash in between, the note still explains the directory.
        self.status.powers.note_given(state.directory, head, files)
        sync.written.append(state.directory)
        if state.tree is None and not single:
            self._bring_back(state.directory)
        if replaced is None or not believed:
            return
        if not still_holds(replaced.old, believed, state.files):
            # Somebody saved between our look and the swap. A later sweep finds it too; sooner is
            # better.
            self.import_replaced(state.directory, head, believed, replaced.old, sync)

    def _find_kept_links(self, state: DirectoryState, head: Head, files: Files) -> list[str]:
        """Return the paths of the links in a directory, which stay.

        Nothing is written through a link, and none is replaced or removed without the person. Raise
        Refused where the head has something else in the place of one.
        """
        links = state.reading.links if state.reading else {}
        for path, target in links.items():
            if state.reading is None or files.get(path) != state.reading.lying[path]:
                raise Refused(
                    f"{path} is a link to {target}, and {head.ref} changes it, so the directory "
                    "is not written.",
                    f"Change {target}, or put a file in the place of the link, then `evolvable "
                    "folders sync`.",
                )
        return list(links)

    def _merge(self, state: DirectoryState, sync: SyncReport) -> None:
        assert state.head and state.reading and state.binding and state.binding.version is not None
        if not self._plan.is_fit(state, SyncStep.MERGE, sync):
            return
        origin = self._plan.origin(state, state.head.ref)
        if origin.waits:
            sync.waiting_for_git[state.directory] = origin.waits
            return
        if self._plan.hold(Edit(state, state.head.ref, "merged", origin.identity), sync):
            return
        lost = self._plan.find_lost(state, state.head.ref, origin)
        base = state.binding.version
        if lost is not None and lost.source is not SourceKind.NONE:
            base = lost.base
        self._merge_in(state, state.head, base, state.reading.files, sync, identity=origin.identity)

    def _merge_in(
        self,
        state: DirectoryState,
        head: Head,
        base: int,
        theirs: Files,
        sync: SyncReport,
        replaced_copy: Path | None = None,
        identity: Identity | None = None,
    ) -> None:
        """Make a version of the head plus the changes of `theirs` since `base`, and write it out.

        replaced_copy: the replaced directory that holds `theirs`, deleted once the version is safe.
        """
        base_files, ours = self.store.files(head, base), self.store.files(head)
        merged = merge_resource(head, base_files, ours, theirs)
        conflict, outcome = "", "merged"
        if merged.conflicts:
            paths = ", ".join(merged.conflicts)
            dropped = f"the edit on disk was kept in place of {name_overlaps(merged)} there"
            conflict = (
                f"{paths}: also changed in version {head.version}; {dropped}, with every other "
                f"change of both; version {head.version} still has what was dropped (base {base})"
            )
            outcome = f"conflict in {paths}, {dropped}"
        reason = f"edited in {self.folder.path} while version {head.version} was made; {outcome}"
        evidence = [f"{MERGED}, version {head.version}"]
        if conflict:
            evidence.append(f"conflict: {conflict}")
        with self._begin_transaction(reason, evidence, identity) as tx:
            tx.put(head.ref, merged.files, expected_version=head.version)
        if replaced_copy is not None:
            # Only when the version is committed: until then the only copy lies there.
            discard(replaced_copy, self.staging())
        new, result = self.store.head(head.ref), tx.written[0]
        if conflict:
            sync.conflicts.append(DirectoryIssue(state.directory, (conflict,)))
        if result.changed and result.version is not None:
            principal = (identity or self._identity).principal
            sync.taken.append(
                ImportedDirectory(state.directory, head.ref, result.version, "merged", principal)
            )
        self._write(state, new, merged.files, sync, conflict)

    def _recover(self, sync: SyncReport) -> None:
        """Import edits that were saved into a directory while it was replaced; remove leftovers.

        This process holds the folder's lock, so a swap of a process that lives is complete. It is
        examined when its replaced directory is due, by a sync that may remove. A swap of a process
        that ended is examined at once.
        """
        recovered: list[RecoveredDirectory] = []
        notes, now = recovery_notes(self.store.home, self.folder.id), time.time()
        stems = list_stems(notes)
        # When each swap was looked at, so that a quiet folder is not read at each sync.
        swept_at = {stem: at for stem, at in self._swept_at.items() if stem in stems}
        # Never on a network disk, where processes have other numbers.
        if self.store.backend.journal == "wal":
            swept_at |= complete_swaps(notes, (stem for stem in stems if stem not in swept_at))
        waiting = {
            stem
            for stem, at in swept_at.items()
            if abs(now - at) <= KEEP_SECONDS or not self._removals
        }
        if len(waiting) < len(stems):
            # What waits tells which version a directory holds.
            waiting |= self._bindings.pending_stems(self.folder)
            with contextlib.suppress(EvolvableError, OSError):
                recovered = sweep(self.staging(), now, KEEP_SECONDS, keep=self._keep, skip=waiting)
                swept_at |= dict.fromkeys((stem for stem in stems if stem not in waiting), now)
        self._swept_at = swept_at
        bindings = self._bindings.of_folder(self.folder) if recovered else {}
        for late in recovered:
            # It is kept, and the next sweep finds it.
            with contextlib.suppress(EvolvableError, OSError, ValueError):
                directory = late.target.relative_to(self.folder.path).as_posix()
                binding = bindings.get(directory)
                heads = self.store.backend.heads_by_id([binding.resource]) if binding else {}
                head = next(iter(heads.values()), None)
                safe = head is not None and not late.stuck
                if not safe or not self._take_late(
                    directory, head, late.believed, late.files, late.old, sync, part=late.part
                ):
                    message = (
                        "something of yours that belongs to no version was replaced; it is kept "
                        f"in {late.old}"
                    )
                    sync.refused.append(DirectoryIssue(directory, (message,)))

    def import_replaced(
        self, directory: str, head: Head, believed: str, old: Path, sync: SyncReport, path: str = ""
    ) -> None:
        """Make a version of edits that were saved into a directory just before it was replaced.

        old: where the replaced directory lies now. path: the part that was replaced, '' for the
        whole. A directory that cannot be read whole is left to the sweep, which reports it: a
        version of a part would delete the rest.
        """
        reading = read_back(old, path)
        if not reading.left_out:
            self._take_late(directory, head, believed, reading.files, old, sync, part=bool(path))

    def _take_late(
        self,
        directory: str,
        head: Head | None,
        believed: str,
        files: Files,
        old: Path,
        sync: SyncReport,
        *,
        part: bool = False,
    ) -> bool:
        """Make a version of files that were written into a replaced directory.

        Return whether that was possible. part: only these files were replaced, and the others are
        as they were.
        """
        # Read again: imports before this one may have moved it.
        head = self.store.head_or_none(head.ref) if head is not None else None
        if head is None:  # it got another name meanwhile
            return False
        base = self._plan.find_version(head, believed, is_single(self.folder.kind, directory))
        base = base or self.status.powers.version_of(directory, head, believed)
        taken_ns, now = time.time_ns(), self.status.signature(directory)
        state = self.status.read_state(directory, None, head, head.name, now, taken_ns)
        if base is None or not files:
            return False
        files = {**self.store.files(head, base), **files} if part else files
        if is_single(self.folder.kind, directory):
            main = main_file(head.kind, head.name)
            files = {main if path == SINGLE else path: file for path, file in files.items()}
            files = self.status.whole(head, base, files)
        files = self.status.powers.restore_files(
            directory, head, base, self.status.with_modes(head, base, files)
        )
        if blocking_problems(find_problems(head.kind, head.name, files)):
            return False  # such as a document that a crash emptied: it stays where it is kept
        if head.version is None and state.tree is None:
            with self._begin_transaction(
                f"edited in {self.folder.path} while it was removed"
            ) as tx:
                tx.put(head.ref, files, expected_version=0)
            discard(old, self.staging())
            new = self.store.head(head.ref)
            sync.taken.append(ImportedDirectory(directory, head.ref, new.latest, "returned"))
            self._write(state, new, files, sync)
            return True
        if head.version is None or state.tree != head.tree:
            return False
        self._merge_in(state, head, base, files, sync, old)
        return True

    def _make_state_binding(
        self, state: DirectoryState, head: Head | None, tree: str | None, sync: SyncReport
    ) -> Binding:
        assert head is not None
        if state.binding is None:
            sync.bound.append(state.directory)
        same = state.binding is not None and state.binding.version == head.version
        conflict = state.binding.conflict if state.binding and same else ""
        return self._make_binding(head.id, state.directory, head.version, state.signature, conflict)

    def _make_binding(
        self, resource: int, directory: str, version: int | None, mark: str, conflict: str = ""
    ) -> Binding:
        return Binding(self.folder.id, directory, resource, version, mark, conflict)


def _describe_write_error(error: OSError) -> str:
    return (
        f"cannot be written: {error.strerror or error}; the library is right, the folder is behind"
    )
