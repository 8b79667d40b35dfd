"""The scores of a run at other tolerances, from the outputs that its ledgers keep."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from evolvable_evolve.evolution.ledger import LedgerRecord, RunState
from evolvable_evolve.evolution.scorers import TaskSetScorer
from evolvable_evolve.evolution.task import Rollout, ScorerError, ScorerSpec, Task, TaskSet, TrialOutcome
from evolvable_store.errors import InvalidArgument

TOLERANT = ("numeric_strict", "officeqa_compat", "json_subset")
"""Scorers with a relative tolerance."""


@dataclass(frozen=True, slots=True)
class GridRow:
    """The mean score of an arm on a split at one tolerance, over `n` tasks."""

    tolerance: float
    split: str
    arm: str
    n: int
    mean: float


async def tolerance_grid(
    state: RunState, records: Iterable[LedgerRecord], taskset: TaskSet, tolerances: Sequence[float]
) -> list[GridRow]:
    """Return the scores of the base and of the finalist at each tolerance, from the outputs that the ledger keeps.

    Nothing is run, and the verdict stays what it is. Raises InvalidArgument for a tolerance out of range, and where no
    task has a scorer with one.
    """
    if not tolerances or not all(0 <= one <= 1 for one in tolerances):
        raise InvalidArgument("A grid is tolerances from 0 to 1.", "Such as 0,.001,.01,.05,.10.")
    tasks = {task.id: task for task in taskset.tasks if task.scorer.type in TOLERANT}
    if not tasks:
        raise InvalidArgument(
            f"No task of {taskset.name} has a tolerance.", f"Scorers with one: {', '.join(TOLERANT)}."
        )
    arms = {state.base: "base", state.finalist: "finalist"}
    outputs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for record in records:
        trial = record.get("trial") or {}
        known = record["type"] == "trial" and trial["program"] in arms and trial["task"] in tasks
        if known and TrialOutcome(trial["outcome"]).counts and not trial.get("cached"):
            outputs[trial["task"], arms[trial["program"]]].append(str(trial["output"]))
    rows = []
    for tolerance in tolerances:
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for (task, arm), said in outputs.items():
            values = [await _score(tasks[task], output, tolerance) for output in said]
            found[str(tasks[task].split), arm].append(fmean(values))
        rows += [GridRow(tolerance, split, arm, len(its), fmean(its)) for (split, arm), its in sorted(found.items())]
    return rows


async def _score(task: Task, output: str, tolerance: float) -> float:
    spec = ScorerSpec(task.scorer.type, {**task.scorer.args, "rel_tol": tolerance})
    try:
        return (await TaskSetScorer()(replace(task, scorer=spec), Rollout(output))).value
    except ScorerError:
        return 0.0
