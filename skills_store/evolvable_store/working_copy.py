"""Keeps one folder on disk and the library in step, in both directions, without ever losing a person's edit.

Every sync starts by looking at what the folder holds now. What differs from the version it was known to hold is a
person's edit and becomes a version before anything is written. Contents are compared by hash, so our own writes are
recognised whichever process made them, and what a crash left half done is mended by the next look.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from evolvable_store.bindings import Binding, Bindings, Folder
from evolvable_store.errors import EvolvableError, LibraryBusy, VersionConflict
from evolvable_store.folder import Reading, Signature, is_ignored, read_folder, signature
from evolvable_store.merge import merge_files
from evolvable_store.objects import Files, manifest_of
from evolvable_store.operation import Actor, Head
from evolvable_store.problems import Problem, main_path, problems, refused
from evolvable_store.reconcile import Step, decide
from evolvable_store.resource import MAX_NAME, Kind, Ref, main_file, slugify
from evolvable_store.store import Store
from evolvable_store.swap import discard, remove_folder, staging_for, still_holds, sweep, write_folder
from evolvable_store.transaction import Transaction

LOCK_SECONDS = 30.0
"""How long a sync waits for another process that works on the same folder."""

BATCH = 200
"""Directories whose edits become one operation."""

MAX_DEPTH = 4
"""How deep below the folder resources are looked for."""

KEEP_SECONDS = 60.0
"""How long a replaced directory is kept, for readers that still have it open."""

_TRIES = 8


@dataclass(frozen=True, slots=True)
class Taken:
    """A directory whose content became a version. `how`: 'new', 'edited', 'returned' or 'merged'."""

    directory: str
    ref: Ref
    version: int
    how: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A directory that was not taken in, with every reason."""

    directory: str
    problems: tuple[str, ...]


@dataclass(slots=True)
class Sync:
    """What one sync did. Directories are relative to the folder.

    stale: the folder itself is not there; nothing was touched. missing: directories that vanished so recently that
    they may come back; sync again soon.
    """

    folder: Folder
    taken: list[Taken] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    warnings: list[Refusal] = field(default_factory=list)
    conflicts: list[Refusal] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    stale: bool = False

    @property
    def waiting(self) -> bool:
        """Whether a directory is missing that may come back."""
        return bool(self.missing)


@dataclass(frozen=True, slots=True)
class _Look:
    """One directory as it was seen: what the library knows of it, and what it holds."""

    directory: str
    binding: Binding | None
    head: Head | None
    reading: Reading | None
    tree: str | None
    name: str
    taken_ns: int

    @property
    def signature(self) -> str:
        if self.reading is None:
            return ""
        seen = Signature(self.reading.signature, self.reading.newest)
        return seen.digest if seen.trusted(self.taken_ns) else ""


