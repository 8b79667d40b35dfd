"""Looks at what the directories of one folder hold, and passes over those that have not changed."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from evolvable_store.bindings import Binding, Bindings, Folder
from evolvable_store.discovery import LINK, MAX_DEPTH, SINGLE_SUFFIX, discover, holds_main, is_single
from evolvable_store.folder import (
    Reading,
    Signature,
    is_ignored,
    read_folder,
    read_single,
    signature,
    single_signature,
)
from evolvable_store.objects import File, Files, Manifest, manifest_of
from evolvable_store.openat import first_link
from evolvable_store.operation import Head
from evolvable_store.resource import MEMORY_NAMES, Kind, Ref, slugify
from evolvable_store.root_links import link_problem
from evolvable_store.store import Store
from evolvable_store.swap import SINGLE


@dataclass(frozen=True, slots=True)
class Look:
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


@dataclass(frozen=True, slots=True)
class Survey:
    """All directories of a folder. left_out: those with a resource that cannot be taken in, and why.

    gone: several were known, and not one is there any more, as when a disk is not mounted.
    """

    directories: set[str]
    left_out: dict[str, str]
    gone: bool


class Looker:
    """The eyes of a working copy.

    `missing`: since when (monotonic seconds) directories are gone. `refused`: the fingerprints of directories that
    could not be taken in; they are passed over until they change.
    """

    def __init__(self, store: Store, bindings: Bindings, folder: Folder) -> None:
        self._store, self._bindings, self._folder = store, bindings, folder
        self.missing: dict[str, float] = {}
        self.refused: dict[str, str] = {}

    def directories_at(self, places: Iterable[str]) -> set[str]:
        """Returns the directories of resources that these paths below the folder lie in, are, or contain."""
        bound = self._bindings.of_folder(self._folder)
        found: set[str] = set()
        for place in places:
            parts = place.split("/")
            above = ["/".join(parts[:depth]) for depth in range(1, min(len(parts), MAX_DEPTH) + 1)]
            inside = next((d for d in above if d in bound or self._is_resource(d)), None)
            if inside is not None:
                found.add(inside)
            else:
                found.update(directory for directory in bound if directory.startswith(f"{place}/"))
                hidden = any(part.startswith(".") or is_ignored(part) for part in parts)
                if len(parts) < MAX_DEPTH and not hidden and first_link(self._folder.path / place) is None:
                    found.update(discover(str(self._folder.path), self._folder.kind, f"{place}/").directories)
        return found

    def _is_resource(self, directory: str) -> bool:
        place = self._folder.path / directory
        hidden = any(part.startswith(".") or is_ignored(part) for part in directory.split("/"))
        return not hidden and not os.path.islink(place) and holds_main(str(place), self._folder.kind)

    def everything(self) -> Survey:
        """Returns all directories that hold a resource or are known to have held one."""
        found = discover(str(self._folder.path), self._folder.kind)
        linked = self.linked(found.left_out)
        left_out = {directory: self._link_problem(directory, why) for directory, why in found.left_out.items()}
        found.left_out = {directory: why for directory, why in left_out.items() if directory not in linked}
        bound = self._bindings.of_folder(self._folder)
        held = [directory for directory, binding in bound.items() if binding.version is not None]
        gone = not any(os.path.lexists(self._folder.path / directory) for directory in held)
        return Survey({*bound, *found.directories}, found.left_out, len(held) > 1 and not found.directories and gone)

    def linked(self, directories: Iterable[str]) -> set[str]:
        """Returns those directories that are links to resources of another folder; see root_links."""
        links = [directory for directory in directories if os.path.islink(self._folder.path / directory)]
        return {directory for directory in links if not self._link_problem(directory, LINK)}

    def _link_problem(self, directory: str, why: str) -> str:
        return link_problem(self._folder, directory, self._bindings.folders()) if why == LINK else why

    def looks(self, directories: Sequence[str]) -> Iterator[Look]:
        """Yields those directories that need a step; the cheap check by stat lets the others pass."""
        bindings = self._bindings.of_directories(self._folder, directories)
        heads = self._store.backend.heads_by_id({b.resource for d in directories if (b := bindings.get(d))})
        for directory in directories:
            binding = bindings.get(directory)
            head = heads[binding.resource] if binding else None
            taken_ns, now = time.time_ns(), self.signature(directory)
            if now is not None:
                self.missing.pop(directory, None)
            if self._unchanged(directory, binding, head, now):
                continue
            name = head.name if head else self._name(os.path.basename(directory))
            if head is None and name:
                head = self._store.head_or_none(Ref(self._folder.kind, name, self._folder.scope))
            yield self.look(directory, binding, head, name, now, taken_ns)

    def _name(self, directory: str) -> str:
        is_memory = self._folder.kind is Kind.MEMORY and directory in MEMORY_NAMES
        single = is_single(self._folder.kind, directory)
        return directory if is_memory else slugify(directory.removesuffix(SINGLE_SUFFIX) if single else directory)

    def signature(self, directory: str) -> Signature | None:
        """Returns the fingerprint of what is there now, None for nothing; of a link on the way, its own."""
        place = self._folder.path / directory
        link = first_link(place) if "/" in directory else None
        if link is not None:
            return signature(link)
        return single_signature(place) if is_single(self._folder.kind, directory) else signature(place)

    def _read(self, directory: str, binding: Binding | None, head: Head | None, now: Signature) -> Reading:
        place = self._folder.path / directory
        if not is_single(self._folder.kind, directory):
            return read_folder(place, now, real=True)
        reading = read_single(place, SINGLE, real=True)
        number = (binding.version if binding else None) or (head.latest if head else 0)
        return replace(reading, files=self.whole(head, number, reading.files)) if head and number else reading

    def whole(self, head: Head, number: int, files: Files) -> dict[str, File]:
        """Returns a single file with the others that its resource has in this version: nobody can see or change them
        where only the one lies."""
        if not files:
            return {}
        others = {path: entry for path, entry in self._store.manifest(head, number).items() if path not in files}
        return {**self._store.files_of(Manifest(others)), **files}

    def _unchanged(self, directory: str, binding: Binding | None, head: Head | None, now: Signature | None) -> bool:
        if now is not None and self.refused.get(directory) == now.digest:
            return True
        if binding is None or head is None:
            return False
        if now is None:
            return binding.version is None and head.version is None
        return binding.version == head.version and binding.signature != "" and binding.signature == now.digest

    def look(
        self,
        directory: str,
        binding: Binding | None,
        head: Head | None,
        name: str,
        now: Signature | None,
        taken_ns: int,
    ) -> Look:
        """Returns what the directory holds now; `now` is its signature, taken at `taken_ns`."""
        reading = None
        if now is not None:
            with contextlib.suppress(FileNotFoundError):
                reading = self._read(directory, binding, head, now)
        tree = manifest_of(reading.files).tree if reading else None
        if reading and not reading.files and binding is not None and binding.version is None:
            tree = None  # what a removal left behind of the person's is no content
        return Look(directory, binding, head, reading, tree, name, taken_ns)
