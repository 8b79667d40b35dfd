"""Storage interfaces that callers use, and the rows of the release channel.

One suite of tests runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from evolvable_store.objects import Manifest, Version
from evolvable_store.operation import Actor, Change, Head, Intent, Operation
from evolvable_store.resource import Kind, Ref

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from evolvable_store.objects import Tombstone
    from evolvable_store.paths import TrustedFolders
    from evolvable_store.storage.attestations import Verify
    from evolvable_store.storage.maintenance import BlobLocation, BlobRow, LogExtent, PurgeJob
    from evolvable_store.storage.repositories import (
        Attestations,
        Bindings,
        Channel,
        Evidence,
        HeldDirectories,
        Observations,
        Proposals,
        Reviews,
        Signatures,
    )


class ReleasePolicy(StrEnum):
    """What moves the channel without being told to."""

    NEW = "new"
    """A skill that is new appears by itself; every later change of it waits until it is published."""

    MANUAL = "manual"
    """Nothing: new skills wait too."""

    LIVE = "live"
    """Everything: the channel follows the heads."""


DEFAULT_POLICY = ReleasePolicy.NEW
"""The policy of a library whose user has set none."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """Where the channel holds one skill: at a version, or nowhere. withdrawn: a person took it off."""

    version: int | None
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class MoveNote:
    """What a move says of itself. `operation`: the newest one of the library then. `policy`: when it set one."""

    at: str
    actor: Actor
    reason: str
    session: str | None
    operation: int
    policy: ReleasePolicy | None = None


class Secrets(Protocol):
    """Detected secrets, by the hash of the content."""

    def unscanned(self, rules: int) -> list[str]:
        """Return the hashes of the blobs that these rules have not scanned."""

    def packed(self, names: Iterable[str]) -> list[tuple[str, bytes, str]]:
        """Return hash, stored bytes and codec of these blobs."""

    def add(self, findings: Iterable[tuple[str, int, str]]) -> None:
        """Store the findings of scanned blobs: hash, rules, findings as JSON ('' for none)."""

    def found(self) -> dict[str, str]:
        """Return the findings, as JSON, of the blobs that have any."""

    def accepted(self) -> dict[str, str]:
        """Return the findings that a person accepted, by id, each with the reason."""

    def accept(self, finding: str, at: str, actor: str, reason: str) -> None:
        """Record that a person accepts a finding."""

    def locations(self, blobs: Iterable[str]) -> list[BlobLocation]:
        """Return every file of a version whose content is one of these blobs."""

    def locations_like(self, pattern: str) -> list[BlobLocation]:
        """Return every file of a version whose path matches a LIKE pattern, unless it was purged."""


class Purges(Protocol):
    """Purges of content. Deleted content is overwritten."""

    def begin(
        self, at: str, actor: str, reason: str, kind: str, texts: Iterable[bytes], blobs: Iterable[str]
    ) -> PurgeJob:
        """Record a purge before anything is removed, so that one that is killed can be finished."""

    def pending(self) -> list[PurgeJob]:
        """Return the purges that are not finished, oldest first."""

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the hash and the bytes of every blob."""

    def write_tombstones(self, job: PurgeJob, contents: Mapping[str, bytes]) -> list[str]:
        """Replace blobs by tombstones with these contents; return their hashes."""

    def replace_texts(self, job: PurgeJob) -> None:
        """Replace the texts of a job by its mark in every table that no hash covers; forget findings in its blobs."""

    def operations_with(self, texts: Iterable[bytes]) -> list[int]:
        """Return the operations whose reason or evidence holds one of these texts: version hashes cover them."""

    def finish(self, job: PurgeJob) -> bool:
        """Overwrite what the file and its log still hold of removed rows, and end the job.

        Returns:
            False when another process kept the log from being emptied: the purge is to be run again.
        """

    def tombstone(self, sha256: str) -> tuple[Tombstone, int] | None:
        """Return the record of the purge of a blob and its former size; None for a blob that has its bytes."""


