"""The operators Evaluate and Commit of a run, its cost estimate, and its calibration before the search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from evolvable_evolve.evolution import scorers
from evolvable_evolve.evolution.candidates import Program, check_candidate, find_executable_change
from evolvable_evolve.evolution.ledger import CandidateDecision, RunPhase
from evolvable_evolve.evolution.operators import STRUCTURE_MODE, CommitResult, EvaluationResult, commit_if_better
from evolvable_evolve.evolution.optimizer_registry import AcceptanceGate
from evolvable_evolve.evolution.proposers import ModelAnswer, ModelQuestion, ProposerModel
from evolvable_evolve.evolution.run_config import Admission, RunSettings, default_test_repeats
from evolvable_evolve.evolution.run_context import NeedsPerson, RunContext
from evolvable_evolve.evolution.search_operators import Frontier, training_batch
from evolvable_evolve.evolution.statistics import (
    NARROW_REPEATS,
    PairedScores,
    detectable_gain,
    narrow_sizes,
    pair_scores,
)
from evolvable_evolve.evolution.task import CRASHED, Task, Trial, TrialOutcome, add_usage
from evolvable_store.errors import EvolvableError

SCREEN_SIZE = 3
"""Of the parent's failures, and of its passes, so many tasks come first where validation is large."""


async def evaluate(run: RunContext, candidate: Program, against: Program) -> EvaluationResult:
    """Return what the static gate, then a small sample, then validation in pairs with the parent find.

    Each is done once, however often asked. Raises BudgetSpent, RunStopped, NeedsPerson.
    """
    why, decision = check_before_running(run, candidate, against)
    if decision is None and len(run.val) > run.settings.screen_above:
        why, decision = await _screen(run, candidate, against)
    if decision is not None:
        return EvaluationResult(candidate, against, False, None, why, decision)
    record = run.state.step.get("measured") or await _measure_pairs(run, candidate, against)
    if record.get("tampered"):
        return EvaluationResult(candidate, against, False, None, record["tampered"], CandidateDecision.TAMPERED)
    pairs = _pair_means(run, record["parent_scores"], record["scores"])
    if pairs.coverage < run.settings.coverage:
        why = f"only {pairs.coverage:.0%} of validation counted on both sides"
        return EvaluationResult(candidate, against, True, None, why, CandidateDecision.INDECISIVE)
    fixed, broken = len(record["fixed"]), len(record["broken"])
    why = f"{pairs.gain:+.3f} on {len(pairs.tasks)} tasks: {fixed} better, {broken} worse"
    return EvaluationResult(candidate, against, True, pairs.gain, why)


def check_before_running(run: RunContext, candidate: Program, against: Program) -> tuple[str, CandidateDecision | None]:
    """Return why a candidate may not be measured, with the decision on it; None where it may. Raises NeedsPerson."""
    why, decision = _pass_static_gate(run, candidate, against)
    return _check_allowed(run, candidate) if decision is None else (why, decision)


def _pair_means(run: RunContext, before: Mapping[str, float], after: Mapping[str, float]) -> PairedScores:
    one, other = ({task: [score] for task, score in scores.items()} for scores in (before, after))
    return pair_scores(one, other, [task.id for task in run.val])


def _pass_static_gate(run: RunContext, candidate: Program, against: Program) -> tuple[str, CandidateDecision | None]:
    state = run.state
    record = state.step.get("checked")
    if record is None:
        known = {one.digest for one in state.candidates.values() if one.decision is not None}
        report = check_candidate(
            against,
            candidate,
            corpus=run.corpus,
            known=known,
            moves_skills=run.settings.mode == STRUCTURE_MODE,
        )
        record = run.note(
            "checked",
            iteration=state.iteration,
            candidate=candidate.digest,
            passed=report.passed,
            duplicate=any(one.rule == "duplicate" for one in report.findings),
            why=report.why,
            findings=[str(one) for one in report.findings],
        )
    if record["passed"]:
        return "", None
    return record["why"], CandidateDecision.DUPLICATE if record["duplicate"] else CandidateDecision.REFUSED


def _check_allowed(run: RunContext, candidate: Program) -> tuple[str, CandidateDecision | None]:
    """Return whether a candidate may run; without a sandbox a person decides. Raises NeedsPerson."""
    state, kind = run.state, str(run.settings.executor.get("kind"))
    why = "" if run.sandboxed else find_executable_change(run.base, candidate, kind)
    if not why:
        return "", None
    said = state.allowed.get(candidate.digest)
    if said is None:
        name = state.candidates[candidate.digest].name
        why = f"this machine has no sandbox for trials, and {why}"
        if candidate.digest not in state.held:
            run.note("held", candidate=candidate.digest, name=name, why=why)
        raise NeedsPerson(name, why)
    if said.get("allowed"):
        return "", None
    return "a person did not allow it to run", CandidateDecision.REFUSED


