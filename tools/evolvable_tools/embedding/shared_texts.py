"""The vectors that all servers of a library share: what comes from there is checked, what fails is
only reported.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Self

import numpy as np

from evolvable_store import Store
from evolvable_store.errors import LibraryError
from evolvable_store.search import VectorModel
from evolvable_store.storage import SharedVector, SharedVectors
from evolvable_tools.embedding.token_vectors import Floats, unpack_vector

# How far the square of a vector's length may be from 1: float16 has three digits.
_LENGTH_TOLERANCE = 0.02


class SharedTexts:
    """The vectors that all servers of a library share, where its database has some.

    They only save time: what the database refuses or does not answer is computed here.
    """

    def __init__(self, shared: SharedVectors | None, say: Callable[[str], None]) -> None:
        self._shared, self._say = shared, say

    @classmethod
    def open(cls, store: Store, say: Callable[[str], None]) -> Self:
        """Return the shared vectors of a library."""
        with _report(say):
            return cls(store.backend.shared_vectors(), say)
        # Reached when the library refused: `_report` suppressed the error.
        return cls(None, say)

    def find(
        self, model: VectorModel, dimension: int, hashes: Collection[bytes]
    ) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        """Return the stored vectors of those of these texts that have one, and those of their
        tokens.

        A member of the project can write any row, so one that is no vector of length 1 of this
        model is left out.
        """
        vectors, tokens = dict[bytes, bytes](), dict[bytes, bytes]()
        if self._shared is not None:
            with _report(self._say):
                for digest, shared in self._shared.find(model.name, hashes).items():
                    row = np.array(shared.numbers, np.float32)
                    token_bytes = shared.tokens or b""
                    if _is_unit(row, dimension) and len(token_bytes) % dimension == 0:
                        vectors[digest] = row.astype("<f2").tobytes()
                        tokens |= {digest: token_bytes} if token_bytes else {}
        return vectors, tokens

    def add(
        self, model: VectorModel, vectors: Mapping[bytes, bytes], tokens: Mapping[bytes, bytes]
    ) -> None:
        """Give the other servers vectors that were computed here."""
        if self._shared is not None:
            with _report(self._say):
                rows = {
                    digest: tuple(map(float, unpack_vector(data)))
                    for digest, data in vectors.items()
                }
                self._shared.add(
                    model.name,
                    {digest: SharedVector(row, tokens.get(digest)) for digest, row in rows.items()},
                )

    def remove(self, hashes: Collection[bytes]) -> None:
        """Delete the vectors of texts that no resource has any more."""
        if self._shared is not None:
            with _report(self._say):
                self._shared.remove(hashes)

    def remove_others(self, hashes: Collection[bytes]) -> None:
        """Delete the vectors of all texts but these."""
        if self._shared is not None:
            with _report(self._say):
                self._shared.remove_others(hashes)


def _is_unit(row: Floats, dimension: int) -> bool:
    """Return whether a row is a vector of length 1 with so many numbers."""
    return len(row) == dimension and abs(float(row @ row) - 1) < _LENGTH_TOLERANCE


@contextlib.contextmanager
def _report(say: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except LibraryError as error:
        say(f"the vectors in the library cannot be used now: {error.text}")
