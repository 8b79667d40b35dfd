"""What each part of the ranking by words is worth, and whether its weights hold for families they
were not chosen on.

Tasks are ranked as the index ranks them, then again with a field left out, without coverage, or
with weights learned on some families of tasks and tried on the others. Candidates are the best 60
of the index and whatever is right.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import numpy as np
from support import Row, progress

from evolvable_store.search.analyzer import FIELDS
from evolvable_store.search.bm25 import COVERAGE
from evolvable_store.search.index import Index, Match
from evolvable_store.store import Store
from lookup.data import Library, Record, answerable, take_in
from lookup.scoring import DEPTH, GATHERED, SMALL_FAMILY, Score, family, score

FOLDS = 5
"""Groups of families; weights are learned on four and tried on the fifth."""

_CANDIDATES = 60
_STEPS = (0.5, 0.7, 1.4, 2.0)
_ROUNDS = 3


_NAMES = tuple(FIELDS)


@dataclass(frozen=True, slots=True)
class Weights:
    """What is multiplied to each field's part of a score, 1 as shipped, and the share that coverage
    decides.
    """

    fields: tuple[float, ...] = (1.0,) * len(_NAMES)
    coverage: float = COVERAGE

    def times(self, name: str, factor: float) -> "Weights":
        """Return the same with one field counting so many times as much."""
        at = _NAMES.index(name)
        return Weights(
            (*self.fields[:at], self.fields[at] * factor, *self.fields[at + 1 :]), self.coverage
        )


SHIPPED = Weights()


@dataclass(frozen=True, slots=True)
class Case:
    """One task with its candidates: their ids, what each field adds to the score of each, and their
    coverage.
    """

    query: Record
    ids: Sequence[str]
    parts: np.ndarray
    coverage: np.ndarray

    @classmethod
    def of(cls, query: Record, candidates: Sequence[Match], library: Library) -> "Case":
        parts = np.zeros((len(candidates), len(_NAMES)))
        for at, scored in enumerate(candidates):
            for part in scored.parts:
                parts[at, _NAMES.index(part.field)] += part.score
        ids = [library.skills[scored.entry.name]["id"] for scored in candidates]
        return cls(query, ids, parts, np.array([scored.coverage for scored in candidates]))

    def score(self, weights: Weights) -> Score:
        """Return what the ranking by these weights is worth."""
        fit = (self.parts @ np.array(weights.fields)) * (
            1 - weights.coverage + weights.coverage * self.coverage
        )
        ranked = [self.ids[at] for at in np.argsort(-fit, kind="stable")[:DEPTH]]
        return score(ranked, self.query["gold"], self.query.get("also_ok", ()))


def cases(library: Library, queries: Sequence[Record]) -> dict[str, list[Case]]:
    """Return the tasks that the library can answer, by family; of families of at least 20."""
    found: dict[str, list[Case]] = defaultdict(list)
    with TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, library)
        with Store.open(home) as store, Index.open(store) as index:
            entries = {entry.name: entry.id for entry in _entries(index)}
            names = {record["id"]: name for name, record in library.skills.items()}
            for query in answerable(queries, library.ids):
                ranking = index.search(query["text"], limit=_CANDIDATES)
                known = {scored.entry.id for scored in ranking.scored}
                right = {entries[names[id_]] for id_ in query["gold"]} - known
                candidates = [
                    *ranking.scored,
                    *index.matches(ranking, index.weigh(ranking, right)).values(),
                ]
                found[family(query)].append(Case.of(query, candidates, library))
    return {
        name: its for name, its in found.items() if len(its) >= SMALL_FAMILY or name == GATHERED
    }


def _entries(index: Index) -> Iterable:
    after = None
    while page := index.entries(limit=1_000, after=after):
        yield from page
        after = (page[-1].name, str(page[-1].kind), page[-1].scope)


def worth(by_family: Mapping[str, Sequence[Case]], weights: Weights) -> tuple[float, float]:
    """Return hit@1 and R@5 as means over families."""
    every = [[case.score(weights) for case in its] for its in by_family.values()]
    return mean(mean(s.hit1 for s in its) for its in every), mean(
        mean(s.recall5 for s in its) for its in every
    )


def learned(by_family: Mapping[str, Sequence[Case]]) -> Weights:
    """Return the weights that do best on these families, one field changed at a time, from those
    shipped.
    """
    best, most = SHIPPED, sum(worth(by_family, SHIPPED))
    for _ in range(_ROUNDS):
        before = most
        for name in FIELDS:
            for step in _STEPS:
                tried = best.times(name, step)
                reached = sum(worth(by_family, tried))
                if reached > most:
                    best, most = tried, reached
        if most == before:
            break
    return best


def rows(library: Library, queries: Sequence[Record]) -> list[Row]:
    """Return what every part is worth, in points, and what learning the weights anew would bring to
    other families.
    """
    progress(f"weights: {len(library.skills):,} skills")
    every = cases(library, queries)
    names = sorted(every)
    folds = [{name: every[name] for name in names[at::FOLDS]} for at in range(FOLDS)]
    shipped = [worth(fold, SHIPPED) for fold in folds]
    whole, size = worth(every, SHIPPED), f"{len(library.skills):,} skills"
    found = [Row(f"words alone, {size}, {len(names)} families", f"{whole[0]:.3f} / {whole[1]:.3f}")]
    ideas = {f"without {name}": SHIPPED.times(name, 0.0) for name in FIELDS}
    ideas["without coverage"] = Weights(SHIPPED.fields, 0.0)
    for title, weights in ideas.items():
        its = worth(every, weights)
        if its == whole:
            continue  # nothing here has such a field
        worse = sum(
            sum(worth(fold, weights)) < sum(was) for fold, was in zip(folds, shipped, strict=True)
        )
        found.append(
            Row(
                f"  {title}",
                f"{_points(its, whole)}, worse in {worse} of {FOLDS} groups of families",
            )
        )
    held_out = [worth(fold, _learned_without(every, fold)) for fold in folds]
    mean_of = [
        tuple(mean(one[at] for one in some) for at in (0, 1)) for some in (held_out, shipped)
    ]
    found.append(
        Row("  weights learned on four groups, tried on the fifth", _points(mean_of[0], mean_of[1]))
    )
    return found


def _learned_without(
    every: Mapping[str, Sequence[Case]], fold: Mapping[str, Sequence[Case]]
) -> Weights:
    return learned({name: its for name, its in every.items() if name not in fold})


def _points(now: Sequence[float], was: Sequence[float]) -> str:
    return " / ".join(f"{100 * (a - b):+.1f}" for a, b in zip(now, was, strict=True)) + " points"
