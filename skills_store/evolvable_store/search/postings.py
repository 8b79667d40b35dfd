"""Postings: for each term, the documents that have it in each field and how much it weighs there.

A document is one text of one resource; a changed resource becomes a new document. Postings lie in
rows of at most BLOCK documents, so that adding one rewrites little; those of rare terms as
`rare_postings` says. Documents that came or went lately wait beside them, with all their terms,
until there are MAX_PENDING; every process keeps those in memory and counts them as if they had been
settled. So a ranking depends on what the library says now, and not on how it came to say it. Of all
documents a search returns those that its VisibilityFilter lets through.
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

# One query for all of them costs less than looking the best up again and again.
FEW = 400
"""So many documents are looked at one by one; of more, the best are looked up."""

_MOST_KNOWN = 20_000  # documents, some two megabytes


@dataclass(frozen=True, slots=True)
class VisibilityFilter:
    """Which entries a search may return: a condition over `entry e`, and its values."""

    condition: str
    values: tuple[Any, ...]

    def documents(
        self, db: Connection, limit: int, among: Sequence[int] | None = None
    ) -> dict[int, int]:
        """Return the documents that may be returned, at most `limit`, each with its resource.

        among: only of these.
        """
        # The condition is SQL made by `visibility`, its values are bound: no text of a caller is in
        # it.
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
        """All of them, each with its resource, when they are few."""
        self._visible = visible
        self._resources: dict[int, int | None] = {}

    def among(self, db: Connection, documents: Sequence[int]) -> dict[int, int]:
        """Return the visible ones among these documents, each with its resource."""
        # A new dict instead of clear(), since another search may read the old one.
        resources = self._resources if len(self._resources) < _MOST_KNOWN else {}
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
"""Documents of one row; a number inside it takes two bytes."""

MAX_PENDING = 200
"""Documents that may wait to be settled; reading them costs a process a twentieth of a second,
once.
"""

MAX_PENDING_BYTES = 1 << 19
"""Bytes that their terms may take, packed: some skills are dictionaries."""

SETTLED_AT_ONCE = 8 << 20
"""Packed bytes that are settled while the index is locked once: half a second."""

_FEW_LEFT = 20  # documents that leave one by one; of more, those that stay are entered again
_MOST_KEPT = 4 << 20  # of each server; a search that reads all again takes a tenth longer
_OF_TERM, _OF_RUN = 300, 250  # bytes that Python takes besides

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
    """Write the oldest documents that wait into the postings, and take those that are gone out of
    them.

    at_once: packed bytes of those, about.
    """
    new: list[tuple[int, JoinedTerms]] = []
    gone: dict[PostingKey, set[int]] = {}
    done: list[int] = []
    size = 0
    for id_, settled, data in db.execute(
        f"SELECT id, settled, terms FROM document WHERE {_WAITING} ORDER BY id"
    ):
        # One at least, however large, so that every call makes progress.
        if done and size + len(data) > at_once:
            break
        size += len(data)
        done.append(id_)
        if settled:
            _note_gone(id_, unpack_weights(data), gone)
        else:
            new.append((id_, unpack_fields(data)))
    for key, documents in gone.items():
        # First what is gone, then what is new: a resource that changed has both.
        _take_out(db, key, documents)
    take_out_rare(db, gone)
    rows, entries = gather_postings(new, BLOCK, most_of_rare(len(new)), BUCKETS)
    db.executemany(_APPEND, rows)
    append_entries(db, entries)
    these = json.dumps(done)
    # Only those that were taken out above; others that went meanwhile wait on.
    db.execute(
        "DELETE FROM document WHERE resource IS NULL AND id IN (SELECT value FROM json_each(?))",
        (these,),
    )
    db.execute(
        "UPDATE document SET settled = 1 WHERE id IN (SELECT value FROM json_each(?))", (these,)
    )
    # Other processes keep waiting documents in memory; this number tells them to read it again.
    db.execute("""INSERT INTO state VALUES ('settled', '1')
        ON CONFLICT DO UPDATE SET value = CAST(value + 1 AS TEXT)""")


def _note_gone(id_: int, fields: _Terms, gone: dict[PostingKey, set[int]]) -> None:
    block, at = divmod(id_, BLOCK)
    for number, terms, _ in fields:
        for term in terms:
            gone.setdefault((term, number, block), set()).add(at)


_APPEND = """INSERT INTO posting VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    documents = CAST(documents || excluded.documents AS BLOB), weights = CAST(weights ||
    excluded.weights AS BLOB)"""
# The numbers of new documents are higher than all before, so a row stays in order.


def _take_out(db: Connection, key: PostingKey, gone: set[int]) -> None:
    where = "WHERE term = ? AND field = ? AND block = ?"
    row = db.execute(f"SELECT documents, weights FROM posting {where}", key).fetchone()
    if row is None:
        return
    left = without_places(row[0], row[1], gone)
    if left:
        db.execute(f"UPDATE posting SET documents = ?, weights = ? {where}", (*left, *key))
    else:
        db.execute(f"DELETE FROM posting {where}", key)


class PostingRun(NamedTuple):
    """Some documents that have a term in a field: their numbers are `base` + `places`.

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
    """The documents that have one term in one field, and in how many that is."""

    term: str
    field: int
    count: int = 0
    runs: list[PostingRun] = dataclasses.field(default_factory=list)


