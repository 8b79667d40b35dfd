"""Lookup: from a task, in anybody's words, to the resources that fit it.

A choice that is left to whoever called.

What a stage of the lookup is given and what it answers.

What a lookup may use besides the index: an embedder, somebody who judges, and how sure it has to be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from evolvable_store.resource import Kind
from evolvable_tools.embedding import NearestDescription, SimilarResources

if TYPE_CHECKING:
    from evolvable_store.search.index import IndexEntry
    from evolvable_tools.llm import LanguageModel


@dataclass(frozen=True)
class Alternative:
    """One of those to choose from, and what tells it apart."""

    ref: str
    version: int
    tells_apart: str


@dataclass(frozen=True)
class ChooseBetween:
    """A choice left to the caller: the question, what to choose from, and how to answer."""

    question: str
    choices: list[Alternative]
    how_to_answer: str


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A task in words, and where to look: one kind, in these scopes (nearest first; None: all).

    limit: how many each stage proposes. first: how many of them do when no other stage proposes any.
    """

    task: str
    kind: Kind
    scopes: Sequence[str] | None
    limit: int
    first: int = 100


@dataclass(frozen=True, slots=True)
class SearchCandidate:
    """One resource that a stage proposes. `confidence`: how likely it fits, 0 to 1; `sure`: no need to ask further."""

    entry: "IndexEntry"
    confidence: float
    why: str
    sure: bool = False


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage found, best first, and one line about it."""

    candidates: tuple[SearchCandidate, ...]
    said: str


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage that ran, and what it said."""

    stage: str
    said: str


class PendingNeighbours(Protocol):
    """A task on its way through an embedder. Never raises; waits a bounded time and then says why it knows nothing."""

    @property
    def trouble(self) -> str:
        """Why it will know nothing, as far as that is known at once; empty when it may."""
        ...

    def similar(self, ids: Sequence[int], *, kind: Kind, scopes: Sequence[str] | None, limit: int) -> SimilarResources:
        """Returns how near these resources are, and which `limit` are the nearest of all."""
        ...

    def described(self, kind: Kind, scopes: Sequence[str] | None) -> NearestDescription:
        """Returns the resource whose description alone is the nearest."""
        ...


class Neighbours(Protocol):
    """An embedder as the lookup sees it."""

    def begin(self, task: str) -> PendingNeighbours:
        """Hands it the task. Returns at once and never raises."""
        ...


FITS = 0.38
"""Under this confidence nothing fits, unless a library's owner says otherwise."""


@dataclass(frozen=True, slots=True)
class SearchDependencies:
    """neighbours: the embedder. thinker: who judges where the stages are unsure. caller_thinks: without one, the caller
    is asked to; client_thinks: before that a client that lends its model. fits: the confidence under which nothing
    fits.
    """

    neighbours: "Neighbours | None" = None
    thinker: "LanguageModel | None" = None
    caller_thinks: bool = False
    client_thinks: bool = False
    fits: float = FITS
