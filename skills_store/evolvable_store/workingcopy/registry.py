"""All folders of a library together: a change in one place reaches every other."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_store.operation import Head, Identity
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage.bindings import Binding, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.workingcopy.atomic_dir import unknown_entries
from evolvable_store.workingcopy.incoming import HoldPolicy, SyncReport
from evolvable_store.workingcopy.staging_dir import recovery_notes
from evolvable_store.workingcopy.sync import WorkingCopy


class WorkingCopies:
    """The folders of one library."""

    def __init__(
        self,
        store: Store,
        *,
        grace: float = 0.0,
        gate: HoldPolicy | None = None,
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        """grace, gate, allowed: as for WorkingCopy."""
        self._store, self._grace, self._gate, self._allowed = store, grace, gate, allowed
        self.bindings = store.backend.bindings
        self._copies: dict[int, WorkingCopy] = {}

    def folders(self) -> list[WatchedFolder]:
        """Returns the folders, in the order they were added."""
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
        """Watch a folder from now on and import what it holds. Raise AlreadyExists, InvalidArgument.

        identity: who answers for what it holds now; later changes on disk are of an unknown principal.
        """
        folder = self.bindings.add_folder(path, scope, kind)
        return self._working_copy(folder, identity).sync(progress=progress)

    def check_out(
        self,
        path: Path,
        *,
        scope: str = USER_SCOPE,
        kind: Kind = Kind.SKILL,
        names: Iterable[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> SyncReport:
        """Makes a folder hold what the library has, and watches it from now on. What is there is imported first.

        names: only these resources, by default all of the scope and kind. The folder is made when it is not there.
        Nothing that lies in the way is written over. Raises AlreadyExists, InvalidArgument, NoSuchResource, OSError.
        """
        wanted = [self._store.head(Ref(kind, name, scope)) for name in names] if names is not None else None
        folder = self.bindings.add_folder(path, scope, kind)
        folder.path.mkdir(parents=True, exist_ok=True)
        copy = self.copy(folder)
        sync = copy.sync()
        heads = self._store.heads(kind, scope) if wanted is None else wanted
        here = {b.resource for b in self.bindings.of_folder(folder).values() if b.version is not None}
        here |= copy.status.linked_resources()
        absent = [head for head in heads if head.id not in here]
        for number, head in enumerate(absent, 1):
            sync.add(copy.place(head))
            if progress:
                progress(number, len(absent))
        return sync

    def unknown_entries(self) -> list[Path]:
        """Return the entries in staging folders that this library did not make; see `staging.unknown_entries`."""
        return [
            entry
            for folder in self.folders()
            for entry in unknown_entries(folder.path, recovery_notes(self._store.home, folder.id))
        ]

    def copy(self, folder: WatchedFolder) -> WorkingCopy:
        """Returns the working copy of a folder, always the same one."""
        if folder.id not in self._copies:
            self._copies[folder.id] = self._working_copy(folder, None)
        return self._copies[folder.id]

    def _working_copy(self, folder: WatchedFolder, identity: Identity | None) -> WorkingCopy:
        return WorkingCopy(
            self._store, folder, grace=self._grace, identity=identity, gate=self._gate, allowed=self._allowed
        )

    def sync_as(self, folder: WatchedFolder, directories: Iterable[str], identity: Identity) -> SyncReport:
        """Import what these directories hold now on behalf of somebody who is known to have written it."""
        return self._working_copy(folder, identity).sync(directories, removals=False)

    def sync(self) -> list[SyncReport]:
        """Brings every folder and the library together. What one folder brings in reaches those before it too."""
        syncs = [self.copy(folder).sync() for folder in self.folders()]
        refs = {taken.ref for sync in syncs for taken in sync.taken}
        return syncs + (self.behind(refs) if len(syncs) > 1 and refs else [])

    def behind(self, refs: Iterable[Ref], *, removals: bool = True) -> list[SyncReport]:
        """Brings those directories up to date that hold another version of these resources than the head.

        removals: as for WorkingCopy.sync.
        """
        heads = [head for ref in refs if (head := self._store.head_or_none(ref)) is not None]
        versions = {head.id: head.version for head in heads}
        directories: dict[int, list[str]] = {}
        for binding in self.bindings.of_resources(versions):
            if binding.version != versions[binding.resource]:
                directories.setdefault(binding.folder, []).append(binding.directory)
        return [self.copy(f).sync(directories[f.id], removals=removals) for f in self.folders() if f.id in directories]

    def take_in(self, refs: Iterable[Ref]) -> bool:
        """Import what was saved in the directories of these resources; return whether a head may have moved."""
        heads = {head.id: head for ref in refs if (head := self._store.head_or_none(ref)) is not None}
        directories: dict[int, list[Binding]] = {}
        for binding in self.bindings.of_resources(heads):
            directories.setdefault(binding.folder, []).append(binding)
        moved = False
        for folder in self.folders() if directories and not self._store.read_only else ():
            copy = self.copy(folder)
            known = [(binding, heads[binding.resource]) for binding in directories.get(folder.id, ())]
            changed = [one.directory for one, head in known if not copy.status.is_unchanged(one, head)]
            if changed:
                moved = True
                with contextlib.suppress(EvolvableError, OSError):
                    copy.sync(changed, removals=False)
        return moved

    def checkout(self, refs: Iterable[Ref], *, created: bool = False) -> list[str]:
        """Synchronise the folders with the latest changes; returns what went wrong or was remarkable.

        created: the resources are new; each is written into every folder of its scope and kind. Never raises: the
        change is made already.
        """
        if self._store.read_only:
            return []
        try:
            refs = list(refs)
            syncs = self.behind(refs, removals=False)
            for ref in refs if created else ():
                head = self._store.head(ref)
                if not self.bindings.of_resources([head.id]):
                    syncs += self._place(head)
        except EvolvableError as error:
            return [error.text]
        except OSError as error:
            return [f"The folders could not be written ({error}); the library is right."]
        return [remark for sync in syncs for remark in _describe_result(sync)]

    def _place(self, head: Head) -> list[SyncReport]:
        folders = [f for f in self.folders() if (f.scope, f.kind) == (head.scope, head.kind)]
        return [self.copy(folder).place(head) for folder in folders]


def _describe_result(sync: SyncReport) -> Iterator[str]:
    place = sync.folder.path
    if sync.stale:
        yield f"{place} is not there now; the change is in the library, and is written when the folder is back"
    for refusal in (*sync.refused, *sync.conflicts):
        yield f"{place}/{refusal.directory}: {'; '.join(refusal.problems)}"
    for held in sync.held:
        yield f"{place}/{held.directory} waits in the inbox (proposal {held.proposal}) and is left as it is"
    for directory in sync.missing:
        yield f"{place}/{directory} is not there now; the change is in the library, and is written when it is back"
