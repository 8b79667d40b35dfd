"""Search: the types that the stages share, from the query to the match, and what a search may use."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from evolvable_store.resource import Kind
from evolvable_tools.embedding import NearestDescription, SimilarResources

if TYPE_CHECKING:
    from evolvable_store.search import IndexEntry
    from evolvable_tools.llm import LanguageModel


MODES: Mapping[str, str] = {
    "auto": "keyword, text, embedding and, where there is a choice, a judge",
    "keyword": "names and triggers alone",
    "text": "words alone",
    "paper": "the three stages of EvoAgent, to the letter",
}
"""The stages of each mode."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A task in words, and where to search: one kind, in these scopes (nearest first; None: all).

    limit: the most candidates of a stage. first: the most when no other stage proposes any.
    """

    task: str
    kind: Kind
    scopes: Sequence[str] | None
    limit: int
    first: int = 100


@dataclass(frozen=True, slots=True)
class SearchMatch:
    """One resource that may fit: how likely it fits (0 to 1), why, and which stage found it.

    sure: no further stage has to be asked. stage: set once the answers of the stages are merged. enough: it has words
    enough of the task, or a person or the task named it, so that it may be told as sure.
    """

    entry: "IndexEntry"
    confidence: float
    why: str
    sure: bool = False
    stage: str = ""
    enough: bool = False

    @property
    def ref(self) -> str:
        """The resource."""
        return str(self.entry.ref)


@dataclass(frozen=True, slots=True)
class StageResult:
    """The candidates of a stage, best first, and one line about them."""

    candidates: tuple[SearchMatch, ...]
    said: str


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage that ran, and its line."""

    stage: str
    said: str


class PendingNeighbours(Protocol):
    """A pending query of an embedder. Never raises; after a bounded wait it reports why it has no answer."""

    @property
    def trouble(self) -> str:
        """Why no answer will come, as far as that is known at once; otherwise empty."""
        ...

    def similar(self, ids: Sequence[int], *, kind: Kind, scopes: Sequence[str] | None, limit: int) -> SimilarResources:
        """Return the cosines of these resources and the `limit` nearest of all."""
        ...

    def described(self, kind: Kind, scopes: Sequence[str] | None, *, within: float | None = None) -> NearestDescription:
        """Return the resource with the nearest description. within: seconds to wait, instead of the usual ones."""
        ...


class Neighbours(Protocol):
    """An embedder as the search uses it."""

    def begin(self, task: str) -> PendingNeighbours:
        """Start a query for the task. Returns at once and never raises."""
        ...


FITS, FITS_FEW = 0.38, 0.24
"""From this confidence a match counts as fitting, in a library of MANY resources and more, and in one of at most FEW.

It decides what is noted as shown to an agent and among which matches evidence breaks ties. The verdict has thresholds
of its own.
"""

FEW, MANY = 1_000, 3_000


def fits_from(resources: int) -> float:
    """Return the confidence from which a match fits in a library of so many resources.

    In a small one a poor match is the right one more often than in a large one, which has a word for everything.
    """
    share = math.log(max(resources, FEW) / FEW) / math.log(MANY / FEW)
    return round(FITS_FEW + min(1.0, share) * (FITS - FITS_FEW), 3)


@dataclass(frozen=True, slots=True)
class SearchDependencies:
    """The dependencies of a search other than the index.

    neighbours: the embedder. thinker: the judge, asked where the caller would choose. client_thinks: without one, the
    client's model is asked, by sampling. fits: the threshold of a match that fits, and the least confidence of a sure
    one, None for the usual ones. proven: returns the ids of so many resources of any kind with the most successes.
    """

    neighbours: "Neighbours | None" = None
    thinker: "LanguageModel | None" = None
    client_thinks: bool = False
    fits: float | None = None
    proven: Callable[[int], Sequence[int]] | None = None
