"""The sign-flip test: how often chance alone gives paired differences with so great a sum.

If a change did nothing, each difference could as well have the other sign. The share of all sign patterns whose sum is
at least the one seen is the p-value. It is exact wherever that can be counted: for differences in whole steps (scores
of 0 and 1 averaged over repeats) by the distribution of their sum, for at most twenty others by halves. Beyond that it
is drawn, with one added to both counts so that no p-value is too small.
"""

import math
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from evolvable_tools.evolve.statistics.steps import in_steps

_EXACT = 20
_DRAWS, _LEAST_DRAWS = 10_000, 2_000
_MOST_BITS = 10_000_000
_MAX_CELLS = 4_000_000
_CLOSE = 1e-9


def p_value(differences: Sequence[float], seed: int = 0) -> float:
    """Returns the one-sided p-value of the mean of `differences` being above 0; 1 when none differs from 0.

    `seed` matters only where it is drawn: more than twenty differences that are no multiples of a common step.
    """
    sizes = [abs(value) for value in differences if value]
    if not sizes:
        return 1.0
    seen = math.fsum(differences)
    stepped = in_steps(sizes)
    if stepped is not None and sum(stepped[1]) * len(sizes) <= _MAX_CELLS:
        step, whole = stepped
        return _counted(whole, round(Fraction(seen) / step))
    if len(sizes) <= _EXACT:
        return _halved(sizes, seen)
    return _drawn(sizes, seen, seed)


def _counted(sizes: Sequence[int], seen: int) -> float:
    """Returns the share of sign patterns with a sum of at least `seen`, from the number of patterns of each sum."""
    # Sums of the sizes that keep their sign; the sum of the pattern is twice that less the total.
    ways = [1]
    for size in sizes:
        longer = ways + [0] * size
        for place, count in enumerate(ways):
            longer[place + size] += count
        ways = longer
    least = -(-(seen + sum(sizes)) // 2)
    return sum(ways[max(0, least) :]) / (1 << len(sizes))


def _halved(sizes: Sequence[float], seen: float) -> float:
    """Returns the same for sizes without a common step: every sum of one half against the sorted sums of the other."""
    middle = len(sizes) // 2
    one, other = _sums(sizes[:middle]), sorted(_sums(sizes[middle:]))
    slack = _CLOSE * max(1.0, math.fsum(sizes))
    enough = sum(len(other) - bisect_left(other, seen - part - slack) for part in one)
    return enough / (1 << len(sizes))


def _sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums = [part + size for part in sums] + [part - size for part in sums]
    return sums


def _drawn(sizes: Sequence[float], seen: float, seed: int) -> float:
    """Returns an estimate from random sign patterns; fewer of them the more sizes there are."""
    chance = random.Random(seed)
    total = math.fsum(sizes)
    slack = _CLOSE * max(1.0, total)
    counts = Counter(sizes).items()
    draws = max(_LEAST_DRAWS, min(_DRAWS, _MOST_BITS // len(counts)))
    enough = 0
    for _ in range(draws):
        # Of so many equal sizes the number that keep their sign is the number of ones in as many random bits.
        kept = sum(size * chance.getrandbits(count).bit_count() for size, count in counts)
        enough += 2 * kept - total >= seen - slack
    return (enough + 1) / (draws + 1)
