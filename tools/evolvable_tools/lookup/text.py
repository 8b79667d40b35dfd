"""The text stage: what the resources say, in names, descriptions, triggers and bodies, against what is asked."""

import math
from collections import defaultdict
from collections.abc import Sequence, Set
from itertools import accumulate

from evolvable_store.index import Index, Part, Ranking, Scored
from evolvable_store.words import FUNCTION_WORDS, asked
from evolvable_tools.lookup.stage import Answer, Candidate, Query

_SHOWN_WORDS = 4


def text(index: Index, query: Query) -> Answer:
    """Returns the resources whose texts fit the task best, each with the words that matched and where."""
    ranking = index.search(query.task, kind=query.kind, scopes=query.scopes, limit=query.limit)
    if not ranking.scored:
        return Answer((), "no word of the task occurs in the library" if ranking.mass else "the task has no words")
    content = {word for word in asked(query.task) if word not in FUNCTION_WORDS}
    rated = (max(confidence(scored, ranking), in_few_words(scored, content)) for scored in ranking.scored)
    # The order is that of the scores, which is the best known; no confidence rises against it.
    falling = accumulate(rated, min)
    candidates = tuple(Candidate(s.entry, sure, _why(s.parts)) for s, sure in zip(ranking.scored, falling, strict=True))
    best = ranking.scored[0]
    said = f"{best.entry.ref} is the best, {best.coverage * known(ranking):.0%} of the task's weight is in it"
    return Answer(candidates, said)


def known(ranking: Ranking) -> float:
    """Returns the share of the task's weight that lies on words which the library uses at all."""
    return 1 - ranking.unknown / ranking.mass if ranking.mass else 0.0


def confidence(scored: Scored, ranking: Ranking) -> float:
    """Returns how likely the resource fits, 0 to 1.

    A logistic model of the score per weight asked, the share of the task that is covered, the weight of the task, and
    the size of the library (a large one has a word for everything). Fitted by benchmarks/lookup_confidence.py to real
    tasks, each once as it is and once with its right resource and that one's repository taken out of the library,
    in libraries of 30 to 10,000. There, with families of tasks left out of the fit, FITS keeps 80 to 92 % of the
    right answers and lets 7 to 15 % of the wrong ones pass.
    """
    logit = (
        -4.0
        + 3.77 * math.log(scored.score / ranking.mass + 0.05)
        + 1.22 * scored.coverage * known(ranking)
        + 1.88 * math.log(ranking.mass)
        - 0.55 * math.log(ranking.documents)
    )
    return 1 / (1 + math.exp(-max(-50.0, logit)))


SHORT = 6
"""Words, but for function words, up to which a task is a few words and not a description."""


def in_few_words(scored: Scored, content: Set[str]) -> float:
    """Returns how likely the resource fits a task of at most SHORT content words, 0 to 1; 0 for a longer one.

    `confidence` learned from whole sentences and asks for more weight than a few words have. Here the resource must
    have nearly all of them, and say them of itself: in its name, description or triggers.
    """
    if not 0 < len(content) <= SHORT:
        return 0.0
    of_itself = {part.word for part in scored.parts if part.field != "body"} & content
    in_body = {part.word for part in scored.parts} & content - of_itself
    return 0.8 * ((len(of_itself) + 0.4 * len(in_body)) / len(content)) ** 1.5


FITS = 0.4
"""Under this confidence nothing fits."""


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
