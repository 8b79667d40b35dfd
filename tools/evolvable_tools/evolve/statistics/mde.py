"""The smallest true gain that a design would find: told before anything is spent."""

from functools import lru_cache
from math import ceil, exp, lgamma, log, sqrt
from statistics import NormalDist

from evolvable_tools.evolve.statistics import mcnemar
from evolvable_tools.evolve.statistics.looks import alpha_of

POWER = 0.8
NOISE = 0.14
"""Share of tasks whose result differs between two runs of the same program, where it was not measured: three in ten
unstable, each passing two runs in three."""

_EXACT = 150
_NEGLIGIBLE = 1e-13


@lru_cache(maxsize=1024)
def detectable(n: int, *, look: int = 1, power: float = POWER, noise: float = NOISE, repeats: int = 1) -> float | None:
    """Returns the smallest true gain (as a share, .1 is ten points) that `n` test tasks find with chance `power`.

    None when not even the greatest possible gain would be found so often. `noise` is the share of tasks that come out
    differently when the same program runs twice; `repeats` lowers it in proportion, which is nearly right.
    """
    discordant = min(noise, 1.0) / max(1, repeats)
    alpha = alpha_of(look)
    low, high = 0.0, 1.0 - discordant
    if n < 1 or _power(n, high, discordant, alpha) < power:
        return None
    while high - low > 0.0005:
        middle = (low + high) / 2
        if _power(n, middle, discordant, alpha) < power:
            low = middle
        else:
            high = middle
    return round(high, 3)


def needed(gain: float, *, look: int = 1, power: float = POWER, noise: float = NOISE) -> int:
    """Returns about how many test tasks a true `gain` needs to be found with chance `power` (normal approximation)."""
    away = NormalDist().inv_cdf(1 - alpha_of(look)) * sqrt(noise + gain)
    back = NormalDist().inv_cdf(power) * sqrt(max(0.0, noise + gain - gain * gain))
    return ceil(((away + back) / gain) ** 2)


def _power(n: int, gain: float, noise: float, alpha: float) -> float:
    """Returns the chance that the test passes when `noise` of the tasks flip either way and `gain` more are gained."""
    gained = noise / 2 + gain
    either = gained + noise / 2
    if either <= 0:
        return 0.0
    if n > _EXACT:
        spread = sqrt(max(1e-12, either - gain * gain))
        short = NormalDist().inv_cdf(1 - alpha) * sqrt(either)
        # One over the root of n: gains less losses move in steps of two, and half a step is lost.
        return NormalDist().cdf((gain * sqrt(n) - short - 1 / sqrt(n)) / spread)
    found = 0.0
    for pairs in range(n + 1):
        likely = _binomial(n, pairs, either)
        least = _critical(pairs, alpha)
        if likely > _NEGLIGIBLE and least is not None:
            found += likely * sum(_binomial(pairs, count, gained / either) for count in range(least, pairs + 1))
    return found


def _binomial(n: int, count: int, chance: float) -> float:
    if chance in (0.0, 1.0):
        return float(count == n * chance)
    ways = lgamma(n + 1) - lgamma(count + 1) - lgamma(n - count + 1)
    return exp(ways + count * log(chance) + (n - count) * log(1 - chance))


@lru_cache(maxsize=4096)
def _critical(pairs: int, alpha: float) -> int | None:
    """Returns the fewest gains of so many discordant pairs that pass the test, or None when not even all would."""
    if not pairs or mcnemar.one_sided(pairs, 0) > alpha:
        return None
    gained = pairs
    while gained and mcnemar.one_sided(gained - 1, pairs - gained + 1) <= alpha:
        gained -= 1
    return gained
