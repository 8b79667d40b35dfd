"""How a use case says what it does and finds: steps that somebody may show, problems, numbers and
lists in words.

A use case that takes long gets a `Step` from its caller. A terminal shows a line, a page shows
nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do."""

Step = Callable[[str], AbstractContextManager[Progress]]
"""Begins a step with this label. The context yields what takes its progress, and ends the step."""


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """Something that is wrong, and what to do about it."""

    what: str
    next: str


@contextmanager
def silent_step(label: str) -> Iterator[Progress]:
    """Show nothing: the step of a caller that has no terminal."""
    yield _ignore


def _ignore(done: int, total: int) -> None:
    pass


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 skill, 2 skills."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def some(texts: Sequence[str], most: int) -> str:
    """Return the first of several texts, and how many more there are."""
    return ", ".join(texts[:most]) + (
        f" and {len(texts) - most:,} more" if len(texts) > most else ""
    )
