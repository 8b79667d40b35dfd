"""A temporary database that holds an import until all of it is checked."""

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from evolvable_store.objects import Manifest, TreeEntry, unpack
from evolvable_store.operation import Actor, Intent, Principal
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_store.storage import connection
from evolvable_store.storage.connection import Connection
from evolvable_store.storage.protocol import Packed, ReplayStep
from evolvable_store.storage.release_channel import ChannelState, MoveNote, ReleasePolicy

_to_json = json.JSONEncoder(ensure_ascii=False).encode
Errors = connection.Errors
"""Errors of a record that cannot be stored."""


@dataclass(frozen=True, slots=True)
class StagedChange:
    """One change of the archive.

    `hash` and `manifest` are there when it made the version `after`.
    """

    position: int
    operation: int
    after: int | None
    hash: str
    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class CheckedState:
    """The result of checking a change: the state of its resource after it, and the blobs that its
    parent lacks.
    """

    latest: int
    hash: str
    frozen: bool
    blobs: tuple[str, ...] = ()


class ImportStaging:
    """The staged archive. Everything is deleted at the end of the context."""

    def __init__(self, beside: Path) -> None:
        """beside: a folder whose disk has room for the whole archive."""
        # Not SQLite's own temporary database: pysqlite3 keeps that in memory, however large it
        # grows.
        self._folder = tempfile.TemporaryDirectory(
            prefix=".import.", dir=beside, ignore_cleanup_errors=True
        )
        file = str(Path(self._folder.name) / "staging.db")
        # The same SQLite as the library's, so that both refuse the same values.
        self._db: Connection = connection.dbapi.connect(file, isolation_level=None)
        if os.name == "posix":
            # The open file stays, and nothing is left behind by a process that is killed.
            self._folder.cleanup()
        # Nothing survives a crash anyway: no log, no waiting for the disk.
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.executescript(connection.read_script("import_staging.sql"))

    def __enter__(self) -> Self:
        self._db.execute("BEGIN")
        return self

    def __exit__(self, *exception: object) -> None:
        self._db.close()
        self._folder.cleanup()

    def add_operation(self, identity: int, fields: list[Any]) -> None:
        """Add an operation."""
        self._db.execute("INSERT INTO operation VALUES (?, ?)", (identity, _to_json(fields)))

    def add_change(
        self, operation: int, ref: Ref, after: int | None, chained: str | None, files: Any
    ) -> None:
        """Add a change."""
        row = (operation, str(ref), after, chained, None if files is None else _to_json(files))
        self._db.execute(
            "INSERT INTO change (operation, ref, after, hash, files) VALUES (?, ?, ?, ?, ?)", row
        )

    def add_blob(self, sha256: str, size: int, data: bytes, codec: str) -> None:
        """Add a blob as the library stores it; the first of a name stays."""
        self._db.execute(
            "INSERT OR IGNORE INTO blob VALUES (?, ?, ?, ?)", (sha256, size, data, codec)
        )

    def add_move(self, fields: list[Any]) -> None:
        """Add a move of the channel."""
        self._db.execute("INSERT INTO move (fields) VALUES (?)", (_to_json(fields),))

    def add_evidence(self, fields: dict[str, Any]) -> None:
        """Add a record of evidence."""
        self._db.execute("INSERT INTO evidence (fields) VALUES (?)", (_to_json(fields),))

    def evidence(self) -> Iterator[dict[str, Any]]:
        """Yield the records of evidence in order."""
        for (fields,) in self._db.execute("SELECT fields FROM evidence ORDER BY position"):
            yield json.loads(fields)

    def moves(self) -> Iterator[tuple[MoveNote, list[tuple[Ref, ChannelState]]]]:
        """Yield the moves of the channel in order, each with its placements."""
        for (fields,) in self._db.execute("SELECT fields FROM move ORDER BY position"):
            at, actor, reason, session, policy, placed = json.loads(fields)
            note = MoveNote(
                at, Actor(actor), reason, session, policy=ReleasePolicy(policy) if policy else None
            )
            placements = [
                (_parse_ref(text), ChannelState(version, withdrawn))
                for text, version, withdrawn in placed
            ]
            yield note, placements

    def refs(self) -> list[Ref]:
        """Return every resource of the archive, in the order of the log."""
        rows = self._db.execute(
            "SELECT ref FROM change GROUP BY ref ORDER BY min(position)"
        ).fetchall()
        return [_parse_ref(text) for (text,) in rows]

    def changes(self, ref: Ref) -> Iterator[StagedChange]:
        """Yield the changes of one resource, in order."""
        query = (
            "SELECT position, operation, after, hash, files FROM change WHERE ref = ? "
            "ORDER BY position"
        )
        for position, operation, after, chained, files in self._db.execute(query, (str(ref),)):
            yield StagedChange(position, operation, after, chained or "", _parse_manifest(files))

    def intent(self, operation: int) -> Intent | None:
        """Return the intent of an operation, None for an unknown one."""
        row = self._db.execute("SELECT fields FROM operation WHERE id = ?", (operation,)).fetchone()
        if row is None:
            return None
        at, actor, reason, session, evidence, undoes, principal, via = json.loads(row[0])
        # None in archives of versions before 0.2.
        intent_principal = Principal(principal) if principal is not None else None
        return Intent(
            at, Actor(actor), reason, session, tuple(evidence), tuple(undoes), intent_principal, via
        )

    def size(self, sha256: str) -> int | None:
        """Return how many bytes a blob has, None when it is missing."""
        row = self._db.execute("SELECT size FROM blob WHERE sha256 = ?", (sha256,)).fetchone()
        return row and int(row[0])

    def blob(self, sha256: str) -> bytes:
        """Return the bytes of a blob that is there."""
        query = "SELECT data, codec FROM blob WHERE sha256 = ?"
        return unpack(*self._db.execute(query, (sha256,)).fetchone())

    def packed_blob(self, sha256: str) -> Packed:
        """Return a blob that is there as the library keeps it."""
        query = "SELECT sha256, size, data, codec FROM blob WHERE sha256 = ?"
        sha256, size, data, codec = self._db.execute(query, (sha256,)).fetchone()
        return sha256, size, data, codec

    def judge(self, change: StagedChange, verdict: CheckedState) -> None:
        """Store the result of checking a change."""
        blobs = json.dumps(verdict.blobs)
        self._db.execute(
            "UPDATE change SET latest = ?, hash = ?, frozen = ?, blobs = ? WHERE position = ?",
            (verdict.latest, verdict.hash, verdict.frozen, blobs, change.position),
        )

    def latest(self, ref: Ref) -> int:
        """Return the highest version of a checked resource."""
        query = "SELECT max(latest) FROM change WHERE ref = ?"
        return int(self._db.execute(query, (str(ref),)).fetchone()[0])

    def steps_at(self, ref: Ref, latest: int) -> list[tuple[int, int | None, str, int]]:
        """Return (operation, after, hash, position) of the changes that leave `latest` newest."""
        query = (
            "SELECT operation, after, hash, position FROM change WHERE ref = ? AND latest = ? "
            "ORDER BY position"
        )
        return self._db.execute(query, (str(ref), latest)).fetchall()

    def clear_missing(self) -> None:
        """Clear the marks of missing changes."""
        self._db.execute("UPDATE change SET missing = 0 WHERE missing")

    def mark_missing(self, ref: Ref, behind: int) -> None:
        """Mark the changes of a resource behind this position as missing in the library."""
        self._db.execute(
            "UPDATE change SET missing = 1 WHERE ref = ? AND position > ?", (str(ref), behind)
        )

    def missing_blobs(self) -> Iterator[tuple[str, int]]:
        """Yield the blobs that missing changes bring, each once, with its size as packed."""
        query = """SELECT sha256, length(data) FROM blob
            WHERE sha256 IN (SELECT value FROM change, json_each(change.blobs) WHERE missing)"""
        yield from self._db.execute(query)

    def missing_steps(self) -> Iterator[tuple[int, ReplayStep]]:
        """Yield the missing changes in the order of the log, each with its operation."""
        query = """SELECT operation, ref, after, latest, hash, frozen, files, blobs FROM change
            WHERE missing ORDER BY position"""
        for operation, ref, after, latest, chained, frozen, files, blobs in self._db.execute(query):
            packed = tuple(map(self.packed_blob, json.loads(blobs)))
            state = (_parse_ref(ref), after, latest, chained, frozen == 1)
            yield operation, ReplayStep(*state, _parse_manifest(files), packed)


def _parse_ref(text: str) -> Ref:
    # A ref without a scope is one of the user's.
    ref = Ref.parse(text)
    return ref if ref.scope else ref.within(USER_SCOPE)


def _parse_manifest(files: str | None) -> Manifest | None:
    if files is None:
        return None
    return Manifest({path: TreeEntry(*entry) for path, entry in json.loads(files).items()})
