"""Postings: for each term, the documents that have it in each field and how much it weighs there.

A document is one text of one resource; a changed resource becomes a new document. Postings are
stored in rows of at most BLOCK documents, so that adding one rewrites little; those of rare terms
are stored as `rare_postings` says. Documents that came or went lately wait beside them with all
their terms, until there are MAX_PENDING. Every process keeps the waiting documents in memory and
counts them as if they were settled. So a ranking depends on the contents of the library alone, and
not on its history. Of all documents a search returns those that its VisibilityFilter lets through.
"""

import dataclasses
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from evolvable_store.errors import DamagedFile
from evolvable_store.search.analyzer import unpack_fields, unpack_weights
from evolvable_store.search.posting_loops import JoinedTerms
from evolvable_store.search.rare_postings import (
    BUCKETS,
    PostingKey,
    PostingRow,
    append_entries,
    count_rare,
    keys_by_bucket,
    most_of_rare,
    read_bucket,
    take_out_rare,
    without_places,
)
from evolvable_store.storage.connection import Connection

if TYPE_CHECKING:
    from evolvable_store.search.posting_loops import gather_postings
else:
    try:
        from evolvable_store.search._scoring import gather_postings
    except ImportError:
        from evolvable_store.search.posting_loops import gather_postings

# Up to so many, one query for all costs less than several for the best.
FEW = 400
"""Visible documents up to which all are read; of more, the best documents are looked up."""

_MOST_CACHED = 20_000  # documents whose resource is cached


@dataclass(frozen=True, slots=True)
class VisibilityFilter:
    """Which entries a search may return: a condition over `entry e`, and its values."""

    condition: str
    values: tuple[Any, ...]

    def documents(
        self, db: Connection, limit: int, among: Sequence[int] | None = None
    ) -> dict[int, int]:
        """Return at most `limit` documents that may be returned, each with its resource.

        among: only documents of these.
        """
        # The condition is SQL that `visibility` makes, without any text of a caller; the values are
        # bound.
        query, values = f"SELECT e.document, e.id FROM entry e WHERE {self.condition}", self.values
        if among is not None:
            query += " AND e.document IN (SELECT value FROM json_each(?))"
            values = (*values, json.dumps(among))
        return dict(db.execute(f"{query} LIMIT ?", (*values, limit)).fetchall())


class VisibleDocuments:
    """The documents that a search may return in one state of the index: each is looked up once."""

    def __init__(self, db: Connection, visible: VisibilityFilter) -> None:
        # One more than FEW tells whether there are more.
        documents = visible.documents(db, FEW + 1)
        self.few = documents if len(documents) <= FEW else None
        """All visible documents, each with its resource; None for more than FEW."""
        self._visible = visible
        self._resources: dict[int, int | None] = {}

    def among(self, db: Connection, documents: Sequence[int]) -> dict[int, int]:
        """Return the visible ones among these documents, each with its resource."""
        # A new dict instead of clear(), since another search may read the old one.
        resources = self._resources if len(self._resources) < _MOST_CACHED else {}
        unknown = [document for document in documents if document not in resources]
        if unknown:
            resources.update(dict.fromkeys(unknown) | self._visible.documents(db, -1, unknown))
            self._resources = resources
        return {
            document: resource
            for document in documents
            if (resource := resources[document]) is not None
        }


# Larger rows are read faster and rewritten slower.
BLOCK = 1 << 14
"""Numbers of documents in one row; the place of a document in it takes two bytes."""

# Each process reads the waiting documents once, which delays its first search.
MAX_PENDING = 200
"""Documents that may wait to be settled."""

MAX_PENDING_BYTES = 1 << 19
"""Packed bytes that the terms of waiting documents may take: some skills are dictionaries."""

SETTLED_AT_ONCE = 8 << 20
"""Packed bytes that are settled under one write lock, for which others wait."""

_FEW_LEFT = 20  # documents that are removed one by one; of more, the others are added again
_MOST_KEPT = 4 << 20  # bytes of cached postings in a process
_OF_TERM, _OF_RUN = 300, 250  # bytes of Python's objects for each term, and for each run

_WAITING = "settled = 0 OR resource IS NULL"

_Terms = list[tuple[int, list[str], bytes]]  # by field: its number, its terms, their weights


