"""The stable channel: the version of each skill that hosts see, as an append-only log of moves."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from typing import Any

from evolvable_store.errors import NotFound
from evolvable_store.operation import Actor, Statement
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.connection import Connection, read_queries
from evolvable_store.storage.sqlite_file import SqliteRepository


class ReleasePolicy(StrEnum):
    """The events that move the channel automatically."""

    NEW = "new"
    """A new skill appears by itself; every later change of it waits until it is published."""

    MANUAL = "manual"
    """Nothing: new skills wait too."""

    LIVE = "live"
    """Everything: the channel follows the heads."""


DEFAULT_POLICY = ReleasePolicy.NEW
"""The policy of a library whose user has set none."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """Where the channel holds one skill: at a version, or nowhere.

    withdrawn: a person took it off.
    """

    version: int | None
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class MoveNote(Statement):
    """The description of a move.

    operation: the newest one of the library at that time, 0 until the move is recorded. policy: the
    one that the move set, None for none.
    """

    operation: int = 0
    policy: ReleasePolicy | None = None


@dataclass(frozen=True, slots=True)
class ChannelMove:
    """One step of the channel: its number and its description. Numbers only grow."""

    id: int
    note: MoveNote


@dataclass(frozen=True, slots=True)
class Placement:
    """One skill that a move placed. before, after: versions, None for not on the channel."""

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

    operation: the newest one of the library when it was last placed, 0 when it never was.
    """

    resource: int
    ref: Ref
    head: int | None
    version: int | None
    withdrawn: bool
    operation: int

    @property
    def visible_version(self) -> int | None:
        """The version that hosts see, None while the skill is removed.

        It is the same again when the skill returns.
        """
        return self.version if self.head is not None else None


QUERIES = read_queries()

_NOTE = "at, actor, reason, session, operation, policy"
_PLACING = """SELECT p.move, m.operation, p.resource, r.kind, r.scope, r.name, p.before, p.after,
    p.withdrawn
    FROM placing p JOIN move m ON m.id = p.move JOIN resource r ON r.id = p.resource"""


def _at_newest_operation(db: Connection, note: MoveNote, policy: ReleasePolicy | None) -> MoveNote:
    newest = int(db.execute("SELECT coalesce(max(id), 0) FROM operation").fetchone()[0])
    return replace(note, operation=newest, policy=policy)


def _as_entry(resource: int, scope: str, name: str, head: int | None, *placed: Any) -> ChannelEntry:
    version, withdrawn, operation = placed
    return ChannelEntry(
        resource, Ref(Kind.SKILL, name, scope), head, version, withdrawn == 1, operation or 0
    )


def _as_move(
    identity: int,
    at: str,
    actor: str,
    reason: str,
    session: str | None,
    operation: int,
    policy: str | None,
) -> ChannelMove:
    note = MoveNote(
        at, Actor(actor), reason, session, operation, ReleasePolicy(policy) if policy else None
    )
    return ChannelMove(identity, note)


def _as_placement(
    move: int, operation: int, resource: int, kind: str, scope: str, name: str, *placed: Any
) -> Placement:
    before, after, withdrawn = placed
    return Placement(
        move, operation, resource, Ref(Kind(kind), name, scope), before, after, withdrawn == 1
    )


# The newest move that set one; others leave the policy as it is.
POLICY = "SELECT policy FROM move WHERE policy IS NOT NULL ORDER BY id DESC LIMIT 1"


def read_policy(db: Connection) -> ReleasePolicy:
    """Return the policy in force."""
    row = db.execute(POLICY).fetchone()
    return ReleasePolicy(row[0]) if row else DEFAULT_POLICY


def read_channel_state(db: Connection, resource: int) -> ChannelState:
    """Return where the channel holds a resource."""
    query = "SELECT after, withdrawn FROM placing WHERE resource = ? ORDER BY move DESC LIMIT 1"
    row = db.execute(query, (resource,)).fetchone()
    return ChannelState(row[0], row[1] == 1) if row else ChannelState(None)


def add_move(db: Connection, note: MoveNote, states: Mapping[int, ChannelState]) -> int | None:
    """Store one move that places these resources; return its id, None when nothing would change."""
    rows = []
    for resource, state in states.items():
        # Read under the write lock, so that `before` is the version that is replaced.
        previous = read_channel_state(db, resource)
        # Only skills that move get a row, so that a history shows real changes alone.
        if previous != state:
            rows.append((resource, previous.version, state.version, int(state.withdrawn)))
    if not rows and note.policy is None:
        return None
    insert = f"INSERT INTO move ({_NOTE}) VALUES (?, ?, ?, ?, ?, ?) RETURNING id"
    move = int(db.execute(insert, astuple(note)).fetchall()[0][0])
    db.executemany(
        "INSERT INTO placing (move, resource, before, after, withdrawn) "
        f"VALUES ({move}, ?, ?, ?, ?)",
        rows,
    )
    return move


