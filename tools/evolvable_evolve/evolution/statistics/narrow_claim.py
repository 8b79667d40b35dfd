"""The narrower claim of small task sets: better on exactly these tasks.

With 10 to 60 tasks little can be claimed of other tasks like them. Whether one program is better
than another on the tasks at hand is another hypothesis: the tasks are fixed, the trials are random.
Its unit is the repeat, not the task.
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
"""The alpha of the first claim on a set of tasks. Later ones have less, by the number of
the look.
"""

MIN_NARROW_TASKS, MAX_NARROW_TASKS = 10, 60
"""The fewest and the most tasks of a narrower claim.

With fewer nothing is said; of more tasks some are drawn.
"""

# With 20 tasks a gain of 15 points is found in .78 and .81 of the runs of two simulated worlds
# (`small_sets.py`, `benchmarks/README.md`, 23 November 2026).
NARROW_REPEATS = 5
"""Repeats of each task under each arm."""

# Fewer groups support no such claim. With four templates an earlier rule promoted falsely in 15.7 %
# of 3,525 simulated tests (`evolution --only-test --only "hidden 4 templates, strong"`).
MIN_GROUPS = 8
"""The fewest groups of test tasks, not alike to each other, for a claim about other tasks."""

# Few trials are planned, so each missing one weighs much.
_MIN_COVERAGE = 0.9
"""The share of the planned trials of each arm that must have a score."""


def narrow_sizes(val: int, test: int) -> tuple[int, int]:
    """Return how many validation and test tasks the narrower claim is about, (0, 0) where it cannot
    be made.

    At most MAX_NARROW_TASKS are taken, those of the test first.
    """
    if not test or val + test < MIN_NARROW_TASKS:
        return 0, 0
    # Test tasks first: the search has not seen them.
    tests = min(test, MAX_NARROW_TASKS)
    return min(val, MAX_NARROW_TASKS - tests), tests


@dataclass(frozen=True, slots=True)
class NarrowResult:
    """The comparison of both arms on the same tasks.

    p, p_worse: the one-sided p-values that the second arm is better and that it is worse. missing:
    the trials of each arm without a score. gain: the mean over tasks of the difference of means.
    gained, lost: the number of tasks that came out better and worse.
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
    """Return the exact one-sided p-value of `after` being better on these tasks.

    It is that of `stratified_permutation_p_value`. Scores of 0 and 1 with as many repeats in both
    arms are counted by whole numbers, which is much faster.
    """
    tasks = [task for task in before if before[task] and after.get(task)]
    repeats_of_all = [arm[task] for arm in (before, after) for task in tasks]
    sizes = {len(scores) for scores in repeats_of_all}
    binary = all(score in (0.0, 1.0) for scores in repeats_of_all for score in scores)
    steady = any(all(len(set(arm[task])) == 1 for task in tasks) for arm in (before, after))
    # The count by whole numbers holds for equal numbers of repeats and scores of 0 and 1 alone.
    if len(sizes) != 1 or not binary or steady:
        return stratified_permutation_p_value(before, after)
    [repeats] = sizes
    # By number of passes, in how many ways the labels can be dealt so that `after` has them.
    ways = [1]
    for task in tasks:
        passes = round(sum(before[task]) + sum(after[task]))
        fails = 2 * repeats - passes
        longer = [0] * (len(ways) + min(passes, repeats))
        for chosen in range(max(0, passes - repeats), min(passes, repeats) + 1):
            count = comb(passes, chosen) * comb(fails, repeats - chosen)
            for place, number in enumerate(ways):
                longer[place + chosen] += number * count
        ways = longer
    observed = round(sum(sum(after[task]) for task in tasks))
    return float(Fraction(sum(ways[observed:]), sum(ways)))


def permutation_result(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]], planned: int = 0
) -> NarrowResult:
    """Return the comparison of fresh repeats of both arms, by task.

    planned: trials of each arm; with 0 none counts as missing. Whether a trial has a score may
    depend on the program. So a trial without a score counts as 0 in the p-value for its own arm,
    where that arm has more of them than the other. Where more than MANY_MISSING of an arm are
    missing, each p-value is at least the one that counts every missing trial of both arms as 0.
    """
    tasks = [task for task in before if before[task] and after.get(task)]
    task_means = [(fmean(before[task]), fmean(after[task])) for task in tasks]
    changes = [second - first for first, second in task_means]
    # With `planned` 0 the difference is never positive, so none counts as missing.
    missing_before, missing_after = (
        max(0, planned - sum(map(len, arm.values()))) for arm in (before, after)
    )
    p, p_worse = permutation_p_value(before, after), permutation_p_value(after, before)
    if missing_after > missing_before:
        p = max(p, permutation_p_value(before, _fill_missing(after, before, planned)))
    if missing_before > missing_after:
        p_worse = max(p_worse, permutation_p_value(after, _fill_missing(before, after, planned)))
    if max(missing_before, missing_after) > MANY_MISSING * planned:
        filled_before = _fill_missing(before, after, planned)
        filled_after = _fill_missing(after, before, planned)
        p = max(p, permutation_p_value(filled_before, filled_after))
        p_worse = max(p_worse, permutation_p_value(filled_after, filled_before))
    return NarrowResult(
        len(tasks),
        fmean(first for first, _ in task_means) if task_means else 0.0,
        fmean(second for _, second in task_means) if task_means else 0.0,
        fmean(changes) if changes else 0.0,
        p,
        p_worse,
        (missing_before, missing_after),
        sum(change > 0 for change in changes),
        sum(change < 0 for change in changes),
    )


def _fill_missing(
    arm: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]], planned: int
) -> dict[str, list[float]]:
    """Return an arm with a score of 0 for each trial that is missing."""
    tasks = {*arm, *other}
    repeats = max(1, round(planned / max(1, len(tasks))))
    scores = {task: list(arm.get(task, ())) for task in tasks}
    return {task: [*own, *[0.0] * (repeats - len(own))] for task, own in scores.items()}


def is_covered(result: NarrowResult, planned: int) -> bool:
    """Return whether enough trials of both arms have a score."""
    return planned > 0 and max(result.missing) <= (1 - _MIN_COVERAGE) * planned
