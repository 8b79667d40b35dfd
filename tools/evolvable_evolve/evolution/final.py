"""The final test of a run: one finalist against the base, on tasks that the search never saw.

The staged test makes a claim about tasks like these. The order of the groups is drawn before a task
is opened. Each stage opens its tasks and measures the base and the finalist side by side. It ends
the test when the gain is significant or unlikely to become so. Unopened tasks stay sealed. Vetoes
need no further test tasks: no skill at all is compared on validation tasks.

The narrow test of a small task set asks whether the finalist is better on exactly these tasks. It
takes the tasks whose failures and answers no proposer saw, with fresh repeats of both arms.
Measurements of the search count for nothing here, so that the choice of the finalist makes the
claim no easier.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from math import ceil
from statistics import fmean
from typing import Any

from evolvable_evolve.evolution.acceptance import NO_SKILL, mean_scores
from evolvable_evolve.evolution.canaries import canary_count, describe_cheating, make_canary_tasks
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.ledger import RunCandidate
from evolvable_evolve.evolution.pleased_judge import ask_about_style
from evolvable_evolve.evolution.run_config import LATER_REPEATS, MOST_TEST_TRIALS, RunSettings
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.sealed_arms import (
    MeasuredArms,
    budget_shortfall,
    measure_arms,
    record_measured,
    record_no_test,
    repeat_unfinished,
)
from evolvable_evolve.evolution.staged_verdict import StagedVerdict
from evolvable_evolve.evolution.statistics import (
    MIN_GROUPS,
    MIN_NARROW_TASKS,
    NARROW_ALPHA,
    NARROW_REPEATS,
    STAGE_SHARES,
    STAGES,
    NarrowResult,
    Ruling,
    alpha_of_look,
    is_covered,
    narrow_sizes,
    permutation_result,
)
from evolvable_evolve.evolution.task import Task
from evolvable_evolve.evolution.tasks import TestRunner
from evolvable_evolve.evolution.trials import BudgetSpent, TrialRequest

# Chosen in simulations: "The stages of the test" in `benchmarks/README.md`.
SMALL_GAIN = 0.25
"""The gain in the search under which later stages run each task more often under each arm.

