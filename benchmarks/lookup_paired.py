"""Compares two rankings of the same tasks: what changed, task by task, and how far that can be
believed.

    python benchmarks/lookup_paired.py BEFORE.jsonl AFTER.jsonl QUERIES.jsonl

`python benchmarks/lookup ... --runs FOLDER` and `python benchmarks/lookup_datasets.py foreign ...
--runs FOLDER` write rankings, with the tree that is checked out. hit@1 and R@5 are means over
families of tasks. The interval of a difference is a bootstrap over the tasks of each family (95 %),
and won:lost counts tasks.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from lookup.data import Record, lines
from lookup.scoring import GATHERED, SMALL_FAMILY, Score, family, score
from support import Row, conclude

_DRAWS = 4_000
_MEASURES = {"hit@1": "hit1", "R@5": "recall5"}

Pair = tuple[float, float]
"""What one task is worth before and after."""


def paired(before: Path, after: Path, queries: Path) -> dict[str, list[tuple[Score, Score]]]:
    """Return the scores of each task that both files rank, by family; of families that are large
    enough.
    """
    ranked = [{row["qid"]: row["ranked"] for row in lines(file)} for file in (before, after)]
    found = defaultdict[str, list[tuple[Score, Score]]](list)
    for query in lines(queries):
        if query["qid"] in ranked[0] and query["qid"] in ranked[1]:
            found[family(query)].append((_score(ranked[0], query), _score(ranked[1], query)))
    return {
        name: its for name, its in found.items() if len(its) >= SMALL_FAMILY or name == GATHERED
    }


def _score(ranked: Mapping[str, Sequence[str]], query: Record) -> Score:
    return score(ranked[query["qid"]], query["gold"], query.get("also_ok", ()))


def interval(families: Sequence[Sequence[Pair]]) -> tuple[float, float]:
    """Return the 95 % interval of the difference of the means over families."""
    chance, gains = (
        random.Random(0),
        [[after - before for before, after in its] for its in families],
    )
    drawn = sorted(
        mean(mean(chance.choices(its, k=len(its))) for its in gains) for _ in range(_DRAWS)
    )
    return drawn[_DRAWS // 40], drawn[-_DRAWS // 40]


def row(name: str, families: Sequence[Sequence[Pair]]) -> Row:
    """Return the row of one measure."""
    was, now = (mean(mean(pair[at] for pair in its) for its in families) for at in (0, 1))
    low, high = interval(families)
    every = [pair for its in families for pair in its]
    won, lost = sum(b > a for a, b in every), sum(b < a for a, b in every)
    return Row(
        f"{name}, {len(every):,} tasks of {len(families)} families",
        f"{was:.4f} -> {now:.4f}, {now - was:+.4f} [{low:+.4f}, {high:+.4f}], won:lost "
        f"{won}:{lost}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("before", "after", "queries"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    families = paired(given.before, given.after, given.queries).values()
    rows = [
        row(title, [[(getattr(a, key), getattr(b, key)) for a, b in its] for its in families])
        for title, key in _MEASURES.items()
    ]
    conclude("Two rankings of the same tasks", rows)


if __name__ == "__main__":
    main()
