"""The text and the embedding stage: fuses the scores of words and vectors, and turns them into
probabilities.

Scores are fused, not ranks: a rank does not distinguish a clear match from a poor one, and costs a
point and more.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from heapq import nlargest
from itertools import chain

from evolvable_store.search import (
    FUNCTION_WORDS,
    MAX_QUERY,
    PRIOR,
    Index,
    Match,
    Ranking,
    TermScore,
    terms,
    tokenize,
)
from evolvable_tools.embedding import SimilarResources
from evolvable_tools.retrieval.search_types import PendingNeighbours, SearchQuery, StageResult

MEANING = 0.5
"""Weight of a cosine of 1 where the best score of the words counts 1; chosen on real tasks."""

DEPTH = 50
"""Resources that words and vectors each propose to the other."""

REORDERED = 8
"""Resources whose order learned tasks decide together with the words."""

CLOSEST_FIRST = 5
"""Resources whose order late interaction decides together with the words and the cosine."""

NEAR = 0.25
"""Weight of a cosine of 1 in the order of the matches that were found, where the best score of the
words counts 1.
"""

COSINE, LATE = 0.5, 0.25
"""Weights of a cosine and of a late interaction of 1 in the order of the first CLOSEST_FIRST, in
the same units.

Chosen on nine families of tasks by words, together with NEAR.
"""

LEARNED, FAR = 0.45, 0.3
"""Weight of a nearness of 1 to a learned task, in the same units; and what counts as far."""


@dataclass(frozen=True)
class FusedRanking:
    """Hits, best first. `similar`: the answer of the embedder, None without one.

    before: the ranking before the order of the first few was changed. moved: places that a resource
    gained by a learned task near to this one, of those compared with such a task.
    """

    hits: tuple[Match, ...]
    ranking: Ranking
    similar: SimilarResources | None
    before: "FusedRanking | None" = None
    moved: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def content(self) -> set[str]:
        """The words of the query that are no function words."""
        words = {term.words for term in self.ranking.terms.values() if not term.pair}
        return words - FUNCTION_WORDS


def order_by_words(
    ranking: Ranking, query: SearchQuery, similar: SimilarResources | None = None
) -> FusedRanking:
    """Return the first few by words alone, siblings distinguished.

    similar: says why the embedder has no answer.
    """
    best = ranking.scored[0].score if ranking.scored else 0.0
    hits = ranking.scored[: query.limit]
    for hit in hits:
        hit.fused = hit.score / best
    plain = FusedRanking(hits, ranking, similar)
    return _reorder(plain, _score_words(plain, query), COMPARED)


def fuse_with_vectors(
    index: Index, query: SearchQuery, ranking: Ranking, pending: PendingNeighbours
) -> FusedRanking:
    """Return the first few in the order of words and vectors.

    Waits for the embedder a bounded time.
    """
    weighed = dict(ranking.weighed)
    similar = pending.similar(list(weighed), kind=query.kind, scopes=query.scopes, limit=DEPTH)
    # `similar` says why the embedder has no answer; the words alone decide then.
    if not similar.available:
        return order_by_words(ranking, query, similar)
    others = set(similar.nearest).difference(weighed)
    weighed |= index.weigh(ranking, others)
    # The best score is 0 where the library has no word of the task; then the cosines alone decide.
    top = max((document_score.score for document_score in weighed.values()), default=0.0) or 1.0
    cosines = _fill_missing_cosines(similar.cosines, weighed)
    both = {
        id_: document_score.score / top + MEANING * cosines[id_]
        for id_, document_score in weighed.items()
    }
    # The id breaks ties, so that equal sums have one order in every process.
    best = sorted(both, key=lambda id_: (-both[id_], id_))[: query.limit]
    matches = index.matches(ranking, {id_: weighed[id_] for id_ in best})
    hits = tuple(matches[id_] for id_ in best if id_ in matches)
    for hit in hits:
        hit.cosine, hit.fused = similar.cosines.get(hit.entry.id), both[hit.entry.id]
    fused = FusedRanking(hits, ranking, similar)
    words = _score_words(fused, query)
    return reorder_closest(fused, words)


# Resources of one vendor share most of their words. So the first few are compared once more, by
# what each says of itself and the others do not, and by its name.

COMPARED = 10
"""Matches that are compared with each other."""

NAMED, DISTINCT = 0.1, 0.3
"""Worth of a name whose words are all in the task, and of a task whose words one match alone says
of itself.

