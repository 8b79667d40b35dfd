"""Measure both arms of a sealed test: open it, run them side by side, and record the verdict."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from evolvable_evolve.evolution.acceptance import values_by_task
from evolvable_evolve.evolution.canaries import find_answered_canaries, make_canary_tasks
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.ledger import RunCandidate
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.statistics import (
    NarrowResult,
    Ruling,
    narrow_sizes,
    paired_interval,
)
from evolvable_evolve.evolution.task import Task, Trial, TrialOutcome
from evolvable_evolve.evolution.tasks import TestRunner
from evolvable_evolve.evolution.trials import BudgetSpent, TrialRequest

FIRST_REPEAT = 20_000
"""The first repeat number of validation tasks here, above every repeat that was measured before."""


def budget_shortfall(run: RunContext, evaluations: int) -> str:
    """Return why the rest of the budget does not suffice for so many evaluations, '' when it does.

    No look is spent on a test that cannot be finished.
    """
    spent, limits, bill = run.state.bill, run.budget.limits, run.budget.bill
    ran = max(1, spent.trials + spent.trouble)
    left = (
        ("cost", limits.cost, bill.cost, spent.cost / ran),
        ("tokens", limits.tokens, bill.tokens, spent.tokens // ran),
        ("calls", limits.calls, bill.calls, spent.calls // ran),
    )
    # By the mean of all trials so far; without one the first is free to start.
    for what, limit, used, each in left:
        if limit is not None and used + each * evaluations > limit:
            return (
                f"The test takes {evaluations} evaluations, for which the rest of the budget "
                f"({what}) does not reach; it was not opened."
            )
    return ""


def record_no_test(run: RunContext, ruling: Ruling, why: str, candidate: str = "") -> None:
    """Record a verdict for which no test was measured to its end."""
    figures = {"look": run.state.looks, "p": None, "delta": None, "interval": None, "n": 0}
    run.note("verdict", verdict=ruling, candidate=candidate, why=why, **figures)


MOST_MISSING = 0.1
"""The largest difference between the arms, as a share of an arm's trials, at which missing trials
run again.

