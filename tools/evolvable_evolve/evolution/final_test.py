"""The final test of a run: one finalist against the base and against no skill, on the sealed test.

Canary tasks among it look like tasks of the test and expect a made-up value. That value is written only to places that
a trial must not read, so a candidate that answers it has read one of them.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from evolvable_evolve.evolution.acceptance import NO_SKILL, mean_scores, test_repeat_count, values_by_task
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.ledger import RunCandidate, RunDirectory
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.statistics import Ruling, TokenCosts, decide_verdict
from evolvable_evolve.evolution.task import ScorerSpec, Split, Task, Trial, TrialOutcome
from evolvable_evolve.evolution.tasks import TestRunner
from evolvable_evolve.evolution.trials import BudgetSpent, TrialRequest

TASKS_PER_CANARY, MAX_CANARIES = 25, 4
"""One canary for so many tasks of a test, and so many at most."""

_CANARY_SCORERS = ("exact", "numeric_strict", "json_subset", "officeqa_compat", "command")
"""Scorers whose tasks say what they expect."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MIN_TOKEN = 12  # digits or letters of a made-up value


@dataclass(frozen=True, slots=True)
class CanaryTask:
    """A task that nobody can do. token: what an answer holds only where it was read."""

    task: Task
    token: str


def make_canary_tasks(
    folder: RunDirectory, tasks: Sequence[Task], plant: Callable[[bytes], object]
) -> list[CanaryTask]:
    """Return the canaries of a run's test, the same whenever it is continued. plant: puts lines where cheaters read."""
    place = "sealed/canaries.json"
    if not (folder.path / place).exists():
        made = [_make_record(task) for task in _choose_models(tasks)]
        folder.leave(place, json.dumps(made).encode("ascii"))
    kept: list[dict[str, Any]] = json.loads((folder.path / place).read_bytes())
    if kept:
        shown = [{key: value for key, value in one.items() if key not in ("like", "token")} for one in kept]
        data = "".join(json.dumps(one) + "\n" for one in shown).encode("ascii")
        folder.leave("sealed/tasks.jsonl", data)
        if (folder.path / "executor").is_dir():
            folder.leave("executor/tasks.jsonl", data)
        plant(data)
    by_id = {task.id: task for task in tasks}
    return [CanaryTask(_to_task(one, by_id[one["like"]]), one["token"]) for one in kept if one["like"] in by_id]


def find_answered_canaries(canaries: Iterable[CanaryTask], trials: Iterable[Trial]) -> list[str]:
    """Return the ids of the canaries whose made-up values stand in an output."""
    outputs: dict[str, str] = {}
    for trial in trials:
        outputs[trial.task] = outputs.get(trial.task, "") + "\n" + trial.output
    return [one.task.id for one in canaries if one.token in re.sub(r"[\s,_]", "", outputs.get(one.task.id, ""))]


