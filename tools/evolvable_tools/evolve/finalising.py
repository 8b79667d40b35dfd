"""The end of a run: one finalist against the base and against nothing, on the sealed test, by one exact test."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from evolvable_tools.evolve.budget import BudgetSpent
from evolvable_tools.evolve.calibrating import NO_SKILL
from evolvable_tools.evolve.canary_tasks import answered, canary_tasks
from evolvable_tools.evolve.estimating import test_repeats
from evolvable_tools.evolve.evaluating import means
from evolvable_tools.evolve.gates.cost import Costs
from evolvable_tools.evolve.gates.verdict import Ruling, verdict
from evolvable_tools.evolve.interleaving import Request
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.rollout import Trial, Usage
from evolvable_tools.evolve.run import Run
from evolvable_tools.evolve.run_state import Candidate

REMEASURED = 2
"""How many of the best are measured once more before one of them is the finalist."""


async def finalise(run: Run) -> None:
    """Takes the run to its verdict; the test is opened only for a finalist that is still better when measured anew.

    Raises BudgetSpent when the budget ends before the test, and Stopped.
    """
    state = run.state
    if state.exploratory:
        _without_test(run, Ruling.INDECISIVE, "There are too few tasks for a claim; the test was not opened.")
        return
    try:
        finalist = await _finalist(run)
    except BudgetSpent as error:
        _without_test(run, Ruling.INDECISIVE, f"{error} The test was not opened.")
        return
    if finalist is None:
        why = "Nothing was found that is better than the base in validation; the test was not opened."
        _without_test(run, Ruling.NOT_SUPPORTED, why)
        return
    await _tested(run, finalist)


async def _finalist(run: Run) -> Candidate | None:
    """Returns the best of those that are better than the base, over all that was measured of them and fresh runs."""
    state = run.state
    base = state.candidates[state.base]
    better = [one for one in state.members if one.digest != state.base and _gain(one.scores, base.scores) > 0]
    better.sort(key=lambda one: (-(one.mean or 0.0), one.size, one.iteration))
    best = better[:REMEASURED]
    if not best:
        return None
    fresh = run.settings.repeats + 1
    arms = [run.base, *(run.program(one.digest) for one in best)]
    trials = await run.measure([(arm, task, fresh) for task in run.val for arm in arms], "confirm/val")
    anew = {arm.digest: means(trials, arm.digest) for arm in arms}
    if not state.confirmed:
        run.note("confirmed", scores=anew)
    pooled = {one.digest: _pooled(one.scores, anew[one.digest], run.settings.repeats) for one in (base, *best)}
    standing = [one for one in best if _gain(pooled[one.digest], pooled[base.digest]) > 0]
    return max(standing, key=lambda one: (fmean(pooled[one.digest].values()), -one.size), default=None)


def _pooled(selected: Mapping[str, float], anew: Mapping[str, float], repeats: int) -> dict[str, float]:
    both = {**anew, **selected}
    return {
        task: (selected[task] * repeats + anew[task]) / (repeats + 1) if task in selected and task in anew else score
        for task, score in both.items()
    }


def _gain(after: Mapping[str, float], before: Mapping[str, float]) -> float:
    return fmean([after[task] - before[task] for task in after if task in before] or [0.0])


async def _tested(run: Run, finalist: Candidate) -> None:
    settings, state, base = run.settings, run.state, run.base
    program = run.program(finalist.digest)
    repeats = test_repeats(settings, run.sealed.size)
    arms = [base, program] + ([NO_SKILL] if base.parts and program.parts else [])
    if not state.looks:
        short = _too_dear(run, len(arms) * repeats * run.sealed.size)
        if short:
            _without_test(run, Ruling.INDECISIVE, short, finalist.digest)
            return
    tasks, look, measures = run.sealed.opened(run.folder.id, finalist.digest)
    if not state.looks:
        run.note("look", look=look, test_digest=settings.test_digest, candidate=finalist.digest)
    requests: list[Request] = [(arm, task, r) for r in range(repeats) for task in tasks for arm in arms]
    canaries = canary_tasks(run.folder, tasks, run.plant)
    for at, canary in enumerate(canaries, 1):  # among the others: nothing tells that it is none of them
        requests.insert(at * len(requests) // (len(canaries) + 1), (program, canary.task, 0))
    run.check()
    try:
        trials = await run.measured(measures, requests, "test/verdict")
    except BudgetSpent as error:
        _without_test(run, Ruling.INDECISIVE, f"{error} The test was opened and not finished.", finalist.digest)
        return
    cheated = answered(canaries, trials)
    own = {canary.task.id for canary in canaries}
    counted = [trial for trial in trials if trial.task not in own]
    _rule(run, finalist, arms, [task.id for task in tasks], counted, look, (len(canaries), cheated))


def _rule(
    run: Run,
    finalist: Candidate,
    arms: Sequence[Program],
    tasks: list[str],
    trials: Sequence[Trial],
    look: int,
    canaries: tuple[int, list[str]],
) -> None:
    base, program, state = arms[0].digest, arms[1].digest, run.state
    scores = {arm.digest: _scores(trials, arm.digest) for arm in arms}
    tokens = {arm.digest: _tokens(trials, arm.digest) for arm in arms}
    said = verdict(
        scores[base],
        scores[NO_SKILL.digest] if len(arms) > 2 else None,
        scores[program],
        look=look,
        tasks=tasks,
        costs=Costs(tokens[base], tokens[program], limit=run.settings.cost_rise),
        seed=run.settings.seed,
    )
    ruling, why = said.ruling, said.why
    asked, cheated = canaries
    if cheated:
        ruling = Ruling.DISQUALIFIED
        why = (
            f"{finalist.name} gave the answers of {len(cheated)} of {asked} canary tasks ({', '.join(cheated)}), which"
            " nobody can have who did not read the expected answers: nothing that it scored counts."
        )
    extra = [trial.usage.cost for trial in trials if trial.usage.cost is not None]
    run.note(
        "verdict",
        verdict=ruling,
        candidate=finalist.digest,
        why=why,
        canaries={"asked": asked, "answered": cheated},
        look=look,
        alpha=said.alpha,
        p=said.p,
        delta=said.against_base.gain,
        interval=list(said.interval),
        n=said.against_base.n,
        repeats=len(trials) // max(1, len(arms) * len(tasks)),
        against_base=asdict(said.against_base),
        against_no_skill=asdict(said.against_no_skill) if said.against_no_skill else None,
        cost=asdict(said.cost) if said.cost else None,
        test_cost=sum(extra) if extra else None,
        base={task: fmean(values) for task, values in scores[base].items()},
        finalist={task: fmean(values) for task, values in scores[program].items()},
        no_skill={task: fmean(values) for task, values in scores.get(NO_SKILL.digest, {}).items()},
        val={"base": state.candidates[base].mean, "finalist": finalist.mean},
    )


def _without_test(run: Run, ruling: Ruling, why: str, candidate: str = "") -> None:
    look = run.state.looks
    run.note("verdict", verdict=ruling, candidate=candidate, why=why, look=look, p=None, delta=None, interval=None, n=0)


def _too_dear(run: Run, evaluations: int) -> str:
    """Returns why the rest of the budget does not reach for so many evaluations, '' when it does.

    A look is not spent on a test that cannot be finished.
    """
    spent = run.state.bill
    ran = max(1, spent.trials + spent.trouble)
    each = Usage(spent.input_tokens // ran, spent.output_tokens // ran, spent.calls // ran, spent.cost / ran)
    needs: dict[str, Any] = {
        "cost": (each.cost or 0.0) * evaluations,
        "tokens": (each.input_tokens + each.output_tokens) * evaluations,
        "calls": each.calls * evaluations,
        "wall": 0.0,
    }
    left = {
        "cost": (run.budget.limits.cost, run.budget.bill.cost),
        "tokens": (run.budget.limits.tokens, run.budget.bill.tokens),
        "calls": (run.budget.limits.calls, run.budget.bill.calls),
    }
    for what, (limit, used) in left.items():
        if limit is not None and used + needs[what] > limit:
            return (
                f"The test takes {evaluations} evaluations, for which the rest of the budget ({what}) does not reach;"
                " it was not opened."
            )
    return ""


def _scores(trials: Sequence[Trial], program: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for trial in trials:
        if trial.program == program and trial.outcome.counts and trial.score is not None:
            found.setdefault(trial.task, []).append(trial.score)
    return found


def _tokens(trials: Sequence[Trial], program: str) -> dict[str, float]:
    found: dict[str, list[int]] = {}
    for trial in trials:
        usage = trial.usage
        if trial.program == program and trial.outcome.counts and usage.input_tokens + usage.output_tokens:
            found.setdefault(trial.task, []).append(usage.input_tokens + usage.output_tokens)
    return {task: fmean(values) for task, values in found.items()}
