"""Postings of rare terms, many in one row of the index.

A row for each would take most of the time of an import, as most terms are in one document alone. A
term that few of the documents have that are settled together becomes an entry for each field. The
entry has the number of the block in four bytes, the length of the term in two, the field and the
count of documents in one each. The term follows in UTF-8, then the places of the documents in two
bytes each, and their weights in one. Numbers are in the machine's byte order. The hash of the term
chooses the bucket; a bucket is one row, to which new entries are appended. A term can have both
entries and rows of its own in `posting`, with different documents.
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
"""Term, field, block, the places of the documents inside the block, and their weights."""

PostingKey = tuple[str, int, int]
"""Term, field, block."""

MOST_OF_ENTRY = 0xFF
"""Documents of one entry at most."""

_HEAD = struct.Struct("=IHBB")
# The limits of the two and four bytes of the head.
_MOST_LENGTH, _MOST_BLOCK = 0xFFFF, 0xFFFFFFFF
BUCKETS = 4096
"""Rows for the entries of rare terms: at 10,000 skills each has some 90 entries."""

_APPEND = """INSERT INTO rare VALUES (?, ?)
    ON CONFLICT DO UPDATE SET entries = CAST(entries || excluded.entries AS BLOB)"""


def bucket_of(term: bytes, buckets: int) -> int:
    """Return the number of the bucket of a term."""
    # crc32 gives the same everywhere; hash() of a text differs between processes.
    return zlib.crc32(term) % buckets


def split_rare(
    rows: Iterable[PostingRow], most: int, buckets: int
) -> tuple[list[PostingRow], list[tuple[int, bytes]]]:
    """Return the rows of more than `most` documents, and the entries of the others by bucket."""
    frequent: list[PostingRow] = []
    rare: defaultdict[int, list[bytes]] = defaultdict(list)
    for row in rows:
        term, _, block, _, weights = row
        key = term.encode("utf-8", "surrogatepass")
        # A frequent term in a bucket would be read with every other term of the bucket.
        if len(weights) > most or len(key) > _MOST_LENGTH or block > _MOST_BLOCK:
            frequent.append(row)
        else:
            rare[bucket_of(key, buckets)].append(pack_entry(row))
    return frequent, [(bucket, b"".join(rare[bucket])) for bucket in sorted(rare)]


def pack_entry(row: PostingRow) -> bytes:
    """Return the entry of a row that has at most MOST_OF_ENTRY documents."""
    term, field, block, places, weights = row
    key = term.encode("utf-8", "surrogatepass")
    return _HEAD.pack(block, len(key), field, len(weights)) + key + places + weights


def size_of_entry(row: PostingRow) -> int:
    """Return how many bytes the entry of a row takes."""
    term = row[0]
    return _HEAD.size + (len(term) if term.isascii() else len(term.encode())) + 3 * len(row[4])


def read_entries(data: bytes, term: bytes | None = None) -> list[PostingRow]:
    """Return the entries of a bucket; term: only those of this term.

    Raises ValueError when one is cut off.
    """
    rows: list[PostingRow] = []
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
            rows.append(
                (data[start:places].decode(), field, block, data[places:weights], data[weights:at])
            )
    return rows


if TYPE_CHECKING:
    _read_entries = read_entries
else:
    try:
        from evolvable_store.search._scoring import read_entries as _read_entries
    except ImportError:
        _read_entries = read_entries


def most_of_rare(documents: int) -> int:
    """Return in how many documents, of so many settled together, a rare term may be.

    That is one, and one more for each thousand.
    """
    return min(1 + documents // 1000, MOST_OF_ENTRY)


def append_entries(db: Connection, entries: Iterable[tuple[int, bytes]]) -> None:
    """Append entries to their buckets."""
    db.executemany(_APPEND, entries)


def keys_by_bucket(terms: Iterable[str]) -> dict[int, list[bytes]]:
    """Return the terms in UTF-8, as entries have them, by bucket."""
    by_bucket: defaultdict[int, list[bytes]] = defaultdict(list)
    for term in terms:
        key = term.encode("utf-8", "surrogatepass")
        by_bucket[bucket_of(key, BUCKETS)].append(key)
    return by_bucket


def read_bucket(bucket: int, data: bytes, keys: Iterable[bytes]) -> Iterator[PostingRow]:
    """Yield the entries of some terms of a bucket, those of one term, field and block as one.

    Raises DamagedFile.
    """
    for key in keys:
        if key in data:  # mostly False, and faster than reading the entries
            rows = _read_bucket_entries(bucket, data, key)
            yield from rows if len(rows) < 2 else _join_rows(rows)


def _join_rows(rows: Iterable[PostingRow]) -> Iterator[PostingRow]:
    """Yield the rows, with those of one key joined: later ones have higher documents."""
    by_key: defaultdict[PostingKey, list[PostingRow]] = defaultdict(list)
    for row in rows:
        by_key[row[:3]].append(row)
    for key, group in by_key.items():
        yield (*key, b"".join(row[3] for row in group), b"".join(row[4] for row in group))


def take_out_rare(db: Connection, gone: Mapping[PostingKey, Set[int]]) -> None:
    """Remove postings from the buckets. gone: the places of their documents. Raises DamagedFile."""
    for bucket in sorted(keys_by_bucket({term for term, _, _ in gone})):
        row = db.execute("SELECT entries FROM rare WHERE bucket = ?", (bucket,)).fetchone()
        remaining = _without_postings(bucket, row[0], gone) if row else None
        if remaining is not None:
            # First deleted: _APPEND would add to the old row.
            db.execute("DELETE FROM rare WHERE bucket = ?", (bucket,))
            append_entries(db, [(bucket, remaining)] if remaining else [])


def _without_postings(
    bucket: int, data: bytes, gone: Mapping[PostingKey, Set[int]]
) -> bytes | None:
    """Return the entries of a bucket without these postings, None when it has none of them."""
    parts: list[bytes] = []
    copied = at = 0
    for row in _read_bucket_entries(bucket, data):
        end = at + size_of_entry(row)
        if places := gone.get(row[:3]):
            # Entries that stay are copied as bytes, in runs.
            parts.append(data[copied:at])
            if remaining := without_places(*row[3:], places):
                parts.append(pack_entry((*row[:3], *remaining)))
            copied = end
        at = end
    return b"".join((*parts, data[copied:])) if copied else None


def without_places(places: bytes, weights: bytes, gone: Set[int]) -> tuple[bytes, bytes] | None:
    """Return places and weights without some places, None when none remains."""
    remaining = [
        (at, weight)
        for at, weight in zip(array("H", places), weights, strict=True)
        if at not in gone
    ]
    if not remaining:
        return None
    remaining_places = array("H", [at for at, _ in remaining])
    return remaining_places.tobytes(), bytes(weight for _, weight in remaining)


def count_rare(db: Connection) -> int:
    """Return how many postings the entries have. Raises DamagedFile."""
    buckets = db.execute("SELECT bucket, entries FROM rare")
    return sum(
        len(row[4]) for bucket, data in buckets for row in _read_bucket_entries(bucket, data)
    )


def _read_bucket_entries(bucket: int, data: bytes, term: bytes | None = None) -> list[PostingRow]:
    try:
        return _read_entries(data, term)
    except ValueError as error:
        raise DamagedFile(f"the entries of bucket {bucket} are damaged: {error}") from error
