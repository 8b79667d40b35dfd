"""The loops of _scoring.c over postings, for searching and indexing, where that is not compiled.

Both give the same results to the last bit; those in C are faster.
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
    """The sums of a query's terms for each place of a row: a score, and a share of the weight.

    Scores are added as doubles in the order of the terms, so that both implementations round alike.
    """

    def __init__(self, length: int) -> None:
        """Raise ValueError unless it has 1 to 65,536 places."""
        if not 1 <= length <= 1 << 16:
            raise ValueError("a row has 1 to 65536 places")
        self._scores, self._shares, self._latest = [0.0] * length, [0.0] * length, [0] * length

    def add(self, places: _Bytes, weights: _Bytes, factor: float, term: int, share: float) -> None:
        """Add `factor` times its weight to the score of each place, and the share once for a term.

        places: two bytes each, in the machine's byte order. weights: a byte each. term: not 0;
        postings of one term in several fields follow each other. Raises ValueError, and adds
        nothing, when there is not one weight for each place, or a place is beyond the row.
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
        """Finish the sums: divide shares by `all_`, and let them scale a `part` of each score."""
        rest = 1 - part
        for at, (score, share) in enumerate(zip(self._scores, self._shares, strict=True)):
            if score or share:
                # Rounding can bring the sum just over 1.
                self._shares[at] = covered = min(share / all_, 1.0)
                self._scores[at] = score * (rest + part * covered)

    def best(self, limit: int) -> list[tuple[int, float, float]]:
        """Return the places with the highest scores above 0, each with its sums.

        The best come first, of equals the lower place.
        """
        scored = ((-score, at) for at, score in enumerate(self._scores) if score > 0)
        return [self.at(at) for _, at in heapq.nsmallest(limit, scored)]

    def at(self, place: int) -> tuple[int, float, float]:
        """Return a place with its score and its share. Raises IndexError when there is none."""
        if not 0 <= place < len(self._scores):
            raise IndexError("there is no such place in the row")
        return place, self._scores[place], self._shares[place]


def weights_at(places: _Bytes, weights: _Bytes, wanted_places: _Bytes) -> bytes:
    """Return the weight of each wanted place, 0 where it has none.

    places: as for `Sums.add`, in order. wanted_places: in any order. Raises ValueError when there
    is not one weight for each place.
    """
    if len(wanted_places) % 2:
        raise ValueError("a place takes two bytes")
    numbers = _numbers(places, weights)
    wanted_weights = bytearray()
    for at in array("H", bytes(wanted_places)):
        # Few places are wanted, so a search in the sorted array beats a pass over it.
        index = bisect_left(numbers, at)
        has_place = index < len(numbers) and numbers[index] == at
        wanted_weights.append(weights[index] if has_place else 0)
    return bytes(wanted_weights)


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
    """Return the rows of these documents' postings in the order of the table, and rare entries.

    documents: by rising number, each with its terms. most: as for `split_rare`; 0 for rows alone.
    """
    by_block: dict[tuple[int, int], _Rows] = {}
    for id_, fields in documents:
        block, at = divmod(id_, block_size)
        for number, lines, weights in filter(itemgetter(2), fields):
            rows = by_block.setdefault((number, block), defaultdict(lambda: array("I")))
            arrays = map(rows.__getitem__, lines.split("\n"))
            entries = map((at << 8).__or__, weights)
            # The loop runs in C: `deque` only consumes the map, which appends.
            deque(map(array.append, arrays, entries), maxlen=0)
    posting_rows: list[PostingRow] = []
    for (number, block), rows in sorted(by_block.items(), key=itemgetter(0)):
        for term, entries_of_term in rows.items():
            places = array("H", [entry >> 8 for entry in entries_of_term]).tobytes()
            term_weights = bytes([entry & 255 for entry in entries_of_term])
            posting_rows.append((term, number, block, places, term_weights))
    posting_rows.sort(key=itemgetter(0))  # stable: the rows of one term keep their order
    return split_rare(posting_rows, most, buckets)
