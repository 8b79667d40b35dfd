"""Read what a git repository around a folder holds: objects, index, references, HEAD's log and
locks.

Git is never started, see `git_objects`. Every file here is hostile input: it is opened without
waiting, has to be a regular file, and is read up to a limit.
"""

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from evolvable_store.workingcopy.git_index import (
    MAX_INDEX,
    GitIndex,
    GitIndexEntry,
    path_key,
    read_index,
)
from evolvable_store.workingcopy.git_objects import (
    GitDamaged,
    ObjectDatabase,
    read_bounded,
    read_range,
    tree_entries,
)

MAX_AROUND = 8
"""Repositories around one folder that are looked at, nearest first."""

MAX_LOG = 4 * 2**20
"""Bytes of HEAD's log that are read: some 20,000 lines."""

# Each tip is a walk down a tree. With more of them none is looked at, and git counts as the
# bringer.
MAX_TIPS = 200
"""References whose commits are looked at."""

LOCK_SECONDS = 600.0
"""How long a lock counts.

An older one was left by a git that was killed, or somebody planted it.
"""

MOVED_SECONDS = 2.0
"""How long after the index or HEAD moved git may still be at work."""

DAMAGE = (
    GitDamaged,
    OSError,
    ValueError,
    struct.error,
    IndexError,
    RecursionError,
    MemoryError,
    OverflowError,
)
"""The errors that reading a damaged repository raises."""

_SKEW = 2.0  # seconds that the clock of a network disk may be ahead
_SMALL = 65_536  # bytes of a file such as HEAD; git writes at most a line
_MAX_PACKED_REFS = 64 * 2**20
_MAX_SYMBOLIC, _MAX_NESTED = 5, 100
_DIRECTORY = 0o040000  # the mode that git gives a folder
# Bytes of the log before a position, some three lines: their digest tells whether the log is
# still the same.
_MARK = 512
_LOCKS = ("index.lock", "HEAD.lock")
# Commits that unfinished commands, fetches and stashes name, besides references.
_STATES = ("FETCH_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REBASE_HEAD", "ORIG_HEAD", "refs/stash")


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place in HEAD's log.

    digest: of the bytes before it, so that a log that was cut is noticed.
    """

    offset: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of HEAD's log.

    before, after: the commits, None for none. action: what moved HEAD.
    """

    before: bytes | None
    after: bytes | None
    action: str


