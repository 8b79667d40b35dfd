"""Full-text ranking: BM25 in each field, summed with weights, for a bounded time whatever is asked.

The postings of the rarest words are walked; the best that they give are the candidates. What the common words, whose
postings are long, add to those is looked up for them alone.
"""

import heapq
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from evolvable_store.postings import BLOCK, Postings, Reader, Run
from evolvable_store.texts import FIELDS, HEAVIEST, NUMBERS
from evolvable_store.words import FUNCTION_WORDS, Asked, term

if TYPE_CHECKING:
    from evolvable_store.driver import Connection

COVERAGE = 0.5
"""Share of the score that grows with how much of the query is covered; gains a point and a half of hit@1."""

PRIOR = 50
"""Resources thought to be there besides, with none of the words: in a library of three, too, a word can be rare."""

FEW = 400
"""So many resources are all candidates."""

_WALKED = 8_000  # documents in the postings that choose the candidates
_CANDIDATES = 80
_SAMPLED = 16
_MOST_KNOWN = 20_000  # documents, some two megabytes
_PARTS = 1 << 18  # of a score of one
_SMALL = 100  # resources, up to which function words are not asked for
_PAIRS = NUMBERS["pairs"]
_NAMES = {number: name for name, number in NUMBERS.items()}
_FUNCTION_TERMS = frozenset(map(term, FUNCTION_WORDS))


class Part(NamedTuple):
    """What one word of the query, or two side by side, add to a score in one field."""

    word: str
    field: str
    score: float


@dataclass(frozen=True, slots=True)
class Weighed:
    """One document. `coverage`: share of the query's weight that its words have, 0 to 1."""

    document: int
    score: float
    coverage: float


class _Clause(NamedTuple):
    """One term in one field: its postings, and what a stored weight of 1 adds to a score."""

    words: str
    field: int
    postings: Postings
    factor: float

    def adds(self, base: int, places: Mapping[int, int]) -> "Iterator[_Everywhere | _Somewhere]":
        """Yields what it adds to some places in a row, by what they map to: their numbers from 0, in order."""
        factor = self.factor
        for run in self.postings.runs:
            if run.base == base:
                if table := run.table(len(places)):
                    yield [table[at] * factor for at in places]
                elif having := run.among(places):
                    yield {number: one * factor for number, one in having.items()}


class _Term(NamedTuple):
    """One term of the query: its clauses, and its part of the weight that a document can cover."""

    clauses: Sequence[_Clause]
    weight: float


_Everywhere = list[float]
_Somewhere = dict[int, float]
_Added = tuple[_Clause, _Everywhere | _Somewhere]
"""What a clause adds to places in a row, by their numbers: to each, or to those that have it."""


