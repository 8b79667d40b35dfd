"""Answering: what a message of a client asks, and what it is told."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from evolvable_store.search.vector_store import TextRole
from evolvable_tools.embedding.arrays import Floats
from evolvable_tools.embedding.keeper import Keeper, Service
from evolvable_tools.embedding.matrix import Product
from evolvable_tools.embedding.similar import Described, Similar
from evolvable_tools.embedding.wire import Garbled

_REMEMBERED = 256  # tasks whose vectors are kept
_MOST_NEAREST = 1_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task for a model that serves: its vector, and what can be computed before anything is asked about it."""

    task: str
    service: Service
    vector: Floats
    product: Product


class Desk:
    """Answers the clients of one library from its keeper. Safe to share between threads."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._lock = threading.Lock()
        self._tasks: OrderedDict[tuple[str, str], Floats] = OrderedDict()

    def prepare(self, task: str) -> Prepared:
        """Embeds a task with the model that serves."""
        service = self._keeper.serving
        vector = self._vector(service, task)
        return Prepared(task, service, vector, service.matrix.product(vector))

    def answer(self, message: Mapping[str, Any], prepared: Prepared) -> dict[str, Any]:
        """Returns the answer to a question about a task, ready to send. Raises Garbled."""
        if prepared.service is not self._keeper.serving:  # another model has come into service meanwhile
            prepared = self.prepare(prepared.task)
        kind, scopes = message.get("kind"), message.get("scopes")
        if not isinstance(kind, str) or not (scopes is None or _all(scopes, str)):
            raise Garbled("kind and scopes are missing")
        if message.get("op") == "described":
            return asdict(self._described(prepared, kind, scopes))
        ids, limit = message.get("ids"), message.get("limit")
        if not isinstance(ids, list) or not _all(ids, int) or type(limit) is not int:
            raise Garbled("ids and limit are missing")
        found = asdict(self._similar(prepared, ids, kind, scopes, max(0, min(limit, _MOST_NEAREST))))
        return found | {"cosines": {id_: round(cosine, 4) for id_, cosine in found["cosines"].items()}}

    def _similar(self, asked: Prepared, ids: list[int], kind: str, scopes: list[str] | None, limit: int) -> Similar:
        service = asked.service
        done, total = service.matrix.counted()
        if not total:
            return Similar(said="the library is empty")
        if not done:
            return Similar(said=f"embedder is warming up: 0 of {total:,} resources embedded")
        found = service.matrix.similar(asked.vector, ids, kind, scopes, limit, asked.product)
        return replace(found, said=self._said(service, done, total), available=True)

    def _said(self, service: Service, done: int, total: int) -> str:
        said = service.model.name
        if done < total:
            said += f", {done:,} of {total:,} resources embedded"
        return said + (f"; {self._keeper.coming.model.name} is being prepared" if self._keeper.coming else "")

    def _described(self, asked: Prepared, kind: str, scopes: list[str] | None) -> Described:
        self._keeper.wants_descriptions = True
        service = asked.service
        waiting = service.waiting.get(TextRole.DESCRIPTION)
        if waiting is None or waiting:
            return Described(said="the descriptions are being embedded")
        best = service.matrix.described(asked.vector, kind, scopes)
        return Described(best, service.model.name, available=True)

    def _vector(self, service: Service, task: str) -> Floats:
        key = (service.model.name, task)
        with self._lock:
            if key in self._tasks:
                self._tasks.move_to_end(key)
                return self._tasks[key]
        vector: Floats = service.embedder.encode([task])[0]
        with self._lock:
            self._tasks[key] = vector
            if len(self._tasks) > _REMEMBERED:
                self._tasks.popitem(last=False)
        return vector


def _all(values: object, of: type) -> bool:
    return isinstance(values, list) and all(type(value) is of for value in values)
