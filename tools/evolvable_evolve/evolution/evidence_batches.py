"""Evidence for the proposer of the greedy search: batches of all training tasks, with a lone
failure confirmed.

A batch in which nothing fails is skipped. Results that the search has already measured cost
nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.proposers import Evidence
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.search_operators import (
    FIRST_FRESH,
    is_pass,
    list_evidence,
    note_rolled,
    sample_batch,
)
from evolvable_evolve.evolution.task import Task, Trial

CONFIRMING_REPEAT = FIRST_FRESH + 2_000
"""The first repeat number of the runs that confirm a lone failure, above those of comparisons."""

MOST_BATCHES = 4
"""The most batches that are drawn for one proposal.

Where trials are lost, more would only lose more of them.
"""


def evidence_order(run: RunContext) -> list[Task]:
    """Return the training tasks in the order in which the next batches take them.

    It is the order of `sample_batch`, in which the categories take turns; tasks that were in fewer
    batches come first.
    """
    categories, each = run.settings.batch
    order: dict[str, Task] = {}
    number = 0
    while len(order) < len(run.train):
        number += 1
        batch = sample_batch(
            run.train, number, categories=categories, per_category=each, seed=run.settings.seed
        )
        order |= {task.id: task for task in batch if task.id not in order}
    # A stable sort keeps the turns of the categories among equals.
    return sorted(order.values(), key=lambda task: run.state.batched[task.id])


async def gather_failures(
    run: RunContext, parent: Program, selected: Mapping[str, Any]
) -> list[Evidence]:
    """Return the results of the next batch of training tasks.

    A batch in which nothing fails is skipped. Raises BudgetSpent, RunStopped.
    """
    order, size = evidence_order(run), run.settings.batch[0] * run.settings.batch[1]
    results, drawn = list[tuple[Task, Trial]](), list[tuple[Task, Trial]]()
    for number in range(MOST_BATCHES):
        part = order[number * size : (number + 1) * size]
        if not part or any(_fails(run, trial) for _, trial in results):
            break
        results = await _measure_batch(run, parent, part, f"train/{selected['iteration']}/{number}")
        drawn += results
    # All drawn tasks count as batched, so that the next proposal sees others.
    note_rolled(run, selected, drawn)
    return list_evidence(run, parent, results)


async def _measure_batch(
    run: RunContext, parent: Program, tasks: Sequence[Task], label: str
) -> list[tuple[Task, Trial]]:
    """Return the results of these tasks.

    A lone failure from the cache is run again, because it may be chance.
    """
    trials = await run.measure([(parent, task, 0) for task in tasks], label)
    failed = [at for at, trial in enumerate(trials) if _fails(run, trial)]
    if len(failed) == 1 and trials[failed[0]].cached:
        at = failed[0]
        repeat = CONFIRMING_REPEAT + run.state.iteration
        [again] = await run.measure([(parent, tasks[at], repeat)], f"{label}/again")
        # Without a result the first one stands.
        trials[at] = again if again.outcome.counts else trials[at]
    return list(zip(tasks, trials, strict=True))


def _fails(run: RunContext, trial: Trial) -> bool:
    return trial.outcome.counts and not is_pass(run, trial)
