"""Differences that are multiples of one step, as those of scores of 0 and 1 are: their sums can be counted exactly."""

import math
from collections.abc import Sequence
from fractions import Fraction

_MOST = 720
_CLOSE = 1e-9


def in_steps(values: Sequence[float]) -> tuple[Fraction, list[int]] | None:
    """Returns the greatest common step of `values` and how many steps each is; None when there is none to be found.

    A step is a fraction of whole numbers up to 720; for nothing but zeros it is 1.
    """
    exact = [Fraction(value).limit_denominator(_MOST) for value in values]
    for near, value in zip(exact, values, strict=True):
        if abs(float(near) - value) > _CLOSE or bool(near) != bool(value):
            return None
    below = math.lcm(*(near.denominator for near in exact))
    whole = [int(near * below) for near in exact]
    shared = math.gcd(*whole) or below
    return Fraction(shared, below), [value // shared for value in whole]