def add_document(db: Connection, resource: int, weights: bytes) -> int:
    """Add a document for a resource, its weights packed.

    Return its number, which is higher than any before.
    """
    cursor = db.execute(
        "INSERT INTO document (resource, settled, terms) VALUES (?, 0, ?)", (resource, weights)
    )
    return int(cursor.lastrowid or 0)


def drop_document(db: Connection, document: int) -> None:
    """Take a document away."""
    # One that waits is not in the postings, so its row can go at once.
    gone = db.execute("DELETE FROM document WHERE id = ? AND settled = 0", (document,)).rowcount
    if not gone:
        db.execute("UPDATE document SET resource = NULL WHERE id = ?", (document,))


def count_pending(db: Connection) -> tuple[int, int]:
    """Return how many documents wait to be settled, and how many bytes their terms take."""
    count, size = db.execute(
        f"SELECT count(*), ifnull(sum(length(terms)), 0) FROM document WHERE {_WAITING}"
    ).fetchone()
    return int(count), int(size)


def flush_pending(db: Connection, at_once: int = SETTLED_AT_ONCE) -> None:
    """Write the oldest waiting documents into the postings, and take documents that are gone out.

    at_once: about how many packed bytes.
    """
    new: list[tuple[int, JoinedTerms]] = []
    gone: dict[PostingKey, set[int]] = {}
    taken: list[int] = []
    size = 0
    for id_, settled, data in db.execute(
        f"SELECT id, settled, terms FROM document WHERE {_WAITING} ORDER BY id"
    ):
        # One at least, however large, so that every call makes progress.
        if taken and size + len(data) > at_once:
            break
        size += len(data)
        taken.append(id_)
        if settled:
            _note_gone(id_, unpack_weights(data), gone)
        else:
            new.append((id_, unpack_fields(data)))
    for key, places in gone.items():
        _take_out(db, key, places)
    take_out_rare(db, gone)
    rows, entries = gather_postings(new, BLOCK, most_of_rare(len(new)), BUCKETS)
    db.executemany(_APPEND, rows)
    append_entries(db, entries)
    ids = json.dumps(taken)
    # Only those that were taken out above.
    db.execute(
        "DELETE FROM document WHERE resource IS NULL AND id IN (SELECT value FROM json_each(?))",
        (ids,),
    )
    db.execute(
        "UPDATE document SET settled = 1 WHERE id IN (SELECT value FROM json_each(?))", (ids,)
    )
    # Processes keep waiting documents in memory; this number tells them to read these again.
    db.execute("""INSERT INTO state VALUES ('settled', '1')
        ON CONFLICT DO UPDATE SET value = CAST(value + 1 AS TEXT)""")


def _note_gone(id_: int, fields: _Terms, gone: dict[PostingKey, set[int]]) -> None:
    """Add the place of a document to those to take out, for each row that has one of its terms."""
    block, at = divmod(id_, BLOCK)
    for number, terms, _ in fields:
        for term in terms:
            gone.setdefault((term, number, block), set()).add(at)


_APPEND = """INSERT INTO posting VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    documents = CAST(documents || excluded.documents AS BLOB), weights = CAST(weights ||
    excluded.weights AS BLOB)"""
# Appended: the numbers of new documents are higher than all before, so a row stays in order.


def _take_out(db: Connection, key: PostingKey, gone: set[int]) -> None:
    """Remove the postings of these places from a row."""
    where = "WHERE term = ? AND field = ? AND block = ?"
    row = db.execute(f"SELECT documents, weights FROM posting {where}", key).fetchone()
    if row is None:
        return
    remaining = without_places(row[0], row[1], gone)
    if remaining:
        db.execute(f"UPDATE posting SET documents = ?, weights = ? {where}", (*remaining, *key))
    else:
        db.execute(f"DELETE FROM posting {where}", key)


class PostingRun(NamedTuple):
    """Documents of one row that have a term in a field: their numbers are `base` + `places`.

    places: two bytes each, in the machine's order and rising. weights: a byte each.
    """

    base: int
    places: bytes
    weights: bytes

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.places) + len(self.weights)


@dataclass(slots=True)
class Postings:
    """The documents that have one term in one field. count: how many."""

    term: str
    field: int
    count: int = 0
    runs: list[PostingRun] = dataclasses.field(default_factory=list)