def follow_policy(
    db: Connection, note: MoveNote, moved: Mapping[int, tuple[int | None, int | None]]
) -> None:
    """Move the channel by its policy after an operation. note: who made the operation, and why.

    moved: the skills that it moved, each with the version its name pointed to before and after.
    """
    rule = read_policy(db)
    if rule is ReleasePolicy.MANUAL:
        return
    states = {}
    for resource, (before, after) in moved.items():
        # An update or a removal waits until it is published.
        if rule is ReleasePolicy.NEW and (before is not None or after is None):
            continue
        current = read_channel_state(db, resource)
        # Only a person puts a skill back that a person withdrew.
        if not current.withdrawn and (rule is ReleasePolicy.LIVE or current.version is None):
            states[resource] = ChannelState(after)
    if states:
        reason = f"{note.reason} (by itself: the policy is {rule})"
        add_move(db, replace(note, reason=reason), states)


class Channel(SqliteRepository):
    """The stable channel."""

    def policy(self) -> ReleasePolicy:
        """Return the policy in force."""
        with self._backend.reading() as db:
            return read_policy(db)

    def list_entries(self) -> list[ChannelEntry]:
        """Return every skill there ever was, by name and scope."""
        return self._all(_as_entry, f"{QUERIES['channel_entry']} ORDER BY r.name, r.scope")

    def of(self, resource: int) -> ChannelEntry | None:
        """Return one skill, None when the resource is none."""
        return self.of_resources([resource]).get(resource)

    def of_resources(self, resources: Iterable[int]) -> dict[int, ChannelEntry]:
        """Return the entries of the skills among these resources, by id."""
        query = (
            f"{QUERIES['channel_entry']} AND r.id IN (SELECT CAST(value AS INTEGER) "
            "FROM json_each(?))"
        )
        entries = self._all(_as_entry, query, json.dumps(list(resources)))
        return {entry.resource: entry for entry in entries}

    def place(self, note: MoveNote, states: Mapping[int, ChannelState]) -> int | None:
        """Make one move that places these skills, all of them or none, and return its id.

        None: they were there already. `note.operation` is replaced by the newest one. Raises as
        every write.
        """
        with self._backend.writing() as db:
            return add_move(db, _at_newest_operation(db, note, None), states)

    def set_policy(self, note: MoveNote, policy: ReleasePolicy) -> int | None:
        """Return the id of the move that sets the policy, None when it was in force.

        LIVE: every skill that nobody withdrew is placed at its head by the same move.
        """
        with self._backend.writing() as db:
            if read_policy(db) is policy:
                return None
            states: dict[int, ChannelState] = {}
            if policy is ReleasePolicy.LIVE:
                rows = db.execute(QUERIES["channel_entry"]).fetchall()
                entries = [_as_entry(*row) for row in rows]
                # Skills that a person withdrew stay off under every policy.
                states = {
                    entry.resource: ChannelState(entry.head)
                    for entry in entries
                    if not entry.withdrawn
                }
            return add_move(db, _at_newest_operation(db, note, policy), states)

    def last(self) -> int:
        """Return the number of the newest move, 0 when there is none."""
        return int(self._one("SELECT coalesce(max(id), 0) FROM move")[0])

    def move(self, identity: int) -> ChannelMove:
        """Return one move. Raises NotFound."""
        moves = self.moves(1, below=identity + 1)
        if not moves or moves[0].id != identity:
            raise NotFound(
                f"The channel has no move {identity}.", "`evolvable lab channel log` lists them."
            )
        return moves[0]

    def moves(self, limit: int, below: int | None = None) -> list[ChannelMove]:
        """Return up to `limit` moves with numbers under `below`, newest first."""
        query = f"SELECT id, {_NOTE} FROM move WHERE id < ? ORDER BY id DESC LIMIT ?"
        # Above every id that SQLite gives.
        return self._all(_as_move, query, 2**62 if below is None else below, limit)

    def placings(self, moves: Sequence[int]) -> list[Placement]:
        """Return the placements of these moves, by move, name and scope."""
        among = "(SELECT CAST(value AS INTEGER) FROM json_each(?))"
        query = f"{_PLACING} WHERE p.move IN {among} ORDER BY p.move, r.name, r.scope"
        return self._all(_as_placement, query, json.dumps(list(moves)))

    def history(self, resource: int) -> list[tuple[int, int | None]]:
        """Return the moves that placed a resource, newest first, each with the version where it put
        it.
        """
        query = "SELECT move, after FROM placing WHERE resource = ? ORDER BY move DESC"
        return self._rows(query, resource)

    def placements_after(self, move: int, limit: int) -> list[Placement]:
        """Return the placements of up to `limit` moves with numbers over `move`, oldest first.

        Each move is whole.
        """
        within = "(SELECT DISTINCT move FROM placing WHERE move > ? ORDER BY move LIMIT ?)"
        return self._all(
            _as_placement, f"{_PLACING} WHERE p.move IN {within} ORDER BY p.move", move, limit
        )

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield (place, fault) for every move and placement that contradicts the rest of the
        library.
        """
        return self._check(
            "channel_checks.sql",
            actors=json.dumps(list(Actor)),
            policies=json.dumps(list(ReleasePolicy)),
        )
