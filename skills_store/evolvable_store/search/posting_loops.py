"""The loops of a search over postings, and of indexing, for where no compiler was at hand: those of
_scoring.c.

Both give the same to the last bit; those in C are faster.
"""

import heapq
from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable
from operator import itemgetter

from evolvable_store.search.rare_postings import PostingRow, split_rare

_Bytes = bytes | bytearray | memoryview


class Sums:
    """The sums of a query's terms for each place of a row: a score, and a share of the query's
    weight.

    Scores are added up in the order in which the terms are given, as doubles.
    """

    def __init__(self, length: int) -> None:
        """Raise ValueError unless it has 1 to 65,536 places."""
        if not 1 <= length <= 1 << 16:
            raise ValueError("a row has 1 to 65536 places")
        self._scores, self._shares, self._latest = [0.0] * length, [0.0] * length, [0] * length

    def add(self, places: _Bytes, weights: _Bytes, factor: float, term: int, share: float) -> None:
        """Add `factor` times its weight to the score of each place, and the share once for each
        term.

        places: two bytes each, in the machine's order. weights: a byte each. term: not 0; postings
        of one term in several fields follow each other. Raises ValueError, and adds nothing, when
        they do not belong together or one is beyond the row.
        """
        numbers = _numbers(places, weights)
        # Checked before anything is added, so that an error leaves the sums as they were.
        if numbers and max(numbers) >= len(self._scores):
            raise ValueError("there is a place beyond the row")
        scores, shares, latest = self._scores, self._shares, self._latest
        for at, weight in zip(numbers, weights, strict=True):
            scores[at] += weight * factor
            # A term counts once for the coverage, in however many fields it stands.
            if latest[at] != term:
                latest[at] = term
                shares[at] += share

    def cover(self, all_: float, part: float) -> None:
        """End the adding: shares become parts of `all_`, at most 1, and `part` of each score grows
        with them.
        """
        rest = 1 - part
        for at, (score, share) in enumerate(zip(self._scores, self._shares, strict=True)):
            if score or share:
                # Rounding can bring the sum just over 1.
                self._shares[at] = covered = min(share / all_, 1.0)
                self._scores[at] = score * (rest + part * covered)

    def best(self, limit: int) -> list[tuple[int, float, float]]:
        """Return the places with the highest scores above 0, each with its sums, best first, of
        equals the lower.
        """
        scored = ((-score, at) for at, score in enumerate(self._scores) if score > 0)
        return [self.at(at) for _, at in heapq.nsmallest(limit, scored)]

    def at(self, place: int) -> tuple[int, float, float]:
        """Return a place with its score and its share. Raises IndexError when there is none."""
        if not 0 <= place < len(self._scores):
            raise IndexError("there is no such place in the row")
        return place, self._scores[place], self._shares[place]


def weights_at(places: _Bytes, weights: _Bytes, wanted_places: _Bytes) -> bytes:
    """Return the weight of each of the places that are asked for, 0 where it has none.

    places: as for `Sums.add`, in order. wanted_places: in any order.
    Raises ValueError when places and weights do not belong together.
    """
    if len(wanted_places) % 2:
        raise ValueError("a place takes two bytes")
    numbers = _numbers(places, weights)
    found = bytearray()
    for at in array("H", bytes(wanted_places)):
        # Few places are asked for, so a search in the sorted array beats a pass over it.
        where = bisect_left(numbers, at)
        found.append(weights[where] if where < len(numbers) and numbers[where] == at else 0)
    return bytes(found)


def _numbers(places: _Bytes, weights: _Bytes) -> "array[int]":
    if len(places) != 2 * len(weights):
        raise ValueError("there is not one weight for each place")
    numbers = array("H")
    numbers.frombytes(places)
    return numbers


JoinedTerms = list[tuple[int, str, bytes]]
"""Of one document, by field: its number, its terms as lines of one text, their weights."""

# By term: places of documents in one block, each with its weight in 8 bits.
_Rows = defaultdict[str, "array[int]"]


def gather_postings(
    documents: Iterable[tuple[int, JoinedTerms]], block_size: int, most: int, buckets: int
) -> tuple[list[PostingRow], list[tuple[int, bytes]]]:
    """Return the rows of the postings of these documents, in the order of the table, and the
    entries of rare terms.

    documents: by rising number, each with its terms. most: as for `split_rare`; 0 for rows alone.
    """
    new: dict[tuple[int, int], _Rows] = {}
    for id_, fields in documents:
        block, at = divmod(id_, block_size)
        for number, lines, weights in filter(itemgetter(2), fields):
            rows = new.setdefault((number, block), defaultdict(lambda: array("I")))
            # A loop that Python does not see, four times as fast as one that it does.
            deque(
                map(
                    array.append,
                    map(rows.__getitem__, lines.split("\n")),
                    map((at << 8).__or__, weights),
                ),
                maxlen=0,
            )
    found: list[PostingRow] = []
    for (number, block), rows in sorted(new.items(), key=itemgetter(0)):
        for term, noted in rows.items():
            places = array("H", [entry >> 8 for entry in noted]).tobytes()
            found.append((term, number, block, places, bytes([entry & 255 for entry in noted])))
    found.sort(key=itemgetter(0))  # which leaves those of one term in their order
    return split_rare(found, most, buckets)
