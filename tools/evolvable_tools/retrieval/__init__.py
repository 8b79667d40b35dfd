"""Search: the types that the stages share, from the query to the match, and what a search may use."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from evolvable_store.resource import Kind
from evolvable_tools.embedding import NearestDescription, SimilarResources

if TYPE_CHECKING:
    from evolvable_store.search.index import IndexEntry
    from evolvable_tools.llm import LanguageModel


MODES: Mapping[str, str] = {
    "auto": "keyword, text, embedding and, where these are unsure, a judge",
    "keyword": "names and triggers alone",
    "text": "words alone",
    "paper": "the three stages of EvoAgent, to the letter",
}
"""The stages of each mode."""


@dataclass(frozen=True)
class Alternative:
    """One of the resources to choose from, and what distinguishes it. description: in a long list only."""

    ref: str
    version: int
    tells_apart: str
    description: str = ""


@dataclass(frozen=True)
class ChooseBetween:
    """A choice for the caller: the question, the alternatives, and how to answer."""

    question: str
    choices: list[Alternative]
    how_to_answer: str


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

    sure: no further stage has to be asked. stage: set once the answers of the stages are merged.
    """

    entry: "IndexEntry"
    confidence: float
    why: str
    sure: bool = False
    stage: str = ""

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
"""Below this confidence a match does not fit, in a library of MANY resources and more, and in one of at most FEW."""

FEW, MANY = 1_000, 3_000


def fits_from(resources: int) -> float:
    """Return the confidence from which a match fits in a library of so many resources.

    In a small one a poor match is the right one more often than in a large one, which has a word for everything.
    """
    return _between(resources, FEW, MANY, FITS_FEW, FITS)


NONE_FEW, NONE = 0.24, 0.1
"""Without a match that fits, nothing fits where the confidences of the first five matches have a lower sum than this.

NONE_FEW in a library of at most 100 resources, NONE from 300 on. Of real tasks, 6, 4, 6 and 10 % lie below in libraries
of 100, 300, 1,000 and 3,000 skills, and 84, 55, 63 and 60 % of the tasks whose skill was removed.
"""


def none_below(resources: int) -> float:
    """Return the sum of confidences below which nothing fits in a library of so many resources.

    A large one shares the probability among more resources that may fit.
    """
    return _between(resources, 100, 300, NONE_FEW, NONE)


def _between(resources: int, few: int, many: int, at_few: float, at_many: float) -> float:
    """Return a threshold between those of two sizes, by the logarithm of the size."""
    share = math.log(max(resources, few) / few) / math.log(many / few)
    return round(at_few + min(1.0, share) * (at_many - at_few), 3)


@dataclass(frozen=True, slots=True)
class SearchDependencies:
    """The dependencies of a search other than the index.

    neighbours: the embedder. thinker: the judge for uncertain results. caller_thinks: without a judge, the caller
    chooses. client_thinks: before that, the client's model by sampling. fits: the threshold of a match that fits,
    None for `fits_from`. proven: returns the ids of so many resources of any kind with the most successes.
    """

    neighbours: "Neighbours | None" = None
    thinker: "LanguageModel | None" = None
    caller_thinks: bool = False
    client_thinks: bool = False
    fits: float | None = None
    proven: Callable[[int], Sequence[int]] | None = None
