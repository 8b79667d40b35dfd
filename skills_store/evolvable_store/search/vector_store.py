"""The file of vectors: the embedding of each text, and the texts of each resource's head.

It is derived: deleting it costs only the time to embed again. One process writes it at a time.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from evolvable_store.errors import DamagedFile, LibraryError
from evolvable_store.storage import connection as driver
from evolvable_store.storage import translate_damage
from evolvable_store.storage.connection import Connection

VECTORS_FILE = "vectors.db"

_LEARNED = """CREATE TABLE IF NOT EXISTS learned (
    model INTEGER NOT NULL, hash BLOB NOT NULL, data BLOB NOT NULL, PRIMARY KEY (model, hash)
) STRICT, WITHOUT ROWID"""

# The application id lets `file` and SQLite tell these files from others.
FORMAT = driver.DerivedFormat(0x45564C56, 3, Path(__file__).with_name("vectors.sql"))  # EVLV


def open_vectors(home: Path) -> Connection:
    """Return a connection to the file of the library in `home`, which is made when there is none.

    A damaged file is set aside. Raises LibraryError.
    """
    try:
        return _open_file(home / VECTORS_FILE)
    except DamagedFile:
        set_aside(home)
        return _open_file(home / VECTORS_FILE)


def set_aside(home: Path) -> None:
    """Move a damaged file away for diagnosis; only the last one stays."""
    driver.set_aside(home / VECTORS_FILE)


def _open_file(path: Path) -> Connection:
    with _translate_damage(path), contextlib.ExitStack() as unless_ready:
        connection = driver.connect(path, durable=False)
        unless_ready.callback(connection.close)
        FORMAT.prepare(connection, path)
        connection.execute(_LEARNED)  # a file of an earlier version lacks only this table
        unless_ready.pop_all()
    return connection


def _translate_damage(path: Path) -> AbstractContextManager[None]:
    return translate_damage(path, opening=True)


_BY_TEXT = ("vector", "token")  # tables of which a row belongs to a text and a model


def forget_vectors(home: Path, resources: Iterable[int]) -> None:
    """Remove the vectors of these resources' texts, and of all learned tasks.

    They are computed again from the remaining texts.
    """
    path = home / VECTORS_FILE
    if not path.exists():
        return
    with contextlib.closing(driver.connect(path, durable=False, access="write")) as connection:
        # A purge: SQLite overwrites deleted rows with zeros instead of only marking them free.
        connection.execute("PRAGMA secure_delete=ON")
        tables = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master").fetchall()
        }
        # A file of an earlier version has no table of tokens until an embedder opens it.
        for table in tables.intersection(_BY_TEXT):
            connection.execute(
                f"""DELETE FROM {table} WHERE hash IN (
                    SELECT hash FROM said WHERE resource IN (SELECT value FROM json_each(?)))""",
                (json.dumps(list(resources)),),
            )
        if "learned" in tables:
            # Learned tasks are not linked to a resource here, so all of them go.
            connection.execute("DELETE FROM learned")
        # The write-ahead log still has the old rows until it is emptied.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


WITH_DESCRIPTIONS = "descriptions"
"""The key of a state: descriptions are embedded too unless it is ''."""

_TEXTS = "FROM said s WHERE s.role IN (SELECT value FROM json_each(?))"
_HAS = "EXISTS (SELECT 1 FROM vector v WHERE v.model = ? AND v.hash = s.hash)"


class TextRole(StrEnum):
    """The role of a text of a resource, the most useful first.

    A resource has at most one text of each role.
    """

    WHOLE = "whole"
    """Name and description."""

    DESCRIPTION = "description"
    """The description alone."""


@dataclass(frozen=True, slots=True)
class VectorResource:
    """A resource in the file of vectors."""

    id: int
    kind: str
    scope: str
    name: str


@dataclass(frozen=True, slots=True)
class TextDigest:
    """A text in the file of vectors. hash: its sha256. size: its characters."""

    hash: bytes
    size: int


@dataclass(frozen=True, slots=True)
class VectorModel:
    """An embedder whose vectors are stored. name: its identity. spec: how it was opened."""

    id: int
    name: str
    spec: str


@dataclass(frozen=True, slots=True)
class EmbeddingProgress:
    """The progress of embedding: `done` of `total` texts have a vector of `model`."""

    model: str
    done: int
    total: int


def digest_text(text: str) -> TextDigest:
    """Return the hash and the length of a text."""
    return TextDigest(hashlib.sha256(text.encode("utf-8", "replace")).digest(), len(text))


def embedding_progress(home: Path) -> EmbeddingProgress | None:
    """Return the progress of the model in use for the library in `home`.

    None when no embedding was begun, or the file cannot be read.
    """
    path = home / VECTORS_FILE
    if not path.is_file():
        return None
    try:
        with contextlib.closing(driver.connect(path, durable=False, access="read")) as db:
            # The state names the model in use: an earlier one stays, and may have the higher id.
            in_use = "name = (SELECT value FROM state WHERE key = 'newest') DESC, id DESC"
            row = db.execute(f"SELECT name, id FROM model ORDER BY {in_use} LIMIT 1").fetchone()
            if row is None:
                return None
            name, model = row
            roles = tuple(TextRole) if _read_state(db, WITH_DESCRIPTIONS) else (TextRole.WHOLE,)
            return EmbeddingProgress(name, *_count_texts(db, model, roles))
    # Progress is only shown, so a file that cannot be read is no error.
    except (LibraryError, *driver.Errors):
        return None


class Vectors:
    """The open file, for one process and one thread at a time.

    Every method raises DamagedFile, LibraryError.
    """

    def __init__(self, path: Path, connection: Connection) -> None:
        self.path, self._db = path, connection

    @classmethod
    def open(cls, home: Path) -> Self:
        """Return the file of the library in `home`, as `open_vectors` does. Raises LibraryError."""
        return cls(home / VECTORS_FILE, open_vectors(home))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Texts

    def state(self, key: str) -> str:
        """Return the value of a key of the state, '' for none."""
        with _translate_damage(self.path):
            return _read_state(self._db, key)

    def note(self, key: str, value: str) -> None:
        """Store a value under a key of the state."""
        with self._writing():
            self._store_state(key, value)

    def take_in(
        self,
        new_texts: Mapping[VectorResource, Mapping[TextRole, TextDigest]],
        gone: Iterable[int],
        state: Mapping[str, str],
    ) -> set[bytes]:
        """Replace the texts of these resources and delete those of `gone`, all or nothing.

        state: stored in the same transaction. Return the hashes of texts that no resource has any
        more.
        """
        with self._writing():
            ids = [*(resource.id for resource in new_texts), *gone]
            # Before the deletions, so that texts which lose their last resource are known.
            before = self._hashes_of(ids)
            for table, key in (("said", "resource"), ("resource", "id")):
                delete = f"DELETE FROM {table} WHERE {key} IN (SELECT value FROM json_each(?))"
                self._db.execute(delete, (json.dumps(ids),))
            for resource, texts in new_texts.items():
                self._db.execute("INSERT INTO resource VALUES (?, ?, ?, ?)", astuple(resource))
                rows = [(role, resource.id, text.hash, text.size) for role, text in texts.items()]
                self._db.executemany("INSERT INTO said VALUES (?, ?, ?, ?)", rows)
            for table in _BY_TEXT:
                # A text can belong to several resources: its vector goes with the last of them.
                delete = (
                    f"DELETE FROM {table} WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM said "
                    "WHERE hash = ?1)"
                )
                self._db.executemany(delete, [(digest,) for digest in before])
            for key, value in state.items():
                self._store_state(key, value)
            return before - self._used_hashes(before)

    def forget_texts(self) -> None:
        """Delete every resource with its texts and the state, and keep the vectors.

        Texts that come again need no embedding then.
        """
        with self._writing():
            for table in ("said", "resource", "state"):
                self._db.execute(f"DELETE FROM {table}")

    def delete_unused_vectors(self) -> None:
        """Delete the vectors of texts that no resource has."""
        with self._writing():
            for table in _BY_TEXT:
                self._db.execute(f"DELETE FROM {table} WHERE hash NOT IN (SELECT hash FROM said)")

    def texts(self) -> list[bytes]:
        """Return the hashes of all texts."""
        return [row[0] for row in self._rows("SELECT DISTINCT hash FROM said")]

    def texts_of(self, role: TextRole, resources: Iterable[int]) -> dict[int, bytes]:
        """Return the hash of the text of this role, by resource."""
        query = (
            "SELECT resource, hash FROM said WHERE role = ? AND resource IN (SELECT value "
            "FROM json_each(?))"
        )
        return dict(self._rows(query, role, json.dumps(list(resources))))

    def places(self) -> list[VectorResource]:
        """Return all resources."""
        return [
            VectorResource(*row) for row in self._rows("SELECT id, kind, scope, name FROM resource")
        ]

    # Vectors

    def model(self, name: str, spec: str) -> VectorModel:
        """Return the model of this name, made when it is new, with this spec."""
        # The name identifies the embedder; the spec, such as a path, may change.
        upsert = (
            "INSERT INTO model (name, spec) VALUES (?, ?) ON CONFLICT (name) DO UPDATE "
            "SET spec = excluded.spec"
        )
        with self._writing():
            self._db.execute(upsert, (name, spec))
        return next(model for model in self.models() if model.name == name)

    def models(self) -> list[VectorModel]:
        """Return all models, the oldest first."""
        return [
            VectorModel(*row) for row in self._rows("SELECT id, name, spec FROM model ORDER BY id")
        ]

    def forget_model(self, model: VectorModel) -> None:
        """Delete a model with its vectors."""
        with self._writing():
            for table in (*_BY_TEXT, "learned"):
                self._db.execute(f"DELETE FROM {table} WHERE model = ?", (model.id,))
            self._db.execute("DELETE FROM model WHERE id = ?", (model.id,))

    def resources_without_vector(self, model: VectorModel, role: TextRole) -> dict[int, int]:
        """Return the resources whose text of this role has no vector, each with the text's size."""
        query = (
            f"SELECT s.resource, s.size FROM said s WHERE s.role = ? AND NOT {_HAS} "
            "ORDER BY s.resource"
        )
        return dict(self._rows(query, role, model.id))

    def stored_vectors(self, model: VectorModel, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the stored vectors of these texts, by hash, without texts that have none."""
        query = "SELECT data FROM vector WHERE model = ? AND hash = ?"
        with _translate_damage(self.path):
            rows = (
                (digest, self._db.execute(query, (model.id, digest)).fetchone())
                for digest in set(hashes)
            )
            return {digest: row[0] for digest, row in rows if row}

    def store_vectors(
        self,
        model: VectorModel,
        vectors: Mapping[bytes, bytes],
        tokens: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """Store vectors (float16, little-endian) by the hash of their texts.

        tokens: vectors of their tokens (int8).
        """
        with self._writing():
            # One transaction for both: only texts without a vector are embedded, so one with a
            # vector and no tokens would never get these.
            for table, rows in (("vector", vectors), ("token", tokens or {})):
                self._db.executemany(
                    f"INSERT OR REPLACE INTO {table} (model, hash, data) VALUES (?, ?, ?)",
                    [(model.id, digest, data) for digest, data in rows.items()],
                )

    def learned_vectors(self, model: VectorModel) -> dict[bytes, bytes]:
        """Return the vectors of learned tasks, as stored, by the hash of the task."""
        return dict(self._rows("SELECT hash, data FROM learned WHERE model = ?", model.id))

    def replace_learned(self, model: VectorModel, vectors: Mapping[bytes, bytes]) -> None:
        """Store vectors of learned tasks (float16, little-endian) as the only ones of a model."""
        with self._writing():
            self._db.execute("DELETE FROM learned WHERE model = ?", (model.id,))
            rows = [(model.id, digest, data) for digest, data in vectors.items()]
            self._db.executemany("INSERT INTO learned (model, hash, data) VALUES (?, ?, ?)", rows)

    def tokens_of(self, model: VectorModel, resources: Iterable[int]) -> dict[int, bytes]:
        """Return the token vectors of name and description by resource, where there are any."""
        query = """SELECT s.resource, t.data FROM said s JOIN token t ON t.model = ?
            AND t.hash = s.hash
            WHERE s.role = ? AND s.resource IN (SELECT value FROM json_each(?))"""
        return dict(self._rows(query, model.id, TextRole.WHOLE, json.dumps(list(resources))))

    def all(self, model: VectorModel, role: TextRole) -> Iterator[tuple[int, bytes]]:
        """Yield each resource that has a vector of this role, with the vector, by id.

        Read to the end before you write.
        """
        query = """SELECT s.resource, v.data FROM said s JOIN vector v ON v.model = ?
            AND v.hash = s.hash
            WHERE s.role = ? ORDER BY s.resource"""
        with _translate_damage(self.path):
            yield from self._db.execute(query, (model.id, role))

    def count_texts(self, model: VectorModel, roles: Iterable[TextRole]) -> tuple[int, int]:
        """Return how many texts of these roles have a vector, and how many there are."""
        with _translate_damage(self.path):
            return _count_texts(self._db, model.id, tuple(roles))

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with _translate_damage(self.path):
            return self._db.execute(query, values).fetchall()

    def _store_state(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))

    def _used_hashes(self, hashes: Iterable[bytes]) -> set[bytes]:
        query = "SELECT 1 FROM said WHERE hash = ? LIMIT 1"
        return {digest for digest in hashes if self._db.execute(query, (digest,)).fetchone()}

    def _hashes_of(self, ids: Sequence[int]) -> set[bytes]:
        """Return the hashes of the texts of these resources."""
        query = "SELECT hash FROM said WHERE resource IN (SELECT value FROM json_each(?))"
        return {row[0] for row in self._db.execute(query, (json.dumps(list(ids)),)).fetchall()}

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with _translate_damage(self.path), driver.ImmediateTransaction(self._db, self.path):
            yield


def _read_state(db: Connection, key: str) -> str:
    row = db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def _count_texts(db: Connection, model: int, roles: Sequence[TextRole]) -> tuple[int, int]:
    """Return how many texts of these roles have a vector of the model, and how many there are."""
    role_list = json.dumps(list(roles))
    done = db.execute(f"SELECT count(*) {_TEXTS} AND {_HAS}", (role_list, model)).fetchone()[0]
    total = db.execute(f"SELECT count(*) {_TEXTS}", (role_list,)).fetchone()[0]
    return int(done), int(total)