class PendingDocuments:
    """The documents that wait, as this process keeps them: read once each.

    Some 20 kilobytes for a document: terms stand once, with their field before them, and most in
    one document alone.
    """

    def __init__(self) -> None:
        self._documents: dict[int, bytes] = {}
        # Numbers of documents, each with its weight in 8 bits.
        self._new: dict[str, int | list[int]] = {}
        self._gone: Counter[str] = Counter()
        self.gone: set[int] = set()
        """Documents that still stand in the postings and are there no more."""

    def refresh(self, db: Connection) -> None:
        """Bring it up to date with the index."""
        now = dict(
            db.execute(f"SELECT id, settled FROM document WHERE {_WAITING} ORDER BY id").fetchall()
        )
        # Settled, or changed from new to gone: they leave this copy.
        left = [id_ for id_ in self._documents if now.get(id_) != (id_ in self.gone)]
        if len(left) > _FEW_LEFT:
            self._begin_anew(without=set(left))
        else:
            for id_ in left:
                self._leave(id_)
        missing = json.dumps([id_ for id_ in now if id_ not in self._documents])
        query = (
            "SELECT id, terms FROM document WHERE id IN (SELECT value FROM json_each(?)) "
            "ORDER BY id"
        )
        for id_, data in db.execute(query, (missing,)):
            self._enter(id_, data, gone=bool(now[id_]))

    def _begin_anew(self, without: Set[int]) -> None:
        """Enter those documents again that did not leave: each that leaves alone looks at all that
        share a term.
        """
        remaining = [
            (id_, data, id_ in self.gone)
            for id_, data in self._documents.items()
            if id_ not in without
        ]
        for container in (self._documents, self._new, self._gone, self.gone):
            container.clear()
        for id_, data, gone in remaining:
            self._enter(id_, data, gone=gone)

    def _enter(self, id_: int, data: bytes, *, gone: bool) -> None:
        self._documents[id_] = data
        if gone:
            self.gone.add(id_)
            self._gone.update(_marked_terms(data).keys())
            return
        for key, weight in _marked_terms(data).items():
            # An integer for one document, a list for several: most terms have one, and a list takes
            # 60 bytes more.
            noted, existing = id_ << 8 | weight, self._new.get(key)
            if existing is None:
                self._new[key] = noted
            elif isinstance(existing, int):
                self._new[key] = [existing, noted]
            else:
                existing.append(noted)

    def _leave(self, id_: int) -> None:
        terms = _marked_terms(self._documents.pop(id_))
        if id_ in self.gone:
            self.gone.remove(id_)
            for key in terms:
                self._gone[key] -= 1
                if not self._gone[key]:
                    del self._gone[key]
            return
        for key in terms:
            if remaining := [noted for noted in self._entries_of(key) if noted >> 8 != id_]:
                self._new[key] = remaining if len(remaining) > 1 else remaining[0]
            else:
                del self._new[key]

    def _entries_of(self, key: str) -> list[int]:
        existing = self._new.get(key, [])
        return [existing] if isinstance(existing, int) else existing

    def add_to(self, postings: Postings) -> None:
        """Add the waiting documents to settled postings."""
        key = chr(postings.field) + postings.term
        # By rising number, as rows are: higher than all that is settled.
        new = sorted(self._entries_of(key))
        for block, group in groupby(new, key=lambda noted: (noted >> 8) // BLOCK):
            run = list(group)
            places = array("H", [(noted >> 8) % BLOCK for noted in run]).tobytes()
            postings.runs.append(
                PostingRun(block * BLOCK, places, bytes([noted & 255 for noted in run]))
            )
        # Documents that are gone still stand in the rows, and must not make a word look frequent.
        postings.count += len(new) - self._gone[key]

    def fields_of(self, term: str, numbers: Iterable[int]) -> Iterator[int]:
        """Yield the fields in which a waiting document has the term."""
        return (number for number in numbers if chr(number) + term in self._new)


def _marked_terms(data: bytes) -> dict[str, int]:
    """Return the terms of a packed document with their weights, each after the character of its
    field.
    """
    return {
        chr(number) + term: weight
        for number, terms, weights in unpack_weights(data)
        for term, weight in zip(terms, weights, strict=True)
    }


class PostingsReader:
    """Reads postings of one state of the index, and keeps those that were asked for last."""

    def __init__(self, waiting: PendingDocuments, numbers: Iterable[int]) -> None:
        """numbers: the fields."""
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
        fresh = self._fresh(db, missing) if missing else {}
        self._size += sum(map(_size, fresh.values()))
        self._cache |= cached | fresh  # at the end: what was asked for last is given up last
        while self._size > _MOST_KEPT and len(self._cache) > len(wanted_terms):
            self._size -= _size(self._cache.pop(next(iter(self._cache))))
        return cached | fresh

    def _fresh(self, db: Connection, terms: Sequence[str]) -> dict[str, list[Postings]]:
        found: dict[tuple[str, int], Postings] = {}
        for term, number, block, documents, weights in _read(db, terms):
            if number not in self._numbers:
                # A field of another format: read on, it would be weighed with a wrong weight.
                raise DamagedFile(f"a posting of {term!r} names the field {number}")
            term_postings = found.get((term, number)) or found.setdefault(
                (term, number), Postings(term, number)
            )
            term_postings.runs.append(PostingRun(block * BLOCK, documents, weights))
            term_postings.count += len(weights)
        for term in terms:
            for number in self._waiting.fields_of(term, self._numbers):
                found.setdefault((term, number), Postings(term, number))
        by_term: dict[str, list[Postings]] = {term: [] for term in terms}
        for term_postings in found.values():
            self._waiting.add_to(term_postings)
            # All of its documents may be gone.
            if term_postings.count > 0:
                by_term[term_postings.term].append(term_postings)
        return by_term


def _read(db: Connection, terms: Sequence[str]) -> Iterator[PostingRow]:
    # One query for both tables, so that they are read in one state and with one call.
    query = """SELECT p.term, p.field, p.block, p.documents, p.weights FROM json_each(?) asked
            CROSS JOIN posting p ON p.term = asked.value
        UNION ALL SELECT NULL, r.bucket, 0, r.entries, NULL FROM json_each(?) asked
            CROSS JOIN rare r ON r.bucket = asked.value"""
    keys = keys_by_bucket(terms)
    for row in db.execute(
        query,
        (json.dumps(terms), json.dumps(list(keys))),
    ).fetchall():
        if row[0] is not None:
            yield row
        else:
            yield from read_bucket(row[1], row[3], keys[row[1]])


def _size(term_postings: Sequence[Postings]) -> int:
    """Return about how many bytes the postings of a term take."""
    return _OF_TERM + sum(_OF_RUN + run.size for postings in term_postings for run in postings.runs)


def matches_entries(db: Connection, entries: str) -> bool:
    """Return whether the documents are exactly those of the entries, and the postings those of the
    documents.

    entries: a query for the number and the resource of each. Raises DamagedFile.
    """
    # Sets are compared inside SQLite; only differences come out.
    theirs = db.execute(f"{entries} EXCEPT SELECT id, resource FROM document").fetchall()
    ours = db.execute(
        f"SELECT id, resource FROM document WHERE resource IS NOT NULL EXCEPT {entries}"
    ).fetchall()
    documents = db.execute("SELECT settled, terms FROM document")
    terms = sum(
        settled * len(weights)
        for settled, data in documents
        for _, _, weights in unpack_fields(data)
    )
    sums = "SELECT ifnull(sum(length(weights)), 0), ifnull(sum(length(documents)), 0) FROM posting"
    terms -= count_rare(db)
    return not theirs and not ours and db.execute(sums).fetchone() == (terms, 2 * terms)
