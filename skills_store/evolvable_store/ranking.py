"""Full-text ranking: BM25 in each field, summed with weights, for a bounded time whatever is asked.

The postings of the rarest words are walked; the best that they give are the candidates. What the common words, whose
postings are long, add to those is looked up for them alone.
"""

import heapq
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
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
_CANDIDATES = 60
_SAMPLED = 16
_PARTS = 1 << 18  # of a score of one
_SMALL = 100  # resources, up to which function words are not asked for
_PAIRS = NUMBERS["pairs"]
_WORDS = [number for number in NUMBERS.values() if number != _PAIRS]
_NAMES = {number: name for name, number in NUMBERS.items()}
_FUNCTION_TERMS = frozenset(map(term, FUNCTION_WORDS))


@dataclass(frozen=True, slots=True)
class Part:
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


@dataclass(frozen=True, slots=True)
class _Clause:
    """One term in one field: its postings, and what a stored weight of 1 adds to a score."""

    words: str
    field: int
    postings: Postings
    factor: float

    def among(self, blocks: Mapping[int, set[int]]) -> Iterator["_Having"]:
        """Yields, for each row, those of some documents that have the term. blocks: as of `_blocks`."""
        for run in self.postings.runs:
            if run.base in blocks:
                yield _Having(self, run.base, run.among(blocks[run.base]))


class _Having(NamedTuple):
    """Places in one row that have a term, each with its stored weight."""

    clause: _Clause
    base: int
    places: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Term:
    """One term of the query: its clauses, and its part of the weight that a document can cover."""

    clauses: tuple[_Clause, ...]
    weight: float


class Query:
    """A query against one state of the index: what each of its terms adds to any document."""

    def __init__(self, db: "Connection", asked: Mapping[str, Asked], documents: int, reader: Reader) -> None:
        """asked: the terms. documents: how many there are."""
        if documents <= _SMALL:
            # Chance decides how often a handful of long texts say "a" and "in"; in a large library they help a little.
            asked = {key: a for key, a in asked.items() if key not in _FUNCTION_TERMS} or asked
        self.documents, self.asked = documents, asked
        its: dict[str, list[Postings]] = {key: [] for key in asked}
        for postings in reader.read(db, asked):
            its[postings.term].append(postings)
        self.mass = self.unknown = 0.0
        """Weight of all words of the query, and of those that no document has."""
        self._parts: dict[int, tuple[Part, ...]] = {}
        self._looked: list[tuple[set[int], list[_Having]]] = []  # the documents weighed, and what was found of them
        self._terms: list[_Term] = []
        for key, a in asked.items():
            most = max((p.count for p in its[key] if p.field in _WORDS), default=0)
            weight = 0.0 if a.pair else a.count * _idf(documents, most)
            self.mass += weight
            self.unknown += weight if not most else 0.0
            self._terms.append(_Term(tuple(_clause(p, a, documents) for p in its[key]), weight))

    def best(self, db: "Connection", visible: "Visible", few: Mapping[int, int] | None, limit: int) -> list[Weighed]:
        """Returns the best few documents that may be seen, best first; of equals that of the older resource.

        few: all that may be seen, when they are few.
        """
        resources = few if few is not None else _candidates(db, _walk(self._rarest()), visible)
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
        sums, looked = dict.fromkeys(documents, 0.0), list[_Having]()
        covered, blocks = sums.copy(), _blocks(sums)
        self._looked.append((set(sums), looked))
        for one in self._terms:
            having: set[int] = set()
            for clause in one.clauses:
                factor = clause.factor
                for found in clause.among(blocks):
                    base = found.base
                    for at, weight in found.places:
                        sums[base + at] += weight * factor
                        having.add(base + at)
                    looked.append(found)
            for document in having:
                covered[document] += one.weight
        return [self._weighed(document, sum_, covered[document]) for document, sum_ in sums.items()]

    def _weighed(self, document: int, sum_: float, covered: float) -> Weighed:
        coverage = covered / ((self.mass - self.unknown) or 1.0)
        return Weighed(document, sum_ * (1 - COVERAGE + COVERAGE * coverage), coverage)

    def explain(self, documents: Iterable[int]) -> None:
        """Makes the parts of several documents ready, which is faster than one by one. They have been weighed."""
        wanted = {document for document in documents if document not in self._parts}
        for weighed, looked in self._looked:
            found: dict[int, list[Part]] = {document: [] for document in wanted & weighed}
            for clause, base, places in looked if found else ():
                for at, weight in places:
                    if base + at in found:
                        found[base + at].append(Part(clause.words, _NAMES[clause.field], weight * clause.factor))
            self._parts |= {document: tuple(parts) for document, parts in found.items()}
            wanted -= weighed

    def parts(self, document: int) -> tuple[Part, ...]:
        """Returns what each word adds in each field to a document that has been weighed."""
        if document not in self._parts:
            self.explain([document])
        return self._parts[document]


def _blocks(documents: Iterable[int]) -> dict[int, set[int]]:
    """Returns the documents as places in the rows of the postings, by the base of the row."""
    blocks: dict[int, set[int]] = {}
    for document in documents:
        at = document % BLOCK
        blocks.setdefault(document - at, set()).add(at)
    return blocks


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


def _candidates(db: "Connection", sums: Mapping[int, Sequence[int]], visible: "Visible") -> dict[int, int]:
    """Returns the best documents that may be seen, each with its resource."""
    wanted = _CANDIDATES
    while True:
        some = _most(sums, wanted)
        found = visible.among(db, some)
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


def _clause(postings: Postings, asked: Asked, documents: int) -> _Clause:
    field = FIELDS[_NAMES[postings.field]]
    factor = asked.count * field.weight * _idf(documents, postings.count) * HEAVIEST / 255
    return _Clause(asked.words, postings.field, postings, factor)


def _idf(documents: int, having: int) -> float:
    documents += PRIOR
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))
