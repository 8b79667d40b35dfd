"""Fits the models that say how sure a lookup is, and shows what they keep and let pass.

    python benchmarks/lookup_confidence.py CORPUS QUERIES [--embedder FOLDER --cache FOLDER]
                                           [--quick]

Both files as for `lookup`. Libraries of several sizes are drawn from the corpus. Each task whose
right skill is there counts twice: as it is, and once more while the repositories of all that is
right for it are out of the library, when nothing should fit. Copies of the right skill in other
repositories are right before and out afterwards, see `lookup/copies.py`. In a handful of skills
that leaves nothing; there tasks of elsewhere stand for the second half. All sizes weigh the same,
and in each the families of tasks by the root of their number. What is shown was predicted by a fit
without the task's family; the weights printed at the end are those of the fit to all.

It asks the index in process, since a client does not see the signals; how the fitted models do in
the server is what `lookup` measures. With --embedder the model with the cosine is fitted, else the
one for words alone.
"""

import argparse
import math
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from heapq import nlargest
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from lookup.copies import Copies
from lookup.data import Library, Record, answerable, drawn, lines, take_in
from lookup.none_fits import LIBRARIES, QUICK, right_ids, without_the_right
from lookup.report import none_fits_rows, reliability_rows
from lookup.scoring import Verdict, family
from lookup.vectors import cached
from support import Row, conclude, progress

from evolvable_store.resource import Kind
from evolvable_store.search.index import Index, IndexEntry
from evolvable_store.store import Store
from evolvable_tools.embedding.embedder import SimilarResources
from evolvable_tools.embedding.embedder_client import truncate_task
from evolvable_tools.retrieval.hybrid import (
    DEPTH,
    ConfidenceFeatures,
    confidence_features,
    fuse_with_vectors,
    order_by_words,
)
from evolvable_tools.retrieval.search_types import PendingNeighbours, SearchQuery, fits_from

NAMES = tuple(field.name for field in fields(ConfidenceFeatures))

HANDFULS = {1: 200, 2: 120, 5: 60}
"""Libraries so small that taking the right repository out leaves next to nothing, and how many of
each are drawn.
"""

# Tasks of a handful that are asked: for what it has, and for what it has not.
_OF_A_FEW, _OF_ELSEWHERE = 12, 6
# What such a size counts; they are easy, and would bend the model for the others.
_HANDFUL_WEIGHS = 0.35
_DEPTH = 10
_ROUNDS = 30
_RIDGE = 1e-3


@dataclass(frozen=True, slots=True)
class Case:
    """The best match of one task: what tells of it, in the order of NAMES, and whether
    it is right.
    """

    size: int
    family: str
    out: bool
    signals: tuple[float, ...]
    right: bool


@dataclass(frozen=True, slots=True)
class Embedder:
    """A model, where its vectors are kept, and the vector of every task."""

    model: Path
    cache: Path
    tasks: dict[str, Any]

    @classmethod
    def of(cls, model: Path, cache: Path, queries: Sequence[Record]) -> "Embedder":
        tasks = [query["text"] for query in queries]
        vectors = cached([truncate_task(task) for task in tasks], model, cache)
        return cls(model, cache, dict(zip(tasks, vectors, strict=True)))


class Meanings:
    """The meaning of every skill of one library, compared exactly; its texts are those that the
    server embeds.
    """

    def __init__(self, index: Index, library: Library, embedder: Embedder) -> None:
        entries = list(_entries(index))
        texts = [
            f"{e.name.replace('-', ' ')}. {library.skills[e.name]['description']}" for e in entries
        ]
        self._ids = [entry.id for entry in entries]
        self._vectors = cached(texts, embedder.model, embedder.cache)
        self._tasks = embedder.tasks
        self._living = set(self._ids)

    def look(self, index: Index) -> None:
        """Note which skills are in the library now."""
        self._living = {entry.id for entry in _entries(index)}

    def begin(self, task: str) -> "Compared":
        """Return how near each skill is to the task."""
        cosines = self._vectors @ self._tasks[task]
        each = zip(self._ids, map(float, cosines), strict=True)
        return Compared({id_: cosine for id_, cosine in each if id_ in self._living})


