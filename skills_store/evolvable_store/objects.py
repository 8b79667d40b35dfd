"""The immutable objects: files, manifests of folders, and versions that name manifests by hash.

The bytes of a blob are stored as a zlib stream, which any zlib can read, or as a tombstone of
purged bytes.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from evolvable_store.errors import InvalidPath, TooLarge
from evolvable_store.paths import check_path

# The whole file is in memory several times in a write: its bytes, packed, and the request that
# brought it.
MAX_FILE = 5 * 2**20
"""Bytes of one file."""

# Bounds how many rows and file operations one checkout takes.
MAX_FILES = 500
"""Files of one resource."""

MAX_RESOURCE = 16 * 2**20
"""Bytes of all files of one resource, as Skills over MCP (SEP-2640) limits them."""

# One encoder for all calls: json.dumps with these options builds a new one each time.
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

PLAIN, EXECUTABLE = 0o644, 0o755
"""The two modes a file can have; anything else is brought to one of them."""


@dataclass(frozen=True, slots=True)
class File:
    """The content of one file: its bytes and its mode, PLAIN or EXECUTABLE."""

    data: bytes
    mode: int = PLAIN


Files = Mapping[str, File]
"""A whole resource in memory: path inside it -> file."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One line of a manifest: which blob, how many bytes, which mode."""

    sha256: str
    size: int
    mode: int


