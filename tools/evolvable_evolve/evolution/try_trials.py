"""The trials of a run that tries skills, by program and task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.statistics import StageDecision
from evolvable_evolve.evolution.task import Task, Trial
from evolvable_evolve.evolution.tasks import COMPARED


@dataclass
class TryArm:
    """One skill under trial: its program, its repeats so far, and the decision on it."""

    ref: str
    program: Program
    decision: StageDecision | None = None
    repeats: int = 0


@dataclass
class TryTrials:
    """All trials of a run, by program and task."""

    by_arm: dict[str, dict[str, list[Trial]]] = field(default_factory=dict)

    def add(self, trials: Sequence[Trial]) -> None:
        """Add trials, each after the earlier ones of its task."""
        # In the order of their records, so that repeats are in theirs.
        for trial in trials:
            self.by_arm.setdefault(trial.program, {}).setdefault(trial.task, []).append(trial)

    def of(self, program: Program) -> Mapping[str, list[Trial]]:
        """Return the trials under a program, by task."""
        return self.by_arm.get(program.digest, {})

    def scores(
        self, program: Program, repeats: int, *, filled: bool = False
    ) -> dict[str, list[float]]:
        """Return the scores that count by task, of the first repeats.

        filled: missing trials count as failed.
        """
        by_task = {}
        for task, trials in self.of(program).items():
            values = [
                float(trial.score)
                for trial in trials[:repeats]
                if trial.outcome.counts and trial.score is not None
            ]
            missing = repeats - len(values) if filled else 0
            by_task[task] = values + [0.0] * missing
        return by_task


def is_compared(tasks: Sequence[Task]) -> bool:
    """Return whether a judge compares the answers to these tasks, because nothing checks them."""
    return any(COMPARED in task.tags for task in tasks)


def first_output(trials: Sequence[Trial]) -> str | None:
    """Return the answer of the first trial that counts."""
    return next((trial.output for trial in trials if trial.outcome.counts), None)
