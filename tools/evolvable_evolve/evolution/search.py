"""The search: greedy composition of candidates that are measured in stages on training and
validation tasks.

One program is current, the best so far. Each candidate is compared with all results of it: first on
half of the selection tasks, then on all. Where the difference is small, fresh repeats of both
follow on the tasks whose results differ. A rejected candidate's score counts half a trial for its
parent, because the two differ little. Nothing here is a claim: the sealed test alone decides.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean
from typing import Any

from evolvable_evolve.evolution import acceptance, evidence_batches, search_operators
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.ledger import CandidateDecision, RunCandidate, RunPhase
from evolvable_evolve.evolution.operators import STRUCTURE_MODE, CommitResult, EvaluationResult
from evolvable_evolve.evolution.proposers import Evidence
from evolvable_evolve.evolution.run_config import MOST_TEST_TRIALS, STAGED_REPEATS
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.statistics import (
    NARROW_REPEATS,
    NOISE,
    PowerDesign,
    narrow_sizes,
    smallest_gain,
)
from evolvable_evolve.evolution.structure_round import structure_tasks
from evolvable_evolve.evolution.task import Task

# The figures of the search were chosen in simulations, on other seeds than the published rows
# (`benchmarks/README.md`).
MIN_SELECTION = 20
"""The fewest selection tasks, where there are as many."""

VAL_SHARE = 0.7
"""The share of the selection tasks that is taken from val. The proposer sees none of them."""

# In simulations 366 to 387 trials for 100 test tasks (`benchmarks/README.md`), and the veto.
EXPECTED_TEST = 3.9
"""Evaluations of a staged test and of the veto after it for each test task, on average where a
program is better.
"""

USUAL_ROUND = 1.0
"""Evaluations of a proposal for each selection task: some are dropped after half, others repeat the
differing tasks.
"""

OVERRUN = 0.25
"""The share by which repeats may exceed the plan of a search."""

OVERHEAD = 2.6
"""Evaluations of a search beside its proposals, for each selection task: the base, and repeats."""

EVIDENCE_TRIALS = 5
"""Evaluations that are planned for the evidence of a proposal: three to six tasks, less those with
results.
"""

NEAR = (-1.0, 4.0)
"""Net tasks gained, from and below, between which the tasks whose results differ run once more
under both programs.

The upper one is multiplied by OTHERS_WEIGHT where it applies.
"""

DROP = -2.0
"""Net tasks at which a candidate is dropped after the first half."""

NOISE_TASKS = 10
"""Selection tasks on which the base runs twice before the search."""

VAL_LOSS = -2.0
"""Net tasks of val alone below which a candidate is not accepted, even if the training tasks show
a gain.
"""

# With it and evidence from all of train, simulated scores rose from .61 to .83 ("Ten categories" in
# the same file).
OTHERS_WEIGHT = 0.5
"""The weight of a task in a comparison where the candidate answers no task of its category.

Results of such tasks are mostly chance, because the edit of one category seldom reaches them. Where
the tasks have one category, or a candidate answers no task by name, all weigh 1.
"""

_DIFFERENT = 0.5  # change of a mean score from which on a task counts as better or worse


def selection_tasks(run: RunContext) -> list[Task]:
    """Return the tasks that candidates are compared on, in the order in which they are run.

    Their number follows from the trials that the run plans for. Seven of ten are of val. Both
    splits are spread over the whole order.
    """
    settings, tests = run.settings, run.sealed.size
    # The test and the evidence are paid first; the rest is divided among the proposals.
    left = (
        settings.planned_trials(tests)
        - EXPECTED_TEST * tests
        - settings.proposals * sampled_trials(run)
    )
    size = max(MIN_SELECTION, round(left / (max(1, settings.proposals) + OVERHEAD)))
    val, train = (
        spread_categories(shuffle_tasks(tasks, settings.seed)) for tasks in (run.val, run.train)
    )
    # Where one split is too small, the other gives more.
    from_val = min(len(val), max(round(size * VAL_SHARE), size - len(train)))
    chosen = [(at / max(1, from_val), task) for at, task in enumerate(val[:from_val])]
    from_train = min(len(train), max(0, size - from_val))
    # The half step puts training tasks between those of val.
    chosen += [
        ((at + 0.5) / max(1, from_train), task) for at, task in enumerate(train[:from_train])
    ]
    return [task for _, task in sorted(chosen, key=lambda entry: (entry[0], entry[1].id))]


def sampled_trials(run: RunContext) -> int:
    """Return the trials that each iteration takes for its evidence, and for the rollouts of its
    optimizer.
    """
    categories, each = run.settings.batch
    evidence = 0 if run.settings.mode == STRUCTURE_MODE else min(EVIDENCE_TRIALS, categories * each)
    return evidence + run.settings.rollouts * categories * each


def shuffle_tasks(tasks: Sequence[Task], seed: int) -> list[Task]:
    """Return the tasks in an order that follows from the seed and their ids alone."""
    return sorted(tasks, key=lambda task: hashlib.sha256(f"{seed} {task.id}".encode()).digest())


def spread_categories(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks so that every beginning of them has each category with its share.

    Within a category the order stays.
    """
    sizes, seen = Counter(task.category for task in tasks), Counter[str]()
    places: list[tuple[float, str]] = []
    for task in tasks:
        places.append(((seen[task.category] + 0.5) / sizes[task.category], task.category))
        seen[task.category] += 1
    return [task for _, task in sorted(zip(places, tasks, strict=True), key=lambda entry: entry[0])]


