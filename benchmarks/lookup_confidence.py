"""Fits the model that says how sure the text stage is, and shows what it keeps and lets pass.

    python benchmarks/lookup_confidence.py CORPUS QUERIES

Both files as for lookup.py. Libraries of several sizes are drawn from the corpus. Each task whose right skill is there
counts twice: as it is, and with that skill and its whole repository out of the answer, when nothing should fit. All
sizes weigh the same, and in each the families of tasks by the root of their number. What is shown was predicted by a
fit without the task's family; the weights printed at the end are those of the fit to all.
"""

import argparse
import math
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import mean, pstdev

from lookup import DEPTH, Corpus, Record, answerable, family, lines, take_in

from evolvable_store.index import Index
from evolvable_store.resource import Kind
from evolvable_store.store import Store
from evolvable_store.words import FUNCTION_WORDS, asked
from evolvable_tools.lookup.text import FITS, Signals, signals

LIBRARIES = {30: 20, 100: 8, 300: 4, 1000: 2}
"""How many libraries of each size are drawn; the whole corpus is one more."""

_ROUNDS = 30
_RIDGE = 1e-3


@dataclass(frozen=True, slots=True)
class Case:
    """The best match of one task: what tells of it, and whether it is right."""

    size: int
    family: str
    out: bool
    signals: Signals
    right: bool


def cases(skills: Sequence[Record], queries: Sequence[Record]) -> Iterator[Case]:
    """Yields the cases of one library that holds these skills."""
    with tempfile.TemporaryDirectory() as home, Store.open(Path(home) / "home", create=True) as store:
        corpus = take_in(store, skills)
        with Index.open(store) as index:
            for query in answerable(queries, corpus):
                yield from _cases_of(query, index, corpus)


def _cases_of(query: Record, index: Index, corpus: Corpus) -> Iterator[Case]:
    ranking = index.search(query["text"], kind=Kind.SKILL, scopes=("user",), limit=DEPTH)
    content = asked(query["text"]).keys() - FUNCTION_WORDS
    good = {*query["gold"], *query.get("also_ok", ())}
    gone = {corpus.repository_of[id_] for id_ in good if id_ in corpus.repository_of} | {query["source_repo"]}
    found = [(corpus.id_of[scored.entry.name], scored) for scored in ranking.scored]
    left = [(id_, scored) for id_, scored in found if id_ not in good and corpus.repository_of[id_] not in gone]
    for out, matches in ((False, found), (True, left)):
        if matches:
            id_, best = matches[0]
            told = signals(best, ranking, content)
            yield Case(ranking.documents, family(query), out, told, not out and id_ in good)


def libraries(corpus: Sequence[Record], queries: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yields the drawn libraries, a third of each skills that some task calls for, and at last the whole corpus."""
    by_id = {skill["id"]: skill for skill in corpus}
    called = sorted({id_ for query in queries for id_ in query["gold"] if id_ in by_id})
    for size, count in LIBRARIES.items():
        for number in range(count):
            chance = random.Random(f"{size} {number}")
            drawn = chance.sample(called, min(len(called), size // 3))
            drawn += [skill["id"] for skill in chance.sample(corpus, min(len(corpus), size))]
            yield [by_id[id_] for id_ in list(dict.fromkeys(drawn))[:size]]
    yield corpus


def weights(cases: Sequence[Case]) -> list[float]:
    """Returns what each case counts."""
    families = Counter((case.size, case.out, case.family) for case in cases)
    sums: dict[tuple[int, bool], float] = defaultdict(float)
    for (size, out, _), count in families.items():
        sums[(size, out)] += math.sqrt(count)
    every = [
        1 / math.sqrt(families[(case.size, case.out, case.family)]) / sums[(case.size, case.out)] for case in cases
    ]
    return [weight * len(cases) / sum(every) for weight in every]


def fit(rows: Sequence[Sequence[float]], right: Sequence[bool], weigh: Sequence[float]) -> list[float]:
    """Returns the intercept and the weights of a logistic model, by Newton's method with a small ridge."""
    columns = list(zip(*rows, strict=True))
    middles, spreads = [mean(column) for column in columns], [pstdev(column) or 1.0 for column in columns]
    scaled = [[1.0, *((x - m) / s for x, m, s in zip(row, middles, spreads, strict=True))] for row in rows]
    model = [0.0] * len(scaled[0])
    for _ in range(_ROUNDS):
        step = _newton(scaled, right, weigh, model)
        model = [old + change for old, change in zip(model, step, strict=True)]
        if max(map(abs, step)) < 1e-6:
            break
    slopes = [weight / spread for weight, spread in zip(model[1:], spreads, strict=True)]
    return [model[0] - sum(s * m for s, m in zip(slopes, middles, strict=True)), *slopes]


def _newton(
    rows: Sequence[Sequence[float]], right: Sequence[bool], weigh: Sequence[float], model: Sequence[float]
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
    """Returns x of `matrix` x = `right`, by elimination; the matrix is symmetric and positive."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(rows):
        for j, row in enumerate(rows):
            if i != j:
                factor = row[i] / pivot[i]
                rows[j] = [x - factor * y for x, y in zip(row, pivot, strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def held_out(cases: Sequence[Case]) -> list[float]:
    """Returns the confidence of every case by a fit to the other families."""
    predicted = [0.0] * len(cases)
    for name in sorted({case.family for case in cases}):
        others = [case for case in cases if case.family != name]
        model = fit([astuple(case.signals) for case in others], [case.right for case in others], weights(others))
        for at, case in enumerate(cases):
            if case.family == name:
                predicted[at] = chance_of(model, [1.0, *astuple(case.signals)])
    return predicted


def share(values: Iterable[bool]) -> str:
    every = list(values)
    return f"{mean(every):.0%}" if every else "-"


def show(cases: Sequence[Case], predicted: Sequence[float]) -> None:
    both = list(zip(cases, predicted, strict=True))
    for size in sorted({case.size for case in cases}):
        kept = share(p >= FITS for case, p in both if case.size == size and case.right)
        passed = share(p >= FITS for case, p in both if case.size == size and case.out)
        print(f"{size:6} skills: {kept} of right answers kept, {passed} false with the right skill taken out")
    for tenth in range(10):
        near = [(case.right, p) for case, p in both if tenth <= p * 10 < tenth + 1 or (tenth == 9 and p == 1)]
        if near:
            print(f"said {mean(p for _, p in near):4.0%}, right {mean(right for right, _ in near):4.0%} of {len(near)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("queries", type=Path)
    options = parser.parse_args()
    queries = [query for query in lines(options.queries) if query["kind"] == "positive"]
    found: list[Case] = []
    for skills in libraries(list(lines(options.corpus)), queries):
        found += cases(skills, queries)
        print(f"{len(skills)} skills, {len(found)} cases so far", flush=True)
    show(found, held_out(found))
    model = fit([astuple(case.signals) for case in found], [case.right for case in found], weights(found))
    names = ("", *(field.name for field in fields(Signals)))
    print(", ".join(f"{name} {weight:.2f}".strip() for name, weight in zip(names, model, strict=True)))


if __name__ == "__main__":
    main()
