"""Attestations of contents, and signatures of operations.

The content of a repository is untrusted until a person vouches for it, and so is what an agent
builds on it.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evolvable_store.operation import Identity, Principal, Signer, statement_of
from evolvable_store.storage.authorship import Attestation, effective_principal, list_attestations
from evolvable_store.storage.connection import read_queries
from evolvable_store.storage.sqlite_file import Database, SqliteRepository

QUERIES = read_queries()

# No resource has the number 0: its row says that the library was re-read.
_NEEDS_REREAD = """SELECT NOT EXISTS (SELECT 1 FROM attribution WHERE resource = 0)
    AND EXISTS (SELECT 1 FROM operation WHERE principal IS NULL)"""

Sign = Callable[[bytes], bytes]
"""Signs a statement."""

Verify = Callable[[bytes, bytes], bool]
"""Tells whether a signature of a statement is valid: (statement, signature)."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The last operation that is older than the lock: decisions up to it need no signature."""

    operation: int
    digest: str
    signature: bytes

    @property
    def statement(self) -> bytes:
        """The bytes that are signed."""
        return json.dumps(["evolvable baseline", 1, self.operation, self.digest]).encode("ascii")


def _digest_of(db: Any, operation: int) -> str:
    """Return the hash of the last change of an operation, '' for none.

    The chain of hashes behind it covers the history of its resource.
    """
    query = "SELECT hash FROM change WHERE operation = ? ORDER BY sequence DESC LIMIT 1"
    row = db.execute(query, (operation,)).fetchone()
    return str(row[0]) if row else ""


