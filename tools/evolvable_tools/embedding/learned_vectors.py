"""The vectors of learned tasks: how near a task is to those that a resource was used for with
success.
"""

import threading
import time
from collections.abc import Sequence

import numpy as np

from evolvable_store import Store
from evolvable_store.search import VectorModel, Vectors, digest_text, tasks_in_force
from evolvable_tools.embedding.embedder import Embedder
from evolvable_tools.embedding.token_vectors import Floats

LOOK_SECONDS = 1.0
"""Seconds between two looks for learned tasks that changed without a change of the library."""

# Texts embedded in one step, as many as the indexer takes.
_BATCH = 32


class LearnedVectors:
    """The learned tasks that count, with their vectors of one model.

    `step` belongs to one thread; `nearness` may be called by all.
    """

    def __init__(
        self, store: Store, vectors: Vectors, embedder: Embedder, model: VectorModel
    ) -> None:
        self._store, self._vectors, self._embedder, self._model = store, vectors, embedder, model
        self._vectors_by_text = vectors.learned_vectors(model)
        self._tasks: list[tuple[int, bytes, float]] = []
        self._missing: dict[bytes, str] = {}
        # The sequence of the library, that of learned tasks, and the month.
        self._state: tuple[int, int, str] | None = None
        self._looked = 0.0
        # Guards `_owners` and `_rows`, which belong together.
        self._lock = threading.Lock()
        self._owners: list[int] = []
        self._rows: Floats = np.zeros((0, embedder.dimension), np.float32)

    def nearness(self, task: Floats) -> dict[int, float]:
        """Return for each resource the cosine of its nearest learned task, times how much that
        counts; 0 is left out.

        task: a vector of length 1.
        """
        with self._lock:
            owners, products = self._owners, self._rows @ task
        nearest: dict[int, float] = {}
        for at in np.flatnonzero(products > 0):
            owner = owners[at]
            nearest[owner] = max(float(products[at]), nearest.get(owner, 0.0))
        return nearest

    def step(self) -> bool:
        """Read the tasks again where they may have changed, or embed a few; return whether there
        was any work.

        Raises DamagedFile, LibraryError.
        """
        if self._missing:
            batch = list(self._missing)[:_BATCH]
            rows = self._embedder.encode([self._missing[digest] for digest in batch])
            for digest, row in zip(batch, rows.astype("<f2"), strict=True):
                self._vectors_by_text[digest] = row.tobytes()
                del self._missing[digest]
            return self._serve()
        state = self._find_changed_state()
        if state is None:
            return False
        in_force = tasks_in_force(self._store, self._list_living())
        texts = {digest_text(task).hash: task for tasks in in_force.values() for task, _ in tasks}
        self._tasks = [
            (resource, digest_text(task).hash, share)
            for resource, tasks in in_force.items()
            for task, share in tasks
        ]
        self._missing = {
            digest: text for digest, text in texts.items() if digest not in self._vectors_by_text
        }
        self._state = state  # not before they were read: a library that is busy now is read again
        return self._serve()

    def _find_changed_state(self) -> tuple[int, int, str] | None:
        """Return the state that learned tasks depend on, None if it is the one that they were read
        from.
        """
        now, sequence = time.monotonic(), self._store.sequence()
        is_unchanged = self._state is not None and self._state[0] == sequence
        if is_unchanged and now < self._looked + LOOK_SECONDS:
            return None
        # Tasks lose weight with age, so they are read again each month.
        state = sequence, self._store.backend.learned.sequence(), self._store.now()[:7]
        self._looked = now
        return state if state != self._state else None

    def _list_living(self) -> Sequence[int]:
        resources = self._store.backend.learned.resources()
        heads = self._store.backend.heads_by_id(resources) if resources else {}
        return [resource for resource, head in heads.items() if head.version is not None]

    def _serve(self) -> bool:
        """Put in service what has a vector.

        When all have one, keep their vectors in the file and no others.
        """
        ready = [
            (resource, digest, share)
            for resource, digest, share in self._tasks
            if digest in self._vectors_by_text
        ]
        rows = [
            np.frombuffer(self._vectors_by_text[digest], "<f2").astype(np.float32) * share
            for _, digest, share in ready
        ]
        with self._lock:
            self._owners = [resource for resource, _, _ in ready]
            self._rows = (
                np.stack(rows) if rows else np.zeros((0, self._embedder.dimension), np.float32)
            )
        if not self._missing:
            self._vectors_by_text = {
                digest: self._vectors_by_text[digest] for _, digest, _ in ready
            }
            self._vectors.replace_learned(self._model, self._vectors_by_text)
        return bool(self._missing)
