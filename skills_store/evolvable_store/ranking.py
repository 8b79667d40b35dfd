"""Full-text ranking: BM25 in each field, summed with weights, for a bounded time whatever is asked.

The postings of the rarest words are walked; the best that they give are the candidates. What the common words, whose
postings are long, add to those is looked up for them alone.
"""

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from evolvable_store.lanes import FRACTION, any_of, gathered, spread
from evolvable_store.postings import Postings, Reader, Spots
from evolvable_store.seen import Seen
from evolvable_store.texts import FIELDS, HEAVIEST, NUMBERS
from evolvable_store.words import FUNCTION_WORDS, Asked, term

if TYPE_CHECKING:
    from evolvable_store.driver import Connection

COVERAGE = 0.5
"""Share of the score that grows with how much of the query is covered; gains a point and a half of hit@1."""

PRIOR = 50
"""Resources thought to be there besides, with none of the words: in a library of three, too, a word can be rare."""

_SAMPLED = 16
_COARSE = 1 << 22  # FRACTION is too fine for sums that shall take one digit of Python's integers
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
    """One term in one field: its postings, and what a stored weight of 1 adds to a score, in parts of FRACTION."""

    words: str
    field: int
    postings: Postings
    factor: int


class _Term(NamedTuple):
    """One term of the query: its clauses, and its part of the weight that a document can cover."""

    clauses: Sequence[_Clause]
    weight: float


_Found = list[tuple[_Clause, bytearray]]
"""The clauses that add anything to some documents, each with the weights that are stored for those."""


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
        self._found: list[tuple[Sequence[int], _Found]] = []  # documents weighed together, and what was found
        self._terms: list[_Term] = []
        its = reader.read(db, asked)
        for key, a in asked.items():
            most = max((p.count for p in its[key] if p.field != _PAIRS), default=0)
            weight = 0.0 if a.pair else a.count * _idf(documents, most)
            self.mass += weight
            self.unknown += weight if not most else 0.0
            self._terms.append(_Term([_clause(p, a, documents) for p in its[key]], weight))

    def best(self, db: "Connection", seen: Seen, limit: int) -> dict[int, Weighed]:
        """Returns the best few resources that may be seen, best first; of equals the older one."""
        resources = seen.few if seen.few is not None else self._candidates(db, seen)
        fitting = (its for its in self._scores(list(resources)) if its[1])
        best = heapq.nsmallest(limit, fitting, key=lambda its: (-its[1], resources[its[0]]))
        return {resources[its[0]]: Weighed(*its) for its in best}

    def _candidates(self, db: "Connection", seen: Seen) -> dict[int, int]:
        """Returns the best documents that may be seen by the rarest words alone, each with its resource."""
        rows = _walk(self._rarest())
        enough = wanted = _candidates_of(self.documents)
        while True:
            some = _most(rows, wanted)
            found = seen.among(db, some)
            # There may be others before them that may not be seen, or are gone.
            if len(found) >= enough or len(some) < wanted:
                return found
            wanted *= 4

    def _rarest(self) -> list[_Clause]:
        most, walked, some = _walked_of(self.documents), 0, list[_Clause]()
        clauses = (clause for term in self._terms for clause in term.clauses)
        for clause in sorted(clauses, key=lambda clause: clause.postings.count):
            # What stands in more than half of all says nothing there, unless there is nothing else.
            if some and (walked + clause.postings.count > most or clause.postings.count > self.documents / 2):
                break
            walked += clause.postings.count
            some.append(clause)
        return some

    def weigh(self, documents: Iterable[int]) -> list[Weighed]:
        """Returns how well each of the documents fits, in their order."""
        order = list(documents)
        scores = {its[0]: its for its in self._scores(order)}
        return [Weighed(*scores[document]) for document in order]

    def _scores(self, documents: Sequence[int]) -> list[tuple[int, float, float]]:
        """Returns the values of Weighed for each of the documents."""
        count, spots, found = len(documents), Spots(documents), _Found()
        scores = covered = 0
        for clauses, weight in self._terms:
            its = [(clause, weights) for clause in clauses if (weights := spots.weights(clause.postings))]
            for clause, weights in its:
                scores += spread(weights) * clause.factor
            if its and weight:
                covered += any_of([weights for _, weights in its], count) * round(weight * FRACTION)
            found += its
        self._found.append((spots.documents, found))
        # Of what the library has words for. Rounding must not make more than all of it.
        shares = [min(1.0, part / ((self.mass - self.unknown) or 1.0)) for part in gathered(covered, count)]
        return [
            (document, score * (1 - COVERAGE + COVERAGE * share), share)
            for document, score, share in zip(spots.documents, gathered(scores, count), shares, strict=True)
        ]

    def explain(self, documents: Iterable[int]) -> None:
        """Makes the parts of several documents ready, which is faster than one by one. They have been weighed."""
        wanted = {document for document in documents if document not in self._parts}
        for those, found in self._found:
            its = [(number, document, list[Part]()) for number, document in enumerate(those) if document in wanted]
            for clause, weights in found if its else ():
                for number, _, parts in its:
                    if weight := weights[number]:
                        score = weight * clause.factor / FRACTION
                        parts.append(Part(clause.words, _NAMES[clause.field], score))
            self._parts |= {document: tuple(parts) for _, document, parts in its}
            wanted.difference_update(those)

    def parts(self, document: int) -> tuple[Part, ...]:
        """Returns what each word adds in each field to a document that has been weighed."""
        if document not in self._parts:
            self.explain([document])
        return self._parts[document]