async def _calibrate(run: RunContext) -> None:
    """Measure the base on the selection tasks, on a few of them twice.

    Raises ExecutorFailing, BudgetTooSmall, BudgetSpent, RunStopped.
    """
    tasks, base = selection_tasks(run), run.base
    if run.state.phase is RunPhase.NEW:
        await acceptance.run_pilot(run, tasks, plan_evaluations(run))
    twice = tasks[:NOISE_TASKS]
    requests = [(base, task, 0) for task in tasks]
    requests += [(base, task, search_operators.FIRST_FRESH) for task in twice]
    trials = await run.measure(requests, "calibrate/val")
    first = acceptance.mean_scores([trial for trial in trials if trial.repeat == 0])
    again = acceptance.mean_scores([trial for trial in trials if trial.repeat != 0])
    values = acceptance.values_by_task(trials, None, lambda trial: trial.score)
    both = [task.id for task in twice if task.id in first and task.id in again]
    # Without two results for any task the usual noise is assumed.
    discordance, mean_change = NOISE, 0.0
    if both:
        discordance = sum(first[task] != again[task] for task in both) / len(both)
        mean_change = abs(fmean(first[task] for task in both) - fmean(again[task] for task in both))
    look = run.sealed.look
    design = PowerDesign.of(run.sealed.size, STAGED_REPEATS, look=look, noise=discordance)
    run.note(
        "calibrated",
        scores=first,
        again=again,
        no_skill={},
        missing=[task.id for task in tasks if task.id not in first],
        noise=mean_change,
        discordance=discordance,
        mde=smallest_gain(design),
        look=look,
        estimates={task: [fmean(scores), len(scores)] for task, scores in values.items()},
    )