class Query:
    """A query against one state of the index: what each of its terms adds to any document."""

    def __init__(self, db: "Connection", asked: Mapping[str, Asked], documents: int, reader: Reader) -> None:
        """asked: the terms. documents: how many there are."""
        if documents <= _SMALL:
            # Chance decides how often a handful of long texts say "a" and "in"; in a large library they help a little.
            asked = {key: a for key, a in asked.items() if key not in _FUNCTION_TERMS} or asked
        self.documents, self.asked = documents, asked
        self.mass = self.unknown = 0.0
        """Weight of all words of the query, and of those that no document has."""
        self._parts: dict[int, tuple[Part, ...]] = {}
        self._found: list[tuple[int, Sequence[int], list[_Added]]] = []  # rows, places weighed there, what was found
        self._terms: list[_Term] = []
        its = reader.read(db, asked)
        for key, a in asked.items():
            most = max((p.count for p in its[key] if p.field != _PAIRS), default=0)
            weight = 0.0 if a.pair else a.count * _idf(documents, most)
            self.mass += weight
            self.unknown += weight if not most else 0.0
            self._terms.append(_Term([_clause(p, a, documents) for p in its[key]], weight))

    def best(self, db: "Connection", seen: "Seen", limit: int) -> list[Weighed]:
        """Returns the best few documents that may be seen, best first; of equals that of the older resource."""
        resources = seen.few if seen.few is not None else _candidates(db, _walk(self._rarest()), seen)
        fitting = (weighed for weighed in self.weigh(resources) if weighed.score)
        return heapq.nsmallest(limit, fitting, key=lambda weighed: (-weighed.score, resources[weighed.document]))

    def _rarest(self) -> list[_Clause]:
        walked, some = 0, list[_Clause]()
        clauses = (clause for term in self._terms for clause in term.clauses)
        for clause in sorted(clauses, key=lambda clause: clause.postings.count):
            # What stands in more than half of all says nothing there, unless there is nothing else.
            if some and (walked + clause.postings.count > _WALKED or clause.postings.count > self.documents / 2):
                break
            walked += clause.postings.count
            some.append(clause)
        return some

    def weigh(self, documents: Iterable[int]) -> list[Weighed]:
        """Returns how well each of the documents fits, in their order."""
        order = list(documents)
        weighed: dict[int, Weighed] = {}
        for base, places in _rows(order).items():
            for at, sum_, covered in zip(places, *self._sums(base, places), strict=True):
                weighed[base + at] = self._weighed(base + at, sum_, covered)
        return [weighed[document] for document in order]

    def _sums(self, base: int, places: Sequence[int]) -> tuple[list[float], list[float]]:
        """Returns what the terms add to each of some places in a row, and the weight that each covers."""
        sums = [0.0] * len(places)
        covered, found = sums, list[_Added]()
        number_of = {at: number for number, at in enumerate(places)}
        for clauses, weight in self._terms:
            its = [(clause, adds) for clause in clauses for adds in clause.adds(base, number_of)]
            if its:
                added = _together([adds for _, adds in its], len(places))
                sums = list(map(add, sums, added))
                if weight:
                    covered = [sum_ + weight if one else sum_ for sum_, one in zip(covered, added, strict=True)]
                found += its
        self._found.append((base, places, found))
        return sums, covered

    def _weighed(self, document: int, sum_: float, covered: float) -> Weighed:
        coverage = covered / ((self.mass - self.unknown) or 1.0)
        return Weighed(document, sum_ * (1 - COVERAGE + COVERAGE * coverage), coverage)

    def explain(self, documents: Iterable[int]) -> None:
        """Makes the parts of several documents ready, which is faster than one by one. They have been weighed."""
        wanted = {document for document in documents if document not in self._parts}
        for base, places, found in self._found:
            its = [(number, base + at, list[Part]()) for number, at in enumerate(places) if base + at in wanted]
            for clause, adds in found if its else ():
                for number, _, parts in its:
                    one = adds.get(number) if isinstance(adds, dict) else adds[number]
                    if one:
                        parts.append(Part(clause.words, _NAMES[clause.field], one))
            self._parts |= {document: tuple(parts) for _, document, parts in its}
            wanted -= {document for _, document, _ in its}

    def parts(self, document: int) -> tuple[Part, ...]:
        """Returns what each word adds in each field to a document that has been weighed."""
        if document not in self._parts:
            self.explain([document])
        return self._parts[document]


def _together(all_: Sequence[_Everywhere | _Somewhere], places: int) -> Sequence[float]:
    """Returns for each place what is added there in all."""
    sums: list[float] | None = None
    for adds in all_:
        if isinstance(adds, list):
            sums = adds[:] if sums is None else list(map(add, sums, adds))
    sums = [0.0] * places if sums is None else sums
    for adds in all_:
        if isinstance(adds, dict):
            for number, one in adds.items():
                sums[number] += one
    return sums


def _rows(documents: Iterable[int]) -> dict[int, list[int]]:
    """Returns the documents as places in the rows of the postings, by the base of the row."""
    rows: dict[int, list[int]] = {}
    for document in documents:
        at = document % BLOCK
        rows.setdefault(document - at, []).append(at)
    return rows


