"""What bringing a folder and the library together did, told directory by directory.

Tell whether a file on disk came from git: whether the index or HEAD of a repository around it holds it.

Nothing is run, see `git_objects`. A repository that cannot be read answers None, and callers decide for the safe side.

Content that arrives from a watched folder: who answers for it, and whether it is held until a person decides.
"""

import hashlib
import os
import struct
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from evolvable_store.objects import Files, Manifest, TreeEntry, make_manifest
from evolvable_store.operation import Head, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.bindings import WatchedFolder
from evolvable_store.workingcopy.git_objects import GitDamaged, ObjectDatabase, read_bounded, tree_entries


@dataclass(frozen=True, slots=True)
class ImportedDirectory:
    """A directory whose content became a version. `how`: 'new', 'edited', 'returned' or 'merged'.

    principal: who answers for it.
    """

    directory: str
    ref: Ref
    version: int
    how: str
    principal: Principal = Principal.UNKNOWN


@dataclass(frozen=True, slots=True)
class DirectoryIssue:
    """A directory that was not imported, with every reason."""

    directory: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldContent:
    """A directory whose content waits as a proposal; `why`: in words, '' when it was held before."""

    directory: str
    ref: Ref
    proposal: int
    why: str = ""


@dataclass(slots=True)
class SyncReport:
    """What one sync did. Directories are relative to the folder.

    stale: the folder itself is not there, or all that it held is gone at once, as when a disk is not mounted; nothing
    was touched. missing: directories that vanished so recently that they may come back; sync again soon. held:
    directories whose content is not served until a person decides. unchanged: those that hold what the library has.
    """

    folder: WatchedFolder
    taken: list[ImportedDirectory] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    refused: list[DirectoryIssue] = field(default_factory=list)
    warnings: list[DirectoryIssue] = field(default_factory=list)
    conflicts: list[DirectoryIssue] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    held: list[HeldContent] = field(default_factory=list)
    unsettled: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    stale: bool = False

    def add(self, other: "SyncReport") -> None:
        """Add what another sync of the same folder did."""
        for name in ("taken", "written", "removed", "bound", "refused", "warnings", "conflicts", "missing", "held"):
            getattr(self, name).extend(getattr(other, name))
        self.unchanged |= other.unchanged
        self.stale = self.stale or other.stale

    @property
    def waiting(self) -> bool:
        """Whether a directory is missing that may come back."""
        return bool(self.missing)


def describe_results(syncs: Iterable[SyncReport]) -> list[str]:
    """Return what went wrong in these syncs, or was remarkable."""
    return [remark for sync in syncs for remark in _describe_result(sync)]


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


MAX_INDEX = 64 * 2**20
"""Bytes of an index that are read: some 700,000 files."""

MAX_AROUND = 8
"""Repositories around one folder that are looked at, nearest first."""