In units of the best score. Chosen on nine families of tasks: each of the nine gained or stayed the
same.
"""

_SHORT = 160  # characters: so short a task has fewer words than a query has room for
# Fields that are not a resource's own words. Pairs repeat words of name and description.
_OTHER_FIELDS = frozenset(("body", "files", "pairs", "learned"))


def sibling_bonus(ranking: Ranking, task: str, first: Sequence[Match]) -> list[float]:
    """Return what each of the first few matches gains by its name and by words that few of the
    others have.

    task: what the ranking was made for.
    """
    known_mass = ranking.mass - ranking.unknown
    # Without a rival there is nothing to distinguish, and without a known word no unit to measure
    # in.
    if len(first) < 2 or known_mass <= 0:
        return [0.0] * len(first)
    ranking.explain(first)
    task_terms: Set[str] = ranking.terms.keys()
    if len(task) > _SHORT:  # of a long task the query may have left words out
        task_terms = task_terms | set(terms(tokenize(task[:MAX_QUERY])))
    own = [own_words(hit) for hit in first]
    having = Counter(chain.from_iterable(own))
    weight = ranking.query.weights
    # A word that all of them have weighs nothing, one that few have nearly its whole weight.
    rare = {
        word: weight[word] * (1 - count / len(first))
        for word, count in having.items()
        if word in weight
    }
    return [
        NAMED * _measure_named_share(hit, task_terms)
        + DISTINCT / known_mass * sum(rare.get(word, 0.0) for word in words)
        for hit, words in zip(first, own, strict=True)
    ]


def own_words(hit: Match) -> set[str]:
    """Return the words of the query that are in the resource's name, description or triggers."""
    return {part.word for part in hit.parts if part.field not in _OTHER_FIELDS}


def _measure_named_share(hit: Match, task_terms: Set[str]) -> float:
    """Return the share of the resource's name that the query has, 0 to 1."""
    name = _name_terms(hit.entry.name)
    return len(name & task_terms) / max(1, len(name))


# Names repeat from search to search; the bound keeps a large library from filling the memory.
@lru_cache(maxsize=4096)
def _name_terms(name: str) -> frozenset[str]:
    return frozenset(terms(tokenize(name)))


def _score_words(fused: FusedRanking, query: SearchQuery) -> dict[int, float]:
    """Return the score of each hit by its words, the best 1, and what it gains over its
    siblings.
    """
    best = max((hit.score for hit in fused.hits), default=0.0) or 1.0
    first = fused.ranking.scored[:COMPARED]
    gained = {
        hit.entry.id: bonus
        for hit, bonus in zip(first, sibling_bonus(fused.ranking, query.task, first), strict=True)
    }
    return {hit.entry.id: hit.score / best + gained.get(hit.entry.id, 0.0) for hit in fused.hits}


def reorder_closest(fused: FusedRanking, words: Mapping[int, float]) -> FusedRanking:
    """Return the hits by words and cosine, the first few of them by late interaction and learned
    tasks too.

    Those that were compared token by token exchange places among themselves; all others keep
    theirs.
    """
    if fused.similar is None or len(fused.hits) < 2:
        return fused
    cosines = _fill_missing_cosines(fused.similar.cosines, [hit.entry.id for hit in fused.hits])
    by_cosine = {id_: words[id_] + NEAR * cosine for id_, cosine in cosines.items()}
    reordered = _reorder(fused, by_cosine, len(fused.hits))
    # Only the first few were compared token by token, so only these have a sum and exchange places.
    late = {id_: LATE * nearness for id_, nearness in fused.similar.late.items() if id_ in words}
    sums = {id_: words[id_] + COSINE * cosines[id_] + nearness for id_, nearness in late.items()}
    return _apply_learned(reordered, sums, CLOSEST_FIRST)


