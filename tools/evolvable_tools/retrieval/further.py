"""The choices of a caller beside the matches, and whether words can be compared at all."""

from collections.abc import Iterable, Sequence

from evolvable_store.search import (
    FUNCTION_WORDS,
    MAX_QUERY,
    Candidates,
    IndexEntry,
    Match,
    fold,
    is_not_english,
    tokenize,
)

LIST_ALL = 60
"""All resources of a kind can be chosen in a library of at most so many of them."""

LISTED = 12
"""In a larger library so many can be chosen of the nearest, of the most proven, and of those with a
word of the task.
"""

BY_ITSELF = 6
"""Choices by name, description and triggers alone: a long body can hide them."""

MOST = 3 * LISTED
"""Choices of a larger library, matches included."""

# The last letter of Latin Extended-B: letters with marks of European languages count as Latin.
_LATIN_ENDS = "\u024f"


def order_few(every: Sequence[IndexEntry], likely: Iterable[int]) -> list[IndexEntry]:
    """Return all resources of a small library, the likely ones first.

    likely: their ids, the most likely first.
    """
    places = {id_: at for at, id_ in enumerate(likely)}
    # The sort is stable: those that nothing ranks keep the order of the index at the end.
    return sorted(every, key=lambda entry: places.get(entry.id, LIST_ALL))


def likely_ids(
    found: Candidates, merged: Sequence[Match], near: Sequence[int], proven: Sequence[int]
) -> list[int]:
    """Return the ids of what may be chosen in a larger library, the likely ones first.

    near, proven: ids of what an embedder finds nearest, and of what has the most successes, of any
    kind.
    """
    matched = {match.entry.id for match in merged}
    by_itself = [id_ for id_ in found.own if id_ not in matched][:BY_ITSELF]
    # What the score of the whole text hides comes first; the rest of that ranking fills up.
    ids = dict.fromkeys([*by_itself, *near[:LISTED], *proven, *found.ranking.weighed])
    # The matches are removed afterwards, so as many more ids are read.
    return list(ids)[: len(merged) + MOST]


def further_choices(
    entries: Sequence[IndexEntry], merged: Sequence[Match], most: int
) -> tuple[IndexEntry, ...]:
    """Return the entries that are no matches, at most `most` of them."""
    matched = {match.entry.id for match in merged}
    others = [entry for entry in entries if entry.id not in matched]
    return tuple(others[:most])


def is_foreign(task: str) -> bool:
    """Return whether a task is in another language than English, or in another script than that of
    Latin.

    Most libraries are in English, and few words of such a task stand in them.
    """
    text = fold(task[:MAX_QUERY])
    letters = [char for char in text if char.isalpha()]
    if 2 * sum(char > _LATIN_ENDS for char in letters) > len(letters):
        return True
    return is_not_english(text, tokenize(text), FUNCTION_WORDS)