_SMALL = 65_536
_MAX_PACKED_REFS = 64 * 2**20
_MAX_SYMBOLIC = 5
_DIRECTORY, _MAX_REMEMBERED = 0o040000, 10_000


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the index says of one path: the id of its blob, and size and time of the file that git wrote or read."""

    identity: bytes
    size: int
    seconds: int
    nanoseconds: int


@dataclass(slots=True)
class _Index:
    """The entries of an index below one folder. unnamed: ids whose path only a shared index knows."""

    entries: dict[str, list[_Entry]] = field(default_factory=dict)
    unnamed: set[bytes] = field(default_factory=set)


class Repository:
    """One repository around a watched folder. Keeps what it read of the index until the index changes."""

    def __init__(self, root: Path, git: Path, inside: str) -> None:
        """root: the work tree. git: its git directory. inside: the watched folder, relative to root, with `/`."""
        self.root, self._git, self._inside = root, git, inside
        self._stamp: tuple[int, ...] | None = None
        self._index = _Index()
        self._head: bytes | None = None
        self._in_head: dict[str, bytes | None] = {}

    @property
    def key(self) -> tuple[str, str]:
        """What tells one repository from another."""
        return str(self.root), str(self._git)

    def holds(self, path: str, data: bytes) -> bool | None:
        """Return whether index or HEAD hold this file; None when the repository cannot be read.

        path: relative to the watched folder, with `/`. data: what the file holds. A file counts as held too when git's
        own record of size and time says that it is as git wrote it, whatever filters did to its bytes.
        """
        place = os.path.normpath(f"{self._inside}/{path}").replace(os.sep, "/").lstrip("/")
        try:
            common, id_size = self._layout()
            self._refresh(id_size)
            wanted = _ids(data, id_size)
            known = self._index.entries.get(_key(place), ())
            if any(entry.identity in wanted for entry in known) or wanted & self._index.unnamed:
                return True
            if known and self._is_as_written(self.root / place, known):
                return True
            return self._of_head(common, id_size, place) in wanted
        except (GitDamaged, OSError, ValueError, struct.error, IndexError, RecursionError, MemoryError):
            return None

    def open_objects(self) -> tuple[ObjectDatabase, int]:
        """Return the objects of the repository, and the bytes of an id. Raise GitDamaged."""
        common, id_size = self._layout()
        return ObjectDatabase(common / "objects", id_size), id_size

    def head_commit(self) -> bytes | None:
        """Return the commit that HEAD names, None before the first one. Raise GitDamaged, ValueError."""
        return self._commit(self._layout()[0])

    def _layout(self) -> tuple[Path, int]:
        """Return the common directory and the size of an id."""
        named = read_bounded(self._git / "commondir", _SMALL)
        common = self._git / os.fsdecode(named.strip()) if named else self._git
        settings = (read_bounded(common / "config", 2**20) or b"").lower()
        words = b"".join(line.strip() for line in settings.splitlines() if b"objectformat" in line).replace(b" ", b"")
        return common, 32 if b"objectformat=sha256" in words.replace(b"\t", b"").replace(b'"', b"") else 20

    def _is_as_written(self, place: Path, known: "list[_Entry] | tuple[()]") -> bool:
        try:
            status = os.lstat(place)
        except OSError:
            return False
        seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
        return any(
            (entry.size, entry.seconds) == (status.st_size & 0xFFFFFFFF, seconds & 0xFFFFFFFF)
            and entry.nanoseconds in (0, nanoseconds)
            and entry.seconds != 0
            for entry in known
        )

    def _refresh(self, id_size: int) -> None:
        path = self._git / "index"
        try:
            status = os.stat(path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino, id_size)
        except FileNotFoundError:
            stamp = (0, 0, 0, id_size)
        if stamp != self._stamp:
            self._index = _Index()
            data = read_bounded(path, MAX_INDEX)
            if data is not None:
                _read_index(data, id_size, _key(self._inside), self._index, self._git)
            self._stamp = stamp

    def _of_head(self, common: Path, id_size: int, place: str) -> bytes | None:
        """Return the id that HEAD's tree has at a path, None for none."""
        head = self._commit(common)
        if head != self._head or len(self._in_head) > _MAX_REMEMBERED:
            self._head, self._in_head = head, {}
        if head is None:
            return None
        if place not in self._in_head:
            self._in_head[place] = _in_tree(ObjectDatabase(common / "objects", id_size), head, id_size, place)
        return self._in_head[place]

    def _commit(self, common: Path) -> bytes | None:
        """Return the commit that HEAD names, None before the first one."""
        said = read_bounded(self._git / "HEAD", _SMALL)
        for _ in range(_MAX_SYMBOLIC):
            if said is None:
                break
            text = said.strip()
            if not text.startswith(b"ref:"):
                return bytes.fromhex(text.decode("ascii"))
            name = os.fsdecode(text[4:].strip())
            if (common / "reftable").exists():
                raise GitDamaged("references are kept in a reftable")
            said = self._reference(common, name)
            if said is None:
                return None
        raise GitDamaged("HEAD names no commit")

    def _reference(self, common: Path, name: str) -> bytes | None:
        if name.startswith("/") or ".." in name.split("/"):
            raise GitDamaged("a reference outside of the repository")
        for folder in (self._git, common):
            said = read_bounded(folder / name, _SMALL) if not (folder / name).is_dir() else None
            if said is not None:
                return said
        ending = b" " + os.fsencode(name)
        packed = read_bounded(common / "packed-refs", _MAX_PACKED_REFS) or b""
        return next((line[: -len(ending)] for line in packed.splitlines() if line.endswith(ending)), None)


