"""Measure lookup on the labels that are held out from learning."""

from dataclasses import dataclass, replace

from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.metrics import wilson_interval
from evolvable_tools.verbs.search import find_skill

AMONG = 5
"""Matches among which the right resource is looked for."""


@dataclass(frozen=True, slots=True)
class MissedTask:
    """A held-out label whose resource is not the first match. place: among the matches, None where it is not there."""

    task: str
    right: str
    found: str | None
    place: int | None


@dataclass(frozen=True, slots=True)
class LookupTest:
    """How lookup does on the held-out labels. first, among: share with the right resource first, and in the first five.

    low, high: Wilson's interval of `first`, 95 %. None where no label is held out.
    """

    labels: int
    first: float | None
    among: float | None
    low: float | None
    high: float | None
    missed: tuple[MissedTask, ...]


def measure_lookup(library: Library, caller: Caller) -> LookupTest:
    """Ask lookup, without a judge, every held-out label whose resource the caller sees.

    Nothing is noted as shown to an agent.
    """
    # Without a judge: the figure is to show the index, and to cost nothing.
    held_out, means = library.store.backend.learned.held_out(), replace(library.means, thinker=None)
    heads = library.store.backend.heads_by_id(one.resource for one in held_out)
    asked = [(one, heads[one.resource]) for one in held_out if one.resource in heads]
    asked = [(one, head) for one, head in asked if head.scope in caller.scopes]
    places: list[int | None] = []
    missed: list[MissedTask] = []
    for one, head in asked:
        found = find_skill(library, caller, one.task, limit=AMONG, kind=head.kind, means=means)
        refs = [match.ref for match in found.matches]
        right = str(head.ref)
        places.append(refs.index(right) + 1 if right in refs else None)
        if places[-1] != 1:
            missed.append(MissedTask(one.task, right, refs[0] if refs else None, places[-1]))
    if not places:
        return LookupTest(0, None, None, None, None, ())
    first, among = places.count(1), sum(place is not None for place in places)
    low, high = wilson_interval(first, len(places))
    return LookupTest(len(places), first / len(places), among / len(places), low, high, tuple(missed))
