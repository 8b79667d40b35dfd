"""What the directories of a watched folder hold, beside what the library knows of them.

Never raises for what lies there. Passes over directories that have not changed.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evolvable_store.objects import File, Files, Manifest, make_manifest
from evolvable_store.operation import Head
from evolvable_store.power_fields import PowerPolicy
from evolvable_store.resource import MEMORY_NAMES, Kind, main_file, slugify
from evolvable_store.storage import Binding, Bindings, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.workingcopy import tree_reader
from evolvable_store.workingcopy.discovery import (
    EMPTY_FILE,
    MAX_DEPTH,
    SINGLE_SUFFIX,
    discover,
    holds_main,
    is_hidden,
    is_single,
)
from evolvable_store.workingcopy.openat import first_link
from evolvable_store.workingcopy.pending_checkout import ResolvedBinding, mark_of, resolve
from evolvable_store.workingcopy.root_links import link_problem, target_of
from evolvable_store.workingcopy.signatures import Signature, signature, single_signature
from evolvable_store.workingcopy.tree_reader import (
    FolderContents,
    boundary_of,
    keep_modes,
    read_folder,
    read_single,
)
from evolvable_store.workingcopy.written_powers import ForkPolicy, WrittenPowersRecords


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """One directory at one moment: the library's record of it, and its content."""

    directory: str
    binding: Binding | None
    head: Head | None
    reading: FolderContents | None
    tree: str | None
    name: str
    taken_ns: int
    resolved: ResolvedBinding | None = None

    @property
    def files(self) -> Files:
        return self.reading.files if self.reading else {}

    @property
    def signature(self) -> str:
        if self.reading is None:
            return ""
        seen = Signature(self.reading.signature, self.reading.newest)
        return seen.digest if seen.is_trusted(self.taken_ns) else ""

    @property
    def edit_kind(self) -> str:
        """How an edit of it is reported: new, returned or edited."""
        living = self.head is not None and self.head.version is not None
        if self.binding is None and not living:
            return "new" if self.head is None else "returned"
        return "edited" if living or self.head is None else "returned"


@dataclass(frozen=True, slots=True)
class FolderSurvey:
    """All directories of a folder. left_out: those with a resource that cannot be imported, and
    why.

    gone: several were known, and not one is there any more, as when a disk is not mounted.
    """

    directories: set[str]
    left_out: dict[str, str]
    gone: bool


def _above(place: str) -> list[str]:
    """Return the paths that a resource's directory may have which this place lies in or is, the
    outermost first.
    """
    parts = place.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, min(len(parts), MAX_DEPTH) + 1)]


def built_signature(place: Path) -> str:
    """Return the digest of a directory that was just built, '' where it cannot tell every later
    save.
    """
    if os.name == "posix" and place.is_dir():
        mark = mark_of(place)
        return mark.signature if mark else ""
    seen = single_signature(place)
    with contextlib.suppress(OSError):
        status = os.lstat(place)
        if seen is not None and status.st_mtime_ns < status.st_ctime_ns:
            return seen.digest if os.name == "posix" else ""
    return ""


