"""The chance that a test finds a true gain, as a band over the unknown properties of the tasks.

Chances are normal approximations, which the tests check against simulations. The band is over base
rates from .2 to .8 and over how a gain is spread: evenly over the tasks that can gain, or all of it
on few tasks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean

from evolvable_evolve.evolution.statistics.narrow_claim import NARROW_ALPHA
from evolvable_evolve.evolution.statistics.paired_tests import NOISE, POWER
from evolvable_evolve.evolution.statistics.staged_test import alpha_of_look

GAINS = (0.05, 0.10, 0.15, 0.20, 0.25, 0.30)
"""True gains of which plans and reports state the chance."""

# The range of `docs/evolve.md`: outside of it a task set has little room on one side.
BASE_RATES = (0.2, 0.35, 0.5, 0.65, 0.8)

# An executor that never differed in a few trials is not perfectly steady.
_LEAST_NOISE = 0.01
"""The noise that a design has at least."""

_UPPER = 0.84
"""The 80 % quantile of the normal distribution: four of five true values lie below it."""

_PRIOR_GAIN = 0.05
"""The gain of an accepted proposal, while none was accepted."""


@dataclass(frozen=True, slots=True)
class PowerDesign:
    """The design of a test.

    repeats: of each task under each arm. narrow: whether it claims something of these tasks alone.
    noise: the share of results that differ from one run to the next under the same program.
    """

    tasks: int
    repeats: int
    alpha: float
    narrow: bool = False
    noise: float = NOISE

    @classmethod
    def of(
        cls, tasks: int, repeats: int, *, look: int = 1, narrow: bool = False, noise: float = NOISE
    ) -> "PowerDesign":
        """Return the design of the `look`-th look at a test."""
        alpha = NARROW_ALPHA if narrow and look == 1 else alpha_of_look(look)
        return cls(tasks, repeats, alpha, narrow, noise)

    @property
    def trials(self) -> int:
        """Trials of both arms together."""
        return 2 * self.tasks * self.repeats


def power_band(design: PowerDesign, gain: float) -> tuple[float, float] | None:
    """Return the least and the highest chance that the test finds this true gain; None where no
    base rate allows it.
    """
    chances = list(_list_powers(design, gain))
    return (min(chances), max(chances)) if chances else None


def smallest_gain(design: PowerDesign) -> float | None:
    """Return the smallest true gain that the test finds in four runs of five at any base rate, None
    where it finds none.

    `taskset check`, `evolve plan` and reports all take the figure from here.
    """
    # Half a point each, up to 79.5: the lowest base rate leaves room for 80.
    for step in range(1, 160):
        gain = step / 200
        band = power_band(design, gain)
        if band is not None and band[0] >= POWER:
            return gain
    return None


def _list_powers(design: PowerDesign, gain: float) -> Iterator[float]:
    """Yield the power at each base rate and spread of the band."""
    if design.tasks < 1:
        return
    within = max(_LEAST_NOISE, design.noise) / design.repeats
    for rate in BASE_RATES:
        # The base rate leaves room for a gain of 1 - rate. The small term is for rounding.
        if gain > 1 - rate + 1e-9:
            continue
        # The variance between tasks: all that can gain do so alike, or a share `gain` of them gains
        # a whole point.
        even, concentrated = gain * gain * rate / (1 - rate), gain * (1 - gain)
        for between in (even, max(even, concentrated)):
            yield _compute_power(design, gain, within, between)


def _compute_power(design: PowerDesign, gain: float, within: float, between: float) -> float:
    """Return the power at one point of the band.

    within, between: the variance of a task's difference by noise, and between tasks.
    """
    # The sign-flip test holds the sum of squares fixed, so its spread contains the gain itself.
    square = between + gain * gain
    # Under the narrower claim repeats are exchanged within tasks, which spreads less than a task's
    # sign.
    null = within + (square / (2 * design.repeats) if design.narrow else square)
    spread = sqrt(within + between)
    critical = NormalDist().inv_cdf(1 - design.alpha) * sqrt(null)
    # Sums move in steps, and half a step is lost.
    step = 0.5 / (design.repeats * sqrt(design.tasks))
    return NormalDist().cdf((gain * sqrt(design.tasks) - critical - step) / spread)


def chance_left(
    gains: Sequence[float],
    remaining: int,
    accepted: Sequence[float],
    tried: int,
    design: PowerDesign,
) -> float:
    """Return an upper limit of the chance that a run is promoted, from its search so far.

    gains: of the best over the base, by validation task. remaining: proposals to come. accepted:
    the gains of the accepted proposals, of `tried` in all. Every step takes an upper limit: the
    true chance is mostly lower.
    """
    now = fmean(gains) if gains else 0.0
    if len(gains) > 1:
        spread = sqrt(sum((gain - now) ** 2 for gain in gains) / (len(gains) - 1) / len(gains))
        now += _UPPER * spread
    # Laplace's rule of succession: neither 0 nor 1 after few proposals.
    rate = (len(accepted) + 1) / (tried + 2)
    each = max(fmean(accepted) if accepted else _PRIOR_GAIN, 0.0)
    # Beyond .8 no base rate of the band has room, and there would be no chance to state.
    reached = min(0.8, max(0.0, now) + remaining * rate * each)
    band = power_band(design, reached)
    return band[1] if band is not None else 0.0
