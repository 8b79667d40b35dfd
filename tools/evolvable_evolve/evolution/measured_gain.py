"""Measure a program against another one, without a search: does this skill help, and for which model.

The run has the records of a search with one candidate, so that status, report and ledger read it as any other. The
sealed test is opened once, also where validation shows no gain: that something harms is an answer too. PROMOTE and
HARMFUL share one alpha, as both are asked at once.
"""

from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean

from evolvable_evolve.evolution.acceptance import (
    NO_SKILL,
    EvaluationPlan,
    ExecutorFailing,
    estimate_cost,
    mean_scores,
    record_decision,
)
from evolvable_evolve.evolution.canaries import canary_count, describe_cheating
from evolvable_evolve.evolution.candidates import LeakCorpus, Program
from evolvable_evolve.evolution.final import narrow_trials, run_narrow_test
from evolvable_evolve.evolution.ledger import CandidateDecision, RunCandidate, RunPhase
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.sealed_arms import (
    MeasuredArms,
    budget_shortfall,
    group_sums,
    measure_arms,
    record_measured,
    record_no_test,
)
from evolvable_evolve.evolution.search_operators import record_candidate
from evolvable_evolve.evolution.statistics import (
    MIN_COVERAGE,
    MIN_GROUPS,
    NarrowResult,
    Ruling,
    alpha_of_look,
    missing_p_value,
    sign_flip_p_value,
)
from evolvable_evolve.evolution.task import Task
from evolvable_evolve.evolution.trials import BudgetSpent

PILOT_TRIALS = 3
_MISSING_LEVEL, _MISSING_SHARE = 0.1, 0.02


async def run_measurement(run: RunContext) -> None:
    """Take a measurement to its verdict. Raises RunStopped, and ExecutorFailing where no first trial counts."""
    if run.state.phase is RunPhase.NEW:
        await _run_pilot(run)
    try:
        if run.state.phase is not RunPhase.SEARCHED:
            await _measure_validation(run)
    except BudgetSpent as error:
        record_no_test(run, Ruling.INDECISIVE, f"{error} The test was not opened.")
        return
    # The measured program is the finalist, whatever validation said of it.
    finalist = next(one for one in run.state.candidates.values() if one.digest != run.state.base)
    if run.state.exploratory:
        await run_narrow_test(run, finalist)
    else:
        await _run_test(run, finalist)


async def _run_pilot(run: RunContext) -> None:
    tasks = run.val[:PILOT_TRIALS]
    # Where the base answers once, only the other arm tells what rounds take.
    arm = run.merged[0][1] if run.base.answers_once else run.base
    pilot = await run.measure([(arm, task, 0) for task in tasks], f"pilot/{run.state.pilots + 1}")
    counted = [one for one in pilot if one.outcome.counts]
    if not counted:
        why = next((one.detail for one in pilot if one.detail), "it did not say why").rstrip(".")
        run.note("pilot", why=why)
        hint = "Fix it, then continue the run, or start another where the task set or the program has to change."
        raise ExecutorFailing(f"The executor fails, not one trial counted: {why}.", hint)
    whole = plan_trials(run)
    estimate = estimate_cost(run, counted, EvaluationPlan(whole, whole, whole, whole))
    run.note("preflight", estimate=asdict(estimate), warnings=_leak_warnings(run))


def plan_trials(run: RunContext) -> int:
    """Return the trials that a measurement takes. Its first ones are part of validation."""
    validation = run.settings.repeats * len(run.val) * len(_validation_arms(run))
    if run.state.exploratory:
        return validation + narrow_trials(run)
    tests = run.sealed.size
    return validation + 2 * run.settings.staged_repeats * tests + canary_count(tests)


def _validation_arms(run: RunContext) -> list[Program]:
    [(_, program)] = run.merged
    return [run.base, program, *([NO_SKILL] if run.base.parts and program.parts else [])]


