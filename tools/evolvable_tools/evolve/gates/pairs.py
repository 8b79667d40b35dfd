"""Two programs on the same tasks: each task's mean over its repeats, and the difference."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from evolvable_store.errors import InvalidArgument

Scores = Mapping[str, Sequence[float]]
"""The scores that count by task id, one for each repeat. A task without a score that counts is missing."""

LEAST_COVERAGE = 0.6


@dataclass(frozen=True, slots=True)
class Pairs:
    """The tasks measured under both, in sorted order of their ids, with their means; and the share of all tasks."""

    tasks: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    missing: tuple[str, ...]

    @property
    def differences(self) -> tuple[float, ...]:
        """After less before, one for each task measured under both."""
        return tuple(after - before for before, after in zip(self.before, self.after, strict=True))

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
    def decisive(self) -> bool:
        """Whether enough of the tasks were measured to say anything."""
        return self.coverage >= LEAST_COVERAGE

    @property
    def binary(self) -> bool:
        """Whether every task passed or failed outright, so that gains and losses can be counted."""
        return all(score in (0.0, 1.0) for score in (*self.before, *self.after))

    @property
    def fixed(self) -> tuple[str, ...]:
        """The tasks that came out better."""
        return tuple(task for task, change in zip(self.tasks, self.differences, strict=True) if change > 0)

    @property
    def broken(self) -> tuple[str, ...]:
        """The tasks that came out worse."""
        return tuple(task for task, change in zip(self.tasks, self.differences, strict=True) if change < 0)


def pair(before: Scores, after: Scores, tasks: Collection[str] | None = None) -> Pairs:
    """Returns both on the same tasks. `tasks` are all that should have been measured; by default those of either.

    Repeats are averaged for each task: they are no independent tasks. Raises InvalidArgument for a score outside
    0 to 1.
    """
    every = sorted(set(tasks) if tasks is not None else {*before, *after})
    both = [task for task in every if before.get(task) and after.get(task)]
    return Pairs(
        tasks=tuple(both),
        before=tuple(_mean(task, before[task]) for task in both),
        after=tuple(_mean(task, after[task]) for task in both),
        missing=tuple(task for task in every if not (before.get(task) and after.get(task))),
    )


def _mean(task: str, scores: Sequence[float]) -> float:
    if not all(0 <= score <= 1 for score in scores):
        raise InvalidArgument(f"Task {task} has a score outside 0 to 1: {', '.join(map(str, scores))}.")
    return fmean(scores)
