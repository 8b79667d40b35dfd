"""The verdict on a finalist against the base and against no skill, by one exact test and a limit on cost."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import compress
from statistics import fmean, stdev

from evolvable_evolve.evolution.statistics import paired_tests
from evolvable_evolve.evolution.statistics.paired_tests import alpha_for_look
from evolvable_store.errors import InvalidArgument

Scores = Mapping[str, Sequence[float]]
"""The scores that count by task id, one for each repeat. A task without a score that counts is missing."""

MIN_COVERAGE = 0.6


@dataclass(frozen=True, slots=True)
class PairedScores:
    """The tasks measured under both, in sorted order of their ids, with their means; and the share of all tasks."""

    tasks: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    missing: tuple[str, ...]

    @property
    def differences(self) -> tuple[float, ...]:
        """After less before, one for each task measured under both."""
        return tuple(after - before for before, after in zip(self.before, self.after, strict=True))

    @property
    def gain(self) -> float:
        """The mean difference; 0 without tasks."""
        return fmean(self.differences) if self.tasks else 0.0

    @property
    def coverage(self) -> float:
        """The share of tasks that were measured under both; 0 without tasks."""
        every = len(self.tasks) + len(self.missing)
        return len(self.tasks) / every if every else 0.0

    @property
    def binary(self) -> bool:
        """Whether every task passed or failed outright, so that gains and losses can be counted."""
        return all(score in (0.0, 1.0) for score in (*self.before, *self.after))

    @property
    def fixed(self) -> tuple[str, ...]:
        """The tasks that came out better."""
        return tuple(compress(self.tasks, (change > 0 for change in self.differences)))

    @property
    def broken(self) -> tuple[str, ...]:
        """The tasks that came out worse."""
        return tuple(compress(self.tasks, (change < 0 for change in self.differences)))


def pair_scores(before: Scores, after: Scores, tasks: Collection[str] | None = None) -> PairedScores:
    """Return both on the same tasks. `tasks` are all that should have been measured; by default those of either.

    Repeats are averaged for each task: they are no independent tasks. Raises InvalidArgument for a score outside
    0 to 1.
    """
    every = sorted(set(tasks) if tasks is not None else {*before, *after})
    both = tuple(task for task in every if before.get(task) and after.get(task))
    first, second = (tuple(_mean_repeats(task, scores[task]) for task in both) for scores in (before, after))
    return PairedScores(both, first, second, missing=tuple(sorted(set(every) - set(both))))


def _mean_repeats(task: str, scores: Sequence[float]) -> float:
    if not all(0 <= score <= 1 for score in scores):
        raise InvalidArgument(f"Task {task} has a score outside 0 to 1: {', '.join(map(str, scores))}.")
    return fmean(scores)


MAX_COST_RISE = 0.25


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """Tokens for each task (mean over repeats) under both programs, and how much more is borne.

    `limit` is a share: .25 bears a quarter more.
    """

    base: Mapping[str, float]
    finalist: Mapping[str, float]
    limit: float = MAX_COST_RISE


@dataclass(frozen=True, slots=True)
class CostChange:
    """Tokens a task before and after, over the `n` tasks known of both; the ratio with its 95 % interval.

    `per_extra_solved` is what each further solved task costs in tokens, None when none is solved more.
    """

    n: int
    before: float
    after: float
    ratio: float
    interval: tuple[float, float]
    within: bool
    per_extra_solved: float | None


def compare_costs(costs: TokenCosts, gain: float, tasks: int, seed: int) -> CostChange | None:
    """Return the change of cost; None where it is unknown: for under 60 % of the `tasks`, or for no tokens.

    `gain` is the mean gain of a task. The change is `within` when the upper end of the ratio is at most 1 + limit.
    """
    both = sorted(set(costs.base) & set(costs.finalist))
    pairs = [(costs.base[task], costs.finalist[task]) for task in both]
    interval = paired_tests.ratio_interval(pairs, seed)
    if interval is None or len(both) < MIN_COVERAGE * tasks:
        return None
    before, after = (sum(tokens) / len(pairs) for tokens in zip(*pairs, strict=True))
    more = (after - before) / gain if gain > 0 else None
    return CostChange(len(both), before, after, after / before, interval, interval[1] <= 1 + costs.limit, more)


def compare_log_costs(
    base: Mapping[str, float], finalist: Mapping[str, float], *, gain: float, tasks: int, limit: float = MAX_COST_RISE
) -> CostChange | None:
    """Return the change of cost by the mean of the log ratios of paired tasks; None where it is unknown.

    A few tasks that take very many tokens say little so. The change is `within` unless its estimate exceeds the limit.
    """
    both = sorted(task for task in set(base) & set(finalist) if base[task] > 0 and finalist[task] > 0)
    if not both or len(both) < MIN_COVERAGE * tasks:
        return None
    logs = [math.log(finalist[task] / base[task]) for task in both]
    mean = fmean(logs)
    error = stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    low, high = math.exp(mean - 1.96 * error), math.exp(mean + 1.96 * error)
    before, after = (fmean(arm[task] for task in both) for arm in (base, finalist))
    more = (after - before) / gain if gain > 0 else None
    ratio = math.exp(mean)
    return CostChange(len(both), before, after, ratio, (low, high), ratio <= 1 + limit, more)


class Ruling(StrEnum):
    """What a run may say of its finalist."""

    PROMOTE = "PROMOTE"
    NOT_SUPPORTED = "NOT SUPPORTED"
    HARMFUL = "HARMFUL"
    INDECISIVE = "INDECISIVE"
    DISQUALIFIED = "DISQUALIFIED"
    BETTER_HERE = "BETTER ON THESE TASKS"
    """The narrower claim of a small task set; only a person adopts it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One paired comparison. `p` is one-sided for the finalist being better, `p_worse` for it being worse.

    `gained` and `lost` count tasks that came out better and worse, `interval` is the 95 % interval of the `gain`, the
    mean difference. `test` is `mcnemar` where every task passes or fails, else `sign_flip`.
    """

    n: int
    missing: int
    coverage: float
    before: float
    after: float
    gain: float
    interval: tuple[float, float]
    gained: int
    lost: int
    p: float
    p_worse: float
    test: str


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The ruling with all that it rests on. `why` is one sentence for a person.

    `alpha` is what `p` had to reach at this `look` at the test set. `against_no_skill` is None where that arm is the
    base itself. `cost` is None where it is unknown.
    """

    ruling: Ruling
    why: str
    look: int
    alpha: float
    against_base: Comparison
    against_no_skill: Comparison | None
    cost: CostChange | None

    @property
    def p(self) -> float:
        """The p-value of the promotion test."""
        return self.against_base.p

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the gain over the base."""
        return self.against_base.interval


def decide_verdict(
    base: Scores,
    no_skill: Scores | None,
    finalist: Scores,
    *,
    look: int,
    tasks: Collection[str] | None = None,
    costs: TokenCosts | None = None,
    seed: int = 0,
) -> RunVerdict:
    """Return the verdict on `finalist` from its scores on the sealed test and those of the other arms.

    `tasks` are all tasks of the test (by default those with any score); of them at least 60 % have to be measured under
    every arm. `no_skill` is None where the base is literally empty. `look` counts from 1 how often this test set was
    looked at, over all runs. Promoted is what beats the base at the alpha of the look, is on average no worse than no
    skill, and does not cost too much more. A task that came out worse is told and is no veto.
    """
    every = set(tasks) if tasks is not None else {*base, *finalist, *(no_skill or {})}
    first = _compare_pairs(pair_scores(base, finalist, every), seed)
    second = None if no_skill is None else _compare_pairs(pair_scores(no_skill, finalist, every), seed)
    change = None if costs is None else compare_costs(costs, first.gain, first.n, seed)
    alpha = alpha_for_look(look)
    ruling, why = _choose_ruling(first, second, change, alpha)
    return RunVerdict(ruling, why, look, alpha, first, second, change)


def _compare_pairs(pairs: PairedScores, seed: int) -> Comparison:
    changes = pairs.differences
    gained, lost = len(pairs.fixed), len(pairs.broken)
    if pairs.binary:
        p, p_worse = (paired_tests.mcnemar_one_sided(*tally) for tally in ((gained, lost), (lost, gained)))
    else:
        either_way = (changes, [-change for change in changes])
        p, p_worse = (paired_tests.sign_flip_p_value(each, seed) for each in either_way)
    return Comparison(
        n=len(pairs.tasks),
        missing=len(pairs.missing),
        coverage=pairs.coverage,
        before=fmean(pairs.before) if pairs.tasks else 0.0,
        after=fmean(pairs.after) if pairs.tasks else 0.0,
        gain=pairs.gain,
        interval=paired_tests.paired_interval(changes, seed),
        gained=gained,
        lost=lost,
        p=p,
        p_worse=p_worse,
        test="mcnemar" if pairs.binary else "sign_flip",
    )


def _choose_ruling(
    base: Comparison, empty: Comparison | None, change: CostChange | None, alpha: float
) -> tuple[Ruling, str]:
    tally = f"{base.gained} of {base.n} tasks came out better and {base.lost} worse"
    measured = min(base.coverage, empty.coverage if empty else 1.0)
    if measured < MIN_COVERAGE:
        why = f"Only {measured:.0%} of the test was measured under every arm; at least 60 % must be."
        return Ruling.INDECISIVE, why
    if base.p_worse <= alpha:
        return Ruling.HARMFUL, f"It is worse than the base: {tally} (p = {base.p_worse:.2g} for worse)."
    if empty is not None and empty.p_worse <= alpha:
        return Ruling.HARMFUL, f"It is worse than no skill at all (p = {empty.p_worse:.2g} for worse)."
    if base.p > alpha:
        return Ruling.NOT_SUPPORTED, f"{tally} (p = {base.p:.2g}, needed {alpha:.2g})."
    if empty is not None and empty.gain < 0:
        return Ruling.NOT_SUPPORTED, f"{tally}, but no skill at all did better still, by {-empty.gain:.1%}."
    if change is not None and not change.within:
        why = f"{tally}, but it may cost {change.interval[1] - 1:.0%} more tokens a task, above the limit."
        return Ruling.NOT_SUPPORTED, why
    return Ruling.PROMOTE, f"{tally} (p = {base.p:.2g}, needed {alpha:.2g})."
