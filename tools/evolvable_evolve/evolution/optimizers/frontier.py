"""The gate of EvoSkill's frontier and of the reflection optimizer of Autogenesis, and these two
optimizers.

A candidate is measured in pairs with its parent on validation, in large sets after a small sample.
In the benchmark both find less than the staged gate at equal trials, so a run uses them only where
its settings name them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Any

from evolvable_evolve.evolution import acceptance, search_operators
from evolvable_evolve.evolution.acceptance import (
    NO_SKILL,
    EvaluationPlan,
    SearchGate,
    mean_scores,
    record_decision,
)
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.ledger import CandidateDecision, RunCandidate, RunPhase
from evolvable_evolve.evolution.operators import CommitResult, EvaluationResult, commit_if_better
from evolvable_evolve.evolution.optimizers.optimizer import Optimizer, plan_edits
from evolvable_evolve.evolution.proposers import Evidence
from evolvable_evolve.evolution.run_config import Admission, ParentStrategy
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.search_operators import training_batch
from evolvable_evolve.evolution.statistics import (
    NARROW_REPEATS,
    PairedScores,
    PowerDesign,
    narrow_sizes,
    pair_scores,
    smallest_gain,
)

# Few trials drop an edit that is plainly worse. One task that came out better is enough to go on.
SCREEN_SIZE = 3
"""The parent's failures, and as many of its passes, that run first where validation is large."""

# The best of many measurements is too good by selection, which a second one corrects.
REMEASURED_BEST = 2
"""Members that are measured once more before one of them is the finalist."""


class AdmissionResult(StrEnum):
    """The result of an offer to a frontier, in words."""

    ADMITTED = "it was admitted"
    NOT_BETTER = "not better than its parent"
    BEHIND = "better than its parent, but behind all of a full frontier"
    DUPLICATE = "the frontier has it already"


@dataclass(frozen=True, slots=True)
class FrontierOffer:
    """The frontier after an offer, and whether the program entered."""

    frontier: "Frontier"
    entry: AdmissionResult

    @property
    def admitted(self) -> bool:
        """Whether the program is now in the frontier."""
        return self.entry is AdmissionResult.ADMITTED


@dataclass(frozen=True, slots=True)
class Frontier:
    """Members in the order of their admission, each with its scores in validation."""

    members: tuple[RunCandidate, ...] = ()
    capacity: int = 3
    admission: Admission = Admission.BETTER_THAN_PARENT

    def offer(
        self, child: RunCandidate, *, gain: float = 0.0, parent: RunCandidate | None = None
    ) -> FrontierOffer:
        """Return the frontier after offering `child`, whose mean paired gain over `parent` is
        `gain`.

        A program without a parent is the first of a run and enters. A child that beats its parent
        but would be the worst of a full frontier stays out as `behind`.
        """
        if any(member.digest == child.digest for member in self.members):
            return FrontierOffer(self, AdmissionResult.DUPLICATE)
        # Equally good and smaller is an improvement: every byte is read in each session.
        tie_won = parent is not None and gain == 0 and child.size < parent.size
        any_parent = parent is None or self.admission is Admission.BETTER_THAN_WORST
        if not (any_parent or gain > 0 or tie_won):
            return FrontierOffer(self, AdmissionResult.NOT_BETTER)
        full = (*self.members, child)
        if len(full) <= self.capacity:
            return FrontierOffer(replace(self, members=full), AdmissionResult.ADMITTED)
        # The child must beat the worst outright: one as good and no smaller does not replace it.
        worst = min(self.members, key=lambda member: member.rank, default=None)
        if worst is None or child.rank <= worst.rank:
            return FrontierOffer(self, AdmissionResult.BEHIND)
        remaining = tuple(member for member in full if member is not worst)
        return FrontierOffer(replace(self, members=remaining), AdmissionResult.ADMITTED)


async def _calibrate(run: RunContext) -> None:
    """Measure the base and the arm without skills, and take the run to CALIBRATED.

    Raises ExecutorFailing, BudgetTooSmall, BudgetSpent, RunStopped.
    """
    # A continued run has its pilot in the ledger.
    if run.state.phase is RunPhase.NEW:
        tasks = training_batch(run, 1)
        await acceptance.run_pilot(run, tasks, _plan_rounds(run, len(tasks)))
    settings, base = run.settings, run.base
    # One repeat more than the search uses: its difference to the others is the noise.
    arms = [(base, repeat) for repeat in range(settings.repeats + 1)]
    if base.parts:
        arms.append((NO_SKILL, 0))
    requests = [(arm, task, repeat) for task in run.val for arm, repeat in arms]
    trials = await run.measure(requests, "calibrate/val")
    used = [trial for trial in trials if trial.repeat < settings.repeats]
    further = [trial for trial in trials if trial.repeat == settings.repeats]
    first, again = mean_scores(used, base.digest), mean_scores(further, base.digest)
    both = [task.id for task in run.val if task.id in first and task.id in again]
    noise = discordance = 0.0
    if both:
        noise = abs(fmean(first[task] for task in both) - fmean(again[task] for task in both))
        discordance = sum(first[task] != again[task] for task in both) / len(both)
    sealed = run.sealed
    design = PowerDesign.of(
        sealed.size, settings.staged_repeats, look=sealed.look, noise=discordance
    )
    run.note(
        "calibrated",
        scores=first,
        again=again,
        no_skill=mean_scores(trials, NO_SKILL.digest),
        missing=[task.id for task in run.val if task.id not in first],
        noise=noise,
        discordance=discordance,
        mde=smallest_gain(design),
        look=sealed.look,
    )