def repositories_around(folder: Path) -> list[Repository]:
    """Return the repositories whose work trees hold this folder, the nearest first; none outside of repositories."""
    found: list[Repository] = []
    for place in (folder, *folder.parents):
        git = _git_directory(place)
        if git is not None and len(found) < MAX_AROUND:
            inside = folder.relative_to(place).as_posix()
            found.append(Repository(place, git, "" if inside == "." else inside))
    return found


def _git_directory(place: Path) -> Path | None:
    """Return the git directory of a work tree, also of a linked one and of a submodule; None when it is none."""
    git = place / ".git"
    try:
        status = os.stat(git)
    except (OSError, ValueError):
        return None
    if os.path.isdir(git):
        return git
    if status.st_size > _SMALL:
        return None
    try:
        said = read_bounded(git, _SMALL) or b""
    except GitDamaged:
        return None
    return place / os.fsdecode(said[7:].strip()) if said.startswith(b"gitdir:") and b"\0" not in said else None


def _ids(data: bytes, id_size: int) -> set[bytes]:
    """Return the ids that a blob of these bytes may have: as they are, and with the line ends that git keeps."""
    make = hashlib.sha256 if id_size == 32 else hashlib.sha1
    forms = {data, data.replace(b"\r\n", b"\n")} if b"\r\n" in data else {data}
    return {make(b"blob %d\0" % len(form) + form, usedforsecurity=False).digest() for form in forms}


def _key(path: str) -> str:
    """Return a path as file systems may compare it: two paths of one key may be one file."""
    return unicodedata.normalize("NFC", path).casefold() if not path.isascii() else path.lower()


def _in_tree(objects: ObjectDatabase, commit: bytes, id_size: int, place: str) -> bytes | None:
    first = objects.read(commit, "commit").partition(b"\n")[0]
    if not first.startswith(b"tree "):
        raise GitDamaged("a commit without a tree")
    found = bytes.fromhex(first[5:].decode("ascii", "replace"))
    parts = os.fsencode(place).split(b"/")
    for depth, part in enumerate(parts):
        entries = tree_entries(objects.read(found, "tree"), id_size)
        wanted = _key(os.fsdecode(part))
        match = entries.get(part) or next((e for n, e in entries.items() if _key(os.fsdecode(n)) == wanted), None)
        if match is None or (match[0] & 0o170000 == _DIRECTORY) is (depth == len(parts) - 1):
            return None
        found = match[1]
    return found


def _read_index(data: bytes, id_size: int, below: str, index: _Index, git: Path) -> None:
    """Read the entries of an index file (version 2 to 4) below a folder."""
    if data[:4] != b"DIRC" or len(data) < 12:
        raise GitDamaged("no index")
    version, count = struct.unpack_from(">II", data, 4)
    if version not in (2, 3, 4):
        raise GitDamaged(f"an index of version {version}")
    place, name = 12, b""
    prefix = f"{below}/" if below else ""
    for _ in range(count):
        start, names = place, place + 40 + id_size
        seconds, nanoseconds, size = struct.unpack_from(">8xII20xI", data, start)
        (flags,) = struct.unpack_from(">H", data, names)
        names += 4 if version >= 3 and flags & 0x4000 else 2
        if version == 4:
            name, place = _read_name(data, names, name)
        else:
            end = data.find(b"\0", names)
            if end < 0:
                raise GitDamaged("an index that ends early")
            name, place = data[names:end], start + (end - start + 8) // 8 * 8
        identity = data[start + 40 : start + 40 + id_size]
        if not name:
            index.unnamed.add(identity)
        elif (path := _key(os.fsdecode(name))).startswith(prefix):
            index.entries.setdefault(path, []).append(_Entry(identity, size, seconds, nanoseconds))
    _read_shared(data, place, id_size, below, index, git)


