"""Full-text ranking: BM25 in each field, summed with weights, for a bounded time whatever is asked.

The postings of the rarest words are walked; the best that they give are the candidates. What the common words, whose
postings are long, add to those is looked up for them alone.
"""

import heapq
import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evolvable_store.postings import Postings, Waiting, read
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

_WALKED = 12_000  # documents in the postings that choose the candidates
_CANDIDATES = 60
_FASTER = 8  # documents walked in the time that one is looked up
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
    shares: tuple[tuple["_Clause", float], ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """What each word adds in each field."""
        return tuple(Part(clause.words, _NAMES[clause.field], share) for clause, share in self.shares)


@dataclass(frozen=True, slots=True)
class _Clause:
    """One term in one field: its postings, and what a stored weight of 1 adds to a score."""

    term: str
    words: str
    pair: bool
    field: int
    postings: Postings
    factor: float

    def share_out(self, shares: dict[int, list[tuple["_Clause", float]]]) -> None:
        """Notes what the term adds to each of some documents that has it."""
        factor = self.factor
        walk = self.postings.count < _FASTER * len(shares)
        for run in self.postings.runs:
            theirs, weights, base, end = run.documents, run.weights, run.base, len(run.documents)
            if walk:
                for document, weight in zip(theirs, weights, strict=True):
                    if document + base in shares:
                        shares[document + base].append((self, weight * factor))
                continue
            for document, its in shares.items():
                at = bisect_left(theirs, document - base) if document >= base else end
                if at < end and theirs[at] == document - base:
                    its.append((self, weights[at] * factor))


class Query:
    """A query against one state of the index: what each of its terms adds to any document."""

    def __init__(self, db: "Connection", asked: Mapping[str, Asked], documents: int, waiting: Waiting) -> None:
        """asked: the terms. documents: how many there are."""
        if documents <= _SMALL:
            # Chance decides how often a handful of long texts say "a" and "in"; in a large library they help a little.
            asked = {key: a for key, a in asked.items() if key not in _FUNCTION_TERMS} or asked
        self.documents, self.asked = documents, asked
        its = read(db, asked, waiting, NUMBERS.values())
        self._clauses = sorted((_clause(p, asked[p.term], documents) for p in its), key=lambda c: c.postings.count)
        most = {key: 0 for key, a in asked.items() if not a.pair}
        for postings in its:
            if postings.field in _WORDS and postings.term in most:
                most[postings.term] = max(most[postings.term], postings.count)
        self._weights = {key: asked[key].count * _idf(documents, most[key]) for key in most}
        self.mass = sum(self._weights.values())
        """Weight of all words of the query."""
        self.unknown = sum(self._weights[key] for key, count in most.items() if not count)
        """Weight of those that no document has."""

    def best(self, db: "Connection", visible: "Visible", few: Mapping[int, int] | None, limit: int) -> list[Weighed]:
        """Returns the best few documents that may be seen, best first; of equals that of the older resource.

        few: all that may be seen, when they are few.
        """
        resources = few if few is not None else _candidates(db, _walk(self._rarest()), visible)
        weighed = [one for one in self.weigh(resources) if one.shares]
        return heapq.nsmallest(limit, weighed, key=lambda one: (-one.score, resources[one.document]))

    def _rarest(self) -> list[_Clause]:
        walked, some = 0, list[_Clause]()
        for clause in self._clauses:
            # What stands in more than half of all says nothing there, unless there is nothing else.
            if some and (walked + clause.postings.count > _WALKED or clause.postings.count > self.documents / 2):
                break
            walked += clause.postings.count
            some.append(clause)
        return some

    def weigh(self, documents: Iterable[int]) -> list[Weighed]:
        """Returns how well each of the documents fits."""
        shares: dict[int, list[tuple[_Clause, float]]] = {document: [] for document in documents}
        for clause in self._clauses:
            clause.share_out(shares)
        return [self._weighed(document, its) for document, its in shares.items()]

    def _weighed(self, document: int, shares: Sequence[tuple[_Clause, float]]) -> Weighed:
        covered = sum(self._weights[key] for key in {clause.term for clause, _ in shares if not clause.pair})
        coverage = covered / ((self.mass - self.unknown) or 1.0)
        score = sum(share for _, share in shares) * (1 - COVERAGE + COVERAGE * coverage)
        return Weighed(document, score, coverage, tuple(shares))


def _walk(clauses: Sequence[_Clause]) -> dict[int, float]:
    """Returns the sum of every document that has one of the terms."""
    runs = [(clause.factor, run) for clause in clauses for run in clause.postings.runs]
    sums = [0.0] * (max((run.base + run.documents[-1] for _, run in runs), default=-1) + 1)
    touched: set[int] = set()
    for factor, run in runs:
        base = run.base
        touched.update(map(base.__add__, run.documents) if base else run.documents)
        for document, weight in zip(run.documents, run.weights, strict=True):
            sums[base + document] += weight * factor
    return {document: sums[document] for document in touched}


def _candidates(db: "Connection", sums: Mapping[int, float], visible: "Visible") -> dict[int, int]:
    """Returns the best documents that may be seen, each with its resource."""
    wanted = _CANDIDATES
    while True:
        some = heapq.nlargest(wanted, sums, key=sums.__getitem__)
        found = visible.among(db, some)
        # There may be others before them that may not be seen, or are gone.
        if len(found) >= _CANDIDATES or len(some) < wanted:
            return found
        wanted *= 4


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
    return _Clause(postings.term, asked.words, asked.pair, postings.field, postings, factor)


def _idf(documents: int, having: int) -> float:
    documents += PRIOR
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))
