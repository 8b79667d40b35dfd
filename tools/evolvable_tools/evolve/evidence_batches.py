"""The training batch of an iteration: which tasks run, and why each result is shown to a proposer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from evolvable_tools.evolve.frontier import sampler
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.roles.showing import Evidence
from evolvable_tools.evolve.rollout import Trial
from evolvable_tools.evolve.run import Run
from evolvable_tools.evolve.task import Task

NEAR = 0.5
"""The score from which on a failure is a near miss."""


def batch_of(run: Run, number: int) -> tuple[Task, ...]:
    """Returns the tasks of a batch, counted from 1."""
    categories, each = run.settings.batch
    return sampler.batch(run.train, number, categories=categories, per_category=each, seed=run.settings.seed)


async def gathered(run: Run, parent: Program, selected: Mapping[str, Any]) -> list[Evidence]:
    """Returns what came of the batch under the parent: failures and successes. Raises BudgetSpent, Stopped."""
    tasks = batch_of(run, selected["batch"])
    trials = await run.measure([(parent, task, 0) for task in tasks], f"train/{selected['iteration']}")
    counted = [(task, trial) for task, trial in zip(tasks, trials, strict=True) if trial.outcome.counts]
    if "rolled" not in run.state.step:
        run.note(
            "rolled",
            iteration=selected["iteration"],
            scores={task.id: trial.score for task, trial in counted},
            missing=[task.id for task, trial in zip(tasks, trials, strict=True) if not trial.outcome.counts],
        )
    failed = Counter(task.category for task, trial in counted if not _passed(run, trial))
    return [
        Evidence(task, trial, _passed(run, trial), _why(run, task, trial, failed, parent)) for task, trial in counted
    ]


def _passed(run: Run, trial: Trial) -> bool:
    return trial.score is not None and trial.score >= run.settings.fail_below


def _why(run: Run, task: Task, trial: Trial, failed: Mapping[str, int], parent: Program) -> str:
    """Returns the reason for which a result is kept, '' for a failure like any other."""
    reasons: Sequence[tuple[bool, str]] = (
        (_passed(run, trial), "it works, and must go on working"),
        ((trial.score or 0.0) >= NEAR, "near miss"),
        (bool(parent.parts) and bool(trial.trace) and not trial.read, "no resource was read"),
        (failed[task.category] > 1, f"{failed[task.category]} of this category failed"),
    )
    return next((text for holds, text in reasons if holds), "")
