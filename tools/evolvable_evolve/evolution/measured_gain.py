"""Measure a program against another one, without a search: does this skill help, and for which
model.

The run has the records of a search with one candidate, so that status, report and ledger read it as
any other. The sealed test is opened once and in stages, also where validation shows no gain: that
something harms is an answer too. PROMOTE and HARMFUL share one alpha, because both are tested at
once. Without the option open_test the test stays closed, and both programs are compared on train
and validation, as a trial of a skill compares.
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
from evolvable_evolve.evolution.canaries import canary_count
from evolvable_evolve.evolution.candidates import LeakCorpus, Program
from evolvable_evolve.evolution.final import (
    measure_stages,
    narrow_trials,
    plan_stages,
    run_narrow_test,
)
from evolvable_evolve.evolution.ledger import CandidateDecision, RunCandidate, RunPhase
from evolvable_evolve.evolution.pleased_judge import ask_about_style
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.sealed_arms import budget_shortfall, record_no_test
from evolvable_evolve.evolution.search_operators import record_candidate
from evolvable_evolve.evolution.staged_verdict import StagedVerdict
from evolvable_evolve.evolution.statistics import MIN_GROUPS, STAGE_SHARES, Ruling
from evolvable_evolve.evolution.trials import BudgetSpent
from evolvable_evolve.evolution.try_run import run_try

PILOT_TRIALS = 3
"""Trials by which a measurement is estimated: the first of validation, so that none is wasted."""


async def run_measurement(run: RunContext) -> None:
    """Take a measurement to its verdict.

    Raises RunStopped, and ExecutorFailing where no first trial counts.
    """
    if not run.settings.open_test:
        left_out = run.state.about.get("left_out", {})
        # Nothing is learned here, so training tasks may be measured as well.
        run.val = [task for task in (*run.train, *run.val) if task.id not in left_out]
        await run_try(run)
        return
    if run.state.phase is RunPhase.NEW:
        await _run_pilot(run)
    try:
        if run.state.phase is not RunPhase.SEARCHED:
            await _measure_validation(run)
    except BudgetSpent as error:
        record_no_test(run, Ruling.INDECISIVE, f"{error} The test was not opened.")
        return
    # The measured program is the finalist, whatever validation showed.
    finalist = next(
        candidate
        for candidate in run.state.candidates.values()
        if candidate.digest != run.state.base
    )
    if run.state.exploratory:
        await run_narrow_test(run, finalist)
    else:
        await _run_test(run, finalist)


async def _run_pilot(run: RunContext) -> None:
    tasks = run.val[:PILOT_TRIALS]
    # Where the base answers once, only the other arm shows what rounds take.
    arm = run.merged[0][1] if run.base.answers_once else run.base
    pilot = await run.measure([(arm, task, 0) for task in tasks], f"pilot/{run.state.pilots + 1}")
    counted = [trial for trial in pilot if trial.outcome.counts]
    if not counted:
        detail = next((trial.detail for trial in pilot if trial.detail), "it did not say why")
        why = detail.rstrip(".")
        run.note("pilot", why=why)
        hint = (
            "Fix it, then continue the run, or start another where the task set or the program "
            "has to change."
        )
        raise ExecutorFailing(f"The executor fails, not one trial counted: {why}.", hint)
    fewest, most = plan_trials(run)
    estimate = estimate_cost(run, counted, EvaluationPlan(fewest, most, most, most))
    run.note("preflight", estimate=asdict(estimate), warnings=_warn_of_leaks(run))


def plan_trials(run: RunContext) -> tuple[int, int]:
    """Return the fewest and the most trials that a measurement takes.

    The trials of the pilot are part of validation, and are not counted twice.
    """
    validation = run.settings.repeats * len(run.val) * len(_list_validation_arms(run))
    if run.state.exploratory:
        whole = validation + narrow_trials(run)
        return whole, whole
    tests, each = run.sealed.size, 2 * run.settings.staged_repeats
    first = validation + canary_count(tests) + round(each * STAGE_SHARES[0] * tests)
    return first, validation + canary_count(tests) + each * tests


def _list_validation_arms(run: RunContext) -> list[Program]:
    """Return the base, the measured program, and no skill at all where neither of them is empty."""
    [(_, program)] = run.merged
    arms = [run.base, program]
    if run.base.parts and program.parts:
        arms.append(NO_SKILL)
    return arms


def _warn_of_leaks(run: RunContext) -> list[str]:
    """Return warnings about texts of tasks that the measured program repeats: its figures on them
    mean little.
    """
    corpus = LeakCorpus([*run.train, *run.val])
    [(_, program)] = run.merged
    base_texts = {part.ref: part.texts for part in run.base.parts}
    warnings = []
    for part in program.parts:
        before = base_texts.get(part.ref, {})
        for path, text in part.texts.items():
            if leaks := corpus.leaks(text, before.get(path, "")):
                warnings.append(
                    f"{part.ref} {path} {leaks[0]}: its figures on these tasks mean little."
                )
    return warnings


async def _measure_validation(run: RunContext) -> None:
    """Measure the arms on validation once, and record the measured program as the one candidate."""
    [(source, program)] = run.merged
    arms, repeats = _list_validation_arms(run), range(run.settings.repeats)
    requests = [(arm, task, repeat) for repeat in repeats for task in run.val for arm in arms]
    trials = await run.measure(requests, "val/1")
    before, after, none = (mean_scores(trials, arm.digest) for arm in (run.base, program, NO_SKILL))
    # A continued run makes only the records that are missing.
    if run.state.phase is RunPhase.CHECKED:
        missing = [task.id for task in run.val if task.id not in before]
        discordance = _estimate_discordance([trial.score for trial in trials])
        figures = {"scores": before, "again": {}, "no_skill": none, "missing": missing}
        run.note(
            "calibrated",
            **figures,
            noise=0.0,
            discordance=discordance,
            mde=None,
            look=run.sealed.look,
        )
    if run.state.phase is RunPhase.CALIBRATED:
        run.note("selected", iteration=1, parent=run.state.base, batch=1, merge=True)
    if run.state.step and "built" not in run.state.step:
        summary = f"measured against {_name_base(run)}"
        record_candidate(run, run.base, program, [f"measured: {source}"], summary)
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


def _name_base(run: RunContext) -> str:
    if run.base.answers_once:
        return "the first answer"
    return ", ".join(part.ref for part in run.base.parts) or "nothing"


def _estimate_discordance(scores: Sequence[float | None]) -> float:
    """Return an upper limit of the share of results that differ between two runs, from the scores
    alone.
    """
    # Each task would pass with the mean probability, which makes two runs differ most.
    counted = [score for score in scores if score is not None]
    share = fmean(counted) if counted else 0.5
    return 2 * share * (1 - share)


async def _run_test(run: RunContext, finalist: RunCandidate) -> None:
    """Open the sealed test in stages, which end as soon as either answer is clear, or neither is
    likely to come.
    """
    state, repeats = run.state, run.settings.staged_repeats
    # Only before the first look: an opened test is finished with what is left.
    if not state.looks and (short := budget_shortfall(run, 2 * repeats * run.sealed.size)):
        record_no_test(run, Ruling.INDECISIVE, short, finalist.digest)
        return
    # The family's name: runs of one measurement under several executors share the look.
    tasks, look, runner = run.sealed.open(run.settings.family or run.folder.id, finalist.digest)
    shares = state.stage_shares if state.looks else STAGE_SHARES
    stages = plan_stages(tasks, f"{run.settings.seed} {run.settings.test_digest}", shares)
    groups = len({task.group or task.id for task in tasks})
    if groups < MIN_GROUPS:
        why = (
            f"The test has {groups} groups of tasks that are not alike; a claim about other tasks "
            f"needs {MIN_GROUPS}."
        )
        record_no_test(run, Ruling.INDECISIVE, f"{why} No task of it was run.", finalist.digest)
        return
    by_stage = [repeats] * len(stages)
    # On the disk before a task runs: what is seen must not change the design.
    if not state.looks:
        about = {"test_digest": run.settings.test_digest, "candidate": finalist.digest}
        run.note("look", look=look, **about, repeats=by_stage, shares=list(shares))
    # Both sides under each executor share the alpha.
    answers = 2 * run.settings.executors
    measured = StagedVerdict(run, finalist, look, [len(stage) for stage in stages], answers)
    try:
        await measure_stages(measured, stages, by_stage, runner)
        ruling, why = measured.ruling(), measured.why()
        if ruling is Ruling.PROMOTE and (short_of := _find_shortfall(run, finalist)) > 0:
            ruling = Ruling.NOT_SUPPORTED
            why += f" But no skill at all did better still on val, by {short_of:.1%}."
        if ruling is Ruling.PROMOTE:
            program = run.program(finalist.digest)
            pleased = await ask_about_style(run, tasks, measured.trials, program)
            if pleased:
                ruling, why = Ruling.NOT_SUPPORTED, f"{why} {pleased}"
    except BudgetSpent as error:
        why = f"{error} The test was opened and not finished."
        record_no_test(run, Ruling.INDECISIVE, why, finalist.digest)
        return
    measured.record(ruling, f"{why} {run.sealed.describe_claim()}".strip(), {})


def _find_shortfall(run: RunContext, finalist: RunCandidate) -> float:
    """Return by how much no skill at all did better on validation than the measured program; 0
    where it did not.
    """
    none = run.state.calibration.get("no_skill") or {}
    both = none.keys() & finalist.scores.keys()
    return max(0.0, fmean([none[task] - finalist.scores[task] for task in both] or [0.0]))
