"""All folders of a library together: a change in one folder reaches every other."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.objects import Files, Manifest
from evolvable_store.operation import QUICKSTART, Head, Identity, Principal
from evolvable_store.power_fields import PowerPolicy
from evolvable_store.resource import USER_SCOPE, Kind, Ref, is_plugins
from evolvable_store.storage import Binding, Place, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.workingcopy.atomic_dir import make_durable, still_holds, unknown_entries
from evolvable_store.workingcopy.discovery import single_name
from evolvable_store.workingcopy.folder_names import FolderNames
from evolvable_store.workingcopy.git_repository import MOVED_SECONDS
from evolvable_store.workingcopy.incoming import HoldPolicy, SyncReport, describe_results
from evolvable_store.workingcopy.origins import GitPositions
from evolvable_store.workingcopy.plugin_folders import find_moved_folder, plugin_place
from evolvable_store.workingcopy.staged_checkout import StagedCheckout
from evolvable_store.workingcopy.staging_dir import recovery_notes
from evolvable_store.workingcopy.sync import WorkingCopy
from evolvable_store.workingcopy.written_powers import ForkPolicy

# Trades processor time for how soon the import goes on.
_GIT_PAUSE = 0.1
"""Seconds between two looks whether git has finished."""


class WorkingCopies:
    """The folders of one library."""

    def __init__(
        self,
        store: Store,
        *,
        grace: float = 0.0,
        gate: HoldPolicy | None = None,
        allowed: Callable[[], bool] = lambda: True,
        powers: PowerPolicy = lambda _: None,
        forks: ForkPolicy = lambda *_: "",
    ) -> None:
        """grace, gate, allowed, powers, forks: as for WorkingCopy."""
        self._store, self._grace, self._gate, self._allowed = store, grace, gate, allowed
        self._powers, self._forks = powers, forks
        self.bindings = store.backend.bindings
        self._copies: dict[int, WorkingCopy] = {}

    def folders(self) -> list[WatchedFolder]:
        """Return the folders, in the order they were added."""
        return self.bindings.folders()

    def add(
        self,
        path: Path,
        *,
        scope: str = USER_SCOPE,
        kind: Kind = Kind.SKILL,
        progress: Callable[[int, int], None] | None = None,
        identity: Identity | None = None,
    ) -> SyncReport:
        """Watch a folder from now on and import its resources.

        identity: who answers for its content now; later changes on disk are of an unknown
        principal. Raise AlreadyExists, InvalidArgument.
        """
        folder = self._watch(path, scope, kind)
        copy = self._make_working_copy(folder, identity)
        # An import right after `git clone` or `git pull` would hold files that git still moves.
        sync = _sync_after_git(copy, copy.sync(progress=progress))
        if identity is not None and identity.principal is Principal.PERSON and sync.bound:
            self._stand_for(folder, sync.bound, identity)
        return sync

    def _stand_for(
        self, folder: WatchedFolder, directories: Iterable[str], identity: Identity
    ) -> None:
        """Record that the person stands for copies which the program itself imported from here."""
        backend = self._store.backend
        bound = self.bindings.of_directories(folder, directories).values()
        newest = backend.authorship.newest_authors({binding.resource for binding in bound})
        copied = [
            authors
            for authors in newest.values()
            if Identity(authors.maker.principal, authors.maker.via) == QUICKSTART
        ]
        if copied:
            backend.attestations.vouch(
                ((authors.resource, authors.maker.tree) for authors in copied),
                self._store.now(),
                identity,
            )

    def _watch(self, path: Path, scope: str, kind: Kind) -> WatchedFolder:
        """Watch the folder that a path leads to.

        A path that led to another folder keeps the resources of that one.
        """
        if is_plugins(scope) is not (plugin_place(path.resolve()) is not None):
            raise InvalidArgument(
                f"{path} and the scope {scope} do not fit: a plugin's folder has the scope of "
                "the plugin.",
                "`evolvable init FOLDER` without --scope finds the right one. A plugin's folder "
                "is never written.",
            )
        names, folders = FolderNames(self._store.home), self.folders()
        turned = None
        if path.resolve() not in {watched.path for watched in folders}:
            same = [item for item in folders if (item.scope, item.kind) == (scope, kind)]
            turned = names.find_turned(path, same)
        if turned is None:
            folder = self.bindings.add_folder(path, scope, kind)
            if folder not in folders:
                # A folder that was watched before is imported again, and so counts the log from now
                # on.
                GitPositions(self._store.home, folder).forget()
        else:
            folder = self.bindings.move_folder(turned, path)
        names.remember(path, folder)
        return folder

    def check_out(
        self,
        path: Path,
        *,
        scope: str = USER_SCOPE,
        kind: Kind = Kind.SKILL,
        names: Iterable[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        forks: bool = False,
    ) -> SyncReport:
        """Write the library's resources into a folder and watch it from now on.

        The folder is made when it is not there, and its own resources are imported first. Nothing
        is written over. names: only these resources, by default all of the scope and kind. forks:
        as for `WorkingCopy.place`. Raises AlreadyExists, InvalidArgument, NoSuchResource, OSError.
        """
        wanted_heads: list[Head] | None = None
        if names is not None:
            # Before the folder is made: an unknown name raises.
            wanted_heads = [self._store.head(Ref(kind, name, scope)) for name in names]
        folder = self._watch(path, scope, kind)
        folder.path.mkdir(parents=True, exist_ok=True)
        copy = self.copy(folder)
        # First what lies there, so that it becomes versions before anything is written.
        sync = copy.sync()
        heads = self._store.heads(kind, scope) if wanted_heads is None else wanted_heads
        bindings = self.bindings.of_folder(folder).values()
        here = {binding.resource for binding in bindings if binding.version is not None}
        here |= copy.status.linked_resources()
        absent = [head for head in heads if head.id not in here]
        for number, head in enumerate(absent, 1):
            sync.add(copy.place(head, forks=forks))
            if progress:
                progress(number, len(absent))
        return sync

    def unknown_entries(self) -> list[Path]:
        """Return the entries in staging folders that this library did not make.

        See `staging_dir.unknown_entries`.
        """
        return [
            entry
            for folder in self.folders()
            for entry in unknown_entries(folder.path, recovery_notes(self._store.home, folder.id))
        ]

    def holds(self, directory: Path, manifest: Manifest) -> bool:
        """Return whether the files of a directory are those of a version, byte by byte."""
        return still_holds(directory, manifest.tree, manifest)

    def copy(self, folder: WatchedFolder) -> WorkingCopy:
        """Return the working copy of a folder, the same one while the folder is."""
        working_copy = self._copies.get(folder.id)
        # It may have moved, or belong to another scope now.
        if working_copy is None or working_copy.folder != folder:
            working_copy = self._copies[folder.id] = self._make_working_copy(folder, None)
        return working_copy

    def _make_working_copy(self, folder: WatchedFolder, identity: Identity | None) -> WorkingCopy:
        return WorkingCopy(
            self._store,
            folder,
            grace=self._grace,
            identity=identity,
            gate=self._gate,
            allowed=self._allowed,
            powers=self._powers,
            forks=self._forks,
        )

    def sync_as(
        self, folder: WatchedFolder, directories: Iterable[str], identity: Identity
    ) -> SyncReport:
        """Import the content of these directories on behalf of the identity that wrote it."""
        return self._make_working_copy(folder, identity).sync(directories, removals=False)

    def settle(self, folder: WatchedFolder) -> None:
        """Wait until exchanged directories of a folder are on the disk, and record that.

        Raise LibraryBusy.
        """
        copy, settled = self.copy(folder), list[tuple[Binding, Binding]]()
        for binding in self.bindings.pending(folder):
            resolved = copy.status.resolve(binding, copy.status.signature(binding.directory))
            is_untouched = resolved.unsynced and resolved.mark is not None
            if is_untouched and resolved.binding.version == binding.version:
                with contextlib.suppress(EvolvableError, OSError):
                    # First the disk, then the row: after the row, a power failure cannot cut these
                    # files any more.
                    make_durable(folder.path, binding.directory)
                    settled.append((binding, resolved.binding))
        self.bindings.settle(settled)

    def sync(self) -> list[SyncReport]:
        """Bring every folder and the library together.

        Imports from one folder reach the folders before it too.
        """
        self.follow_plugins()
        if not self._store.read_only:
            for folder in self.folders():
                self.settle(folder)
        syncs = [self.copy(folder).sync() for folder in self.folders()]
        # After all folders: git finishes while the others are read.
        syncs = [_sync_after_git(self.copy(sync.folder), sync) for sync in syncs]
        refs = {imported.ref for sync in syncs for imported in sync.taken}
        return syncs + (self.sync_behind(refs) if len(syncs) > 1 and refs else [])

    def follow_plugins(self) -> None:
        """Watch the version of each plugin that its client uses now. Raise LibraryBusy."""
        if self._store.read_only:
            return
        for folder in self.folders():
            place = find_moved_folder(folder) if folder.is_plugins else None
            if place is not None:
                self.bindings.move_folder(folder, place)

    def sync_behind(
        self, resources: Iterable[Ref | Head], *, removals: bool = True
    ) -> list[SyncReport]:
        """Sync the directories that hold another version of these resources than the head.

        removals: as for WorkingCopy.sync.
        """
        heads = self._read_heads(resources)
        directories: dict[WatchedFolder, list[str]] = {}
        for folder, binding, _ in self.bindings.places(heads) if heads else ():
            head = heads[binding.resource]
            # The exchange of a pending checkout did not happen if its process was killed.
            failed = binding.is_pending and not self.copy(folder).status.is_unchanged(binding, head)
            if failed or binding.version != head.version:
                directories.setdefault(folder, []).append(binding.directory)
        return [
            self.copy(folder).sync(each, removals=removals) for folder, each in directories.items()
        ]

    @contextlib.contextmanager
    def stage_checkout(
        self,
        head: Head | None,
        base: Manifest | None,
        files: Files,
        places: Sequence[Place] | None = None,
    ) -> Iterator[StagedCheckout]:
        """Build the next version of a resource in the folders, and yield the checkout.

        The body makes the transaction of that version. head: as `take_in` left it, None for a new
        resource. base: its manifest. files: of the next version. places: those of the resource, if
        the caller has read them; they are compared again with the locks of the folders held.
        """
        checkout = StagedCheckout()
        try:
            if head is not None and base is not None and not self._store.read_only:
                places = self.bindings.places([head.id]) if places is None else places
                if not any(is_held for _, _, is_held in places):
                    copies = [(self.copy(folder), binding) for folder, binding, _ in places]
                    checkout.prepare(copies, head, base, files)
            yield checkout
        finally:
            # Also after an error: the locks of the folders must not outlive the block.
            checkout.close()

    def take_in(self, resources: Iterable[Ref | Head]) -> bool:
        """Import saved edits from the directories of these resources.

        Return whether a head may have moved.
        """
        heads = self._read_heads(resources)
        return self.import_saved(heads, self.bindings.places(heads) if heads else [])

    def _read_heads(self, resources: Iterable[Ref | Head]) -> dict[int, Head]:
        heads = [
            resource if isinstance(resource, Head) else self._store.head_or_none(resource)
            for resource in resources
        ]
        return {head.id: head for head in heads if head is not None}

    def import_saved(self, heads: Mapping[int, Head], places: Sequence[Place]) -> bool:
        """Import saved edits from these places; return whether a head may have moved."""
        if self._store.read_only:
            return False
        changed: dict[WatchedFolder, list[str]] = {}
        for folder, binding, _ in places:
            if not self.copy(folder).status.is_unchanged(binding, heads[binding.resource]):
                changed.setdefault(folder, []).append(binding.directory)
        for folder, directories in changed.items():
            with contextlib.suppress(EvolvableError, OSError):
                self.copy(folder).sync(directories, removals=False)
        return bool(changed)

    def write_powers(self, refs: Iterable[Ref]) -> list[str]:
        """Write the powers and delegates in force into the directories; return the failures.

        refs: the resources whose directories are written. Never raises: the decision is made
        already, and the next sync writes them too.
        """
        heads = self._read_heads(refs)
        if not heads or self._store.read_only:
            return []
        directories: dict[WatchedFolder, list[str]] = {}
        for folder, binding, _ in self.bindings.places(heads):
            if self.copy(folder).status.powers.of(binding.directory):
                directories.setdefault(folder, []).append(binding.directory)
        try:
            syncs = [
                self.copy(folder).sync(each, removals=False) for folder, each in directories.items()
            ]
        except (EvolvableError, OSError) as error:
            return [
                f"The folders could not be written ({error}); `evolvable folders sync` does it."
            ]
        return describe_results(syncs)

    def checkout(self, refs: Iterable[Ref], *, created: bool = False) -> list[str]:
        """Synchronise the folders with the latest changes; return failures and remarks as texts.

        created: the resources are new; each is written into every folder of its scope and kind.
        Never raises: the change is made already.
        """
        if self._store.read_only:
            return []
        try:
            refs = list(refs)
            syncs = self.sync_behind(refs, removals=False)
            for ref in refs if created else ():
                head = self._store.head(ref)
                if not self.bindings.of_resources([head.id]):
                    syncs += self._place(head)
        except EvolvableError as error:
            return [error.text]
        except OSError as error:
            return [f"The folders could not be written ({error}); the library is right."]
        return describe_results(syncs)

    def free_places(self, ref: Ref) -> list[tuple[int, str]]:
        """Return the folders and directories that a new resource of this name is to lie in.

        A directory that exists already is left out.
        """
        if self._store.read_only:
            return []
        places: list[tuple[int, str]] = []
        for folder in self._list_folders(ref.kind, ref.scope):
            name = single_name(ref.kind, ref.name, folder.path)
            if not os.path.lexists(folder.path / name):
                places.append((folder.id, name))
        return places

    def _list_folders(self, kind: Kind, scope: str | None) -> list[WatchedFolder]:
        scope_and_kind = (scope or USER_SCOPE, kind)
        return [
            folder
            for folder in self.folders()
            if (folder.scope, folder.kind) == scope_and_kind and not folder.is_plugins
        ]

    def _place(self, head: Head) -> list[SyncReport]:
        return [
            self.copy(folder).place(head) for folder in self._list_folders(head.kind, head.scope)
        ]


def _sync_after_git(copy: WorkingCopy, sync: SyncReport) -> SyncReport:
    """Sync directories that wait for git again once it has finished; wait a short time for that."""
    # Longer than git counts as at work after it moved HEAD; what waits then is left to the next
    # sync.
    latest = time.monotonic() + 2 * MOVED_SECONDS
    while sync.waiting_for_git and time.monotonic() < latest:
        waiting, sync.waiting_for_git = sync.waiting_for_git, {}
        if not any(map(copy.git_activity, waiting)):
            latest = 0.0
        else:
            time.sleep(_GIT_PAUSE)
        sync.add(copy.sync(waiting))
    return sync