def _leak_warnings(run: RunContext) -> list[str]:
    """Return what the measured program repeats of the tasks: such figures are no measure of anything."""
    corpus = LeakCorpus([*run.train, *run.val])
    [(_, program)] = run.merged
    found = []
    for part in program.parts:
        before = next((one.texts for one in run.base.parts if one.ref == part.ref), {})
        for path, text in part.texts.items():
            if leaks := corpus.leaks(text, before.get(path, "")):
                found.append(f"{part.ref} {path} {leaks[0]}: its figures on these tasks mean little.")
    return found


async def _measure_validation(run: RunContext) -> None:
    """Measure both arms, and no skill at all, on validation once, and write it down as one candidate's."""
    [(source, program)], repeats = run.merged, range(run.settings.repeats)
    arms = _validation_arms(run)
    trials = await run.measure([(arm, task, r) for r in repeats for task in run.val for arm in arms], "val/1")
    before, after, none = (mean_scores(trials, arm.digest) for arm in (run.base, program, NO_SKILL))
    if run.state.phase is RunPhase.CHECKED:
        missing = [task.id for task in run.val if task.id not in before]
        discordance = _discordance(run, [one.score for one in trials])
        known = {"scores": before, "again": {}, "no_skill": none, "missing": missing}
        run.note("calibrated", **known, noise=0.0, discordance=discordance, mde=None, look=run.sealed.look)
    if run.state.phase is RunPhase.CALIBRATED:
        run.note("selected", iteration=1, parent=run.state.base, batch=1, merge=True)
    if run.state.step and "built" not in run.state.step:
        record_candidate(run, run.base, program, [f"measured: {source}"], f"measured against {_base_name(run)}")
    if run.state.step and "measured" not in run.state.step:
        both = before.keys() & after.keys()
        run.note(
            "measured",
            iteration=1,
            candidate=program.digest,
            parent=run.state.base,
            scores=after,
            parent_scores=before,
            missing=[task.id for task in run.val if task.id not in both],
            fixed=sorted(task for task in both if after[task] > before[task]),
            broken=sorted(task for task in both if after[task] < before[task]),
            tampered="",
        )
    if run.state.step:
        gain = fmean([after[task] - before[task] for task in before.keys() & after.keys()] or [0.0])
        why = f"{gain:+.3f} in validation; the sealed test decides"
        frontier = (run.state.base, program.digest)
        record_decision(run, CandidateDecision.ADMITTED, why, program.digest, frontier)
    run.note("searched", why="nothing was searched: this measures what is there")


def _base_name(run: RunContext) -> str:
    if run.base.answers_once:
        return "the first answer"
    return ", ".join(part.ref for part in run.base.parts) or "nothing"


def _discordance(run: RunContext, scores: Sequence[float | None]) -> float:
    """Return the share of results that would differ from one run to the next, from the scores alone: an upper limit."""
    known = [score for score in scores if score is not None]
    share = fmean(known) if known else 0.5
    return 2 * share * (1 - share)


async def _run_test(run: RunContext, finalist: RunCandidate) -> None:
    repeats = run.settings.staged_repeats
    if not run.state.looks and (short := budget_shortfall(run, 2 * repeats * run.sealed.size)):
        record_no_test(run, Ruling.INDECISIVE, short, finalist.digest)
        return
    try:
        measured = await measure_arms(run, finalist, repeats, with_val=False)
    except BudgetSpent as error:
        record_no_test(run, Ruling.INDECISIVE, f"{error} The test was opened and not finished.", finalist.digest)
        return
    tests = [task for task in _opened(run, finalist) if task.id in set(measured.tasks)]
    said, groups = compare_arms(measured, tests)
    alpha = alpha_of_look(measured.look, run.settings.test_alpha)
    ruling, why = rule_on_both_sides(said, measured, groups, alpha, run.settings.executors)
    if ruling is Ruling.PROMOTE and (short_of := _below_nothing(run, finalist)) > 0:
        ruling, why = Ruling.NOT_SUPPORTED, f"{why} But no skill at all did better still on val, by {short_of:.1%}."
    why = f"{why} {run.sealed.describe_claim()}".strip()
    record_measured(run, finalist, measured, ruling, why, alpha, said, p_two_sided=two_sided(said), groups=groups)


