"""What a stage of the lookup is given and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from evolvable_store.resource import Kind
from evolvable_tools.embedding.similar import Described, Similar

if TYPE_CHECKING:
    from evolvable_store.search.index import IndexEntry


@dataclass(frozen=True, slots=True)
class Query:
    """A task in words, and where to look: one kind, in these scopes (nearest first; None: all).

    limit: how many each stage proposes. first: how many of them do when no other stage proposes any.
    """

    task: str
    kind: Kind
    scopes: Sequence[str] | None
    limit: int
    first: int = 100


@dataclass(frozen=True, slots=True)
class Candidate:
    """One resource that a stage proposes. `confidence`: how likely it fits, 0 to 1; `sure`: no need to ask further."""

    entry: "IndexEntry"
    confidence: float
    why: str
    sure: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a stage found, best first, and one line about it."""

    candidates: tuple[Candidate, ...]
    said: str


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage that ran, and what it said."""

    stage: str
    said: str


class Pending(Protocol):
    """A task on its way through an embedder. Never raises; waits a bounded time and then says why it knows nothing."""

    @property
    def trouble(self) -> str:
        """Why it will know nothing, as far as that is known at once; empty when it may."""
        ...

    def similar(self, ids: Sequence[int], *, kind: Kind, scopes: Sequence[str] | None, limit: int) -> Similar:
        """Returns how near these resources are, and which `limit` are the nearest of all."""
        ...

    def described(self, kind: Kind, scopes: Sequence[str] | None) -> Described:
        """Returns the resource whose description alone is the nearest."""
        ...


class Neighbours(Protocol):
    """An embedder as the lookup sees it."""

    def begin(self, task: str) -> Pending:
        """Hands it the task. Returns at once and never raises."""
        ...
