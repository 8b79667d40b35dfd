"""The stable channel: which version of each skill hosts see, beside the heads. A record of moves that only grows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from evolvable_store.errors import NotFound
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.protocol import DEFAULT_POLICY, ChannelState, MoveNote, ReleasePolicy

if TYPE_CHECKING:
    from evolvable_store.storage.connection import Connection
    from evolvable_store.storage.sqlite import SqliteStorage


@dataclass(frozen=True, slots=True)
class ChannelMove:
    """One step of the channel: what it says of itself, and its number. Numbers only grow."""

    id: int
    note: MoveNote


@dataclass(frozen=True, slots=True)
class Placement:
    """One skill that a move placed. `before` and `after`: versions, None for not on the channel."""

    move: int
    operation: int
    resource: int
    ref: Ref
    before: int | None
    after: int | None
    withdrawn: bool


@dataclass(frozen=True, slots=True)
class ChannelEntry:
    """A skill with its head (None: removed) and its version on the channel (None: not there).

    `operation`: the newest one of the library when it was last placed, 0 when it never was.
    """

    resource: int
    ref: Ref
    head: int | None
    version: int | None
    withdrawn: bool
    operation: int

    @property
    def seen(self) -> int | None:
        """The version hosts see. A removed skill is not seen, and seen as before when it returns."""
        return self.version if self.head is not None else None


_NOTE = "at, actor, reason, session, operation, policy"
_PLACING = """SELECT p.move, m.operation, p.resource, r.kind, r.scope, r.name, p.before, p.after, p.withdrawn
    FROM placing p JOIN move m ON m.id = p.move JOIN resource r ON r.id = p.resource"""
_CHANNEL_ENTRY = """SELECT r.id, r.scope, r.name, c.after, p.after, p.withdrawn, m.operation FROM resource r
    JOIN change c ON c.sequence = (
        SELECT sequence FROM change WHERE resource = r.id ORDER BY latest DESC, sequence DESC LIMIT 1)
    LEFT JOIN placing p ON p.resource = r.id AND p.move = (SELECT max(move) FROM placing WHERE resource = r.id)
    LEFT JOIN move m ON m.id = p.move
    WHERE r.kind = 'skill' AND (?1 IS NULL OR r.id = ?1)"""


def _at_newest_operation(db: "Connection", note: MoveNote, policy: ReleasePolicy | None) -> MoveNote:
    newest = int(db.execute("SELECT coalesce(max(id), 0) FROM operation").fetchone()[0])
    return MoveNote(note.at, note.actor, note.reason, note.session, newest, policy)


def _as_held(row: Any) -> ChannelEntry:
    resource, scope, name, head, version, withdrawn, operation = row
    return ChannelEntry(resource, Ref(Kind.SKILL, name, scope), head, version, withdrawn == 1, operation or 0)


def _as_move(row: Any) -> ChannelMove:
    identity, at, actor, reason, session, operation, policy = row
    return ChannelMove(
        identity, MoveNote(at, Actor(actor), reason, session, operation, ReleasePolicy(policy) if policy else None)
    )


def _as_placing(row: Any) -> Placement:
    move, operation, resource, kind, scope, name, before, after, withdrawn = row
    return Placement(move, operation, resource, Ref(Kind(kind), name, scope), before, after, withdrawn == 1)


_ACTORS = "({})".format(", ".join(f"'{actor}'" for actor in Actor))
_POLICIES = "({})".format(", ".join(f"'{policy}'" for policy in ReleasePolicy))
_AT = "resource {1} in move {0}"
_CHECKS = (
    (f"SELECT id, actor FROM move WHERE actor NOT IN {_ACTORS}", "move {0}", "there is no actor '{1}'"),
    (f"SELECT id, policy FROM move WHERE policy NOT IN {_POLICIES}", "move {0}", "there is no policy '{1}'"),
    (
        "SELECT id FROM move WHERE policy IS NULL AND id NOT IN (SELECT move FROM placing)",
        "move {0}",
        "it places nothing and sets no policy",
    ),
    (
        "SELECT id, operation FROM move WHERE operation <> 0 AND operation NOT IN (SELECT id FROM operation)",
        "move {0}",
        "its operation {1} is missing",
    ),
    ("SELECT move, resource FROM placing WHERE move NOT IN (SELECT id FROM move)", _AT, "its move is missing"),
    (
        "SELECT move, resource FROM placing WHERE resource NOT IN (SELECT id FROM resource WHERE kind = 'skill')",
        _AT,
        "it is no skill",
    ),
    (
        """SELECT move, resource, after FROM placing p WHERE after IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM change c WHERE c.resource = p.resource AND c.latest = p.after AND c.manifest IS NOT NULL)""",
        _AT,
        "hosts are shown version {2}, which is missing",
    ),
    (
        """SELECT move, resource, before, was FROM (
            SELECT *, lag(after) OVER (PARTITION BY resource ORDER BY move) AS was FROM placing
        ) WHERE before IS NOT was""",
        _AT,
        "it says that it followed version {2}, that was {3}",
    ),
    ("SELECT move, resource FROM placing WHERE withdrawn AND after IS NOT NULL", _AT, "it is withdrawn and shown"),
)


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


class SqliteChannel:
    """The stable channel of one library."""

    def __init__(self, backend: "SqliteStorage") -> None:
        self._backend = backend

    def policy(self) -> ReleasePolicy:
        with self._backend.reading() as db:
            return read_policy(db)

    def held(self) -> list[ChannelEntry]:
        with self._backend.reading() as db:
            return [
                _as_held(row) for row in db.execute(f"{_CHANNEL_ENTRY} ORDER BY r.name, r.scope", (None,)).fetchall()
            ]

    def of(self, resource: int) -> ChannelEntry | None:
        with self._backend.reading() as db:
            row = db.execute(_CHANNEL_ENTRY, (resource,)).fetchone()
        return _as_held(row) if row else None

    def place(self, note: MoveNote, stands: Mapping[int, ChannelState]) -> int | None:
        with self._backend.writing() as db:
            return add_move(db, _at_newest_operation(db, note, None), stands)

    def set_policy(self, note: MoveNote, policy: ReleasePolicy) -> int | None:
        with self._backend.writing() as db:
            if read_policy(db) is policy:
                return None
            stands: dict[int, ChannelState] = {}
            if policy is ReleasePolicy.LIVE:
                everything = map(_as_held, db.execute(_CHANNEL_ENTRY, (None,)).fetchall())
                stands = {held.resource: ChannelState(held.head) for held in everything if not held.withdrawn}
            return add_move(db, _at_newest_operation(db, note, policy), stands)

    def last(self) -> int:
        with self._backend.reading() as db:
            return int(db.execute("SELECT coalesce(max(id), 0) FROM move").fetchone()[0])

    def move(self, identity: int) -> ChannelMove:
        found = self.moves(1, below=identity + 1)
        if not found or found[0].id != identity:
            raise NotFound(f"The channel has no move {identity}.", "`evolvable channel log` lists them.")
        return found[0]

    def moves(self, limit: int, below: int | None = None) -> list[ChannelMove]:
        query = f"SELECT id, {_NOTE} FROM move WHERE id < ? ORDER BY id DESC LIMIT ?"
        with self._backend.reading() as db:
            rows = db.execute(query, (2**62 if below is None else below, limit)).fetchall()
        return [_as_move(row) for row in rows]

    def placings(self, moves: Sequence[int]) -> list[Placement]:
        query = f"{_PLACING} WHERE p.move IN (SELECT value FROM json_each(?)) ORDER BY p.move, r.name, r.scope"
        with self._backend.reading() as db:
            return [_as_placing(row) for row in db.execute(query, (json.dumps(list(moves)),)).fetchall()]

    def history(self, resource: int) -> list[tuple[int, int | None]]:
        query = "SELECT move, after FROM placing WHERE resource = ? ORDER BY move DESC"
        with self._backend.reading() as db:
            return [(row[0], row[1]) for row in db.execute(query, (resource,)).fetchall()]

    def placements_after(self, move: int, limit: int) -> list[Placement]:
        within = "(SELECT DISTINCT move FROM placing WHERE move > ? ORDER BY move LIMIT ?)"
        with self._backend.reading() as db:
            rows = db.execute(f"{_PLACING} WHERE p.move IN {within} ORDER BY p.move", (move, limit)).fetchall()
        return [_as_placing(row) for row in rows]

    def faults(self) -> Iterator[tuple[str, str]]:
        for query, which, what in _CHECKS:
            with self._backend.reading() as db:
                rows = db.execute(query).fetchall()
            yield from ((which.format(*row), what.format(*row)) for row in rows)
