"""The stages of a comparison on given tasks, the level that each may spend, and the answer of a
stage.

Every stage runs each task once more under both arms. The .05 of each side is spent over the stages
by the power family of Kim and DeMets with exponent 4: after the share t of the planned repeats .05
t⁴ is spent, and a stage tests at what it adds. By Bonferroni's inequality all stages together then
err in at most .05 of cases, however they depend on each other. Early stages get little, so they end
only the clearest comparisons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from statistics import NormalDist

from evolvable_evolve.evolution.statistics.repeat_labels import LabelTest, Repeats, label_test

SIDE_ALPHA = 0.05
"""The error limit of each of the answers helps, harms and no difference."""

SPENDING_RULE = "Kim-DeMets, exponent 4, added by Bonferroni"
"""The name of the rule by which stages spend SIDE_ALPHA."""

_EXPONENT = 4
"""The exponent of the rule: the higher, the less alpha early stages spend."""

# One task proves little of a skill.
MIN_NET = 2.0
"""The least net gain, in whole tasks, that is called help or harm."""

# With five, a gain of 25 points on 15 noisy tasks was found in .920 of 5,000 simulated cases
# (`try_claims.py`, `benchmarks/README.md`, 29 November 2026).
DEFAULT_STAGES = 5
"""Repeats of each task under each arm, at most."""

# A skill that changes nothing gets the answer "no difference" in at least nine of ten cases.
_POWER_QUANTILE = NormalDist().inv_cdf(0.9)

_CLOSE = 1e-9
"""More than the rounding error of a sum of scores."""


class TryAnswer(StrEnum):
    """The four answers of a comparison."""

    HELPS = "helps"
    HARMS = "harms"
    NO_DIFFERENCE = "no difference"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class StageDecision:
    """The result of one stage.

    answer: None where a later stage may still decide. level: the alpha of this stage. p, p_worse:
    the p-values of the stage divided by its share of SIDE_ALPHA, so the stage rejects where `p <=
    SIDE_ALPHA`.
    """

    answer: TryAnswer | None
    test: LabelTest
    level: float
    stage: int
    p: float = 1.0
    p_worse: float = 1.0


def stage_level(stage: int, stages: int, alpha: float = SIDE_ALPHA) -> float:
    """Return the alpha at which a stage (from 1) tests each side."""
    before, after = (stage - 1) / stages, stage / stages
    return float(alpha * (after**_EXPONENT - before**_EXPONENT))


def carried_difference(tasks: int, stages: int) -> float:
    """Return the X of "no difference of more than X" for a comparison. It is fixed before the first
    trial.

    Scores lie within 0 and 1, so the difference of means has at most the variance 1/trials. So the
    answer for a skill that changes nothing is "no difference" in nine of ten cases, whatever the
    tasks.
    """
    # Without trials every difference is possible.
    trials = 2 * tasks * stages
    if not trials:
        return 1.0
    critical = _find_critical_value(stage_level(stages, stages))
    return min(1.0, (critical + _POWER_QUANTILE) / sqrt(trials))


def _find_critical_value(level: float) -> float:
    return NormalDist().inv_cdf(1 - level)


def decide_stage(
    before: Repeats, after: Repeats, stage: int, stages: int, tasks: int, alpha: float = SIDE_ALPHA
) -> StageDecision:
    """Return the decision after the repeats so far.

    tasks: those of the whole comparison, on which the carried difference depends. alpha: the error
    limit of helps and of harms, below SIDE_ALPHA where several comparisons are made at once.
    """
    test, level = label_test(before, after), stage_level(stage, stages)
    p, p_worse = (min(1.0, p_value * SIDE_ALPHA / level) for p_value in (test.p, test.p_worse))
    answer: TryAnswer | None = None
    if p <= alpha and test.net >= MIN_NET - _CLOSE:
        answer = TryAnswer.HELPS
    elif p_worse <= alpha and test.net <= _CLOSE - MIN_NET:
        answer = TryAnswer.HARMS
    # After the two sides: a clear gain stays a gain, even one within the carried difference.
    elif _is_alike(before, after, test, level, carried_difference(tasks, stages)):
        answer = TryAnswer.NO_DIFFERENCE
    elif stage >= stages:
        answer = TryAnswer.CANNOT_TELL
    return StageDecision(answer, test, level, stage, p, p_worse)


def _is_alike(before: Repeats, after: Repeats, test: LabelTest, level: float, most: float) -> bool:
    """Return whether a difference of more than `most` in either direction is ruled out at this
    level.
    """
    if not test.tasks:
        return False
    shared = [task for task in before if before[task] and after.get(task)]
    weights = sum(1 / len(arm[task]) for arm in (before, after) for task in shared)
    # A score within 0 and 1 has at most the variance 1/4.
    variance = weights / (4 * test.tasks**2)
    return abs(test.net) / test.tasks + _find_critical_value(level) * sqrt(variance) <= most


def step_up(p_values: Sequence[float], alpha: float = SIDE_ALPHA) -> list[bool]:
    """Return which of these hypotheses the rule of Benjamini and Hochberg rejects.

    Of its rejections at most a share alpha is wrong, on average.
    """
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    passing = [
        rank for rank, at in enumerate(order, 1) if p_values[at] <= alpha * rank / len(p_values)
    ]
    # All up to the largest passing rank are rejected, also those above their own limit.
    rejected = set(order[: max(passing, default=0)])
    return [at in rejected for at in range(len(p_values))]