def _apply_learned(fused: FusedRanking, sums: Mapping[int, float], first: int) -> FusedRanking:
    """Return the ranking in the order of the sums and of learned tasks near the task; `moved` says
    how far these moved.

    first: how many places the sums alone decide; with learned tasks REORDERED.
    """
    without = _reorder(fused, sums, first)
    learned = fused.similar.learned if fused.similar is not None else {}
    # Only the part above FAR counts below, so that the sum does not jump there.
    near = {id_: learned[id_] for id_ in sums if learned.get(id_, 0.0) > FAR}
    if not near:
        return without
    raised = {id_: sums[id_] + LEARNED * (nearness - FAR) for id_, nearness in near.items()}
    taught = _reorder(fused, {**sums, **raised}, REORDERED)
    before, after = (
        [hit.entry.id for hit in ranking.hits[:REORDERED]] for ranking in (without, taught)
    )
    moved = {
        id_: before.index(id_) - after.index(id_) for id_ in near if id_ in before and id_ in after
    }
    return replace(taught, moved=moved)


def _fill_missing_cosines(cosines: Mapping[int, float], ids: Collection[int]) -> dict[int, float]:
    """Return the cosine of each resource.

    One without a vector yet counts as near as the median of the others.
    """
    known_cosines = sorted(cosines[id_] for id_ in ids if id_ in cosines)
    usual = known_cosines[len(known_cosines) // 2] if known_cosines else 0.0
    return {id_: cosines.get(id_, usual) for id_ in ids}


def _reorder(fused: FusedRanking, sums: Mapping[int, float], first: int) -> FusedRanking:
    """Return the ranking with those of its first few that have a sum in the order of their sums."""
    places = [at for at, hit in enumerate(fused.hits[:first]) if hit.entry.id in sums]
    if len(places) < 2:
        return fused
    chosen = sorted((fused.hits[at] for at in places), key=lambda hit: -sums[hit.entry.id])
    hits = list(fused.hits)
    for at, hit in zip(places, chosen, strict=True):
        hits[at] = hit
    return replace(fused, hits=tuple(hits), before=fused.before or fused)


# Rivals of the features `lead` and `ahead`.
_OTHERS = 4
_MORE_OTHERS = 9
# The logarithm of about 400 resources. It centres `lead_in_size`, so that this does not repeat
# `lead`.
_MIDDLE = 6.0


@dataclass(frozen=True, slots=True)
class ConfidenceFeatures:
    """The features that distinguish a resource that fits from the nearest that does not."""

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
    """Share of those that are in the resource's name, description or triggers, 0 to 1."""
    lead: float
    """Its score minus the mean of the best four others; one near copy does not cancel the lead."""
    lead_in_size: float
    """The lead times the size, centred: in a large library a small lead means more."""
    pairs: float
    """Pairs of the task's words that are adjacent in its name or description, as a logarithm."""
    rarity: float
    """Weight of the task for each of its words that are no function words."""
    ahead: float
    """Score of its words minus the mean of the best nine others, as a share of the highest, -1 to
    1.
    """
    meaning: float
    """Cosine of task and resource, 0 where it is not known."""


def confidence_features(fused: FusedRanking, at: int) -> ConfidenceFeatures:
    """Return the features of one hit."""
    hit, ranking, content = fused.hits[at], fused.ranking, fused.content
    matched_words = own_words(hit) & content
    # A missing rival counts as 0: the only match leads by its whole score.
    others = [other.fused for place, other in enumerate(fused.hits) if place != at][:_OTHERS]
    lead, size = hit.fused - sum(others) / _OTHERS, math.log(ranking.documents + PRIOR)
    rivals = nlargest(
        _MORE_OTHERS, (other.score for place, other in enumerate(fused.hits) if place != at)
    )
    highest = max(hit.score, *rivals[:1], 1e-9)
    return ConfidenceFeatures(
        # The small addends here and in `weight` keep the logarithms finite.
        strength=math.log(hit.score / (ranking.mass or 1.0) + 0.05),
        covered=hit.coverage * known_share(ranking),
        weight=math.log(ranking.mass + 1e-3),
        size=size,
        length=math.log(1 + len(content)),
        of_itself=len(matched_words) / max(1, len(content)),
        lead=lead,
        lead_in_size=lead * (size - _MIDDLE),
        pairs=math.log1p(sum(part.field == "pairs" for part in hit.parts)),
        rarity=ranking.mass / max(1, len(content)),
        ahead=(hit.score - sum(rivals) / _MORE_OTHERS) / highest,
        meaning=hit.cosine or 0.0,
    )


def known_share(ranking: Ranking) -> float:
    """Return the share of the task's weight on words that the library uses."""
    return 1 - ranking.unknown / ranking.mass if ranking.mass else 0.0


# Both models are fitted on real tasks by benchmarks/lookup_confidence.py; a change of a feature
# needs a new fit.
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
"""The model for matches by words alone."""

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


def confidence(signals: ConfidenceFeatures, model: Mapping[str, float]) -> float:
    """Return how likely the resource fits, 0 to 1, by a logistic model: WORDS or MEANINGS."""
    # Clamped: `exp` overflows for a far logit, and beyond 50 the confidence is 0 or 1 in any case.
    clamped = max(-50.0, min(50.0, logit(signals, model)))
    return 1 / (1 + math.exp(-clamped))


def logit(signals: ConfidenceFeatures, model: Mapping[str, float]) -> float:
    """Return the logit of the confidence."""
    feature_names = [field.name for field in fields(ConfidenceFeatures) if field.name in model]
    return float(
        model["constant"] + sum(model[name] * getattr(signals, name) for name in feature_names)
    )


def confidences(fused: FusedRanking, most: int | None = None) -> Sequence[float]:
    """Return the confidences of the hits, of the first `most` of them. They never rise in order.

    A new order of the first few is at least as often right as the one before, so each place keeps
    its confidence.
    """
    fused = fused.before or fused
    falling: list[float] = []
    fused.ranking.explain(fused.hits[:most])
    for at, hit in enumerate(fused.hits[:most]):
        model = WORDS if hit.cosine is None else MEANINGS
        sure = confidence(confidence_features(fused, at), model)
        falling.append(min(sure, falling[-1]) if falling else sure)
    return falling


ENOUGH = 5.0
"""The weight of the words of the task that a match needs to be told as sure; one rare word weighs
up to 9.

Of the 76 real tasks whose best match has less and a confidence of .5, it is right for 60 %.
"""

# One word may occur by chance; of two, both have to be the resource's own.
_FEW_WORDS = 2
# Bounds of a reason, which agents pay for in tokens and people read as a line.
_SHOWN_WORDS = 4
_MOST_PASSAGE = 120  # characters
# Splits after the closing mark, so that it stays with its sentence. A line break ends a heading or
# an item of a list.
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")

SURE, CLEAR = 0.5, 0.95
"""From this confidence the search uses no vectors, unless the second scores more than this share of
the first.

Most real tasks do not wait for the embedder then, and hardly any has another result.
"""

_NOT_NEEDED = "not waited for: the words are sure enough"


def is_clear(fused: FusedRanking) -> bool:
    """Return whether the best match is so certain that vectors would not change it."""
    hits = (fused.before or fused).hits
    if len(hits) > 1 and hits[1].fused > CLEAR * hits[0].fused:
        return False
    return any(sure >= SURE for sure in confidences(fused, 1))


def report_hybrid(
    fused: FusedRanking, pending: PendingNeighbours | None, most: int
) -> dict[str, StageResult]:
    """Return the results of the text stage and, with an embedder, of the embedding stage.

    Each of the `most` first resources is in the result of the stage that contributed more to it.
    """
    by_words, by_meaning = list[Match](), list[Match]()
    # The words alone would not have found the others.
    within = {scored.entry.id for scored in fused.ranking.scored[: len(fused.hits)]}
    for hit, sure in zip(fused.hits, confidences(fused, most), strict=False):
        hit.confidence, hit.why, hit.enough = sure, _explain(hit, fused), _has_enough(hit, fused)
        is_by_words = hit.cosine is None or hit.entry.id in within
        (by_words if is_by_words else by_meaning).append(hit)
    results = {"text": StageResult(tuple(by_words), _describe_best(fused))}
    if pending is not None:
        report = fused.similar.said if fused.similar else pending.trouble or _NOT_NEEDED
        results["embedding"] = StageResult(tuple(by_meaning), report)
    return results


def _has_enough(hit: Match, fused: FusedRanking) -> bool:
    """Return whether the match has words enough of the task to be told as sure.

    One word of the task is never enough, two are if the resource says both of itself, and common
    ones weigh little.
    """
    content, weights = fused.content, fused.ranking.query.weights
    matched_words = {part.word for part in hit.parts} & content
    if len(content) <= _FEW_WORDS and len(own_words(hit) & content) < _FEW_WORDS:
        return False
    return sum(weights.get(word, 0.0) for word in matched_words) >= ENOUGH


def _describe_best(fused: FusedRanking) -> str:
    ranking = fused.ranking
    if not ranking.mass and not ranking.scored:
        return "the task has no words"
    if not ranking.scored:
        return "no word of the task occurs in the library"
    best = ranking.scored[0]
    share = best.coverage * known_share(ranking)
    return f"{best.entry.ref} is the best, {share:.0%} of the task's weight is in it"


def _explain(hit: Match, fused: FusedRanking) -> str:
    """Return the words that contributed most, the sentence with them, the cosine, and the learned
    task that is near.
    """
    reasons = []
    if hit.parts:
        top_words = _find_top_words(hit.parts)
        reasons.append("words: " + ", ".join(f"{word} ({field})" for word, field in top_words))
        passage = _find_passage(hit.entry.description, [word for word, _ in top_words])
        if passage:
            reasons.append(f'"{passage}"')
    if hit.cosine is not None:
        reasons.append(f"meaning: cosine {hit.cosine:.2f}")
    up = fused.moved.get(hit.entry.id)
    if up is not None and fused.similar is not None:
        places = f", {up} place{'s' if up > 1 else ''} up" if up > 0 else ""
        reasons.append(f"learned task: near by {fused.similar.learned[hit.entry.id]:.2f}{places}")
    return "; ".join(reasons)


def _find_top_words(parts: Sequence[TermScore]) -> list[tuple[str, str]]:
    """Return the words that contributed most to a score, each with the field where it
    weighs most.
    """
    sums: dict[str, float] = defaultdict(float)
    fields: dict[str, TermScore] = {}
    # The words of a pair have parts of their own.
    for part in parts:
        if part.field == "pairs":
            continue
        sums[part.word] += part.score
        if part.word not in fields or part.score > fields[part.word].score:
            fields[part.word] = part
    # A match by function words alone has nothing better to show.
    telling = [word for word in sums if word not in FUNCTION_WORDS] or list(sums)
    best = sorted(telling, key=lambda word: -sums[word])[:_SHOWN_WORDS]
    return [(word, fields[word].field) for word in best]


def _find_passage(description: str, matched: Sequence[str]) -> str:
    """Return the sentence of the description with most of the words, shortened; empty
    without any.
    """
    wanted_terms = set(terms(matched))
    best, most = "", 0
    # Bounded, because each sentence is analyzed and a description may be long.
    for sentence in _SENTENCE.split(description[:2_000]):
        count = len(wanted_terms.intersection(terms(tokenize(sentence))))
        if count > most:
            best, most = sentence.strip(), count
    return best if len(best) <= _MOST_PASSAGE else f"{best[: _MOST_PASSAGE - 1].rstrip()}…"