@dataclass
class _Comparison:
    """Results of a candidate and its parent by task: the mean score and the number of trials."""

    child: dict[str, tuple[float, float]] = field(default_factory=dict)
    parent: dict[str, tuple[float, float]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    spoiled: str = ""
    others: frozenset[str] = frozenset()
    """The tasks of categories that the candidate is not about."""

    def difference(self, task: str) -> float:
        return self.child[task][0] - self.parent[task][0]

    def net(self, tasks: Sequence[Task] | None = None) -> float:
        """Return the tasks gained less those lost, over these tasks or all."""
        compared = list(self.child)
        if tasks is not None:
            compared = [task.id for task in tasks if task.id in self.child]
        return sum(map(self.difference, compared))

    def weighted_net(self) -> float:
        """Return the net tasks gained, where tasks that the candidate is not about weigh less."""
        others = sum(self.difference(task) for task in self.child if task in self.others)
        return self.net() - (1 - OTHERS_WEIGHT) * others

    def is_near(self) -> bool:
        """Return whether the difference may be chance.

        Where most tasks weigh less, a smaller difference excludes chance.
        """
        most = NEAR[1] * (OTHERS_WEIGHT if self.others else 1)
        return NEAR[0] <= self.weighted_net() < most


async def evaluate_in_stages(
    run: RunContext, candidate: Program, against: Program
) -> EvaluationResult:
    """Return the result of the static gate and of the stages of the comparison.

    Each of them runs once; later calls read its record. Raises BudgetSpent, RunStopped,
    NeedsPerson.
    """
    why, decision = acceptance.check_before_running(run, candidate, against)
    if decision is not None:
        return EvaluationResult(candidate, against, False, None, why, decision)
    # A continued run has compared the candidate already.
    record = run.state.step.get("measured") or await _compare(run, candidate, against)
    if record.get("tampered"):
        return EvaluationResult(
            candidate, against, False, None, record["tampered"], CandidateDecision.TAMPERED
        )
    if record["decision"]:
        return EvaluationResult(candidate, against, True, None, record["why"], record["decision"])
    delta = record["net"] / max(1, len(record["scores"]))
    return EvaluationResult(candidate, against, True, delta, record["why"])


async def _compare(run: RunContext, candidate: Program, against: Program) -> Mapping[str, Any]:
    """Measure a candidate beside the results of its parent, and record the comparison."""
    tasks, number = selection_tasks(run), run.state.iteration
    fresh = _is_stale(run)
    seen = _Comparison(others=_find_other_tasks(run, candidate, tasks))
    why = await _measure_halves(run, seen, (candidate, against), tasks, fresh=fresh)
    covered = len(seen.child) / max(1, len(seen.child) + len(seen.missing))
    # Not where tasks are missing: then no repeat makes the comparison complete.
    if not (why or seen.spoiled) and seen.is_near() and covered >= run.settings.coverage:
        await _repeat_different(run, seen, (candidate, against), tasks, f"val/{number}/again")
    net, val, whole = seen.weighted_net(), seen.net(run.val), seen.net()
    # Training tasks are shown to the proposer, so val has a veto of its own.
    if not why and net > 0 and min(val, whole) < VAL_LOSS:
        why = "worse on the tasks of val alone" if val < VAL_LOSS else "worse on all tasks alike"
    decision = ""
    if not seen.spoiled and covered < run.settings.coverage:
        decision = str(CandidateDecision.INDECISIVE)
        why = f"only {covered:.0%} of the selection tasks counted"
    changes = {task: seen.difference(task) for task in seen.child}
    better, worse = (
        [task for task, by in changes.items() if sign * by >= _DIFFERENT] for sign in (1, -1)
    )
    # An indecisive comparison has a reason already.
    if not decision:
        summary = (
            f"{net:+.1f} tasks net of {len(seen.child)}: {len(better)} better, {len(worse)} worse"
        )
        why = f"{summary}; {why}" if why else summary
    is_complete = not seen.spoiled and not decision and "dropped" not in why
    accepted = is_complete and net > 0 and min(val, whole) >= VAL_LOSS
    return run.note(
        "measured",
        iteration=number,
        candidate=candidate.digest,
        parent=against.digest,
        scores={task: score for task, (score, _) in seen.child.items()},
        parent_scores={
            task: score for task, (score, _) in seen.parent.items() if task in seen.child
        },
        missing=seen.missing,
        fixed=better,
        broken=worse,
        tampered=seen.spoiled,
        child=seen.child,
        parent_now=seen.parent,
        fresh_parent=fresh,
        net=net,
        accepted=accepted,
        decision=decision,
        why=why,
    )


def _find_other_tasks(run: RunContext, candidate: Program, tasks: Sequence[Task]) -> frozenset[str]:
    """Return the tasks of categories of which the candidate answers none."""
    answers = set(run.state.candidates[candidate.digest].answers)
    about = {task.category for task in run.train if task.id in answers}
    return frozenset(task.id for task in tasks if about and task.category not in about)


async def _measure_halves(
    run: RunContext,
    seen: _Comparison,
    programs: tuple[Program, Program],
    tasks: Sequence[Task],
    *,
    fresh: bool,
) -> str:
    """Measure two batches, so that a candidate that is plainly worse costs half.

    Return why it was dropped after the first, else ''.
    """
    half = len(tasks) // 2
    for name, part in (("half", tasks[:half]), ("rest", tasks[half:])):
        batch = f"val/{run.state.iteration}/{name}"
        await _measure_part(run, seen, programs, part, batch, fresh=fresh)
        if seen.spoiled:
            break
        if name == "half" and seen.weighted_net() <= DROP:
            return "dropped after the first half"
    return ""


async def _measure_part(
    run: RunContext,
    seen: _Comparison,
    programs: tuple[Program, Program],
    tasks: Sequence[Task],
    batch: str,
    *,
    fresh: bool,
) -> None:
    """Add the results of these tasks. Those of the parent are its estimates, or fresh ones."""
    candidate, against = programs
    # A repeat of this iteration alone, so that the parent's result is not from the cache.
    repeat = search_operators.FIRST_FRESH + run.state.iteration
    requests = [(candidate, task, 0) for task in tasks]
    if fresh:
        requests += [(against, task, repeat) for task in tasks]
    trials = await run.measure(requests, batch)
    seen.spoiled = seen.spoiled or acceptance.tampering_reason(trials)
    scores = acceptance.mean_scores(trials, candidate.digest)
    anew = acceptance.mean_scores(trials, against.digest) if fresh else {}
    for task in tasks:
        # A fresh result replaces the estimate, whose age is the reason for it.
        parent_estimate = (
            (anew[task.id], 1.0) if task.id in anew else run.state.estimates.get(task.id)
        )
        if task.id in scores and parent_estimate is not None:
            seen.child[task.id], seen.parent[task.id] = (scores[task.id], 1.0), parent_estimate
        else:
            seen.missing.append(task.id)


async def _repeat_different(
    run: RunContext,
    seen: _Comparison,
    programs: tuple[Program, Program],
    tasks: Sequence[Task],
    batch: str,
) -> None:
    """Run the tasks whose results differ once more under both, side by side, and average the
    results in.
    """
    # Apart from the fresh repeats of the parent, which begin at FIRST_FRESH.
    repeat = search_operators.FIRST_FRESH + 1000 + run.state.iteration
    by_id = {task.id: task for task in tasks}
    differ = [by_id[task] for task in seen.child if abs(seen.difference(task)) >= _DIFFERENT]
    trials = await run.measure([(arm, task, repeat) for task in differ for arm in programs], batch)
    seen.spoiled = seen.spoiled or acceptance.tampering_reason(trials)
    for estimates, arm in zip((seen.child, seen.parent), programs, strict=True):
        for task, score in acceptance.mean_scores(trials, arm.digest).items():
            mean, count = estimates[task]
            estimates[task] = ((mean * count + score) / (count + 1), count + 1)


def _is_stale(run: RunContext) -> bool:
    """Return whether the parent was measured so long ago that it is measured again beside its
    child.
    """
    then, now = run.state.measured_at, run.state.step.get("checked", {}).get("at")
    # Records of older runs have no times.
    if not (isinstance(then, str) and isinstance(now, str)):
        return False
    hours = (datetime.fromisoformat(now) - datetime.fromisoformat(then)).total_seconds() / 3600
    return hours >= run.settings.stale_hours


def commit_best(run: RunContext, evaluated: EvaluationResult) -> CommitResult:
    """Replace the best program by the candidate, or reject the candidate: the commit of the greedy
    search.
    """
    digest, measured = evaluated.candidate.digest, run.state.step.get("measured", {})
    accepted = (
        evaluated.delta is not None and not evaluated.decision and bool(measured.get("accepted"))
    )
    if accepted:
        acceptance.record_decision(
            run, CandidateDecision.ADMITTED, evaluated.why, digest, (digest,)
        )
        return CommitResult(evaluated.candidate, True, evaluated.why)
    decision = CandidateDecision(evaluated.decision or CandidateDecision.REJECTED)
    acceptance.record_decision(run, decision, evaluated.why, digest)
    return CommitResult(evaluated.against, False, evaluated.why)


async def _gather(
    run: RunContext, parent: Program, selected: Mapping[str, Any]
) -> Sequence[Evidence]:
    """Return the failures that a proposal begins with. Raises BudgetSpent, RunStopped."""
    if run.settings.mode != STRUCTURE_MODE:
        return await evidence_batches.gather_failures(run, parent, selected)
    tasks = evidence_tasks(run, selected["batch"])
    return await search_operators.gather_evidence(run, parent, selected, tasks)


def evidence_tasks(run: RunContext, number: int) -> list[Task]:
    """Return training tasks for the proposer of mode structure, in turn: measured ones, failures
    first.

    Failures of the iteration's batch, which goes through the categories, come before others.
    Nothing is run for them. Where all measured tasks pass, tasks that were not measured follow.
    """
    estimates, bar = run.state.estimates, run.settings.fail_below
    chosen = {task.id for task in selection_tasks(run)}
    train = shuffle_tasks(run.train, run.settings.seed)
    measured = [task for task in train if task.id in chosen and task.id in estimates]
    failing = [task for task in measured if estimates[task.id][0] < bar]
    passing = [task for task in measured if estimates[task.id][0] >= bar]
    others = [task for task in train if task.id not in chosen]
    most = run.settings.batch[0] * run.settings.batch[1]
    # A third of passing tasks, so that the proposer sees what must go on working.
    few = min(most // 3, len(passing))
    first = [task for task in search_operators.training_batch(run, number) if task in failing]
    rest = [task for task in failing if task not in first]
    evidence = [*first, *_take_turn(rest, number, most - few)][: most - few]
    if evidence:
        return [*evidence, *_take_turn(passing, number, few)]
    return _take_turn(others or passing, number, most)


def _take_turn(tasks: Sequence[Task], number: int, size: int) -> list[Task]:
    if not tasks:
        return []
    # The next part in a circle, so that every task comes in turn.
    start = (number - 1) * size % len(tasks)
    return [tasks[(start + at) % len(tasks)] for at in range(min(size, len(tasks)))]


def trials_left(run: RunContext) -> float:
    """Return the planned evaluations that are neither spent nor needed by the sealed test."""
    planned = run.settings.planned_trials(run.sealed.size)
    return planned - run.state.bill.trials - EXPECTED_TEST * run.sealed.size


def best_gain(run: RunContext) -> float:
    """Return the sum of the mean gains of the accepted candidates.

    It is biased upwards: they were selected.
    """
    tried = run.state.candidates.values()
    return sum(
        candidate.delta or 0.0
        for candidate in tried
        if candidate.decision is CandidateDecision.ADMITTED
    )


def plan_evaluations(run: RunContext) -> acceptance.EvaluationPlan:
    """Return the evaluations that a run may take."""
    settings, tests, selection = run.settings, run.sealed.size, len(selection_tasks(run))
    structure_trials = len(structure_tasks(run)) if settings.mode == STRUCTURE_MODE else 0
    first, rounds = selection + NOISE_TASKS, settings.proposals
    each = selection + 2 * int(NEAR[1]) + structure_trials + sampled_trials(run)
    usual = USUAL_ROUND * selection + structure_trials + sampled_trials(run)
    room = settings.planned_trials(tests) - EXPECTED_TEST * tests
    # Proposals that take less than planned leave room for further ones.
    search = min(first + settings.most_proposals * usual, max(first + rounds * usual, room))
    if run.state.exploratory:
        drawn = sum(narrow_sizes(len(run.val), tests))
        most = likely = 2 * (settings.test_repeats or NARROW_REPEATS) * drawn
    else:
        most = MOST_TEST_TRIALS * tests + 2 * len(run.val)
        likely = round(EXPECTED_TEST * tests)
    low = first + min(1, rounds) * selection // 2
    high = round(max(first + rounds * each, (1 + OVERRUN) * search)) + most
    floor = selection + selection // 2 + 2 * tests
    return acceptance.EvaluationPlan(low, high, round(search) + likely, floor)


def _find_end_reason(run: RunContext, done: int) -> str:
    """Return why no proposal follows after so many, '' while the planned trials have room for
    one.
    """
    if done < run.settings.proposals:
        return ""
    one_proposal = len(selection_tasks(run)) + sampled_trials(run)
    if trials_left(run) >= one_proposal:
        return ""
    return f"{done} iterations are done, and the planned trials leave room for no other"


async def _choose_finalist(run: RunContext) -> tuple[RunCandidate, float] | None:
    """Return the best program and its gain, None where the gain is too small to open the test."""
    best, gain = run.state.candidates[run.state.best], best_gain(run)
    if best.digest == run.state.base or gain < run.settings.open_above:
        return None
    return best, gain


GATE = acceptance.SearchGate(
    _calibrate, _gather, evaluate_in_stages, commit_best, _find_end_reason, _choose_finalist
)
"""The gate that keeps one program; a candidate meets it in stages on training and validation
tasks.
"""
