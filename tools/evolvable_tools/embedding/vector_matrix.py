"""The vectors of a library in memory, by role, with the places of their resources, and the search
in them.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evolvable_store.search import TextRole, VectorResource
from evolvable_tools.embedding.embedder import SimilarResources
from evolvable_tools.embedding.token_vectors import Floats

# Combinations of kind and scopes that are cached. A client may ask for any scopes, so the memory
# for them is bounded.
_VIEWS = 32


class VectorTable:
    """One vector for each resource, in the order they came."""

    def __init__(self, dimension: int) -> None:
        self._rows: Floats = np.zeros((64, dimension), np.float32)
        self._used = 0
        self.filled: NDArray[np.bool_] = np.zeros(64, np.bool_)

    @property
    def rows(self) -> Floats:
        """The vectors, as far as there are any: there is room for half as many more."""
        return self._rows[: self._used]

    def put(self, row: int, vector: Floats) -> None:
        """Put a vector in a row; grow the matrix where it is full."""
        if row >= len(self._rows):
            # Half as many more: adding rows stays linear in all, and a third of the room is unused
            # at most.
            size = max(row + 1, len(self._rows) + len(self._rows) // 2)
            rows: Floats = np.zeros((size, self._rows.shape[1]), np.float32)
            filled: NDArray[np.bool_] = np.zeros(size, np.bool_)
            rows[: self._used], filled[: self._used] = self.rows, self.filled[: self._used]
            self._rows, self.filled = rows, filled
        self._rows[row], self.filled[row] = vector, True
        self._used = max(self._used, row + 1)

    def clear(self, row: int) -> None:
        """Remove the vector of a row."""
        if row < self._used:
            self._rows[row], self.filled[row] = 0, False

    def among(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each of these rows whether it has a vector."""
        inside = rows < len(self.filled)
        inside[inside] = self.filled[rows[inside]]
        return inside


@dataclass(frozen=True, slots=True)
class Product:
    """A task's cosines to all rows of names and descriptions, as the matrix was then."""

    generation: int
    cosines: Floats