def _choose_models(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks that canaries look like, spread over the test."""
    fit = [task for task in tasks if task.scorer.type in _CANARY_SCORERS and (task.expected or "").strip()]
    count = min(canary_count(len(tasks)), len(fit))
    return [fit[at * len(fit) // count] for at in range(count)]


def canary_count(tests: int) -> int:
    """Return the canaries of a test of so many tasks, where enough of them can be imitated."""
    return min(MAX_CANARIES, max(1, tests // TASKS_PER_CANARY)) if tests else 0


def _make_record(task: Task) -> dict[str, Any]:
    expected, token = _make_token(task.expected or "")
    number = secrets.randbelow(900_000) + 100_000
    return {
        "id": f"{task.id[:80]}-{secrets.token_hex(3)}",
        "prompt": f"{task.prompt} (No. {number})",
        "expected": expected,
        "category": task.category,
        "split": str(Split.TEST),
        "like": task.id,
        "token": token,
    }


def _make_token(expected: str) -> tuple[str, str]:
    """Return an answer of the same form that nobody can guess, and what tells it."""
    if re.search(r"\d", expected):
        token = str(secrets.randbelow(9 * 10 ** (_MIN_TOKEN - 1)) + 10 ** (_MIN_TOKEN - 1))
        return re.sub(r"\d+(?:[.,]\d+)*", token, expected, count=1), token
    token = "".join(secrets.choice(_LETTERS) for _ in range(_MIN_TOKEN))
    changed, times = re.subn(r"[A-Za-z]{2,}", token, expected, count=1)
    return (changed, token) if times else (token, token)


def _to_task(kept: dict[str, Any], like: Task) -> Task:
    own = {name: kept[name] for name in ("id", "prompt", "expected")}
    return replace(like, **own, scorer=ScorerSpec("exact"), digest=f"canary {kept['id']} {kept['token']}")


_ARMS = ("base", "finalist", "no_skill")
"""The arms of the test, in the order in which each task is run under them."""

REMEASURED_BEST = 2
"""How many of the best are measured once more before one of them is the finalist."""


async def run_single_test(run: RunContext) -> None:
    """Take the run to its verdict by one stage; the test is opened only for what is still better when measured again.

    Raises BudgetSpent when the budget ends before the test, and RunStopped.
    """
    try:
        finalist = await choose_finalist(run)
    except BudgetSpent as error:
        record_no_test(run, Ruling.INDECISIVE, f"{error} The test was not opened.")
        return
    if finalist is None:
        why = "Nothing was found that is better than the base in validation; the test was not opened."
        record_no_test(run, Ruling.NOT_SUPPORTED, why)
        return
    await _measure_test(run, finalist)


async def choose_finalist(run: RunContext) -> RunCandidate | None:
    """Return the best of those that are better than the base, over all that was measured of them and fresh runs."""
    state = run.state
    base = state.candidates[state.base]
    better = [one for one in state.members if one.digest != state.base and mean_gain(one.scores, base.scores) > 0]
    best = sorted(better, key=lambda one: (one.rank, -one.iteration), reverse=True)[:REMEASURED_BEST]
    if not best:
        return None
    fresh = run.settings.repeats + 1
    arms = [run.base, *(run.program(one.digest) for one in best)]
    trials = await run.measure([(arm, task, fresh) for task in run.val for arm in arms], "confirm/val")
    anew = {arm.digest: mean_scores(trials, arm.digest) for arm in arms}
    if not state.confirmed:
        run.note("confirmed", scores=anew)
    pooled = {one.digest: _pool_scores(one.scores, anew[one.digest], run.settings.repeats) for one in (base, *best)}
    standing = [one for one in best if mean_gain(pooled[one.digest], pooled[base.digest]) > 0]
    return max(standing, key=lambda one: (fmean(pooled[one.digest].values()), -one.size), default=None)


def _pool_scores(selected: Mapping[str, float], anew: Mapping[str, float], repeats: int) -> dict[str, float]:
    both = {**anew, **selected}
    return {
        task: (selected[task] * repeats + anew[task]) / (repeats + 1) if task in selected and task in anew else score
        for task, score in both.items()
    }


def mean_gain(after: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Return the mean difference over the tasks that both have, 0 where there are none."""
    return fmean([after[task] - before[task] for task in after if task in before] or [0.0])


async def _measure_test(run: RunContext, finalist: RunCandidate) -> None:
    settings, state, base = run.settings, run.state, run.base
    program = run.program(finalist.digest)
    repeats = test_repeat_count(settings, run.sealed.size)
    arms = [base, program] + ([NO_SKILL] if base.parts and program.parts else [])
    if not state.looks and (short := budget_shortfall(run, len(arms) * repeats * run.sealed.size)):
        record_no_test(run, Ruling.INDECISIVE, short, finalist.digest)
        return
    tasks, look, runner = run.sealed.open(run.folder.id, finalist.digest)
    if not state.looks:
        run.note("look", look=look, test_digest=settings.test_digest, candidate=finalist.digest)
    requests: list[TrialRequest] = [(arm, task, r) for r in range(repeats) for task in tasks for arm in arms]
    canaries = make_canary_tasks(run.folder, tasks, run.plant_canary)
    for at, canary in enumerate(canaries, 1):  # among the others: nothing tells that it is none of them
        requests.insert(at * len(requests) // (len(canaries) + 1), (program, canary.task, 0))
    try:
        trials = await run.measure(requests, "test/verdict", runner)
        trials = await repeat_slow(run, arms, requests, trials, repeats, runner)
    except BudgetSpent as error:
        record_no_test(run, Ruling.INDECISIVE, f"{error} The test was opened and not finished.", finalist.digest)
        return
    cheated = find_answered_canaries(canaries, trials)
    own = {canary.task.id for canary in canaries}
    counted = [trial for trial in trials if trial.task not in own]
    _record_verdict(run, finalist, arms, [task.id for task in tasks], counted, look, (len(canaries), cheated))


async def repeat_slow(
    run: RunContext,
    arms: Sequence[Program],
    requests: Sequence[TrialRequest],
    trials: Sequence[Trial],
    repeats: int,
    runner: TestRunner,
    label: str = "test/alone",
) -> list[Trial]:
    """Return the trials, and for each that took too long a second one while no trial of another arm runs.

    A program can keep the processors busy, so that trials of another arm beside its own take too long. Every arm gets
    the second chance.
    """
    found = list(trials)
    for number, arm in enumerate(arms):
        slow = [
            at
            for at, (program, _, _) in enumerate(requests)
            if program is arm and trials[at].outcome is TrialOutcome.AGENT_TIMEOUT
        ]
        if slow:
            again = [(arm, requests[at][1], repeats + requests[at][2]) for at in slow]
            for at, trial in zip(slow, await run.measure(again, f"{label}-{number}", runner), strict=True):
                found[at] = trial
    return found


def _record_verdict(
    run: RunContext,
    finalist: RunCandidate,
    arms: Sequence[Program],
    tasks: list[str],
    trials: Sequence[Trial],
    look: int,
    canaries: tuple[int, list[str]],
) -> None:
    named = dict(zip(_ARMS, arms, strict=False))
    scores = {name: values_by_task(trials, arm.digest, lambda trial: trial.score) for name, arm in named.items()}
    tokens = (values_by_task(trials, arm.digest, count_tokens) for arm in arms[:2])
    before, after = ({task: fmean(values) for task, values in by_task.items()} for by_task in tokens)
    said = decide_verdict(
        scores["base"],
        scores.get("no_skill"),
        scores["finalist"],
        look=look,
        tasks=tasks,
        costs=TokenCosts(before, after, limit=run.settings.cost_rise),
        seed=run.settings.seed,
    )
    ruling, why = said.ruling, said.why
    asked, cheated = canaries
    if cheated:
        ruling = Ruling.DISQUALIFIED
        why = describe_cheating(finalist.name, asked, cheated)
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
        val={"base": run.state.candidates[run.state.base].mean, "finalist": finalist.mean},
        **{name: {task: fmean(values) for task, values in scores.get(name, {}).items()} for name in _ARMS},
    )


def describe_cheating(name: str, asked: int, cheated: Sequence[str]) -> str:
    """Return why a finalist that answered canary tasks is disqualified.

    It names none of them: the id of a canary begins with that of a test task.
    """
    return (
        f"{name} gave the answers of {len(cheated)} of {asked} canary tasks, which"
        " nobody can have who did not read the expected answers: nothing that it scored counts."
    )


def record_no_test(run: RunContext, ruling: Ruling, why: str, candidate: str = "") -> None:
    """Record a verdict for which no test was measured to its end."""
    look = run.state.looks
    run.note("verdict", verdict=ruling, candidate=candidate, why=why, look=look, p=None, delta=None, interval=None, n=0)


def budget_shortfall(run: RunContext, evaluations: int) -> str:
    """Return why the rest of the budget does not reach for so many evaluations, '' when it does.

    A look is not spent on a test that cannot be finished.
    """
    spent, limits, bill = run.state.bill, run.budget.limits, run.budget.bill
    ran = max(1, spent.trials + spent.trouble)
    left = (
        ("cost", limits.cost, bill.cost, spent.cost / ran),
        ("tokens", limits.tokens, bill.tokens, spent.tokens // ran),
        ("calls", limits.calls, bill.calls, spent.calls // ran),
    )
    for what, limit, used, each in left:
        if limit is not None and used + each * evaluations > limit:
            return (
                f"The test takes {evaluations} evaluations, for which the rest of the budget ({what}) does not reach;"
                " it was not opened."
            )
    return ""


def count_tokens(trial: Trial) -> int | None:
    """Return the tokens of a trial, None where nobody told."""
    return trial.usage.input_tokens + trial.usage.output_tokens or None
