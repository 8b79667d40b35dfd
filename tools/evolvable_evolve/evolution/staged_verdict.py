"""The verdict of the staged sealed test, from the stages measured so far: significance and further
conditions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from evolvable_evolve.evolution.canaries import (
    CanaryTask,
    describe_cheating,
    find_answered_canaries,
)
from evolvable_evolve.evolution.ledger import RunCandidate
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.statistics import (
    MissingTrials,
    Ruling,
    StagedResult,
    alpha_of_look,
    compare_log_costs,
    harm_bound,
    staged_sign_flip,
)
from evolvable_evolve.evolution.task import Task, Trial


@dataclass
class StagedVerdict:
    """The stages measured so far, and the figures that follow from them.

    answers: how many share the alpha of the look: one in a search; in a measurement both sides
    under each executor.
    """

    run: RunContext
    finalist: RunCandidate
    look: int
    planned: Sequence[int]
    answers: int = 1
    stages: list[list[Task]] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    repeats: list[int] = field(default_factory=list)
    canary_count: int = 0
    cheated: list[str] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    _tests: dict[tuple[bool, float], StagedResult] = field(default_factory=dict)

    def add(
        self,
        stage: list[Task],
        trials: Sequence[Trial],
        repeats: int,
        canaries: Sequence[CanaryTask],
    ) -> None:
        """Add the trials of a stage."""
        # Trials of canaries are in the first stage, and are no trials of its tasks.
        own = {task.id for task in stage}
        of_canaries = [trial for trial in trials if trial.task not in own]
        self.cheated += find_answered_canaries(canaries, of_canaries)
        self.canary_count = len(canaries)
        self.repeats.append(repeats)
        self.stages.append(stage)
        self.trials += [trial for trial in trials if trial.task in own]
        # The tests of earlier stages are computed again with the new trials.
        self._tests.clear()
        result = self.result
        self.results.append(
            {"tasks": len(stage), "p": result.p, "alpha": result.alpha, "z": result.z}
        )

    @property
    def alpha(self) -> float:
        return alpha_of_look(self.look, self.run.settings.test_alpha) / self.answers

    def scores(self, *, filled: bool = False) -> tuple[dict[str, float], dict[str, float]]:
        """Return the mean of each task under both arms. filled: missing trials count as 0."""
        arms = []
        for program in (self.run.base.digest, self.finalist.digest):
            by_task: dict[str, list[float]] = {}
            for trial in self.trials:
                if trial.program == program and (filled or trial.outcome.counts):
                    by_task.setdefault(trial.task, []).append(trial.score or 0.0)
            arms.append({task: fmean(values) for task, values in by_task.items()})
        return arms[0], arms[1]

    def groups(self, *, filled: bool = False, sign: float = 1.0) -> list[list[list[float]]]:
        """Return for each stage the differences of each group. sign: -1 tests a loss."""
        before, after = self.scores(filled=filled)
        stages = []
        for stage in self.stages:
            groups: dict[str, list[float]] = {}
            for task in stage:
                if task.id in before and task.id in after:
                    difference = sign * (after[task.id] - before[task.id])
                    groups.setdefault(task.group or task.id, []).append(difference)
            stages.append(list(groups.values()))
        return stages

    def test(self, *, filled: bool = False, sign: float = 1.0) -> StagedResult:
        """Return the test of a gain, or with sign -1 of a loss."""
        if (filled, sign) not in self._tests:
            groups = self.groups(filled=filled, sign=sign)
            # The least gain is asked of gains alone: a loss needs no margin.
            least = self.least if sign > 0 else 0.0
            self._tests[filled, sign] = staged_sign_flip(
                groups, self.planned, self.alpha, least=least
            )
        return self._tests[filled, sign]

    @property
    def result(self) -> StagedResult:
        return self.test()

    @property
    def is_graded(self) -> bool:
        """Whether any score is neither 0 nor 1."""
        return any(trial.score not in (None, 0.0, 1.0) for trial in self.trials)

    @property
    def least(self) -> float:
        return self.run.settings.least_gain if self.is_graded else 0.0

    @property
    def missing(self) -> MissingTrials:
        counts = Counter(trial.program for trial in self.trials if not trial.outcome.counts)
        each = sum(len(stage) * runs for stage, runs in zip(self.stages, self.repeats, strict=True))
        return MissingTrials(counts[self.run.base.digest], counts[self.finalist.digest], each)

    @property
    def holds(self) -> bool:
        """Whether the gain is significant, also with missing trials counted as failed where they
        may matter.
        """
        if not self.result.rejects:
            return False
        return not self.missing.matters or self.test(filled=True).rejects

    @property
    def harmful(self) -> bool:
        """Whether the loss is significant, also with missing trials counted as failed where they
        may matter.
        """
        if not self.test(sign=-1).rejects:
            return False
        return not self.missing.matters or self.test(filled=True, sign=-1).rejects

    @property
    def is_over(self) -> bool:
        return bool(self.cheated) or self.holds or self.harmful or self.futile

    @property
    def futile(self) -> bool:
        """Whether an answer is unlikely: a gain, and a loss where that is tested as well."""
        return self.result.futile and (self.answers == 1 or self.test(sign=-1).futile)

    @property
    def coverage(self) -> float:
        """The share of trials that came to a result, of the arm with fewer.

        A task of two runs of which one is missing counts as half.
        """
        missing = self.missing
        return 1 - max(missing.base, missing.finalist) / missing.each if missing.each else 0.0

    def ruling(self) -> Ruling:
        # The strongest reason first: cheating voids every figure, and missing trials every p-value.
        if self.cheated:
            return Ruling.DISQUALIFIED
        if self.coverage < self.run.settings.coverage:
            return Ruling.INDECISIVE
        if self.harmful:
            return Ruling.HARMFUL
        if not self.result.rejects:
            return Ruling.NOT_SUPPORTED
        if not self.holds:
            # With many missing trials the gain may follow from them; with few it is only not
            # significant.
            return Ruling.INDECISIVE if self.missing.many else Ruling.NOT_SUPPORTED
        if self.is_graded and self.harm < 0:
            return Ruling.NOT_SUPPORTED
        return Ruling.PROMOTE if self.cost is None or self.cost.within else Ruling.NOT_SUPPORTED

    @property
    def harm(self) -> float:
        return harm_bound(group for stage in self.groups() for group in stage)

    @property
    def cost(self) -> Any:
        arms: tuple[dict[str, float], dict[str, float]] = ({}, {})
        for arm, program in zip(arms, (self.run.base.digest, self.finalist.digest), strict=True):
            by_task: dict[str, list[float]] = {}
            for trial in self.trials:
                tokens = count_tokens(trial)
                # A trial without reported tokens says nothing of the cost.
                if trial.program == program and trial.outcome.counts and tokens:
                    by_task.setdefault(trial.task, []).append(tokens)
            arm.update({task: fmean(values) for task, values in by_task.items()})
        tasks = sum(map(len, self.stages))
        return compare_log_costs(
            *arms, gain=self.result.gain, tasks=tasks, limit=self.run.settings.cost_rise
        )

    def tally(self) -> tuple[int, int, int]:
        flat = [gain for stage in self.groups() for group in stage for gain in group]
        return sum(gain > 0 for gain in flat), sum(gain < 0 for gain in flat), len(flat)

    def why(self) -> str:
        """Return the reason for the ruling in words."""
        gained, lost, n = self.tally()
        result, ruling = self.result, self.ruling()
        opened = ""
        if len(self.planned) > 1:
            opened = f" after stage {len(self.stages)} of {len(self.planned)}"
        tally = f"{gained} of {n} tasks came out better and {lost} worse{opened}"
        needed = f"(p = {result.p:.2g}, needed {result.alpha:.2g})"
        missing = f" {self.missing}" if self.missing.any else ""
        if ruling is Ruling.DISQUALIFIED:
            return describe_cheating(self.finalist.name, self.canary_count, self.cheated)
        if ruling is Ruling.HARMFUL:
            worse = self.test(sign=-1)
            return (
                f"It is worse than the base: {tally} (p = {worse.p:.2g} for worse, needed "
                f"{worse.alpha:.2g}).{missing}"
            )
        if self.coverage < self.run.settings.coverage:
            return f"Only {self.coverage:.0%} of the trials of an arm came to a result.{missing}"
        if result.rejects and not self.holds:
            filled = self.test(filled=True)
            return (
                f"{tally} {needed}, but not when what is missing counts as failed (p = "
                f"{filled.p:.2g}).{missing}"
            )
        is_overruled = ruling is Ruling.NOT_SUPPORTED and result.rejects
        if is_overruled and self.is_graded and self.harm < 0:
            loss = f"{100 * self.harm:+.1f} points"
            return (
                f"{tally} {needed}, but large losses on few tasks may outweigh the gain ({loss})."
            )
        if is_overruled and self.cost is not None and not self.cost.within:
            return (
                f"{tally} {needed}, but it costs {self.cost.ratio - 1:.0%} more tokens a task, "
                "above the limit."
            )
        return f"{tally} {needed}.{missing}"

    def record(self, ruling: Ruling, why: str, veto: Mapping[str, Any]) -> None:
        """Record the verdict. veto: the comparison with no skill at all, {} without one."""
        run, result, worse = self.run, self.result, self.test(sign=-1)
        gained, lost, n = self.tally()
        before, after = self.scores()
        both = sorted(before.keys() & after.keys())
        dollars = [trial.usage.cost for trial in self.trials if trial.usage.cost is not None]
        cost, interval = self.cost, list(result.interval)
        repeats = self.repeats[0] if len(set(self.repeats)) == 1 else self.repeats
        alpha = result.alpha
        # Both sides share the alpha, and the report states the one of the look.
        if self.answers > 1:
            alpha = alpha_of_look(self.look, run.settings.test_alpha)
        # Twice the smaller of both sides, because either answer was possible.
        both_sides = {"p_worse": worse.p, "p_two_sided": min(1.0, 2 * min(result.p, worse.p))}
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
            canaries={"asked": self.canary_count, "answered": self.cheated},
            look=self.look,
            alpha=alpha,
            **(both_sides if self.answers > 1 else {}),
            p=result.p,
            delta=result.estimate,
            interval=interval,
            n=n,
            repeats=repeats,
            stages=self.results,
            planned=list(self.planned),
            groups=sum(map(len, self.groups())),
            missing=asdict(self.missing),
            least_gain=self.least,
            against_base=against,
            against_no_skill=dict(veto) or None,
            cost=asdict(cost) if cost else None,
            test_cost=sum(dollars) if dollars else None,
            val={"base": run.state.candidates[run.state.base].mean, "finalist": self.finalist.mean},
            base=before,
            finalist=after,
            no_skill={},
        )


def count_tokens(trial: Trial) -> int | None:
    """Return the tokens of a trial, None where they are not reported."""
    return trial.usage.input_tokens + trial.usage.output_tokens or None