@dataclass(frozen=True, slots=True)
class Compared:
    """The cosine of every skill that is there, as the lookup asks for it."""

    cosines: dict[int, float]

    def similar(
        self, ids: Sequence[int], *, kind: Kind, scopes: Sequence[str] | None, limit: int
    ) -> SimilarResources:
        """Return the cosines of these and of the nearest."""
        nearest = nlargest(limit, self.cosines, key=self.cosines.__getitem__)
        known = {id_: self.cosines[id_] for id_ in (*ids, *nearest)}
        return SimilarResources(cosines=known, nearest=tuple(nearest), said="", available=True)


def _entries(index: Index) -> Iterator[IndexEntry]:
    after = None
    while page := index.entries(limit=1_000, after=after):
        yield from page
        after = (page[-1].name, page[-1].kind.value, page[-1].scope)


def told(
    index: Index, task: str, meanings: Meanings | None
) -> tuple[str, tuple[float, ...]] | None:
    """Return the name of the best match and its signals, None where nothing is found."""
    pending: PendingNeighbours | None = meanings.begin(task) if meanings else None  # type: ignore[assignment]
    query, depth = SearchQuery(task, Kind.SKILL, ("user",), _DEPTH), DEPTH if pending else 0
    ranking = index.search(
        task, kind=query.kind, scopes=query.scopes, limit=query.limit, depth=depth
    )
    fused = (
        fuse_with_vectors(index, query, ranking, pending)
        if pending
        else order_by_words(ranking, query)
    )
    if not fused.hits:
        return None
    return fused.hits[0].entry.name, astuple(confidence_features(fused, 0))


def cases(
    library: Library, queries: Sequence[Record], seed: int, embedder: Embedder | None
) -> Iterator[Case]:
    """Yield the cases of one library, twice for each task that it can answer."""
    copies = Copies(library)
    there = [copies.marked(query) for query in answerable(queries, library.ids)]
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, library)
        with Store.open(home) as store, Index.open(store) as index:
            index.catch_up()
            meanings = Meanings(index, library, embedder) if embedder else None
            for query in there[:_OF_A_FEW] if len(library.skills) in HANDFULS else there:
                yield from _case(query, index, library, meanings, out=False)
            if len(library.skills) in HANDFULS:
                strange = [
                    query for query in queries if not library.ids.intersection(query["gold"])
                ]
                for query in random.Random(seed).sample(strange, _OF_ELSEWHERE):
                    yield from _case(query, index, library, meanings, out=True)
                return
            for its, _ in without_the_right(store, library, there, copies):
                index.catch_up()
                if meanings:
                    meanings.look(index)
                for query in its:
                    yield from _case(query, index, library, meanings, out=True)


def _case(
    query: Record, index: Index, library: Library, meanings: Meanings | None, out: bool
) -> Iterator[Case]:
    found = told(index, query["text"], meanings)
    if found is not None:
        name, values = found
        right = not out and library.skills[name]["id"] in right_ids(query)
        yield Case(len(library.skills), family(query), out, values, right)


def weights(cases: Sequence[Case]) -> list[float]:
    """Return what each case counts."""
    families = Counter((case.size, case.out, case.family) for case in cases)
    sums: dict[tuple[int, bool], float] = defaultdict(float)
    for (size, out, _), count in families.items():
        sums[(size, out)] += math.sqrt(count)
    every = [
        (_HANDFUL_WEIGHS if case.size in HANDFULS else 1)
        / math.sqrt(families[(case.size, case.out, case.family)])
        / sums[(case.size, case.out)]
        for case in cases
    ]
    return [weight * len(cases) / sum(every) for weight in every]


def fit(
    rows: Sequence[Sequence[float]], right: Sequence[bool], weigh: Sequence[float]
) -> list[float]:
    """Return the intercept and the weights of a logistic model, by Newton's method with a small
    ridge.
    """
    columns = list(zip(*rows, strict=True))
    middles, spreads = (
        [mean(column) for column in columns],
        [pstdev(column) or 1.0 for column in columns],
    )
    scaled = [
        [1.0, *((x - m) / s for x, m, s in zip(row, middles, spreads, strict=True))] for row in rows
    ]
    model = [0.0] * len(scaled[0])
    for _ in range(_ROUNDS):
        step = _newton(scaled, right, weigh, model)
        model = [old + change for old, change in zip(model, step, strict=True)]
        if max(map(abs, step)) < 1e-6:
            break
    slopes = [weight / spread for weight, spread in zip(model[1:], spreads, strict=True)]
    return [model[0] - sum(s * m for s, m in zip(slopes, middles, strict=True)), *slopes]


