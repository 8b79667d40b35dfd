"""Intervals by resampling tasks: how far a mean could be another with other tasks of the same kind.

Where the differences share a step and are not too many, every resample there can be is counted; else some are drawn.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from statistics import fmean
from typing import TypeVar

from evolvable_tools.evolve.statistics.steps import in_steps

RESAMPLES = 2000
LEVEL = 0.95

_MOST_BITS = 3_000_000
_MOST_DRAWS, _LEAST = 4_000_000, 400

_Drawn = TypeVar("_Drawn")


def paired_interval(differences: Sequence[float], seed: int = 0, *, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Returns both ends of the 95 % percentile interval for the mean of paired `differences`, one for each task.

    One task gives an interval without width, none gives (-1, 1): everything is possible. `seed` and `resamples` matter
    only where resamples are drawn.
    """
    if not differences:
        return -1.0, 1.0
    stepped = in_steps(differences)
    if stepped is not None:
        step, whole = stepped
        counted = _counted(whole)
        if counted is not None:
            low, high = (float(step * total / len(whole)) for total in counted)
            return low, high
    return _drawn(list(differences), fmean, seed, resamples)


def ratio_interval(
    pairs: Sequence[tuple[float, float]], seed: int = 0, *, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Returns both ends for the ratio of the sums, second to first, over paired values; None without a first sum."""
    if not pairs or sum(first for first, _ in pairs) <= 0:
        return None

    def ratio(drawn: Sequence[tuple[float, float]]) -> float:
        below = sum(first for first, _ in drawn)
        return sum(second for _, second in drawn) / below if below > 0 else float("inf")

    return _drawn(list(pairs), ratio, seed, resamples)


def _counted(whole: Sequence[int]) -> tuple[int, int] | None:
    """Returns both ends for the sum of a resample, or None when counting them all takes too long.

    The resamples with a sum are a coefficient of a polynomial's power. The polynomial is written as one number, its
    coefficients so far apart that none of the power's reaches into the next.
    """
    least, tasks = min(whole), len(whole)
    width = (max(whole) - least) * tasks + 1
    slot = (tasks * tasks.bit_length()) // 8 + 1
    if 8 * slot * width > _MOST_BITS:
        return None
    packed = sum(count << (8 * slot * (value - least)) for value, count in Counter(whole).items())
    power = (packed**tasks).to_bytes(slot * width, "little")
    counts = (int.from_bytes(power[place : place + slot], "little") for place in range(0, len(power), slot))
    low, high = _ends(counts, tasks**tasks)
    return low + least * tasks, high + least * tasks


def _ends(counts: Iterator[int], every: int) -> tuple[int, int]:
    """Returns the first places at which the tail below, and all but the tail above, are reached."""
    tail = Fraction(1 - LEVEL).limit_denominator(1000) / 2
    low, seen = -1, 0
    for place, count in enumerate(counts):
        seen += count
        if low < 0 and seen >= tail * every:
            low = place
        if seen >= (1 - tail) * every:
            return low, place
    raise AssertionError("all resamples are more than most of them")


def _drawn(
    values: list[_Drawn], of: Callable[[Sequence[_Drawn]], float], seed: int, resamples: int
) -> tuple[float, float]:
    chance = random.Random(seed)
    resamples = min(resamples, max(_LEAST, _MOST_DRAWS // len(values)))
    drawn = sorted(of(chance.choices(values, k=len(values))) for _ in range(resamples))
    tail = (1 - LEVEL) / 2
    last = len(drawn) - 1
    return drawn[round(tail * last)], drawn[round((1 - tail) * last)]