@dataclass(frozen=True)
class Manifest(Mapping[str, TreeEntry]):
    """Path -> entry over every file of a resource.

    Two manifests are equal exactly when their `tree` is.
    """

    entries: Mapping[str, TreeEntry]

    def __getitem__(self, path: str) -> TreeEntry:
        return self.entries[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    # By the hash alone: the mapping may hold thousands of entries, and two of one tree are equal.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Manifest) and self.tree == other.tree

    def __hash__(self) -> int:
        return hash(self.tree)

    @cached_property
    def tree(self) -> str:
        """The sha256 (hex) of the lines `mode sha256 size path`, sorted by path.

        It identifies the content.
        """
        # The text that is hashed is part of the format: stored trees and signed operations depend
        # on it.
        lines = (
            f"{entry.mode:o} {entry.sha256} {entry.size} {path}\n"
            for path, entry in sorted(self.entries.items())
        )
        return hashlib.sha256("".join(lines).encode("utf-8")).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(entry.size for entry in self.entries.values())

    def to_json(self) -> str:
        """Return the stored form: `{"path": [sha256, size, mode]}`."""
        rows = {path: (e.sha256, e.size, e.mode) for path, e in self.entries.items()}
        return _to_json(rows)

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Return the manifest that `to_json` wrote."""
        return cls({path: TreeEntry(*row) for path, row in dict(json.loads(text)).items()})


def blob_hash(data: bytes) -> str:
    """Return the name of a blob: the sha256 of its bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def make_manifest(files: Files) -> Manifest:
    """Return the manifest of these files.

    Raises InvalidPath or TooLarge where a path or a size breaks a limit.
    """
    if len(files) > MAX_FILES:
        raise TooLarge(
            f"{len(files)} files are too many for one resource.", f"The limit is {MAX_FILES}."
        )
    entries, total = dict[str, TreeEntry](), 0
    # A single file cannot clash with anything.
    if len(files) > 1:
        _check_together(files)
    for path, file in files.items():
        check_path(path)
        size = len(file.data)
        if size > MAX_FILE:
            raise TooLarge(
                f"{path} has {size:,} bytes.", f"The limit for one file is {MAX_FILE:,}."
            )
        total += size
        # Any of the three bits counts, as in git: a umask may have taken the others.
        mode = EXECUTABLE if file.mode & 0o111 else PLAIN
        entries[path] = TreeEntry(blob_hash(file.data), size, mode)
    if total > MAX_RESOURCE:
        raise TooLarge(
            f"The files have {total:,} bytes together.", f"The limit is {MAX_RESOURCE:,}."
        )
    return Manifest(entries)


def _check_together(paths: Iterable[str]) -> None:
    """Raise InvalidPath when two of these cannot lie in one folder.

    Such paths differ by case alone, or one is a folder of the other.
    """
    places: dict[str, str] = {}
    for path in paths:
        folders = [path[: match.end()] for match in re.finditer("/", path)]
        for place in (*folders, path):
            twin = places.setdefault(place.rstrip("/").casefold(), place)
            if twin != place:
                raise InvalidPath(
                    f"{twin} and {place} cannot lie in one folder.",
                    "Some systems cannot hold both.",
                )


@dataclass(frozen=True, slots=True)
class Version:
    """One immutable snapshot of a resource.

    hash: covers the parent's hash, the number, the tree and the operation. So no version of a
    history can be changed without a change of all versions after it.
    """

    number: int
    tree: str
    hash: str
    operation: int

    @property
    def parent(self) -> int | None:
        """The number of the version before it; histories are linear."""
        return self.number - 1 if self.number > 1 else None


def chain_hash(parent: str, number: int, tree: str, operation_digest: str) -> str:
    """Return a version's hash (hex sha256). parent: the hash of the version before, '' for none."""
    # The first line names the format, so that another scheme later cannot give the same hash.
    text = f"evolvable version 1\n{parent}\n{number}\n{tree}\n{operation_digest}\n"
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# ISA-L writes the format of zlib three times as fast as zlib at its fastest, and reads it twice as
# fast; its output is an eighth larger (20 November 2026). Packing is the largest part of an update
# beside the commit itself.
FASTEST = 0
"""The fastest level of the library that packs: 0 of ISA-L, 1 of zlib."""

if TYPE_CHECKING:
    from zlib import compress, decompress
    from zlib import error as InflateError
else:
    try:
        from isal.isal_zlib import IsalError as InflateError
        from isal.isal_zlib import compress, decompress
    except ImportError:  # no wheel for this platform
        from zlib import compress, decompress
        from zlib import error as InflateError

        FASTEST = 1  # 0 would not compress at all


def pack(data: bytes) -> tuple[bytes, str]:
    """Return the stored form of a blob and its codec: 'zlib', or 'raw' where that is no shorter."""
    # Speed over size: texts of a few kilobytes, read far more often than they are stored.
    packed = compress(data, FASTEST)
    return (packed, "zlib") if len(packed) < len(data) else (data, "raw")


def unpack(packed: object, codec: str) -> bytes:
    """Return the bytes that `pack` took, or the replacement text of a tombstone.

    Raises zlib.error for damage.
    """
    # One wrong bit in the head of a row makes its bytes a text or a number.
    if not isinstance(packed, bytes):
        raise zlib.error(f"it is {type(packed).__name__}, not bytes")
    if codec in TOMBSTONES:
        return unpack_tombstone(packed).content
    if codec != "zlib":
        # 'raw', and a codec of a newer program: fsck reports one that is unknown.
        return packed
    try:
        return decompress(packed)
    except InflateError as error:
        raise zlib.error(str(error)) from error


def unpack_verified(sha256: str, packed: object, codec: str) -> bytes:
    """Return the bytes of a stored blob, checked against its hash; of a tombstone, its text.

    Raises zlib.error for damage.
    """
    data = unpack(packed, codec)
    # A tombstone's content has other bytes than its name says, but it must not be empty.
    if blob_hash(data) != sha256 and (codec not in TOMBSTONES or not data):
        raise zlib.error("its bytes do not match its hash")
    return data


PURGED, ABSENT = "purged", "absent"
TOMBSTONES = (PURGED, ABSENT)
"""Codecs of a blob without its bytes.

PURGED was purged in this library, for good; ABSENT in the library that an archive came from.
"""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The record in place of purged bytes.

    kind: of the secret. content: the text that readers get.
    """

    at: str
    actor: str
    reason: str
    kind: str
    content: bytes


def pack_tombstone(stone: Tombstone) -> bytes:
    """Return the stored form of a tombstone."""
    fields = asdict(stone) | {"content": base64.b64encode(stone.content).decode("ascii")}
    return zlib.compress(json.dumps(fields).encode("ascii"))


def unpack_tombstone(packed: bytes) -> Tombstone:
    """Return the tombstone that was packed. Raises zlib.error for a damaged one."""
    try:
        fields = json.loads(zlib.decompress(packed))
        content = base64.b64decode(fields["content"], validate=True)
        at, actor, reason, kind = (str(fields[key]) for key in ("at", "actor", "reason", "kind"))
        return Tombstone(at, actor, reason, kind, content)
    except (ValueError, TypeError, KeyError) as error:
        raise zlib.error(f"it is no tombstone: {error}") from error
