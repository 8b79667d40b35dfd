"""The file of vectors: the embedding of each text, and the texts that each resource has at its
head.

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
    """Return the file of the library in `home`, made when there is none; a damaged one is set
    aside.

    Raises LibraryError.
    """
    try:
        return _open_file(home / VECTORS_FILE)
    except DamagedFile:
        set_aside(home)
        return _open_file(home / VECTORS_FILE)


def set_aside(home: Path) -> None:
    """Move the file away for diagnosis; only the last one stays."""
    driver.set_aside(home / VECTORS_FILE)


def _open_file(path: Path) -> Connection:
    with _translate_damage(path), contextlib.ExitStack() as unless_ready:
        connection = driver.connect(path, durable=False)
        unless_ready.callback(connection.close)
        FORMAT.prepare(connection, path)
        connection.execute(_LEARNED)  # a file made before these were kept lacks only this table
        unless_ready.pop_all()
    return connection


def _translate_damage(path: Path) -> AbstractContextManager[None]:
    return translate_damage(path, opening=True)


_BY_TEXT = ("vector", "token")  # tables whose rows belong to a text of a model


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
        # An older file has no tokens until an embedder opens it.
        for table in tables.intersection(_BY_TEXT):
            connection.execute(
                f"""DELETE FROM {table} WHERE hash IN (
                    SELECT hash FROM said WHERE resource IN (SELECT value FROM json_each(?)))""",
                (json.dumps(list(resources)),),
            )
        if "learned" in tables:
            # Learned tasks are not linked to a resource here, so all of them go.
            connection.execute("DELETE FROM learned")
        # The write-ahead log still has the old rows.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


WITH_DESCRIPTIONS = "descriptions"
"""The state that says, when it is not empty, that descriptions are embedded too."""

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
    """A resource as the vectors know it: its id, and where it is found."""

    id: int
    kind: str
    scope: str
    name: str


@dataclass(frozen=True, slots=True)
class TextDigest:
    """A text as the vectors know it: its sha256 and its characters."""

    hash: bytes
    size: int


@dataclass(frozen=True, slots=True)
class VectorModel:
    """An embedder whose vectors are kept. `name` is its identity, `spec` how it was opened."""

    id: int
    name: str
    spec: str


@dataclass(frozen=True, slots=True)
class EmbeddingProgress:
    """How far the embedding is: `done` of `total` texts have a vector of `model`."""

    model: str
    done: int
    total: int


def digest_text(text: str) -> TextDigest:
    """Return the hash and the length of a text, by which the vectors identify it."""
    return TextDigest(hashlib.sha256(text.encode("utf-8", "replace")).digest(), len(text))


def embedding_progress(home: Path) -> EmbeddingProgress | None:
    """Return how far the newest model of the library in `home` is; None when nothing was begun or
    can be read.
    """
    if not (home / VECTORS_FILE).is_file():
        return None
    try:
        with contextlib.closing(
            driver.connect(home / VECTORS_FILE, durable=False, access="read")
        ) as db:
            # The one before is kept too, and may have been made later.
            newest = "name = (SELECT value FROM state WHERE key = 'newest') DESC, id DESC"
            # At most one row: progress is that of the model in use.
            rows = db.execute(f"SELECT name, id FROM model ORDER BY {newest} LIMIT 1").fetchall()
            roles = tuple(TextRole) if _state(db, WITH_DESCRIPTIONS) else (TextRole.WHOLE,)
            return (
                EmbeddingProgress(
                    rows[0][0],
                    *_count_texts(db, rows[0][1], roles),
                )
                if rows
                else None
            )
    # Progress is only shown; a file that cannot be read has none.
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
        """Return the file of the library in `home`, empty when there was none; a damaged one is set
        aside.

        Raises LibraryError.
        """
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
        """Return the value of a key, '' for none."""
        with _translate_damage(self.path):
            return _state(self._db, key)

    def note(self, key: str, value: str) -> None:
        """Note a value under a key."""
        with self._writing():
            self._note(key, value)

    def take_in(
        self,
        new_texts: Mapping[VectorResource, Mapping[TextRole, TextDigest]],
        gone: Iterable[int],
        state: Mapping[str, str],
    ) -> set[bytes]:
        """Replace the texts of these resources and delete those of `gone`, all or nothing.

        state: noted in the same transaction. Returns the hashes of texts that no resource has any
        more.
        """
        with self._writing():
            ids = [*(place.id for place in new_texts), *gone]
            # Before the deletions, so that texts which lose their last resource are known.
            before = self._hashes(ids)
            self._db.execute(
                "DELETE FROM said WHERE resource IN (SELECT value FROM json_each(?))",
                (json.dumps(ids),),
            )
            self._db.execute(
                "DELETE FROM resource WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(ids),),
            )
            for place, texts in new_texts.items():
                self._db.execute("INSERT INTO resource VALUES (?, ?, ?, ?)", astuple(place))
                rows = [(role, place.id, text.hash, text.size) for role, text in texts.items()]
                self._db.executemany("INSERT INTO said VALUES (?, ?, ?, ?)", rows)
            for table in _BY_TEXT:
                self._db.executemany(
                    # A text can belong to several resources: its vector goes with the last of them.
                    f"DELETE FROM {table} WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM said "
                    "WHERE hash = ?1)",
                    [(digest,) for digest in before],
                )
            for key, value in state.items():
                self._note(key, value)
            return before - self._used_hashes(before)

    def forget_texts(self) -> None:
        """Forget every resource, and keep the vectors for texts that come again."""
        with self._writing():
            # Not the vectors: embedding is what takes the time.
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
        """Return the model of this name, made when it is new, with the spec brought up to date."""
        # The name identifies the embedder; the spec, such as a path, may change.
        upsert = (
            "INSERT INTO model (name, spec) VALUES (?, ?) ON CONFLICT (name) DO UPDATE "
            "SET spec = excluded.spec"
        )
        with self._writing():
            self._db.execute(upsert, (name, spec))
        return next(model for model in self.models() if model.name == name)

    def models(self) -> list[VectorModel]:
        """Return the models that have vectors or are to have them, the oldest first."""
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
        """Return the resources whose text of this role has no vector, with the characters of the
        text.
        """
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
            # One transaction for both: a text with a vector and no tokens would never get them.
            for table, rows in (("vector", vectors), ("token", tokens or {})):
                self._db.executemany(
                    f"INSERT OR REPLACE INTO {table} (model, hash, data) VALUES (?, ?, ?)",
                    [(model.id, digest, data) for digest, data in rows.items()],
                )

    def learned_vectors(self, model: VectorModel) -> dict[bytes, bytes]:
        """Return the vectors of learned tasks, as stored, by the hash of the task."""
        return dict(self._rows("SELECT hash, data FROM learned WHERE model = ?", model.id))

    def replace_learned(self, model: VectorModel, vectors: Mapping[bytes, bytes]) -> None:
        """Keep these vectors of learned tasks (float16, little-endian), and no others
        of the model.
        """
        with self._writing():
            self._db.execute("DELETE FROM learned WHERE model = ?", (model.id,))
            rows = [(model.id, digest, data) for digest, data in vectors.items()]
            self._db.executemany("INSERT INTO learned (model, hash, data) VALUES (?, ?, ?)", rows)

    def tokens_of(self, model: VectorModel, resources: Iterable[int]) -> dict[int, bytes]:
        """Return the token vectors of name and description, by resource, without resources that
        have none.
        """
        query = """SELECT s.resource, t.data FROM said s JOIN token t ON t.model = ?
            AND t.hash = s.hash
            WHERE s.role = ? AND s.resource IN (SELECT value FROM json_each(?))"""
        return dict(
            self._rows(
                query,
                model.id,
                TextRole.WHOLE,
                json.dumps(list(resources)),
            )
        )

    def all(self, model: VectorModel, role: TextRole) -> Iterator[tuple[int, bytes]]:
        """Yield each resource that has a vector of this role with it, by id; read to the end before
        writing.
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

    def _note(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, value))

    def _used_hashes(self, hashes: Iterable[bytes]) -> set[bytes]:
        query = "SELECT 1 FROM said WHERE hash = ? LIMIT 1"
        return {digest for digest in hashes if self._db.execute(query, (digest,)).fetchone()}

    def _hashes(self, ids: Sequence[int]) -> set[bytes]:
        query = "SELECT hash FROM said WHERE resource IN (SELECT value FROM json_each(?))"
        return {
            row[0]
            for row in self._db.execute(
                query,
                (json.dumps(list(ids)),),
            ).fetchall()
        }

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with _translate_damage(self.path), driver.ImmediateTransaction(self._db, self.path):
            yield


def _state(db: Connection, key: str) -> str:
    row = db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
    return str(row[0]) if row else ""


def _count_texts(db: Connection, model: int, roles: Sequence[TextRole]) -> tuple[int, int]:
    role_json = json.dumps(list(roles))
    values: tuple[Any, ...] = (role_json, model)
    done = db.execute(
        f"SELECT count(*) {_TEXTS} AND {_HAS}",
        values,
    ).fetchone()[0]
    return int(done), int(
        db.execute(
            f"SELECT count(*) {_TEXTS}",
            (role_json,),
        ).fetchone()[0]
    )
