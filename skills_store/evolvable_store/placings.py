"""The rows of the stable channel, written inside a transaction: what each move placed, and what the policy asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from evolvable_store.operation import Actor

if TYPE_CHECKING:
    from evolvable_store.driver import Connection


class Policy(StrEnum):
    """What moves the channel without being told to."""

    NEW = "new"
    """A skill that is new appears by itself; every later change of it waits until it is published."""

    MANUAL = "manual"
    """Nothing: new skills wait too."""

    LIVE = "live"
    """Everything: the channel follows the heads."""


USUAL = Policy.NEW
"""The policy of a library whose user has set none."""


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the channel holds one skill: at a version, or nowhere. withdrawn: a person took it off."""

    version: int | None
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """What a move says of itself. `operation`: the newest one of the library then. `policy`: when it set one."""

    at: str
    actor: Actor
    reason: str
    session: str | None
    operation: int
    policy: Policy | None = None


def policy(db: "Connection") -> Policy:
    """Returns the policy in force."""
    row = db.execute("SELECT policy FROM move WHERE policy IS NOT NULL ORDER BY id DESC LIMIT 1").fetchone()
    return Policy(row[0]) if row else USUAL


def stand(db: "Connection", resource: int) -> Stand | None:
    """Returns where the channel holds a resource, None when it never did."""
    query = "SELECT after, withdrawn FROM placing WHERE resource = ? ORDER BY move DESC LIMIT 1"
    row = db.execute(query, (resource,)).fetchone()
    return Stand(row[0], row[1] == 1) if row else None


def add_move(db: "Connection", note: Note, stands: Mapping[int, Stand]) -> int | None:
    """Keeps one move that puts these resources there, and returns its id; None when it would change nothing."""
    rows = []
    for resource, there in stands.items():
        held = stand(db, resource) or Stand(None)
        if held != there:
            rows.append((resource, held.version, there.version, int(there.withdrawn)))
    if not rows and note.policy is None:
        return None
    values: tuple[Any, ...] = (note.at, note.actor, note.reason, note.session, note.operation, note.policy)
    insert = "INSERT INTO move (at, actor, reason, session, operation, policy) VALUES (?, ?, ?, ?, ?, ?)"
    move = db.execute(insert, values).lastrowid
    db.executemany(f"INSERT INTO placing VALUES ({move}, ?, ?, ?, ?)", rows)
    return move


def follow(db: "Connection", note: Note, moved: Mapping[int, tuple[int | None, int | None]]) -> None:
    """Moves the channel as the policy asks for after an operation, of which `note` says who made it and why.

    moved: the skills that it moved, each with the version its name pointed to before and after.
    """
    rule = policy(db)
    if rule is Policy.MANUAL:
        return
    stands = {}
    for resource, (before, after) in moved.items():
        if rule is Policy.NEW and (before is not None or after is None):
            continue
        held = stand(db, resource) or Stand(None)
        if not held.withdrawn and (rule is Policy.LIVE or held.version is None):
            stands[resource] = Stand(after)
    add_move(db, replace(note, reason=f"{note.reason} (by itself: the policy is {rule})"), stands)
