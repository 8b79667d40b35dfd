"""The looks at a trial: exact tests of concurrent sessions by the arm assigned, with alpha spent
over looks and trials.

Fisher's exact test, because its level holds for every size of the arms and every share of
successes, and looks begin at six sessions a side. It is one-sided: for promotion that the trial
version is better, for retirement that it is worse. The levels of the looks add up to the level of
the trial, and those of all trials of a resource to .05, so that the chance that any of them
promotes a version without an effect is at most .05, whatever the correlation of the looks.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from evolvable_evolve.evolution import alpha_of_look
from evolvable_store import format_time
from evolvable_store.storage import Outcome
from evolvable_tools import REWARDS

# Each look has twice the sessions of the one before, so that four looks reach from a large effect
# to a small one.
LOOKS = (6, 12, 24, 48)
"""Verified sessions of each arm at which a trial is looked at.

After the last it is retired unless it is promoted.
"""

SPENT = (0.05, 0.15, 0.30, 0.50)
"""Share of a trial's alpha that each look spends: little at six sessions, where luck is large."""

HARM_ALPHA = 0.10
"""Level of each look for retirement.

Giving up a good version costs a chance; keeping a bad one costs sessions.
"""

MISSING_ALPHA = 0.10
"""Level at which more sessions without a verified end in the trial arm stop a promotion."""

SETTLED_AFTER = timedelta(hours=24)
"""Time since its assignment after which a session without a verified end counts as missing."""


class PoolDecision(StrEnum):
    """What a look at a trial decides."""

    PROMOTE = "promote"
    RETIRE = "retire"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class AssignedEnd:
    """One assigned session: its arm, when it was assigned, and its verified end, None
    without one.
    """

    trial: bool
    at: str
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class PoolLook:
    """One look at a trial.

    look: its number, from 1. trial, control: successes and verified sessions of each arm. p: the
    p-value that the trial version is not better, tested at the level alpha; harm_p: that it is not
    worse. missing: sessions without a verified end, of the trial arm and of control.
    """

    look: int
    trial: tuple[int, int]
    control: tuple[int, int]
    p: float
    alpha: float
    harm_p: float
    missing: tuple[int, int]
    decision: PoolDecision
    why: str

    def as_row(self) -> dict[str, Any]:
        """Return the look as it is stored."""
        return asdict(self) | {"decision": self.decision.value}


def fisher_p_value(successes: int, n: int, other_successes: int, other_n: int) -> float:
    """Return the one-sided p-value of Fisher's exact test that the first of two groups has a larger
    chance of success.

    1 where a group is empty.
    """
    if not n or not other_n:
        return 1.0
    good, everything = successes + other_successes, n + other_n
    # The tail of the hypergeometric distribution: all tables with the same sums that are at least
    # as good for the first group.
    more = range(successes, min(n, good) + 1)
    ways = sum(math.comb(n, k) * math.comb(other_n, good - k) for k in more if good - k <= other_n)
    return min(1.0, ways / math.comb(everything, good))


def alpha_of(number: int, look: int) -> float:
    """Return the level of a look (from 1) at the `number`-th trial of a resource (from 1)."""
    return alpha_of_look(number) * SPENT[look - 1]


def judge_trial(
    ends: Iterable[AssignedEnd], number: int, earlier: Sequence[Mapping[str, Any]], now: datetime
) -> PoolLook | None:
    """Return the next look at a trial, None while there are too few verified sessions for it.

    ends: in the order of assignment, of each connection one. number: of the trial among those of
    its resource, from 1. earlier: the looks there were. Of each arm the first sessions count, as
    many as `LOOKS` says of the look.
    """
    look = len(earlier) + 1
    if look > len(LOOKS):
        return None
    n, assigned = LOOKS[look - 1], list(ends)
    rewarded = {
        arm: [e for e in assigned if e.trial is arm and e.outcome in REWARDS]
        for arm in (True, False)
    }
    if min(map(len, rewarded.values())) < n:
        return None
    last = max(of_arm[n - 1].at for of_arm in rewarded.values())
    # Exactly n of each arm: with all that there are, the size of a look would depend on the
    # results.
    good = {
        arm: sum(e.outcome is Outcome.SUCCEEDED for e in of_arm[:n])
        for arm, of_arm in rewarded.items()
    }
    before = format_time(now - SETTLED_AFTER)
    # Sessions that began after the last one that counts have had less time to end, and would look
    # like missing ones.
    concurrent = [e for e in assigned if e.at <= last and (e.outcome in REWARDS or e.at <= before)]
    missing = {
        arm: sum(e.trial is arm and e.outcome not in REWARDS for e in concurrent)
        for arm in (True, False)
    }
    sizes = {arm: sum(e.trial is arm for e in concurrent) for arm in (True, False)}
    p = fisher_p_value(good[True], n, good[False], n)
    harm_p = fisher_p_value(good[False], n, good[True], n)
    # A version that makes sessions break off would otherwise look better: only the good ones reach
    # a verified end.
    missing_p = fisher_p_value(missing[True], sizes[True], missing[False], sizes[False])
    alpha = alpha_of(number, look)
    decision, why = _decide(
        better=p <= alpha,
        worse=harm_p <= HARM_ALPHA,
        more_missing=missing_p < MISSING_ALPHA,
        last=look == len(LOOKS),
    )
    return PoolLook(
        look,
        (good[True], n),
        (good[False], n),
        p,
        alpha,
        harm_p,
        (missing[True], missing[False]),
        decision,
        why,
    )


def _decide(
    *, better: bool, worse: bool, more_missing: bool, last: bool
) -> tuple[PoolDecision, str]:
    """Return the decision of a look, and why.

    more_missing: whether more sessions of the trial arm than of control have no verified end.
    """
    if better and not more_missing:
        return PoolDecision.PROMOTE, "it is better than the incumbent"
    if worse:
        return PoolDecision.RETIRE, "it is worse than the incumbent"
    why = (
        "more of its sessions have no verified end than of the incumbent's"
        if better
        else "no clear difference"
    )
    if last:
        return PoolDecision.RETIRE, f"after {LOOKS[-1]} sessions of each arm: {why}"
    return PoolDecision.WAIT, why
