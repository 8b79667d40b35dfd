"""Full-text ranking: BM25 in each field, summed with weights, for a bounded time whatever is asked.

The rarest words decide which resources are looked at. Common ones, whose lists are long, are then weighed for those
alone: SQLite walks such a list in a tenth of the time that it takes to score all of it.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evolvable_store.index_sqlite import FIELDS
from evolvable_store.words import FUNCTION_WORDS

if TYPE_CHECKING:
    from evolvable_store.driver import Connection

WEIGHTS: Mapping[str, float] = {"name": 0.4, "description": 0.7, "triggers": 0.7, "body": 1.0}
"""Checked on real queries, neighbouring values were no better; triggers, which those skills lack, are a guess."""

COVERAGE = 0.5
"""Share of the score that grows with how much of the query is covered; gains 1 point of hit@1."""

PRIOR = 50
"""Resources thought to be there besides, with none of the words: in a library of three, too, a word can be rare."""

_MOST_WORDS = 64
_ROWS_SCORED = 1_500  # rows of the rarest words that choose the candidates
_CANDIDATES = 120
_RAREST = 3
_SMALL = 100  # resources, up to which function words are not asked for
_FEW = 400  # so many resources are all candidates


@dataclass(frozen=True, slots=True)
class Part:
    """What one word of the query adds to a score in one field."""

    word: str
    field: str
    score: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """One resource by its id. `coverage`: share of the query's weight that its words have, 0 to 1."""

    id: int
    score: float
    coverage: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Best first. `mass` is the weight of all words of the query, `unknown` of those that the library never uses.

    `documents`: how many resources were weighed against each other.
    """

    ranked: tuple[Ranked, ...]
    mass: float
    unknown: float
    documents: int


@dataclass
class Counts:
    """How often words occur, as of one state of the index; asked from SQLite once each."""

    applied: int
    documents: int
    rows: dict[str, int]
    by_word: dict[tuple[str, str], int]

    @classmethod
    def of(cls, db: "Connection", applied: int) -> "Counts":
        documents = db.execute("SELECT count(*) FROM entry").fetchone()[0]
        return cls(applied, documents, {field: _rows_of(db, field) for field in FIELDS}, {})

    def rows_with(self, db: "Connection", field: str, word: str) -> int:
        """Returns how many resources have the word in the field."""
        count = self.by_word.get((field, word))
        if count is None:
            if len(self.by_word) > 50_000:
                self.by_word.clear()
            query = f"SELECT count(*) FROM text_{field} WHERE text_{field} MATCH ?"
            count = self.by_word[(field, word)] = int(db.execute(query, (f'"{word}"',)).fetchone()[0])
        return count


def _rows_of(db: "Connection", field: str) -> int:
    """Returns how many rows FTS5 thinks a field has: a table without contents goes on counting those deleted.

    What bm25() multiplies with follows from it. It is the first number of the record 1, as a SQLite varint.
    """
    row = db.execute(f"SELECT block FROM text_{field}_data WHERE id = 1").fetchone()
    number = 0
    for byte in bytes(row[0]) if row else b"":
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return number


@dataclass(frozen=True, slots=True)
class Visible:
    """Which entries a search may return: a condition over `entry e`, and its values."""

    condition: str
    values: tuple[Any, ...]

    def ids(self, db: "Connection", limit: int) -> list[int]:
        """Returns the ids of some that there are, at most `limit`."""
        return self._select(db, "", (), limit)

    def among(self, db: "Connection", ids: Iterable[int]) -> set[int]:
        """Returns those of the ids that may be returned."""
        return set(self._select(db, " AND e.id IN (SELECT value FROM json_each(?))", (json.dumps(list(ids)),), -1))

    def _select(self, db: "Connection", further: str, values: tuple[Any, ...], limit: int) -> list[int]:
        query = f"SELECT e.id FROM entry e WHERE {self.condition}{further} LIMIT ?"
        return [row[0] for row in db.execute(query, (*self.values, *values, limit)).fetchall()]


@dataclass(frozen=True, slots=True)
class _Term:
    """One word in one field: in how many rows it stands, and what turns their bm25 into our score."""

    rows: int
    field: str
    word: str
    factor: float


def rank(db: "Connection", words: Mapping[str, float], visible: Visible, counts: Counts, limit: int) -> Ranking:
    """Returns the best `limit` resources for these words (word -> what it counts)."""
    if counts.documents <= _SMALL:
        # Chance decides how often a handful of long texts say "a" and "in"; in a large library they help a little.
        words = {word: count for word, count in words.items() if word not in FUNCTION_WORDS} or words
    found = {word: {field: counts.rows_with(db, field, word) for field in FIELDS} for word in words}
    total = counts.documents
    weights = {word: count * _idf(total, max(found[word].values())) for word, count in words.items()}
    unknown = sum(weight for word, weight in weights.items() if not any(found[word].values()))
    known = [word for word in words if any(found[word].values())]
    chosen = sorted(known, key=lambda word: max(found[word].values()))[:_MOST_WORDS]
    terms = [
        _Term(rows, field, word, -words[word] * WEIGHTS[field] * _idf(total, rows) / _fts_idf(counts.rows[field], rows))
        for word in chosen
        for field, rows in found[word].items()
        if rows
    ]
    shares = _score(db, sorted(terms, key=lambda term: term.rows), visible, total)
    covered = sum(weights[word] for word in chosen)
    best = _best(shares, weights, covered, limit)
    return Ranking(tuple(best), covered + unknown, unknown, total)


def _idf(total: int, rows: int) -> float:
    total += PRIOR
    return math.log(1 + (total - rows + 0.5) / (rows + 0.5))


def _fts_idf(total: int, rows: int) -> float:
    """Returns what bm25() of FTS5 multiplies with; it is next to nothing for what stands in half of the rows."""
    odds = (total - rows + 0.5) / (rows + 0.5)
    return max(math.log(odds), 1e-6) if odds > 0 else 1e-6


@dataclass(slots=True)
class _Shares:
    """What each term adds to the score of each candidate: all of it together, and one by one."""

    sums: dict[int, float]
    each: dict[int, list[tuple[_Term, float]]]


def _score(db: "Connection", terms: list[_Term], visible: Visible, total: int) -> _Shares:
    """Returns the shares of every candidate. `terms`: those in the fewest rows first."""
    few = visible.ids(db, _FEW + 1)
    if len(few) <= _FEW:
        return _shares(few, _rows(db, terms, few))
    # What stands in more than half of all says nothing there, unless there is nothing else.
    terms = [term for term in terms if term.rows <= total / 2] or terms[:_RAREST]
    rows = split = 0
    while split < len(terms) and (not split or rows + terms[split].rows <= _ROWS_SCORED):
        rows += terms[split].rows
        split += 1
    first = _rows(db, terms[:split])
    candidates = _candidates(db, first, visible)
    return _shares(candidates, first + _rows(db, terms[split:], candidates))


_Rows = list[tuple[_Term, list[tuple[int, float]]]]


def _rows(db: "Connection", terms: list[_Term], only: list[int] | None = None) -> _Rows:
    """Returns the rows of each term with their bm25, which is the better the lower; `only` those of some ids."""
    # The plus keeps SQLite from looking every id up by itself, which takes longer than to walk the whole list.
    which = "" if only is None else " AND +rowid IN (SELECT value FROM json_each(?))"
    values = () if only is None else (json.dumps(only),)
    query = f"SELECT rowid, bm25(text_{{0}}) FROM text_{{0}} WHERE text_{{0}} MATCH ?{which}"
    return [
        (term, db.execute(query.format(term.field), (f'"{term.word}"', *values)).fetchall())  # the word has no quotes
        for term in terms
    ]


def _candidates(db: "Connection", rows: _Rows, visible: Visible) -> list[int]:
    sums: dict[int, float] = defaultdict(float)
    for term, its in rows:
        factor = term.factor
        for id_, bm25 in its:
            sums[id_] += bm25 * factor
    best = sorted(sums, key=sums.__getitem__, reverse=True)
    found: list[int] = []
    for start in range(0, len(best), 2 * _CANDIDATES):
        some = best[start : start + 2 * _CANDIDATES]
        allowed = visible.among(db, some)
        found += [id_ for id_ in some if id_ in allowed]
        if len(found) >= _CANDIDATES:
            break
    return found[:_CANDIDATES]


def _shares(candidates: list[int], rows: _Rows) -> _Shares:
    sums = dict.fromkeys(candidates, 0.0)
    each: dict[int, list[tuple[_Term, float]]] = {id_: [] for id_ in candidates}
    for term, its in rows:
        factor = term.factor
        for id_, bm25 in its:
            if id_ in sums:
                share = bm25 * factor
                sums[id_] += share
                each[id_].append((term, share))
    return _Shares(sums, each)


def _best(shares: _Shares, weights: Mapping[str, float], mass: float, limit: int) -> list[Ranked]:
    """Returns the best few. A score is never over its sum, so the rest need not be looked at."""
    best: list[Ranked] = []
    for id_ in sorted(shares.sums, key=lambda id_: (-shares.sums[id_], id_)):
        total = shares.sums[id_]
        if total <= 0 or (len(best) >= limit and total < best[limit - 1].score):
            break
        its = shares.each[id_]
        coverage = sum(weights[word] for word in {term.word for term, _ in its}) / mass
        score = total * (1 - COVERAGE + COVERAGE * coverage)
        parts = tuple(Part(term.word, term.field, share) for term, share in its)
        best.append(Ranked(id_, score, coverage, parts))
        best.sort(key=lambda ranked: (-ranked.score, ranked.id))
    return best[:limit]
