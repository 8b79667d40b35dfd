"""The filter of prefixes: with which terms a name or a trigger may begin.

Nearly every two neighbouring words of a task begin none; a filter in memory saves the search of a table in the index.
"""

from collections.abc import Iterable, Sequence
from typing import Self

from evolvable_store.storage.connection import Connection

_MARK = "\t"
# A name of one word is marked: most words that are one only stand in a task, and nobody asks for those.
_MARKED = f"iif(p.size = 1 AND p.source = 'name', '{_MARK}' || p.head, p.head)"
_BITS = 64  # for each; one in a hundred of what begins nothing is taken for one that does
_LEAST = 1 << 13


class PrefixFilter:
    """A Bloom filter with one hash (B. H. Bloom, 1970): what it does not know is not there.

    What was there once is not forgotten. Safe to read while another thread adds to it.
    """

    def __init__(self) -> None:
        self._bits = bytearray()
        self._count = self._last = 0

    def extended_to(self, db: Connection, last: int) -> Self:
        """Return what the connection sees, which is this one with more in it, or another. last: newest document."""
        if last > self._last:
            query = f"SELECT {_MARKED} FROM entry e JOIN phrase p ON p.resource = e.id WHERE e.document > ?"
            new = [head for (head,) in db.execute(query, (self._last,)).fetchall()]
            if (self._count + len(new)) * _BITS > 8 * len(self._bits):
                return self._made_anew(db, last)
            self._add(new, last)
        return self

    def _made_anew(self, db: Connection, last: int) -> Self:
        every = [head for (head,) in db.execute(f"SELECT {_MARKED} FROM phrase p").fetchall()]
        larger = type(self)()
        # Twice the room that is needed, so that a library which grows is seldom read whole.
        larger._bits = bytearray(max(_LEAST, 1 << (2 * len(every) * _BITS - 1).bit_length()) // 8)
        larger._add(every, last)
        return larger

    def _add(self, some: Sequence[str], last: int) -> None:
        bits, mask = self._bits, 8 * len(self._bits) - 1
        for one in some:
            at = hash(one) & mask
            bits[at >> 3] |= 1 << (at & 7)
        self._count, self._last = self._count + len(some), last

    def among(self, some: Iterable[str]) -> list[str]:
        """Return those with which a phrase may begin: pairs of terms with a space between, and terms with which a
        longer name may, or a trigger.
        """
        bits, mask = self._bits, 8 * len(self._bits) - 1
        return [one for one in some if bits[(at := hash(one) & mask) >> 3] >> (at & 7) & 1] if bits else []

    def filter_names(self, terms: Iterable[str]) -> list[str]:
        """Return those of the terms that may be a name by themselves."""
        return [term for term in terms if self.among((_MARK + term,))]
