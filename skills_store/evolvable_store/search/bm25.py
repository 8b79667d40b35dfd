"""Full-text ranking: BM25 in each field, summed with weights over all words of the query, for every document.

Nothing is left out or estimated, so the order does not depend on the size of the library or on how words are spread.
"""

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from evolvable_store.errors import DamagedFile
from evolvable_store.search.analyzer import (
    FIELD_NUMBERS,
    FIELDS,
    FUNCTION_WORDS,
    HEAVIEST,
    QueryTerm,
    parse_query,
    term,
)
from evolvable_store.search.postings import BLOCK, Postings, VisibleDocuments
from evolvable_store.storage.connection import Connection

if TYPE_CHECKING:
    from evolvable_store.search.posting_loops import Sums, weights_at
else:
    try:
        from evolvable_store.search._scoring import Sums, weights_at
    except ImportError:
        from evolvable_store.search.posting_loops import Sums, weights_at

COMPILED = Sums.__module__.endswith("._scoring")
"""Whether the loops are those in C."""

__all__ = ["COMPILED", "Sums", "weights_at"]

COVERAGE = 0.5
"""Share of the score that grows with how much of the query is covered; gains a point and a half of hit@1."""

PRIOR = 50
"""Resources thought to be there besides, with none of the words: in a library of three, too, a word can be rare."""

_SMALL = 100  # resources, up to which function words are not asked for
_PAIRS, _LEARNED = FIELD_NUMBERS["pairs"], FIELD_NUMBERS["learned"]
_APART = (_PAIRS, _LEARNED)  # fields that do not say how rare a word is
_SCORE = itemgetter(0)
_FIELD_WEIGHTS = {number: FIELDS[name].weight for name, number in FIELD_NUMBERS.items()}
_NAMES = {number: name for name, number in FIELD_NUMBERS.items()}
_FUNCTION_TERMS = frozenset(map(term, FUNCTION_WORDS))


class TermScore(NamedTuple):
    """What one word of the query, or two side by side, add to a score in one field."""

    word: str
    field: str
    score: float


@dataclass(frozen=True, slots=True)
class DocumentScore:
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


def searched_terms(query: str, documents: int) -> Mapping[str, QueryTerm]:
    """Return the terms of a query that a library of so many documents is searched for."""
    asked = parse_query(query)
    if documents > _SMALL:
        return asked
    # Chance decides how often a handful of long texts say "a" and "in"; in a large library they help a little.
    return {key: a for key, a in asked.items() if not (a.function_word or key in _FUNCTION_TERMS)} or asked


