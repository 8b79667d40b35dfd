"""A library, opened: reading with convenient types, and the start of a transaction."""

import os
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from evolvable_store.errors import (
    LibraryCorrupt,
    NoSuchFile,
    NoSuchOperation,
    NoSuchResource,
    NoSuchVersion,
    quote_text,
)
from evolvable_store.objects import File, Manifest, Version
from evolvable_store.operation import (
    Actor,
    Change,
    Head,
    Identity,
    Intent,
    Operation,
    Principal,
    Signer,
)
from evolvable_store.paths import ADDRESS_FILE, Registered, no_homes
from evolvable_store.resource import USER_SCOPE, Kind, Ref, near_names
from evolvable_store.storage import Storage
from evolvable_store.storage.sqlite import SqliteStorage
from evolvable_store.transaction import Transaction, format_time

OPENER = "evolvable_server.plugins:open_storage"
"""The function that opens a library in PostgreSQL, by name: it lies in a layer above the store."""


def utc_now() -> datetime:
    """Return the present, aware, in UTC."""
    return datetime.now(UTC)


# Nobody vouches for a human's change without an identity: a caller that knows the person names it.
_WITHOUT_IDENTITY = {Actor.HUMAN: Principal.UNKNOWN, Actor.IMPORT: Principal.IMPORT}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A version together with the operation that made it."""

    version: Version
    operation: Operation


class Store:
    """One library. Shared freely between threads; every read sees one committed state."""

    def __init__(
        self, backend: Storage, home: Path, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.backend, self.home, self.clock = backend, home, clock

    @classmethod
    def open(
        cls,
        home: Path,
        *,
        create: bool = False,
        clock: Callable[[], datetime] = utc_now,
        registered: Registered = no_homes,
    ) -> Self:
        """Return the library in the folder `home`; with `create`, make it when it is missing.

        registered: returns the homes that the person registered, which may belong to another
        account or lie in a work tree. Raises UntrustedHome, NoLibrary, LibraryTooNew,
        LibraryCorrupt or LibraryReadOnly.
        """
        # The address file first: a library that moved to PostgreSQL may have left a SQLite file.
        if os.path.exists(os.path.join(home, ADDRESS_FILE)):
            # By name: an import here would make the store depend on packages above it.
            backend: Storage = pkgutil.resolve_name(OPENER)(home, create, registered)
        else:
            backend = SqliteStorage(home, create=create, registered=registered)
        return cls(backend, home, clock)

    @property
    def read_only(self) -> bool:
        """Whether the library lies where it cannot be written."""
        return self.backend.read_only

    def now(self) -> str:
        """Return the clock's present as stored: ISO 8601 in UTC."""
        return format_time(self.clock())

    def close(self) -> None:
        """Close the library's files."""
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def transaction(
        self,
        actor: Actor,
        reason: str,
        *,
        session: str | None = None,
        evidence: Sequence[str] = (),
        undoes: Sequence[int] = (),
        identity: Identity | None = None,
        signer: Signer | None = None,
        address: str = "",
    ) -> Transaction:
        """Return a transaction; use it as `with store.transaction(...) as tx:`.

        identity: on whose behalf it is made; without one, a human actor's change counts as of an
        unknown principal. signer: signs the operation, where the person locked approvals. address:
        from where, for the audit log.
        """
        effective_identity = identity or Identity(_WITHOUT_IDENTITY.get(actor, Principal.AGENT))
        # The time '' is replaced by that of publishing, see `Transaction._publish`.
        intent = Intent(
            "",
            actor,
            reason,
            session,
            tuple(evidence),
            tuple(undoes),
            effective_identity.principal,
            effective_identity.via,
        )
        return Transaction(self.backend, self.clock, intent, signer, address)

    def head(self, ref: Ref, scopes: Sequence[str] = (USER_SCOPE,)) -> Head:
        """Return the living head that `ref` names, in its own scope or else in `scopes`, in order.

        Raises NoSuchResource, which says that it was removed, or names resources of similar names.
        """
        head = self.head_or_none(ref, scopes)
        if head is None or head.version is None:
            raise self._make_missing_error(ref, scopes, head)
        return head

    def head_or_none(self, ref: Ref, scopes: Sequence[str] = (USER_SCOPE,)) -> Head | None:
        """Return the first living head as `head` does, else a removed one, else None.

        Resources that a repository brought and nobody trusts come after all others of the name.
        """
        searched = (ref.scope,) if ref.scope else scopes
        heads = [self.backend.head(ref.kind, scope, ref.name) for scope in searched]
        existing = [head for head in heads if head is not None]
        living = [head for head in existing if head.version is not None]
        # The query on trust is made only where two scopes have the name.
        if len(living) > 1:
            last = self.backend.authorship.untrusted_resources([head.id for head in living])
            # A stable sort: within each group the order of the scopes stays.
            living.sort(key=lambda head: head.id in last)
        return next(iter([*living, *existing]), None)

    def _make_missing_error(
        self, ref: Ref, scopes: Sequence[str], removed: Head | None
    ) -> NoSuchResource:
        if removed is not None:
            return NoSuchResource(
                f"{removed.ref} was removed; its {removed.latest} versions are kept.",
                f"restore_resource with version {removed.latest} brings it back.",
            )
        heads = self.backend.heads(ref.kind)
        # The same name in another scope is a better guess than a similar name.
        elsewhere = [str(head.ref) for head in heads if head.name == ref.name][:3]
        near = elsewhere or near_names(ref.name, {head.name for head in heads}, 3)
        suggestion = f"Did you mean {' or '.join(near)}? " if near else ""
        where = f" in scope {ref.scope}" if ref.scope else ""
        return NoSuchResource(
            f"There is no {ref.kind} named {ref.name}{where}.",
            f"{suggestion}find_skill searches by task, list_resources shows all names.",
        )

    def heads(self, kind: Kind | None = None, scope: str | None = None) -> list[Head]:
        """Return all living heads, ordered by kind, name and scope."""
        return self.backend.heads(kind, scope)

    def version(self, head: Head, number: int | None = None) -> Version:
        """Return one version of a resource, by default the newest. Raises NoSuchVersion."""
        version_number = head.latest if number is None else number
        version = self.backend.version(head.id, version_number)
        if version is None:
            raise _make_version_error(head, version_number)
        return version

    def manifest(self, head: Head, number: int | None = None) -> Manifest:
        """Return the manifest of one version, by default the newest. Raises NoSuchVersion."""
        version_number = head.latest if number is None else number
        manifest = self.backend.manifest(head.id, version_number)
        if manifest is None:
            raise _make_version_error(head, version_number)
        return manifest

    def files(self, head: Head, number: int | None = None) -> dict[str, File]:
        """Return all files of one version, by default the newest.

        Raises NoSuchVersion, LibraryCorrupt.
        """
        return self.files_of(self.manifest(head, number))

    def files_of(self, manifest: Manifest) -> dict[str, File]:
        """Return the files that a manifest names.

        Raises LibraryCorrupt when a blob is missing or damaged.
        """
        return {path: File(self.blob(entry.sha256), entry.mode) for path, entry in manifest.items()}

    def file(self, head: Head, path: str, number: int | None = None) -> File:
        """Return one file. Raises NoSuchFile, which lists the files there are; NoSuchVersion."""
        manifest = self.manifest(head, number)
        entry = manifest.get(path)
        if entry is None:
            # A message for a model: 20 names are enough to see the pattern.
            paths = ", ".join(sorted(manifest)[:20]) + (", ..." if len(manifest) > 20 else "")
            raise NoSuchFile(
                f"{head.ref.at(number or head.latest)} has no file {quote_text(path, 200)}.",
                f"Its files: {paths}.",
            )
        return File(self.blob(entry.sha256), entry.mode)

    def blob(self, sha256: str) -> bytes:
        """Return a blob's verified bytes. Raises LibraryCorrupt when it is missing or damaged."""
        data = self.backend.blob(sha256)
        if data is None:
            raise LibraryCorrupt(f"Blob {sha256[:12]} is missing.", "Run `evolvable care fsck`.")
        return data

    def history(self, head: Head, limit: int = 20, below: int | None = None) -> list[HistoryEntry]:
        """Return up to `limit` versions with their operations, newest first."""
        versions = self.backend.versions(head.id, limit, below)
        return [HistoryEntry(version, self.operation(version.operation)) for version in versions]

    def operation(self, identity: int) -> Operation:
        """Return the operation with this id. Raises NoSuchOperation."""
        operation = self.backend.operation(identity)
        if operation is None:
            raise NoSuchOperation(
                f"There is no operation {identity}.",
                "resource_history shows the operation of each version, `evolvable log` the newest.",
            )
        return operation

    def operations(self, limit: int = 20, session: str | None = None) -> list[Operation]:
        """Return up to `limit` operations, newest first; with `session`, only those made in it."""
        return self.backend.operations(limit, session)

    def changes(self, after: int = 0, limit: int = 1000) -> list[Change]:
        """Return the changes with a sequence over `after`, oldest first."""
        return self.backend.changes(after, limit)

    def sequence(self) -> int:
        """Return the sequence of the newest change, 0 in an empty library."""
        return self.backend.sequence()


def _make_version_error(head: Head, number: int) -> NoSuchVersion:
    return NoSuchVersion(
        f"{head.ref} has no version {number}.", f"It has versions 1 to {head.latest}."
    )
