"""What the proposer of greedy composition is shown: batches of all training tasks, with the failures confirmed.

Every training task is in a batch before any is in a second one, and neighbours in the order are of different
categories. A batch in which nothing fails is passed over. Results that the search has already measured cost nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from evolvable_tools.evolve.candidates.programs import Program
from evolvable_tools.evolve.composition import FIRST_FRESH, selection_tasks, shuffle_tasks
from evolvable_tools.evolve.operators import STRUCTURE_MODE
from evolvable_tools.evolve.proposers.role_prompts import Evidence
from evolvable_tools.evolve.run_context import RunContext
from evolvable_tools.evolve.search_operators import is_pass, list_evidence, note_rolled
from evolvable_tools.evolve.structure_round import structure_tasks
from evolvable_tools.evolve.task import Task, Trial

CONFIRMING_REPEAT = FIRST_FRESH + 2_000
"""The repeat from which on a lone failure is run again, after those of the comparisons."""

ENOUGH_FAILURES = 2
"""Failures from which on a batch takes no more tasks."""


def evidence_order(run: RunContext) -> list[Task]:
    """Return the training tasks in the order in which the next batches take them.

    Tasks that were in fewer batches come first. Among those, the categories take turns. Inside a category, tasks that
    candidates are compared on come first: their results under the best program are known.
    """
    pool = structure_tasks(run) if run.settings.mode == STRUCTURE_MODE else run.train
    known = {task.id for task in selection_tasks(run)}
    tasks = sorted(shuffle_tasks(pool, run.settings.seed), key=lambda task: task.id not in known)
    return sorted(order_by_turns(tasks), key=lambda task: run.state.batched[task.id])


def order_by_turns(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks so that their categories take turns; inside a category their order stays."""
    seen: Counter[str] = Counter()
    turns: list[tuple[int, str]] = []
    for task in tasks:
        turns.append((seen[task.category], task.category))
        seen[task.category] += 1
    return [task for _, task in sorted(zip(turns, tasks, strict=True), key=lambda one: one[0])]


async def gather_failures(run: RunContext, parent: Program, selected: Mapping[str, Any]) -> list[Evidence]:
    """Return the results of the next batch of training tasks.

    A batch grows by a task of each of a few categories at a time, until the proposer has enough to read. Where too
    little fails in a full one, its failures alone stay, and others take the places. Raises BudgetSpent, RunStopped.
    """
    order, (step, each) = evidence_order(run), run.settings.batch
    batch: list[tuple[Task, Trial]] = []
    drawn: list[tuple[Task, Trial]] = []
    for number, start in enumerate(range(0, len(order), step)):
        if _is_enough(run, batch):
            break
        if len(batch) >= step * each:
            batch = [(task, trial) for task, trial in batch if _fails(run, trial)]
        label = f"train/{selected['iteration']}/{number}"
        part = await _measure_part(run, parent, order[start : start + step], label)
        batch += part
        drawn += part
    note_rolled(run, selected, drawn)
    return list_evidence(run, parent, batch)


def _is_enough(run: RunContext, batch: Sequence[tuple[Task, Trial]]) -> bool:
    """Return whether these results are enough to propose from: a full batch with a failure, for greedy two failures.

    In mode structure failures are most of a full batch: the round measures the training tasks in any case.
    """
    categories, each = run.settings.batch
    failed, full = sum(_fails(run, trial) for _, trial in batch), len(batch) >= categories * each
    if run.settings.mode == STRUCTURE_MODE:
        return full and 3 * failed >= 2 * categories * each
    return (full and failed > 0) or (run.settings.optimizer == "greedy" and failed >= ENOUGH_FAILURES)


async def _measure_part(
    run: RunContext, parent: Program, tasks: Sequence[Task], label: str
) -> list[tuple[Task, Trial]]:
    """Return the results of these tasks. A lone failure that was not run just now is run again, as it may be chance."""
    trials = await run.measure([(parent, task, 0) for task in tasks], label)
    failed = [at for at, trial in enumerate(trials) if _fails(run, trial)]
    if len(failed) == 1 and trials[failed[0]].cached:
        at = failed[0]
        repeat = CONFIRMING_REPEAT + run.state.iteration
        [again] = await run.measure([(parent, tasks[at], repeat)], f"{label}/again")
        trials[at] = again if again.outcome.counts else trials[at]
    return list(zip(tasks, trials, strict=True))


def _fails(run: RunContext, trial: Trial) -> bool:
    return trial.outcome.counts and not is_pass(run, trial)
