"""The narrower claim of small task sets: better on exactly these tasks.

With 10 to 60 tasks little can be said of other tasks like them. Whether one program is better than
another on the tasks at hand is another hypothesis: the tasks are fixed, the trials are random. Its
unit is the repeat, not the task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from statistics import fmean

from evolvable_evolve.evolution.statistics.staged_test import (
    MANY_MISSING,
    stratified_permutation_p_value,
)

NARROW_ALPHA = 0.05
"""The alpha of a first claim on a set of tasks; later ones have less, by the number of the look."""

MIN_NARROW_TASKS, MAX_NARROW_TASKS = 10, 60
"""The fewest and the most tasks of a narrower claim.

With fewer nothing is said; of more tasks some are drawn.
"""

# With 20 tasks a gain of 15 points is found in .78 and .81 of the runs of two simulated worlds
# (`small_sets.py`).
NARROW_REPEATS = 5
"""Repeats of each task under each arm."""

# Fewer carry no such claim: with four templates an earlier rule was wrong in 15.7 %
# (`benchmarks/README.md`).
MIN_GROUPS = 8
"""The fewest groups of test tasks, not alike to each other, for a claim about other tasks."""

# Of the trials of each arm; few trials are planned, so each missing one weighs much.
_MIN_COVERAGE = 0.9


def narrow_sizes(val: int, test: int) -> tuple[int, int]:
    """Return how many tasks of val and of the test the narrower claim is about, (0, 0) where it
    cannot be made.

    Tasks of the test come first, and at most 60 are taken.
    """
    if not test or val + test < MIN_NARROW_TASKS:
        return 0, 0
    # Test tasks first: the search has not seen them.
    tests = min(test, MAX_NARROW_TASKS)
    return min(val, MAX_NARROW_TASKS - tests), tests


@dataclass(frozen=True, slots=True)
class NarrowResult:
    """Comparison of both arms on the same tasks. p: one-sided for the second arm being better,
    p_worse for it being worse.

    missing: the trials of each arm without a score. gain: the mean over tasks of the difference of
    means. gained, lost: the number of tasks that came out better and worse.
    """

    n: int
    before: float
    after: float
    gain: float
    p: float
    p_worse: float
    missing: tuple[int, int]
    gained: int
    lost: int


def permutation_p_value(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]
) -> float:
    """Return the exact one-sided p-value of `after` being better on these tasks, as the general
    test has it.

    Scores of 0 and 1 with as many repeats in both arms are counted by whole numbers, a hundred
    times faster.
    """
    tasks = [task for task in before if before[task] and after.get(task)]
    arms = [arm[task] for arm in (before, after) for task in tasks]
    sizes, binary = (
        {len(scores) for scores in arms},
        all(score in (0.0, 1.0) for scores in arms for score in scores),
    )
    steady = any(all(len(set(arm[task])) == 1 for task in tasks) for arm in (before, after))
    # The count by whole numbers holds for equal numbers of repeats and scores of 0 and 1 alone.
    if len(sizes) != 1 or not binary or steady:
        return stratified_permutation_p_value(before, after)
    [repeats] = sizes
    # By number of passes, in how many ways the labels can be dealt so that `after` has them.
    ways = [1]
    for task in tasks:
        ones = round(sum(before[task]) + sum(after[task]))
        longer = [0] * (len(ways) + min(ones, repeats))
        for chosen in range(max(0, ones - repeats), min(ones, repeats) + 1):
            count = comb(ones, chosen) * comb(
                2 * repeats - ones,
                repeats - chosen,
            )
            for place, number in enumerate(ways):
                longer[place + chosen] += number * count
        ways = longer
    seen = round(sum(sum(after[task]) for task in tasks))
    return float(Fraction(sum(ways[seen:]), sum(ways)))


def permutation_result(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]], planned: int = 0
) -> NarrowResult:
    """Return the comparison of fresh repeats of both arms, by task. planned: trials of each arm; 0
    counts none as missing.

    A trial without a score counts as 0 in the p-value for its own arm where that arm has more of
    them than the other: whether it is missing may depend on the program. Where more than
    MANY_MISSING of an arm are missing, each p-value is at least the one that counts every missing
    trial of both arms as 0.
    """
    tasks = [task for task in before if before[task] and after.get(task)]
    task_means = [(fmean(before[task]), fmean(after[task])) for task in tasks]
    changes = [second - first for first, second in task_means]
    missing = tuple(
        max(
            0,
            planned - sum(map(len, arm.values())),
        )
        if planned
        else 0
        for arm in (before, after)
    )
    p, p_worse = permutation_p_value(before, after), permutation_p_value(after, before)
    if missing[1] > missing[0]:
        p = max(p, permutation_p_value(before, _fill_missing(after, before, planned)))
    if missing[0] > missing[1]:
        p_worse = max(p_worse, permutation_p_value(after, _fill_missing(before, after, planned)))
    if max(missing) > MANY_MISSING * planned:
        failed = _fill_missing(before, after, planned), _fill_missing(after, before, planned)
        p, p_worse = (
            max(p, permutation_p_value(*failed)),
            max(p_worse, permutation_p_value(*failed[::-1])),
        )
    return NarrowResult(
        len(tasks),
        fmean(first for first, _ in task_means) if task_means else 0.0,
        fmean(second for _, second in task_means) if task_means else 0.0,
        fmean(changes) if changes else 0.0,
        p,
        p_worse,
        (missing[0], missing[1]),
        sum(change > 0 for change in changes),
        sum(change < 0 for change in changes),
    )


def _fill_missing(
    arm: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], planned: int
) -> dict[str, list[float]]:
    """Return an arm with a score of 0 for each trial that is missing."""
    tasks = {*arm, *other}
    repeats = max(1, round(planned / max(1, len(tasks))))
    return {
        task: [
            *arm.get(task, ()),
            *[0.0] * (repeats - len(arm.get(task, ()))),
        ]
        for task in tasks
    }


def is_covered(result: NarrowResult, planned: int) -> bool:
    """Return whether enough trials of both arms have a score."""
    return planned > 0 and max(result.missing) <= (1 - _MIN_COVERAGE) * planned
