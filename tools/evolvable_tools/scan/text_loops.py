"""The loops of the scan over texts: those of `search/_scoring.c`, or the same in Python where no
compiler was at hand.

Both give the same results; those in C are faster.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

PLACES = 1 << 17
"""Weights of the classifier."""

_KnownWord = Sequence[Any]


class PartFinderInPython:
    """A set of texts that are looked for, all of them at once."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        """Raise ValueError for an empty part, and for more than 65,535 parts."""
        if len(parts) >= 1 << 16:
            raise ValueError("at most 65535 parts are looked for")
        if not all(parts):
            raise ValueError("a part is not empty")
        self._parts = parts

    def find(self, text: str) -> list[str]:
        """Return the parts that occur in a text, in any order.

        The text has no halves of surrogate pairs.
        """
        return [part for part in self._parts if part in text]


def places_of(
    words: Sequence[_KnownWord], others: tuple[int, ...], edge: int, pair: int, gap: int
) -> set[int]:
    """Return the places of a sentence's features; for the arguments see `sum_places_in_python`."""
    hashes = [edge, *[word[0] for word in words], edge]
    places = set(others).union(*[word[1] for word in words])
    places.update([first * pair + other for first, other in itertools.pairwise(hashes)])
    # The first word has the edge before it and before that.
    one_apart = zip([edge, *hashes], hashes[1:-1], strict=False)
    places.update([first * gap + other for first, other in one_apart])
    return {place & PLACES - 1 for place in places}


def sum_places_in_python(
    words: Sequence[_KnownWord],
    others: tuple[int, ...],
    weights: bytes | memoryview,
    edge: int,
    pair: int,
    gap: int,
) -> int:
    """Return the sum of the weights at all places of a sentence, each counted once.

    words: of each word its hash, which has 32 bits, and its own places; what follows is not read.
    others: more places. weights: PLACES signed bytes. edge: the hash of what is before and after
    all words. pair, gap: the factors of a hash whose word is followed by another, and by another
    after one more. A place counts by its lowest 17 bits. Raises ValueError for another number of
    weights.
    """
    if len(weights) != PLACES:
        raise ValueError(f"there are not {PLACES} weights")
    return sum(
        map(memoryview(weights).cast("b").__getitem__, places_of(words, others, edge, pair, gap))
    )


if TYPE_CHECKING:
    PartFinder, sum_places = PartFinderInPython, sum_places_in_python
    WordReader: Any = None
else:
    try:
        from evolvable_store.search._scoring import PartFinder, WordReader, sum_places
    except ImportError:  # no compiler, or it was compiled for an earlier version
        PartFinder, sum_places, WordReader = PartFinderInPython, sum_places_in_python, None
"""`WordReader(know, most)` reads a sentence in lower case as words with their features, and caches
words.

None without a compiler. know(word) returns the features of a word; it is called once for each word
while at most `most` words are cached. `read(text)` returns the features of the words that the
lexicon's pattern `token` finds, in order. It returns None for a text with a sign that may be a
digit of another script, which only that pattern knows.
"""

__all__ = [
    "PartFinder",
    "PartFinderInPython",
    "WordReader",
    "places_of",
    "sum_places",
    "sum_places_in_python",
]