class WorkingCopy:
    """One folder of one library. Any number of processes may sync the same folder; they take turns."""

    def __init__(self, store: Store, folder: Folder, *, grace: float = 0.0) -> None:
        """grace: seconds that a vanished directory may take to come back before its resource is removed."""
        self.store, self.folder, self.grace = store, folder, grace
        self._bindings = Bindings(store.backend)
        self._missing: dict[str, float] = {}
        self._refused: dict[str, str] = {}

    def sync(
        self, directories: Iterable[str] | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Sync:
        """Brings folder and library together and returns what was done.

        directories: only these, by default all. Raises LibraryBusy when another process works on the folder for
        longer than LOCK_SECONDS, and the library's own errors; a directory that cannot be read or written is
        reported, not raised.
        """
        sync = Sync(self.folder)
        if not self.folder.path.is_dir():
            sync.stale = True
            return sync
        with self._lock():
            self._recover(sync)
            wanted = sorted(set(self._directories() if directories is None else directories))
            if directories is None:
                sync.refused += self._links()
            for start in range(0, len(wanted), BATCH):
                self._sync_batch(wanted[start : start + BATCH], sync)
                if progress:
                    progress(min(start + BATCH, len(wanted)), len(wanted))
        return sync

    def directories_at(self, places: Iterable[str]) -> set[str]:
        """Returns the directories of resources that these paths below the folder lie in, are, or contain."""
        bound = self._bindings.of_folder(self.folder)
        found: set[str] = set()
        for place in places:
            parts = place.split("/")
            above = ["/".join(parts[:depth]) for depth in range(1, min(len(parts), MAX_DEPTH) + 1)]
            inside = next((d for d in above if d in bound or self._is_resource(d)), None)
            if inside is not None:
                found.add(inside)
            else:
                found.update(directory for directory in bound if directory.startswith(f"{place}/"))
                if len(parts) < MAX_DEPTH and not any(part.startswith(".") for part in parts):
                    found.update(self._found(self.folder.path / place, f"{place}/", len(parts) + 1))
        return found

    def _is_resource(self, directory: str) -> bool:
        place = self.folder.path / directory
        hidden = any(part.startswith(".") or is_ignored(part) for part in directory.split("/"))
        return not hidden and not place.is_symlink() and self._holds_main(place)

    def place(self, head: Head) -> Sync:
        """Writes a resource that no directory holds yet into the folder, under its name; never over anything."""
        sync = Sync(self.folder)
        target = self.folder.path / head.name
        if not self.folder.path.is_dir():
            sync.stale = True
        elif target.exists() or target.is_symlink():
            sync.refused.append(Refusal(head.name, (f"it is in the way of {head.ref}, which is not written here",)))
        else:
            with self._lock():
                self._bindings.bind([Binding(self.folder.id, head.name, head.id, None, "")])
                self._sync_batch([head.name], sync)
        return sync

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        place = self.store.home / "locks"
        place.mkdir(mode=0o700, exist_ok=True)
        try:
            with FileLock(place / f"folder-{self.folder.id}.lock", timeout=LOCK_SECONDS, poll_interval=0.005):
                yield
        except Timeout:
            raise LibraryBusy(
                f"Another process has worked on {self.folder.path} for {LOCK_SECONDS:.0f} seconds.",
                "Try again; `evolvable doctor` shows who has the library open.",
            ) from None

    # Looking

    def _directories(self) -> set[str]:
        """Returns the directories that hold a resource or are known to have held one."""
        return {*self._bindings.of_folder(self.folder), *self._found(self.folder.path, "", 1)}

    def _found(self, place: Path, prefix: str, depth: int) -> Iterator[str]:
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            if entry.name.startswith(".") or is_ignored(entry.name) or not entry.is_dir(follow_symlinks=False):
                continue
            directory = f"{prefix}{entry.name}"
            if self._holds_main(Path(entry.path)):
                yield directory
            elif depth < MAX_DEPTH:
                yield from self._found(Path(entry.path), f"{directory}/", depth + 1)

    def _links(self) -> list[Refusal]:
        with contextlib.suppress(OSError):
            linked = (e for e in os.scandir(self.folder.path) if e.is_symlink() and self._holds_main(Path(e.path)))
            why = "it is a symbolic link, and those are not followed; watch the folder that it points into"
            return [Refusal(entry.name, (why,)) for entry in linked]
        return []

    def _holds_main(self, place: Path) -> bool:
        main = main_file(self.folder.kind, place.name)
        if (place / main).exists():
            return True
        try:
            return any(name.casefold() == main.casefold() for name in os.listdir(place))
        except OSError:
            return False

    def _looks(self, directories: Sequence[str]) -> Iterator[_Look]:
        """Yields those directories that need a step; the cheap check by stat lets the others pass."""
        bindings = self._bindings.of_folder(self.folder)
        heads = self.store.backend.heads_by_id({b.resource for d in directories if (b := bindings.get(d))})
        for directory in directories:
            binding = bindings.get(directory)
            head = heads[binding.resource] if binding else None
            place = self.folder.path / directory
            now = signature(place)
            if self._unchanged(directory, binding, head, now):
                continue
            name = head.name if head else slugify(place.name)
            if head is None and name:
                head = self.store.head_or_none(Ref(self.folder.kind, name, self.folder.scope))
            yield self._look(directory, binding, head, name, now)

    def _unchanged(self, directory: str, binding: Binding | None, head: Head | None, now: Signature | None) -> bool:
        if now is not None and self._refused.get(directory) == now.digest:
            return True
        if binding is None or head is None:
            return False
        if now is None:
            return binding.version is None and head.version is None
        return binding.version == head.version and binding.signature != "" and binding.signature == now.digest

    def _look(
        self, directory: str, binding: Binding | None, head: Head | None, name: str, now: Signature | None
    ) -> _Look:
        taken_ns = time.time_ns()
        reading = None
        if now is not None:
            with contextlib.suppress(FileNotFoundError):
                reading = read_folder(self.folder.path / directory)
        tree = manifest_of(reading.files).tree if reading else None
        return _Look(directory, binding, head, reading, tree, name, taken_ns)

    # Stepping

    def _sync_batch(self, directories: Sequence[str], sync: Sync) -> None:
        for attempt in range(_TRIES):
            try:
                return self._try_batch(directories, sync)
            except VersionConflict:
                # Another process moved a head between our look and our write: look again.
                if attempt == _TRIES - 1:
                    raise
        return None

    def _try_batch(self, directories: Sequence[str], sync: Sync) -> None:
        edits: list[tuple[_Look, Ref, str]] = []
        bound: list[Binding] = []
        later: list[tuple[_Look, Step]] = []
        names: set[str] = set()
        for look in self._looks(directories):
            step = self._decide(look)
            if step in (Step.SNAPSHOT, Step.RENAME, Step.BIND) and not self._fit(look, sync):
                continue
            if step is Step.BIND:
                bound.append(self._binding(look, look.head, look.tree, sync))
            elif step in (Step.SNAPSHOT, Step.RENAME):
                ref = self._ref_for(look, step, names)
                names.add(ref.name)
                edits.append((look, ref, "new" if step is Step.RENAME else _how(look)))
                if ref.name != look.name:
                    other = f"the library has another {self.folder.kind} of this name; this one is kept as {ref}"
                    sync.warnings.append(Refusal(look.directory, (other,)))
            elif step is not Step.NOTHING:
                later.append((look, step))
        self._bindings.bind(bound)
        self._snapshot(edits, sync)
        for look, step in later:
            self._one(look, step, sync)

    def _decide(self, look: _Look) -> Step:
        head = look.head

        def tree_of(number: int) -> str:
            assert head is not None
            return head.tree if number == head.latest else self.store.version(head, number).tree

        return decide(look.binding, head, look.tree, tree_of, self._is_taken(look))

    def _is_taken(self, look: _Look) -> bool:
        """Returns whether a directory other than this one, in any folder, holds the resource of this name."""
        if look.head is None or (look.binding is not None and look.binding.version is not None):
            return False
        here = (self.folder.id, look.directory)
        others = self._bindings.of_resources([look.head.id])
        return any(b.version is not None and (b.folder, b.directory) != here for b in others)

    def _fit(self, look: _Look, sync: Sync) -> bool:
        """Returns whether the directory may be taken in; reports every problem it has, stopping or not."""
        assert look.reading is not None
        kind, name = self.folder.kind, Path(look.directory).name
        if not look.name:
            sync.refused.append(Refusal(look.directory, (f"no name can be made of {ascii(name)}",)))
            return False
        main = main_path(kind, look.name, look.reading.files) or main_file(kind, look.name)
        if main not in look.reading.files:
            # In the middle of a save, or no resource at all: what is known stays as it is.
            like = next((path for path in look.reading.left_out if path.casefold() == main.casefold()), "")
            if like:
                self._refused[look.directory] = look.reading.signature if look.signature else ""
                sync.refused.append(Refusal(look.directory, (f"{like}: {look.reading.left_out[like]}",)))
            elif look.binding is not None and look.binding.version is not None:
                sync.refused.append(Refusal(look.directory, (f"{main}: is missing",)))
            return False
        found = problems(kind, name if kind is Kind.SKILL else look.name, look.reading.files)
        stops = refused(found, strict=False)
        if stops:
            self._refused[look.directory] = look.reading.signature if look.signature else ""
            sync.refused.append(Refusal(look.directory, tuple(map(str, stops))))
            return False
        self._warn(look, found, sync)
        return True

    def _warn(self, look: _Look, found: Sequence[Problem], sync: Sync) -> None:
        assert look.reading is not None
        texts = [str(problem) for problem in found]
        texts += [f"{path}: {why}, so it is not kept" for path, why in look.reading.left_out.items()]
        if texts:
            sync.warnings.append(Refusal(look.directory, tuple(texts)))

    def _ref_for(self, look: _Look, step: Step, names: set[str]) -> Ref:
        kind, scope = self.folder.kind, self.folder.scope
        if look.binding is not None and look.head is not None and step is Step.SNAPSHOT:
            return look.head.ref
        name, number = look.name, 1
        while name in names or (number > 1 or step is Step.RENAME) and self._exists(Ref(kind, name, scope)):
            number += 1
            name = f"{look.name[: MAX_NAME - 4]}-{number}"
        return Ref(kind, name, scope)

    def _exists(self, ref: Ref) -> bool:
        return self.store.head_or_none(ref) is not None

    def _snapshot(self, edits: Sequence[tuple[_Look, Ref, str]], sync: Sync) -> None:
        if not edits:
            return
        with self._transaction(_reason(self.folder, edits)) as tx:
            for look, ref, _ in edits:
                assert look.reading is not None
                head = look.head if look.head is not None and look.head.ref == ref else None
                tx.put(ref, look.reading.files, expected_version=(head.version if head else None) or 0)
                tx.bind(self.folder.id, look.directory, look.signature)
        for (look, ref, how), written in zip(edits, tx.written, strict=True):
            assert written.version is not None
            sync.taken.append(Taken(look.directory, ref, written.version, how))

    def _transaction(self, reason: str, evidence: Sequence[str] = ()) -> Transaction:
        return self.store.transaction(Actor.HUMAN, reason, evidence=evidence)

    def _one(self, look: _Look, step: Step, sync: Sync) -> None:
        try:
            if step is Step.TOMBSTONE:
                self._tombstone(look, sync)
            elif step is Step.FORGET:
                assert look.binding is not None
                self._bindings.bind([self._bound(look.binding.resource, look.directory, None, "")])
            elif step is Step.REMOVE_DIRECTORY:
                self._remove_directory(look, sync)
            elif step is Step.CHECKOUT:
                assert look.head is not None
                self._write(look, look.head, self.store.files(look.head), sync)
            elif step is Step.MERGE:
                self._merge(look, sync)
        except OSError as error:
            why = f"cannot be written: {error.strerror or error}; the library is right, the folder is behind"
            sync.refused.append(Refusal(look.directory, (why,)))
        except VersionConflict:
            raise
        except EvolvableError as error:
            sync.refused.append(Refusal(look.directory, (error.text,)))

    def _tombstone(self, look: _Look, sync: Sync) -> None:
        since = self._missing.setdefault(look.directory, time.monotonic())
        if time.monotonic() - since < self.grace:
            sync.missing.append(look.directory)
            return
        del self._missing[look.directory]
        assert look.binding is not None and look.head is not None
        others = [b for b in self._bindings.of_resources([look.head.id]) if b != look.binding and b.version]
        if others:
            # The resource lives on in another folder; only this directory is gone.
            self._bindings.unbind(look.binding)
        else:
            with self._transaction(f"deleted from {self.folder.path}") as tx:
                tx.remove(look.head.ref, expected_version=look.head.version)
                tx.bind(self.folder.id, look.directory, "")
        sync.removed.append(look.directory)

    def _remove_directory(self, look: _Look, sync: Sync) -> None:
        assert look.head is not None and look.tree is not None
        place = self.folder.path / look.directory
        remove_folder(place, staging_for(self.folder.path), believed=look.tree, now=time.time())
        self._bindings.bind([self._bound(look.head.id, look.directory, None, "")])
        sync.removed.append(look.directory)

    def _write(self, look: _Look, head: Head, files: Files, sync: Sync, conflict: str = "") -> None:
        place, staging = self.folder.path / look.directory, staging_for(self.folder.path)
        replaced = write_folder(place, files, staging, believed=look.tree or "", now=time.time())
        self._bindings.bind([self._bound(head.id, look.directory, head.version, "", conflict)])
        sync.written.append(look.directory)
        if replaced is not None and look.tree and not still_holds(replaced.old, look.tree):
            # Somebody saved between our look and the swap. A later sweep finds it too; sooner is better.
            self._take_late(look.directory, head, look.tree, read_folder(replaced.old).files, replaced.old, sync)

    def _merge(self, look: _Look, sync: Sync) -> None:
        assert look.head is not None and look.reading is not None and look.binding is not None
        assert look.binding.version is not None
        if not self._fit(look, sync):
            return
        self._merge_in(look, look.head, look.binding.version, look.reading.files, sync)

    def _merge_in(
        self, look: _Look, head: Head, base: int, theirs: Files, sync: Sync, kept: Path | None = None
    ) -> None:
        """Makes a version of the head plus what `theirs` changed since `base`, and writes it out.

        kept: the replaced directory that `theirs` was found in; it is thrown away once the version is safe.
        """
        merged = merge_files(self.store.files(head, base), self.store.files(head), theirs)
        conflict = ""
        if merged.conflicts:
            paths = ", ".join(merged.conflicts)
            conflict = f"{paths}: also changed in version {head.version}; the edit on disk was kept (base {base})"
        reason = f"edited in {self.folder.path} while version {head.version} was made; merged"
        with self._transaction(reason, [f"conflict: {conflict}"] if conflict else []) as tx:
            tx.put(head.ref, merged.files, expected_version=head.version)
        if kept is not None:
            discard(kept)
        new = self.store.head(head.ref)
        if conflict:
            sync.conflicts.append(Refusal(look.directory, (conflict,)))
        if tx.written[0].changed:
            assert new.version is not None
            sync.taken.append(Taken(look.directory, head.ref, new.version, "merged"))
        self._write(look, new, merged.files, sync, conflict)

    def _recover(self, sync: Sync) -> None:
        """Takes in what somebody wrote into a directory at the moment it was replaced, and clears leftovers."""
        with contextlib.suppress(EvolvableError, OSError):
            bindings = self._bindings.of_folder(self.folder)
            for found in sweep(staging_for(self.folder.path), time.time(), KEEP_SECONDS):
                directory = found.target.relative_to(self.folder.path).as_posix()
                binding = bindings.get(directory)
                heads = self.store.backend.heads_by_id([binding.resource]) if binding else {}
                head = next(iter(heads.values()), None)
                if head is None or not self._take_late(directory, head, found.believed, found.files, found.old, sync):
                    kept = f"something of yours that belongs to no version was replaced; it is kept in {found.old}"
                    sync.refused.append(Refusal(directory, (kept,)))

    def _take_late(self, directory: str, head: Head, believed: str, files: Files, old: Path, sync: Sync) -> bool:
        """Merges what was written into a replaced directory; returns whether it could be made a version."""
        base = self._version_of(head, believed)
        look = self._look(directory, None, head, head.name, signature(self.folder.path / directory))
        if head.version is None or base is None or not files or look.tree != head.tree:
            return False
        self._merge_in(look, head, base, files, sync, old)
        return True

    def _version_of(self, head: Head, tree: str) -> int | None:
        for past in self.store.backend.versions(head.id, 50):
            if past.tree == tree:
                return past.number
        return None

    def _binding(self, look: _Look, head: Head | None, tree: str | None, sync: Sync) -> Binding:
        assert head is not None
        if look.binding is None:
            sync.bound.append(look.directory)
        conflict = look.binding.conflict if look.binding and look.binding.version == head.version else ""
        return self._bound(head.id, look.directory, head.version, look.signature, conflict)

    def _bound(self, resource: int, directory: str, version: int | None, mark: str, conflict: str = "") -> Binding:
        return Binding(self.folder.id, directory, resource, version, mark, conflict)


def _how(look: _Look) -> str:
    if look.binding is None and (look.head is None or look.head.version is None):
        return "new" if look.head is None else "returned"
    return "returned" if look.head is not None and look.head.version is None else "edited"


def _reason(folder: Folder, edits: Sequence[tuple[_Look, Ref, str]]) -> str:
    hows = {how for _, _, how in edits}
    what = {"new": "taken in from", "returned": "returned to", "edited": "edited in"}
    verb = what[hows.pop()] if len(hows) == 1 else "changed in"
    return f"{verb} {folder.path}"
