"""Read commits and trees of a git object database without running git.

git runs programs that a repository names (`core.fsmonitor`, filters, hooks), so nothing here starts
it. The database is hostile input: every size and depth is bounded, and whatever is damaged raises
GitDamaged.
"""

import os
import stat
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# More than the largest file of a resource; the tree of a huge folder fits too.
MAX_OBJECT = 32 * 2**20
"""Bytes of one object that are inflated."""

MAX_DELTAS = 64
"""Deltas on top of one another; git itself writes at most 50."""

# git repacks at 50 packs by default; more than this is damage or an attack.
MAX_PACKS = 1_000
"""Files of packs and their indexes that are read."""

MAX_ALTERNATES = 16
"""Folders of objects that are read, with those that others name as alternates."""

_IDS = 8 + 1024
"""Where the ids begin in a pack index: behind its signature and the counts by first byte."""

# The last candidates are read together: fewer system calls than a search down to one.
_NEAR = 64
"""Ids that are read at once."""

# FAT and some network disks keep times to two seconds.
_TICK_NS = 2 * 10**9
"""The longest tick of a file system's clock, in nanoseconds."""

_TYPES = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFFSET_DELTA, _REFERENCE_DELTA = 6, 7


class GitDamaged(Exception):
    """A repository cannot be read: it is damaged, or uses a format that this reader lacks."""


def read_bounded(path: Path, limit: int) -> bytes | None:
    """Return the bytes of a regular file, None when there is none.

    Raise GitDamaged when it is longer than `limit`.
    """
    try:
        with _open_file(path) as stream:
            if os.fstat(stream.fileno()).st_size > limit:
                raise GitDamaged(f"{path} has more than {limit:,} bytes")
            return stream.read(limit + 1)[:limit]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise GitDamaged(f"{path}: {error}") from None


def read_range(path: Path, offset: int, length: int) -> bytes:
    """Return so many bytes of a regular file from an offset on, fewer at its end.

    Raise GitDamaged.
    """
    try:
        with _open_file(path) as stream:
            stream.seek(offset)
            return stream.read(length)
    except (OSError, OverflowError, ValueError) as error:
        raise GitDamaged(f"{path.name}: {error}") from None


