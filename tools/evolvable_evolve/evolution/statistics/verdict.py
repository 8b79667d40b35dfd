"""What a run may say of its finalist; scores of tasks in pairs, and a limit on cost."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from statistics import fmean, stdev

from evolvable_store.errors import InvalidArgument

Scores = Mapping[str, Sequence[float]]
"""The scores that count by task id, one for each repeat.

A task without a score that counts is missing.
"""

# Below it a run is INDECISIVE, because missing results may explain the gain (`docs/evolve.md`).
MIN_COVERAGE = 0.6


@dataclass(frozen=True, slots=True)
class PairedScores:
    """Scores of the tasks measured under both arms, sorted by task id.

    missing: tasks without a score of one arm.
    """

    tasks: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    missing: tuple[str, ...]

    @property
    def differences(self) -> tuple[float, ...]:
        """After less before, one for each task measured under both."""
        return tuple(
            after - before
            for before, after in zip(
                self.before,
                self.after,
                strict=True,
            )
        )

    @property
    def gain(self) -> float:
        """The mean difference; 0 without tasks."""
        return fmean(self.differences) if self.tasks else 0.0

    @property
    def coverage(self) -> float:
        """The share of tasks that were measured under both; 0 without tasks."""
        every = len(self.tasks) + len(self.missing)
        return len(self.tasks) / every if every else 0.0

    @property
    def binary(self) -> bool:
        """Whether every task passed or failed outright, so that gains and losses can be counted."""
        # Only where every score is 0 or 1 do counts of tasks say all of it.
        return all(score in (0.0, 1.0) for score in (*self.before, *self.after))

    @property
    def fixed(self) -> tuple[str, ...]:
        """The tasks that came out better."""
        return tuple(compress(self.tasks, (change > 0 for change in self.differences)))

    @property
    def broken(self) -> tuple[str, ...]:
        """The tasks that came out worse."""
        return tuple(compress(self.tasks, (change < 0 for change in self.differences)))


def pair_scores(
    before: Scores, after: Scores, tasks: Collection[str] | None = None
) -> PairedScores:
    """Return both arms on the same tasks. tasks: all that should have been measured; by default
    those of either arm.

    Repeats are averaged for each task: they are no independent tasks. Raises InvalidArgument for a
    score outside 0 to 1.
    """
    every = sorted(set(tasks) if tasks is not None else {*before, *after})
    both = tuple(task for task in every if before.get(task) and after.get(task))
    first, second = (
        tuple(_mean_repeats(task, scores[task]) for task in both) for scores in (before, after)
    )
    return PairedScores(
        both,
        first,
        second,
        missing=tuple(sorted(set(every) - set(both))),
    )


def _mean_repeats(task: str, scores: Sequence[float]) -> float:
    if not all(0 <= score <= 1 for score in scores):
        raise InvalidArgument(
            f"Task {task} has a score outside 0 to 1: {', '.join(map(str, scores))}."
        )
    return fmean(scores)


MAX_COST_RISE = 0.25
"""Share by which a candidate may cost more tokens a task."""


@dataclass(frozen=True, slots=True)
class CostChange:
    """Tokens a task before and after, over the `n` tasks with both; the ratio with its 95 %
    interval.

    `per_extra_solved` is what each further solved task costs in tokens, None when none is solved
    more.
    """

    n: int
    before: float
    after: float
    ratio: float
    interval: tuple[float, float]
    within: bool
    per_extra_solved: float | None


def compare_log_costs(
    base: Mapping[str, float],
    finalist: Mapping[str, float],
    *,
    gain: float,
    tasks: int,
    limit: float = MAX_COST_RISE,
) -> CostChange | None:
    """Return the change of cost by the mean of the log ratios of paired tasks; None where it is
    unknown.

    Logarithms keep a few tasks with very many tokens from deciding. The change is `within` unless
    its estimate exceeds the limit.
    """
    both = sorted(
        task for task in set(base) & set(finalist) if base[task] > 0 and finalist[task] > 0
    )
    if not both or len(both) < MIN_COVERAGE * tasks:
        return None
    logs = [math.log(finalist[task] / base[task]) for task in both]
    mean = fmean(logs)
    # One task has no spread: the interval has no width then, and `n` says why.
    error = stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    # 1.96: the 97.5 % quantile of the normal distribution.
    low, high = math.exp(mean - 1.96 * error), math.exp(mean + 1.96 * error)
    before, after = (fmean(arm[task] for task in both) for arm in (base, finalist))
    # Without a gain there is no task that the tokens could be divided by.
    more = (after - before) / gain if gain > 0 else None
    ratio = math.exp(mean)
    return CostChange(
        len(both),
        before,
        after,
        ratio,
        (low, high),
        ratio <= 1 + limit,
        more,
    )


class Ruling(StrEnum):
    """What a run may say of its finalist."""

    PROMOTE = "PROMOTE"
    NOT_SUPPORTED = "NOT SUPPORTED"
    HARMFUL = "HARMFUL"
    INDECISIVE = "INDECISIVE"
    DISQUALIFIED = "DISQUALIFIED"
    BETTER_HERE = "BETTER ON THESE TASKS"
    """The narrower claim of a small task set; only a person adopts it."""
