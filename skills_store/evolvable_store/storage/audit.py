"""The audit log: who decided what, from where and when, in rows that are chained by hashes."""

import hashlib
import json
import socket
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace

from evolvable_store.operation import Identity
from evolvable_store.storage.connection import Connection
from evolvable_store.storage.sqlite_file import SqliteRepository

PAGE = 1_000
"""Rows that are read at once."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision before it is recorded.

    name: what was done, such as `approve`. subject: on what, with its version where it has one.
    address: from where, '' for this machine. operation: of the library, where the decision made
    one.
    """

    at: str
    name: str
    subject: str
    identity: Identity
    address: str = ""
    session: str = ""
    operation: int | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A row of the audit log.

    previous: the hash of the row before it, '' for the first. hash: covers the whole row.
    """

    number: int
    at: str
    decision: str
    subject: str
    principal: str
    via: str
    address: str
    session: str
    operation: int | None
    previous: str
    hash: str

    @property
    def expected_hash(self) -> str:
        """The hash that the row must have."""
        fields = (
            "evolvable care audit",
            1,
            self.number,
            self.at,
            self.decision,
            self.subject,
            self.principal,
            self.via,
            self.address,
            self.session,
            self.operation,
            self.previous,
        )
        return hashlib.sha256(json.dumps(fields).encode("ascii")).hexdigest()


def add_decisions(db: Connection, decisions: Sequence[Decision]) -> None:
    """Append decisions, inside the transaction that makes them. Without any, nothing is read."""
    if not decisions:
        return
    # Under the write lock of the caller: two processes cannot both chain to this row.
    row = db.execute("SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1").fetchone()
    number, previous = row or (0, "")
    for decision in decisions:
        entry = AuditEntry(
            number=number + 1,
            at=decision.at,
            decision=_storable(decision.name),
            subject=_storable(decision.subject),
            principal=decision.identity.principal.value,
            via=_storable(decision.identity.via),
            # A shared library has rows from several machines.
            address=_storable(decision.address or socket.gethostname()),
            session=_storable(decision.session),
            operation=decision.operation,
            previous=previous,
            hash="",
        )
        # The hash is computed from the entry as it is stored, so that a check can compare it.
        number, previous = entry.number, entry.expected_hash
        values = astuple(replace(entry, hash=previous))
        db.execute(f"INSERT INTO audit ({_COLUMNS}) VALUES ({_PLACES})", values)


def _storable(text: str) -> str:
    """Return a text in the form in which a database returns it, because the hash covers that."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


_COLUMNS = (
    "number, at, decision, subject, principal, via, address, session, operation, previous, hash"
)
_PLACES = ", ".join("?" * len(_COLUMNS.split(", ")))

_ROWS = f"SELECT {_COLUMNS} FROM audit"


class AuditLog(SqliteRepository):
    """Decisions in order. Rows are added and read, never changed."""

    def add(self, *decisions: Decision) -> None:
        """Append decisions that make no operation."""
        with self._backend.writing() as db:
            add_decisions(db, decisions)

    def entries(self, after: int = 0, limit: int = PAGE) -> list[AuditEntry]:
        """Return up to `limit` entries with a number over `after`, oldest first."""
        return self._all(
            AuditEntry, f"{_ROWS} WHERE number > ? ORDER BY number LIMIT ?", after, limit
        )

    def newest(self, limit: int) -> list[AuditEntry]:
        """Return up to `limit` entries, newest first."""
        return self._all(AuditEntry, f"{_ROWS} ORDER BY number DESC LIMIT ?", limit)

    def unrecorded_approvals(self) -> list[tuple[int, int]]:
        """Return (proposal, operation) of approvals without a row.

        Only since the first recorded operation.
        """
        query = """SELECT id, operation FROM proposal WHERE state = 'approved'
            AND operation IS NOT NULL
            AND operation > (SELECT min(operation) FROM audit WHERE operation IS NOT NULL)
            AND NOT EXISTS (SELECT 1 FROM audit WHERE audit.operation = proposal.operation)
            ORDER BY id"""
        return [(int(proposal), int(operation)) for proposal, operation in self._rows(query)]
