"""The text stage: what the resources say, in names, descriptions, triggers and bodies, against what is asked."""

import math
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

from evolvable_store.index import Index, Part, Ranking, Scored
from evolvable_store.ranking import PRIOR
from evolvable_store.words import FUNCTION_WORDS, asked
from evolvable_tools.lookup.stage import Answer, Candidate, Query

_SHOWN_WORDS = 4
_FEW_WORDS = 6
_SMALL_LIBRARY = 100


def text(index: Index, query: Query) -> Answer:
    """Returns the resources whose texts fit the task best, each with the words that matched and where."""
    ranking = index.search(query.task, kind=query.kind, scopes=query.scopes, limit=query.limit)
    if not ranking.scored:
        return Answer((), "no word of the task occurs in the library" if ranking.mass else "the task has no words")
    content = asked(query.task).keys() - FUNCTION_WORDS
    rated = (
        max(confidence(signals(scored, ranking, content)), in_few_words(scored, ranking, content))
        for scored in ranking.scored
    )
    # The order is that of the scores, which is the best known; no confidence rises against it.
    falling = accumulate(rated, min)
    candidates = tuple(Candidate(s.entry, sure, _why(s.parts)) for s, sure in zip(ranking.scored, falling, strict=True))
    best = ranking.scored[0]
    said = f"{best.entry.ref} is the best, {best.coverage * known(ranking):.0%} of the task's weight is in it"
    return Answer(candidates, said)


def known(ranking: Ranking) -> float:
    """Returns the share of the task's weight that lies on words which the library uses at all."""
    return 1 - ranking.unknown / ranking.mass if ranking.mass else 0.0


@dataclass(frozen=True, slots=True)
class Signals:
    """What tells a resource that fits from the nearest of those that do not."""

    strength: float
    """Score for each unit of weight asked, as a logarithm."""
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


def signals(scored: Scored, ranking: Ranking, content: Set[str]) -> Signals:
    """Returns the signals of one find. `content`: the words of the task that are no function words."""
    said = {part.word for part in scored.parts if part.field != "body"} & content
    return Signals(
        strength=math.log(scored.score / ranking.mass + 0.05),
        covered=scored.coverage * known(ranking),
        weight=math.log(ranking.mass),
        size=math.log(ranking.documents + PRIOR),
        length=math.log(1 + len(content)),
        of_itself=len(said) / max(1, len(content)),
    )


def confidence(signals: Signals) -> float:
    """Returns how likely the resource fits, 0 to 1.

    A logistic model, fitted by benchmarks/lookup_confidence.py to 2,487 real tasks in libraries of 30 to 10,000 skills:
    each as it is, and once more with its right skill and that one's whole repository out of the answer.
    """
    logit = (
        -7.19
        + 3.24 * signals.strength
        + 1.54 * signals.covered
        + 3.36 * signals.weight
        - 0.47 * signals.size
        - 1.55 * signals.length
        + 3.31 * signals.of_itself
    )
    return 1 / (1 + math.exp(-max(-50.0, logit)))


def in_few_words(scored: Scored, ranking: Ranking, content: Set[str]) -> float:
    """Returns how likely the resource fits a task of a few words in a small library, 0 to 1; 0 for any other.

    `confidence` counts every word that the library never uses against a resource. Among a handful of resources that
    says little: it is enough that one has nearly all the words, and says them of itself.
    """
    if not 0 < len(content) <= _FEW_WORDS or ranking.documents > _SMALL_LIBRARY:
        return 0.0
    of_itself = {part.word for part in scored.parts if part.field != "body"} & content
    in_body = {part.word for part in scored.parts} & content - of_itself
    return 0.8 * math.pow((len(of_itself) + 0.4 * len(in_body)) / len(content), 1.5)


FITS = 0.35
"""Under this confidence nothing fits.

With families of tasks left out of the fit it keeps 79 to 95 % of the right answers, and gives an answer to 6 to 13 % of
the tasks whose right skill was taken out, in libraries of 100 to 10,000; smaller ones were not fitted anew.
"""


def _why(parts: Sequence[Part]) -> str:
    """Returns the words that added most to a score, each with the field where it weighs most."""
    words: dict[str, float] = defaultdict(float)
    fields: dict[str, Part] = {}
    for part in parts:
        words[part.word] += part.score
        if part.word not in fields or part.score > fields[part.word].score:
            fields[part.word] = part
    best = sorted(words, key=lambda word: -words[word])[:_SHOWN_WORDS]
    return "words: " + ", ".join(f"{word} ({fields[word].field})" for word in best)
