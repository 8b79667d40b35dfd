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
    """Claim about tasks like these. better, worse: numbers of groups.

    more: how many further tasks would decide it in four of five cases, by a favourable and by a
    careful reading of the groups so far; None where no number up to MOST_MORE would.
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
    more = _more_tasks(len(values), better, worse)
    return GeneralClaim(TryAnswer.CANNOT_TELL, len(values), better, worse, p, p_worse, more)


def _more_tasks(groups: int, better: int, worse: int) -> tuple[int, int] | None:
    """Return how many further tasks would decide it in four of five cases, if they came out as the
    groups so far.
    """
    ahead, behind = max(better, worse), min(better, worse)
    # Without a lead no number of tasks like these decides.
    if ahead == behind:
        return None
    # What was seen flatters: the careful reading takes half a standard error from the lead.
    lead, tasks = ahead - behind, max(1, groups)
    careful = lead - (ahead + behind) ** 0.5 / 2
    few = _tasks_needed(groups, ahead, behind, ahead / tasks, behind / tasks)
    if few is None or careful <= 0:
        return None
    ahead_share = (ahead + behind + careful) / (2 * tasks)
    many = _tasks_needed(groups, ahead, behind, ahead_share, (ahead + behind) / tasks - ahead_share)
    return (few, many) if many is not None else None


def _tasks_needed(groups: int, ahead: int, behind: int, gain: float, loss: float) -> int | None:
    # Nothing is claimed of fewer than MIN_GROUPS groups.
    for more in range(max(1, MIN_GROUPS - groups), MOST_MORE + 1):
        if _chance(ahead, behind, more, gain, loss) >= POWER:
            return more
    return None


def _chance(ahead: int, behind: int, more: int, gain: float, loss: float) -> float:
    """Return the chance of a clear sign test after so many further tasks."""
    moving = min(1.0, gain + loss)
    up = gain / moving if moving else 0.0
    total = 0.0
    for changed in range(more + 1):
        weight = comb(more, changed) * moving**changed * (1 - moving) ** (more - changed)
        least = _least_ahead(ahead + behind + changed) - ahead
        share = sum(
            comb(changed, gained) * up**gained * (1 - up) ** (changed - gained)
            for gained in range(max(0, least), changed + 1)
        )
        total += weight * share
    return total


# The loops over further tasks ask for the same numbers many times.
@lru_cache(maxsize=1024)
def _least_ahead(changed: int) -> int:
    """Return the fewest of so many changed tasks that have to be ahead.

    One more than all where none is enough.
    """
    tail, least = 0, changed + 1
    # The tail grows by one outcome as long as it stays within alpha.
    while least > 0 and (tail + comb(changed, least - 1)) / 2**changed <= GENERAL_ALPHA:
        least -= 1
        tail += comb(changed, least)
    return least
