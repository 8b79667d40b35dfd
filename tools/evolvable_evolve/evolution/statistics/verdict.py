"""The rulings on a finalist, the scores of tasks in pairs, and the limit on cost."""

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
"""The share of tasks that must have a score of both arms."""


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
        """The score after less the score before, of each task measured under both arms."""
        pairs = zip(self.before, self.after, strict=True)
        return tuple(after - before for before, after in pairs)

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
        """Whether every score is 0 or 1, so that counts of tasks say all of gains and losses."""
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
    """Return both arms on the same tasks.

    tasks: all that should have been measured, by default those of either arm. Repeats are averaged
    for each task, because they are no independent tasks. Raises InvalidArgument for a score outside
    0 to 1.
    """
    wanted = set(tasks) if tasks is not None else {*before, *after}
    both = tuple(task for task in sorted(wanted) if before.get(task) and after.get(task))
    return PairedScores(
        both,
        tuple(_average_repeats(task, before[task]) for task in both),
        tuple(_average_repeats(task, after[task]) for task in both),
        missing=tuple(sorted(wanted - set(both))),
    )


def _average_repeats(task: str, scores: Sequence[float]) -> float:
    if not all(0 <= score <= 1 for score in scores):
        raise InvalidArgument(
            f"Task {task} has a score outside 0 to 1: {', '.join(map(str, scores))}."
        )
    return fmean(scores)


MAX_COST_RISE = 0.25
"""Share by which a candidate may cost more tokens a task."""


@dataclass(frozen=True, slots=True)
class CostChange:
    """The change of cost, over the tasks with tokens of both arms.

    n: these tasks. before, after: mean tokens of a task. ratio: of the costs, with its 95 %
    interval. within: whether the ratio is within the limit. per_extra_solved: the tokens that each
    further solved task costs, None where no more are solved.
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
    """Return the change of cost by the mean of the log ratios of paired tasks, None where too few
    tasks have tokens of both arms.

    base, finalist: tokens by task. gain: of the score. tasks: how many were measured. Logarithms
    keep a few tasks with very many tokens from deciding.
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
    # Without a gain no further task is solved.
    per_extra_solved = (after - before) / gain if gain > 0 else None
    ratio = math.exp(mean)
    within = ratio <= 1 + limit
    return CostChange(len(both), before, after, ratio, (low, high), within, per_extra_solved)


class Ruling(StrEnum):
    """The ruling of a run on its finalist."""

    PROMOTE = "PROMOTE"
    NOT_SUPPORTED = "NOT SUPPORTED"
    HARMFUL = "HARMFUL"
    INDECISIVE = "INDECISIVE"
    DISQUALIFIED = "DISQUALIFIED"
    BETTER_HERE = "BETTER ON THESE TASKS"
    """The narrower claim of a small task set; only a person adopts it."""