class Query:
    """A query against one state of the index: how well it fits every document."""

    def __init__(
        self,
        asked: Mapping[str, QueryTerm],
        documents: int,
        postings: Mapping[str, Sequence[Postings]],
        *,
        learned: bool = True,
    ) -> None:
        """asked: the terms. documents: how many there are. postings: of each term. learned: tasks count too."""
        self.documents, self.asked = documents, asked
        self.mass = self.unknown = 0.0
        """Weight of all words of the query, and of those that no document has."""
        self.weights: dict[str, float] = {}
        """Weight of each word of the query that a document has, as `TermScore` names it."""
        self._clauses: list[_Clause] = []
        self._rows: dict[int, Sums] = {}
        self._parts: dict[int, tuple[TermScore, ...]] = {}
        # What sessions taught changes no weight of a word: a text without learned tasks scores as before.
        having = {key: max((p.count for p in postings[key] if p.field not in _APART), default=0) for key in asked}
        for key, a in asked.items():
            if a.stem_of is not None and a.stem_of in having:
                having[a.stem_of] = max(having[a.stem_of], having[key])
        shares: dict[str, tuple[int, float]] = {}
        for number, (key, a) in enumerate(asked.items(), 1):
            most = having[key]
            one = a.stem_of if a.stem_of is not None and a.stem_of in shares else key
            if one == key:
                # Nobody said a translated word: a library in the task's own language need not have it.
                said = not a.pair and (most or not a.translated)
                weight = a.count * _idf(documents, most) if said else 0.0
                self.mass += weight
                self.unknown += weight if not most else 0.0
                if weight and most:
                    self.weights[a.words] = weight
                shares[key] = number, weight if most else 0.0
            for p in postings[key]:
                if learned or p.field != _LEARNED:
                    known = max(most, p.count) if p.field == _LEARNED else p.count
                    # A document that has both stems of a word covers it once.
                    self._add(_clause(p, a, documents, known), *shares[one])
        for sums in self._rows.values():
            sums.cover((self.mass - self.unknown) or 1.0, COVERAGE)  # of what the library has words for

    def _add(self, clause: _Clause, number: int, weight: float) -> None:
        self._clauses.append(clause)
        words, _, postings, factor = clause
        for base, places, weights in postings.runs:
            sums = self._rows.get(base)
            if sums is None:
                sums = self._rows[base] = Sums(BLOCK)
            try:
                sums.add(places, weights, factor, number, weight)
            except ValueError as error:
                raise DamagedFile(f"the postings of {words!r} are none: {error}") from error

    def best(self, db: Connection, seen: VisibleDocuments, limit: int) -> dict[int, DocumentScore]:
        """Return the best few resources that may be seen, best first; of equals the older one."""
        resources = seen.few or {}
        if seen.few is None:
            for some, last in self._candidates(2 * limit):
                resources = seen.among(db, some)
                # There may be others before them that may not be seen, or are gone.
                if last or len(resources) >= limit:
                    break
        fitting = (weighed for weighed in self.weigh(resources) if weighed.score)
        best = heapq.nsmallest(limit, fitting, key=lambda its: (-its.score, resources[its.document]))
        return {resources[weighed.document]: weighed for weighed in best}

    def _candidates(self, wanted: int) -> Iterator[tuple[list[int], bool]]:
        """Yield the best documents, more each time, and whether there are no others."""
        while True:
            rows = ((base, sums.best(wanted)) for base, sums in self._rows.items())
            some = heapq.nlargest(wanted, ((score, base + at) for base, its in rows for at, score, _ in its), _SCORE)
            yield [document for _, document in some], len(some) < wanted
            wanted *= 4

    def weigh(self, documents: Iterable[int]) -> list[DocumentScore]:
        """Return how well each of the documents fits, in their order."""
        return [self._weighed(document) for document in documents]

    def _weighed(self, document: int) -> DocumentScore:
        at = document % BLOCK
        sums = self._rows.get(document - at)
        return DocumentScore(document, *(sums.at(at)[1:] if sums else (0.0, 0.0)))

    def explain(self, documents: Iterable[int]) -> None:
        """Make the parts of several documents ready, which is faster than one by one."""
        rows: dict[int, list[int]] = {}
        for document in documents:
            if document not in self._parts:
                at = document % BLOCK
                rows.setdefault(document - at, []).append(at)
        for base, places in rows.items():
            found = self._parts_at(base, places)
            self._parts |= {base + at: tuple(parts) for at, parts in zip(places, found, strict=True)}

    def _parts_at(self, base: int, places: Sequence[int]) -> list[list[TermScore]]:
        asked = array("H", places).tobytes()
        found = [list[TermScore]() for _ in places]
        for clause in self._clauses:
            field = _NAMES[clause.field]
            for run in clause.postings.runs:
                if run.base != base:
                    continue
                for parts, weight in zip(found, weights_at(run.places, run.weights, asked), strict=True):
                    if weight:
                        parts.append(TermScore(clause.words, field, weight * clause.factor))
        return found

    def parts(self, document: int) -> tuple[TermScore, ...]:
        """Return what each word adds in each field to a document."""
        if document not in self._parts:
            self.explain([document])
        return self._parts[document]


def _clause(postings: Postings, asked: QueryTerm, documents: int, having: int) -> _Clause:
    """having: in how many documents the term counts as known."""
    number = postings.field
    factor = asked.count * _FIELD_WEIGHTS[number] * _idf(documents, having) * HEAVIEST / 255
    return _Clause(asked.words, number, postings, factor)


def _idf(documents: int, having: int) -> float:
    documents += PRIOR
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))
