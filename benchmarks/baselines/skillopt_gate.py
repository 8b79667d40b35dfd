"""SkillOpt's gate for comparison: strictly better than the current document on validation; ties are
rejected.
"""

from enum import StrEnum


class Action(StrEnum):
    """What happens to the candidate."""

    ACCEPT_NEW_BEST = "accept_new_best"
    ACCEPT = "accept"
    REJECT = "reject"


def score(hard: float, soft: float, metric: str = "hard", weight: float = 0.5) -> float:
    """Return what is compared: the `hard` score, the `soft` one, or both `mixed` with this weight
    of the soft one.
    """
    if metric == "mixed":
        return (1 - weight) * hard + weight * soft
    return soft if metric == "soft" else hard


def decide(candidate: float, current: float, best: float) -> Action:
    """Return the action for a candidate's score beside those of the current document and of the
    best so far.
    """
    if not candidate > current:
        return Action.REJECT
    return Action.ACCEPT_NEW_BEST if candidate > best else Action.ACCEPT
