"""Which resources deserve work, and why: from what sessions showed, and from what runs came to."""

from dataclasses import dataclass, field

from evolvable_store.resource import Kind
from evolvable_tools.evolve.driving import states
from evolvable_tools.library import Caller, Library
from evolvable_tools.outcomes.usage_report import ResourceStats, stats

FAILING = 0.5
"""The upper bound of the share of successes under which a resource is named as failing."""

FIRST = ("harms", "newer-is-worse", "failing", "model-differs", "used-not-shown", "loaded-not-used", "shown-not-loaded")
"""Reasons, the most pressing first."""


@dataclass(frozen=True, slots=True)
class Deserving:
    """One resource that deserves work. reason: a code; numbers: what it rests on. runs: that had it, with what came
    of them, the newest first."""

    ref: str
    reason: str
    numbers: str
    runs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Opportunities:
    """Where work would tell, the most pressing first. task_sets: environments that a run could measure it on."""

    found: list[Deserving]
    task_sets: list[str]


def opportunities(library: Library, caller: Caller, *, days: int = 30, limit: int = 20) -> Opportunities:
    """Returns which resources deserve work and why; changes nothing. Raises InvalidArgument."""
    told = stats(library, caller, days=days)
    known = [(one.ref, one.reason, one.numbers) for one in told.opportunities]
    harmed = {ref for ref, reason, _ in known if reason == "harms"}
    known += [
        (line.ref, "failing", _failing(line)) for line in told.resources if line.ref not in harmed and _failing(line)
    ]
    known.sort(key=lambda one: (FIRST.index(one[1]) if one[1] in FIRST else len(FIRST), one[0]))
    tried = _runs(library)
    found = [Deserving(ref, reason, numbers, tried.get(ref, [])[:3]) for ref, reason, numbers in known[:limit]]
    sets = [str(head.ref) for head in library.store.heads(Kind.ENVIRONMENT) if head.version is not None]
    return Opportunities(found, sets)


def _failing(line: ResourceStats) -> str:
    share = line.helped
    if share.n >= 3 and share.high < FAILING:
        return f"{share.successes} of {share.n} ({share.low:.0%} to {share.high:.0%})"
    return ""


def _runs(library: Library) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for _, state in states(library.store.home):
        said = f"{state.run}: {state.verdict.get('verdict') or state.phase}"
        for pin in state.settings.get("program", ()):
            found.setdefault(pin["ref"], []).append(said)
    return found
