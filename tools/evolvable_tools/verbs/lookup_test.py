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
    """A held-out label whose resource is not the first match.

    place: among the matches, None where it is not there.
    """

    task: str
    right: str
    found: str | None
    place: int | None


@dataclass(frozen=True, slots=True)
class LookupTest:
    """How lookup does on the held-out labels. first, among: share with the right resource first,
    and in the first five.

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
    dependencies = replace(library.dependencies, judge_model=None)
    held_out = library.store.backend.learned.held_out()
    heads = library.store.backend.heads_by_id(label.resource for label in held_out)
    labels = [(label, heads[label.resource]) for label in held_out if label.resource in heads]
    visible_labels = [(label, head) for label, head in labels if head.scope in caller.scopes]
    places: list[int | None] = []
    missed: list[MissedTask] = []
    for label, head in visible_labels:
        result = find_skill(
            library, caller, label.task, limit=AMONG, kind=head.kind, dependencies=dependencies
        )
        refs = [match.ref for match in result.matches]
        right = str(head.ref)
        places.append(refs.index(right) + 1 if right in refs else None)
        if places[-1] != 1:
            missed.append(MissedTask(label.task, right, refs[0] if refs else None, places[-1]))
    if not places:
        return LookupTest(0, None, None, None, None, ())
    first, among = places.count(1), sum(place is not None for place in places)
    low, high = wilson_interval(first, len(places))
    return LookupTest(
        len(places), first / len(places), among / len(places), low, high, tuple(missed)
    )
