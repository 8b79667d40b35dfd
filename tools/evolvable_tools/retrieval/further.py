"""What a caller may choose from beside the matches, and whether words can be compared at all."""

from collections.abc import Sequence

from evolvable_store.search import FUNCTION_WORDS, MAX_QUERY, IndexEntry, Ranking, fold, is_not_english, tokenize
from evolvable_tools.retrieval.search_types import SearchMatch

LIST_ALL = 60
"""Of a library of at most so many resources of a kind all can be chosen."""

LISTED = 12
"""Of a larger library: so many of the nearest, of the most proven, and of those with a word of the task."""

BY_ITSELF = 6
"""So many of the best by name, description and triggers alone: a long body can hide them."""

MOST = 3 * LISTED
"""Choices of a larger library, matches included."""

_LATIN_ENDS = "\u024f"


OWN_FIELDS = ("name", "description", "triggers")
"""The fields of a resource's own short text."""


def order_few(every: Sequence[IndexEntry], ranking: Ranking) -> list[IndexEntry]:
    """Return all resources of a small library, the likely ones first."""
    likely = {id_: at for at, id_ in enumerate(ranking.weighed)}
    return sorted(every, key=lambda entry: likely.get(entry.id, LIST_ALL))


def likely_ids(
    merged: Sequence[SearchMatch], ranking: Ranking, own: Ranking, near: Sequence[int], proven: Sequence[int]
) -> list[int]:
    """Return the ids of what may be chosen in a larger library, the likely ones first.

    own: the ranking by OWN_FIELDS alone. near, proven: ids of what an embedder finds nearest, and of what has the most
    successes, of any kind.
    """
    matched = {match.entry.id for match in merged}
    by_itself = [id_ for id_ in own.weighed if id_ not in matched][:BY_ITSELF]
    ids = dict.fromkeys([*by_itself, *near[:LISTED], *proven, *ranking.weighed])
    return list(ids)[: len(merged) + MOST]


def further_choices(entries: Sequence[IndexEntry], merged: Sequence[SearchMatch], most: int) -> tuple[IndexEntry, ...]:
    """Return those beside the matches, at most so many."""
    matched = {match.entry.id for match in merged}
    others = [entry for entry in entries if entry.id not in matched]
    return tuple(others[:most])


def is_foreign(task: str) -> bool:
    """Return whether a task is in another language than English, or in another script than that of Latin.

    Most libraries are in English, and few words of such a task stand in them.
    """
    text = fold(task[:MAX_QUERY])
    letters = [char for char in text if char.isalpha()]
    if 2 * sum(char > _LATIN_ENDS for char in letters) > len(letters):
        return True
    return is_not_english(text, tokenize(text), FUNCTION_WORDS)
