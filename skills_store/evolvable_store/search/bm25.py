"""Full-text ranking of every document: BM25 in each field, summed with weights over all words.

No document and no word is skipped or estimated, so the order does not depend on the size of the
library or on the distribution of words.
"""

import heapq
import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

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
from evolvable_store.search.index_entries import IndexEntry, TriggerPhrase
from evolvable_store.search.postings import BLOCK, Postings, VisibilityFilter, VisibleDocuments
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

# Without it hit@1 is 1.8 points lower among 10,000 skills (22 November, benchmarks/README.md).
COVERAGE = 0.5
"""Share of the score that grows with how much of the query is covered."""

# Without it, in a library of three, a word of two resources would weigh half as much as a word of
# one.
PRIOR = 50
"""Resources without any of the words that are added to the count, so that a word can be rare in a
small library too.
"""

# Chosen between a handful of resources, where function words mislead, and thousands, where leaving
# them out gained nothing (benchmarks/README.md).
_SMALL = 100  # resources, up to which function words are not searched for
_PAIRS, _LEARNED = FIELD_NUMBERS["pairs"], FIELD_NUMBERS["learned"]
OWN_FIELDS = ("name", "description", "triggers")
"""The fields of a resource's own short text."""

_OWN = frozenset(FIELD_NUMBERS[name] for name in OWN_FIELDS)
_APART = (_PAIRS, _LEARNED)  # fields that do not say how rare a word is
_FIELD_WEIGHTS = {number: FIELDS[name].weight for name, number in FIELD_NUMBERS.items()}
_NAMES = {number: name for name, number in FIELD_NUMBERS.items()}
_FUNCTION_TERMS = frozenset(map(term, FUNCTION_WORDS))


class TermScore(NamedTuple):
    """The part of a score that one word of the query, or two side by side, add in one field."""

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
    """Return the terms of a query that are searched for in a library of so many documents."""
    query_terms = parse_query(query)
    if documents > _SMALL:
        return query_terms
    # Chance decides how often a handful of long texts say "a" and "in"; in a large library such
    # words help a little.
    content_terms = {
        key: query_term
        for key, query_term in query_terms.items()
        if not (query_term.function_word or key in _FUNCTION_TERMS)
    }
    return content_terms or query_terms


Terms = Mapping[str, Sequence[Postings]]
"""The postings of each term, one for each field that has it."""


def own_query(query: "Query", postings: Terms) -> "Query":
    """Return the same query over the OWN_FIELDS alone.

    A long body can hide a resource's own short texts. postings: those that the query was made of.
    """
    own = {
        term: [field_postings for field_postings in fields if field_postings.field in _OWN]
        for term, fields in postings.items()
    }
    return Query(query.terms, query.documents, own)