class VectorMatrix:
    """All resources of a library with their vectors of one model. Safe to share between threads.

    A vector of 384 numbers takes 1.5 KB: kept as float32, because turning float16 into it costs
    more than the product.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        # Guards all below: the indexer's thread writes while those of the clients read.
        self._lock = threading.Lock()
        self._places: dict[int, VectorResource] = {}
        self._row_of: dict[int, int] = {}
        self._free: list[int] = []
        self._tables = {
            TextRole.WHOLE: VectorTable(dimension),
            TextRole.DESCRIPTION: VectorTable(dimension),
        }
        self._views: dict[object, tuple[list[int], NDArray[np.int64]]] = {}
        self._generation = 0

    def place(self, place: VectorResource) -> None:
        """Make a resource known, without any vector."""
        with self._lock:
            self._drop(place.id)
            self._generation += 1
            self._places[place.id] = place
            # Rows of removed resources are used again, so that the matrix does not grow with
            # changes.
            self._row_of[place.id] = self._free.pop() if self._free else len(self._row_of)
            self._views.clear()

    def drop(self, resource: int) -> None:
        """Forget a resource."""
        with self._lock:
            self._drop(resource)
            self._generation += 1
            self._views.clear()

    def _drop(self, resource: int) -> None:
        row = self._row_of.pop(resource, None)
        if row is not None:
            self._free.append(row)
            for table in self._tables.values():
                table.clear(row)
        self._places.pop(resource, None)

    def put(self, role: TextRole, resource: int, vector: Floats) -> None:
        """Set the vector of one role of a known resource."""
        with self._lock:
            if resource in self._row_of:
                self._generation += 1
                self._tables[role].put(self._row_of[resource], vector)

    def count_vectors(self, role: TextRole = TextRole.WHOLE) -> tuple[int, int]:
        """Return how many resources have their vector of this role, and how many there are."""
        with self._lock:
            return int(self._tables[role].filled.sum()), len(self._row_of)

    def product(self, task: Floats) -> Product:
        """Return the part of `similar` that does not depend on what is asked about the task."""
        with self._lock:
            return Product(self._generation, self._tables[TextRole.WHOLE].rows @ task)

    def similar(
        self,
        task: Floats,
        ids: Sequence[int],
        kind: str,
        scopes: Sequence[str] | None,
        limit: int,
        ready: Product,
    ) -> SimilarResources:
        """Return the cosines to the ids asked and to the nearest there are.

        ready: the product with this task; computed again when the matrix has changed since.
        """
        with self._lock:
            whole = self._tables[TextRole.WHOLE]
            # The product was made before the question came, and the indexer may have changed the
            # matrix since.
            every = ready.cosines if ready.generation == self._generation else whole.rows @ task
            visible_ids, cosines = self._select_cosines(whole, every, kind, scopes)
            count = min(limit, len(visible_ids))
            # A partition and no sort: only the `count` best are wanted.
            best = np.argpartition(-cosines, count - 1)[:count] if count else np.zeros(0, np.int64)
            near = {visible_ids[at]: float(cosines[at]) for at in best}
            known_ids = [id_ for id_ in ids if id_ in self._row_of]
            rows = np.array([self._row_of[id_] for id_ in known_ids], np.int64)
            asked_cosines = {
                id_: float(every[self._row_of[id_]])
                for id_ in _select(known_ids, whole.among(rows))
            }
        nearest = sorted(near, key=lambda id_: (-near[id_], id_))
        return SimilarResources(near | asked_cosines, tuple(nearest))

    def nearest_description(
        self, task: Floats, kind: str, scopes: Sequence[str] | None
    ) -> tuple[int, float] | None:
        """Return the resource whose description is nearest, the first by id of equals; None when
        none is above 0.
        """
        with self._lock:
            table = self._tables[TextRole.DESCRIPTION]
            every = table.rows @ task
            visible_ids, cosines = self._select_cosines(table, every, kind, scopes)
        if not len(cosines) or cosines.max() <= 0:
            return None
        at = int(cosines.argmax())
        return visible_ids[at], float(cosines[at])

    def _select_cosines(
        self, table: VectorTable, every: Floats, kind: str, scopes: Sequence[str] | None
    ) -> tuple[Sequence[int], Floats]:
        """Return the visible ids that have a vector in the table, in order, with their cosines.

        every: the cosines of all rows of the table.
        """
        ids, rows = self._find_visible(kind, scopes)
        has = table.among(rows)
        if has.all():
            return ids, every[rows]
        return _select(ids, has), every[rows[has]]

    def _find_visible(
        self, kind: str, scopes: Sequence[str] | None
    ) -> tuple[list[int], NDArray[np.int64]]:
        """Return the ids of one kind in these scopes, and their rows.

        A resource in a nearer scope hides those of its name in scopes further away.
        """
        key = (kind, None if scopes is None else tuple(scopes))
        if key not in self._views:
            if len(self._views) >= _VIEWS:
                self._views.clear()
            ids = sorted(_list_visible(self._places.values(), kind, scopes))
            rows = np.array([self._row_of[id_] for id_ in ids], np.int64)
            self._views[key] = (ids, rows)
        return self._views[key]


def _select(ids: Sequence[int], chosen: NDArray[np.bool_]) -> list[int]:
    return [id_ for id_, is_chosen in zip(ids, chosen, strict=True) if is_chosen]


def _list_visible(
    places: Iterable[VectorResource], kind: str, scopes: Sequence[str] | None
) -> list[int]:
    if scopes is None:
        return [place.id for place in places if place.kind == kind]
    # Reversed, so that a scope that is listed twice counts at its nearer place.
    distance = {scope: at for at, scope in reversed(list(enumerate(scopes)))}
    nearest: dict[str, VectorResource] = {}
    for place in places:
        if place.kind == kind and place.scope in distance:
            other = nearest.get(place.name)
            if other is None or distance[place.scope] < distance[other.scope]:
                nearest[place.name] = place
    return [place.id for place in nearest.values()]