def _walked_of(documents: int) -> int:
    """Returns how many documents the postings that choose the candidates have in all, at most.

    The larger a library, the more share even a rare word: among 100,000, 4,000 would cost three points of hit@1.
    """
    return min(max(4_000, documents // 5), 40_000)


def _candidates_of(documents: int) -> int:
    """Returns how many are chosen among so many documents."""
    return min(max(120, documents // 400), 240)


def _walk(clauses: Sequence[_Clause]) -> dict[int, dict[int, int]]:
    """Returns what the clauses add to each place that has any, in whole parts that add up fast, by row."""
    rows: dict[int, dict[int, int]] = {}
    for clause in clauses:
        factor = clause.factor // _COARSE or 1
        for run in clause.postings.runs:
            sums = rows.setdefault(run.base, {})
            before = sums.get
            for at, weight in zip(run.documents, run.weights, strict=True):
                sums[at] = before(at, 0) + weight * factor
    return rows


def _most(rows: Mapping[int, Mapping[int, int]], wanted: int) -> list[int]:
    """Returns the documents with the largest sums, at most `wanted`."""
    best: list[tuple[int, int]] = []
    for base, sums in rows.items():
        # To look for those above a bound is faster than to order all; every sixteenth tells where it may be.
        sampled = sorted(islice(sums.values(), None, None, _SAMPLED), reverse=True)
        bound = sampled[min(len(sampled) - 1, 2 * wanted // _SAMPLED)] if sampled else 0
        some = [at for at, sum_ in sums.items() if sum_ > bound]
        if len(some) < wanted:
            some = list(sums)
        best += [(sums[at], base + at) for at in heapq.nlargest(wanted, some, key=sums.__getitem__)]
    return [document for _, document in heapq.nlargest(wanted, best, key=itemgetter(0))]


def _clause(postings: Postings, asked: Asked, documents: int) -> _Clause:
    field = FIELDS[_NAMES[postings.field]]
    factor = asked.count * field.weight * _idf(documents, postings.count) * HEAVIEST / 255
    return _Clause(asked.words, postings.field, postings, round(factor * FRACTION))


def _idf(documents: int, having: int) -> float:
    documents += PRIOR
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))
