"""The storage that callers use: versions, log and transactions; and the rows that cross it.

One suite of tests runs over every implementation. Evidence, proposals and the like have a
repository each, a class of its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from evolvable_store.objects import Manifest, Version
from evolvable_store.operation import Change, Head, Intent, Operation
from evolvable_store.provenance import Provenance
from evolvable_store.resource import Kind, Ref

if TYPE_CHECKING:
    from pathlib import Path

    from evolvable_store.storage.attestations import Attestations, Signatures, Verify
    from evolvable_store.storage.audit import AuditLog, Decision
    from evolvable_store.storage.authorship import AuthorshipReader
    from evolvable_store.storage.bindings import (
        Bindings,
        HeldDirectories,
        ProjectMarks,
        WaitingPlaces,
    )
    from evolvable_store.storage.collection_store import Collections
    from evolvable_store.storage.evidence import EvidenceLog
    from evolvable_store.storage.folding import Folding
    from evolvable_store.storage.learned import LearnedTasks
    from evolvable_store.storage.maintenance import Maintenance, Purges, Secrets
    from evolvable_store.storage.observations import Observations
    from evolvable_store.storage.proposals import ProposalBatch, Proposals, Reviews
    from evolvable_store.storage.release_channel import Channel, ChannelState, MoveNote
    from evolvable_store.storage.remotes import Remotes, RemoteState, RemoteWaiting
    from evolvable_store.storage.sqlite_file import FollowedFolders, TrustedFolders
    from evolvable_store.storage.transcript_rows import TranscriptRows
    from evolvable_store.storage.trial_pool import TrialPool


Packed = tuple[str, int, bytes, str]
"""A blob ready to be stored: sha256, size, packed bytes, codec."""


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """One change as another library made it: where the name pointed after it, and its newest
    version at that time.

    `manifest` is that of version `latest` when this step made it, with those `blobs` that its
    parent has not.
    """

    ref: Ref
    after: int | None
    latest: int
    hash: str
    frozen: bool
    manifest: Manifest | None = None
    blobs: tuple[Packed, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrivedStep:
    """One content that another library gave a resource.

    An empty manifest: the resource was removed there.
    """

    ref: Ref
    manifest: Manifest
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class SharedVector:
    """The vector of a text, and those of its tokens, one byte for each number; None where there are
    none.
    """

    numbers: tuple[float, ...]
    tokens: bytes | None = None


class SharedVectors(Protocol):
    """Vectors that the servers of a library share, by the hash of their text.

    A library in a file has none.
    """

    def find(self, model: str, hashes: Collection[bytes]) -> dict[bytes, SharedVector]:
        """Return the vectors of these texts, by hash, without texts that have none of the model."""

    def add(self, model: str, vectors: Mapping[bytes, SharedVector]) -> None:
        """Store vectors, in place of any that are there.

        Does nothing in a library that can only be read.
        """

    def remove(self, hashes: Iterable[bytes]) -> None:
        """Delete the vectors of these texts, of every model."""

    def remove_others(self, hashes: Iterable[bytes]) -> None:
        """Delete the vectors of all texts but these, of every model."""


class Storage(Protocol):
    """One library. Each read sees one committed state; every write is atomic."""

    path: Path
    """The library file, or the file with the address of the library."""

    where: str
    """How messages name the library: its path, or its address without the password."""

    journal: str
    """The journal mode of SQLite, '' where the library cannot be written; `postgresql`."""

    trusted_folders: TrustedFolders
    followed_folders: FollowedFolders
    evidence: EvidenceLog
    observations: Observations
    transcript_rows: TranscriptRows
    learned: LearnedTasks
    pool: TrialPool
    proposals: Proposals
    reviews: Reviews
    channel: Channel
    collections: Collections
    bindings: Bindings
    project_marks: ProjectMarks
    held_directories: HeldDirectories
    attestations: Attestations
    authorship: AuthorshipReader
    secrets: Secrets
    purges: Purges
    remotes: Remotes
    audit: AuditLog
    maintenance: Maintenance
    folding: Folding

    shared: bool
    """Whether homes of several people use one library, so that no home alone may make it coarser by
    itself.
    """

    @property
    def read_only(self) -> bool:
        """Whether the library cannot be written."""

    def close(self) -> None:
        """Close every file and connection."""

    def signatures(self, key: str, verify: Verify) -> Signatures:
        """Return the signatures under one key. key: the public key in hexadecimal."""

    def shared_vectors(self) -> SharedVectors | None:
        """Return the vectors that all servers of the library share; None where each home has its
        own.
        """

    def waiting_places(self) -> WaitingPlaces:
        """Return the places that a shared database, a move or a backup names; they wait for the
        person's consent.
        """

    def settle_places(self, found: WaitingPlaces) -> None:
        """Delete the waiting rows that the person was asked about."""

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

    def heads_by_name(self, kind: Kind, scope: str, names: Iterable[str]) -> dict[str, Head]:
        """Return the heads of a kind and a scope with these names, removed ones included."""

    def changed_heads(self, after: int, last: int) -> list[Head]:
        """Return the heads that changes with a sequence over `after`, up to `last`, moved; removed
        ones too.
        """

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

    def first_changes_of(self, operations: Sequence[int], most: int) -> list[Change]:
        """Return up to `most` changes of each of these operations, oldest first."""

    def changes_to(self, resource: int, after: int) -> list[Change]:
        """Return the changes to one resource with a sequence over `after`, oldest first."""

    def sequence(self) -> int:
        """Return the sequence of the newest change, 0 in an empty library."""

    def sequences(self) -> tuple[int, int]:
        """Return the sequence of the newest change, and the number of the newest change of learned
        tasks.
        """

    def write(self) -> AbstractContextManager[Writer]:
        """Return a context that holds the only write lock; commits durably at its end, or rolls
        back.
        """


class Writer(Protocol):
    """Operations while the write lock is held."""

    def head(self, kind: Kind, scope: str, name: str) -> Head | None:
        """Return the same as `Storage.head`, inside the transaction."""

    def manifest(self, resource: int, number: int) -> Manifest | None:
        """Return the same as `Storage.manifest`, inside the transaction."""

    def blob(self, sha256: str) -> bytes | None:
        """Return the same as `Storage.blob`, inside the transaction."""

    def sequence(self) -> int:
        """Return the same as `Storage.sequence`, inside the transaction."""

    def add_blob(self, sha256: str, size: int, packed: bytes, codec: str) -> None:
        """Store a blob; one that is stored already stays as it is."""

    def add_resource(self, kind: Kind, scope: str, name: str) -> Head:
        """Return the head, which points nowhere yet, of a name that was never there."""

    def rename(self, resource: int, scope: str, name: str) -> None:
        """Give a resource another scope and name, and open proposals about it too."""

    def rescope_folder(self, folder: int, scope: str) -> None:
        """Give a watched folder another scope, together with its held directories."""

    def rebind(self, folder: int, old: int, new: int) -> None:
        """Have the directories of a folder that hold one resource hold another one of the same
        versions.
        """

    def copy_authors(self, old: int, new: int) -> None:
        """Copy the authors of a resource's versions, and what a person vouches for, to the same
        versions of another.
        """

    def provenance(self, resource: int, number: int) -> Provenance:
        """Return which version brought the bytes of a version's files, against the base that counts
        now.
        """

    def add_change(
        self,
        head: Head,
        operation: int,
        before: int | None,
        manifest: Manifest | None,
        provenance: Provenance | None = None,
    ) -> None:
        """Point a name where `head` says.

        manifest, provenance: of `head.latest` when this change makes it.
        """

    def add_operation(
        self,
        identity: int,
        last: int,
        intent: Intent,
        arrived: bool = False,
        arrived_at: str | None = None,
    ) -> None:
        """Keep an operation whose changes have the sequences `identity` to `last`.

        arrived: as in `Operation`. arrived_at: when it came here from another library (ISO 8601 in
        UTC).
        """

    def add_signature(self, operation: int, key: str, signature: bytes) -> None:
        """Keep the signature of an operation that was made in this transaction."""

    def bind(
        self,
        folder: int,
        directory: str,
        resource: int,
        version: int | None,
        signature: str,
        conflict: str,
    ) -> None:
        """Record the content of a directory of a working copy, in place of an earlier record."""

    def close_proposal(
        self, proposal: int, state: str, decision: str, operation: int | None
    ) -> bool:
        """Close an open proposal; return False when it is not open."""

    def add_decisions(self, decisions: Sequence[Decision]) -> None:
        """Append decisions to the audit log."""

    def propose(self, batch: ProposalBatch) -> list[int]:
        """Store proposals, and return their ids."""

    def save_remote(self, state: RemoteState, waiting: Iterable[RemoteWaiting]) -> None:
        """Store how far the library and a remote are synchronised."""

    def add_move(self, note: MoveNote, states: Mapping[int, ChannelState]) -> int | None:
        """Place these skills on the channel in one move, and return its id; None when it would
        change nothing.
        """

    def follow(self, note: MoveNote, moved: Mapping[int, tuple[int | None, int | None]]) -> None:
        """Move the channel by its policy.

        moved: by skill, the version its name pointed to before and after.
        """