async def _screen(run: RunContext, candidate: Program, against: Program) -> tuple[str, CandidateDecision | None]:
    state = run.state
    record = state.step.get("screened")
    if record is None:
        before = state.candidates[against.digest].scores
        known, bar = [task for task in run.val if task.id in before], run.settings.fail_below
        failed, passing = ([task for task in known if (before[task.id] < bar) is fails] for fails in (True, False))
        sample = [*failed[:SCREEN_SIZE], *passing[:SCREEN_SIZE]]
        trials = await run.measure([(candidate, task, 0) for task in sample], f"screen/{state.iteration}")
        after = mean_scores(trials)
        if why := tampering_reason(trials):
            return why, CandidateDecision.TAMPERED
        fixed = [task.id for task in sample if task.id in after and after[task.id] > before[task.id]]
        broken = [task.id for task in sample if task.id in after and after[task.id] < before[task.id]]
        passed = bool(fixed) or not broken
        why = f"of {len(sample)} tasks {len(fixed)} better, {len(broken)} worse"
        record = run.note("screened", iteration=state.iteration, candidate=candidate.digest, passed=passed, why=why)
    return record["why"], None if record["passed"] else CandidateDecision.SCREENED_OUT


async def _measure_pairs(run: RunContext, candidate: Program, against: Program) -> Mapping[str, Any]:
    number = run.state.iteration
    repeats = range(run.settings.repeats)
    requests = [(arm, task, repeat) for repeat in repeats for task in run.val for arm in (against, candidate)]
    trials = await run.measure(requests, f"val/{number}")
    scores, before = (mean_scores(trials, arm.digest) for arm in (candidate, against))
    pairs = _pair_means(run, before, scores)
    return run.note(
        "measured",
        iteration=number,
        candidate=candidate.digest,
        parent=against.digest,
        scores=scores,
        parent_scores=before,
        missing=list(pairs.missing),
        fixed=list(pairs.fixed),
        broken=list(pairs.broken),
        tampered=tampering_reason(trials),
    )


def tampering_reason(trials: Sequence[Trial]) -> str:
    """Return why these trials are worth nothing, '' when nothing was tampered with."""
    why = next((one.detail for one in trials if one.outcome is TrialOutcome.TAMPERED), "")
    return why and f"discarded: while it was measured, {why}"


def mean_scores(trials: Sequence[Trial], program: str | None = None) -> dict[str, float]:
    """Return the mean score of each task over the repeats that counted; tasks without any are left out."""
    found = values_by_task(trials, program, lambda trial: trial.score)
    return {task: sum(values) / len(values) for task, values in found.items()}


def values_by_task(
    trials: Sequence[Trial], program: str | None, of: Callable[[Trial], float | None]
) -> dict[str, list[float]]:
    """Return by task a value of each trial that counted, under any program where none is named; None is left out."""
    found: dict[str, list[float]] = {}
    for trial in trials:
        if trial.outcome.counts and program in (None, trial.program) and (value := of(trial)) is not None:
            found.setdefault(trial.task, []).append(value)
    return found


def commit_to_frontier(run: RunContext, evaluated: EvaluationResult) -> CommitResult:
    """Commit of EvoSkill: give a candidate a place in the frontier, which is provisional until the sealed test."""
    state, digest = run.state, evaluated.candidate.digest
    if evaluated.decision or not evaluated.safe or evaluated.delta is None:
        decision = CandidateDecision(evaluated.decision or CandidateDecision.REFUSED)
        record_decision(run, decision, evaluated.why, digest)
        return CommitResult(evaluated.against, False, evaluated.why)
    child, parent = state.candidates[digest], state.candidates[evaluated.against.digest]
    frontier = Frontier(tuple(state.members), run.settings.frontier, Admission(run.settings.admit))
    offer = frontier.offer(child, gain=evaluated.delta, parent=parent)
    why = evaluated.why if offer.admitted else f"{offer.entry} ({evaluated.why})"
    decision = CandidateDecision.ADMITTED if offer.admitted else CandidateDecision.REJECTED
    record_decision(run, decision, why, digest, tuple(one.digest for one in offer.frontier.members))
    return CommitResult(evaluated.candidate if offer.admitted else evaluated.against, offer.admitted, why)


