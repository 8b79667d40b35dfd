"""The staged sealed test: two arms, two repeats, three stages, and the conditions beside significance.

The order of the groups is drawn before a task is opened. Each stage opens its tasks, measures the base and the finalist
side by side, and ends the test when the gain is significant or unlikely to become so. What it did not open stays
sealed. Vetoes need no further test tasks: no skill at all is compared on validation tasks.
"""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import Any

from evolvable_evolve.evolution.acceptance import NO_SKILL, mean_scores
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.final_test import (
    CanaryTask,
    budget_shortfall,
    count_tokens,
    describe_cheating,
    find_answered_canaries,
    make_canary_tasks,
    record_no_test,
    repeat_slow,
)
from evolvable_evolve.evolution.ledger import RunCandidate
from evolvable_evolve.evolution.run_config import LATER_REPEATS, MOST_TEST_TRIALS, STAGED_REPEATS
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.statistics import (
    MIN_GROUPS,
    STAGE_SHARES,
    STAGES,
    MissingTrials,
    Ruling,
    StagedResult,
    alpha_of_look,
    compare_log_costs,
    harm_bound,
    staged_sign_flip,
)
from evolvable_evolve.evolution.task import Task, Trial
from evolvable_evolve.evolution.trials import BudgetSpent, TrialRequest

SMALL_GAIN = 0.25
"""The gain in the search under which later stages run each task more often under each arm.

The gain in the search was selected and is mostly larger than the true one."""

VETO_REPEAT = 5_000
"""The repeat from which on validation tasks are run for the comparison with no skill."""


