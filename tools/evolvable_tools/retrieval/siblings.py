"""Siblings: what distinguishes the first few matches from each other, by words alone.

Resources of one vendor share most of their words, and the words that they share weigh as much as the others. So the
first few are compared once more, by what each says of itself and the others do not, and by its name.
"""

from collections import Counter
from collections.abc import Sequence, Set

from evolvable_store.search.analyzer import MAX_QUERY, terms, tokenize
from evolvable_store.search.index import Ranking, SearchHit

COMPARED = 10
"""Matches that are compared with each other."""

NAMED, DISTINCT = 0.1, 0.3
"""Worth of a name whose words are all in the task, and of a task whose words one match alone says of itself.

In units of the best score. Chosen on nine families of tasks: each of the nine gained or stayed the same.
"""

_OTHER_FIELDS = frozenset(("body", "files", "pairs", "learned"))


def sibling_bonus(ranking: Ranking, task: str, first: Sequence[SearchHit]) -> list[float]:
    """Return what each of the first few matches gains by its name and by words that few of the others have.

    task: what the ranking was made for.
    """
    known = ranking.mass - ranking.unknown
    if len(first) < 2 or known <= 0:
        return [0.0] * len(first)
    ranking.explain(first)
    said = ranking.asked.keys() | set(terms(tokenize(task[:MAX_QUERY])))
    own = [own_words(hit) for hit in first]
    having = Counter(word for words in own for word in words)
    weight = ranking.query.weights
    return [
        NAMED * _named(hit, said)
        + DISTINCT * sum(weight.get(word, 0.0) * (1 - having[word] / len(first)) for word in words) / known
        for hit, words in zip(first, own, strict=True)
    ]


def own_words(hit: SearchHit) -> set[str]:
    """Return the words of the query that are in the resource's name, description or triggers."""
    return {part.word for part in hit.parts if part.field not in _OTHER_FIELDS}


def _named(hit: SearchHit, said: Set[str]) -> float:
    """Return the share of the resource's name that the query has, 0 to 1."""
    name = set(terms(tokenize(hit.entry.name)))
    return len(name & said) / max(1, len(name))
