"""Near ties: where two fit about as well, what is known of their use decides, and whether they are of the project."""

import math
from collections.abc import Mapping, Sequence

from evolvable_store.evidence import Tally
from evolvable_tools.lookup.cascade import Match

TIE = 0.05
"""Confidences no further apart are taken for equal; the models are no more exact than that."""

_Z = 1.96


def settled(
    matches: Sequence[Match], tallies: Mapping[int, Tally], scopes: Sequence[str], fits: float
) -> tuple[Match, ...]:
    """Returns the matches with near ties of those that fit put in order: what proved itself, then the nearer scope.

    tallies: by the resource's id. scopes: nearest first. Nothing that does not fit is moved, nothing is moved past a
    match that is surer by more than TIE, and what a judge or a name chose stays first.
    """
    ordered: list[Match] = []
    rest = list(matches)
    while rest:
        first = rest[0]
        if first.confidence < fits:
            return (*ordered, *rest)
        tied = [match for match in rest if match.confidence >= max(fits, first.confidence - TIE)]
        if first.stage in ("judge", "keyword"):
            tied = tied[:1]
        near = {scope: place for place, scope in enumerate(scopes)}
        ordered += sorted(
            tied,
            key=lambda match: (-_bound(tallies.get(match.entry.id)), near.get(match.entry.scope, len(near))),
        )
        rest = rest[len(tied) :]
    return tuple(ordered)


def _bound(tally: Tally | None) -> float:
    if tally is None:
        return 0.0
    return lower_bound(tally.succeeded, tally.succeeded + tally.failed + tally.partial)


def lower_bound(successes: int, ends: int) -> float:
    """Returns the lower end of Wilson's 95 % interval for the share of successes; 0 without any ends.

    Source: E. B. Wilson, 1927. One success of one is worth 0.21, nine of ten 0.60.
    """
    if not ends:
        return 0.0
    share = successes / ends
    middle = share + _Z * _Z / (2 * ends)
    spread = _Z * math.sqrt(share * (1 - share) / ends + _Z * _Z / (4 * ends * ends))
    return max(0.0, (middle - spread) / (1 + _Z * _Z / ends))
