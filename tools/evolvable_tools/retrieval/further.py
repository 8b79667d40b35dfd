"""What a caller may choose from beside the matches, and whether words can be compared at all."""

from collections.abc import Iterable, Sequence

from evolvable_store.search.analyzer import FUNCTION_WORDS, MAX_QUERY
from evolvable_store.search.index import Index, IndexEntry, Ranking
from evolvable_store.search.tokenizer import fold, tokenize
from evolvable_store.search.translation import is_not_english
from evolvable_tools.retrieval import SearchMatch, SearchQuery

LIST_ALL = 60
"""Of a library of at most so many resources of a kind all can be chosen."""

LISTED = 12
"""Of a larger library: so many of the nearest, of the most proven, and of those with a word of the task."""

BY_ITSELF = 6
"""So many of the best by name, description and triggers alone: a long body can hide them."""

MOST = 3 * LISTED
"""Choices of a larger library, matches included."""

_LATIN_ENDS = "\u024f"


def further_choices(
    index: Index,
    query: SearchQuery,
    ranking: Ranking,
    merged: Sequence[SearchMatch],
    *,
    near: Sequence[int],
    proven: Sequence[int],
) -> list[IndexEntry]:
    """Return what may be chosen beside the matches, the likely ones first; with these at most MOST, or all of a few.

    near, proven: ids of what an embedder finds nearest, and of what has the most successes, of any kind.
    """
    matched = [match.entry.id for match in merged]
    if len(ranking.weighed) <= LIST_ALL:
        every = index.entries(kind=query.kind, scopes=query.scopes, limit=LIST_ALL + 1)
        if len(every) <= LIST_ALL:
            likely = {id_: at for at, id_ in enumerate(ranking.weighed)}
            return sorted(_others(every, matched), key=lambda entry: likely.get(entry.id, LIST_ALL))
    most = len(matched) + MOST
    found = index.search(
        query.task,
        kind=query.kind,
        scopes=query.scopes,
        limit=1,
        depth=most,
        fields=("name", "description", "triggers"),
    )
    by_itself = [id_ for id_ in found.weighed if id_ not in matched][:BY_ITSELF]
    ids = list(dict.fromkeys([*by_itself, *near[:LISTED], *proven, *ranking.weighed]))[:most]
    some = index.visible_entries(ids, kind=query.kind, scopes=query.scopes).values()
    return _others(some, matched)[: max(0, MOST - len(matched))]


def _others(entries: Iterable[IndexEntry], matched: Sequence[int]) -> list[IndexEntry]:
    return [entry for entry in entries if entry.id not in matched]


def is_foreign(task: str) -> bool:
    """Return whether a task is in another language than English, or in another script than that of Latin.

    Most libraries are in English, and few words of such a task stand in them.
    """
    text = fold(task[:MAX_QUERY])
    letters = [char for char in text if char.isalpha()]
    if 2 * sum(char > _LATIN_ENDS for char in letters) > len(letters):
        return True
    return is_not_english(text, tokenize(text), FUNCTION_WORDS)
