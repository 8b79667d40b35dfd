"""Does a change help on tasks like these? The unit is the group of tasks that are alike, one value
a group.

This is another claim than that on the tasks at hand, by another test: repeats of one task say
nothing of another task. It is tested once, where the comparison on these tasks ended, at .025 a
side, because the data decided when that was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

from evolvable_evolve.evolution.statistics.claim_stages import TryAnswer
from evolvable_evolve.evolution.statistics.narrow_claim import MIN_GROUPS
from evolvable_evolve.evolution.statistics.paired_tests import POWER, sign_flip_p_value

GENERAL_ALPHA = 0.025
"""The error limit of each side of the claim about other tasks."""

# A larger number is no practical advice.
MOST_MORE = 60
"""The highest number of further tasks that a claim names."""


@dataclass(frozen=True, slots=True)
class GeneralClaim:
    """The claim about tasks like these.

    groups: their number; better, worse: how many of them came out so. more: how many further tasks
    would decide it in four of five cases, by a favourable and by a careful reading of the groups so
    far. It is None where no number up to MOST_MORE would.
    """

    answer: TryAnswer
    groups: int
    better: int
    worse: int
    p: float
    p_worse: float
    more: tuple[int, int] | None = None


def claim_of_groups(values: Sequence[float]) -> GeneralClaim:
    """Return the claim by an exact sign-flip test. values: the gain of each group."""
    better, worse = sum(value > 0 for value in values), sum(value < 0 for value in values)
    p, p_worse = sign_flip_p_value(values), sign_flip_p_value([-value for value in values])
    if len(values) >= MIN_GROUPS and p <= GENERAL_ALPHA:
        return GeneralClaim(TryAnswer.HELPS, len(values), better, worse, p, p_worse)
    if len(values) >= MIN_GROUPS and p_worse <= GENERAL_ALPHA:
        return GeneralClaim(TryAnswer.HARMS, len(values), better, worse, p, p_worse)
    more = _count_further_tasks(len(values), better, worse)
    return GeneralClaim(TryAnswer.CANNOT_TELL, len(values), better, worse, p, p_worse, more)


def _count_further_tasks(groups: int, better: int, worse: int) -> tuple[int, int] | None:
    """Return how many further tasks would decide the claim in four of five cases, by both readings.

    They are taken to come out as the groups so far did.
    """
    ahead, behind = max(better, worse), min(better, worse)
    # Without a lead no number of tasks like these decides.
    if ahead == behind:
        return None
    changed, groups_or_one = ahead + behind, max(1, groups)
    # The lead so far flatters: the careful reading takes half a standard error from it.
    careful_lead = ahead - behind - changed**0.5 / 2
    few = _find_sufficient(groups, ahead, behind, ahead / groups_or_one, behind / groups_or_one)
    if few is None or careful_lead <= 0:
        return None
    gain = (changed + careful_lead) / (2 * groups_or_one)
    many = _find_sufficient(groups, ahead, behind, gain, changed / groups_or_one - gain)
    return (few, many) if many is not None else None


def _find_sufficient(groups: int, ahead: int, behind: int, gain: float, loss: float) -> int | None:
    """Return the least number of further tasks with which the sign test is clear in four of five
    cases, None where no number is enough.

    gain, loss: the chances that a task comes out better and worse.
    """
    # Nothing is claimed of fewer than MIN_GROUPS groups.
    for more in range(max(1, MIN_GROUPS - groups), MOST_MORE + 1):
        if _compute_chance(ahead, behind, more, gain, loss) >= POWER:
            return more
    return None


def _compute_chance(ahead: int, behind: int, more: int, gain: float, loss: float) -> float:
    """Return the chance of a clear sign test after `more` further tasks."""
    moving = min(1.0, gain + loss)
    up = gain / moving if moving else 0.0
    total = 0.0
    for changed in range(more + 1):
        weight = comb(more, changed) * moving**changed * (1 - moving) ** (more - changed)
        least = _find_least_ahead(ahead + behind + changed) - ahead
        share = sum(
            comb(changed, gained) * up**gained * (1 - up) ** (changed - gained)
            for gained in range(max(0, least), changed + 1)
        )
        total += weight * share
    return total


# The loops over further tasks ask for the same numbers many times.
@lru_cache(maxsize=1024)
def _find_least_ahead(changed: int) -> int:
    """Return how many of `changed` tasks must come out better at least, for a clear sign test.

    One more than all of them where no number is enough.
    """
    tail, least = 0, changed + 1
    # The tail grows by one outcome as long as it stays within alpha.
    while least > 0 and (tail + comb(changed, least - 1)) / 2**changed <= GENERAL_ALPHA:
        least -= 1
        tail += comb(changed, least)
    return least
