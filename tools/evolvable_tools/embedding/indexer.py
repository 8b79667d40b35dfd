"""The vectors of a library: the texts that are embedded, and the indexer that keeps the matrix in
sync with them.

While the indexer prepares a changed model, the model before answers where it can still be opened.
The vectors of both stay, so going back needs only what changed since. The indexer deletes those of
all other models.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest

from evolvable_store import Document, Head, Store, main_path, parse_document, summarize
from evolvable_store.errors import EvolvableError, LibraryCorrupt
from evolvable_store.search import (
    WITH_DESCRIPTIONS,
    TextDigest,
    TextRole,
    VectorModel,
    VectorResource,
    Vectors,
    digest_text,
)
from evolvable_tools.embedding.embedder import Embedder
from evolvable_tools.embedding.learned_vectors import LearnedVectors
from evolvable_tools.embedding.local_models import open_embedder
from evolvable_tools.embedding.shared_texts import SharedTexts
from evolvable_tools.embedding.token_vectors import unpack_vector
from evolvable_tools.embedding.vector_matrix import VectorMatrix

MAX_DESCRIPTION = 8_192
"""Characters of a description that are taken; a model reads far fewer."""


def document_texts(store: Store, head: Head) -> dict[TextRole, str]:
    """Return the texts of a living resource; of one whose bytes are damaged only its name.

    Raises LibraryError.
    """
    description = summarize(_read_document(store, head)).description[:MAX_DESCRIPTION]
    texts = {TextRole.WHOLE: f"{head.name.replace('-', ' ')}. {description}"}
    if description.strip():
        texts[TextRole.DESCRIPTION] = description
    return texts


def _read_document(store: Store, head: Head) -> Document:
    data = b""
    try:
        manifest = store.manifest(head)
        path = main_path(head.kind, head.name, manifest)
        data = store.blob(manifest[path].sha256) if path else b""
    except LibraryCorrupt:
        pass  # compared by its name still; fsck reports it
    return parse_document(data)


BATCH, BATCH_CHARACTERS = 32, 8_000
"""Texts embedded at once in the background, and about how long they are together: half a second's
work, after which changes are looked at.
"""

# Changes of one transaction, so that other writers get their turn.
_CHANGES = 100

# Keys of states that hold names of models.
_NEWEST, _IN_SERVICE, _BEFORE = "newest", "in service", "in service before"


@dataclass(frozen=True, slots=True)
class IndexingState:
    """A model that can answer: its embedder, and its vectors in memory.

    waiting: by role, the resources whose text lacks a vector, with the characters of the text.
    learned: the vectors of learned tasks.
    """

    embedder: Embedder
    model: VectorModel
    matrix: VectorMatrix
    waiting: dict[TextRole, dict[int, int]]
    learned: LearnedVectors

    @property
    def is_complete(self) -> bool:
        """Whether every text that is wanted has its vector."""
        return not any(self.waiting.values())

    def batch(self) -> tuple[TextRole, list[int]] | None:
        """Return a role and resources that wait for it, enough for a batch; None when nothing
        waits.

        The shortest of all: texts of about one length need the least padding.
        """
        for role, sizes in self.waiting.items():
            if sizes:
                shortest = nsmallest(BATCH, sizes, key=sizes.__getitem__)
                fit = max(1, BATCH_CHARACTERS // sizes[shortest[-1]])
                return role, shortest[:fit]
        return None


class VectorIndexer:
    """The one writer of a library's vectors.

    `step` belongs to one thread; `serving` may be read by all.
    """

    def __init__(
        self,
        store: Store,
        vectors: Vectors,
        embedder: Embedder,
        spec: str,
        say: Callable[[str], None],
    ):
        """Load the stored vectors. Raises DamagedFile, LibraryError."""
        self._store, self._vectors, self._say = store, vectors, say
        self._shared = SharedTexts.open(store, say)
        self._served = [vectors.state(_IN_SERVICE), vectors.state(_BEFORE)]
        self._check_origin()
        self._describing = bool(vectors.state(WITH_DESCRIPTIONS))
        self._swept = False
        self.wants_descriptions = self._describing
        """Set to True by the first query of descriptions; they are embedded from then on."""
        newest = self._load_model(embedder, vectors.model(embedder.model, spec))
        # Without resources (a new file, or texts that were just forgotten) `is_complete` says
        # nothing.
        is_ready = newest.is_complete and newest.matrix.count_vectors()[1] > 0
        before = None if is_ready else self._open_previous(newest)
        self.serving = before or newest
        """The model that answers now."""
        self.coming: IndexingState | None = newest if before else None
        """The changed model, while its vectors are not complete."""
        vectors.note(_NEWEST, newest.model.name)
        self._note_service()

    def step(self) -> bool:
        """Do a small part of the pending work; return whether there was any.

        Raises DamagedFile, LibraryError.
        """
        if self.wants_descriptions and not self._describing:
            self._begin_descriptions()
        # Changes come before embedding, so that no text is embedded that was replaced meanwhile.
        if self._follow_changes() or any(service.learned.step() for service in self._services()):
            return True
        for service in self._services():
            batch = service.batch()
            if batch:
                role, resources = batch
                # Another server may have computed these; a read of the database costs less than the
                # model.
                done = self._take_shared(service, role, resources)
                if not done:
                    self._embed(service, role, resources)
                for resource in done or resources:
                    del service.waiting[role][resource]
                return True
        self._finish_model()
        return False

    def _services(self) -> list[IndexingState]:
        return [self.serving, *([self.coming] if self.coming else [])]

    # Starting

    def _check_origin(self) -> None:
        """Forget whose text is whose if that was noted for another history; the vectors stay, by
        their texts.
        """
        applied = int(self._vectors.state("applied") or 0)
        if applied and self._vectors.state("mark") != self._make_mark(applied):
            self._vectors.forget_texts()

    def _make_mark(self, sequence: int) -> str:
        """Return a text that distinguishes the history up to this change from every other; ""
        without such a change.
        """
        changes = self._store.changes(sequence - 1, 1)
        if not changes or changes[0].sequence != sequence:
            return ""
        change = changes[0]
        digest = self._store.operation(change.operation).intent.digest
        return f"{change.ref} {change.after} {digest}"

    def _list_roles(self) -> tuple[TextRole, ...]:
        return tuple(
            role for role in TextRole if self._describing or role is not TextRole.DESCRIPTION
        )

    def _load_model(self, embedder: Embedder, model: VectorModel) -> IndexingState:
        matrix = VectorMatrix(embedder.dimension)
        for place in self._vectors.places():
            matrix.place(place)
        learned = LearnedVectors(self._store, self._vectors, embedder, model)
        service = IndexingState(embedder, model, matrix, {}, learned)
        for role in self._list_roles():
            self._load_vectors(service, role)
        return service

    def _load_vectors(self, service: IndexingState, role: TextRole) -> None:
        for resource, vector in self._vectors.all(service.model, role):
            service.matrix.put(role, resource, unpack_vector(vector))
        service.waiting[role] = self._vectors.resources_without_vector(service.model, role)

    def _open_previous(self, newest: IndexingState) -> IndexingState | None:
        """Return the model that was in service before, if it has vectors and can still
        be opened.
        """
        stored_models = {model.name: model for model in reversed(self._vectors.models())}
        # The models that served last come first; any other with vectors is better than none.
        for name in dict.fromkeys([*self._served, *stored_models]):
            model = stored_models.get(name, newest.model)
            if model.id == newest.model.id:
                continue
            if not self._vectors.count_texts(model, [TextRole.WHOLE])[0]:
                continue
            try:
                embedder = open_embedder(model.spec)
                if embedder.model == model.name:
                    return self._load_model(embedder, model)
                why = f"{model.spec} is another model now."
            except EvolvableError as error:
                why = error.text
            self._say(f"{model.name} cannot serve until {newest.model.name} is complete: {why}")
        return None

    # Following the library

    def _follow_changes(self) -> bool:
        applied = int(self._vectors.state("applied") or 0)
        if self._store.sequence() == applied:
            return False
        changes = self._store.changes(applied, _CHANGES)
        if not changes:
            return False
        texts_by_place, gone = dict[VectorResource, dict[TextRole, TextDigest]](), list[int]()
        # A resource with several changes is read once, as it is now.
        for kind, scope, name in dict.fromkeys((c.kind, c.scope, c.name) for c in changes):
            head = self._store.backend.head(kind, scope, name)
            if head is not None and head.version is not None:
                place = VectorResource(head.id, head.kind.value, head.scope, head.name)
                texts_by_place[place] = {
                    role: digest_text(text)
                    for role, text in document_texts(self._store, head).items()
                }
            elif head is not None:
                gone.append(head.id)
        hashes = [text.hash for texts in texts_by_place.values() for text in texts.values()]
        # Before the change counts as applied: nothing after that may fail, or memory would never
        # hear of it.
        vectors_by_service = [
            (service, self._vectors.stored_vectors(service.model, hashes))
            for service in self._services()
        ]
        last = changes[-1].sequence
        unused = self._vectors.take_in(
            texts_by_place, gone, {"applied": str(last), "mark": self._make_mark(last)}
        )
        self._shared.remove(unused)
        for service, vectors in vectors_by_service:
            for resource in gone:
                self._forget(service, resource)
            for place, texts in texts_by_place.items():
                # The old version's texts may have vectors or still wait for them.
                self._forget(service, place.id)
                service.matrix.place(place)
                self._fill_vectors(service, place.id, texts, vectors)
        return True

    def _forget(self, service: IndexingState, resource: int) -> None:
        service.matrix.drop(resource)
        for waiting in service.waiting.values():
            waiting.pop(resource, None)

    def _fill_vectors(
        self,
        service: IndexingState,
        resource: int,
        texts: Mapping[TextRole, TextDigest],
        vectors_by_text: Mapping[bytes, bytes],
    ) -> None:
        """Set the vectors that a resource's texts have already, and queue the other texts.

        vectors_by_text: by the hash of the text.
        """
        for role, text in texts.items():
            if text.hash in vectors_by_text:
                service.matrix.put(role, resource, unpack_vector(vectors_by_text[text.hash]))
            elif role in service.waiting:
                service.waiting[role][resource] = text.size

    # Embedding

    def _take_shared(
        self, service: IndexingState, role: TextRole, resources: Iterable[int]
    ) -> list[int]:
        """Set the vectors that another server computed.

        Return the resources that have theirs now.
        """
        texts = self._vectors.texts_of(role, resources)
        vectors, tokens = self._shared.find(
            service.model, service.embedder.dimension, set(texts.values())
        )
        # Stored here too, so that the next start needs no database for them.
        self._vectors.store_vectors(service.model, vectors, tokens)
        done = [resource for resource, digest in texts.items() if digest in vectors]
        for resource in done:
            service.matrix.put(role, resource, unpack_vector(vectors[texts[resource]]))
        return done

    def _embed(self, service: IndexingState, role: TextRole, resources: Iterable[int]) -> None:
        heads = self._store.backend.heads_by_id(resources)
        # Texts as they are now: they may have changed since their resources began to wait.
        all_texts = {
            id_: document_texts(self._store, head)
            for id_, head in heads.items()
            if head.version is not None
        }
        texts = {id_: by_role[role] for id_, by_role in all_texts.items() if role in by_role}
        hashes = {id_: digest_text(text).hash for id_, text in texts.items()}
        vectors_by_text = self._vectors.stored_vectors(service.model, hashes.values())
        # Equal texts of several resources are embedded once.
        new = {
            hashes[id_]: text for id_, text in texts.items() if hashes[id_] not in vectors_by_text
        }
        if new:
            rows, tokens = service.embedder.encode_tokens(list(new.values()))
            # float16 halves the file, and its three digits are enough for a cosine.
            vectors = {
                digest: row.tobytes() for digest, row in zip(new, rows.astype("<f2"), strict=True)
            }
            token_bytes = {
                digest: token_vectors.tobytes()
                for digest, token_vectors in zip(new, tokens, strict=True)
                if len(token_vectors)
            }
            # Late interaction compares name and description together, so descriptions alone need no
            # vectors of tokens.
            self._vectors.store_vectors(
                service.model, vectors, token_bytes if role is TextRole.WHOLE else None
            )
            self._shared.add(service.model, vectors, token_bytes if role is TextRole.WHOLE else {})
            vectors_by_text |= vectors
        for id_, digest in hashes.items():
            service.matrix.put(role, id_, unpack_vector(vectors_by_text[digest]))

    def _begin_descriptions(self) -> None:
        self._vectors.note(WITH_DESCRIPTIONS, "1")
        self._describing = True
        for service in self._services():
            self._load_vectors(service, TextRole.DESCRIPTION)

    def _note_service(self) -> None:
        """Note which model is in service and which was before."""
        name = self.serving.model.name
        earlier = [other for other in self._served if other != name]
        self._served = [name, *earlier][:2]
        for key, served in zip((_IN_SERVICE, _BEFORE), self._served, strict=False):
            self._vectors.note(key, served)

    def _finish_model(self) -> None:
        """Put a changed model in service once it is complete, and delete all models but it and the
        one before.
        """
        if self.coming is not None and self.coming.is_complete:
            self._say(f"{self.coming.model.name} is complete and in service")
            self.serving, self.coming, self._swept = self.coming, None, False
            self._note_service()
        # Once after a start and after each change of the model, because it reads all texts.
        if self.coming is None and not self._swept:
            self._swept = True
            self._vectors.delete_unused_vectors()
            self._shared.remove_others(self._vectors.texts())
            for model in self._vectors.models():
                if model.name not in self._served:
                    self._vectors.forget_model(model)
