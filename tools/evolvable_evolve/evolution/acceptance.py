"""Parts of every gate of a search: checks before a candidate runs, decisions, the pilot and its
cost estimate.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evolvable_evolve.evolution import scorers
from evolvable_evolve.evolution.candidates import Program, check_candidate, find_executable_change
from evolvable_evolve.evolution.ledger import CandidateDecision, RunCandidate
from evolvable_evolve.evolution.operators import STRUCTURE_MODE, CommitResult, EvaluationResult
from evolvable_evolve.evolution.optimizer_registry import AcceptanceGate
from evolvable_evolve.evolution.proposers import Evidence, ModelAnswer, ModelQuestion, ProposerModel
from evolvable_evolve.evolution.run_context import NeedsPerson, RunContext
from evolvable_evolve.evolution.task import CRASHED, Task, Trial, TrialOutcome, add_usage
from evolvable_store.errors import EvolvableError


def check_before_running(
    run: RunContext, candidate: Program, against: Program
) -> tuple[str, CandidateDecision | None]:
    """Return why a candidate may not be measured, with the decision on it; None where it may.

    Raises NeedsPerson.
    """
    why, decision = _pass_static_gate(run, candidate, against)
    return _check_allowed(run, candidate) if decision is None else (why, decision)


def _pass_static_gate(
    run: RunContext, candidate: Program, against: Program
) -> tuple[str, CandidateDecision | None]:
    state = run.state
    record = state.step.get("checked")
    # A continued run has checked the candidate already.
    if record is None:
        # A candidate of an iteration that was cut off has no decision, and is not its own
        # duplicate.
        decided_digests = {
            other.digest for other in state.candidates.values() if other.decision is not None
        }
        report = check_candidate(
            against,
            candidate,
            corpus=run.corpus,
            known_digests=decided_digests,
            moves_skills=run.settings.mode == STRUCTURE_MODE,
        )
        record = run.note(
            "checked",
            iteration=state.iteration,
            candidate=candidate.digest,
            passed=report.passed,
            duplicate=any(finding.rule == "duplicate" for finding in report.findings),
            why=report.why,
            findings=[str(finding) for finding in report.findings],
        )
    if record["passed"]:
        return "", None
    is_duplicate = record["duplicate"]
    decision = CandidateDecision.DUPLICATE if is_duplicate else CandidateDecision.REFUSED
    return record["why"], decision


def _check_allowed(run: RunContext, candidate: Program) -> tuple[str, CandidateDecision | None]:
    """Return whether a candidate may run; without a sandbox a person decides.

    Raises NeedsPerson.
    """
    state, kind = run.state, str(run.settings.executor.get("kind"))
    # Inside of a sandbox nothing that it runs can do harm.
    why = "" if run.sandboxed else find_executable_change(run.base, candidate, kind)
    if not why:
        return "", None
    permission = state.allowed.get(candidate.digest)
    if permission is None:
        name = state.candidates[candidate.digest].name
        why = f"this machine has no sandbox for trials, and {why}"
        # Once: the run comes here again each time it is continued.
        if candidate.digest not in state.held:
            run.note("held", candidate=candidate.digest, name=name, why=why)
        raise NeedsPerson(name, why)
    if permission.get("allowed"):
        return "", None
    return "a person did not allow it to run", CandidateDecision.REFUSED


def tampering_reason(trials: Sequence[Trial]) -> str:
    """Return why these trials do not count, '' when nothing was tampered with."""
    why = next((trial.detail for trial in trials if trial.outcome is TrialOutcome.TAMPERED), "")
    return why and f"discarded: while it was measured, {why}"


def mean_scores(trials: Sequence[Trial], program: str | None = None) -> dict[str, float]:
    """Return the mean score of each task over the repeats that counted.

    Tasks without any are left out.
    """
    scores = values_by_task(trials, program, lambda trial: trial.score)
    return {task: sum(values) / len(values) for task, values in scores.items()}


def values_by_task(
    trials: Sequence[Trial], program: str | None, of: Callable[[Trial], float | None]
) -> dict[str, list[float]]:
    """Return by task the values of the trials that counted, without None.

    program: None for trials under any program. of: returns the value of a trial.
    """
    by_task: dict[str, list[float]] = {}
    for trial in trials:
        if not trial.outcome.counts or program not in (None, trial.program):
            continue
        value = of(trial)
        if value is not None:
            by_task.setdefault(trial.task, []).append(value)
    return by_task


def record_decision(
    run: RunContext,
    decision: CandidateDecision,
    why: str,
    candidate: str = "",
    frontier: tuple[str, ...] | None = None,
) -> None:
    """End an iteration: record its decision, the frontier after it, the best, and the iterations
    without a new best.
    """
    state = run.state
    members = state.frontier if frontier is None else frontier
    # The staged gate keeps one program: a replaced one is no longer the best, whatever it scored.
    digests = set(members) if run.settings.gate is AcceptanceGate.STAGED else {*members, state.best}
    measured = [
        state.candidates[digest] for digest in digests if state.candidates[digest].mean is not None
    ]
    # Of equals the smaller is the best, then the older.
    now = max(measured, key=lambda member: (member.rank, -member.iteration), default=None)
    best = now.digest if now else state.best
    stalls = 0
    if best == state.best:
        # An indecisive result says nothing about the search, so it is no stall.
        stalls = state.stalls + (decision is not CandidateDecision.INDECISIVE)
    run.journal.note(
        "decided",
        iteration=state.iteration,
        candidate=candidate,
        decision=decision,
        why=why,
        frontier=list(members),
        best=best,
        stalls=stalls,
    )


PILOT_TRIALS = 3
"""Trials by which a run is estimated.

