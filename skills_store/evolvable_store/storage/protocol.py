"""The rows of the stable channel, written inside a transaction: what each move placed, and what the policy asks for.

What a place that keeps libraries must be able to do. One suite of tests runs over every implementation.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from evolvable_store.objects import Manifest, Version
from evolvable_store.operation import Actor, Change, Head, Intent, Operation
from evolvable_store.resource import Kind

if TYPE_CHECKING:
    from evolvable_store.storage.connection import Connection


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


def read_policy(db: "Connection") -> ReleasePolicy:
    """Returns the policy in force."""
    row = db.execute("SELECT policy FROM move WHERE policy IS NOT NULL ORDER BY id DESC LIMIT 1").fetchone()
    return ReleasePolicy(row[0]) if row else DEFAULT_POLICY


def read_channel_state(db: "Connection", resource: int) -> ChannelState | None:
    """Returns where the channel holds a resource, None when it never did."""
    query = "SELECT after, withdrawn FROM placing WHERE resource = ? ORDER BY move DESC LIMIT 1"
    row = db.execute(query, (resource,)).fetchone()
    return ChannelState(row[0], row[1] == 1) if row else None


def add_move(db: "Connection", note: MoveNote, stands: Mapping[int, ChannelState]) -> int | None:
    """Keeps one move that puts these resources there, and returns its id; None when it would change nothing."""
    rows = []
    for resource, there in stands.items():
        held = read_channel_state(db, resource) or ChannelState(None)
        if held != there:
            rows.append((resource, held.version, there.version, int(there.withdrawn)))
    if not rows and note.policy is None:
        return None
    values: tuple[Any, ...] = (note.at, note.actor, note.reason, note.session, note.operation, note.policy)
    insert = "INSERT INTO move (at, actor, reason, session, operation, policy) VALUES (?, ?, ?, ?, ?, ?)"
    move = db.execute(insert, values).lastrowid
    db.executemany(f"INSERT INTO placing VALUES ({move}, ?, ?, ?, ?)", rows)
    return move


def follow_policy(db: "Connection", note: MoveNote, moved: Mapping[int, tuple[int | None, int | None]]) -> None:
    """Moves the channel as the policy asks for after an operation, of which `note` says who made it and why.

    moved: the skills that it moved, each with the version its name pointed to before and after.
    """
    rule = read_policy(db)
    if rule is ReleasePolicy.MANUAL:
        return
    stands = {}
    for resource, (before, after) in moved.items():
        if rule is ReleasePolicy.NEW and (before is not None or after is None):
            continue
        held = read_channel_state(db, resource) or ChannelState(None)
        if not held.withdrawn and (rule is ReleasePolicy.LIVE or held.version is None):
            stands[resource] = ChannelState(after)
    add_move(db, replace(note, reason=f"{note.reason} (by itself: the policy is {rule})"), stands)


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

    def add_move(self, note: MoveNote, stands: Mapping[int, ChannelState]) -> int | None:
        """Puts these skills of the channel there in one move, and returns its id; None when nothing was to be done."""

    def follow(self, note: MoveNote, moved: Mapping[int, tuple[int | None, int | None]]) -> None:
        """Moves the channel as the policy asks for after the names of these skills moved, from a version to one."""
