"""The text and the embedding stage as answers: each find with how sure it is and what matched."""

import re
from collections import defaultdict
from collections.abc import Sequence

from evolvable_store.search.analyzer import FUNCTION_WORDS, terms, tokenize
from evolvable_store.search.index import Index, Ranking, TermScore
from evolvable_tools.lookup.confidence import confidences, known
from evolvable_tools.lookup.fusion import DEPTH, Fused, Hit, by_meaning_too, by_words, ranked
from evolvable_tools.lookup.stage import Answer, Candidate, Pending, Query

_SHOWN_WORDS = 4
_MOST_PASSAGE = 120
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")

SURE, CLEAR = 0.5, 0.95
"""From this confidence the words need no meaning, unless the second scores more than this share of the first. Most real
tasks do not wait for the embedder then, and hardly any finds something else.
"""

_NOT_NEEDED = "not waited for: the words are sure enough"


def text(index: Index, query: Query, pending: Pending | None, most: int) -> tuple[Answer, Answer | None]:
    """Returns what the words say, and what the meaning says where there is an embedder and the words are not sure.

    A resource is in the answer of the stage that did more for it; each is in one of both. most: resources in both.
    """
    ranking = ranked(index, query, depth=0 if pending is None else DEPTH)
    content = content_of(ranking)
    fused = by_words(ranking, query.limit)
    if pending is not None and not _is_settled(fused, content):
        fused = by_meaning_too(index, query, ranking, pending)
    sure = confidences(fused, content, most)
    mostly_words, mostly_meaning = list[Candidate](), list[Candidate]()
    for hit, confidence in zip(fused.hits, sure, strict=False):
        mostly = mostly_meaning if _is_by_meaning(hit, fused) else mostly_words
        mostly.append(Candidate(hit.scored.entry, confidence, _why(hit)))
    words = Answer(tuple(mostly_words), _said(fused))
    if pending is None:
        return words, None
    said = fused.similar.said if fused.similar else pending.trouble or _NOT_NEEDED
    return words, Answer(tuple(mostly_meaning), said)


def _is_settled(fused: Fused, content: set[str]) -> bool:
    if len(fused.hits) > 1 and fused.hits[1].score > CLEAR * fused.hits[0].score:
        return False
    return any(sure >= SURE for sure in confidences(fused, content, 1))


def content_of(ranking: Ranking) -> set[str]:
    """Returns the words that were asked and are no function words."""
    return {asked.words for asked in ranking.asked.values() if not asked.pair} - FUNCTION_WORDS


def _is_by_meaning(hit: Hit, fused: Fused) -> bool:
    """Returns whether the words alone would not have brought it here."""
    within = {scored.entry.id for scored in fused.ranking.scored[: len(fused.hits)]}
    return hit.cosine is not None and hit.scored.entry.id not in within


def _said(fused: Fused) -> str:
    ranking = fused.ranking
    if not ranking.scored:
        return "no word of the task occurs in the library" if ranking.mass else "the task has no words"
    best = ranking.scored[0]
    return f"{best.entry.ref} is the best, {best.coverage * known(ranking):.0%} of the task's weight is in it"


def _why(hit: Hit) -> str:
    """Returns the words that added most, the sentence where they stand, and how near the meaning is."""
    reasons = []
    if hit.scored.parts:
        shown = _shown(hit.scored.parts)
        reasons.append("words: " + ", ".join(f"{word} ({field})" for word, field in shown))
        passage = _passage(hit.scored.entry.description, [word for word, _ in shown])
        if passage:
            reasons.append(f'"{passage}"')
    if hit.cosine is not None:
        reasons.append(f"meaning: cosine {hit.cosine:.2f}")
    return "; ".join(reasons)


def _shown(parts: Sequence[TermScore]) -> list[tuple[str, str]]:
    """Returns the words that added most to a score, each with the field where it weighs most."""
    sums: dict[str, float] = defaultdict(float)
    fields: dict[str, TermScore] = {}
    for part in parts:
        if part.field == "pairs":
            continue
        sums[part.word] += part.score
        if part.word not in fields or part.score > fields[part.word].score:
            fields[part.word] = part
    telling = [word for word in sums if word not in FUNCTION_WORDS] or list(sums)
    best = sorted(telling, key=lambda word: -sums[word])[:_SHOWN_WORDS]
    return [(word, fields[word].field) for word in best]


def _passage(description: str, matched: Sequence[str]) -> str:
    """Returns the sentence of the description with most of the words, cut; empty when it has none of them."""
    wanted = set(terms(matched))
    best, most = "", 0
    for sentence in _SENTENCE.split(description[:2_000]):
        count = len(wanted.intersection(terms(tokenize(sentence))))
        if count > most:
            best, most = sentence.strip(), count
    return best if len(best) <= _MOST_PASSAGE else f"{best[: _MOST_PASSAGE - 1].rstrip()}…"
