"""The operator Evaluate: everything a candidate has to pass before it may be committed, and the paired measurement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolvable_tools.evolve.change_review import what_runs
from evolvable_tools.evolve.gates.pairs import pair
from evolvable_tools.evolve.operators import Evaluated
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.rollout import Outcome, Trial
from evolvable_tools.evolve.run import NeedsPerson, Run
from evolvable_tools.evolve.run_state import Candidate, Decision
from evolvable_tools.evolve.task import Task

SCREENED = 3
"""Of the parent's failures, and of its passes, so many tasks come first where validation is large."""


@dataclass(frozen=True, slots=True)
class Measured(Evaluated):
    """What Evaluate found, with how the run calls it when it is not for the frontier to decide."""

    decision: Decision | None = None


class Evaluation:
    """Static gate, then a small sample, then validation in pairs with the parent; each once, however often asked."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __call__(self, candidate: Program, against: Program) -> Evaluated:
        """Returns what was found. Raises BudgetSpent, Stopped."""
        why, decision = self._static(candidate, against)
        if decision is None:
            why, decision = self._allowed(candidate)
        if decision is None and len(self._run.val) > self._run.settings.screen_above:
            why, decision = await self._screened(candidate, against)
        if decision is not None:
            return Measured(candidate, against, False, None, why, decision)
        record = self._run.state.step.get("measured") or await self._measured(candidate, against)
        if record.get("tampered"):
            return Measured(candidate, against, False, None, record["tampered"], Decision.TAMPERED)
        pairs = pair(_lists(record["parent_scores"]), _lists(record["scores"]), [task.id for task in self._run.val])
        if pairs.coverage < self._run.settings.coverage:
            why = f"only {pairs.coverage:.0%} of validation counted on both sides"
            return Measured(candidate, against, True, None, why, Decision.INDECISIVE)
        fixed, broken = len(record["fixed"]), len(record["broken"])
        why = f"{pairs.gain:+.3f} on {len(pairs.tasks)} tasks: {fixed} better, {broken} worse"
        return Measured(candidate, against, True, pairs.gain, why)

    def _static(self, candidate: Program, against: Program) -> tuple[str, Decision | None]:
        run, state = self._run, self._run.state
        record = state.step.get("checked")
        if record is None:
            from evolvable_tools.evolve.static_gate.gate import static_gate

            known = {one.digest for one in state.candidates.values() if one.decision is not None}
            report = static_gate(
                against, candidate, tasks=[*run.train, *run.val], judge_texts=run.judge_texts, known=known
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
        return record["why"], Decision.DUPLICATE if record["duplicate"] else Decision.REFUSED

    def _allowed(self, candidate: Program) -> tuple[str, Decision | None]:
        """Return whether a candidate may run; without a sandbox a person decides. Raises NeedsPerson."""
        run, state = self._run, self._run.state
        why = "" if run.apart else what_runs(run.base, candidate, str(run.settings.executor.get("kind")))
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
        return "a person did not allow it to run", Decision.REFUSED

    async def _screened(self, candidate: Program, against: Program) -> tuple[str, Decision | None]:
        run, state = self._run, self._run.state
        record = state.step.get("screened")
        if record is None:
            before = state.candidates[against.digest].scores
            sample = _sample(run.val, before, run.settings.fail_below)
            trials = await run.measure([(candidate, task, 0) for task in sample], f"screen/{state.iteration}")
            after = means(trials)
            if why := tampered(trials):
                return why, Decision.TAMPERED
            fixed = [task.id for task in sample if task.id in after and after[task.id] > before[task.id]]
            broken = [task.id for task in sample if task.id in after and after[task.id] < before[task.id]]
            passed = bool(fixed) or not broken
            why = f"of {len(sample)} tasks {len(fixed)} better, {len(broken)} worse"
            record = run.note("screened", iteration=state.iteration, candidate=candidate.digest, passed=passed, why=why)
        return record["why"], None if record["passed"] else Decision.SCREENED_OUT

    async def _measured(self, candidate: Program, against: Program) -> Mapping[str, Any]:
        run, number = self._run, self._run.state.iteration
        repeats = range(run.settings.repeats)
        requests = [(arm, task, repeat) for repeat in repeats for task in run.val for arm in (against, candidate)]
        trials = await run.measure(requests, f"val/{number}")
        scores, before = (means(trials, arm.digest) for arm in (candidate, against))
        pairs = pair(_lists(before), _lists(scores), [task.id for task in run.val])
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
            tampered=tampered(trials),
        )


def tampered(trials: Sequence[Trial]) -> str:
    """Returns why these trials are worth nothing, '' when nothing was tampered with."""
    why = next((one.detail for one in trials if one.outcome is Outcome.TAMPERED), "")
    return why and f"discarded: while it was measured, {why}"


def means(trials: Sequence[Trial], program: str | None = None) -> dict[str, float]:
    """Returns the mean score of each task over the repeats that counted; tasks without any are left out."""
    scores: dict[str, list[float]] = {}
    for trial in trials:
        if trial.score is not None and trial.outcome.counts and program in (None, trial.program):
            scores.setdefault(trial.task, []).append(trial.score)
    return {task: sum(values) / len(values) for task, values in scores.items()}


def _lists(scores: Mapping[str, float]) -> dict[str, list[float]]:
    return {task: [score] for task, score in scores.items()}


def _sample(val: Sequence[Task], before: Mapping[str, float], bar: float) -> list[Task]:
    failed = [task for task in val if task.id in before and before[task.id] < bar]
    passed = [task for task in val if task.id in before and before[task.id] >= bar]
    return [*failed[:SCREENED], *passed[:SCREENED]]


def best_of(candidates: Sequence[Candidate]) -> Candidate | None:
    """Returns the one with the highest validation score; of equals the smaller, then the older."""
    measured = [one for one in candidates if one.mean is not None]
    return min(measured, key=lambda one: (-(one.mean or 0.0), one.size, one.iteration), default=None)