def commit_single(run: RunContext, evaluated: EvaluationResult) -> CommitResult:
    """Commit of the reflection optimizer: keep one program, replaced by what is better."""
    committed = commit_if_better(evaluated)
    not_accepted = CandidateDecision(evaluated.decision or CandidateDecision.REJECTED)
    decision = CandidateDecision.ADMITTED if committed.accepted else not_accepted
    record_decision(run, decision, committed.why, evaluated.candidate.digest, (committed.program.digest,))
    return committed


def record_decision(
    run: RunContext, decision: CandidateDecision, why: str, candidate: str = "", frontier: tuple[str, ...] | None = None
) -> None:
    """End an iteration: what became of it, the frontier after it, the best, and how long there was no new one."""
    state = run.state
    members = state.frontier if frontier is None else frontier
    # The staged gate keeps one program: the one before it has given way, whatever it scored once.
    those = set(members) if run.settings.gate is AcceptanceGate.STAGED else {*members, state.best}
    measured = [one for one in map(state.candidates.__getitem__, those) if one.mean is not None]
    # Of equals the smaller is the best, then the older.
    now = max(measured, key=lambda one: (one.rank, -one.iteration), default=None)
    best = now.digest if now else state.best
    stalls = 0 if best != state.best else state.stalls + (decision is not CandidateDecision.INDECISIVE)
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
"""Trials that a run is estimated by; the first of the first training batch, so that nothing of them is lost."""


