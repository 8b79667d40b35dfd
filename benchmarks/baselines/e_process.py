"""A test that may be read after every pair: money bet on gains, which grows only when gains are
more than losses.

Whoever bets a share of their money on every pair, at fair odds, cannot expect to win if a change
does nothing. So the money is evidence, and holding 1/alpha happens with a chance of at most alpha,
however often one looks. Several shares are bet at once, because nobody knows how great a gain to
expect.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

BETS = (0.2, 0.4, 0.6, 0.8)
FUTILE = 0.1


def wealth(differences: Sequence[float], bets: Sequence[float] = BETS) -> Iterator[float]:
    """Yield what 1 has become after each of the paired `differences`, each between -1 and 1."""
    held = [1.0] * len(bets)
    for difference in differences:
        held = [money * (1 + bet * difference) for money, bet in zip(held, bets, strict=True)]
        yield fmean(held)


class Reading(StrEnum):
    """What the money says so far."""

    ACCEPT = "accept"
    FUTILE = "futile"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class Sequential:
    """The reading, the number of pairs after which it was reached (all of them if it was not), the
    money then.
    """

    reading: Reading
    pairs: int
    wealth: float


def read(
    differences: Sequence[float], alpha: float = 0.05, bets: Sequence[float] = BETS
) -> Sequential:
    """Return the first reading that is not `continue`: accepted at 1/alpha, futile at a tenth of
    the stake.
    """
    held = 1.0
    for pairs, held in enumerate(wealth(differences, bets), start=1):
        if held >= 1 / alpha:
            return Sequential(Reading.ACCEPT, pairs, held)
        if held <= FUTILE:
            return Sequential(Reading.FUTILE, pairs, held)
    return Sequential(Reading.CONTINUE, len(differences), held)
