"""The text and the embedding stage: what the words say, and what the meaning says, in one order.

Scores are fused, not ranks: a rank does not tell a clear find from a poor one, and costs a point and more.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from evolvable_store.search.index import DocumentScore, Index, Ranking, SearchHit
from evolvable_tools.embedding.similar import Similar
from evolvable_tools.lookup.stage import Pending, Query

MEANING = 0.5
"""What a cosine of 1 counts beside the best score of the words, which counts 1; chosen on real tasks."""

DEPTH = 50
"""Resources that each of both proposes to the other."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One resource: what its words say, the cosine of its meaning to the task if it is known, and both as one score."""

    scored: SearchHit
    cosine: float | None
    score: float


@dataclass(frozen=True, slots=True)
class Fused:
    """Hits, best first. `similar`: what the embedder said, None when there is none."""

    hits: tuple[Hit, ...]
    ranking: Ranking
    similar: Similar | None


def fuse(index: Index, query: Query, pending: Pending | None) -> Fused:
    """Returns the resources that fit a task best by words, and by meaning where there is an embedder."""
    ranking = ranked(index, query, depth=0 if pending is None else DEPTH)
    return by_words(ranking, query.limit) if pending is None else by_meaning_too(index, query, ranking, pending)


def ranked(index: Index, query: Query, *, depth: int = 0) -> Ranking:
    """Returns the resources whose words fit a task best, as many as the query asks for. depth: weighed at least."""
    return index.search(query.task, kind=query.kind, scopes=query.scopes, limit=query.limit, depth=depth)


def by_words(ranking: Ranking, limit: int, similar: Similar | None = None) -> Fused:
    """Returns the first few as the words alone put them. similar: why the meaning says nothing."""
    best = ranking.scored[0].score if ranking.scored else 0.0
    return Fused(tuple(Hit(s, None, s.score / best) for s in ranking.scored[:limit]), ranking, similar)


def by_meaning_too(index: Index, query: Query, ranking: Ranking, pending: Pending) -> Fused:
    """Returns the first few as words and meaning put them together; waits for the embedder a bounded time."""
    weighed = dict(ranking.weighed)
    similar = pending.similar(list(weighed), kind=query.kind, scopes=query.scopes, limit=DEPTH)
    if not similar.available:
        return by_words(ranking, query.limit, similar)
    others = set(similar.nearest).difference(weighed)
    weighed |= index.weigh(ranking, others, kind=query.kind, scopes=query.scopes)
    both = _both(weighed, similar)
    best = sorted(both, key=lambda id_: (-both[id_], id_))[: query.limit]
    scored = index.scored(ranking, {id_: weighed[id_] for id_ in best})
    hits = (Hit(scored[id_], similar.cosines.get(id_), both[id_]) for id_ in best if id_ in scored)
    return Fused(tuple(hits), ranking, similar)


def _both(weighed: Mapping[int, DocumentScore], similar: Similar) -> dict[int, float]:
    """Returns the score of each resource by words and meaning."""
    best = max((its.score for its in weighed.values()), default=0.0) or 1.0
    known = sorted(similar.cosines[id_] for id_ in weighed if id_ in similar.cosines)
    # What has no vector yet is taken for as near as the middle one of the others.
    usual = known[len(known) // 2] if known else 0.0
    return {id_: its.score / best + MEANING * similar.cosines.get(id_, usual) for id_, its in weighed.items()}
