"""Exact tests of paired trials, intervals, pooled estimates, and the alpha of each access to a
sealed test.

Sign-flip test: if a change did nothing, each difference could as well have the other sign. The
p-value is the share of all sign patterns whose sum is at least the observed one. It is counted
exactly for differences in whole steps (scores of 0 and 1 averaged over repeats) and for at most
twenty others. Beyond that it is drawn, with one added to both counts so that no p-value is too
small. Intervals count every resample of tasks in the same way, or draw some.
"""

import math
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import pi
from statistics import fmean
from typing import TypeVar

from evolvable_store.errors import InvalidArgument

# 6!, far above the denominators of means over a few repeats.
_MAX_DENOMINATOR = 720

_CLOSE = 1e-9
"""More than a float differs from its fraction by rounding."""


def to_lattice(values: Sequence[float]) -> tuple[Fraction, list[int]] | None:
    """Return the greatest common step of `values` and the number of steps of each, None without a
    common step.

    A step is a fraction with a denominator of at most 720. It is 1 where all values are 0.
    """
    exact = [_nearest_fraction(value) for value in values]
    for near, value in zip(exact, values, strict=True):
        # A small value that rounds to 0 would lose its sign.
        if abs(float(near) - value) > _CLOSE or bool(near) != bool(value):
            return None
    below = math.lcm(*(near.denominator for near in exact))
    whole = [int(near * below) for near in exact]
    shared = math.gcd(*whole) or below
    return Fraction(shared, below), [value // shared for value in whole]


# The same few scores occur in every test.
@lru_cache(maxsize=4096)
def _nearest_fraction(value: float) -> Fraction:
    return Fraction(value).limit_denominator(_MAX_DENOMINATOR)


TOTAL_ALPHA = 0.05
"""The alpha of all looks at one test together."""


def alpha_for_look(look: int, alpha: float = TOTAL_ALPHA) -> float:
    """Return the alpha of the `look`-th look (from 1): `alpha` times 6/(pi² look²), which sum to
    `alpha` at most.
    """
    if look < 1:
        raise InvalidArgument(f"Looks at a test are counted from 1, not from {look}.")
    # 6/pi² is one over the sum of all 1/k².
    return alpha * 6 / (pi * pi * look * look)


# Two halves of ten differences have 1,024 sums each.
_EXACT_SIGNS = 20
"""Differences without a common step up to which the test is exact."""

# A p-value of .05 has a standard error of .002 with 10,000 patterns and of .005 with 2,000.
_DRAWS, _LEAST_DRAWS = 10_000, 2_000
"""Sign patterns that are drawn, at most and at least."""

# Bounds the time of a drawn test: with many different sizes fewer patterns are drawn.
_MOST_BITS = 10_000_000
"""Random bits of one drawn test."""

# Bounds the time of an exact count.
_MAX_CELLS = 4_000_000
"""Additions of an exact count."""


def sign_flip_p_value(differences: Sequence[float], seed: int = 0) -> float:
    """Return the one-sided p-value of the mean of `differences` being above 0, 1 where none differs
    from 0.

    `seed` matters only where patterns are drawn: with more than twenty differences that are no
    multiples of a common step.
    """
    sizes = [abs(value) for value in differences if value]
    if not sizes:
        return 1.0
    observed = math.fsum(differences)
    stepped = to_lattice(sizes)
    if stepped is not None and sum(stepped[1]) * len(sizes) <= _MAX_CELLS:
        step, whole = stepped
        return _count_sign_share(whole, round(Fraction(observed) / step))
    if len(sizes) <= _EXACT_SIGNS:
        return _split_sign_share(sizes, observed)
    return _draw_sign_share(sizes, observed, seed)


def _count_sign_share(sizes: Sequence[int], observed: int) -> float:
    """Return the share of sign patterns with a sum of at least `observed`, by counting the patterns
    of each sum.
    """
    # Sums of the sizes that keep their sign; the sum of the pattern is twice that less the total.
    ways = [1]
    for size in sizes:
        longer = ways + [0] * size
        for place, count in enumerate(ways):
            longer[place + size] += count
        ways = longer
    # Rounded up: the pattern's sum, twice the kept sizes less the total, must reach `observed`.
    least = -(-(observed + sum(sizes)) // 2)
    return sum(ways[max(0, least) :]) / (1 << len(sizes))


def _split_sign_share(sizes: Sequence[float], observed: float) -> float:
    """Return the same share for sizes without a common step.

    Every sum of one half of the sizes is compared with the sorted sums of the other half.
    """
    middle = len(sizes) // 2
    left_sums, right_sums = _list_sums(sizes[:middle]), sorted(_list_sums(sizes[middle:]))
    # Equal sums may differ by rounding, and have to count as reached.
    slack = _CLOSE * max(1.0, math.fsum(sizes))
    reached = sum(
        len(right_sums) - bisect_left(right_sums, observed - part - slack) for part in left_sums
    )
    return reached / (1 << len(sizes))


def _list_sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums = [part + size for part in sums] + [part - size for part in sums]
    return sums


def _draw_sign_share(sizes: Sequence[float], observed: float, seed: int) -> float:
    """Return an estimate of the share from random sign patterns."""
    rng = random.Random(seed)
    total = math.fsum(sizes)
    slack = _CLOSE * max(1.0, total)
    counts = Counter(sizes).items()
    draws = max(_LEAST_DRAWS, min(_DRAWS, _MOST_BITS // len(counts)))
    reached = 0
    for _ in range(draws):
        # Of `count` equal sizes the number that keep their sign is the number of ones in as many
        # random bits.
        positive = sum(size * rng.getrandbits(count).bit_count() for size, count in counts)
        reached += 2 * positive - total >= observed - slack
    return (reached + 1) / (draws + 1)


# The usual number for a 95 % percentile interval.
RESAMPLES = 2000
"""Resamples of an interval that is drawn, at most."""

LEVEL = 0.95
"""Coverage of every interval."""

# Bounds the time of an exact interval.
_BOOTSTRAP_BITS = 3_000_000
"""Bits of the packed power of a polynomial."""

# Bounds the time of a drawn interval: many tasks get fewer resamples. 400 have ten beyond each end.
_BOOTSTRAP_DRAWS, _MIN_RESAMPLES = 4_000_000, 400
"""Values that all resamples draw together, and resamples at least."""

_Drawn = TypeVar("_Drawn")


def paired_interval(differences: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return both ends of the 95 % percentile interval for the mean of paired `differences`, one
    for each task.

    One task gives an interval without width. No task gives (-1, 1), because every mean is possible.
    `seed` matters only where resamples are drawn.
    """
    if not differences:
        return -1.0, 1.0
    stepped = to_lattice(differences)
    if stepped is not None:
        step, whole = stepped
        counted = _count_interval(whole)
        if counted is not None:
            low, high = (float(step * total / len(whole)) for total in counted)
            return low, high
    return _draw_interval(list(differences), fmean, seed)


def _count_interval(whole: Sequence[int]) -> tuple[int, int] | None:
    """Return both ends for the sum of a resample, None where counting them all takes too long.

    The number of resamples with a sum is a coefficient of a polynomial's power. The polynomial is
    written as one number. Its coefficients are so far apart that none of the power's reaches into
    the next.
    """
    least, tasks = min(whole), len(whole)
    width = (max(whole) - least) * tasks + 1
    # Bytes of a coefficient: it counts at most tasks**tasks resamples.
    slot = (tasks * tasks.bit_length()) // 8 + 1
    if 8 * slot * width > _BOOTSTRAP_BITS:
        return None
    packed = sum(count << (8 * slot * (value - least)) for value, count in Counter(whole).items())
    power = (packed**tasks).to_bytes(slot * width, "little")
    counts = (
        int.from_bytes(power[place : place + slot], "little")
        for place in range(0, len(power), slot)
    )
    low, high = _find_ends(counts, tasks**tasks)
    return low + least * tasks, high + least * tasks


def _find_ends(counts: Iterator[int], every: int) -> tuple[int, int]:
    """Return the first places at which the tail below, and all but the tail above, are reached.

    every: the sum of all counts.
    """
    # A fraction, because the counts can be larger than any float.
    tail = Fraction(1 - LEVEL).limit_denominator(1000) / 2
    low, passed = -1, 0
    for place, count in enumerate(counts):
        passed += count
        if low < 0 and passed >= tail * every:
            low = place
        if passed >= (1 - tail) * every:
            return low, place
    raise AssertionError("all resamples are more than most of them")


def _draw_interval(
    values: list[_Drawn], of: Callable[[Sequence[_Drawn]], float], seed: int
) -> tuple[float, float]:
    """Return both ends for the statistic `of` from random resamples of the values."""
    rng = random.Random(seed)
    resamples = min(RESAMPLES, max(_MIN_RESAMPLES, _BOOTSTRAP_DRAWS // len(values)))
    drawn = sorted(of(rng.choices(values, k=len(values))) for _ in range(resamples))
    tail = (1 - LEVEL) / 2
    last = len(drawn) - 1
    return drawn[round(tail * last)], drawn[round((1 - tail) * last)]


POWER = 0.8
"""The power that plans ask for: four runs of five, the usual convention."""

# Three tasks in ten are unstable, each passing two runs in three: .3 * 2 * 2/3 * 1/3 is .133.
NOISE = 0.14
"""Share of tasks whose result differs between two runs of the same program, where it was not
measured.
"""

Estimates = Mapping[str, tuple[float, float]]
"""By task the mean score, and its weight in trials."""

# Later trials must be able to change an estimate.
MOST_WEIGHT = 4.0
"""The weight of the estimate of one task at most, in trials."""


def read_estimates(written: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Return the estimates of a record: by task the mean score and its weight."""
    return {task: (float(score), float(weight)) for task, (score, weight) in written.items()}


def pool_estimates(
    earlier: Estimates, seen: Estimates, share: float
) -> dict[str, tuple[float, float]]:
    """Return the estimates `earlier` updated by `seen`, whose trials weigh `share` each.

    Tasks of `seen` without an earlier estimate are left out.
    """
    pooled = dict(earlier)
    for task in seen.keys() & earlier.keys():
        (score, weight), (new_score, trials) = earlier[task], seen[task]
        total = weight + share * trials
        mean = (score * weight + new_score * share * trials) / total
        pooled[task] = (mean, min(MOST_WEIGHT, total))
    return pooled