class Query:
    """A query against one state of the index: the scores of every document."""

    def __init__(
        self,
        terms: Mapping[str, QueryTerm],
        documents: int,
        postings: Terms,
        *,
        learned: bool = True,
    ) -> None:
        """terms: those of the query.

        documents: how many there are. postings: of each term. learned: whether learned tasks count.
        """
        self.documents, self.terms = documents, terms
        self.mass = self.unknown = 0.0
        """Weight of all words of the query, and of those that no document has."""
        self.weights: dict[str, float] = {}
        """Weight of each word of the query that a document has, as `TermScore` names it."""
        self._clauses: list[_Clause] = []
        # By the number of the first document of a row.
        self._rows: dict[int, Sums] = {}
        self._lengths = _row_lengths(postings.values())
        self._parts: dict[int, tuple[TermScore, ...]] = {}
        having = _count_documents(terms, postings)
        # By term: its number and its share of the coverage.
        shares: dict[str, tuple[int, float]] = {}
        # Numbers from 1: Sums takes 0 for "no term yet".
        for number, (key, query_term) in enumerate(terms.items(), 1):
            # A document that has both stems of a word covers it once: both have the same share.
            # The stem may be '', as that of "s" in "team's".
            share = None if query_term.stem_of is None else shares.get(query_term.stem_of)
            if share is None:
                share = shares[key] = number, self._weigh_word(query_term, having[key])
            for field_postings in postings[key]:
                count = field_postings.count
                if field_postings.field == _LEARNED:
                    if not learned:
                        continue
                    count = max(having[key], count)
                self._add(_make_clause(field_postings, query_term, documents, count), *share)
        for sums in self._rows.values():
            # A share of the words that the library has.
            sums.cover((self.mass - self.unknown) or 1.0, COVERAGE)

    def _weigh_word(self, query_term: QueryTerm, having: int) -> float:
        """Return the share of the coverage of a term, and add its weight to those of the query.

        having: in how many documents the term counts as present.
        """
        # A translated word is not in the task: a library in the task's own language need not have
        # it.
        if query_term.pair or (query_term.translated and not having):
            return 0.0
        weight = query_term.count * _idf(self.documents, having)
        self.mass += weight
        if not having:
            self.unknown += weight
            return 0.0
        if weight:
            self.weights[query_term.words] = weight
        return weight

    def _add(self, clause: _Clause, number: int, weight: float) -> None:
        self._clauses.append(clause)
        words, _, postings, factor = clause
        for base, places, weights in postings.runs:
            sums = self._rows.get(base)
            if sums is None:
                # A row of sums is made only for a block that has a posting.
                sums = self._rows[base] = Sums(self._lengths[base])
            try:
                sums.add(places, weights, factor, number, weight)
            except ValueError as error:
                # A damaged row names a place that does not exist; the index is then made again.
                raise DamagedFile(f"the postings of {words!r} are damaged: {error}") from error

    def best(self, db: Connection, seen: VisibleDocuments, limit: int) -> dict[int, DocumentScore]:
        """Return the best visible resources, best first, of equals the older one first."""
        resources, visible = seen.few or {}, list[DocumentScore]()
        # Twice the limit is enough where half of the best may be seen; more are asked for if not.
        for candidates, is_last in self._candidates(2 * limit):
            if seen.few is None:
                resources = seen.among(db, [candidate.document for candidate in candidates])
            visible = [candidate for candidate in candidates if candidate.document in resources]
            has_enough = len(visible) >= limit > 0
            if has_enough and seen.few is not None:
                # Of few documents, one beyond the candidates may have an equal score and be older.
                has_enough = visible[limit - 1].score > candidates[-1].score
            if is_last or has_enough:
                break
        # Equal scores are ordered by the id, so that a search gives the same each time.
        best = heapq.nsmallest(
            limit, visible, key=lambda candidate: (-candidate.score, resources[candidate.document])
        )
        return {resources[candidate.document]: candidate for candidate in best}

    def _candidates(self, limit: int) -> Iterator[tuple[list[DocumentScore], bool]]:
        """Yield the best documents, more each time, and whether there are no others."""
        while True:
            candidates = [
                DocumentScore(base + at, score, coverage)
                for base, sums in self._rows.items()
                for at, score, coverage in sums.best(limit)
            ]
            if len(self._rows) > 1:
                candidates = heapq.nlargest(limit, candidates, key=lambda each: each.score)
            yield candidates, len(candidates) < limit
            # Growing by a factor keeps the rounds few where hardly any document may be seen.
            limit *= 4

    def weigh(self, documents: Iterable[int]) -> list[DocumentScore]:
        """Return how well each of the documents fits, in their order."""
        return [self._weigh_document(document) for document in documents]

    def _weigh_document(self, document: int) -> DocumentScore:
        at = document % BLOCK
        sums = self._rows.get(document - at)
        # No term of the query is in that document.
        if sums is None or at >= self._lengths[document - at]:
            return DocumentScore(document, 0.0, 0.0)
        return DocumentScore(document, *sums.at(at)[1:])

    def explain(self, documents: Iterable[int]) -> None:
        """Compute the parts of several documents at once, which is faster than one by one."""
        rows: dict[int, list[int]] = {}
        for document in documents:
            if document not in self._parts:
                at = document % BLOCK
                rows.setdefault(document - at, []).append(at)
        for base, places in rows.items():
            row_parts = self._compute_parts(base, places)
            self._parts |= {
                base + at: tuple(parts) for at, parts in zip(places, row_parts, strict=True)
            }

    def _compute_parts(self, base: int, places: Sequence[int]) -> list[list[TermScore]]:
        """Return the parts of the score of each of these places of a row."""
        # Two bytes each, as the places in the postings.
        place_bytes = array("H", places).tobytes()
        row_parts = [list[TermScore]() for _ in places]
        for clause in self._clauses:
            field = _NAMES[clause.field]
            for run in clause.postings.runs:
                if run.base != base:
                    continue
                weights = weights_at(run.places, run.weights, place_bytes)
                for parts, weight in zip(row_parts, weights, strict=True):
                    if weight:
                        parts.append(TermScore(clause.words, field, weight * clause.factor))
        return row_parts

    def parts(self, document: int) -> tuple[TermScore, ...]:
        """Return the score that each word adds to a document in each field."""
        if document not in self._parts:
            self.explain([document])
        return self._parts[document]


