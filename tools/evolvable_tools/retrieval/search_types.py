"""Search: the types that the stages share, from the query to their results, and what a search may
use.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import nlargest
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from evolvable_store.resource import Kind
from evolvable_tools.embedding import NearestDescription, SimilarResources

if TYPE_CHECKING:
    from evolvable_store.search import Match
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
class StageResult:
    """The candidates of a stage, best first, and one line about them."""

    candidates: "tuple[Match, ...]"
    report: str


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage that ran, and its line."""

    stage: str
    said: str


class PendingNeighbours(Protocol):
    """A pending query of an embedder.

    Never raises; after a bounded wait it reports why it has no answer.
    """

    @property
    def trouble(self) -> str:
        """Why no answer will come, as far as that is known at once; otherwise empty."""
        ...

    def similar(
        self, ids: Sequence[int], *, kind: Kind, scopes: Sequence[str] | None, limit: int
    ) -> SimilarResources:
        """Return the cosines of these resources and the `limit` nearest of all."""
        ...

    def nearest_description(
        self, kind: Kind, scopes: Sequence[str] | None, *, within: float | None = None
    ) -> NearestDescription:
        """Return the resource with the nearest description.

        within: seconds to wait, instead of the usual ones.
        """
        ...


class Neighbours(Protocol):
    """An embedder as the search uses it."""

    def begin(self, task: str) -> PendingNeighbours:
        """Start a query for the task. Returns at once and never raises."""
        ...


FITS, FITS_FEW = 0.38, 0.24
"""From this confidence a match counts as fitting, in a library of MANY resources and more, and in
one of at most FEW.

It decides what is noted as shown to an agent and among which matches evidence breaks ties. The
verdict has thresholds of its own.
"""

# Sizes up to which and from which the thresholds were chosen; in between the logarithm of the size
# decides.
FEW, MANY = 1_000, 3_000


def fits_from(resources: int) -> float:
    """Return the confidence from which a match fits in a library of so many resources.

    In a small one a poor match is the right one more often than in a large one, which has a word
    for everything.
    """
    share = math.log(max(resources, FEW) / FEW) / math.log(MANY / FEW)
    return round(FITS_FEW + min(1.0, share) * (FITS - FITS_FEW), 3)


@dataclass(frozen=True, slots=True)
class SearchDependencies:
    """The dependencies of a search other than the index.

    neighbours: the embedder. judge_model: the judge, asked where the caller would choose.
    uses_client_model: without one, the client's model is asked, by sampling. fits: the threshold of
    a match that fits, and the least confidence of a sure one, None for the usual ones. proven:
    returns the ids of so many resources of any kind with the most successes.
    """

    neighbours: "Neighbours | None" = None
    judge_model: "LanguageModel | None" = None
    uses_client_model: bool = False
    fits: float | None = None
    proven: Callable[[int], Sequence[int]] | None = None


if TYPE_CHECKING:
    from evolvable_store.search import Match


class Verdict(StrEnum):
    """The answer of a search: one match is for the task, one of several may be, nothing in the
    library is.
    """

    SURE = "sure"
    CHOOSE = "choose"
    NONE = "none"


VERDICTS: Mapping[Verdict, str] = {
    Verdict.SURE: "The first fits this task.",
    Verdict.CHOOSE: (
        "Does one of these fit? The likely ones come first; if none does, go on without."
    ),
    Verdict.NONE: "Nothing in the library fits this task.",
}
"""Each verdict as a sentence for a person."""

SURE, LEAD = 0.5, 0.1
"""The confidence from which the first is told as sure in a library of any size, and how far the
others are behind.
"""

SUMMED = 5
"""Matches whose confidences are summed up to tell that nothing fits: good siblings share the
probability.
"""

NONE_BELOW = (
    (1, 0.24),
    (5, 0.16),
    (10, 0.1),
    (100, 0.06),
    (300, 0.045),
    (1_000, 0.045),
    (10_000, 0.033),
)
"""Resources, and the sum below which nothing fits in a library of so many.

Chosen so that about 4 % of the real tasks whose skill is there lie below, and 6 % in 10,000 skills,
as means over two sets; a third set, which took no part, has at most 5 %. Further signals (words
that no skill has, the share of the task in name and description, coverage, lead) gained nothing on
that third set.
"""


def none_below(resources: int) -> float:
    """Return the sum of confidences below which nothing fits in a library of so many resources."""
    size = min(max(resources, NONE_BELOW[0][0]), NONE_BELOW[-1][0])
    for (few, at_few), (many, at_many) in pairwise(NONE_BELOW):
        if size <= many:
            share = math.log(size / few) / math.log(many / few)
            return round(at_few + share * (at_many - at_few), 4)
    # For the type checker: `size` is at most that of the last pair.
    return NONE_BELOW[-1][1]


@dataclass(frozen=True, slots=True)
class VerdictRule:
    """The rule by which the matches of one search become a verdict.

    resources: how many the library has. sure_from: the confidence of a sure match. comparable:
    whether the task is in a language whose words can be compared with those of the library;
    otherwise a low sum says nothing.
    """

    resources: int
    sure_from: float = SURE
    comparable: bool = True

    def verdict(self, matches: "Sequence[Match]") -> Verdict:
        """Return the verdict on these matches, best first.

        A match of too few words of the task is never sure. One that the task names is, unless it
        names another one too. A judge's choice is sure.
        """
        total = sum(nlargest(SUMMED, (match.confidence for match in matches)))
        if total < none_below(self.resources) or not matches:
            return Verdict.NONE if self.comparable else Verdict.CHOOSE
        first, *others = matches
        if first.confidence < self.sure_from or not first.enough:
            return Verdict.CHOOSE
        # Beside a match that the task names, only others that it names are rivals.
        rivals = [other.confidence for other in others if other.sure or not first.sure]
        # Rounded as the confidences are: in binary .6 - .5 is less than .1.
        ahead = round(first.confidence - max(rivals, default=0.0), 3)
        return Verdict.SURE if ahead >= LEAD or first.stage == "judge" else Verdict.CHOOSE
