"""The text and the embedding stage: what the words say, and what the meaning says, in one order.

Scores are fused, not ranks: a rank does not tell a clear find from a poor one, and costs a point and more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evolvable_store.index import Index, Ranking, Scored
from evolvable_tools.embedding.similar import Similar
from evolvable_tools.lookup.stage import Pending, Query

MEANING = 0.5
"""What a cosine of 1 counts beside the best score of the words, which counts 1; chosen on real tasks."""

DEPTH = 50
"""Resources that each of both proposes to the other."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One resource: what its words say, the cosine of its meaning to the task if it is known, and both as one score."""

    scored: Scored
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
    """Returns the resources whose words fit a task best, at least as many as the query asks for."""
    return index.search(query.task, kind=query.kind, scopes=query.scopes, limit=max(query.limit, depth))


def by_words(ranking: Ranking, limit: int, similar: Similar | None = None) -> Fused:
    """Returns the first few as the words alone put them. similar: why the meaning says nothing."""
    best = ranking.scored[0].score if ranking.scored else 0.0
    return Fused(tuple(Hit(s, None, s.score / best) for s in ranking.scored[:limit]), ranking, similar)


def by_meaning_too(index: Index, query: Query, ranking: Ranking, pending: Pending) -> Fused:
    """Returns the first few as words and meaning put them together; waits for the embedder a bounded time."""
    found = list(ranking.scored)
    ids = [scored.entry.id for scored in found]
    similar = pending.similar(ids, kind=query.kind, scopes=query.scopes, limit=DEPTH)
    if not similar.available:
        return by_words(ranking, query.limit, similar)
    best = found[0].score if found else 0.0
    others = set(similar.nearest).difference(ids)
    found += index.weigh(ranking, others, kind=query.kind, scopes=query.scopes)
    hits = sorted(_hits(found, best or 1.0, similar), key=lambda hit: (-hit.score, hit.scored.entry.id))
    return Fused(tuple(hits[: query.limit]), ranking, similar)


def _hits(found: Sequence[Scored], best: float, similar: Similar) -> list[Hit]:
    cosines = [similar.cosines.get(scored.entry.id) for scored in found]
    known = sorted(cosine for cosine in cosines if cosine is not None)
    # What has no vector yet is taken for as near as the middle one of the others.
    usual = known[len(known) // 2] if known else 0.0
    return [
        Hit(scored, cosine, scored.score / best + MEANING * (usual if cosine is None else cosine))
        for scored, cosine in zip(found, cosines, strict=True)
    ]