def _read_name(data: bytes, place: int, before: bytes) -> tuple[bytes, int]:
    """Return a name of version 4, which says how much of the one before it drops, and where the next entry begins."""
    drop, used = -1, 0
    while True:
        if used > 9 or place >= len(data):
            raise GitDamaged("an index that ends early")
        byte = data[place]
        drop, place, used = (drop + 1) << 7 | byte & 0x7F, place + 1, used + 1
        if not byte & 0x80:
            break
    end = data.find(b"\0", place)
    if end < 0 or drop > len(before):
        raise GitDamaged("an index that ends early")
    return before[: len(before) - drop] + data[place:end], end + 1


def _read_shared(data: bytes, place: int, id_size: int, below: str, index: _Index, git: Path) -> None:
    """Read the shared index too, where this one says that it is split."""
    while place + 8 <= len(data) - id_size:
        signature, size = data[place : place + 4], struct.unpack_from(">I", data, place + 4)[0]
        if signature == b"link":
            name = data[place + 8 : place + 8 + id_size].hex()
            shared = read_bounded(git / f"sharedindex.{name}", MAX_INDEX)
            if shared is not None:  # which names no further one
                _read_index(shared, id_size, below, index, Path(os.devnull))
        place += 8 + size


REPOSITORY = Identity(Principal.REPOSITORY, "file")


@dataclass(frozen=True, slots=True)
class IncomingDirectory:
    """A directory's content before it becomes a version of `ref`.

    head: of the resource, None for a new one; before: the files that it has. identity: who answers for the content.
    left_out: paths of what lies there and belongs to no version; that of a folder ends with a slash.
    """

    folder: WatchedFolder
    directory: str
    ref: Ref
    head: Head | None
    before: Files
    files: Files
    identity: Identity
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldDecision:
    """Why a content is held. findings: JSON of what a scan found, None for nothing."""

    reason: str
    findings: str | None = None


HoldPolicy = Callable[[IncomingDirectory], HoldDecision | None]
"""Decides whether an arrival is held; None publishes it."""


class OriginResolver:
    """Who answers for files of one watched folder."""

    def __init__(self, folder: WatchedFolder) -> None:
        self._folder = folder
        self._known: dict[tuple[str, str], Repository] = {}
        self._marks = [os.path.join(place, ".git") for place in (folder.path, *folder.path.parents)]

    def repositories(self) -> list[Repository]:
        """Return the repositories around the folder as they are now; each keeps what it has read."""
        around = repositories_around(self._folder.path)
        found = {repository.key: self._known.get(repository.key, repository) for repository in around}
        self._known = found
        return list(found.values())

    def identity(
        self,
        directory: str,
        known: Manifest,
        files: Files,
        otherwise: Identity,
        links: Mapping[str, Path] = MappingProxyType({}),
    ) -> Identity:
        """Return a repository's identity where git holds a file that differs from the known version, else `otherwise`.

        A repository that cannot be read counts as holding every file: who cannot decide does not take it for a
        person's. directory: of the files, or the single file itself. links: paths -> the files that they lead to; these
        are judged where they lie.
        """
        around = self.repositories() if any(map(os.path.exists, self._marks)) else []
        if not around:
            return otherwise
        single = not self._is_directory(directory)
        new = make_manifest(files)
        changed = [path for path, entry in new.items() if not _is_same_blob(known.get(path), entry)]
        for path in changed:
            place = directory if single else f"{directory}/{path}"
            if path in links:
                place = Path(os.path.relpath(links[path], self._folder.path)).as_posix()
            if any(repository.holds(place, files[path].data) is not False for repository in around):
                return REPOSITORY
        return otherwise

    def _is_directory(self, directory: str) -> bool:
        return (self._folder.path / directory).is_dir()


def _is_same_blob(known: TreeEntry | None, new: TreeEntry) -> bool:
    return known is not None and known.sha256 == new.sha256