A larger one may depend on the program, and a second chance would then favour an arm.
"""


async def repeat_unfinished(
    run: RunContext,
    arms: Sequence[Program],
    requests: Sequence[TrialRequest],
    trials: Sequence[Trial],
    repeats: int,
    runner: TestRunner,
    label: str = "test/alone",
) -> list[Trial]:
    """Return the trials, with a second one in place of each that came to no result or took too
    long.

    Missing trials of all arms are run again together, as all were first. Slow ones are run while no
    trial of another arm runs: a program can keep the processors busy, so that trials of another arm
    beside its own take too long. Every arm gets the second chance.
    """
    final = list(trials)
    missing = [at for at, trial in enumerate(trials) if trial.outcome is TrialOutcome.INFRA_ERROR]
    counts = [sum(requests[at][0] is arm for at in missing) for arm in arms]
    if missing and max(counts) - min(counts) <= MOST_MISSING * len(requests) / len(arms):
        # Repeats of their own, so that the failed ones do not come from the cache.
        requested = [requests[at] for at in missing]
        again = [(arm, task, 2 * repeats + repeat) for arm, task, repeat in requested]
        with suppress(BudgetSpent):  # without budget they stay missing
            measured = await run.measure(again, f"{label}-again", runner)
            for at, trial in zip(missing, measured, strict=True):
                final[at] = trial
    for number, arm in enumerate(arms):
        slow = [
            at
            for at, (program, _, _) in enumerate(requests)
            if program is arm and trials[at].outcome is TrialOutcome.AGENT_TIMEOUT
        ]
        if slow:
            again = [(arm, requests[at][1], repeats + requests[at][2]) for at in slow]
            measured = await run.measure(again, f"{label}-{number}", runner)
            for at, trial in zip(slow, measured, strict=True):
                final[at] = trial
    return final


@dataclass(frozen=True, slots=True)
class MeasuredArms:
    """The base and the finalist, measured on the same tasks.

    measured: these tasks. cheated: canary tasks that the finalist answered.
    """

    measured: Sequence[Task]
    arms: tuple[Program, Program]
    trials: list[Trial]
    look: int
    canary_count: int
    cheated: list[str]
    repeats: int

    @property
    def tasks(self) -> list[str]:
        """The ids of the tasks."""
        return [task.id for task in self.measured]

    @property
    def scores(self) -> tuple[Mapping[str, list[float]], Mapping[str, list[float]]]:
        """The scores that count, by task, of the base and of the finalist."""
        before, after = (
            values_by_task(self.trials, arm.digest, lambda trial: trial.score) for arm in self.arms
        )
        return before, after


async def measure_arms(
    run: RunContext, finalist: RunCandidate, repeats: int, *, with_val: bool
) -> MeasuredArms:
    """Open the test and measure both arms on it, interleaved.

    with_val: for the narrower claim, also on validation tasks, by fresh repeats.

    Raises BudgetSpent, RunStopped.
    """
    state, program = run.state, run.program(finalist.digest)
    tests, look, runner = run.sealed.open(run.settings.family or run.folder.id, finalist.digest)
    val: Sequence[Task] = ()
    if with_val:
        val_size, test_size = narrow_sizes(len(run.val), len(tests))
        salt = run.settings.test_digest
        val, tests = draw_tasks(run.val, val_size, salt), draw_tasks(tests, test_size, salt)
    # On the disk before a task runs: a continued run must know that the test is open.
    if not state.looks:
        run.note("look", look=look, test_digest=run.settings.test_digest, candidate=finalist.digest)
    arms = (run.base, program)
    requests: list[TrialRequest] = [
        (arm, task, repeat) for repeat in range(repeats) for task in tests for arm in arms
    ]
    canaries = make_canary_tasks(run.folder, tests, run.plant_canary)
    for at, canary in enumerate(canaries, 1):  # spread evenly, so that no place tells a canary
        place = at * len(requests) // (len(canaries) + 1)
        requests.insert(place, (program, canary.task, 0))
    trials = await run.measure(requests, "test/arms", runner)
    trials = await repeat_unfinished(
        run, arms, requests, trials, repeats, runner, "test/arms-alone"
    )
    tasks: list[Task] = list(tests)
    if val:
        # Fresh repeats, because the finalist was chosen by the earlier ones.
        numbers = range(FIRST_REPEAT, FIRST_REPEAT + repeats)
        fresh = [(arm, task, repeat) for repeat in numbers for task in val for arm in arms]
        trials += await run.measure(fresh, "test/arms-val")
        tasks += val
    # Canaries have no score that counts for either arm.
    own = {canary.task.id for canary in canaries}
    cheated = find_answered_canaries(canaries, [trial for trial in trials if trial.task in own])
    counted = [trial for trial in trials if trial.task not in own]
    return MeasuredArms(tasks, arms, counted, look, len(canaries), cheated, repeats)


def draw_tasks(tasks: Sequence[Task], many: int, salt: str) -> list[Task]:
    """Return so many of the tasks, in their order; the choice follows from `salt` alone."""

    def draw(task: Task) -> bytes:
        return hashlib.sha256(f"{salt} {task.id}".encode()).digest()

    drawn = sorted(tasks, key=draw)[:many]
    return sorted(drawn, key=list(tasks).index)


def record_measured(
    run: RunContext,
    finalist: RunCandidate,
    measured: MeasuredArms,
    ruling: Ruling,
    why: str,
    alpha: float,
    result: NarrowResult,
    **more: Any,
) -> None:
    """Record the verdict on two arms."""
    before, after = (
        {task: sum(values) / len(values) for task, values in arm.items()} for arm in measured.scores
    )
    both = [task for task in measured.tasks if task in before and task in after]
    gains = [after[task] - before[task] for task in both]
    costs = [trial.usage.cost for trial in measured.trials if trial.usage.cost is not None]
    run.note(
        "verdict",
        verdict=ruling,
        candidate=finalist.digest,
        why=why,
        canaries={"asked": measured.canary_count, "answered": measured.cheated},
        look=measured.look,
        alpha=alpha,
        p=result.p,
        p_worse=result.p_worse,
        delta=result.gain,
        interval=list(paired_interval(gains, run.settings.seed)),
        n=result.n,
        repeats=measured.repeats,
        missing=dict(zip(("base", "finalist"), result.missing, strict=True)),
        against_base=asdict(result),
        test_cost=sum(costs) if costs else None,
        val={"base": run.state.candidates[run.state.base].mean, "finalist": finalist.mean},
        base=before,
        finalist=after,
        **more,
    )
