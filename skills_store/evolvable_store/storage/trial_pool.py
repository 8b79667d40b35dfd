"""The pool: versions on trial for a share of sessions, the arms of sessions, results of looks."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evolvable_store.errors import AlreadyExists, InvalidArgument, NotFound
from evolvable_store.storage.sqlite_file import SqliteRepository


class PoolState(StrEnum):
    """The state of a version in the pool."""

    TRIAL = "trial"
    """A share of the sessions is served it."""

    PROMOTED = "promoted"
    """It became the head."""

    RETIRED = "retired"
    """No session is served it any more."""


@dataclass(frozen=True, slots=True)
class PooledVersion:
    """One version that is or was on trial.

    version: for the trial arm. incumbent: for the control arm. since_round: the round that put it
    on trial, 0 for a person. number: of the trial among those of the resource, from 1. described:
    whether the descriptions differ, so that a search shows which it is. approved: whether a person
    put it on trial. looks: the result of each look. ended, why, operation: of its end. salt: the
    secret of the assignment.
    """

    id: int
    resource: int
    version: int
    incumbent: int
    state: PoolState
    since_round: int
    at: str
    share: float
    number: int
    described: bool
    approved: bool
    reason: str
    looks: tuple[Mapping[str, Any], ...] = ()
    ended: str | None = None
    why: str | None = None
    operation: int | None = None
    salt: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class PoolUnit:
    """A session that was assigned to an arm when it could first see the version.

    unit: the key of the assignment: the session's name, or the connection of a call without one.
    connection: the server's own name of it. search: the use or search of that moment, by which a
    transcript later names the session. trial: whether it is served the version.
    """

    unit: str
    session: str | None
    connection: str | None
    search: str | None
    trial: bool
    at: str


_COLUMNS = """id, resource, version, incumbent, state, since_round, at, share, number, described,
    approved, reason,
    looks, ended, why, operation, salt"""
# As long as the hash of the assignment, so that the secret is no easier to guess.
SALT = 32
"""Bytes of the secret of one trial."""


def _as_pooled(*row: Any) -> PooledVersion:
    # By position: the columns that are not stored as the record has them.
    plain = list(row)
    plain[4], plain[9], plain[10] = PoolState(row[4]), row[9] == 1, row[10] == 1
    plain[12] = tuple(json.loads(row[12]))
    return PooledVersion(*plain)


class TrialPool(SqliteRepository):
    """The pool of one library."""

    def on_trial(self) -> list[PooledVersion]:
        """Return the versions that are on trial now."""
        return self._all(
            _as_pooled, f"SELECT {_COLUMNS} FROM pool WHERE state = 'trial' ORDER BY id"
        )

    def trial_of(self, resource: int) -> PooledVersion | None:
        """Return the version of a resource that is on trial now, None without one."""
        query = f"SELECT {_COLUMNS} FROM pool WHERE resource = ? AND state = 'trial'"
        row = self._one(query, resource)
        return _as_pooled(*row) if row else None

    def all(self, limit: int = 1_000) -> list[PooledVersion]:
        """Return every version that is or was on trial, newest first."""
        return self._all(_as_pooled, f"SELECT {_COLUMNS} FROM pool ORDER BY id DESC LIMIT ?", limit)

    def get(self, identity: int) -> PooledVersion:
        """Return the trial with this id. Raises NotFound."""
        row = self._one(f"SELECT {_COLUMNS} FROM pool WHERE id = ?", identity)
        if row is None:
            raise NotFound(
                f"There is no trial {identity}.", "`evolvable evolve pool list` shows them."
            )
        return _as_pooled(*row)

    def add(self, new: PooledVersion) -> PooledVersion:
        """Put a version on trial, with a new secret; `id`, `number` and `salt` are given here.

        Raises AlreadyExists where another version of the resource is on trial.
        """
        with self._backend.writing() as db:
            count_trials = (
                "SELECT count(*), coalesce(sum(state = 'trial'), 0) FROM pool WHERE resource = ?"
            )
            # Under the write lock: two rounds could otherwise both put a version on trial.
            before, open_ones = db.execute(count_trials, (new.resource,)).fetchone()
            if open_ones:
                raise AlreadyExists(
                    "Another version of it is on trial.",
                    "`evolvable evolve pool stop` ends that trial.",
                )
            row = (
                new.resource,
                new.version,
                new.incumbent,
                PoolState.TRIAL,
                new.since_round,
                new.at,
                os.urandom(SALT),
                new.share,
                before + 1,
                int(new.described),
                int(new.approved),
                new.reason,
                "[]",
            )
            insert = (
                "INSERT INTO pool (resource, version, incumbent, state, since_round, at, salt, "
                "share, number, described, approved, reason, looks) "
                f"VALUES ({', '.join('?' * len(row))}) RETURNING id"
            )
            identity = int(db.execute(insert, row).fetchall()[0][0])
        return self.get(identity)

    def end(
        self, identity: int, state: PoolState, at: str, why: str, operation: int | None = None
    ) -> bool:
        """Promote or retire a version on trial; return False where the trial has ended already."""
        query = (
            "UPDATE pool SET state = ?, ended = ?, why = ?, operation = ? WHERE id = ? "
            "AND state = 'trial'"
        )
        return self._do(query, state, at, why, operation, identity) == 1

    def add_look(self, identity: int, look: Mapping[str, Any]) -> None:
        """Store the result of a look, once for each number of a look."""
        with self._backend.writing() as db:
            row = db.execute("SELECT looks FROM pool WHERE id = ?", (identity,)).fetchone()
            looks = json.loads(row[0]) if row else []
            # Two servers can compute the same look; the first one stays.
            if not any(stored_look["look"] == look["look"] for stored_look in looks):
                db.execute(
                    "UPDATE pool SET looks = ? WHERE id = ?",
                    (json.dumps([*looks, dict(look)]), identity),
                )

    def arm(self, identity: int, unit: str) -> bool | None:
        """Return the arm of a unit, None where it has none yet."""
        row = self._one("SELECT trial FROM pool_unit WHERE pool = ? AND unit = ?", identity, unit)
        return None if row is None else row[0] == 1

    def assign(self, identity: int, unit: PoolUnit) -> bool:
        """Store the arm of a unit unless it has one; return the stored arm."""
        row = (
            identity,
            unit.unit,
            unit.session,
            unit.connection,
            unit.search,
            int(unit.trial),
            unit.at,
        )
        self._do(
            # OR IGNORE: a session keeps its arm, whichever process assigned it first.
            "INSERT OR IGNORE INTO pool_unit (pool, unit, session, connection, search, trial, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            *row,
        )
        # The stored arm counts: another process may have drawn another.
        stored_arm = self.arm(identity, unit.unit)
        return unit.trial if stored_arm is None else stored_arm

    def units(self, identity: int) -> list[PoolUnit]:
        """Return the units of a trial in the order of their assignment.

        A call without a session has the session whose transcript names its use or its search.
        """
        query = """SELECT unit, coalesce(session, (SELECT session FROM use WHERE id = search),
                (SELECT session FROM shown s WHERE s.search = pool_unit.search
                LIMIT 1)), connection, search, trial, at
            FROM pool_unit WHERE pool = ? ORDER BY at, unit"""
        rows = self._rows(query, identity)
        return [
            PoolUnit(unit, session, connection, search, arm == 1, at)
            for unit, session, connection, search, arm, at in rows
        ]


def check_share(share: float) -> float:
    """Return the share of sessions that are served a trial version. Raises InvalidArgument."""
    # Below a tenth a trial takes too long; over a half the control arm does.
    if not 0.1 <= share <= 0.5:
        raise InvalidArgument(f"A share of {share:g} is not possible.", "It may be .1 to .5.")
    return share