def _open_file(path: Path) -> BinaryIO:
    """Open a regular file without waiting for a pipe that somebody put there.

    Raise OSError, ValueError, GitDamaged.
    """
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise GitDamaged(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")


def _read_modified_ns(folder: Path) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


class ObjectDatabase:
    """The objects of one repository, loose and packed, with those of its alternates."""

    def __init__(self, folder: Path, id_size: int) -> None:
        """folder: `objects` of the common directory.

        id_size: bytes of an id, 20 (sha1) or 32 (sha256).
        """
        self._id_size = id_size
        self._folders = list(_find_object_folders(folder))
        self._packs: list[_Pack] = []
        self._ids: list[_IdTable] = []
        self._stamp: tuple[int, ...] | None = None

    def holds(self, identity: bytes) -> bool:
        """Return whether an object is here, loose or packed; nothing is inflated.

        Raise GitDamaged.
        """
        name = identity.hex()
        # Loose objects first: what git just wrote is seldom packed.
        if any(os.path.lexists(folder / name[:2] / name[2:]) for folder in self._folders):
            return True
        return any(table.find(identity) is not None for table in self._read_tables())

    def read(self, identity: bytes, expected_type: str) -> bytes:
        """Return the content of an object of the type `expected_type`. Raise GitDamaged."""
        kind, data = self._read_object(identity, MAX_DELTAS)
        if kind != expected_type:
            raise GitDamaged(f"{identity.hex()} is a {kind}, not a {expected_type}")
        return data

    def _read_object(self, identity: bytes, depth: int) -> tuple[str, bytes]:
        name = identity.hex()
        for folder in self._folders:
            packed = read_bounded(folder / name[:2] / name[2:], MAX_OBJECT)
            if packed is not None:
                return _parse_loose(packed)
        for pack in self._list_packs():
            if (offset := pack.offset_of(identity)) is not None:
                return self._read_packed(pack, offset, depth)
        raise GitDamaged(f"{name} is missing")

    def _list_packs(self) -> "list[_Pack]":
        self._read_tables()
        return self._packs

    def _read_tables(self) -> "list[_IdTable]":
        """Return the tables of ids of all packs.

        They are read again when a folder of packs changed.
        """
        folders = [folder / "pack" for folder in self._folders]
        stamp = tuple(map(_read_modified_ns, folders))
        if stamp != self._stamp:
            entries = [path for folder in folders for path in _list_folder(folder)]
            # Counted before any is opened.
            if len(entries) > MAX_PACKS:
                raise GitDamaged(f"{len(entries):,} files of packs")
            self._packs = [_Pack(path, self._id_size) for path in entries if path.suffix == ".idx"]
            shared = [path for path in entries if path.name == "multi-pack-index"]
            self._ids = [
                *(pack.ids for pack in self._packs),
                *(_read_multi_pack_index(path, self._id_size) for path in shared),
            ]
            # A pack that comes within the same tick does not change the time again, so a stamp that
            # young is not kept.
            self._stamp = stamp if time.time_ns() - max(stamp) > _TICK_NS else None
        return self._ids

    def _read_packed(self, pack: "_Pack", offset: int, depth: int) -> tuple[str, bytes]:
        if depth <= 0:
            raise GitDamaged("too many deltas")
        kind, size, data = pack.entry(offset)
        # An object that is no delta.
        if kind in _TYPES:
            return _TYPES[kind], _inflate(data, size)
        if kind == _OFFSET_DELTA:
            back, used = _parse_offset(data)
            # A base lies before its delta in the pack, so a chain cannot run in circles.
            if not 0 < back <= offset:
                raise GitDamaged("a delta against nothing")
            base_kind, base = self._read_packed(pack, offset - back, depth - 1)
        elif kind == _REFERENCE_DELTA:
            used = self._id_size
            base_kind, base = self._read_object(data[:used], depth - 1)
        else:
            raise GitDamaged(f"object type {kind}")
        return base_kind, _apply_delta(base, _inflate(data[used:], size))


class _IdTable:
    """The sorted ids of the objects in one pack or in several.

    It is read in pieces: it may have hundreds of megabytes. It is not mapped into memory: a file
    that is cut meanwhile would end the process.
    """

    def __init__(self, path: Path, fanout: int, ids: int, id_size: int) -> None:
        """fanout, ids: where the counts by first byte, and the ids, begin in the file."""
        self.path, self._ids, self._id_size = path, ids, id_size
        counts = read_range(path, fanout, 1024)
        if len(counts) < 1024:
            raise GitDamaged(f"{path.name} ends early")
        self._fanout = struct.unpack(">256I", counts)
        self.count = self._fanout[255]

    def find(self, identity: bytes) -> int | None:
        """Return the number of an object, None when it is not here. Raise GitDamaged."""
        # The counts by first byte narrow the search to a 256th of the table.
        low = self._fanout[identity[0] - 1] if identity[0] else 0
        high = min(self._fanout[identity[0]], self.count)
        while high - low > _NEAR:
            middle = (low + high) // 2
            middle_id = read_range(self.path, self._ids + middle * self._id_size, self._id_size)
            low, high = (middle, high) if middle_id <= identity else (low, middle)
        start, length = self._ids + low * self._id_size, max(0, high - low) * self._id_size
        ids = read_range(self.path, start, length)
        for number in range(len(ids) // self._id_size):
            if ids[number * self._id_size : (number + 1) * self._id_size] == identity:
                return low + number
        return None


def _read_multi_pack_index(path: Path, id_size: int) -> _IdTable:
    """Return the ids of a multi-pack-index. Raise GitDamaged."""
    head = read_range(path, 0, 12)
    if head[:5] != b"MIDX\x01" or len(head) < 12:
        raise GitDamaged(f"{path.name} is no index of several packs of version 1")
    rows = read_range(path, 12, 12 * head[6])
    chunks = {
        rows[at : at + 4]: struct.unpack_from(">Q", rows, at + 4)[0]
        for at in range(0, len(rows) - 11, 12)
    }
    if b"OIDF" not in chunks or b"OIDL" not in chunks:
        raise GitDamaged(f"{path.name} has no table of ids")
    return _IdTable(path, chunks[b"OIDF"], chunks[b"OIDL"], id_size)


class _Pack:
    """One pack with its index, version 2. Both are read in pieces."""

    def __init__(self, index: Path, id_size: int) -> None:
        self._index, self._path, self._id_size = index, index.with_suffix(".pack"), id_size
        if read_range(index, 0, 8) != b"\xfftOc\x00\x00\x00\x02":
            raise GitDamaged(f"{index.name} is no pack index of version 2")
        self.ids = _IdTable(index, 8, _IDS, id_size)
        self._count = self.ids.count

    def offset_of(self, identity: bytes) -> int | None:
        """Return where an object begins in the pack, None when it is not in it."""
        number = self.ids.find(identity)
        return None if number is None else self._read_offset(number)

    def _read_offset(self, number: int) -> int:
        offsets = _IDS + self._count * (self._id_size + 4)
        (offset,) = struct.unpack(">I", read_range(self._index, offsets + 4 * number, 4))
        # A set top bit means that the offset is in the table of 8-byte numbers.
        if offset < 2**31:
            return int(offset)
        place = offsets + 4 * self._count + 8 * (offset - 2**31)
        return int(struct.unpack(">Q", read_range(self._index, place, 8))[0])

    def entry(self, offset: int) -> tuple[int, int, bytes]:
        """Return the type of an object, its size when inflated, and its packed bytes.

        Bytes of the next objects may follow.
        """
        head = read_range(self._path, offset, 32)
        if not head:
            raise GitDamaged("an offset behind the end of a pack")
        kind, size, shift, used = head[0] >> 4 & 7, head[0] & 15, 4, 1
        while head[used - 1] & 0x80:
            # Nine bytes of seven bits each: more than any size.
            if used >= len(head) or shift > 60:
                raise GitDamaged("a size without an end")
            size |= (head[used] & 0x7F) << shift
            shift, used = shift + 7, used + 1
        if size > MAX_OBJECT:
            raise GitDamaged(f"an object of {size:,} bytes")
        # The pack does not say how long the packed form is: zlib's overhead is below a thousandth.
        longest = size + size // 1000 + 1024
        return kind, size, read_range(self._path, offset + used, longest)


def _find_object_folders(folder: Path) -> Iterator[Path]:
    """Yield this folder of objects and all its alternates, also those of alternates, each once."""
    waiting, done = [folder], set[Path]()
    while waiting and len(done) < MAX_ALTERNATES:
        here = waiting.pop(0)
        if here in done:
            continue
        done.add(here)
        yield here
        alternates = read_bounded(here / "info" / "alternates", 65_536) or b""
        waiting += [
            here / os.fsdecode(line)
            for line in alternates.splitlines()
            if line and b"\0" not in line
        ]


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise GitDamaged(f"{folder}: {error}") from None


def _parse_loose(packed: bytes) -> tuple[str, bytes]:
    data = _inflate(packed, None)
    head, zero, content = data.partition(b"\0")
    kind, _, size = head.partition(b" ")
    if not zero or not size.isdigit() or len(size) > 12 or int(size) != len(content):
        raise GitDamaged("a loose object without a header")
    return kind.decode("ascii", "replace"), content


def _inflate(packed: bytes, size: int | None) -> bytes:
    limit = MAX_OBJECT if size is None else size
    try:
        # One byte more than is allowed, so that a longer one is noticed and never unpacked.
        data = zlib.decompressobj().decompress(packed, limit + 1)
    except zlib.error as error:
        raise GitDamaged(f"an object cannot be inflated: {error}") from None
    if len(data) > limit or size is not None and len(data) != size:
        raise GitDamaged("an object has another size than it says")
    return data


def _parse_offset(data: bytes) -> tuple[int, int]:
    """Return how far back the base of a delta begins, and the length of that number in bytes."""
    value, used = -1, 0
    while True:
        if used >= len(data) or used > 9:
            raise GitDamaged("an offset without an end")
        # git adds one for each further byte, so that every number has one spelling.
        value, used = (value + 1) << 7 | data[used] & 0x7F, used + 1
        if not data[used - 1] & 0x80:
            return value, used


def _apply_delta(base: bytes, delta: bytes) -> bytes:
    """Return the object that a delta makes from its base."""
    source, place = _parse_varint(delta, 0)
    target, place = _parse_varint(delta, place)
    if source != len(base) or target > MAX_OBJECT:
        raise GitDamaged("a delta of another base")
    result = bytearray()
    while place < len(delta):
        code, place = delta[place], place + 1
        if code & 0x80:
            start = length = 0
            for bit in range(7):
                if code >> bit & 1:
                    if place >= len(delta):
                        raise GitDamaged("a delta that ends early")
                    if bit < 4:
                        start |= delta[place] << 8 * bit
                    else:
                        length |= delta[place] << 8 * (bit - 4)
                    place += 1
            # A length of zero means 65,536.
            length = length or 0x10000
            piece = base[start : start + length]
        elif code:
            length = code
            piece, place = delta[place : place + length], place + length
        else:
            raise GitDamaged("a delta with an unknown instruction")
        result += piece
        if len(piece) != length or len(result) > target:
            raise GitDamaged("a delta that copies what is not there")
    if len(result) != target:
        raise GitDamaged("a delta that ends early")
    return bytes(result)


def _parse_varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > 60:
            raise GitDamaged("a number without an end")
        value |= (data[place] & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if not data[place - 1] & 0x80:
            return value, place


def tree_entries(tree: bytes, id_size: int) -> dict[bytes, tuple[int, bytes]]:
    """Return the entries of a tree, name -> (mode, id). Raise GitDamaged."""
    entries: dict[bytes, tuple[int, bytes]] = {}
    place = 0
    while place < len(tree):
        zero = tree.find(b"\0", place)
        mode, space, name = tree[place:zero].partition(b" ") if zero >= 0 else (b"", b"", b"")
        place = zero + 1 + id_size
        # A mode has six octal digits at most; anything else is no tree.
        if not space or not name or place > len(tree) or len(mode) > 6 or mode.strip(b"01234567"):
            raise GitDamaged("a tree with a damaged entry")
        entries[name] = (int(mode, 8), tree[zero + 1 : place])
    return entries