def _plan_rounds(run: RunContext, batch: int) -> EvaluationPlan:
    """Return the plan of a search whose rounds each measure a batch and validation."""
    settings, val, test = run.settings, len(run.val), run.sealed.size
    calibration = (settings.repeats + 2) * val
    search = batch * (1 + settings.rollouts) + settings.repeats * val
    last = 2 * val + 3 * settings.staged_repeats * test
    if run.state.exploratory:
        drawn = sum(narrow_sizes(val, test))
        last = 2 * (settings.test_repeats or NARROW_REPEATS) * drawn
    low = calibration + min(1, settings.proposals) * search + last
    high = calibration + settings.proposals * search + last
    return EvaluationPlan(low, high, high, 2 * val + 3 * (batch + val) + 2 * test)


async def evaluate(run: RunContext, candidate: Program, against: Program) -> EvaluationResult:
    """Return the result of the static gate, of a small sample, or of validation in pairs with the
    parent: of the first that decides.

    Each of them runs once, and later calls read its record. Raises BudgetSpent, RunStopped,
    NeedsPerson.
    """
    why, decision = acceptance.check_before_running(run, candidate, against)
    if decision is None and len(run.val) > run.settings.screen_above:
        why, decision = await _screen(run, candidate, against)
    if decision is not None:
        return EvaluationResult(candidate, against, False, None, why, decision)
    record = run.state.step.get("measured") or await _measure_pairs(run, candidate, against)
    if tampered := record.get("tampered"):
        decision = CandidateDecision.TAMPERED
        return EvaluationResult(candidate, against, False, None, tampered, decision)
    pairs = _pair_means(run, record["parent_scores"], record["scores"])
    if pairs.coverage < run.settings.coverage:
        why = f"only {pairs.coverage:.0%} of validation counted on both sides"
        return EvaluationResult(candidate, against, True, None, why, CandidateDecision.INDECISIVE)
    fixed, broken = len(record["fixed"]), len(record["broken"])
    why = f"{pairs.gain:+.3f} on {len(pairs.tasks)} tasks: {fixed} better, {broken} worse"
    return EvaluationResult(candidate, against, True, pairs.gain, why)


def _pair_means(
    run: RunContext, before: Mapping[str, float], after: Mapping[str, float]
) -> PairedScores:
    first = {task: [score] for task, score in before.items()}
    second = {task: [score] for task, score in after.items()}
    # With all tasks of validation, so that a missing one counts against the coverage.
    return pair_scores(first, second, [task.id for task in run.val])


async def _screen(
    run: RunContext, candidate: Program, against: Program
) -> tuple[str, CandidateDecision | None]:
    """Return the result of a small sample in words, and the decision, None to go on."""
    state = run.state
    record = state.step.get("screened")
    if record is None:
        before = state.candidates[against.digest].scores
        measured, bar = [task for task in run.val if task.id in before], run.settings.fail_below
        failed = [task for task in measured if before[task.id] < bar]
        passing = [task for task in measured if before[task.id] >= bar]
        sample = [*failed[:SCREEN_SIZE], *passing[:SCREEN_SIZE]]
        requests = [(candidate, task, 0) for task in sample]
        trials = await run.measure(requests, f"screen/{state.iteration}")
        after = mean_scores(trials)
        if why := acceptance.tampering_reason(trials):
            return why, CandidateDecision.TAMPERED
        changes = [after[task.id] - before[task.id] for task in sample if task.id in after]
        fixed, broken = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
        record = run.note(
            "screened",
            iteration=state.iteration,
            candidate=candidate.digest,
            # A sample is too small to reject an edit that changes no result.
            passed=fixed > 0 or not broken,
            why=f"of {len(sample)} tasks {fixed} better, {broken} worse",
        )
    return record["why"], None if record["passed"] else CandidateDecision.SCREENED_OUT


async def _measure_pairs(
    run: RunContext, candidate: Program, against: Program
) -> Mapping[str, Any]:
    """Measure a candidate and its parent on validation, and return the record of the result."""
    number = run.state.iteration
    repeats = range(run.settings.repeats)
    # The parent is measured again beside the candidate, so that a drift of the executor favours
    # neither.
    requests = [
        (arm, task, repeat)
        for repeat in repeats
        for task in run.val
        for arm in (against, candidate)
    ]
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
        tampered=acceptance.tampering_reason(trials),
    )


