"""Siblings: what distinguishes the first few matches from each other, by words alone.

Resources of one vendor share most of their words, and the words that they share weigh as much as the others. So the
first few are compared once more, by what each says of itself and the others do not, and by its name.
"""

from collections import Counter
from collections.abc import Sequence, Set
from functools import lru_cache
from itertools import chain

from evolvable_store.search import MAX_QUERY, Ranking, SearchHit, terms, tokenize

COMPARED = 10
"""Matches that are compared with each other."""

NAMED, DISTINCT = 0.1, 0.3
"""Worth of a name whose words are all in the task, and of a task whose words one match alone says of itself.

In units of the best score. Chosen on nine families of tasks: each of the nine gained or stayed the same.
"""

_SHORT = 160  # characters: so short a task has fewer words than a query has room for
_OTHER_FIELDS = frozenset(("body", "files", "pairs", "learned"))


def sibling_bonus(ranking: Ranking, task: str, first: Sequence[SearchHit]) -> list[float]:
    """Return what each of the first few matches gains by its name and by words that few of the others have.

    task: what the ranking was made for.
    """
    known = ranking.mass - ranking.unknown
    if len(first) < 2 or known <= 0:
        return [0.0] * len(first)
    ranking.explain(first)
    said: Set[str] = ranking.asked.keys()
    if len(task) > _SHORT:  # of a long task the query may have left words out
        said = said | set(terms(tokenize(task[:MAX_QUERY])))
    own = [own_words(hit) for hit in first]
    having = Counter(chain.from_iterable(own))
    weight = ranking.query.weights
    rare = {word: weight[word] * (1 - count / len(first)) for word, count in having.items() if word in weight}
    return [
        NAMED * _named(hit, said) + DISTINCT / known * sum(rare.get(word, 0.0) for word in words)
        for hit, words in zip(first, own, strict=True)
    ]


def own_words(hit: SearchHit) -> set[str]:
    """Return the words of the query that are in the resource's name, description or triggers."""
    return {part.word for part in hit.parts if part.field not in _OTHER_FIELDS}


def _named(hit: SearchHit, said: Set[str]) -> float:
    """Return the share of the resource's name that the query has, 0 to 1."""
    name = _name_terms(hit.entry.name)
    return len(name & said) / max(1, len(name))


@lru_cache(maxsize=4096)
def _name_terms(name: str) -> frozenset[str]:
    return frozenset(terms(tokenize(name)))
