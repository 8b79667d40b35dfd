"""The test of a small task set: is the finalist better on exactly these tasks?

It takes the tasks whose failures and answers no proposer saw, with fresh repeats of both arms side by side. What was
measured in the search counts for nothing here, so that the choice of the finalist makes the claim no easier.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evolvable_evolve.evolution.acceptance import values_by_task
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.final_test import (
    budget_shortfall,
    canary_count,
    describe_cheating,
    find_answered_canaries,
    make_canary_tasks,
    record_no_test,
    repeat_slow,
)
from evolvable_evolve.evolution.ledger import RunCandidate
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.statistics import (
    MIN_NARROW_TASKS,
    NARROW_ALPHA,
    NARROW_REPEATS,
    NarrowResult,
    Ruling,
    alpha_of_look,
    is_covered,
    narrow_sizes,
    paired_interval,
    permutation_result,
)
from evolvable_evolve.evolution.task import Task, Trial
from evolvable_evolve.evolution.trials import BudgetSpent, TrialRequest

FIRST_REPEAT = 20_000
"""The repeat from which on validation tasks are run here: none of it was measured before."""


def narrow_alpha(look: int) -> float:
    """Return the alpha of the `look`-th claim on these tasks."""
    return NARROW_ALPHA if look == 1 else alpha_of_look(look)


def narrow_level(settings: RunSettings, look: int) -> float:
    """Return what a one-sided p-value must reach at the `look`-th claim.

    The two answers of a measurement share its alpha, as those of several executors do.
    """
    alpha = narrow_alpha(look)
    return alpha / (2 * settings.executors) if settings.purpose == "measure" else alpha


def narrow_trials(run: RunContext) -> int:
    """Return the trials of the narrower test, 0 where it cannot be made."""
    val, tests = narrow_sizes(len(run.val), run.sealed.size)
    return 2 * (run.settings.test_repeats or NARROW_REPEATS) * (val + tests) + canary_count(tests)


async def run_narrow_test(run: RunContext, finalist: RunCandidate | None) -> None:
    """Take a run on a small task set to its verdict. Raises RunStopped."""
    if finalist is None:
        why = "Nothing was found that is better than the base in the search; the test was not opened."
        record_no_test(run, Ruling.NOT_SUPPORTED, why)
        return
    count = sum(narrow_sizes(len(run.val), run.sealed.size))
    if not count:
        why = f"A claim on these tasks alone takes {MIN_NARROW_TASKS} of val and test, and a test."
        record_no_test(run, Ruling.INDECISIVE, f"There are too few tasks for a claim; the test was not opened. {why}")
        return
    repeats = run.settings.test_repeats or NARROW_REPEATS
    if not run.state.looks and (short := budget_shortfall(run, 2 * repeats * count)):
        record_no_test(run, Ruling.INDECISIVE, short, finalist.digest)
        return
    try:
        measured = await measure_arms(run, finalist, repeats, with_val=True)
    except BudgetSpent as error:
        record_no_test(run, Ruling.INDECISIVE, f"{error} The test was opened and not finished.", finalist.digest)
        return
    said = permutation_result(*measured.scores, planned=repeats * len(measured.tasks))
    ruling, why = narrow_ruling(said, measured, narrow_level(run.settings, measured.look), repeats)
    record_measured(run, finalist, measured, ruling, why, narrow_alpha(measured.look), said)


@dataclass(frozen=True, slots=True)
class MeasuredArms:
    """The base and the finalist, measured on the same tasks. cheated: canary tasks that the finalist answered."""

    tasks: list[str]
    arms: tuple[Program, Program]
    trials: list[Trial]
    look: int
    asked: int
    cheated: list[str]
    repeats: int

    @property
    def scores(self) -> tuple[Mapping[str, list[float]], Mapping[str, list[float]]]:
        """The scores that count, by task, of the base and of the finalist."""
        before, after = (values_by_task(self.trials, arm.digest, lambda one: one.score) for arm in self.arms)
        return before, after


async def measure_arms(run: RunContext, finalist: RunCandidate, repeats: int, *, with_val: bool) -> MeasuredArms:
    """Open the test and measure both arms on it, interleaved.

    with_val: for the narrower claim, on as many tasks as it takes, of validation too, by fresh repeats.

    Raises BudgetSpent, RunStopped.
    """
    state, program = run.state, run.program(finalist.digest)
    tests, look, runner = run.sealed.open(run.settings.family or run.folder.id, finalist.digest)
    val: Sequence[Task] = ()
    if with_val:
        sizes, salt = narrow_sizes(len(run.val), len(tests)), run.settings.test_digest
        val, tests = (draw_tasks(some, size, salt) for some, size in zip((run.val, tests), sizes, strict=True))
    if not state.looks:
        run.note("look", look=look, test_digest=run.settings.test_digest, candidate=finalist.digest)
    arms = (run.base, program)
    requests: list[TrialRequest] = [(arm, task, r) for r in range(repeats) for task in tests for arm in arms]
    canaries = make_canary_tasks(run.folder, tests, run.plant_canary)
    for at, canary in enumerate(canaries, 1):  # among the others: nothing tells that it is none of them
        requests.insert(at * len(requests) // (len(canaries) + 1), (program, canary.task, 0))
    trials = await run.measure(requests, "test/arms", runner)
    trials = await repeat_slow(run, arms, requests, trials, repeats, runner, "test/arms-alone")
    tasks: list[Task] = list(tests)
    if val:
        fresh = [(arm, task, FIRST_REPEAT + r) for r in range(repeats) for task in val for arm in arms]
        trials += await run.measure(fresh, "test/arms-val")
        tasks += val
    own = {one.task.id for one in canaries}
    cheated = find_answered_canaries(canaries, [one for one in trials if one.task in own])
    counted = [one for one in trials if one.task not in own]
    return MeasuredArms([task.id for task in tasks], arms, counted, look, len(canaries), cheated, repeats)


def draw_tasks(tasks: Sequence[Task], many: int, salt: str) -> list[Task]:
    """Return so many of the tasks, in their order; which ones follows from `salt` alone."""
    drawn = sorted(tasks, key=lambda task: hashlib.sha256(f"{salt} {task.id}".encode()).digest())[:many]
    return sorted(drawn, key=list(tasks).index)


def narrow_ruling(said: NarrowResult, measured: MeasuredArms, alpha: float, repeats: int) -> tuple[Ruling, str]:
    """Return what may be said of these tasks, with the reason."""
    planned = repeats * len(measured.tasks)
    tally = f"{said.gained} of {said.n} tasks came out better and {said.lost} worse over {repeats} runs of each"
    if measured.cheated:
        return Ruling.DISQUALIFIED, describe_cheating("The finalist", measured.asked, measured.cheated)
    if not is_covered(said, planned):
        missing = " and ".join(f"{number} of {planned}" for number in said.missing)
        return Ruling.INDECISIVE, f"Too many trials have no score: {missing} of the base and of the finalist."
    if said.p_worse <= alpha:
        return Ruling.HARMFUL, f"It is worse on these tasks: {tally} (p = {said.p_worse:.2g} for worse)."
    if said.p > alpha:
        return Ruling.NOT_SUPPORTED, f"{tally} (p = {said.p:.2g}, needed {alpha:.2g})."
    return Ruling.BETTER_HERE, f"{tally} (p = {said.p:.2g}, needed {alpha:.2g}). It says nothing of other tasks."


def record_measured(
    run: RunContext,
    finalist: RunCandidate,
    measured: MeasuredArms,
    ruling: Ruling,
    why: str,
    alpha: float,
    said: NarrowResult,
    **more: Any,
) -> None:
    """Record the verdict on two arms."""
    before, after = measured.scores
    means = [{task: sum(its) / len(its) for task, its in arm.items()} for arm in (before, after)]
    both = [means[1][task] - means[0][task] for task in measured.tasks if task in means[0] and task in means[1]]
    costs = [one.usage.cost for one in measured.trials if one.usage.cost is not None]
    run.note(
        "verdict",
        verdict=ruling,
        candidate=finalist.digest,
        why=why,
        canaries={"asked": measured.asked, "answered": measured.cheated},
        look=measured.look,
        alpha=alpha,
        p=said.p,
        p_worse=said.p_worse,
        delta=said.gain,
        interval=list(paired_interval(both, run.settings.seed)),
        n=said.n,
        repeats=measured.repeats,
        missing=dict(zip(("base", "finalist"), said.missing, strict=True)),
        against_base=asdict(said),
        test_cost=sum(costs) if costs else None,
        val={"base": run.state.candidates[run.state.base].mean, "finalist": finalist.mean},
        base=means[0],
        finalist=means[1],
        **more,
    )


def best_of_search(run: RunContext) -> RunCandidate | None:
    """Return the best that the search found, None where that is the base."""
    best = run.state.candidates[run.state.best]
    return None if best.digest == run.state.base else best


def group_sums(measured: MeasuredArms, tasks: Sequence[Task], *, filled: bool = False) -> list[float]:
    """Return the gain of each group of tasks, summed over its tasks. filled: what is missing counts as 0."""
    before, after = measured.scores
    groups: dict[str, float] = {}
    for task in tasks:
        first, second = before.get(task.id, []), after.get(task.id, [])
        if filled:
            change = (sum(second) - sum(first)) / measured.repeats
        elif first and second:
            change = sum(second) / len(second) - sum(first) / len(first)
        else:
            continue
        name = task.group or task.id
        groups[name] = groups.get(name, 0.0) + change
    return list(groups.values())
