"""Run a trial of skills: stages over all tasks, with and without, until every skill has an answer
or none is near.

The ledger is the only state. A continued run asks for the same batches, whose trials are read from
the records.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evolvable_evolve.evolution.acceptance import ExecutorFailing
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.pleased_judge import ask_about_style
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.sealed_arms import repeat_unfinished
from evolvable_evolve.evolution.statistics import (
    DEFAULT_STAGES,
    SIDE_ALPHA,
    StageDecision,
    TryAnswer,
    TryForecast,
    decide_stage,
    forecast_found,
    forecast_rest,
)
from evolvable_evolve.evolution.task import Trial
from evolvable_evolve.evolution.trials import BudgetSpent, TrialRequest
from evolvable_evolve.evolution.try_comparison import compare_answers
from evolvable_evolve.evolution.try_trials import TryArm, TryTrials, is_compared
from evolvable_evolve.evolution.try_verdict import record_answer

HOPELESS = 0.02
"""The chance of any answer below which a trial ends."""

_ALONE = 10_000  # the first repeat number of slow trials that are run again alone


def stages_of(run: RunContext) -> int:
    """Return the most repeats of each task under each arm.

    Answers that a judge compares are compared once.
    """
    return 1 if is_compared(run.val) else run.settings.test_repeats or DEFAULT_STAGES


async def run_try(run: RunContext) -> None:
    """Take a trial to its answer.

    Raises RunStopped, TrialsFailing, and ExecutorFailing where no first trial counts.
    """
    stages, seen = stages_of(run), TryTrials()
    arms = [TryArm(ref, program) for ref, program in run.merged]
    if not run.state.preflight:
        _note_forecast(run, forecast_found(len(run.val), stages, seed=run.settings.seed), arms)
    ended, waiting = "", list(arms)
    # Stages that a continued run has finished cost nothing: their batches are in the ledger.
    for stage in range(1, stages + 1):
        try:
            seen.add(await _run_stage(run, waiting, stage))
        except BudgetSpent as error:
            ended = str(error)
            break
        for arm in waiting:
            arm.repeats = stage
            # The skills share the alpha by Bonferroni, so that an early end of one takes nothing
            # from the others.
            arm.decision = _decide(run, seen, arm, stages, SIDE_ALPHA / len(arms))
        waiting = [
            arm for arm in waiting if arm.decision is not None and arm.decision.answer is None
        ]
        # Not later: an executor that worked once is no broken one.
        if stage == 1:
            _refuse_failing(seen, arms, run.base)
        if not waiting:
            break
        if stage < stages and not _check_reach(run, seen, waiting, stage, stages, len(arms)):
            ended = "Further repeats of these tasks would hardly tell."
            break
    compared: dict[str, dict[str, float]] = {}
    # After a spent budget there is nothing left to ask a judge with.
    if is_compared(run.val) and not ended:
        compared = await compare_answers(run, seen, arms)
    pleased = await _find_pleased(run, seen, arms)
    record_answer(run, seen, arms, stages, ended, compared, pleased)


async def _run_stage(run: RunContext, arms: Sequence[TryArm], stage: int) -> list[Trial]:
    """Return the trials of one repeat of every task under all arms; missing trials are run once
    more at its end.

    Raises BudgetSpent.
    """
    programs = [run.base, *(arm.program for arm in arms)]
    requests: list[TrialRequest] = [
        (program, task, stage - 1) for task in run.val for program in programs
    ]
    trials = await run.measure(requests, f"try/{stage}")
    trials = await repeat_unfinished(
        run, programs, requests, trials, _ALONE, run.trials, f"try/alone-{stage}"
    )
    missing = [at for at, trial in enumerate(trials) if not trial.outcome.counts]
    if missing:
        again = await run.measure([requests[at] for at in missing], f"try/again-{stage}")
        for at, trial in zip(missing, again, strict=True):
            trials[at] = trial
    return trials


async def _find_pleased(run: RunContext, seen: TryTrials, arms: Sequence[TryArm]) -> dict[str, str]:
    """Return for each skill that seems to help a sentence where its style alone moves the judge,
    else ''.
    """
    sentences = {}
    for arm in arms:
        if arm.decision is not None and arm.decision.answer is TryAnswer.HELPS:
            trials = [
                trial
                for program in (run.base, arm.program)
                for task_trials in seen.of(program).values()
                for trial in task_trials
            ]
            sentences[arm.ref] = await ask_about_style(run, run.val, trials, arm.program)
    return sentences


def _refuse_failing(seen: TryTrials, arms: Sequence[TryArm], base: Program) -> None:
    """Raise ExecutorFailing where no trial of the first stage counts."""
    trials = [
        trial
        for program in (base, *(arm.program for arm in arms))
        for task_trials in seen.of(program).values()
        for trial in task_trials
    ]
    if trials and not any(trial.outcome.counts for trial in trials):
        detail = next((trial.detail for trial in trials if trial.detail), "it did not say why")
        why = detail.rstrip(".")
        hint = "Fix it, then try again."
        raise ExecutorFailing(f"The executor fails, not one trial counted: {why}.", hint)


def _decide(
    run: RunContext, seen: TryTrials, arm: TryArm, stages: int, alpha: float
) -> StageDecision:
    """Return the decision on one skill after the stages so far.

    The decision must hold with missing trials counted as failed.
    """
    repeats, tasks = arm.repeats, len(run.val)
    before, after = (seen.scores(program, repeats) for program in (run.base, arm.program))
    decision = decide_stage(before, after, repeats, stages, tasks, alpha)
    missing = [repeats * tasks - sum(map(len, scores.values())) for scores in (before, after)]
    if missing[0] == missing[1] == 0:
        return decision
    filled = [seen.scores(program, repeats, filled=True) for program in (run.base, arm.program)]
    careful = decide_stage(filled[0], filled[1], repeats, stages, tasks, alpha)
    if careful.answer is decision.answer:
        return decision
    # Later repeats may bring the missing results; after the last stage nothing does.
    answer = TryAnswer.CANNOT_TELL if repeats >= stages else None
    p, p_worse = max(decision.p, careful.p), max(decision.p_worse, careful.p_worse)
    return replace(decision, answer=answer, p=p, p_worse=p_worse)


def _check_reach(
    run: RunContext, seen: TryTrials, waiting: Sequence[TryArm], stage: int, stages: int, arms: int
) -> bool:
    """Return whether an answer is still within reach, and record the forecast."""
    forecasts = []
    for arm in waiting:
        before, after = (seen.scores(program, stage) for program in (run.base, arm.program))
        forecasts.append(forecast_rest(before, after, stage, stages, run.settings.seed))
    whole = max(forecasts, key=lambda forecast: forecast.trials)
    # A continued run has the forecasts of earlier stages.
    if len(run.state.stages) < stage:
        cost = _compute_unit_costs(run)
        fields = _make_forecast_fields(whole, len(run.val), 1 + len(waiting), cost)
        run.note("stage", stage=stage, forecast=fields, open=[arm.ref for arm in waiting])
    return any(forecast.any_answer > HOPELESS for forecast in forecasts)


def _compute_unit_costs(run: RunContext) -> tuple[float | None, float, float]:
    """Return the dollars, tokens and seconds of one trial so far.

    Dollars are None where they are not reported.
    """
    bill = run.state.bill
    done = max(1, bill.trials + bill.trouble)
    return (None if bill.unpriced else bill.cost / done), bill.tokens / done, bill.wall / done


def _note_forecast(run: RunContext, forecast: TryForecast, arms: Sequence[TryArm]) -> None:
    fields = _make_forecast_fields(forecast, len(run.val), 1 + len(arms), None)
    run.note("preflight", estimate=fields, warnings=[])


def _make_forecast_fields(
    forecast: TryForecast, tasks: int, programs: int, unit: tuple[float | None, float, float] | None
) -> dict[str, Any]:
    """Return a forecast as the fields of a record, for all arms.

    unit: the cost of one trial, where that is known.
    """
    # A forecast is for two arms, and all skills share one base.
    share = programs / 2
    likely, most = round(forecast.trials * share), round(forecast.most * share)
    fields: dict[str, Any] = {
        "evaluations": [programs * tasks, most],
        "likely": likely,
        "clear": forecast.clear,
        "found": forecast.found,
    }
    if unit is not None:
        cost, tokens, seconds = unit
        fields |= {
            "cost": None if cost is None else [cost * likely, cost * most],
            "tokens": [round(tokens * likely), round(tokens * most)],
            "seconds": [seconds * likely, seconds * most],
        }
    return fields
