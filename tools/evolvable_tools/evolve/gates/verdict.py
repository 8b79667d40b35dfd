"""The verdict: one finalist against the base and against no skill at all, on the sealed test, by one exact test."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from evolvable_tools.evolve.gates import cost
from evolvable_tools.evolve.gates.pairs import Pairs, Scores, pair
from evolvable_tools.evolve.statistics import bootstrap, mcnemar, sign_flip
from evolvable_tools.evolve.statistics.looks import alpha_of


class Ruling(StrEnum):
    """What a run may say of its finalist."""

    PROMOTE = "PROMOTE"
    NOT_SUPPORTED = "NOT SUPPORTED"
    HARMFUL = "HARMFUL"
    INDECISIVE = "INDECISIVE"
    DISQUALIFIED = "DISQUALIFIED"


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
class Verdict:
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
    cost: cost.CostChange | None

    @property
    def p(self) -> float:
        """The p-value of the promotion test."""
        return self.against_base.p

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the gain over the base."""
        return self.against_base.interval


def verdict(
    base: Scores,
    no_skill: Scores | None,
    finalist: Scores,
    *,
    look: int,
    tasks: Collection[str] | None = None,
    costs: cost.Costs | None = None,
    seed: int = 0,
    resamples: int = bootstrap.RESAMPLES,
) -> Verdict:
    """Returns the verdict on `finalist` from its scores on the sealed test and those of the other arms.

    `tasks` are all tasks of the test (by default those with any score); of them at least 60 % have to be measured under
    every arm. `no_skill` is None where the base is literally empty. `look` counts from 1 how often this test set was
    looked at, over all runs. Promoted is what beats the base at the alpha of the look, is on average no worse than no
    skill, and does not cost too much more. A task that came out worse is told and is no veto.
    """
    every = set(tasks) if tasks is not None else {*base, *finalist, *(no_skill or {})}
    pairs = pair(base, finalist, every)
    empty = None if no_skill is None else pair(no_skill, finalist, every)
    first = _compare(pairs, seed, resamples)
    second = None if empty is None else _compare(empty, seed, resamples)
    change = None if costs is None else cost.change(costs, first.gain, first.n, seed, resamples)
    alpha = alpha_of(look)
    decisive = pairs.decisive and (empty is None or empty.decisive)
    ruling, why = _rule(first, second, change, alpha, decisive)
    return Verdict(ruling, why, look, alpha, first, second, change)


def _compare(pairs: Pairs, seed: int, resamples: int) -> Comparison:
    changes = pairs.differences
    gained, lost = len(pairs.fixed), len(pairs.broken)
    if pairs.binary:
        p, p_worse, test = mcnemar.one_sided(gained, lost), mcnemar.one_sided(lost, gained), "mcnemar"
    else:
        p, p_worse = sign_flip.p_value(changes, seed), sign_flip.p_value([-change for change in changes], seed)
        test = "sign_flip"
    return Comparison(
        n=len(pairs.tasks),
        missing=len(pairs.missing),
        coverage=pairs.coverage,
        before=fmean(pairs.before) if pairs.tasks else 0.0,
        after=fmean(pairs.after) if pairs.tasks else 0.0,
        gain=pairs.gain,
        interval=bootstrap.paired_interval(changes, seed, resamples=resamples),
        gained=gained,
        lost=lost,
        p=p,
        p_worse=p_worse,
        test=test,
    )


def _rule(
    base: Comparison, empty: Comparison | None, change: cost.CostChange | None, alpha: float, decisive: bool
) -> tuple[Ruling, str]:
    tally = f"{base.gained} of {base.n} tasks came out better and {base.lost} worse"
    if not decisive:
        measured = min(base.coverage, empty.coverage if empty else 1.0)
        return (
            Ruling.INDECISIVE,
            f"Only {measured:.0%} of the test was measured under every arm; at least 60 % must be.",
        )
    if base.p_worse <= alpha:
        return Ruling.HARMFUL, f"It is worse than the base: {tally} (p = {base.p_worse:.2g} for worse)."
    if empty is not None and empty.p_worse <= alpha:
        return Ruling.HARMFUL, f"It is worse than no skill at all (p = {empty.p_worse:.2g} for worse)."
    if base.p > alpha:
        return Ruling.NOT_SUPPORTED, f"{tally} (p = {base.p:.2g}, needed {alpha:.2g})."
    if empty is not None and empty.gain < 0:
        return Ruling.NOT_SUPPORTED, f"{tally}, but no skill at all did better still, by {-empty.gain:.1%}."
    if change is not None and not change.within:
        return (
            Ruling.NOT_SUPPORTED,
            f"{tally}, but it may cost {change.interval[1] - 1:.0%} more tokens a task, above the limit.",
        )
    return Ruling.PROMOTE, f"{tally} (p = {base.p:.2g}, needed {alpha:.2g})."
