"""Signatures of operations: which of them a person signed with the key that a passphrase opens."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evolvable_store.operation import statement_of
from evolvable_store.sqlite import SqliteBackend

Sign = Callable[[bytes], bytes]
"""Signs a statement."""

Verify = Callable[[bytes, bytes], bool]
"""Tells whether a signature of a statement is valid: (statement, signature)."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The operation up to which decisions count without a signature, because they are older than the lock."""

    operation: int
    digest: str
    signature: bytes

    @property
    def statement(self) -> bytes:
        """What is signed."""
        return json.dumps(["evolvable baseline", 1, self.operation, self.digest]).encode("ascii")


class Signatures:
    """The signatures of one library, under one key."""

    def __init__(self, backend: SqliteBackend, key: str, verify: Verify) -> None:
        """key: the public key in hexadecimal."""
        self._backend, self._key, self._verify = backend, key, verify

    def add_baseline(self, sign: Sign) -> Baseline:
        """Sign that every decision made so far counts, and keep it; an older baseline under this key is replaced."""
        with self._backend.writing() as db:
            newest = int(db.execute("SELECT coalesce(max(id), 0) FROM operation").fetchone()[0])
            drawn = Baseline(newest, _digest(db, newest), b"")
            signed = Baseline(drawn.operation, drawn.digest, sign(drawn.statement))
            row = (self._key, signed.operation, signed.digest, signed.signature)
            db.execute("INSERT OR REPLACE INTO baseline VALUES (?, ?, ?, ?)", row)
        return signed

    def baseline(self) -> int:
        """Return the newest operation that needs no signature; 0 when no valid baseline says so."""
        with self._backend.reading() as db:
            row = db.execute("SELECT operation, digest, signature FROM baseline WHERE key = ?", (self._key,)).fetchone()
            if row is None:
                return 0
            found = Baseline(int(row[0]), str(row[1]), bytes(row[2]))
            valid = _digest(db, found.operation) == found.digest and self._verify(found.statement, found.signature)
        return found.operation if valid else 0

    def vouched(self, operations: Iterable[int]) -> set[int]:
        """Return those of these operations that count: signed under this key, or not newer than the baseline."""
        wanted, before = set(operations), self.baseline()
        return {one for one in wanted if one <= before} | self._signed([one for one in wanted if one > before])

    def _signed(self, operations: Sequence[int]) -> set[int]:
        query = """SELECT operation, signature FROM signature
            WHERE key = ? AND operation IN (SELECT value FROM json_each(?))"""
        with self._backend.reading() as db:
            rows = db.execute(query, (self._key, json.dumps(operations))).fetchall() if operations else []
        return {int(identity) for identity, signature in rows if self._is_valid(int(identity), bytes(signature))}

    def _is_valid(self, identity: int, signature: bytes) -> bool:
        operation = self._backend.operation(identity)
        if operation is None:
            return False
        return self._verify(statement_of(operation.intent, _moved(self._backend, identity)), signature)


def _moved(backend: SqliteBackend, operation: int) -> list[tuple[str, str, str, int | None, str]]:
    query = """SELECT r.kind, r.scope, r.name, c.after, c.hash FROM change c JOIN resource r ON r.id = c.resource
        WHERE c.operation = ? ORDER BY c.sequence"""
    with backend.reading() as db:
        return [(row[0], row[1], row[2], row[3], row[4]) for row in db.execute(query, (operation,)).fetchall()]


def _digest(db: Any, newest: int) -> str:
    """Return the hash of the last change of an operation; the chain behind it covers the history of its resource."""
    row = db.execute("SELECT hash FROM change WHERE operation = ? ORDER BY sequence DESC LIMIT 1", (newest,)).fetchone()
    return str(row[0]) if row else ""