def _opened(run: RunContext, finalist: RunCandidate) -> Sequence[Task]:
    return run.sealed.open(run.settings.family or run.folder.id, finalist.digest)[0]


def compare_arms(measured: MeasuredArms, tests: Sequence[Task]) -> tuple[NarrowResult, int]:
    """Return the comparison by an exact sign-flip test over groups of tasks, and how many groups there are.

    What is missing counts as failed too where it is missing from one arm more than by chance, or for more than 2 %.
    """
    before, after = measured.scores
    both = [task.id for task in tests if before.get(task.id) and after.get(task.id)]
    means = [(fmean(before[task]), fmean(after[task])) for task in both]
    planned = measured.repeats * len(tests)
    missing = [planned - sum(len(its) for its in arm.values()) for arm in (before, after)]
    sums = group_sums(measured, tests)
    p, p_worse = sign_flip_p_value(sums), sign_flip_p_value([-one for one in sums])
    if _missing_matters(missing[0], missing[1], planned):
        filled = group_sums(measured, tests, filled=True)
        p = max(p, sign_flip_p_value(filled))
        p_worse = max(p_worse, sign_flip_p_value([-one for one in filled]))
    changes = [second - first for first, second in means]
    first, second = (fmean(side) if side else 0.0 for side in (list(zip(*means, strict=True)) or [(), ()]))
    tally = (sum(one > 0 for one in changes), sum(one < 0 for one in changes))
    gain = fmean(changes) if changes else 0.0
    said = NarrowResult(len(both), first, second, gain, p, p_worse, (missing[0], missing[1]), *tally)
    return said, len(sums)


def _missing_matters(base: int, finalist: int, planned: int) -> bool:
    if not base and not finalist:
        return False
    level = min(missing_p_value(base, finalist, planned), missing_p_value(finalist, base, planned))
    return level < _MISSING_LEVEL or base + finalist > _MISSING_SHARE * 2 * planned


def two_sided(said: NarrowResult) -> float:
    """Return the p-value of either answer: twice the smaller, so that both share one alpha."""
    return min(1.0, 2 * min(said.p, said.p_worse))


def rule_on_both_sides(
    said: NarrowResult, measured: MeasuredArms, groups: int, alpha: float, executors: int
) -> tuple[Ruling, str]:
    """Return PROMOTE, NOT SUPPORTED or HARMFUL at one alpha, with the reason.

    Under several executors each p-value counts so many times; the report has Holm's joint answer when all are measured.
    """
    level = alpha / executors
    p, tally = two_sided(said), f"{said.gained} of {said.n} tasks came out better and {said.lost} worse"
    asked = f"p = {p:.2g} on both sides, needed {level:.2g}"
    if measured.cheated:
        return Ruling.DISQUALIFIED, describe_cheating("The program", measured.asked, measured.cheated)
    if said.n < MIN_COVERAGE * len(measured.tasks):
        return Ruling.INDECISIVE, f"Only {said.n} of {len(measured.tasks)} tasks were measured under both arms."
    if groups < MIN_GROUPS:
        why = f"The test has {groups} groups of tasks that are not alike; a claim about other tasks needs {MIN_GROUPS}."
        return Ruling.INDECISIVE, why
    if p > level:
        return Ruling.NOT_SUPPORTED, f"{tally} ({asked})."
    if said.p_worse < said.p:
        return Ruling.HARMFUL, f"It is worse: {tally} ({asked})."
    return Ruling.PROMOTE, f"{tally} ({asked})."


def _below_nothing(run: RunContext, finalist: RunCandidate) -> float:
    """Return by how much no skill at all did better on validation than the measured program; 0 where it did not."""
    none = run.state.calibration.get("no_skill") or {}
    both = none.keys() & finalist.scores.keys()
    return max(0.0, fmean([none[task] - finalist.scores[task] for task in both] or [0.0]))
