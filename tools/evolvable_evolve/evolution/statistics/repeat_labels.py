"""Did a change help on exactly these tasks? The unit is the repeat: arm labels are permuted inside
each task.

If both arms behave alike on a task, each of its trials could as well have been run under the other
arm. The p-value is the share of all ways to deal the labels, in every task for itself, whose net
gain is at least the one seen. It is exact: the ways of one task are a polynomial in its gain, and
the ways of all tasks are their product.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

# One hundredth, so that the numbers of an exact count stay small. Scores of 0 and 1 are exact.
GRID = 100
"""Steps of a score from 0 to 1: scores are compared in whole steps."""

Repeats = Mapping[str, Sequence[float]]
"""The scores of one arm by task, one for each repeat that counts."""

_Ways = tuple[tuple[int, int], ...]
"""The gains of one task in steps, ascending, each with the number of ways in which labels
give it.
"""


@dataclass(frozen=True, slots=True)
class LabelTest:
    """The test of the net gain over these tasks.

    tasks: their number. net: the sum of the gains of all tasks, each the difference of its means.
    p, p_worse: the one-sided p-values of a gain and of a loss. steady: whether all repeats of every
    task agree under either arm. fixed, broken: tasks that came out better and worse.
    """

    tasks: int
    net: float
    p: float
    p_worse: float
    steady: bool
    fixed: int
    broken: int


def label_test(before: Repeats, after: Repeats) -> LabelTest:
    """Return the exact test of the gain of `after` over `before` on the tasks that both have."""
    tasks = [task for task in before if before[task] and after.get(task)]
    gains = [_mean(after[task]) - _mean(before[task]) for task in tasks]
    # In units of one over it, every difference of means is a whole number.
    scale = math.lcm(*(len(arm[task]) for arm in (before, after) for task in tasks))
    steps = [(_to_steps(before[task]), _to_steps(after[task])) for task in tasks]
    laws = [_count_ways(*arms, scale) for arms in steps]
    observed = sum(_scale_gain(*arms, scale) for arms in steps)
    better, worse = _compute_tails(laws, observed)
    return LabelTest(
        len(tasks),
        math.fsum(gains),
        better,
        worse,
        all(len(set(arm[task])) == 1 for arm in (before, after) for task in tasks),
        sum(gain > 0 for gain in gains),
        sum(gain < 0 for gain in gains),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _to_steps(values: Sequence[float]) -> tuple[int, ...]:
    # Sorted, so that tasks with the same scores are one entry of the cache of `_count_ways`.
    return tuple(sorted(round(value * GRID) for value in values))


def _scale_gain(before: Sequence[int], after: Sequence[int], scale: int) -> int:
    return sum(after) * (scale // len(after)) - sum(before) * (scale // len(before))


# Tasks with the same scores have the same ways.
@lru_cache(maxsize=4096)
def _count_ways(before: tuple[int, ...], after: tuple[int, ...], scale: int) -> _Ways:
    """Return every gain that the labels of one task can give, with the number of ways to deal them
    so.
    """
    pooled = tuple(sorted(before + after))
    total = sum(pooled)
    own, other = scale // len(after), scale // len(before)
    ways: Counter[int] = Counter()
    for part, count in _count_part_sums(pooled, len(after)).items():
        ways[part * own - (total - part) * other] += count
    return tuple(sorted(ways.items()))


def _count_part_sums(pooled: tuple[int, ...], size: int) -> Counter[int]:
    """Return in how many ways `size` of the values have each sum."""
    low, high = pooled[0], pooled[-1]
    # Of two values by binomial coefficients, because the combinations themselves grow exponentially
    # with the repeats.
    if set(pooled) <= {low, high} and low != high:
        highs = pooled.count(high)
        lows = len(pooled) - highs
        return Counter(
            {
                k * high + (size - k) * low: comb(highs, k) * comb(lows, size - k)
                for k in range(max(0, size - lows), min(highs, size) + 1)
            }
        )
    return Counter(sum(part) for part in combinations(pooled, size))


def _compute_tails(laws: Sequence[_Ways], observed: int) -> tuple[float, float]:
    """Return the shares of all ways with at least, and with at most, the observed gain.

    The polynomials are written as numbers. Their coefficients are so far apart that none of the
    product's reaches into the next, so multiplying them is one operation of whole numbers.
    """
    every = math.prod(sum(count for _, count in law) for law in laws)
    # Exponents must not be negative, so gains are counted from the least.
    least = sum(law[0][0] for law in laws)
    step = math.gcd(*(gain - law[0][0] for law in laws for gain, _ in law)) or 1
    # No coefficient is larger than the number of all ways.
    slot = every.bit_length() + 1
    packed = [
        sum(count << (slot * ((gain - law[0][0]) // step)) for gain, count in law) for law in laws
    ]
    product = _multiply(packed)
    place = (observed - least) // step
    mask = (1 << slot) - 1
    at_least = _sum_coefficients(product >> (slot * place), slot)
    exactly = (product >> (slot * place)) & mask
    return at_least / every, (every - at_least + exactly) / every


def _multiply(numbers: Sequence[int]) -> int:
    """Return the product of numbers.

    Both halves are multiplied first, so that few multiplications have large factors.
    """
    if len(numbers) <= 1:
        return numbers[0] if numbers else 1
    middle = len(numbers) // 2
    return _multiply(numbers[:middle]) * _multiply(numbers[middle:])


def _sum_coefficients(packed: int, slot: int) -> int:
    mask, total = (1 << slot) - 1, 0
    while packed:
        total += packed & mask
        packed >>= slot
    return total