@dataclass(slots=True)
class Match:
    """One resource that may fit a task: each step of a search, from the ranking on, adds fields."""

    entry: IndexEntry
    score: float = 0.0
    """The score of its words, which orders the ranking."""
    coverage: float = 0.0
    """Share of the query's weight that its words have, 0 to 1."""
    document: int = field(default=0, repr=False)
    """Its document in the index."""
    query: Query | None = field(default=None, repr=False, compare=False)

    cosine: float | None = None
    """The cosine of the vectors of task and resource, None where it is not known."""
    fused: float = 0.0
    """The score of words and the cosine combined, where the best score of words is 1."""

    confidence: float = 0.0
    """How likely it fits, 0 to 1."""
    why: str = ""
    """The reason, as an answer shows it."""
    stage: str = ""
    """The stage that found it."""
    sure: bool = False
    """Whether no further stage has to be asked."""
    enough: bool = False
    """Whether it may be called sure: it has enough words of the task, or a person or the task names
    it.
    """

    version: int = 0
    """The version that the answer names: that of the entry, or one on trial."""
    description: str = ""
    """As the answer shows it, perhaps between marks."""
    maturity: str = ""
    """How proven it is."""
    author: str = ""
    """The kind of its author: you, agent, member, repository or import."""
    by: str = ""
    """The author's name, '' where `author` says all."""
    reported: int = 0
    """Its rated uses, as their sessions report."""
    verified: int = 0
    """Its rated uses that are verified."""
    marked: bool = False
    """Whether an agent reads its description between marks."""
    delegate: Any = None
    """The status of the agent that its frontmatter names for the work, None for most."""

    @property
    def ref(self) -> str:
        """The resource."""
        return str(self.entry.ref)

    @property
    def name(self) -> str:
        """The resource's name."""
        return self.entry.name

    @property
    def parts(self) -> tuple[TermScore, ...]:
        """What each word of the query adds in each field."""
        return self.query.parts(self.document) if self.query is not None else ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The result of a search.

    scored: matches by words, best first. weighed: the scores by resource; beyond the limit of the
    search nothing else was read. query, visible: by which Index.weigh scores further resources.
    """

    scored: tuple[Match, ...]
    weighed: Mapping[int, DocumentScore]
    query: Query = field(repr=False, compare=False)
    visible: VisibilityFilter = field(repr=False, compare=False)

    @property
    def mass(self) -> float:
        """The weight of all words of the query."""
        return self.query.mass

    @property
    def unknown(self) -> float:
        """The weight of the words of the query that no resource has."""
        return self.query.unknown

    @property
    def documents(self) -> int:
        """How many resources the index holds."""
        return self.query.documents

    @property
    def terms(self) -> Mapping[str, QueryTerm]:
        """The terms of the query."""
        return self.query.terms

    def explain(self, scored: Iterable[Match]) -> None:
        """Compute the parts of several matches at once, which is faster than one by one."""
        self.query.explain(match.document for match in scored)


def make_matches(
    entries: Mapping[int, IndexEntry], weighed: Iterable[DocumentScore], query: Query
) -> tuple[Match, ...]:
    """Return the matches of those documents that still have an entry. entries: by document."""
    present = [document_score for document_score in weighed if document_score.document in entries]
    return tuple(
        Match(
            entries[document_score.document],
            document_score.score,
            document_score.coverage,
            document_score.document,
            query,
        )
        for document_score in present
    )


@dataclass(frozen=True, slots=True)
class Candidates:
    """The index's answer to a task, read in one state.

    phrases: names and triggers in the task. ranking: by all words. own: the resources that fit best
    by their own short texts, best first. every: of a small library all entries, by name; then `own`
    is empty.
    """

    phrases: Sequence[TriggerPhrase]
    ranking: Ranking
    own: Sequence[int]
    every: Sequence[IndexEntry] | None


def _row_lengths(postings: Iterable[Sequence[Postings]]) -> dict[int, int]:
    """Return for each row how many places its sums need.

    Filling a whole block would take most of the time of a small search.
    """
    lengths: dict[int, int] = {}
    every = chain.from_iterable(postings)
    for run in chain.from_iterable(field_postings.runs for field_postings in every):
        # Places are in order, so the last is the highest. `Sums.add` refuses one beyond the row.
        last = int.from_bytes(run.places[-2:], sys.byteorder)
        lengths[run.base] = min(BLOCK, max(lengths.get(run.base, 0), last + 1))
    return lengths


def _count_documents(terms: Mapping[str, QueryTerm], postings: Terms) -> dict[str, int]:
    """Return in how many documents each term counts as present, which tells how rare it is."""
    # The field in which most documents have a term decides. Learned tasks do not count: a text
    # without any keeps its score.
    having = {
        key: max((p.count for p in postings[key] if p.field not in _APART), default=0)
        for key in terms
    }
    for key, query_term in terms.items():
        if query_term.stem_of is not None and query_term.stem_of in having:
            # Two stems of one word are one word, as rare as the more frequent of them.
            having[query_term.stem_of] = max(having[query_term.stem_of], having[key])
    return having


def _make_clause(postings: Postings, query_term: QueryTerm, documents: int, having: int) -> _Clause:
    """Return the clause of a term in a field.

    having: in how many documents the term counts as present.
    """
    number = postings.field
    # A stored weight is a part of HEAVIEST in 255 steps.
    factor = query_term.count * _FIELD_WEIGHTS[number] * _idf(documents, having) * HEAVIEST / 255
    return _Clause(query_term.words, number, postings, factor)


def _idf(documents: int, having: int) -> float:
    # The idf of BM25 with 1 added inside the logarithm, so that it is not negative for a word that
    # most documents have.
    documents += PRIOR
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))
