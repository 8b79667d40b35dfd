"""How likely the best that was found is right: one probability from several signals."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields
from heapq import nlargest

from evolvable_store.search.bm25 import PRIOR
from evolvable_store.search.index import Ranking, SearchHit
from evolvable_tools.lookup.fusion import Fused

_OTHERS = 4
_MORE_OTHERS = 9
_MIDDLE = 6.0


@dataclass(frozen=True, slots=True)
class Signals:
    """What tells a resource that fits from the nearest of those that do not."""

    strength: float
    """Score of its words for each unit of weight asked, as a logarithm."""
    covered: float
    """Share of the task's weight that the resource has words for, 0 to 1."""
    weight: float
    """Weight of the task, as a logarithm: rare words weigh more."""
    size: float
    """Resources in the library, as a logarithm; a large one has a word for everything."""
    length: float
    """Words of the task that are no function words, as a logarithm."""
    of_itself: float
    """Share of those that the resource says of itself, in its name, description or triggers, 0 to 1."""
    lead: float
    """How far its score is before the mean of the best four others; one near copy of it does not take the lead away."""
    lead_in_size: float
    """The lead times the size, from a middle one: in a large library a small lead says more."""
    pairs: float
    """Pairs of the task's words that stand side by side in its name or description, as a logarithm."""
    rarity: float
    """Weight of the task for each of its words that are no function words."""
    ahead: float
    """How far the score of its words is before the mean of the best nine others, as a share of the highest, -1 to 1."""
    meaning: float
    """Cosine of task and resource, 0 where it is not known."""


def signals(fused: Fused, at: int, content: Set[str]) -> Signals:
    """Returns the signals of one hit. `content`: the words of the task that are no function words."""
    hit, ranking = fused.hits[at], fused.ranking
    scored = hit.scored
    said = _of_itself(scored, content)
    others = [other.score for place, other in enumerate(fused.hits) if place != at][:_OTHERS]
    lead, size = hit.score - sum(others) / _OTHERS, math.log(ranking.documents + PRIOR)
    rivals = nlargest(_MORE_OTHERS, (other.scored.score for place, other in enumerate(fused.hits) if place != at))
    highest = max(scored.score, *rivals[:1], 1e-9)
    return Signals(
        strength=math.log(scored.score / (ranking.mass or 1.0) + 0.05),
        covered=scored.coverage * known(ranking),
        weight=math.log(ranking.mass + 1e-3),
        size=size,
        length=math.log(1 + len(content)),
        of_itself=len(said) / max(1, len(content)),
        lead=lead,
        lead_in_size=lead * (size - _MIDDLE),
        pairs=math.log1p(sum(part.field == "pairs" for part in scored.parts)),
        rarity=ranking.mass / max(1, len(content)),
        ahead=(scored.score - sum(rivals) / _MORE_OTHERS) / highest,
        meaning=hit.cosine or 0.0,
    )


def known(ranking: Ranking) -> float:
    """Returns the share of the task's weight that lies on words which the library uses at all."""
    return 1 - ranking.unknown / ranking.mass if ranking.mass else 0.0


def _of_itself(scored: SearchHit, content: Set[str]) -> set[str]:
    return {part.word for part in scored.parts if part.field not in ("body", "files", "pairs")} & content


WORDS: Mapping[str, float] = {
    "constant": -6.07,
    "strength": 1.16,
    "covered": 2.9,
    "weight": 0.92,
    "size": -0.5,
    "length": 0.38,
    "of_itself": 2.34,
    "lead": 4.52,
    "lead_in_size": 0.93,
    "pairs": 1.15,
    "rarity": -0.3,
    "ahead": 1.32,
}
"""The model for what is found by words alone."""

MEANINGS: Mapping[str, float] = {
    "constant": -6.82,
    "strength": 0.45,
    "covered": 3.89,
    "weight": 0.76,
    "size": -0.4,
    "length": 0.28,
    "of_itself": 1.72,
    "lead": 4.53,
    "lead_in_size": 0.59,
    "pairs": 1.0,
    "rarity": -0.28,
    "ahead": 0.58,
    "meaning": 2.39,
}
"""The model where the cosine is known."""


def confidence(signals: Signals, model: Mapping[str, float]) -> float:
    """Returns how likely the resource fits, 0 to 1, by a logistic model: WORDS or MEANINGS."""
    logit = model["constant"] + sum(
        model[field.name] * getattr(signals, field.name) for field in fields(Signals) if field.name in model
    )
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, logit))))


def confidences(fused: Fused, content: Set[str], most: int | None = None) -> Sequence[float]:
    """Returns the confidence of each hit, of so many at most. They fall with the order, the best that is known.

    content: as in `signals`.
    """
    found: list[float] = []
    fused.ranking.explain(hit.scored for hit in fused.hits[:most])
    for at, hit in enumerate(fused.hits[:most]):
        model = WORDS if hit.cosine is None else MEANINGS
        sure = confidence(signals(fused, at, content), model)
        found.append(min(sure, found[-1]) if found else sure)
    return found