class Attestations(SqliteRepository):
    """The attestations of contents and the makers of versions, for writing; `AuthorshipReader`
    reads them.
    """

    def vouch(
        self,
        contents: Iterable[tuple[int, str]],
        at: str,
        identity: Identity,
        signer: Signer | None = None,
        folder: str = "",
    ) -> None:
        """Note that a person vouches for these contents (resource, tree).

        signer: where approvals are locked. folder: where the person trusts a folder that holds
        them; the decision counts while that folder is one of the backend's `trusted_folders`.
        """
        who = identity.principal, identity.via
        rows = []
        for resource, tree in contents:
            attestation = Attestation(resource, tree, at, *who, folder=folder)
            signature = signer.sign(attestation.statement) if signer else None
            # 0: not withdrawn.
            rows.append((resource, tree, at, *who, 0, signature, folder))
        self._add(rows)

    def withdraw(self, contents: Iterable[tuple[int, str]], at: str, identity: Identity) -> None:
        """Note that a person no longer vouches for these contents."""
        who = identity.principal, identity.via
        self._add([(resource, tree, at, *who, 1, None, "") for resource, tree in contents])

    def _add(self, rows: Iterable[tuple[object, ...]]) -> None:
        insert = """INSERT INTO vouched (resource, tree, at, principal, via, withdrawn, signature,
            folder)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
        with self._backend.writing() as db:
            db.executemany(insert, rows)

    def keep_folder(self, resources: Iterable[int], folder: str) -> None:
        """Note on which folder decisions were made that do not say so."""
        # Only rows of versions before decisions named a folder.
        update = "UPDATE vouched SET folder = ? WHERE resource = ? AND folder IS NULL"
        with self._backend.writing() as db:
            db.executemany(update, [(folder, resource) for resource in resources])

    def list_unlisted(self) -> list[Attestation]:
        """Return the decisions that do not count, because their folder is none of the
        `trusted_folders`.
        """
        folders = self._backend.trusted_folders()
        if folders is None:
            return []
        with self._backend.reading() as db:
            resources = [
                row[0] for row in db.execute("SELECT DISTINCT resource FROM vouched").fetchall()
            ]
            return [
                attestation
                for attestation in list_attestations(db, resources, None)
                if not attestation.counts(folders)
            ]

    def attribute(self, versions: Iterable[tuple[int, int]], at: str, identity: Identity) -> None:
        """Record the makers of these versions (resource, version), learned afterwards.

        The first record stays.
        """
        rows = [
            (resource, version, identity.principal, identity.via, at)
            for resource, version in versions
        ]
        with self._backend.writing() as db:
            db.executemany(
                # OR IGNORE: a later record must not replace the first one.
                "INSERT OR IGNORE INTO attribution (resource, version, principal, via, at) "
                "VALUES (?, ?, ?, ?, ?)",
                rows,
            )

    def makers(self, sha256: str, apart: tuple[int, int] | None = None) -> set[Principal]:
        """Return the principals that made the versions with a file of this hash.

        apart: a version (resource, number) that does not count.
        """
        # With its quotation marks the hash cannot match a part of something else in a manifest.
        rows = self._rows(QUERIES["makers"], f'%"{sha256}"%', sha256)
        return {
            effective_principal(*principal_fields)
            for resource, version, *principal_fields in rows
            if (resource, version) != apart
        }

    def learned_candidates(self, resource: int) -> dict[int, tuple[bool, list[str]]]:
        """Return the versions of a resource that may have been learned.

        By number: whether an agent, a review or a run made it, and the reason with the evidence, by
        which a caller judges the others.
        """
        rows = self._rows(QUERIES["learned"], resource)
        return {
            version: (bool(own), [reason, *json.loads(evidence)])
            for version, own, reason, evidence in rows
        }

    def signed_operations(self, operations: Iterable[int]) -> set[int]:
        """Return the operations among these that have a signature, valid or not."""
        query = """SELECT DISTINCT operation FROM signature
            WHERE operation IN (SELECT CAST(value AS INTEGER) FROM json_each(?))"""
        return set(self._all(int, query, json.dumps(list(operations))))

    def lock_keys(self) -> list[str]:
        """Return the public keys of the locks that this library has had, without those that were
        ended.
        """
        return self._all(str, "SELECT key FROM baseline ORDER BY key")

    def end_locks(self, keys: Iterable[str]) -> None:
        """Forget that the library had a lock with these keys. Signatures stay as they are."""
        with self._backend.writing() as db:
            db.executemany("DELETE FROM baseline WHERE key = ?", [(key,) for key in keys])

    def needs_reread(self) -> bool:
        """Return whether the library has operations of versions before 0.2 and was not re-read
        since.
        """
        return bool(self._one(_NEEDS_REREAD)[0])

    def note_reread(self, at: str) -> None:
        """Note that the library was re-read."""
        self.attribute([(0, 0)], at, Identity(Principal.UNKNOWN, "reread"))


class Signatures(SqliteRepository):
    """Signatures of operations under one key."""

    def __init__(self, backend: Database, key: str, verify: Verify) -> None:
        """key: the public key in hexadecimal."""
        super().__init__(backend)
        self._key, self._verify = key, verify

    def add_baseline(self, sign: Sign) -> Baseline:
        """Sign that every decision made so far counts, and keep it.

        An older baseline under this key is replaced.
        """
        with self._backend.writing() as db:
            newest = int(db.execute("SELECT coalesce(max(id), 0) FROM operation").fetchone()[0])
            unsigned = Baseline(newest, _digest_of(db, newest), b"")
            signed = replace(unsigned, signature=sign(unsigned.statement))
            row = (self._key, signed.operation, signed.digest, signed.signature)
            # In one transaction with the reading of the newest operation: none can slip in between.
            db.execute(
                "INSERT OR REPLACE INTO baseline (key, operation, digest, signature) "
                "VALUES (?, ?, ?, ?)",
                row,
            )
        return signed

    def baseline(self) -> int:
        """Return the newest operation that needs no signature; 0 when no valid baseline says so."""
        with self._backend.reading() as db:
            row = db.execute(
                "SELECT operation, digest, signature FROM baseline WHERE key = ?", (self._key,)
            ).fetchone()
            if row is None:
                return 0
            baseline = Baseline(int(row[0]), str(row[1]), bytes(row[2]))
            # The digest ties the baseline to this history: in another library it is worth nothing.
            is_of_history = _digest_of(db, baseline.operation) == baseline.digest
            is_valid = is_of_history and self._verify(baseline.statement, baseline.signature)
        return baseline.operation if is_valid else 0

    def valid_operations(self, operations: Iterable[int]) -> set[int]:
        """Return the operations among these that count: signed under this key, or not newer than
        the baseline.
        """
        wanted, baseline = set(operations), self.baseline()
        # Operations up to the baseline need no signature, since they are older than the lock.
        older = {operation for operation in wanted if operation <= baseline}
        return older | self._validly_signed(list(wanted - older))

    def signed_by(self, via: str, operations: Iterable[int]) -> set[int]:
        """Return the operations among these that this key signed in the name of one person, without
        a baseline.

        via: how the person is known.
        """
        return {
            operation
            for operation in self._validly_signed(list(operations))
            if self._names(operation, via)
        }

    def _names(self, identity: int, via: str) -> bool:
        operation = self._backend.operation(identity)
        # operation.principal, not that of the intent: what arrived with an archive grants nothing.
        if operation is None or operation.principal != Principal.PERSON:
            return False
        return operation.intent.via == via

    def _validly_signed(self, operations: Sequence[int]) -> set[int]:
        """Return the operations among these with a valid signature under the key."""
        query = """SELECT operation, signature FROM signature
            WHERE key = ? AND operation IN (SELECT CAST(value AS INTEGER) FROM json_each(?))"""
        rows = self._rows(query, self._key, json.dumps(operations)) if operations else []
        return {
            int(identity)
            for identity, signature in rows
            if self._is_valid(int(identity), bytes(signature))
        }

    def _is_valid(self, identity: int, signature: bytes) -> bool:
        operation = self._backend.operation(identity)
        if operation is None:
            return False
        moved = """SELECT r.kind, r.scope, r.name, c.after, c.hash FROM change c JOIN resource r
            ON r.id = c.resource
            WHERE c.operation = ? ORDER BY c.sequence"""
        return self._verify(statement_of(operation.intent, self._rows(moved, identity)), signature)
