"""What a place that keeps libraries must be able to do. One suite of tests runs over every implementation."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from evolvable_store.objects import Manifest, Version
from evolvable_store.operation import Change, Head, Intent, Operation
from evolvable_store.placings import Note, Stand
from evolvable_store.resource import Kind


class Backend(Protocol):
    """Reads: each sees one committed state. Writes: only through `write()`."""

    def head(self, kind: Kind, scope: str, name: str) -> Head | None:
        """Returns where this name points, removed ones included, or None when it was never there."""

    def heads(self, kind: Kind | None = None, scope: str | None = None) -> list[Head]:
        """Returns all living heads, ordered by kind, name and scope."""

    def heads_by_id(self, ids: Iterable[int]) -> dict[int, Head]:
        """Returns the heads with these ids, removed ones included."""

    def version(self, resource: int, number: int) -> Version | None:
        """Returns one version, or None."""

    def versions(self, resource: int, limit: int, below: int | None = None) -> list[Version]:
        """Returns up to `limit` versions, newest first, with numbers under `below`."""

    def manifest(self, resource: int, number: int) -> Manifest | None:
        """Returns the manifest of one version, or None."""

    def blob(self, sha256: str) -> bytes | None:
        """Returns a blob's bytes, verified against its hash, or None. Raises LibraryCorrupt."""

    def operation(self, identity: int) -> Operation | None:
        """Returns the operation with this id, or None."""

    def operations(self, limit: int, session: str | None = None) -> list[Operation]:
        """Returns up to `limit` operations, newest first; with `session`, only those made in it."""

    def changes(self, after: int, limit: int) -> list[Change]:
        """Returns up to `limit` changes with a sequence over `after`, oldest first."""

    def changes_of(self, operations: Sequence[int]) -> list[Change]:
        """Returns all changes that these operations made, oldest first."""

    def changes_to(self, resource: int, after: int) -> list[Change]:
        """Returns the changes to one resource with a sequence over `after`, oldest first."""

    def sequence(self) -> int:
        """Returns the sequence of the newest change, 0 in an empty library."""

    def write(self) -> AbstractContextManager["Writer"]:
        """Returns a context that holds the only write lock; commits durably at its end, or rolls back."""


class Writer(Protocol):
    """What can be done while the write lock is held."""

    def head(self, kind: Kind, scope: str, name: str) -> Head | None:
        """As in Backend, inside the transaction."""

    def manifest(self, resource: int, number: int) -> Manifest | None:
        """As in Backend, inside the transaction."""

    def blob(self, sha256: str) -> bytes | None:
        """As in Backend, inside the transaction."""

    def sequence(self) -> int:
        """As in Backend, inside the transaction."""

    def add_blob(self, sha256: str, size: int, packed: bytes, codec: str) -> None:
        """Keeps a blob; one that is kept already stays as it is."""

    def add_resource(self, kind: Kind, scope: str, name: str) -> Head:
        """Returns the head, which points nowhere yet, of a name that was never there."""

    def add_change(self, head: Head, operation: int, before: int | None, manifest: Manifest | None) -> None:
        """Points a name where `head` says; `manifest` is that of `head.latest` when this change makes it."""

    def add_operation(self, identity: int, last: int, intent: Intent, arrived: bool = False) -> None:
        """Keep an operation whose changes have the sequences `identity` to `last`. arrived: as in `Operation`."""

    def add_signature(self, operation: int, key: str, signature: bytes) -> None:
        """Keep the signature of an operation that was made in this transaction."""

    def bind(
        self, folder: int, directory: str, resource: int, version: int | None, signature: str, conflict: str
    ) -> None:
        """Notes what a directory of a working copy holds, instead of what was noted before."""

    def close_proposal(self, proposal: int, state: str, decision: str, operation: int | None) -> bool:
        """Closes an open proposal; returns False when it is not open."""

    def add_move(self, note: Note, stands: Mapping[int, Stand]) -> int | None:
        """Puts these skills of the channel there in one move, and returns its id; None when nothing was to be done."""

    def follow(self, note: Note, moved: Mapping[int, tuple[int | None, int | None]]) -> None:
        """Moves the channel as the policy asks for after the names of these skills moved, from a version to one."""