class PendingDocuments:
    """The waiting documents in the memory of this process, each read once.

    Terms are keyed with the character of their field before them; most are in one document alone.
    """

    def __init__(self) -> None:
        # By number: the packed terms.
        self._documents: dict[int, bytes] = {}
        # By term: the numbers of new documents, each with the weight in the low 8 bits.
        self._new: dict[str, int | list[int]] = {}
        # By term: how many of the documents that are gone have it.
        self._gone: Counter[str] = Counter()
        self.gone: set[int] = set()
        """Documents that no resource has any more, but the postings still do."""

    def refresh(self, db: Connection) -> None:
        """Read the changes of the index since the last call."""
        query = f"SELECT id, settled FROM document WHERE {_WAITING} ORDER BY id"
        waiting = dict(db.execute(query).fetchall())
        # Documents that were settled, or changed from new to gone.
        outdated = [id_ for id_ in self._documents if waiting.get(id_) != (id_ in self.gone)]
        if len(outdated) > _FEW_LEFT:
            self._add_again(without=set(outdated))
        else:
            for id_ in outdated:
                self._remove(id_)
        missing = json.dumps([id_ for id_ in waiting if id_ not in self._documents])
        query = (
            "SELECT id, terms FROM document WHERE id IN (SELECT value FROM json_each(?)) "
            "ORDER BY id"
        )
        for id_, data in db.execute(query, (missing,)):
            self._add(id_, data, gone=bool(waiting[id_]))

    def _add_again(self, without: Set[int]) -> None:
        """Clear the copy, and add all documents but these again.

        Removing one document looks at all that share a term with it.
        """
        remaining = [
            (id_, data, id_ in self.gone)
            for id_, data in self._documents.items()
            if id_ not in without
        ]
        for container in (self._documents, self._new, self._gone, self.gone):
            container.clear()
        for id_, data, gone in remaining:
            self._add(id_, data, gone=gone)

    def _add(self, id_: int, data: bytes, *, gone: bool) -> None:
        self._documents[id_] = data
        if gone:
            self.gone.add(id_)
            self._gone.update(_marked_terms(data).keys())
            return
        for key, weight in _marked_terms(data).items():
            # An integer for one document, a list for several: most terms have one document, and a
            # list takes 60 bytes more.
            entry, existing = id_ << 8 | weight, self._new.get(key)
            if existing is None:
                self._new[key] = entry
            elif isinstance(existing, int):
                self._new[key] = [existing, entry]
            else:
                existing.append(entry)

    def _remove(self, id_: int) -> None:
        terms = _marked_terms(self._documents.pop(id_))
        if id_ in self.gone:
            self.gone.remove(id_)
            for key in terms:
                self._gone[key] -= 1
                if not self._gone[key]:
                    del self._gone[key]
            return
        for key in terms:
            if remaining := [entry for entry in self._entries_of(key) if entry >> 8 != id_]:
                self._new[key] = remaining if len(remaining) > 1 else remaining[0]
            else:
                del self._new[key]

    def _entries_of(self, key: str) -> list[int]:
        existing = self._new.get(key, [])
        return [existing] if isinstance(existing, int) else existing

    def add_to(self, postings: Postings) -> None:
        """Add the waiting documents to settled postings."""
        key = chr(postings.field) + postings.term
        # By rising number, as in rows: their numbers are higher than those of settled documents.
        new = sorted(self._entries_of(key))
        for block, group in groupby(new, key=lambda entry: (entry >> 8) // BLOCK):
            entries = list(group)
            places = array("H", [(entry >> 8) % BLOCK for entry in entries]).tobytes()
            weights = bytes([entry & 255 for entry in entries])
            postings.runs.append(PostingRun(block * BLOCK, places, weights))
        # The rows still have the documents that are gone, which must not make a word look frequent.
        postings.count += len(new) - self._gone[key]

    def fields_of(self, term: str, numbers: Iterable[int]) -> Iterator[int]:
        """Yield the fields in which a waiting document has the term."""
        return (number for number in numbers if chr(number) + term in self._new)


def _marked_terms(data: bytes) -> dict[str, int]:
    """Return the terms of a packed document with their weights.

    The character of its field stands before each term.
    """
    return {
        chr(number) + term: weight
        for number, terms, weights in unpack_weights(data)
        for term, weight in zip(terms, weights, strict=True)
    }


class PostingsReader:
    """Reads postings of one state of the index, and caches those that were read last."""

    def __init__(self, waiting: PendingDocuments, numbers: Iterable[int]) -> None:
        """numbers: of the fields."""
        self._waiting, self._numbers = waiting, tuple(numbers)
        self._cache: dict[str, list[Postings]] = {}
        self._size = 0

    def read(self, db: Connection, terms: Iterable[str]) -> Mapping[str, Sequence[Postings]]:
        """Return the postings of each of the terms, in each of the fields that has any.

        Raises DamagedFile.
        """
        wanted_terms = list(terms)
        cached = {term: self._cache.pop(term) for term in wanted_terms if term in self._cache}
        missing = [term for term in wanted_terms if term not in cached]
        fresh = self._read_missing(db, missing) if missing else {}
        self._size += sum(map(_size, fresh.values()))
        self._cache |= cached | fresh  # at the end, so that the oldest ones are dropped first
        while self._size > _MOST_KEPT and len(self._cache) > len(wanted_terms):
            self._size -= _size(self._cache.pop(next(iter(self._cache))))
        return cached | fresh

    def _read_missing(self, db: Connection, terms: Sequence[str]) -> dict[str, list[Postings]]:
        by_field: dict[tuple[str, int], Postings] = {}
        for term, number, block, documents, weights in _read_rows(db, terms):
            if number not in self._numbers:
                raise DamagedFile(f"a posting of {term!r} names the field {number}")
            term_postings = by_field.get((term, number))
            if term_postings is None:
                term_postings = by_field[term, number] = Postings(term, number)
            term_postings.runs.append(PostingRun(block * BLOCK, documents, weights))
            term_postings.count += len(weights)
        for term in terms:
            for number in self._waiting.fields_of(term, self._numbers):
                by_field.setdefault((term, number), Postings(term, number))
        by_term: dict[str, list[Postings]] = {term: [] for term in terms}
        for term_postings in by_field.values():
            self._waiting.add_to(term_postings)
            # All of its documents may be gone.
            if term_postings.count > 0:
                by_term[term_postings.term].append(term_postings)
        return by_term


def _read_rows(db: Connection, terms: Sequence[str]) -> Iterator[PostingRow]:
    """Yield the rows of these terms, from the table of postings and from the buckets."""
    # One query for both tables, which is faster than two.
    query = """SELECT p.term, p.field, p.block, p.documents, p.weights FROM json_each(?) asked
            CROSS JOIN posting p ON p.term = asked.value
        UNION ALL SELECT NULL, r.bucket, 0, r.entries, NULL FROM json_each(?) asked
            CROSS JOIN rare r ON r.bucket = asked.value"""
    keys = keys_by_bucket(terms)
    for row in db.execute(query, (json.dumps(terms), json.dumps(list(keys)))).fetchall():
        if row[0] is not None:
            yield row
        else:
            _, bucket, _, entries, _ = row
            yield from read_bucket(bucket, entries, keys[bucket])


def _size(term_postings: Sequence[Postings]) -> int:
    """Return about how many bytes the postings of a term take."""
    return _OF_TERM + sum(_OF_RUN + run.size for postings in term_postings for run in postings.runs)


def matches_entries(db: Connection, entries: str) -> bool:
    """Return whether entries and documents match, and there are as many postings as settled terms.

    entries: a query for the document and the resource of each entry. Raises DamagedFile.
    """
    # SQLite compares the sets, and returns their differences only.
    without_document = f"{entries} EXCEPT SELECT id, resource FROM document"
    without_entry = f"SELECT id, resource FROM document WHERE resource IS NOT NULL EXCEPT {entries}"
    unmatched = [db.execute(query).fetchall() for query in (without_document, without_entry)]
    documents = db.execute("SELECT settled, terms FROM document")
    terms = sum(
        settled * len(weights)
        for settled, data in documents
        for _, _, weights in unpack_fields(data)
    )
    terms -= count_rare(db)
    # A posting has one byte of weight and two of place.
    sums = "SELECT ifnull(sum(length(weights)), 0), ifnull(sum(length(documents)), 0) FROM posting"
    return not any(unmatched) and db.execute(sums).fetchone() == (terms, 2 * terms)
