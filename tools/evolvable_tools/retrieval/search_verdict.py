"""The verdict of a search: sure of one match, a choice for the caller, or none.

It depends on the task, the library and the evidence alone, so the same question has the same verdict on any connection.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import nlargest
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evolvable_store.search import Match


class Verdict(StrEnum):
    """What a search says: one match is for the task, one of several may be, nothing in the library is."""

    SURE = "sure"
    CHOOSE = "choose"
    NONE = "none"


VERDICTS: Mapping[Verdict, str] = {
    Verdict.SURE: "The first fits this task.",
    Verdict.CHOOSE: "Does one of these fit? The likely ones come first; if none does, go on without.",
    Verdict.NONE: "Nothing in the library fits this task.",
}
"""Each verdict as a sentence for a person."""

SURE, LEAD = 0.5, 0.1
"""The confidence from which the first is told as sure in a library of any size, and how far the others are behind."""

SUMMED = 5
"""Matches whose confidences are summed up to tell that nothing fits: good siblings share the probability."""

NONE_BELOW = ((1, 0.24), (5, 0.16), (10, 0.1), (100, 0.06), (300, 0.045), (1_000, 0.045), (10_000, 0.033))
"""Resources, and the sum below which nothing fits in a library of so many.

Chosen so that about 4 % of the real tasks whose skill is there lie below, and 6 % in 10,000 skills, as means over two
sets; a third set, which took no part, has at most 5 %. Further signals (words that no skill has, the share of the task
in name and description, coverage, lead) gained nothing on that third set.
"""


def none_below(resources: int) -> float:
    """Return the sum of confidences below which nothing fits in a library of so many resources."""
    size = min(max(resources, NONE_BELOW[0][0]), NONE_BELOW[-1][0])
    for (few, at_few), (many, at_many) in pairwise(NONE_BELOW):
        if size <= many:
            share = math.log(size / few) / math.log(many / few)
            return round(at_few + share * (at_many - at_few), 4)
    return NONE_BELOW[-1][1]


@dataclass(frozen=True, slots=True)
class VerdictRule:
    """How the matches of one search become a verdict.

    resources: how many the library has. sure_from: the confidence of a sure match. comparable: whether the task is in a
    language whose words can be compared with those of the library; otherwise a low sum says nothing.
    """

    resources: int
    sure_from: float = SURE
    comparable: bool = True

    def verdict(self, matches: "Sequence[Match]") -> Verdict:
        """Return the verdict on these matches, best first.

        A match of too few words of the task is never sure. One that the task names is, unless it names another one too.
        A judge's choice is sure.
        """
        total = sum(nlargest(SUMMED, (match.confidence for match in matches)))
        if total < none_below(self.resources) or not matches:
            return Verdict.NONE if self.comparable else Verdict.CHOOSE
        first, *others = matches
        if first.confidence < self.sure_from or not first.enough:
            return Verdict.CHOOSE
        rivals = [other.confidence for other in others if other.sure or not first.sure]
        ahead = round(first.confidence - max(rivals, default=0.0), 3)
        return Verdict.SURE if ahead >= LEAD or first.stage == "judge" else Verdict.CHOOSE