class Maintenance(Protocol):
    """Checks, deletion of unreferenced blobs, copies."""

    def on_network(self) -> bool:
        """Return whether the library lies on a network file system."""

    def schema_version(self) -> int:
        """Return the number of the schema."""

    def table_sizes(self) -> dict[str, int]:
        """Return the number of rows of each table."""

    def file_faults(self) -> list[str]:
        """Return what the database reports about damage of its own file."""

    def extent(self) -> LogExtent:
        """Return the extent of the log now."""

    def blobs_after(self, identity: int, limit: int) -> list[tuple[int, str, int, str]]:
        """Return (id, sha256, size, codec) of up to `limit` blobs, by id."""

    def packed_by_id(self, identity: int) -> bytes | None:
        """Return the stored bytes of a blob, None when it was collected."""

    def packed_blob(self, sha256: str) -> tuple[bytes, str] | None:
        """Return the stored bytes of a blob and their codec, unverified."""

    def blob_size(self, sha256: str) -> int | None:
        """Return the size in the record of a blob, None when it is missing."""

    def changes_after(self, sequence: int, end: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (sequence, operation, whether the resource exists) of up to `limit` changes up to `end`."""

    def operations_after(self, identity: int, end: int, limit: int) -> list[tuple[int, int]]:
        """Return (first change, last change) of up to `limit` operations up to `end`."""

    def resources_after(self, identity: int, limit: int) -> list[tuple[int, str, str, str]]:
        """Return (id, kind, scope, name) of up to `limit` resources, by id."""

    def history_after(self, resource: int, after: tuple[int, int], end: int, limit: int) -> list[tuple[Any, ...]]:
        """Return up to `limit` changes of a resource up to `end`, in the order that makes the last one its head.

        Each is (latest, sequence, operation, before, after, tree, hash, frozen, manifest).

        Args:
            after: latest and sequence of the row before the first.
        """

    def has_history(self, resource: int) -> bool:
        """Return whether any change of a resource is stored."""

    def unreferenced_blobs(self) -> tuple[int, list[BlobRow]]:
        """Return the newest sequence, and the blobs that no version and no proposal refers to."""

    def delete_blobs(self, blobs: Iterable[BlobRow], seen: int) -> list[BlobRow]:
        """Delete those of these blobs to which no change after `seen` refers; return them."""

    def vacuum(self, *, in_memory: bool = False) -> None:
        """Rewrite the file without free space. in_memory: leave no temporary copy on the disk."""

    def empty_log(self) -> bool:
        """Copy the log into the file and empty it; return False when another process reads it."""

    def copy_to(self, file: Path, progress: Callable[[int, int], None]) -> None:
        """Copy the library as it is now, without its watched folders, and verify the copy.

        Args:
            progress: called with pages copied and all pages.

        Raises:
            LibraryCorrupt: The copy is damaged.
        """


Packed = tuple[str, int, bytes, str]
"""A blob ready to be stored: sha256, size, packed bytes, codec."""


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One change as another library made it: where the name pointed after it, and its newest version at that time.

    `manifest` is that of version `latest` when this step made it, with those `blobs` that its parent has not.
    """

    ref: Ref
    after: int | None
    latest: int
    hash: str
    frozen: bool
    manifest: Manifest | None = None
    blobs: tuple[Packed, ...] = ()


class Storage(Protocol):
    """One library. Each read sees one committed state; every write is atomic."""

    path: Path
    journal: str
    trusted_folders: TrustedFolders
    evidence: Evidence
    observations: Observations
    proposals: Proposals
    reviews: Reviews
    channel: Channel
    bindings: Bindings
    held: HeldDirectories
    attestations: Attestations
    secrets: Secrets
    purges: Purges
    maintenance: Maintenance

    @property
    def read_only(self) -> bool:
        """Whether the library cannot be written."""

    def close(self) -> None:
        """Close every file and connection."""

    def signatures(self, key: str, verify: Verify) -> Signatures:
        """Return the signatures under one key. key: the public key in hexadecimal."""

    def resource_ids(self) -> list[int]:
        """Return the ids of all resources, removed ones included."""

    def watching(self) -> AbstractContextManager[Callable[[], int]]:
        """Lend a function whose result changes when another process commits."""

    def head(self, kind: Kind, scope: str, name: str) -> Head | None:
        """Return where this name points, removed ones included, or None when it was never there."""

    def heads(self, kind: Kind | None = None, scope: str | None = None) -> list[Head]:
        """Return all living heads, ordered by kind, name and scope."""

    def heads_by_id(self, ids: Iterable[int]) -> dict[int, Head]:
        """Return the heads with these ids, removed ones included."""

    def version(self, resource: int, number: int) -> Version | None:
        """Return one version, or None."""

    def versions(self, resource: int, limit: int, below: int | None = None) -> list[Version]:
        """Return up to `limit` versions, newest first, with numbers under `below`."""

    def manifest(self, resource: int, number: int) -> Manifest | None:
        """Return the manifest of one version, or None."""

    def blob(self, sha256: str) -> bytes | None:
        """Return a blob's bytes, verified against its hash, or None. Raises LibraryCorrupt."""

    def operation(self, identity: int) -> Operation | None:
        """Return the operation with this id, or None."""

    def operations(self, limit: int, session: str | None = None) -> list[Operation]:
        """Return up to `limit` operations, newest first; with `session`, only those made in it."""

    def changes(self, after: int, limit: int) -> list[Change]:
        """Return up to `limit` changes with a sequence over `after`, oldest first."""

    def changes_of(self, operations: Sequence[int]) -> list[Change]:
        """Return all changes that these operations made, oldest first."""

    def changes_to(self, resource: int, after: int) -> list[Change]:
        """Return the changes to one resource with a sequence over `after`, oldest first."""

    def sequence(self) -> int:
        """Return the sequence of the newest change, 0 in an empty library."""

    def write(self) -> AbstractContextManager[Writer]:
        """Return a context that holds the only write lock; commits durably at its end, or rolls back."""


class Writer(Protocol):
    """What can be done while the write lock is held."""

    def head(self, kind: Kind, scope: str, name: str) -> Head | None:
        """As in Storage, inside the transaction."""

    def manifest(self, resource: int, number: int) -> Manifest | None:
        """As in Storage, inside the transaction."""

    def blob(self, sha256: str) -> bytes | None:
        """As in Storage, inside the transaction."""

    def sequence(self) -> int:
        """As in Storage, inside the transaction."""

    def add_blob(self, sha256: str, size: int, packed: bytes, codec: str) -> None:
        """Store a blob; one that is kept already stays as it is."""

    def add_resource(self, kind: Kind, scope: str, name: str) -> Head:
        """Return the head, which points nowhere yet, of a name that was never there."""

    def add_change(self, head: Head, operation: int, before: int | None, manifest: Manifest | None) -> None:
        """Points a name where `head` says; `manifest` is that of `head.latest` when this change makes it."""

    def add_operation(self, identity: int, last: int, intent: Intent, arrived: bool = False) -> None:
        """Keep an operation whose changes have the sequences `identity` to `last`. arrived: as in `Operation`."""

    def add_signature(self, operation: int, key: str, signature: bytes) -> None:
        """Keep the signature of an operation that was made in this transaction."""

    def bind(
        self, folder: int, directory: str, resource: int, version: int | None, signature: str, conflict: str
    ) -> None:
        """Record what a directory of a working copy holds, instead of what was noted before."""

    def close_proposal(self, proposal: int, state: str, decision: str, operation: int | None) -> bool:
        """Close an open proposal; returns False when it is not open."""

    def add_move(self, note: MoveNote, stands: Mapping[int, ChannelState]) -> int | None:
        """Puts these skills of the channel there in one move, and returns its id; None when nothing was to be done."""

    def follow(self, note: MoveNote, moved: Mapping[int, tuple[int | None, int | None]]) -> None:
        """Moves the channel as the policy asks for after the names of these skills moved, from a version to one."""