class StatusReader:
    """The eyes of a working copy.

    `missing`: since when (monotonic seconds) directories are gone. `refused`: the fingerprints of
    directories that could not be imported; they are passed over until they change. `powers`: what
    directories were given that their versions do not say; `with_powers`: those directories, which
    are read at each sync: an approval changes it.
    """

    def __init__(
        self,
        store: Store,
        bindings: Bindings,
        folder: WatchedFolder,
        powers: PowerPolicy = lambda _: None,
        forks: ForkPolicy = lambda *_: "",
    ) -> None:
        self._store, self._bindings, self._folder = store, bindings, folder
        self.missing: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        self.powers = WrittenPowersRecords(store, folder, powers, forks)
        self.with_powers = set[str]()
        # What `is_unchanged` just read, for the update that follows it at once.
        self._last: tuple[Binding, Signature | None, ResolvedBinding] | None = None

    def directories_at(self, places: Iterable[str]) -> set[str]:
        """Return the directories of resources that these paths below the folder lie in, are, or
        contain.
        """
        above = {place: _above(place) for place in places}
        # One query for all places.
        bound = self._bindings.of_directories(
            self._folder, {d for directories in above.values() for d in directories}
        )
        every: dict[str, Binding] | None = None
        found: set[str] = set()
        for place, directories in above.items():
            parts = place.split("/")
            inside = next((d for d in directories if d in bound or self._is_resource(d)), None)
            if inside is not None:
                found.add(inside)
            else:
                # Read at most once, and only for a path that is no resource.
                every = self._bindings.of_folder(self._folder) if every is None else every
                found.update(directory for directory in every if directory.startswith(f"{place}/"))
                hidden = any(map(is_hidden, parts))
                if (
                    len(parts) < MAX_DEPTH
                    and not hidden
                    and first_link(self._folder.path / place) is None
                ):
                    found.update(
                        discover(str(self._folder.path), self._folder.kind, f"{place}/").directories
                    )
        return found

    def _is_resource(self, directory: str) -> bool:
        place = self._folder.path / directory
        hidden = any(map(is_hidden, directory.split("/")))
        return (
            not hidden
            and not os.path.islink(place)
            and holds_main(
                str(place),
                self._folder.kind,
            )
        )

    def everything(self) -> FolderSurvey:
        """Return all directories that hold a resource or are known to have held one."""
        found = discover(str(self._folder.path), self._folder.kind)
        bound = self._bindings.of_folder(self._folder)
        # An emptied file that is known is a directory like any other: a sync says what is wrong
        # with it.
        emptied = {
            directory
            for directory, why in found.left_out.items()
            if why == EMPTY_FILE and directory in bound
        }
        problems = {
            directory: why for directory, why in self._link_problems(found.links).items() if why
        }
        left_out = {
            directory: why
            for directory, why in (found.left_out | problems).items()
            if directory not in emptied
        }
        bound_directories = [
            directory for directory, binding in bound.items() if binding.version is not None
        ]
        # All of them at once: a disk that is not mounted, not a person who deleted each.
        gone = not any(
            os.path.lexists(self._folder.path / directory) for directory in bound_directories
        )
        return FolderSurvey(
            {*bound, *found.directories},
            left_out,
            len(bound_directories) > 1 and not found.directories and gone,
        )

    def linked_resources(self) -> set[int]:
        """Return the resources that links in this folder lead to."""
        links = self.filter_linked(discover(str(self._folder.path), self._folder.kind).links)
        real = {target_of(self._folder.path / directory) for directory in links}
        return {
            binding.resource
            for folder in self._bindings.folders()
            for directory, binding in self._bindings.of_folder(folder).items()
            if folder.path / directory in real
        }

    def filter_linked(self, directories: Iterable[str]) -> set[str]:
        """Return the directories that are links to resources of a watched folder; see
        `link_problem`.
        """
        return {directory for directory, why in self._link_problems(directories).items() if not why}

    def _link_problems(self, directories: Iterable[str]) -> dict[str, str]:
        links = [
            directory for directory in directories if os.path.islink(self._folder.path / directory)
        ]
        folders = self._bindings.folders() if links else []
        return {directory: link_problem(self._folder, directory, folders) for directory in links}

    def find_changed_states(
        self, directories: Sequence[str], unchanged: set[str] | None = None
    ) -> Iterator[DirectoryState]:
        """Yield those directories that need a step; add to `unchanged` those that hold the head, by
        stat alone.
        """
        bindings = self._bindings.of_directories(self._folder, directories)
        heads = self._store.backend.heads_by_id(
            {b.resource for d in directories if (b := bindings.get(d))}
        )
        # By name only where no row binds the directory: a row is more certain than a folder's name.
        names = {
            directory: self.resource_name(directory)
            for directory in directories
            if directory not in bindings
        }
        heads_by_name = self._heads_by_name(set(filter(None, names.values())))
        for directory in directories:
            # The time comes first: a change after it makes the signature untrusted.
            taken_ns, now = time.time_ns(), self.signature(directory)
            binding = bindings.get(directory)
            resolved = self.resolve(binding, now) if binding and binding.is_pending else None
            binding = resolved.binding if resolved else binding
            head = heads[binding.resource] if binding else None
            if now is not None:
                self.missing.pop(directory, None)
            if now is None or self.refused.get(directory) != now.digest:
                self.refused.pop(directory, None)  # the same again is a new fault
            if directory not in self.with_powers and self._is_unchanged(
                directory, binding, head, now
            ):
                if unchanged is not None and now is not None and directory not in self.refused:
                    unchanged.add(directory)
                continue
            name = head.name if head else names[directory]
            head = head or heads_by_name.get(name)
            yield replace(
                self.read_state(directory, binding, head, name, now, taken_ns), resolved=resolved
            )

    def _heads_by_name(self, names: set[str]) -> dict[str, Head]:
        return (
            self._store.backend.heads_by_name(self._folder.kind, self._folder.scope, names)
            if names
            else {}
        )

    def filter_changed(self, directories: set[str]) -> set[str]:
        """Return the directories that need a step, or whose disappearance is remembered."""
        bindings = self._bindings.of_directories(self._folder, directories) if directories else {}
        heads = (
            self._store.backend.heads_by_id({b.resource for b in bindings.values()})
            if bindings
            else {}
        )
        unchanged = {
            d
            for d, b in bindings.items()
            if d not in self.missing and self.is_unchanged(b, heads[b.resource])
        }
        return directories - unchanged

    def is_unchanged(self, binding: Binding, head: Head) -> bool:
        """Return whether a directory still holds the head of its resource, by stat alone."""
        now = self.signature(binding.directory)
        resolved = self.resolve(binding, now)
        self._last = (binding, now, resolved)
        return self._is_unchanged(binding.directory, resolved.binding, head, now)

    def last_seen(self, binding: Binding) -> tuple[Signature | None, ResolvedBinding]:
        """Return the signature of a directory and what it holds, as `is_unchanged` saw it if that
        was just asked.

        Who relies on it compares the signature again, with the folder's lock held.
        """
        last, self._last = self._last, None
        # Used once: a second caller gets a fresh look.
        if last is not None and last[0] == binding:
            return last[1:]
        now = self.signature(binding.directory)
        return now, self.resolve(binding, now)

    def resolve(self, binding: Binding, now: Signature | None) -> ResolvedBinding:
        """Return a binding with the version that its directory holds.

        now: the directory's signature.
        """
        return resolve(binding, self._folder.path, now)

    def resource_name(self, directory: str) -> str:
        """Return the name that the last part of a directory's path gives a resource, ''
        for none.
        """
        last = os.path.basename(directory)
        is_memory = self._folder.kind is Kind.MEMORY and last in MEMORY_NAMES
        single = is_single(self._folder.kind, last)
        return last if is_memory else slugify(last.removesuffix(SINGLE_SUFFIX) if single else last)

    def signature(self, directory: str) -> Signature | None:
        """Return the fingerprint of a directory now, None for nothing; of a link on the way, its
        own.
        """
        place = self._folder.path / directory
        # A link on the way: what lies behind it is somebody else's, so its own fingerprint stands
        # for it.
        link = first_link(place) if "/" in directory else None
        if link is not None:
            return signature(link)
        return (
            single_signature(place) if is_single(self._folder.kind, directory) else signature(place)
        )

    def read(self, directory: str) -> FolderContents:
        """Return the content of a directory now, as a sync reads it.

        Raise OSError when there is none.
        """
        return self._read(directory, None, None, None)

    def _read(
        self, directory: str, binding: Binding | None, head: Head | None, now: Signature | None
    ) -> FolderContents:
        place = self._folder.path / directory
        single = is_single(self._folder.kind, directory)
        main = main_file(self._folder.kind, "")
        reading = (
            read_single(place, main, real=True) if single else self._read_folder(directory, now)
        )
        number = (binding.version if binding else None) or (head.latest if head else 0)
        if not head or not number:
            return reading
        files = self.with_modes(head, number, reading.files)
        files = self.whole(head, number, files) if single else files
        restored = dict(self.powers.restore_files(directory, head, number, files))
        return replace(reading, files=restored, on_disk=files if restored != files else None)

    def _read_folder(self, directory: str, now: Signature | None) -> FolderContents:
        within = boundary_of(self._folder.path, directory, self._store.home)
        return read_folder(self._folder.path / directory, now, real=True, within=within)

    def with_modes(self, head: Head, number: int, files: Files) -> dict[str, File]:
        """Return the files, with the modes of this version where the file system records none."""
        return keep_modes(
            files, {} if tree_reader.EXECUTABLE_BITS else self._store.manifest(head, number)
        )

    def whole(self, head: Head, number: int, files: Files) -> dict[str, File]:
        """Return a single file with the others that its resource has in this version: nobody can
        see or change them where only the one lies.
        """
        if not files:
            return {}
        others = {
            path: entry
            for path, entry in self._store.manifest(head, number).items()
            if path not in files
        }
        return {**self._store.files_of(Manifest(others)), **files}

    def is_given_otherwise(self, state: DirectoryState) -> bool:
        """Return whether a directory was given something else for its version than it would be
        given now.
        """
        reading, head = state.reading, state.head
        if reading is None or head is None:
            return False
        if reading.on_disk is None and state.directory not in self.with_powers:
            return False
        return (
            self.powers.would_give(state.directory, head, reading.files, reading.lying)
            != reading.lying
        )

    def note_edit(self, state: DirectoryState) -> None:
        """Record the powers written into a directory, before its content becomes a version."""
        reading, head = state.reading, state.head
        if reading is not None and reading.on_disk is not None and head is not None:
            self.powers.note_edit(state.directory, head, reading.on_disk, reading.files)

    def _is_unchanged(
        self, directory: str, binding: Binding | None, head: Head | None, now: Signature | None
    ) -> bool:
        if now is not None and self.refused.get(directory) == now.digest:
            return True
        if binding is None or head is None:
            return False
        if now is None:
            return binding.version is None and head.version is None
        # '' is a signature that was not trusted: then the content is compared.
        return (
            binding.version == head.version
            and binding.signature != ""
            and binding.signature == now.digest
        )

    def read_state(
        self,
        directory: str,
        binding: Binding | None,
        head: Head | None,
        name: str,
        now: Signature | None,
        taken_ns: int,
    ) -> DirectoryState:
        """Return the state of a directory; `now` is its signature, taken at `taken_ns`."""
        reading = None
        if now is not None:
            with contextlib.suppress(FileNotFoundError):
                reading = self._read(directory, binding, head, now)
        tree = make_manifest(reading.files).tree if reading else None
        if reading and not reading.own and binding is not None and binding.version is None:
            tree = None  # what a removal left behind of the person's is no content
        return DirectoryState(directory, binding, head, reading, tree, name, taken_ns)
