"""Postings of rare terms, many in one row of the index: a row for each would take most of the time
of an import.

Most terms of a library are in one document alone. A term that few of the documents have that are
settled together becomes an entry for each field: the number of the block in four bytes, the length
of the term in two, the field and the count of documents in one each; then the term in UTF-8, the
places of the documents in two bytes each, and their weights in one. Numbers are in the machine's
order. The hash of the term chooses the bucket; a bucket is one row, and new entries are appended to
it. A term can have both entries and rows of its own in `posting`, with other documents.
"""

import struct
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING

from evolvable_store.errors import DamagedFile
from evolvable_store.storage.connection import Connection

PostingRow = tuple[str, int, int, bytes, bytes]
"""Term, field, block; the places of the documents inside the block, and their weights."""

PostingKey = tuple[str, int, int]
"""Term, field, block."""

MOST_OF_ENTRY = 0xFF
"""Documents of one entry at most."""

_HEAD = struct.Struct("=IHBB")
# What fits the two and four bytes of the head.
_MOST_LENGTH, _MOST_BLOCK = 0xFFFF, 0xFFFFFFFF
BUCKETS = 4096
"""At 10,000 skills a bucket has some 90 entries, two kilobytes."""

_APPEND = """INSERT INTO rare VALUES (?, ?)
    ON CONFLICT DO UPDATE SET entries = CAST(entries || excluded.entries AS BLOB)"""


def bucket_of(term: bytes, buckets: int) -> int:
    """Return in which of so many buckets the entries of a term stand."""
    # crc32 gives the same everywhere; hash() of a text differs between processes.
    return zlib.crc32(term) % buckets


def split_rare(
    rows: Iterable[PostingRow], most: int, buckets: int
) -> tuple[list[PostingRow], list[tuple[int, bytes]]]:
    """Return the rows of more than `most` documents, and the entries of the others by
    their bucket.
    """
    often: list[PostingRow] = []
    rare: defaultdict[int, list[bytes]] = defaultdict(list)
    for row in rows:
        key = row[0].encode("utf-8", "surrogatepass")
        # A frequent term in a bucket would be read with every other term of the bucket.
        if len(row[4]) > most or len(key) > _MOST_LENGTH or row[2] > _MOST_BLOCK:
            often.append(row)
        else:
            rare[bucket_of(key, buckets)].append(pack_entry(row))
    return often, [(bucket, b"".join(rare[bucket])) for bucket in sorted(rare)]


def pack_entry(row: PostingRow) -> bytes:
    """Return the entry of a row that has at most MOST_OF_ENTRY documents."""
    term, field, block, places, weights = row
    key = term.encode("utf-8", "surrogatepass")
    return (
        _HEAD.pack(
            block,
            len(key),
            field,
            len(weights),
        )
        + key
        + places
        + weights
    )


def size_of_entry(row: PostingRow) -> int:
    """Return how many bytes the entry of a row takes."""
    term = row[0]
    return _HEAD.size + (len(term) if term.isascii() else len(term.encode())) + 3 * len(row[4])


def read_entries(data: bytes, term: bytes | None = None) -> list[PostingRow]:
    """Return the entries of a bucket, those of one term where that is given.

    Raises ValueError when one is cut off.
    """
    found: list[PostingRow] = []
    at = 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            raise ValueError("an entry is cut off")
        block, length, field, count = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        places, at = start + length, start + length + 3 * count
        if at > len(data):
            raise ValueError("an entry is cut off")
        if term is None or data[start:places] == term:
            weights = places + 2 * count
            found.append(
                (data[start:places].decode(), field, block, data[places:weights], data[weights:at])
            )
    return found


if TYPE_CHECKING:
    _read_entries = read_entries
else:
    try:
        from evolvable_store.search._scoring import read_entries as _read_entries
    except ImportError:
        _read_entries = read_entries


def most_of_rare(documents: int) -> int:
    """Return how many of so many documents that are settled together may have a rare term: one in a
    thousand.
    """
    return min(1 + documents // 1000, MOST_OF_ENTRY)


def append_entries(db: Connection, entries: Iterable[tuple[int, bytes]]) -> None:
    """Append entries to their buckets."""
    db.executemany(_APPEND, entries)


def keys_by_bucket(terms: Iterable[str]) -> dict[int, list[bytes]]:
    """Return the terms, as entries have them, by the bucket of their entries."""
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    for term in terms:
        key = term.encode("utf-8", "surrogatepass")
        found[bucket_of(key, BUCKETS)].append(key)
    return found


def read_bucket(bucket: int, data: bytes, keys: Iterable[bytes]) -> Iterator[PostingRow]:
    """Yield the entries of some terms of a bucket, those of one term, field and block as one.

    Raises DamagedFile.
    """
    for key in keys:
        if key in data:  # which is faster than to read the entries, and mostly not so
            found = _entries(bucket, data, key)
            yield from found if len(found) < 2 else _join_rows(found)


def _join_rows(rows: Iterable[PostingRow]) -> Iterator[PostingRow]:
    """Yield the rows with those of one key as one: later ones have documents of higher numbers."""
    together: defaultdict[PostingKey, list[PostingRow]] = defaultdict(list)
    for row in rows:
        together[row[:3]].append(row)
    for key, group in together.items():
        yield (*key, b"".join(row[3] for row in group), b"".join(row[4] for row in group))


def take_out_rare(db: Connection, gone: Mapping[PostingKey, Set[int]]) -> None:
    """Take postings out of the buckets. gone: the places of their documents. Raises DamagedFile."""
    for bucket in sorted(keys_by_bucket({term for term, _, _ in gone})):
        row = db.execute("SELECT entries FROM rare WHERE bucket = ?", (bucket,)).fetchone()
        left = _entries_left(bucket, row[0], gone) if row else None
        if left is not None:
            # Delete and append: _APPEND would add to the old row.
            db.execute("DELETE FROM rare WHERE bucket = ?", (bucket,))
            append_entries(db, [(bucket, left)] if left else [])


def _entries_left(bucket: int, data: bytes, gone: Mapping[PostingKey, Set[int]]) -> bytes | None:
    """Return the entries without those postings, None when they have none of them."""
    left: list[bytes] = []
    copied = at = 0
    for row in _entries(bucket, data):
        end = at + size_of_entry(row)
        if places := gone.get(row[:3]):
            # Entries that stay are copied as bytes, in runs.
            left.append(data[copied:at])
            if some := without_places(*row[3:], places):
                left.append(pack_entry((*row[:3], *some)))
            copied = end
        at = end
    return b"".join((*left, data[copied:])) if copied else None


def without_places(places: bytes, weights: bytes, gone: Set[int]) -> tuple[bytes, bytes] | None:
    """Return places and weights without those of some places, None when none is left."""
    remaining = [
        (at, weight)
        for at, weight in zip(array("H", places), weights, strict=True)
        if at not in gone
    ]
    if not remaining:
        return None
    return array("H", [at for at, _ in remaining]).tobytes(), bytes(
        weight for _, weight in remaining
    )


def count_rare(db: Connection) -> int:
    """Return how many postings the entries have. Raises DamagedFile."""
    buckets = db.execute("SELECT bucket, entries FROM rare")
    return sum(len(row[4]) for bucket, data in buckets for row in _entries(bucket, data))


def _entries(bucket: int, data: bytes, term: bytes | None = None) -> list[PostingRow]:
    try:
        return _read_entries(data, term)
    except ValueError as error:
        raise DamagedFile(f"the entries of bucket {bucket} are damaged: {error}") from error