def _newton(
    rows: Sequence[Sequence[float]],
    right: Sequence[bool],
    weigh: Sequence[float],
    model: Sequence[float],
) -> list[float]:
    size, ridge = len(model), _RIDGE * len(rows)
    gradient = [-ridge * weight * (at > 0) for at, weight in enumerate(model)]
    curve = [[ridge * (i == j) for j in range(size)] for i in range(size)]
    for row, answer, weight in zip(rows, right, weigh, strict=True):
        p = chance_of(model, row)
        for i in range(size):
            gradient[i] += weight * (answer - p) * row[i]
            bent = weight * p * (1 - p) * row[i]
            for j in range(i + 1):
                curve[i][j] += bent * row[j]
    full = [[curve[max(i, j)][min(i, j)] for j in range(size)] for i in range(size)]
    return solved(full, gradient)


def chance_of(model: Sequence[float], row: Sequence[float]) -> float:
    logit = sum(weight * x for weight, x in zip(model, row, strict=True))
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, logit))))


def solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Return x of `matrix` x = `right`, by elimination; the matrix is symmetric and positive."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(rows):
        for j, row in enumerate(rows):
            if i != j:
                factor = row[i] / pivot[i]
                rows[j] = [x - factor * y for x, y in zip(row, pivot, strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def held_out(cases: Sequence[Case]) -> list[float]:
    """Return the confidence of every case by a fit to the other families."""
    predicted = [0.0] * len(cases)
    for name in sorted({case.family for case in cases}):
        others = [case for case in cases if case.family != name]
        model = fit(
            [case.signals for case in others], [case.right for case in others], weights(others)
        )
        for at, case in enumerate(cases):
            if case.family == name:
                predicted[at] = chance_of(model, [1.0, *case.signals])
    return predicted


def rows(cases: Sequence[Case], predicted: Sequence[float]) -> list[Row]:
    """Return what is kept and false at the threshold in libraries of each size, and the reliability
    curve.
    """
    found: dict[int, list[Verdict]] = defaultdict(list)
    for case, chance in zip(cases, predicted, strict=True):
        found[case.size].append(
            Verdict(case.family, case.out, chance, chance >= fits_from(case.size), case.right)
        )
    every = [verdict for some in found.values() for verdict in some]
    name = "family held out"
    return none_fits_rows(name, dict(sorted(found.items()))) + reliability_rows(name, every)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few and small libraries; for a look, not for the record",
    )
    parser.add_argument(
        "--embedder",
        type=Path,
        metavar="FOLDER",
        help="a model as ONNX: fit the model with meaning",
    )
    parser.add_argument(
        "--cache", type=Path, metavar="FOLDER", help="where vectors are kept from run to run"
    )
    options = parser.parse_args()
    corpus, queries = list(lines(options.corpus)), list(lines(options.queries))
    queries = [query for query in queries if query["kind"] == "positive"]
    cache = options.cache or Path(tempfile.mkdtemp())
    embedder = Embedder.of(options.embedder, cache, queries) if options.embedder else None
    found: list[Case] = []
    for size, count in (QUICK if options.quick else HANDFULS | {10: 20} | LIBRARIES).items():
        for seed in range(count):
            found += cases(drawn(size, seed, corpus, queries), queries, seed, embedder)
        progress(f"{size:,} skills, {len(found):,} cases so far")
    result = rows(found, held_out(found))
    model = fit([case.signals for case in found], [case.right for case in found], weights(found))
    progress(
        ", ".join(
            f"{name} {weight:.2f}".strip() for name, weight in zip(("", *NAMES), model, strict=True)
        )
    )
    conclude("How sure the text stage is", result)


if __name__ == "__main__":
    main()
