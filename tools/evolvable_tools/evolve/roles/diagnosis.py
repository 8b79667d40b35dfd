"""Why a trial failed, as a closed list: what can be mended by a small edit, and what cannot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    """Causes of a failure. The last is ours: nothing in the program is about this."""

    MISSING_PRECONDITION = "missing precondition"
    WRONG_ORDER = "wrong action order"
    MISLEADING_RETRIEVAL = "misleading retrieval"
    SKILL_CONFLICT = "skill conflict"
    BAD_ASSIGNMENT = "bad executor assignment"
    MISSING_CAPABILITY = "missing capability"


class Tag(StrEnum):
    """What kind of repair a cause asks for."""

    ADD_GUARD = "add-guard"
    REORDER_STEP = "reorder-step"
    TIGHTEN_RETRIEVAL = "tighten-retrieval"
    SPLIT_SKILL = "split-skill"
    HANDOFF = "handoff-to-structure"
    ADD_SKILL = "add-skill"


REPAIRS: Mapping[Cause, tuple[Tag, ...]] = {
    Cause.MISSING_PRECONDITION: (Tag.ADD_GUARD,),
    Cause.WRONG_ORDER: (Tag.REORDER_STEP,),
    Cause.MISLEADING_RETRIEVAL: (Tag.TIGHTEN_RETRIEVAL,),
    Cause.SKILL_CONFLICT: (Tag.SPLIT_SKILL, Tag.TIGHTEN_RETRIEVAL),
    Cause.BAD_ASSIGNMENT: (Tag.HANDOFF,),
    Cause.MISSING_CAPABILITY: (Tag.ADD_SKILL,),
}
"""Which repairs fit a cause, the natural one first."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why one trial failed. unique: one cause alone is supported by words of the evidence."""

    task: str
    cause: Cause
    unique: bool
    tag: Tag
    quotes: tuple[str, ...]

    @property
    def local(self) -> bool:
        """Whether a bounded edit of a resource can be the repair."""
        return self.unique and self.tag is not Tag.HANDOFF


def diagnoses(given: Sequence[Mapping[str, Any]], texts: Mapping[str, str]) -> tuple[Diagnosis, ...]:
    """Returns what was diagnosed, one for each trial at most. texts: what was shown of each task, in one text.

    Who quotes nothing that was shown has not found the one cause; neither has who names two for one trial. A repair
    that does not fit its cause gives way to the natural one. What is said of other tasks is passed over.
    """
    found: dict[str, Diagnosis] = {}
    for one in given:
        task, cause = str(one["task"]), Cause(one["cause"])
        if task not in texts:
            continue
        shown = " ".join(texts[task].split())
        quotes = tuple(quote for quote in map(_line, one.get("quotes", ())) if quote and quote in shown)
        tag = Tag(one["repair"]) if one.get("repair") else REPAIRS[cause][0]
        tag = tag if tag in REPAIRS[cause] else REPAIRS[cause][0]
        twice = task in found and found[task].cause is not cause
        first = found.get(task)
        if first is not None and twice:
            found[task] = Diagnosis(task, first.cause, False, first.tag, first.quotes)
        elif first is None:
            found[task] = Diagnosis(task, cause, bool(one["only_cause"]) and bool(quotes), tag, quotes)
    return tuple(found.values())


def _line(text: object) -> str:
    return " ".join(str(text).split())