class Repository:
    """One repository around a watched folder.

    Keeps what it read of the index until the index changes.
    """

    def __init__(self, root: Path, git: Path, inside: str) -> None:
        """root: the work tree.

        git: its git directory. inside: the watched folder, relative to root, with `/`.
        """
        self.root, self._git, self._inside = root, git, inside
        self._stamp: tuple[int, ...] | None = None
        self._index = GitIndex()
        self._objects: ObjectDatabase | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """The values that identify a repository around one folder."""
        return str(self.root), str(self._git), self._inside

    @property
    def git(self) -> str:
        """The git directory."""
        return str(self._git)

    def place_of(self, file: Path) -> str:
        """Return the path of a file of the work tree, relative to the root, with `/`.

        Raise ValueError.
        """
        return file.relative_to(self.root).as_posix()

    def blobs(self, place: str, data: bytes) -> set[bytes] | None:
        """Return the ids of the blobs that have these bytes; None when the repository is damaged.

        place: relative to the root. A file counts as held, too, when size and time in the index say
        that it is as git wrote it, whatever filters did to its bytes.
        """
        try:
            id_size = self._refresh()
            blob_ids = _compute_ids(data, id_size)
            index_entries = self._index.entries.get(path_key(place), ())
            # Without a path the blob could be anywhere, so it counts as held.
            held_ids = blob_ids & self._index.unnamed
            # Filters, such as line ends and LFS, make the bytes on disk differ from the blob.
            if index_entries and self._is_as_written(self.root / place, index_entries):
                held_ids = held_ids | {entry.identity for entry in index_entries}
            objects = self.open_objects()[0]
            return held_ids | {
                blob_id
                for blob_id in blob_ids
                if blob_id in self._index.entry_ids(place) or objects.holds(blob_id)
            }
        except DAMAGE:
            return None

    def was_committed(self, commits: Iterable[bytes | None], place: str, data: bytes) -> bool:
        """Return whether one of these commits has these bytes at a path.

        Raise the errors of DAMAGE.
        """
        blob_ids = _compute_ids(data, self.open_objects()[1])
        return any(self.blob_at(commit, place) in blob_ids for commit in commits)

    def is_tracked(self, place: str) -> bool:
        """Return whether the index has a path, with whatever content.

        A damaged index counts as having it.
        """
        try:
            self._refresh()
            # Entries whose names only a shared index has may be this path.
            return bool(self._index.entries.get(path_key(place)) or self._index.unnamed)
        except DAMAGE:
            return True

    def is_staged(self, place: str, blobs: set[bytes]) -> bool:
        """Return whether the index has one of these blobs at a path. Raise the errors of DAMAGE."""
        self._refresh()
        return bool(blobs & self._index.entry_ids(place))

    def open_objects(self) -> tuple[ObjectDatabase, int]:
        """Return the objects of the repository, and the bytes of an id. Raise GitDamaged."""
        common, id_size = self._read_layout()
        # Kept: opening reads the list of packs.
        if self._objects is None:
            self._objects = ObjectDatabase(common / "objects", id_size)
        return self._objects, id_size

    def head_commit(self) -> bytes | None:
        """Return the commit that HEAD names, None before the first one.

        Raise GitDamaged, ValueError.
        """
        return self._resolve_head(self._read_layout()[0])

    def blob_at(self, commit: bytes | None, place: str) -> bytes | None:
        """Return the id of the file that a commit, or a tree, has at a path; None for none.

        Raise GitDamaged.
        """
        objects, id_size = self.open_objects()
        return _find_in_tree(objects, commit, id_size, place) if commit is not None else None

    def tips(self) -> set[bytes]:
        """Return the commits that HEAD, references and unfinished commands name.

        Raise the errors of DAMAGE.
        """
        common, id_size = self._read_layout()
        _check_files(common)
        ids = {self._resolve_head(common)}
        for folder in dict.fromkeys((self._git, common)):
            for name in _STATES:
                lines = (read_bounded(folder / name, 2**20) or b"").splitlines()
                ids.update(_parse_id(line.split(b"\t")[0], id_size) for line in lines)
        for path in _list_files_below(common / "refs" / "heads", common / "refs" / "remotes"):
            ids.add(_parse_id((read_bounded(path, _SMALL) or b"").strip(), id_size))
        packed = read_bounded(common / "packed-refs", _MAX_PACKED_REFS) or b""
        for line in packed.splitlines():
            text, _, reference = line.partition(b" ")
            if reference.startswith((b"refs/heads/", b"refs/remotes/")):
                ids.add(_parse_id(text, id_size))
        commits = {commit for commit in ids if commit}
        if len(commits) > MAX_TIPS:
            raise GitDamaged(f"{len(commits):,} references")
        return commits

    def automatic_merge(self) -> bytes | None:
        """Return the tree that git made of a merge with conflicts, None for none.

        Raise GitDamaged.
        """
        content = read_bounded(self._git / "AUTO_MERGE", _SMALL) or b""
        return _parse_id(content.strip(), self._read_layout()[1])

    def is_merging(self) -> bool:
        """Return whether a merge is to be committed."""
        return os.path.lexists(self._git / "MERGE_HEAD")

    # HEAD's log

    def log_end(self) -> LogPosition:
        """Return where HEAD's log ends now. Raise GitDamaged."""
        path = self._git / "logs" / "HEAD"
        try:
            size = os.stat(path).st_size
        except OSError:
            return LogPosition()
        return LogPosition(size, self._hash_before(size))

    def log_since(self, position: LogPosition) -> list[LogLine] | None:
        """Return the lines behind a position, oldest first, at most MAX_LOG bytes of them.

        None where the position is of another log. Raise GitDamaged.
        """
        path, (common, id_size) = self._git / "logs" / "HEAD", self._read_layout()
        _check_files(common)
        if not os.path.lexists(path):
            return [] if position.offset == 0 else None
        # `git reflog expire` rewrites the log, so an offset alone could lie in the middle of
        # another line.
        if self._hash_before(position.offset) != position.digest:
            return None
        start = max(position.offset, os.stat(path).st_size - MAX_LOG)
        lines = read_range(path, start, MAX_LOG).split(b"\n")[:-1]
        # Where the log was cut at MAX_LOG the first line is a part of one.
        return [_parse_log_line(line, id_size) for line in lines[start > position.offset :]]

    def _hash_before(self, offset: int) -> str:
        """Return the digest of the last bytes of HEAD's log before an offset, '' without all of
        them.
        """
        if not offset:
            return ""
        start = max(0, offset - _MARK)
        data = read_range(self._git / "logs" / "HEAD", start, offset - start)
        return hashlib.sha256(data).hexdigest() if len(data) == offset - start else ""

    # What git is doing

    def lock(self, now: float) -> Path | None:
        """Return a lock of a git that is at work, None for none. now: seconds since 1970."""
        try:
            common = self._read_layout()[0]
        except DAMAGE:
            common = self._git
        folders = dict.fromkeys((self._git, common, *_list_nested_git_directories(common)))
        # Also in linked work trees and submodules: their git may be writing the watched folder.
        for path in (folder / name for folder in folders for name in _LOCKS):
            # A lock from the future was planted, or the clock jumped.
            if -_SKEW <= now - _read_changed_at(path) <= LOCK_SECONDS:
                return path
        return None

    def moved_at(self) -> float:
        """Return when index or HEAD moved last, in seconds since 1970."""
        return max(_read_changed_at(self._git / name) for name in ("index", "HEAD", "logs/HEAD"))

    def _read_layout(self) -> tuple[Path, int]:
        """Return the common directory and the bytes of an id."""
        commondir = read_bounded(self._git / "commondir", _SMALL)
        common = self._git / os.fsdecode(commondir.strip()) if commondir else self._git
        settings = (read_bounded(common / "config", 2**20) or b"").lower()
        lines = b"".join(line.strip() for line in settings.splitlines() if b"objectformat" in line)
        # git allows blanks, tabs and quotes around the value.
        setting = lines.translate(None, b' \t"')
        return common, 32 if b"objectformat=sha256" in setting else 20

    def _is_as_written(self, place: Path, index_entries: "list[GitIndexEntry] | tuple[()]") -> bool:
        try:
            status = os.lstat(place)
        except OSError:
            return False
        seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
        return any(
            (entry.size, entry.seconds) == (status.st_size & 0xFFFFFFFF, seconds & 0xFFFFFFFF)
            and entry.nanoseconds in (0, nanoseconds)
            and entry.seconds != 0
            for entry in index_entries
        )

    def _refresh(self) -> int:
        """Read the index again if it changed; return the bytes of an id."""
        id_size = self._read_layout()[1]
        path = self._git / "index"
        try:
            status = os.stat(path)
            # Size and inode too: two writes within one tick of the clock leave the same time.
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino, id_size)
        except FileNotFoundError:
            stamp = (0, 0, 0, id_size)
        if stamp != self._stamp:
            self._index = GitIndex()
            data = read_bounded(path, MAX_INDEX)
            if data is not None:
                read_index(data, id_size, path_key(self._inside), self._index, self._git)
            self._stamp = stamp
        return id_size

    def _resolve_head(self, common: Path) -> bytes | None:
        """Return the commit that HEAD names, None before the first one."""
        content = read_bounded(self._git / "HEAD", _SMALL)
        # A reference can name another one, and in a hostile repository itself.
        for _ in range(_MAX_SYMBOLIC):
            if content is None:
                break
            text = content.strip()
            if not text.startswith(b"ref:"):
                return bytes.fromhex(text.decode("ascii"))
            name = os.fsdecode(text[4:].strip())
            _check_files(common)
            content = self._read_reference(common, name)
            if content is None:
                return None
        raise GitDamaged("HEAD names no commit")

    def _read_reference(self, common: Path, name: str) -> bytes | None:
        # The name comes from the repository and becomes a path.
        if name.startswith("/") or ".." in name.split("/"):
            raise GitDamaged("a reference outside of the repository")
        # A linked work tree has HEAD of its own, and shares the branches.
        for folder in (self._git, common):
            content = read_bounded(folder / name, _SMALL) if not (folder / name).is_dir() else None
            if content is not None:
                return content
        ending = b" " + os.fsencode(name)
        packed = read_bounded(common / "packed-refs", _MAX_PACKED_REFS) or b""
        return next(
            (line[: -len(ending)] for line in packed.splitlines() if line.endswith(ending)), None
        )


