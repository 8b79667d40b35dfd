"""Wilson's interval: how far a share of successes can be trusted, given how many ends it is of."""

import math

Z = 1.959963984540054
"""Standard deviations on each side of a 95 % interval: the 0.975 quantile of the normal distribution."""


def interval(successes: int, ends: int) -> tuple[float, float]:
    """Returns both ends of Wilson's 95 % interval for the share of successes; (0, 1) without any ends.

    Source: E. B. Wilson, 1927. One success of one is (0.21, 1), nine of ten (0.60, 0.98).
    """
    if not ends:
        return 0.0, 1.0
    share = successes / ends
    middle = share + Z * Z / (2 * ends)
    spread = Z * math.sqrt(share * (1 - share) / ends + Z * Z / (4 * ends * ends))
    whole = 1 + Z * Z / ends
    # At the ends of the scale rounding would leave a hair.
    low = 0.0 if successes == 0 else max(0.0, (middle - spread) / whole)
    high = 1.0 if successes == ends else min(1.0, (middle + spread) / whole)
    return low, high


def lower_bound(successes: int, ends: int) -> float:
    """Returns the lower end of the interval; 0 without any ends."""
    return interval(successes, ends)[0]