def _walk(clauses: Sequence[_Clause]) -> dict[int, list[int]]:
    """Returns what the clauses add to each place, in whole parts that add up fast, by the base of its row."""
    rows: dict[int, list[tuple[int, Run]]] = {}
    for clause in clauses:
        factor = int(clause.factor * _PARTS) or 1
        for run in clause.postings.runs:
            rows.setdefault(run.base, []).append((factor, run))
    sums = {base: [0] * (1 + max(run.documents[-1] for _, run in runs)) for base, runs in rows.items()}
    for base, runs in rows.items():
        its = sums[base]
        for factor, run in runs:
            for at, weight in zip(run.documents, run.weights, strict=True):
                its[at] += weight * factor
    return sums


def _candidates(db: "Connection", sums: Mapping[int, Sequence[int]], seen: "Seen") -> dict[int, int]:
    """Returns the best documents that may be seen, each with its resource."""
    wanted = _CANDIDATES
    while True:
        some = _most(sums, wanted)
        found = seen.among(db, some)
        # There may be others before them that may not be seen, or are gone.
        if len(found) >= _CANDIDATES or len(some) < wanted:
            return found
        wanted *= 4


def _most(sums: Mapping[int, Sequence[int]], wanted: int) -> list[int]:
    """Returns the documents with the largest sums, at most `wanted`, and none without any."""
    best: list[tuple[int, int]] = []
    for base, its in sums.items():
        # To look for those above a bound is faster than to order all; every sixteenth tells where it may be.
        bound = sorted(its[::_SAMPLED], reverse=True)[: 1 + 2 * wanted // _SAMPLED][-1]
        some = [at for at, sum_ in enumerate(its) if sum_ > bound]
        if len(some) < wanted and bound:
            some = [at for at, sum_ in enumerate(its) if sum_]
        best += [(its[at], base + at) for at in heapq.nlargest(wanted, some, key=its.__getitem__)]
    return [document for _, document in heapq.nlargest(wanted, best, key=itemgetter(0))]


@dataclass(frozen=True, slots=True)
class Visible:
    """Which entries a search may return: a condition over `entry e`, and its values."""

    condition: str
    values: tuple[Any, ...]

    def documents(self, db: "Connection", limit: int) -> dict[int, int]:
        """Returns some documents that there are, at most `limit`, each with its resource."""
        return self._select(db, "", (), limit)

    def among(self, db: "Connection", documents: Sequence[int]) -> dict[int, int]:
        """Returns those of the documents that may be returned, each with its resource."""
        return self._select(db, " AND e.document IN (SELECT value FROM json_each(?))", (json.dumps(documents),), -1)

    def _select(self, db: "Connection", further: str, values: tuple[Any, ...], limit: int) -> dict[int, int]:
        query = f"SELECT e.document, e.id FROM entry e WHERE {self.condition}{further} LIMIT ?"
        return dict(db.execute(query, (*self.values, *values, limit)).fetchall())


class Seen:
    """The documents that a search may return in one state of the index: each is looked up once."""

    def __init__(self, db: "Connection", visible: Visible) -> None:
        documents = visible.documents(db, FEW + 1)
        self.few = documents if len(documents) <= FEW else None
        """All of them, each with its resource, when they are few."""
        self._visible = visible
        self._known: dict[int, int | None] = {}

    def among(self, db: "Connection", documents: Sequence[int]) -> dict[int, int]:
        """Returns those of the documents that may be returned, each with its resource."""
        known = self._known if len(self._known) < _MOST_KNOWN else {}
        unknown = [document for document in documents if document not in known]
        if unknown:
            known.update(dict.fromkeys(unknown) | self._visible.among(db, unknown))
            self._known = known
        return {document: resource for document in documents if (resource := known[document]) is not None}


def _clause(postings: Postings, asked: Asked, documents: int) -> _Clause:
    field = FIELDS[_NAMES[postings.field]]
    factor = asked.count * field.weight * _idf(documents, postings.count) * HEAVIEST / 255
    return _Clause(asked.words, postings.field, postings, factor)


def _idf(documents: int, having: int) -> float:
    documents += PRIOR
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))
