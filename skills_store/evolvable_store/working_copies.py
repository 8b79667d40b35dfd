"""All folders of a library together: a change in one place reaches every other."""

from collections.abc import Callable, Iterable
from pathlib import Path

from evolvable_store.bindings import Bindings, Folder
from evolvable_store.errors import EvolvableError
from evolvable_store.operation import Head
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.store import Store
from evolvable_store.working_copy import Refusal, Sync, WorkingCopy


class WorkingCopies:
    """The folders of one library."""

    def __init__(self, store: Store, *, grace: float = 0.0) -> None:
        """grace: as for WorkingCopy."""
        self._store, self._grace = store, grace
        self.bindings = Bindings(store.backend)
        self._copies: dict[int, WorkingCopy] = {}

    def folders(self) -> list[Folder]:
        """Returns the folders, in the order they were added."""
        return self.bindings.folders()

    def add(
        self,
        path: Path,
        *,
        scope: str = USER_SCOPE,
        kind: Kind = Kind.SKILL,
        progress: Callable[[int, int], None] | None = None,
    ) -> Sync:
        """Watches a folder from now on and takes in what is there. Raises AlreadyExists, InvalidArgument."""
        return self.copy(self.bindings.add_folder(path, scope, kind)).sync(progress=progress)

    def copy(self, folder: Folder) -> WorkingCopy:
        """Returns the working copy of a folder, always the same one."""
        if folder.id not in self._copies:
            self._copies[folder.id] = WorkingCopy(self._store, folder, grace=self._grace)
        return self._copies[folder.id]

    def sync(self) -> list[Sync]:
        """Brings every folder and the library together. What one folder brings in reaches those before it too."""
        syncs = [self.copy(folder).sync() for folder in self.folders()]
        refs = {taken.ref for sync in syncs for taken in sync.taken}
        return syncs + (self.behind(refs) if len(syncs) > 1 and refs else [])

    def behind(self, refs: Iterable[Ref]) -> list[Sync]:
        """Brings those directories up to date that hold another version of these resources than the head."""
        heads = [head for ref in refs if (head := self._store.head_or_none(ref)) is not None]
        versions = {head.id: head.version for head in heads}
        directories: dict[int, list[str]] = {}
        for binding in self.bindings.of_resources(versions):
            if binding.version != versions[binding.resource]:
                directories.setdefault(binding.folder, []).append(binding.directory)
        return [self.copy(f).sync(directories[f.id]) for f in self.folders() if f.id in directories]

    def write_out(self, refs: Iterable[Ref], *, created: bool = False) -> list[str]:
        """Brings the folders in step with what was just changed; returns what went wrong or was remarkable.

        created: the resources are new; each is written into every folder of its scope and kind.
        """
        if self._store.read_only:
            return []
        try:
            refs = list(refs)
            syncs = self.behind(refs)
            for ref in refs if created else ():
                head = self._store.head(ref)
                if not self.bindings.of_resources([head.id]):
                    syncs += self._place(head)
        except EvolvableError as error:
            return [error.text]
        return [f"{s.folder.path}/{r.directory}: {'; '.join(r.problems)}" for s in syncs for r in _remarks(s)]

    def _place(self, head: Head) -> list[Sync]:
        folders = [f for f in self.folders() if (f.scope, f.kind) == (head.scope, head.kind)]
        return [self.copy(folder).place(head) for folder in folders]


def _remarks(sync: Sync) -> list[Refusal]:
    return [*sync.refused, *sync.conflicts]