class BudgetTooSmall(EvolvableError):
    """The budget does not reach for anything that could be found."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """Evaluations, tokens and dollars of a run: the least that it may take, and the most. cost None: no price known.

    floor: evaluations below which not even one candidate could be found and tested. likely: evaluations of a run that
    uses what is planned and opens its test.
    """

    evaluations: tuple[int, int]
    tokens: tuple[int, int]
    cost: tuple[float, float] | None
    floor: int
    likely: int


def test_repeat_count(settings: RunSettings, tasks: int) -> int:
    """Return how often each test task is run under each arm."""
    return settings.test_repeats or default_test_repeats(tasks, settings.final)


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """The least and the most evaluations of a run, the likely number, and the fewest that can find anything."""

    low: int
    high: int
    likely: int
    floor: int


def _plan_rounds(run: RunContext, batch: int) -> EvaluationPlan:
    """Return the plan of a search whose rounds each measure a batch and validation."""
    settings, val, test = run.settings, len(run.val), run.sealed.size
    search, calibration = batch * (1 + settings.rollouts) + settings.repeats * val, (settings.repeats + 2) * val
    last = 2 * val + 3 * test_repeat_count(settings, test) * test
    if run.state.exploratory:
        drawn = sum(narrow_sizes(val, test))
        last = 2 * (settings.test_repeats or NARROW_REPEATS) * drawn
    low, high = (calibration + rounds * search + last for rounds in (min(1, settings.proposals), settings.proposals))
    return EvaluationPlan(low, high, high, 2 * val + 3 * (batch + val) + 2 * test)


def estimate_cost(
    run: RunContext, batch: int, pilot: Sequence[Trial], plan: EvaluationPlan | None = None
) -> CostEstimate:
    """Return the estimate from these trials, which all counted. batch: tasks of one. plan: where it is known.

    Raises BudgetTooSmall when a limit is below what one candidate takes to be found and tested.
    """
    plan = plan or _plan_rounds(run, batch)
    low, high, floor = plan.low, plan.high, plan.floor
    usages = [add_usage(trial.usage, trial.judging) for trial in pilot]
    costs = [usage.cost for usage in usages if usage.cost is not None]
    tokens = [usage.input_tokens + usage.output_tokens for usage in usages]
    calls, limit = [usage.calls for usage in usages], run.settings.limit
    what = "a measurement" if run.settings.purpose == "measure" else "finding and testing a single candidate"
    spent = (("dollars", limit.cost, costs), ("tokens", limit.tokens, tokens), ("calls", limit.calls, calls))
    for unit, most, each in spent:
        least = floor * sum(each) / len(pilot)
        if most is not None and least > most:
            takes = f"the {least:,.0f} that {what} takes ({floor} evaluations)"
            hint = "Raise it and continue, or take fewer tasks."
            raise BudgetTooSmall(f"The budget of {most:g} {unit} is below {takes}.", hint)
    cost = (low * min(costs), high * max(costs)) if len(costs) == len(pilot) else None
    return CostEstimate((low, high), (low * min(tokens), high * max(tokens)), cost, floor, plan.likely)


NO_SKILL = Program()
"""The arm without anything: literally empty."""


class ExecutorFailing(EvolvableError):
    """Not one trial counted when the executor was tried out."""


async def calibrate_run(run: RunContext) -> None:
    """Take the run to CALIBRATED. Raises ExecutorFailing, BudgetTooSmall, BudgetSpent, RunStopped."""
    if run.state.phase is RunPhase.NEW:
        await run_pilot(run, training_batch(run, 1))
    settings, base = run.settings, run.base
    arms = [(base, repeat) for repeat in range(settings.repeats + 1)]
    if base.parts:
        arms.append((NO_SKILL, 0))
    trials = await run.measure([(arm, task, repeat) for task in run.val for arm, repeat in arms], "calibrate/val")
    first = mean_scores([one for one in trials if one.repeat < settings.repeats], base.digest)
    again = mean_scores([one for one in trials if one.repeat == settings.repeats], base.digest)
    both = [task.id for task in run.val if task.id in first and task.id in again]
    differ = [task for task in both if first[task] != again[task]]
    noise = len(differ) / len(both) if both else 0.0
    repeats = test_repeat_count(settings, run.sealed.size)
    run.note(
        "calibrated",
        scores=first,
        again=again,
        no_skill=mean_scores(trials, NO_SKILL.digest),
        missing=[task.id for task in run.val if task.id not in first],
        noise=abs(fmean(first[task] for task in both) - fmean(again[task] for task in both)) if both else 0.0,
        discordance=noise,
        mde=detectable_gain(run.sealed.size, look=run.sealed.look, noise=noise, repeats=repeats),
        look=run.sealed.look,
    )


async def run_pilot(run: RunContext, tasks: Sequence[Task], plan: EvaluationPlan | None = None) -> None:
    """Take the run to CHECKED: estimate what it takes by its first trials. Raises ExecutorFailing, BudgetTooSmall."""
    batch = f"pilot/{run.state.pilots + 1}"  # what failed in one that is over is not taken for the next
    pilot = await run.measure([(run.base, task, 0) for task in tasks[:PILOT_TRIALS]], batch)
    counted = [trial for trial in pilot if trial.outcome.counts and not trial.detail.startswith(CRASHED)]
    if not counted:
        why = next((trial.detail for trial in pilot if trial.detail), "it did not say why").rstrip(".")
        run.note("pilot", why=why)
        hint = "Fix it, then continue the run, or start another where the task set or the program has to change."
        raise ExecutorFailing(f"The executor fails, not one trial counted: {why}.", hint)
    guess = estimate_cost(run, len(tasks), counted, plan)
    warnings = []
    if run.state.exploratory:
        warnings.append("There are too few tasks, or groups of them, for a claim about others: only one about these.")
    run.note("preflight", estimate=asdict(guess), warnings=warnings)


async def calibrate_judge(run: RunContext, judging: scorers.JudgeSetup, model: ProposerModel, label: str) -> None:
    """Have the judge score the known answers of each rubric, and record how often it was right.

    model: the judge, as it is asked now. label: of the executor that runs the tasks.
    Raises JudgeRefused when it is wrong too often, ScorerError when it gives no answer, BudgetSpent, RunStopped.
    """
    for rubric, samples in judging.samples.items():
        known = scorers.samples_digest(samples)
        kept = [one for one in run.state.judges if (one["by"], one["known"]) == (model.name, known)]
        if kept:
            found = scorers.JudgeCalibration.from_record(kept[-1])
        else:
            found = await scorers.run_judge_calibration(_PaidJudge(run, model), rubric, samples)
            run.note(
                "judge",
                by=model.name,
                label=model.label,
                known=known,
                calibration=asdict(found),
                agreement=found.agreement,
                passed=found.passes,
                about=rubric[:200],
                warning=scorers.family_warning(run.settings.executor, model.name, label),
            )
        scorers.check_calibration(found)
        judging.calibrations[scorers.rubric_digest(rubric)] = found


class _PaidJudge:
    """A judge whose questions are reserved in the run's budget and recorded."""

    def __init__(self, run: RunContext, model: ProposerModel) -> None:
        self._run, self._model = run, model
        self.name, self.label = model.name, model.label

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        self._run.check()
        answer = await self._run.ask_reserved(self._model, question, ("", "judge"), most_output=0)
        self._run.paid("", "judge", answer.usage, self.name)
        return answer