They are the first of the first training batch, so that none is wasted.
"""


class BudgetTooSmall(EvolvableError):
    """The budget does not suffice for anything that could be found."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Evaluations, tokens and dollars of a run: the least that it may take, and the most. cost
    None: no price known.

    floor: evaluations below which not even one candidate could be found and tested. likely:
    evaluations of a run that uses its whole plan and opens its test.
    """

    evaluations: tuple[int, int]
    tokens: tuple[int, int]
    cost: tuple[float, float] | None
    floor: int
    likely: int


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """The least and the most evaluations of a run, the likely number, and the fewest that can find
    anything.
    """

    low: int
    high: int
    likely: int
    floor: int


def estimate_cost(run: RunContext, pilot: Sequence[Trial], plan: EvaluationPlan) -> CostEstimate:
    """Return the estimate from these trials, all of which counted.

    Raises BudgetTooSmall when a limit is too low to find and test one candidate.
    """
    low, high, floor = plan.low, plan.high, plan.floor
    usages = [add_usage(trial.usage, trial.judging) for trial in pilot]
    costs = [usage.cost for usage in usages if usage.cost is not None]
    tokens = [usage.input_tokens + usage.output_tokens for usage in usages]
    calls, limit = [usage.calls for usage in usages], run.settings.limit
    what = "finding and testing a single candidate"
    if run.settings.purpose == "measure":
        what = "a measurement"
    spent = (
        ("dollars", limit.cost, costs),
        ("tokens", limit.tokens, tokens),
        ("calls", limit.calls, calls),
    )
    for unit, most, each in spent:
        least = floor * sum(each) / len(pilot)
        if most is not None and least > most:
            takes = f"the {least:,.0f} that {what} takes ({floor} evaluations)"
            hint = "Raise it and continue, or take fewer tasks."
            raise BudgetTooSmall(f"The budget of {most:g} {unit} is below {takes}.", hint)
    # One trial without a price makes the sum unknown.
    cost = (low * min(costs), high * max(costs)) if len(costs) == len(pilot) else None
    token_range = (low * min(tokens), high * max(tokens))
    return CostEstimate((low, high), token_range, cost, floor, plan.likely)


NO_SKILL = Program()
"""The arm without any resource."""


class ExecutorFailing(EvolvableError):
    """No trial counted when the executor was tried."""


@dataclass(frozen=True, slots=True)
class SearchGate:
    """A gate of a search, which accepts or rejects candidates. The sealed test after it is the same
    for all gates.

    calibrate: takes the run to CALIBRATED, with its pilot. gather: returns the evidence that an
    iteration begins with. evaluate, commit: the operators of these names. end_reason: returns why
    no proposal follows after so many, '' while one does. choose_finalist: returns the finalist with
    its gain in the search, None without one.
    """

    calibrate: Callable[[RunContext], Awaitable[None]]
    gather: Callable[[RunContext, Program, Mapping[str, Any]], Awaitable[Sequence[Evidence]]]
    evaluate: Callable[[RunContext, Program, Program], Awaitable[EvaluationResult]]
    commit: Callable[[RunContext, EvaluationResult], CommitResult]
    end_reason: Callable[[RunContext, int], str]
    choose_finalist: Callable[[RunContext], Awaitable[tuple[RunCandidate, float] | None]]


async def run_pilot(run: RunContext, tasks: Sequence[Task], plan: EvaluationPlan) -> None:
    """Take the run to CHECKED: estimate its cost by its first trials.

    Raises ExecutorFailing, BudgetTooSmall.
    """
    # Failures of an earlier pilot are not reused under a new name.
    batch = f"pilot/{run.state.pilots + 1}"
    pilot = await run.measure([(run.base, task, 0) for task in tasks[:PILOT_TRIALS]], batch)
    # A crash counts as a failed task, but says that the executor does not work.
    counted = [
        trial for trial in pilot if trial.outcome.counts and not trial.detail.startswith(CRASHED)
    ]
    if not counted:
        detail = next((trial.detail for trial in pilot if trial.detail), "it did not say why")
        why = detail.rstrip(".")
        run.note("pilot", why=why)
        hint = (
            "Fix it, then continue the run, or start another where the task set or the program "
            "has to change."
        )
        raise ExecutorFailing(f"The executor fails, not one trial counted: {why}.", hint)
    guess = estimate_cost(run, counted, plan)
    warnings = []
    if run.state.exploratory:
        warnings.append(
            "There are too few tasks, or groups of them, for a claim about others: only one "
            "about these."
        )
    run.note("preflight", estimate=asdict(guess), warnings=warnings)


async def calibrate_judge(
    run: RunContext, judging: scorers.JudgeSetup, model: ProposerModel, label: str
) -> scorers.JudgeScorer:
    """Have the judge score the known answers of each rubric, record how often it was right, and
    return it.

    model: the judge, as it is asked now. label: of the executor that runs the tasks. Raises
    JudgeRefused when it is wrong too often, ScorerError when it gives no answer, BudgetSpent,
    RunStopped.
    """
    for rubric, samples in judging.samples.items():
        sample_digest = scorers.samples_digest(samples)
        # The same judge on the same answers is not paid twice.
        earlier = [
            record
            for record in run.state.judges
            if (record["by"], record["known"]) == (model.name, sample_digest)
        ]
        if earlier:
            calibration = scorers.JudgeCalibration.from_record(earlier[-1])
        else:
            calibration = await scorers.run_judge_calibration(
                _PaidJudge(run, model), rubric, samples
            )
            run.note(
                "judge",
                by=model.name,
                label=model.label,
                known=sample_digest,
                calibration=asdict(calibration),
                agreement=calibration.agreement,
                passed=calibration.passes,
                about=rubric[:200],
                warning=scorers.family_warning(run.settings.executor, model.name, label),
            )
        scorers.check_calibration(calibration)
        judging.calibrations[scorers.rubric_digest(rubric)] = calibration
    return scorers.JudgeScorer(_PaidJudge(run, model), judging.calibrations)


class _PaidJudge:
    """A judge whose questions are reserved in the run's budget and recorded."""

    def __init__(self, run: RunContext, model: ProposerModel) -> None:
        self._run, self._model = run, model
        self.name, self.label = model.name, model.label

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        self._run.check()
        answer = await self._run.ask_reserved(self._model, question, ("", "judge"), most_output=0)
        self._run.record_cost("", "judge", answer.usage, self.name)
        return answer