def commit_to_frontier(run: RunContext, evaluated: EvaluationResult) -> CommitResult:
    """Give a candidate a place in the frontier, which is provisional until the sealed test: the
    commit of EvoSkill.
    """
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
    members = tuple(member.digest for member in offer.frontier.members)
    record_decision(run, decision, why, digest, members)
    program = evaluated.candidate if offer.admitted else evaluated.against
    return CommitResult(program, offer.admitted, why)


def commit_single(run: RunContext, evaluated: EvaluationResult) -> CommitResult:
    """Replace the one program by a better one: the commit of the reflection optimizer."""
    committed = commit_if_better(evaluated)
    not_accepted = CandidateDecision(evaluated.decision or CandidateDecision.REJECTED)
    decision = CandidateDecision.ADMITTED if committed.accepted else not_accepted
    record_decision(
        run, decision, committed.why, evaluated.candidate.digest, (committed.program.digest,)
    )
    return committed


async def _choose_finalist(run: RunContext) -> tuple[RunCandidate, float] | None:
    """Return the best of the members that are better than the base, with its gain in validation.

    The best few are measured once more before one of them is the finalist. Raises BudgetSpent,
    RunStopped.
    """
    state = run.state
    base = state.candidates[state.base]
    better = [
        candidate
        for candidate in state.members
        if candidate.digest != state.base and _average_gain(candidate.scores, base.scores) > 0
    ]
    better.sort(key=lambda candidate: (candidate.rank, -candidate.iteration), reverse=True)
    best = better[:REMEASURED_BEST]
    if not best:
        return None
    # A repeat that no comparison used, so that no trial comes from the cache.
    fresh = run.settings.repeats + 1
    arms = [run.base, *(run.program(candidate.digest) for candidate in best)]
    requests = [(arm, task, fresh) for task in run.val for arm in arms]
    trials = await run.measure(requests, "confirm/val")
    anew = {arm.digest: mean_scores(trials, arm.digest) for arm in arms}
    # A continued run has the record already.
    if not state.confirmed:
        run.note("confirmed", scores=anew)
    pooled = {
        digest: _pool_scores(state.candidates[digest].scores, scores, run.settings.repeats)
        for digest, scores in anew.items()
    }
    standing = [
        candidate
        for candidate in best
        if _average_gain(pooled[candidate.digest], pooled[base.digest]) > 0
    ]
    if not standing:
        return None
    finalist = max(
        standing, key=lambda candidate: (fmean(pooled[candidate.digest].values()), -candidate.size)
    )
    # The gain of the first measurement, as the other gates report it.
    return finalist, _average_gain(finalist.scores, base.scores)


def _pool_scores(
    selected: Mapping[str, float], confirmed: Mapping[str, float], repeats: int
) -> dict[str, float]:
    """Return the means over both. repeats: those of `selected`; `confirmed` has one."""
    pooled = {**confirmed, **selected}
    for task in selected.keys() & confirmed.keys():
        pooled[task] = (selected[task] * repeats + confirmed[task]) / (repeats + 1)
    return pooled


def _average_gain(after: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Return the mean difference over the tasks that both have, 0 where there are none."""
    return fmean([after[task] - before[task] for task in after if task in before] or [0.0])


async def _gather(run: RunContext, parent: Program, selected: Mapping[str, Any]) -> list[Evidence]:
    tasks = training_batch(run, selected["batch"])
    return list(await search_operators.gather_evidence(run, parent, selected, tasks))


def _end_reason(run: RunContext, done: int) -> str:
    """Return why the search ends after so many proposals, '' while it goes on."""
    state, settings = run.state, run.settings
    if done >= settings.proposals:
        return f"{done} of {settings.proposals} iterations are done"
    if state.stalls >= settings.stalls:
        return f"{state.stalls} iterations without a new best"
    return ""


FRONTIER = SearchGate(
    _calibrate, _gather, evaluate, commit_to_frontier, _end_reason, _choose_finalist
)
"""The gate that keeps the best few programs, by validation."""

SINGLE = replace(FRONTIER, commit=commit_single)
"""The gate that keeps one program; a candidate meets it on all of validation."""


def evoskill(run: RunContext) -> Optimizer:
    """Return the loop of EvoSkill: a frontier, parents as the settings say, and a new batch in
    every round.
    """
    return plan_edits(run, ParentStrategy(run.settings.parent))


def reflection(run: RunContext) -> Optimizer:
    """Return the reflection optimizer of Autogenesis: one program, executed again only after it
    changed.
    """
    return plan_edits(run, ParentStrategy.BEST, fresh_only=True)