The gain in the search was selected and is mostly larger than the true one.
"""

VETO_REPEAT = 5_000
"""The first repeat number of validation tasks in the comparison with no skill."""

FinalistChoice = Callable[[RunContext], Awaitable[tuple[RunCandidate, float] | None]]
"""Returns the finalist of a search with its gain there, None where nothing is better than the
base.
"""


async def run_final_test(run: RunContext, choose: FinalistChoice) -> None:
    """Take the run to its verdict; the test is opened for at most one finalist.

    Raises RunStopped.
    """
    state = run.state
    if state.exploratory:
        best = state.candidates[state.best]
        await run_narrow_test(run, None if best.digest == state.base else best)
        return
    try:
        chosen = await choose(run)
    except BudgetSpent as error:
        record_no_test(run, Ruling.INDECISIVE, f"{error} The test was not opened.")
        return
    if chosen is None:
        why = (
            "Nothing was found that is better than the base in the search; the test was not opened."
        )
        record_no_test(run, Ruling.NOT_SUPPORTED, why)
        return
    await run_staged_test(run, *chosen)


async def run_staged_test(run: RunContext, finalist: RunCandidate, gain: float) -> None:
    """Measure the finalist on the sealed test and record the verdict. Raises RunStopped.

    gain: of the finalist in the search. It decides how often later stages run each task.
    """
    state, program = run.state, run.program(finalist.digest)
    least = run.settings.staged_repeats
    # Only before the first look: an opened test is finished with what is left.
    if not state.looks and (short := budget_shortfall(run, 2 * least * run.sealed.size)):
        record_no_test(run, Ruling.INDECISIVE, short, finalist.digest)
        return
    # A continued run keeps the design that it recorded before it opened a task.
    by_stage = state.stage_repeats
    if not by_stage:
        by_stage = (least,) * STAGES if state.looks else plan_repeats(run, gain)
    tasks, look, runner = run.sealed.open(run.folder.id, finalist.digest)
    shares = state.stage_shares if state.looks else STAGE_SHARES
    stages = plan_stages(tasks, f"{run.settings.seed} {run.settings.test_digest}", shares)
    groups = len({task.group or task.id for task in tasks})
    # A test from before groups were counted may have too few of them.
    if groups < MIN_GROUPS:
        why = (
            f"The test has {groups} groups of tasks that are not alike, and a claim about other "
            f"tasks needs {MIN_GROUPS}. No task of it was run."
        )
        record_no_test(run, Ruling.INDECISIVE, why, finalist.digest)
        return
    # On the disk before a task runs: what is seen must not change the design.
    if not state.looks:
        about = {"test_digest": run.settings.test_digest, "candidate": finalist.digest}
        run.note("look", look=look, **about, repeats=list(by_stage), shares=list(shares))
    measured = StagedVerdict(run, finalist, look, [len(stage) for stage in stages])
    try:
        await measure_stages(measured, stages, by_stage, runner)
        ruling, veto = measured.ruling(), dict[str, Any]()
        why = f"{measured.why()} {run.sealed.describe_claim()}".strip()
        # Only a promotion can be vetoed, so only then are these trials paid.
        if ruling is Ruling.PROMOTE and run.base.parts and program.parts:
            veto = await _compare_with_nothing(run, program)
            if veto["gain"] < 0:
                ruling = Ruling.NOT_SUPPORTED
                why += f" But no skill at all did better still on val, by {-veto['gain']:.1%}."
        # Last, because the judge is asked about many answers.
        if ruling is Ruling.PROMOTE:
            pleased = await ask_about_style(run, tasks, measured.trials, program)
            if pleased:
                ruling, why = Ruling.NOT_SUPPORTED, f"{why} {pleased}"
    except BudgetSpent as error:
        why = f"{error} The test was opened and not finished."
        record_no_test(run, Ruling.INDECISIVE, why, finalist.digest)
        return
    measured.record(ruling, why, veto)


async def measure_stages(
    measured: StagedVerdict,
    stages: Sequence[list[Task]],
    by_stage: Sequence[int],
    runner: TestRunner,
) -> None:
    """Measure both arms stage by stage until the answer is clear. Raises BudgetSpent, RunStopped.

    by_stage: how often each stage runs its tasks under each arm.
    """
    run, program = measured.run, measured.run.program(measured.finalist.digest)
    # In the first stage, which every opened test has.
    canaries = make_canary_tasks(run.folder, stages[0], run.plant_canary)
    for number, (stage, repeats) in enumerate(zip(stages, by_stage, strict=False)):
        requests: list[TrialRequest] = [
            (arm, task, repeat)
            for repeat in range(repeats)
            for task in stage
            for arm in (run.base, program)
        ]
        # Spread evenly, so that no place tells a canary.
        for at, canary in enumerate(canaries if number == 0 else (), 1):
            requests.insert(at * len(requests) // (len(canaries) + 1), (program, canary.task, 0))
        trials = await run.measure(requests, f"test/stage-{number + 1}", runner)
        arms, label = [run.base, program], f"test/alone-{number + 1}"
        trials = await repeat_unfinished(run, arms, requests, trials, repeats, runner, label)
        measured.add(stage, trials, repeats, canaries)
        if measured.is_over:
            return


def plan_repeats(run: RunContext, gain: float) -> tuple[int, ...]:
    """Return how often each stage runs its tasks under each arm: more later where the search showed
    a small gain.

    It follows from figures that were known before a task of the test was seen, so the level of the
    test does not change.
    """
    same = (run.settings.staged_repeats,) * STAGES
    if run.settings.test_repeats or gain >= SMALL_GAIN:
        return same
    if budget_shortfall(run, MOST_TEST_TRIALS * run.sealed.size):
        return same
    return LATER_REPEATS


def plan_stages(
    tasks: Sequence[Task], salt: str, shares: Sequence[float] = STAGE_SHARES
) -> list[list[Task]]:
    """Return the tasks of each stage: whole groups in an order drawn by `salt`, about these shares
    of the tasks.
    """
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.group or task.id, []).append(task)
    drawn = sorted(groups, key=lambda name: hashlib.sha256(f"{salt} {name}".encode()).digest())
    stages: list[list[Task]] = [[] for _ in shares]
    ends, done = [share * len(tasks) for share in accumulate(shares[:-1])], 0
    for name in drawn:
        # By the middle of the group, so that no stage is left empty for want of a few tasks.
        at = bisect_right(ends, done + len(groups[name]) / 2)
        stages[at] += groups[name]
        done += len(groups[name])
    return [stage for stage in stages if stage]


async def _compare_with_nothing(run: RunContext, program: Program) -> dict[str, Any]:
    """Return the comparison of the finalist with no skill at all, by fresh runs of both on
    validation tasks.

    Half of the tasks run first. The rest follow where the finalist is not ahead, and all of them
    once more where it is behind after that.
    """
    half = ceil(len(run.val) / 2)
    differences: list[float] = []
    scores: tuple[list[float], list[float]] = ([], [])
    # Tasks, repeat, and the lead in tasks that ends it: two after the first half, later a tie.
    rounds = ((run.val[:half], 0, 2.0), (run.val[half:], 0, 0.0), (run.val, 1, 0.0))
    for number, (tasks, again, enough) in enumerate(rounds, 1):
        requests = [
            (arm, task, VETO_REPEAT + again) for task in tasks for arm in (NO_SKILL, program)
        ]
        trials = await run.measure(requests, f"confirm/no-skill-{number}")
        arms = [mean_scores(trials, arm.digest) for arm in (NO_SKILL, program)]
        for task in sorted(arms[0].keys() & arms[1].keys()):
            for arm_scores, arm in zip(scores, arms, strict=True):
                arm_scores.append(arm[task])
            differences.append(arms[1][task] - arms[0][task])
        if sum(differences) >= enough:
            break
    before, after = (fmean(arm_scores) if arm_scores else 0.0 for arm_scores in scores)
    return {
        "n": len(differences),
        "gain": after - before,
        "before": before,
        "after": after,
        "split": "val",
    }


def narrow_alpha(look: int) -> float:
    """Return the alpha of the `look`-th claim on these tasks."""
    return NARROW_ALPHA if look == 1 else alpha_of_look(look)


def narrow_level(settings: RunSettings, look: int) -> float:
    """Return the limit of a one-sided p-value at the `look`-th claim.

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
        why = (
            "Nothing was found that is better than the base in the search; the test was not opened."
        )
        record_no_test(run, Ruling.NOT_SUPPORTED, why)
        return
    count = sum(narrow_sizes(len(run.val), run.sealed.size))
    if not count:
        why = (
            "There are too few tasks for a claim; the test was not opened. A claim on these tasks "
            f"alone takes {MIN_NARROW_TASKS} of val and test, and a test."
        )
        record_no_test(run, Ruling.INDECISIVE, why)
        return
    repeats = run.settings.test_repeats or NARROW_REPEATS
    # Only before the first look: an opened test is finished with what is left.
    if not run.state.looks and (short := budget_shortfall(run, 2 * repeats * count)):
        record_no_test(run, Ruling.INDECISIVE, short, finalist.digest)
        return
    try:
        measured = await measure_arms(run, finalist, repeats, with_val=True)
    except BudgetSpent as error:
        why = f"{error} The test was opened and not finished."
        record_no_test(run, Ruling.INDECISIVE, why, finalist.digest)
        return
    result = permutation_result(*measured.scores, planned=repeats * len(measured.tasks))
    level = narrow_level(run.settings, measured.look)
    ruling, why = narrow_ruling(result, measured, level, repeats)
    if ruling is Ruling.BETTER_HERE:
        program = measured.arms[1]
        pleased = await ask_about_style(run, measured.measured, measured.trials, program)
        if pleased:
            ruling, why = Ruling.NOT_SUPPORTED, f"{why} {pleased}"
    record_measured(run, finalist, measured, ruling, why, narrow_alpha(measured.look), result)


def narrow_ruling(
    result: NarrowResult, measured: MeasuredArms, alpha: float, repeats: int
) -> tuple[Ruling, str]:
    """Return the ruling on these tasks, with the reason."""
    planned = repeats * len(measured.tasks)
    tally = (
        f"{result.gained} of {result.n} tasks came out better and {result.lost} worse over "
        f"{repeats} runs of each"
    )
    if measured.cheated:
        why = describe_cheating("The finalist", measured.canary_count, measured.cheated)
        return Ruling.DISQUALIFIED, why
    if not is_covered(result, planned):
        missing = " and ".join(f"{number} of {planned}" for number in result.missing)
        why = f"Too many trials have no score: {missing} of the base and of the finalist."
        return Ruling.INDECISIVE, why
    if result.p_worse <= alpha:
        why = f"It is worse on these tasks: {tally} (p = {result.p_worse:.2g} for worse)."
        return Ruling.HARMFUL, why
    why = f"{tally} (p = {result.p:.2g}, needed {alpha:.2g})."
    if result.p > alpha:
        return Ruling.NOT_SUPPORTED, why
    return Ruling.BETTER_HERE, f"{why} It says nothing of other tasks."
