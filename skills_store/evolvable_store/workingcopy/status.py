"""Compare the directories of a watched folder with the library's record of them.

Directories that have not changed are not read. No content of a directory raises an error.
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
        fingerprint = Signature(self.reading.signature, self.reading.newest)
        return fingerprint.digest if fingerprint.is_trusted(self.taken_ns) else ""

    @property
    def edit_kind(self) -> str:
        """The word by which an edit of it is reported: new, returned or edited."""
        living = self.head is not None and self.head.version is not None
        if self.binding is None and not living:
            return "new" if self.head is None else "returned"
        return "edited" if living or self.head is None else "returned"


@dataclass(frozen=True, slots=True)
class FolderSurvey:
    """All directories of a folder.

    left_out: those with a resource that cannot be imported, and why. gone: several were known, and
    not one is there any more, as when a disk is not mounted.
    """

    directories: set[str]
    left_out: dict[str, str]
    gone: bool


def _list_above(place: str) -> list[str]:
    """Return the place and the paths above it, the outermost first, down to MAX_DEPTH parts."""
    parts = place.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, min(len(parts), MAX_DEPTH) + 1)]


def built_signature(place: Path) -> str:
    """Return the digest of a directory that was just built.

    '' where a later save could leave the digest as it is.
    """
    if os.name == "posix" and place.is_dir():
        mark = mark_of(place)
        return mark.signature if mark else ""
    fingerprint = single_signature(place)
    with contextlib.suppress(OSError):
        status = os.lstat(place)
        if fingerprint is not None and status.st_mtime_ns < status.st_ctime_ns:
            return fingerprint.digest if os.name == "posix" else ""
    return ""


class StatusReader:
    """Reads the directories of one working copy.

    missing: since when (monotonic seconds) directories are gone. refused: the fingerprints of
    directories that could not be imported, which are not read again until they change. powers: the
    records of what a checkout wrote that is not in the version. with_powers: the directories with
    such a record; they are read at each sync, as an approval changes what they are given.
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
        # The result of the last `is_unchanged`, for the update that follows it at once.
        self._last: tuple[Binding, Signature | None, ResolvedBinding] | None = None

    def directories_at(self, places: Iterable[str]) -> set[str]:
        """Return the directories of resources that these paths are, lie in, or contain.

        places: below the folder.
        """
        above = {place: _list_above(place) for place in places}
        candidates = {directory for directories in above.values() for directory in directories}
        # One query for all places.
        bound = self._bindings.of_directories(self._folder, candidates)
        bindings: dict[str, Binding] | None = None
        resources: set[str] = set()
        for place, directories in above.items():
            around = (item for item in directories if item in bound or self._is_resource(item))
            outermost = next(around, None)
            if outermost is not None:
                resources.add(outermost)
                continue
            # Read at most once, and only for a path that is no resource.
            bindings = self._bindings.of_folder(self._folder) if bindings is None else bindings
            resources.update(item for item in bindings if item.startswith(f"{place}/"))
            resources.update(self._discover_below(place))
        return resources

    def _discover_below(self, place: str) -> list[str]:
        parts = place.split("/")
        if len(parts) >= MAX_DEPTH or any(map(is_hidden, parts)):
            return []
        if first_link(self._folder.path / place) is not None:
            return []
        return discover(str(self._folder.path), self._folder.kind, f"{place}/").directories

    def _is_resource(self, directory: str) -> bool:
        place = self._folder.path / directory
        if os.path.islink(place) or any(map(is_hidden, directory.split("/"))):
            return False
        return holds_main(str(place), self._folder.kind)

    def everything(self) -> FolderSurvey:
        """Return all directories that hold a resource or are known to have held one."""
        discovered = discover(str(self._folder.path), self._folder.kind)
        bound = self._bindings.of_folder(self._folder)
        # An emptied file that is known is a directory like any other: a sync reports its fault.
        emptied = {
            directory
            for directory, why in discovered.left_out.items()
            if why == EMPTY_FILE and directory in bound
        }
        problems = {
            directory: why
            for directory, why in self._find_link_problems(discovered.links).items()
            if why
        }
        left_out = {
            directory: why
            for directory, why in (discovered.left_out | problems).items()
            if directory not in emptied
        }
        bound_directories = [
            directory for directory, binding in bound.items() if binding.version is not None
        ]
        # All of them at once: a disk that is not mounted, not a person who deleted each.
        are_gone = not any(
            os.path.lexists(self._folder.path / directory) for directory in bound_directories
        )
        gone = len(bound_directories) > 1 and not discovered.directories and are_gone
        return FolderSurvey({*bound, *discovered.directories}, left_out, gone)

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
        """Return the directories that are links to resources of a watched folder.

        See `link_problem`.
        """
        return {
            directory for directory, why in self._find_link_problems(directories).items() if not why
        }

    def _find_link_problems(self, directories: Iterable[str]) -> dict[str, str]:
        links = [
            directory for directory in directories if os.path.islink(self._folder.path / directory)
        ]
        folders = self._bindings.folders() if links else []
        return {directory: link_problem(self._folder, directory, folders) for directory in links}

    def find_changed_states(
        self, directories: Sequence[str], unchanged: set[str] | None = None
    ) -> Iterator[DirectoryState]:
        """Yield those directories that need a step.

        unchanged: the set to which those that hold the head are added, by stat alone.
        """
        bindings = self._bindings.of_directories(self._folder, directories)
        bound = filter(None, map(bindings.get, directories))
        heads = self._store.backend.heads_by_id({binding.resource for binding in bound})
        # By name only where no row binds the directory: a row is more certain than a folder's name.
        names = {
            directory: self.resource_name(directory)
            for directory in directories
            if directory not in bindings
        }
        heads_by_name = self._read_heads_by_name(set(filter(None, names.values())))
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
                # The same signature again would be a new fault.
                self.refused.pop(directory, None)
            has_powers = directory in self.with_powers
            if not has_powers and self._is_unchanged(directory, binding, head, now):
                if unchanged is not None and now is not None and directory not in self.refused:
                    unchanged.add(directory)
                continue
            name = head.name if head else names[directory]
            head = head or heads_by_name.get(name)
            state = self.read_state(directory, binding, head, name, now, taken_ns)
            yield replace(state, resolved=resolved)

    def _read_heads_by_name(self, names: set[str]) -> dict[str, Head]:
        if not names:
            return {}
        return self._store.backend.heads_by_name(self._folder.kind, self._folder.scope, names)

    def filter_changed(self, directories: set[str]) -> set[str]:
        """Return the directories that need a step, or whose disappearance is remembered."""
        bindings = self._bindings.of_directories(self._folder, directories) if directories else {}
        resources = {binding.resource for binding in bindings.values()}
        heads = self._store.backend.heads_by_id(resources) if resources else {}
        unchanged = {
            directory
            for directory, binding in bindings.items()
            if directory not in self.missing and self.is_unchanged(binding, heads[binding.resource])
        }
        return directories - unchanged

    def is_unchanged(self, binding: Binding, head: Head) -> bool:
        """Return whether a directory still holds the head of its resource, by stat alone."""
        now = self.signature(binding.directory)
        resolved = self.resolve(binding, now)
        self._last = (binding, now, resolved)
        return self._is_unchanged(binding.directory, resolved.binding, head, now)

    def last_seen(self, binding: Binding) -> tuple[Signature | None, ResolvedBinding]:
        """Return the signature of a directory and its resolved binding.

        They are those of the last `is_unchanged`, where that was about this binding. A caller that
        relies on them compares the signature again, with the folder's lock held.
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
        """Return the name that a directory's path gives its resource, '' for none."""
        last = os.path.basename(directory)
        if self._folder.kind is Kind.MEMORY and last in MEMORY_NAMES:
            return last
        single = is_single(self._folder.kind, last)
        return slugify(last.removesuffix(SINGLE_SUFFIX) if single else last)

    def signature(self, directory: str) -> Signature | None:
        """Return the fingerprint of a directory now, None where nothing is there.

        Where a link is on the way, the fingerprint is that of the link.
        """
        place = self._folder.path / directory
        # The directory that a link leads to belongs to somebody else.
        link = first_link(place) if "/" in directory else None
        if link is not None:
            return signature(link)
        is_file = is_single(self._folder.kind, directory)
        return single_signature(place) if is_file else signature(place)

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
        if single:
            reading = read_single(place, main, real=True)
        else:
            reading = self._read_folder(directory, now)
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
        has_modes = tree_reader.EXECUTABLE_BITS
        return keep_modes(files, {} if has_modes else self._store.manifest(head, number))

    def whole(self, head: Head, number: int, files: Files) -> dict[str, File]:
        """Return a single file together with the other files of its resource in this version.

        They do not lie in the folder, so nobody changed them.
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
        """Return whether a checkout of the same version would write other files now."""
        reading, head = state.reading, state.head
        if reading is None or head is None:
            return False
        if reading.on_disk is None and state.directory not in self.with_powers:
            return False
        lying = reading.lying
        return self.powers.would_give(state.directory, head, reading.files, lying) != lying

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
        is_trusted = binding.signature != ""
        return is_trusted and (binding.version, binding.signature) == (head.version, now.digest)

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
            # Files of the person that a removal left behind are no content.
            tree = None
        return DirectoryState(directory, binding, head, reading, tree, name, taken_ns)
