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

GRID = 100
"""Scores are compared in steps of one hundredth: so exact counts stay small.

Scores of 0 and 1 are exact.
"""

Repeats = Mapping[str, Sequence[float]]
"""The scores of one arm by task, one for each repeat that counts."""

# Gain of one task in steps, and in how many ways the labels give it.
_Ways = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LabelTest:
    """Both p-values of the net gain over these tasks.

    net: the gains of all tasks, each the difference of its means, summed: in tasks' worth. steady:
    all repeats of every task agree under either arm. fixed, broken: tasks that came out better and
    worse.
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
    laws = [
        _task_ways(
            _steps(before[task]),
            _steps(after[task]),
            scale,
        )
        for task in tasks
    ]
    seen = sum(
        _scaled_gain(
            _steps(before[task]),
            _steps(after[task]),
            scale,
        )
        for task in tasks
    )
    better, worse = _tails(laws, seen)
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


def _steps(values: Sequence[float]) -> tuple[int, ...]:
    return tuple(sorted(round(value * GRID) for value in values))


def _scaled_gain(before: Sequence[int], after: Sequence[int], scale: int) -> int:
    return sum(after) * (scale // len(after)) - sum(before) * (scale // len(before))


# Tasks with the same scores have the same law.
@lru_cache(maxsize=4096)
def _task_ways(before: tuple[int, ...], after: tuple[int, ...], scale: int) -> _Ways:
    """Return every gain that the labels of one task can give, with the number of ways to deal them
    so.
    """
    pooled = tuple(sorted(before + after))
    whole = sum(pooled)
    own, other = scale // len(after), scale // len(before)
    ways: Counter[int] = Counter()
    for part, count in _part_sums(pooled, len(after)).items():
        ways[part * own - (whole - part) * other] += count
    return tuple(sorted(ways.items()))


def _part_sums(pooled: tuple[int, ...], size: int) -> Counter[int]:
    """Return in how many ways `size` of the values have each sum."""
    low, high = pooled[0], pooled[-1]
    # Two values: counted by binomial coefficients. The combinations themselves grow exponentially
    # with the repeats.
    if set(pooled) <= {low, high} and low != high:
        ones = pooled.count(high)
        counts = range(
            max(0, size - (len(pooled) - ones)),
            min(ones, size) + 1,
        )
        return Counter(
            {
                k * high + (size - k) * low: comb(ones, k) * comb(len(pooled) - ones, size - k)
                for k in counts
            }
        )
    return Counter(sum(part) for part in combinations(pooled, size))


def _tails(laws: Sequence[_Ways], seen: int) -> tuple[float, float]:
    """Return the shares of all ways with at least, and with at most, the gain seen.

    The polynomials are written as numbers, their coefficients so far apart that none of the
    product's reaches into the next: multiplying them is one operation of whole numbers.
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
    product = _product(packed)
    place = (seen - least) // step
    mask = (1 << slot) - 1
    above = _coefficient_sum(product >> (slot * place), slot)
    here = (product >> (slot * place)) & mask
    # At most the gain seen: all less those with at least it, and those with exactly it again.
    return above / every, (every - above + here) / every


def _product(numbers: Sequence[int]) -> int:
    """Return the product, of halves first: large numbers are multiplied as seldom as possible."""
    if len(numbers) <= 1:
        return numbers[0] if numbers else 1
    middle = len(numbers) // 2
    return _product(numbers[:middle]) * _product(numbers[middle:])


def _coefficient_sum(packed: int, slot: int) -> int:
    mask, total = (1 << slot) - 1, 0
    while packed:
        total += packed & mask
        packed >>= slot
    return total
