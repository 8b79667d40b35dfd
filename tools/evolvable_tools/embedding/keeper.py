"""Keeping the vectors in step with the library, a little at a time.

While a changed model is being prepared the one before answers, where it can still be opened. The vectors of both are
kept, so that going back needs only what changed since; those of all other models are deleted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest

import numpy as np

from evolvable_store.errors import EvolvableError
from evolvable_store.search.vector_store import (
    WITH_DESCRIPTIONS,
    TextDigest,
    TextRole,
    VectorModel,
    VectorResource,
    Vectors,
    digest_text,
)
from evolvable_store.store import Store
from evolvable_tools.embedding.arrays import Floats
from evolvable_tools.embedding.embedder import Embedder, open_embedder
from evolvable_tools.embedding.matrix import Matrix
from evolvable_tools.embedding.texts import said_by

BATCH, BATCH_CHARACTERS = 32, 8_000
"""Texts embedded at once in the background, and about how long they are together: half a second's work, after which
changes are looked at."""

_CHANGES = 100  # taken in at once

_NEWEST, _IN_SERVICE, _BEFORE = "newest", "in service", "in service before"  # states: names of models


@dataclass(frozen=True, slots=True)
class Service:
    """A model that can answer: its embedder, and its vectors in memory.

    waiting: by role, the resources whose text lacks a vector, with the characters of the text.
    """

    embedder: Embedder
    model: VectorModel
    matrix: Matrix
    waiting: dict[TextRole, dict[int, int]]

    @property
    def is_complete(self) -> bool:
        """Whether every text that is wanted has its vector."""
        return not any(self.waiting.values())

    def batch(self) -> tuple[TextRole, list[int]] | None:
        """Returns a role and resources that wait for it, enough for a batch; None when nothing waits.

        The shortest of all: texts of about one length need the least padding.
        """
        for role, sizes in self.waiting.items():
            if sizes:
                shortest = nsmallest(BATCH, sizes, key=sizes.__getitem__)
                return role, shortest[: max(1, BATCH_CHARACTERS // sizes[shortest[-1]])]
        return None


class Keeper:
    """The one writer of a library's vectors. `step` belongs to one thread; `serving` may be read by all."""

    def __init__(self, store: Store, vectors: Vectors, embedder: Embedder, spec: str, say: Callable[[str], None]):
        """Loads what is kept. Raises Damaged, LibraryError."""
        self._store, self._vectors, self._say = store, vectors, say
        self._served = [vectors.state(_IN_SERVICE), vectors.state(_BEFORE)]
        self._check_origin()
        self._describing = bool(vectors.state(WITH_DESCRIPTIONS))
        self._swept = False
        self.wants_descriptions = self._describing
        """Set to True by whoever asks for descriptions; they are embedded from then on."""
        newest = self._service(embedder, vectors.model(embedder.model, spec))
        before = None if newest.is_complete and newest.matrix.counted()[1] else self._before(newest)
        self.serving = before or newest
        """What answers now."""
        self.coming: Service | None = newest if before else None
        """The changed model, while its vectors are not complete."""
        vectors.note(_NEWEST, newest.model.name)
        self._note_service()

    def step(self) -> bool:
        """Does a little of what there is to do; returns whether there was anything. Raises Damaged, LibraryError."""
        if self.wants_descriptions and not self._describing:
            self._describe()
        if self._take_in():
            return True
        for service in self._services():
            batch = service.batch()
            if batch:
                role, resources = batch
                self._embed(service, role, resources)
                for resource in resources:
                    del service.waiting[role][resource]
                return True
        self._settle()
        return False

    def _services(self) -> list[Service]:
        return [self.serving, *([self.coming] if self.coming else [])]

    # Starting

    def _check_origin(self) -> None:
        """Forgets whose texts are whose when that was noted of another history; the vectors stay, by their texts."""
        applied = int(self._vectors.state("applied") or 0)
        if applied and self._vectors.state("mark") != self._mark(applied):
            self._vectors.forget_texts()

    def _mark(self, sequence: int) -> str:
        """Returns what tells the history up to this change from every other."""
        changes = self._store.changes(sequence - 1, 1)
        if not changes or changes[0].sequence != sequence:
            return ""
        change = changes[0]
        return f"{change.ref} {change.after} {self._store.operation(change.operation).intent.digest}"

    def _roles(self) -> tuple[TextRole, ...]:
        return tuple(role for role in TextRole if self._describing or role is not TextRole.DESCRIPTION)

    def _service(self, embedder: Embedder, model: VectorModel) -> Service:
        matrix = Matrix(embedder.dimension)
        for place in self._vectors.places():
            matrix.place(place)
        service = Service(embedder, model, matrix, {})
        for role in self._roles():
            self._load(service, role)
        return service

    def _load(self, service: Service, role: TextRole) -> None:
        for resource, vector in self._vectors.all(service.model, role):
            service.matrix.put(role, resource, _unpacked(vector))
        service.waiting[role] = self._vectors.resources_without_vector(service.model, role)

    def _before(self, newest: Service) -> Service | None:
        """Returns the model that was in service before, if it has vectors and can still be opened."""
        kept = {model.name: model for model in reversed(self._vectors.models())}
        for name in dict.fromkeys([*self._served, *kept]):
            model = kept.get(name, newest.model)
            if model.id != newest.model.id and self._vectors.counted(model, [TextRole.WHOLE])[0]:
                try:
                    embedder = open_embedder(model.spec)
                    if embedder.model == model.name:
                        return self._service(embedder, model)
                    why = f"{model.spec} is another model now."
                except EvolvableError as error:
                    why = error.text
                self._say(f"{model.name} cannot serve until {newest.model.name} is complete: {why}")
        return None

    # Following the library

    def _take_in(self) -> bool:
        applied = int(self._vectors.state("applied") or 0)
        if self._store.sequence() == applied:
            return False
        changes = self._store.changes(applied, _CHANGES)
        if not changes:
            return False
        said, gone = dict[VectorResource, dict[TextRole, TextDigest]](), list[int]()
        for kind, scope, name in dict.fromkeys((c.kind, c.scope, c.name) for c in changes):
            head = self._store.backend.head(kind, scope, name)
            if head is not None and head.version is not None:
                place = VectorResource(head.id, head.kind.value, head.scope, head.name)
                said[place] = {role: digest_text(text) for role, text in said_by(self._store, head).items()}
            elif head is not None:
                gone.append(head.id)
        last = changes[-1].sequence
        self._vectors.take_in(said, gone, {"applied": str(last), "mark": self._mark(last)})
        for service in self._services():
            for resource in gone:
                self._forget(service, resource)
            for place, texts in said.items():
                self._forget(service, place.id)
                service.matrix.place(place)
                self._fill(service, place.id, texts)
        return True

    def _forget(self, service: Service, resource: int) -> None:
        service.matrix.drop(resource)
        for waiting in service.waiting.values():
            waiting.pop(resource, None)

    def _fill(self, service: Service, resource: int, texts: Mapping[TextRole, TextDigest]) -> None:
        """Gives a resource the vectors that its texts have already, and has the others wait."""
        known = self._vectors.known(service.model, [text.hash for text in texts.values()])
        for role, text in texts.items():
            if text.hash in known:
                service.matrix.put(role, resource, _unpacked(known[text.hash]))
            elif role in service.waiting:
                service.waiting[role][resource] = text.size

    # Embedding

    def _embed(self, service: Service, role: TextRole, resources: Iterable[int]) -> None:
        heads = self._store.backend.heads_by_id(resources)
        said = {id_: said_by(self._store, head).get(role) for id_, head in heads.items() if head.version is not None}
        texts = {id_: text for id_, text in said.items() if text is not None}
        hashes = {id_: digest_text(text).hash for id_, text in texts.items()}
        known = self._vectors.known(service.model, hashes.values())
        new = {hashes[id_]: text for id_, text in texts.items() if hashes[id_] not in known}
        if new:
            rows = service.embedder.encode(list(new.values())).astype("<f2")
            vectors = {digest: row.tobytes() for digest, row in zip(new, rows, strict=True)}
            self._vectors.keep(service.model, vectors)
            known |= vectors
        for id_, digest in hashes.items():
            service.matrix.put(role, id_, _unpacked(known[digest]))

    def _describe(self) -> None:
        self._vectors.note(WITH_DESCRIPTIONS, "1")
        self._describing = True
        for service in self._services():
            self._load(service, TextRole.DESCRIPTION)

    def _note_service(self) -> None:
        """Notes which model is in service and which was before."""
        name = self.serving.model.name
        self._served = [name, *(other for other in self._served if other != name)][:2]
        for key, served in zip((_IN_SERVICE, _BEFORE), self._served, strict=False):
            self._vectors.note(key, served)

    def _settle(self) -> None:
        """Puts a changed model in service once it is complete, and deletes all models but it and the one before."""
        if self.coming is not None and self.coming.is_complete:
            self._say(f"{self.coming.model.name} is complete and in service")
            self.serving, self.coming, self._swept = self.coming, None, False
            self._note_service()
        if self.coming is None and not self._swept:
            self._swept = True
            self._vectors.delete_unused_vectors()
            for model in self._vectors.models():
                if model.name not in self._served:
                    self._vectors.forget_model(model)


def _unpacked(vector: bytes) -> Floats:
    return np.frombuffer(vector, "<f2").astype(np.float32)
