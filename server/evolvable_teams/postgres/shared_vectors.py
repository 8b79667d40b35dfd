"""Vectors of texts in PostgreSQL, computed once for all servers of a project.

They lie in a table with pgvector's type, where the database has that extension. The table is
derived: without it every home computes the vectors itself. Its rows belong to texts, by the hash,
and not to resources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from struct import calcsize, unpack_from
from typing import Protocol, cast

from evolvable_store.storage import Lender, SharedVector
from evolvable_teams.postgres.connection import PostgresConnection
from evolvable_teams.postgres.vector_table import look_for_table, with_type

_FIND = """SELECT hash, {send}(value), tokens FROM embedding
    WHERE project = visible_project() AND model = $1 AND hash = ANY($2)"""

_ADD = """INSERT INTO embedding (model, hash, value, tokens)
    SELECT $1, given.hash, given.value::{vector}, given.tokens
    FROM unnest($2::bytea[], $3::text[], $4::bytea[]) AS given (hash, value, tokens)
    ORDER BY given.hash
    ON CONFLICT (project, model, hash)
    DO UPDATE SET value = excluded.value, tokens = coalesce(excluded.tokens, embedding.tokens)"""


class _VectorLender(Lender, Protocol):
    """The part of the storage that vectors need."""

    @property
    def read_only(self) -> bool:
        """Whether the library cannot be written."""


class PostgresVectors:
    """The vectors that the servers of a project share. Safe to share between threads.

    Its writes take no lock of the project and are not announced: nobody waits for a vector.
    """

    def __init__(self, storage: _VectorLender, namespace: str) -> None:
        self._storage = storage
        self._find, self._add = (with_type(statement, namespace) for statement in (_FIND, _ADD))

    def find(self, model: str, hashes: Collection[bytes]) -> dict[bytes, SharedVector]:
        """Return those of these texts that have a vector of the model."""
        with self._storage.reading() as db:
            rows = cast(PostgresConnection, db).query(self._find, [model, list(hashes)]).fetchall()
        return {digest: SharedVector(_numbers(value), tokens) for digest, value, tokens in rows}

    def add(self, model: str, vectors: Mapping[bytes, SharedVector]) -> None:
        """Store vectors by the hash of their texts, in place of any that are there."""
        if self._storage.read_only or not vectors:
            return
        values = [f"[{','.join(map(repr, vector.numbers))}]" for vector in vectors.values()]
        tokens = [vector.tokens for vector in vectors.values()]
        self._write(self._add, [model, list(vectors), values, tokens])

    def remove(self, hashes: Iterable[bytes]) -> None:
        """Delete the vectors of these texts, of every model."""
        if gone := list(hashes):
            self._write(b"DELETE FROM embedding WHERE hash = ANY($1)", [gone])

    def remove_others(self, hashes: Iterable[bytes]) -> None:
        """Delete the vectors of all texts but these, of every model."""
        self._write(b"DELETE FROM embedding WHERE hash <> ALL($1::bytea[])", [list(hashes)])

    def _write(self, statement: bytes, values: list[object]) -> None:
        if not self._storage.read_only:
            # `reading` lends a connection without the project's lock, where a statement commits.
            with self._storage.reading() as db:
                cast(PostgresConnection, db).query(statement, values)


def _numbers(value: bytes) -> tuple[float, ...]:
    """Return the numbers in pgvector's binary form: the count, an unused number, float4 values."""
    (count,) = unpack_from(">H", value)
    return unpack_from(f">{count}f", value, calcsize(">HH"))


def open_shared_vectors(storage: _VectorLender) -> PostgresVectors | None:
    """Return the shared vectors, None where there is no table or the role may not read it."""
    with storage.reading() as db:
        raw = cast(PostgresConnection, db).raw
        namespace, exists = look_for_table(raw)
        if namespace is None or not exists:
            return None
        readable = (
            "SELECT has_table_privilege('evolvable.embedding', 'SELECT'), "
            "has_schema_privilege($1, 'USAGE')"
        )
        row = raw.execute(readable, [namespace]).fetchone()
    return PostgresVectors(storage, namespace) if row and all(row) else None
