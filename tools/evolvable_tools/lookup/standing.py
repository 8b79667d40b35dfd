"""Near ties: where two fit about as well, what is known of their use decides, and whether they are of the project."""

from collections.abc import Collection, Mapping, Sequence

from evolvable_store.storage.evidence import SuccessCounts
from evolvable_tools.lookup.cascade import Match
from evolvable_tools.measures.wilson import lower_bound

CAP = lower_bound(1, 1)
"""What evidence is worth at most that is only reported, or is about a resource that nobody vouches for: one success of
one."""

TIE = 0.05
"""Confidences no further apart are taken for equal; the models are no more exact than that."""


def settled(
    matches: Sequence[Match],
    proofs: Mapping[int, SuccessCounts],
    scopes: Sequence[str],
    fits: float,
    capped: Collection[int] = (),
) -> tuple[Match, ...]:
    """Returns the matches with near ties of those that fit put in order: what proved itself, then the nearer scope.

    proofs: by the resource's id. scopes: nearest first. capped: those that evidence lifts to CAP at most. Nothing that
    does not fit is moved, nothing is moved past a match that is surer by more than TIE, and what a judge or a name
    chose stays first.
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
            key=lambda match: (
                -_bound(proofs.get(match.entry.id), match.entry.id in capped),
                near.get(match.entry.scope, len(near)),
            ),
        )
        rest = rest[len(tied) :]
    return tuple(ordered)


def _bound(proof: SuccessCounts | None, capped: bool) -> float:
    """Return what evidence is worth: verified ends alone where there are any, else reported ones up to CAP."""
    if proof is None:
        return 0.0
    if not proof.verified:
        return min(lower_bound(proof.successes, proof.ends), CAP)
    bound = lower_bound(proof.verified_successes, proof.verified)
    return min(bound, CAP) if capped else bound