def repositories_around(folder: Path, place: Path | None = None) -> list[Repository]:
    """Return the repositories whose work trees hold this folder, the nearest first.

    place: return those that hold this place instead. Of an index the entries below the folder are
    read, or those in the place where the folder is no part of that work tree.
    """
    repositories: list[Repository] = []
    start = folder if place is None else place
    inner = folder if start.is_relative_to(folder) else start
    for above in (start, *start.parents):
        git = _find_git_directory(above)
        if git is not None and len(repositories) < MAX_AROUND:
            below = inner if folder.is_relative_to(above) else above
            inside = below.relative_to(above).as_posix()
            repositories.append(Repository(above, git, "" if inside == "." else inside))
    return repositories


def _find_git_directory(place: Path) -> Path | None:
    """Return the git directory of a work tree, None where the place is none.

    A linked work tree and a submodule have one too.
    """
    git = place / ".git"
    try:
        status = os.stat(git)
    except (OSError, ValueError):
        return None
    if os.path.isdir(git):
        return git
    # A file .git is one line.
    if status.st_size > _SMALL:
        return None
    try:
        content = read_bounded(git, _SMALL) or b""
    except GitDamaged:
        return None
    if not content.startswith(b"gitdir:") or b"\0" in content:
        return None
    return place / os.fsdecode(content[7:].strip())