async def run_staged_test(run: RunContext, finalist: RunCandidate, gain: float) -> None:
    """Measure the finalist on the sealed test and record the verdict. Raises RunStopped.

    gain: of the finalist in the search. It says how often later stages run each task.
    """
    state, program = run.state, run.program(finalist.digest)
    least = run.settings.test_repeats or STAGED_REPEATS
    if not state.looks and (short := budget_shortfall(run, 2 * least * run.sealed.size)):
        record_no_test(run, Ruling.INDECISIVE, short, finalist.digest)
        return
    by_stage = state.stage_repeats or ((least,) * STAGES if state.looks else plan_repeats(run, gain))
    tasks, look, runner = run.sealed.open(run.folder.id, finalist.digest)
    shares = state.stage_shares if state.looks else STAGE_SHARES
    stages = plan_stages(tasks, f"{run.settings.seed} {run.settings.test_digest}", shares)
    groups = len({task.group or task.id for task in tasks})
    if groups < MIN_GROUPS:
        why = (
            f"The test has {groups} groups of tasks that are not alike, and a claim about other tasks needs"
            f" {MIN_GROUPS}. No task of it was run."
        )
        record_no_test(run, Ruling.INDECISIVE, why, finalist.digest)
        return
    if not state.looks:
        told = {"look": look, "test_digest": run.settings.test_digest, "candidate": finalist.digest}
        run.note("look", **told, repeats=list(by_stage), shares=list(shares))
    measured = _Measured(run, finalist, look, [len(stage) for stage in stages])
    canaries = make_canary_tasks(run.folder, stages[0], run.plant_canary)
    try:
        for number, (stage, repeats) in enumerate(zip(stages, by_stage, strict=False)):
            requests: list[TrialRequest] = [
                (arm, task, repeat) for repeat in range(repeats) for task in stage for arm in (run.base, program)
            ]
            for at, canary in enumerate(canaries if number == 0 else (), 1):  # nothing tells that it is none of them
                requests.insert(at * len(requests) // (len(canaries) + 1), (program, canary.task, 0))
            trials = await run.measure(requests, f"test/stage-{number + 1}", runner)
            arms, label = [run.base, program], f"test/alone-{number + 1}"
            trials = await repeat_slow(run, arms, requests, trials, repeats, runner, label)
            measured.add(stage, trials, repeats, canaries)
            if measured.is_over:
                break
        ruling, why, veto = measured.ruling(), measured.why(), {}
        if ruling is Ruling.PROMOTE and run.base.parts and program.parts:
            veto = await _compare_with_nothing(run, program)
            if veto["gain"] < 0:
                ruling = Ruling.NOT_SUPPORTED
                why += f" But no skill at all did better still on val, by {-veto['gain']:.1%}."
    except BudgetSpent as error:
        record_no_test(run, Ruling.INDECISIVE, f"{error} The test was opened and not finished.", finalist.digest)
        return
    measured.record(ruling, why, veto)


def plan_repeats(run: RunContext, gain: float) -> tuple[int, ...]:
    """Return how often each stage runs its tasks under each arm: more later where the search showed a small gain.

    It follows from what was known before a task of the test was seen, so the level of the test does not change.
    """
    least = run.settings.test_repeats or STAGED_REPEATS
    if run.settings.test_repeats or gain >= SMALL_GAIN or budget_shortfall(run, MOST_TEST_TRIALS * run.sealed.size):
        return (least,) * STAGES
    return LATER_REPEATS


def plan_stages(tasks: Sequence[Task], salt: str, shares: Sequence[float] = STAGE_SHARES) -> list[list[Task]]:
    """Return the tasks of each stage: whole groups in an order drawn by `salt`, about these shares of the tasks."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.group or task.id, []).append(task)
    drawn = sorted(groups, key=lambda name: hashlib.sha256(f"{salt} {name}".encode()).digest())
    stages: list[list[Task]] = [[] for _ in shares]
    ends, done = [share * len(tasks) for share in accumulate(shares[:-1])], 0
    for name in drawn:
        # By the middle of the group, so that no stage is left empty for want of a few tasks.
        at = bisect_right(ends, done + len(groups[name]) / 2)
        stages[at] += groups[name]
        done += len(groups[name])
    return [stage for stage in stages if stage]


@dataclass
class _Measured:
    """The stages measured so far, and what follows from them."""

    run: RunContext
    finalist: RunCandidate
    look: int
    planned: Sequence[int]
    stages: list[list[Task]] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    repeats: list[int] = field(default_factory=list)
    asked: int = 0
    cheated: list[str] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    _tests: dict[tuple[bool, float], StagedResult] = field(default_factory=dict)

    def add(self, stage: list[Task], trials: Sequence[Trial], repeats: int, canaries: Sequence[CanaryTask]) -> None:
        """Add the trials of a stage."""
        own = {task.id for task in stage}
        self.cheated += find_answered_canaries(canaries, [one for one in trials if one.task not in own])
        self.asked = len(canaries)
        self.repeats.append(repeats)
        self.stages.append(stage)
        self.trials += [one for one in trials if one.task in own]
        self._tests.clear()
        result = self.result
        self.results.append({"tasks": len(stage), "p": result.p, "alpha": result.alpha, "z": result.z})

    @property
    def alpha(self) -> float:
        return alpha_of_look(self.look, self.run.settings.test_alpha)

    def scores(self, *, filled: bool = False) -> tuple[dict[str, float], dict[str, float]]:
        """Return the mean of each task under both arms. filled: what is missing counts as 0."""
        arms = []
        for program in (self.run.base.digest, self.finalist.digest):
            found: dict[str, list[float]] = {}
            for trial in self.trials:
                if trial.program == program and (filled or trial.outcome.counts):
                    found.setdefault(trial.task, []).append(trial.score or 0.0)
            arms.append({task: fmean(values) for task, values in found.items()})
        return arms[0], arms[1]

    def groups(self, *, filled: bool = False, sign: float = 1.0) -> list[list[list[float]]]:
        """Return for each stage the differences of each group."""
        before, after = self.scores(filled=filled)
        stages = []
        for stage in self.stages:
            groups: dict[str, list[float]] = {}
            for task in stage:
                if task.id in before and task.id in after:
                    groups.setdefault(task.group or task.id, []).append(sign * (after[task.id] - before[task.id]))
            stages.append(list(groups.values()))
        return stages

    def test(self, *, filled: bool = False, sign: float = 1.0) -> StagedResult:
        if (filled, sign) not in self._tests:
            least, groups = self.least if sign > 0 else 0.0, self.groups(filled=filled, sign=sign)
            self._tests[filled, sign] = staged_sign_flip(groups, self.planned, self.alpha, least=least)
        return self._tests[filled, sign]

    @property
    def result(self) -> StagedResult:
        return self.test()

    @property
    def graded(self) -> bool:
        """Whether any score is neither 0 nor 1."""
        return any(one.score not in (None, 0.0, 1.0) for one in self.trials)

    @property
    def least(self) -> float:
        return self.run.settings.least_gain if self.graded else 0.0

    @property
    def missing(self) -> MissingTrials:
        counts = Counter(one.program for one in self.trials if not one.outcome.counts)
        each = sum(len(stage) * runs for stage, runs in zip(self.stages, self.repeats, strict=True))
        return MissingTrials(counts[self.run.base.digest], counts[self.finalist.digest], each)

    @property
    def holds(self) -> bool:
        """Whether the gain is significant, also with what is missing counted as failed where that may matter."""
        if not self.result.rejects:
            return False
        return not self.missing.matters or self.test(filled=True).rejects

    @property
    def harmful(self) -> bool:
        """Whether the loss is significant; also with what is missing counted as failed where that may matter."""
        if not self.test(sign=-1).rejects:
            return False
        return not self.missing.matters or self.test(filled=True, sign=-1).rejects

    @property
    def is_over(self) -> bool:
        return bool(self.cheated) or self.holds or self.harmful or self.result.futile

    @property
    def coverage(self) -> float:
        """The share of trials that came to a result, of the arm with fewer. A task of two runs of which one is missing
        counts as half."""
        missing = self.missing
        return 1 - max(missing.base, missing.finalist) / missing.each if missing.each else 0.0

    def ruling(self) -> Ruling:
        if self.cheated:
            return Ruling.DISQUALIFIED
        if self.coverage < self.run.settings.coverage:
            return Ruling.INDECISIVE
        if self.harmful:
            return Ruling.HARMFUL
        if not self.result.rejects:
            return Ruling.NOT_SUPPORTED
        if not self.holds:
            return Ruling.INDECISIVE if self.missing.many else Ruling.NOT_SUPPORTED
        if self.graded and self.harm < 0:
            return Ruling.NOT_SUPPORTED
        return Ruling.PROMOTE if self.cost is None or self.cost.within else Ruling.NOT_SUPPORTED

    @property
    def harm(self) -> float:
        return harm_bound(group for stage in self.groups() for group in stage)

    @property
    def cost(self) -> Any:
        arms: tuple[dict[str, float], dict[str, float]] = ({}, {})
        for arm, program in zip(arms, (self.run.base.digest, self.finalist.digest), strict=True):
            found: dict[str, list[float]] = {}
            for trial in self.trials:
                if trial.program == program and trial.outcome.counts and (tokens := count_tokens(trial)):
                    found.setdefault(trial.task, []).append(tokens)
            arm.update({task: fmean(values) for task, values in found.items()})
        tasks = sum(map(len, self.stages))
        return compare_log_costs(*arms, gain=self.result.gain, tasks=tasks, limit=self.run.settings.cost_rise)

    def tally(self) -> tuple[int, int, int]:
        flat = [one for stage in self.groups() for group in stage for one in group]
        return sum(one > 0 for one in flat), sum(one < 0 for one in flat), len(flat)

    def why(self) -> str:
        """Return the reason for the ruling in words."""
        gained, lost, n = self.tally()
        result, ruling = self.result, self.ruling()
        opened = f" after stage {len(self.stages)} of {len(self.planned)}" if len(self.planned) > 1 else ""
        told = f"{gained} of {n} tasks came out better and {lost} worse{opened}"
        needed = f"(p = {result.p:.2g}, needed {result.alpha:.2g})"
        missing = f" {self.missing}" if self.missing.any else ""
        if ruling is Ruling.DISQUALIFIED:
            return describe_cheating(self.finalist.name, self.asked, self.cheated)
        if ruling is Ruling.HARMFUL:
            worse = self.test(sign=-1)
            return (
                f"It is worse than the base: {told} (p = {worse.p:.2g} for worse, needed {worse.alpha:.2g}).{missing}"
            )
        if self.coverage < self.run.settings.coverage:
            return f"Only {self.coverage:.0%} of the trials of an arm came to a result.{missing}"
        if result.rejects and not self.holds:
            filled = self.test(filled=True)
            return f"{told} {needed}, but not when what is missing counts as failed (p = {filled.p:.2g}).{missing}"
        if ruling is Ruling.NOT_SUPPORTED and result.rejects and self.graded and self.harm < 0:
            return (
                f"{told} {needed}, but large losses on few tasks may outweigh the gain ({100 * self.harm:+.1f} points)."
            )
        if ruling is Ruling.NOT_SUPPORTED and result.rejects and self.cost is not None and not self.cost.within:
            return f"{told} {needed}, but it costs {self.cost.ratio - 1:.0%} more tokens a task, above the limit."
        return f"{told} {needed}.{missing}"

    def record(self, ruling: Ruling, why: str, veto: Mapping[str, Any]) -> None:
        """Write the verdict down."""
        run, result, worse = self.run, self.result, self.test(sign=-1)
        gained, lost, n = self.tally()
        before, after = self.scores()
        both = sorted(before.keys() & after.keys())
        extra = [one.usage.cost for one in self.trials if one.usage.cost is not None]
        cost = self.cost
        interval = list(result.interval)
        against = {
            "n": n,
            "missing": sum(map(len, self.stages)) - n,
            "coverage": self.coverage,
            "before": fmean(before[task] for task in both) if both else 0.0,
            "after": fmean(after[task] for task in both) if both else 0.0,
            "gain": result.gain,
            "interval": interval,
            "gained": gained,
            "lost": lost,
            "p": result.p,
            "p_worse": worse.p,
            "test": "staged_sign_flip",
        }
        run.note(
            "verdict",
            verdict=ruling,
            candidate=self.finalist.digest,
            why=why,
            canaries={"asked": self.asked, "answered": self.cheated},
            look=self.look,
            alpha=result.alpha,
            p=result.p,
            delta=result.estimate,
            interval=interval,
            n=n,
            repeats=self.repeats[0] if len(set(self.repeats)) == 1 else self.repeats,
            stages=self.results,
            planned=list(self.planned),
            groups=sum(map(len, self.groups())),
            missing=asdict(self.missing),
            least_gain=self.least,
            against_base=against,
            against_no_skill=dict(veto) or None,
            cost=asdict(cost) if cost else None,
            test_cost=sum(extra) if extra else None,
            val={"base": run.state.candidates[run.state.base].mean, "finalist": self.finalist.mean},
            base=before,
            finalist=after,
            no_skill={},
        )


async def _compare_with_nothing(run: RunContext, program: Program) -> dict[str, Any]:
    """Return how the finalist compares with no skill at all, by fresh runs of both on validation tasks.

    First half of them, then, where it is not ahead, the rest, and where it is behind then, all once more.
    """
    half = -(-len(run.val) // 2)
    differences: list[float] = []
    scores: tuple[list[float], list[float]] = ([], [])
    rounds = ((run.val[:half], 0, 2.0), (run.val[half:], 0, 0.0), (run.val, 1, 0.0))
    for number, (tasks, again, enough) in enumerate(rounds, 1):
        requests = [(arm, task, VETO_REPEAT + again) for task in tasks for arm in (NO_SKILL, program)]
        trials = await run.measure(requests, f"confirm/no-skill-{number}")
        arms = [mean_scores(trials, arm.digest) for arm in (NO_SKILL, program)]
        for task in sorted(arms[0].keys() & arms[1].keys()):
            for kept, arm in zip(scores, arms, strict=True):
                kept.append(arm[task])
            differences.append(arms[1][task] - arms[0][task])
        if sum(differences) >= enough:
            break
    before, after = (fmean(kept) if kept else 0.0 for kept in scores)
    return {"n": len(differences), "gain": after - before, "before": before, "after": after, "split": "val"}
