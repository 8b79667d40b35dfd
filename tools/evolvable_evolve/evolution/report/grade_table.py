"""Grades of a judge in the dimensions of a rubric of the program: means by program and split."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from evolvable_evolve.evolution.ledger import LedgerRecord
from evolvable_evolve.evolution.scorers import dimension_names
from evolvable_evolve.evolution.task import TrialOutcome


@dataclass(frozen=True)
class GradeRow:
    """The grades of one program on one split. n: graded answers. means: by dimension, 1 to 5."""

    arm: str
    split: str
    n: int
    means: dict[str, float]


def collect_grades(
    records: Iterable[LedgerRecord], arms: Mapping[str, str], splits: Mapping[str, str]
) -> list[GradeRow]:
    """Return a row for each arm and split with graded answers.

    arms, splits: as of `collect_rounds`.
    """
    dimensions = dimension_names()
    by_place: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    counted: set[str] = set()
    for record in records:
        if record["type"] != "trial":
            continue
        trial = record["trial"]
        # A continued run may record a trial twice.
        if trial["cached"] or trial["key"] in counted:
            continue
        grades = {
            name: value for name, value in record.get("metrics", {}).items() if name in dimensions
        }
        split = splits.get(trial["task"], "")
        if grades and split and trial["program"] in arms and TrialOutcome(trial["outcome"]).counts:
            counted.add(trial["key"])
            by_place.setdefault((trial["program"], split), []).append(grades)
    return [
        _make_row(arms[arm], split, by_place[arm, split])
        for arm in arms
        for split in dict.fromkeys(splits.values())
        if (arm, split) in by_place
    ]


def grade_cells(rows: Sequence[GradeRow]) -> list[list[str]]:
    """Return the table with its heads as texts."""
    names = list(dict.fromkeys(name for row in rows for name in row.means))
    cells = [["program", "split", "n", *(name.replace("_", " ") for name in names), "mean"]]
    for row in rows:
        means = [f"{row.means[name]:.2f}" if name in row.means else "-" for name in names]
        mean = f"{fmean(row.means.values()):.2f}"
        cells.append([row.arm, row.split, str(row.n), *means, mean])
    return cells


def _make_row(arm: str, split: str, grades: Sequence[Mapping[str, float]]) -> GradeRow:
    names = list(dict.fromkeys(name for grade in grades for name in grade))
    return GradeRow(
        arm,
        split,
        len(grades),
        {name: fmean(grade[name] for grade in grades if name in grade) for name in names},
    )
