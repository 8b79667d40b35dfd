"""What a check says about a task set."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_NAMED = 5  # tasks that a remark names


class Level(StrEnum):
    """How much a remark matters: with the first nothing is spent on the task set."""

    REFUSE = "refuse"
    WARN = "warn"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to say: by which rule, about which tasks, and what to do about it."""

    level: Level
    rule: str
    text: str
    hint: str = ""
    tasks: tuple[str, ...] = ()


def named(ids: Sequence[str]) -> str:
    """Returns the first few ids in a row, and how many more there are."""
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more


def tasks(ids: Sequence[str]) -> str:
    """Returns `task a` or `3 tasks (a, b, c)`."""
    return f"task {ids[0]}" if len(ids) == 1 else f"{len(ids)} tasks ({named(ids)})"
