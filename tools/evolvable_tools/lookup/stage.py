"""What a stage of the lookup is given and what it answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evolvable_store.index import Entry, Index
from evolvable_store.resource import Kind


@dataclass(frozen=True, slots=True)
class Query:
    """A task in words, and where to look: one kind, in these scopes (nearest first; None: all)."""

    task: str
    kind: Kind
    scopes: Sequence[str] | None
    limit: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One resource that a stage proposes. `confidence`: how likely it fits, 0 to 1; `sure`: no need to ask further."""

    entry: Entry
    confidence: float
    why: str
    sure: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a stage found, best first, and one line about it."""

    candidates: tuple[Candidate, ...]
    said: str


Stage = Callable[[Index, Query], Answer]
"""A way to find. It never raises for what the task says."""
