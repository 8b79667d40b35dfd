"""Repeated runs of one task: how far their mean can be trusted, and whether all or any of k would
pass.
"""

import math
from collections.abc import Sequence
from math import comb
from statistics import fmean


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    middle = fmean(values)
    # Not stdev: where a gain equals its standard error, the last bit decides, and others compute it
    # like this.
    spread = sum((value - middle) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(spread / len(values))


def combined_standard_error(means: Sequence[float], errors: Sequence[float]) -> float:
    """Return the standard error of the mean over tasks: the spread among them and the mean error
    within them.
    """
    if not means:
        return 0.0
    within = math.sqrt(math.fsum(error * error for error in errors)) / len(means)
    return math.hypot(standard_error(means), within)


def passes_all(scores: Sequence[float], k: int) -> float | None:
    """Return the chance that `k` runs drawn from `scores` all pass (score 1); None with fewer than
    `k` runs.
    """
    return comb(_passed(scores), k) / comb(len(scores), k) if k <= len(scores) else None


def passes_any(scores: Sequence[float], k: int) -> float:
    """Return the chance that at least one of `k` drawn runs passes; of fewer runs all are drawn."""
    drawn = min(k, len(scores))
    return 1 - comb(len(scores) - _passed(scores), drawn) / comb(len(scores), drawn)


def mean(scores: Sequence[float]) -> float | None:
    """Return the mean of the repeats that count, or None when none does."""
    return fmean(scores) if scores else None


def _passed(scores: Sequence[float]) -> int:
    return sum(score >= 1 for score in scores)
