"""Read the index of a git repository without running git.

It is hostile input, as in `git_objects`.
"""

import os
import struct
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from evolvable_store.workingcopy.git_objects import GitDamaged, read_bounded

MAX_INDEX = 64 * 2**20
"""Bytes of an index that are read: some 700,000 files."""


@dataclass(frozen=True, slots=True)
class GitIndexEntry:
    """The entry of one path: the id of its blob, and size and time of the file on disk."""

    identity: bytes
    size: int
    seconds: int
    nanoseconds: int


@dataclass(slots=True)
class GitIndex:
    """The entries of an index below one folder.

    unnamed: ids whose path only a shared index knows.
    """

    entries: dict[str, list[GitIndexEntry]] = field(default_factory=dict)
    unnamed: set[bytes] = field(default_factory=set)

    def entry_ids(self, path: str) -> set[bytes]:
        """Return the blobs that a path has; several in a conflict."""
        return {entry.identity for entry in self.entries.get(path_key(path), ())}


def path_key(path: str) -> str:
    """Return a path as file systems may compare it: two paths of one key may be one file."""
    return unicodedata.normalize("NFC", path).casefold() if not path.isascii() else path.lower()


def read_index(data: bytes, id_size: int, below: str, index: GitIndex, git: Path) -> None:
    """Add the entries of an index file (version 2 to 4) below a folder to `index`.

    below: the path of the folder, '' for the root. git: the git directory, where a shared index
    lies. Raise GitDamaged.
    """
    # The format is that of gitformat-index(5).
    if data[:4] != b"DIRC" or len(data) < 12:
        raise GitDamaged("no index")
    version, count = struct.unpack_from(">II", data, 4)
    if version not in (2, 3, 4):
        raise GitDamaged(f"an index of version {version}")
    place, name = 12, b""
    prefix = f"{below}/" if below else ""
    for _ in range(count):
        start, names = place, place + 40 + id_size
        # An entry begins with ten numbers of four bytes; the times of change and the size are
        # enough here.
        seconds, nanoseconds, size = struct.unpack_from(">8xII20xI", data, start)
        (flags,) = struct.unpack_from(">H", data, names)
        # The extended bit adds two more bytes of flags.
        names += 4 if version >= 3 and flags & 0x4000 else 2
        if version == 4:
            name, place = _read_name(data, names, name)
        else:
            end = data.find(b"\0", names)
            if end < 0:
                raise GitDamaged("an index that ends early")
            # Entries are padded with NULs to a multiple of eight, with one at least.
            name, place = data[names:end], start + (end - start + 8) // 8 * 8
        identity = data[start + 40 : start + 40 + id_size]
        # In a split index an entry without a name replaces one of the shared index by its position.
        if not name:
            index.unnamed.add(identity)
        elif (path := path_key(os.fsdecode(name))).startswith(prefix):
            index.entries.setdefault(path, []).append(
                GitIndexEntry(identity, size, seconds, nanoseconds)
            )
    _read_shared(data, place, id_size, below, index, git)


def _read_name(data: bytes, place: int, before: bytes) -> tuple[bytes, int]:
    """Return a name of version 4, and where the next entry begins.

    before: the name before it. The entry says how many bytes of that one's end are dropped.
    """
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


def _read_shared(
    data: bytes, place: int, id_size: int, below: str, index: GitIndex, git: Path
) -> None:
    """Read the shared index too, where this one says that it is split."""
    # Extensions follow the entries; the file ends with a hash.
    while place + 8 <= len(data) - id_size:
        signature = data[place : place + 4]
        (size,) = struct.unpack_from(">I", data, place + 4)
        if signature == b"link":
            name = data[place + 8 : place + 8 + id_size].hex()
            shared = read_bounded(git / f"sharedindex.{name}", MAX_INDEX)
            # No git directory, so that the shared index names no further one.
            if shared is not None:
                read_index(shared, id_size, below, index, Path(os.devnull))
        place += 8 + size