def _compute_ids(data: bytes, id_size: int) -> set[bytes]:
    """Return the ids that a blob of these bytes may have.

    One is of the bytes as they are, the other with the line ends that git stores.
    """
    # sha1 is git's own name for the blob, and protects nothing here.
    make = hashlib.sha256 if id_size == 32 else hashlib.sha1
    # core.autocrlf stores line feeds where CR LF lies on disk.
    forms = {data, data.replace(b"\r\n", b"\n")} if b"\r\n" in data else {data}
    blobs = (b"blob %d\0" % len(form) + form for form in forms)
    return {make(blob, usedforsecurity=False).digest() for blob in blobs}


def _find_in_tree(objects: ObjectDatabase, commit: bytes, id_size: int, place: str) -> bytes | None:
    first = objects.read(commit, "commit").partition(b"\n")[0]
    if not first.startswith(b"tree "):
        raise GitDamaged("a commit without a tree")
    object_id = bytes.fromhex(first[5:].decode("ascii", "replace"))
    parts = os.fsencode(place).split(b"/")
    for depth, part in enumerate(parts):
        entries = tree_entries(objects.read(object_id, "tree"), id_size)
        part_key = path_key(os.fsdecode(part))
        # The exact name first; on a file system that ignores case another spelling is the same
        # file.
        match = entries.get(part) or next(
            (entry for name, entry in entries.items() if path_key(os.fsdecode(name)) == part_key),
            None,
        )
        if match is None:
            return None
        mode, object_id = match
        is_last, is_folder = depth == len(parts) - 1, mode & 0o170000 == _DIRECTORY
        if is_folder is is_last:
            return None
    return object_id


def _check_files(common: Path) -> None:
    """Raise GitDamaged where references and their logs are not stored in files of their own."""
    # A newer storage of references, which has no such files.
    if (common / "reftable").exists():
        raise GitDamaged("references are kept in a reftable")


def _parse_id(text: bytes, id_size: int) -> bytes | None:
    """Return the id that a text is, None for another text."""
    try:
        object_id = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    # All zeros mean "no commit".
    return object_id if len(object_id) == id_size and any(object_id) else None


def _parse_log_line(line: bytes, id_size: int) -> LogLine:
    ids, _, message = line.partition(b"\t")
    before, after = ids[: 2 * id_size], ids[2 * id_size + 1 : 4 * id_size + 1]
    action = message.partition(b":")[0].decode("utf-8", "replace")
    return LogLine(_parse_id(before, id_size), _parse_id(after, id_size), action)


def _list_files_below(*folders: Path) -> Iterator[Path]:
    """Yield the regular files below these folders; no link is followed.

    Raise GitDamaged for too many.
    """
    waiting, count = [*folders], 0
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        count += len(entries)
        if count > 10 * MAX_TIPS:
            raise GitDamaged("too many references")
        waiting += [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
        yield from (Path(entry) for entry in entries if entry.is_file(follow_symlinks=False))


def _list_nested_git_directories(common: Path) -> list[Path]:
    """Return the git directories of linked work trees and submodules."""
    folders: list[Path] = []
    for name in ("worktrees", "modules"):
        try:
            with os.scandir(common / name) as entries:
                folders += map(Path, islice(entries, _MAX_NESTED))
        except OSError:
            continue
    return folders


def _read_changed_at(path: Path) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return float("-inf")
