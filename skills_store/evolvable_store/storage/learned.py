"""Learned tasks: what each resource was used for with success, and what another resource was right for.

A person's label is either learned or held out, for measuring lookup.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store.errors import NoSuchUse
from evolvable_store.storage.connection import Connection
from evolvable_store.storage.repository import SqliteRepository

MAX_TASKS = 16
"""Learned tasks of one resource; the oldest are removed first."""

MAX_AGAINST = 8
"""Tasks against one resource; the oldest are removed first."""

MAX_HELD_OUT = 500
"""Held-out labels of a library; the oldest are removed first."""


class TaskSource(StrEnum):
    """Where a learned task comes from."""

    SESSION = "session"
    """A transcript of a session with a verified end."""

    PERSON = "person"
    """A person said which resource is right."""


@dataclass(frozen=True, slots=True)
class LearnedTask:
    """One task, redacted. against: another resource was right. link: the connection of the session. id: 0 when new.

    held_out: lookup is tested with it and never learns it.
    """

    resource: int
    task: str
    at: str
    against: bool
    source: TaskSource
    session: str | None = None
    link: str | None = None
    id: int = 0
    held_out: bool = False


_NUMBERS = "SELECT CAST(value AS INTEGER) FROM json_each(?)"
_COLUMNS = "resource, task, at, against, source, session, link, held_out"


def _as_task(resource: int, task: str, at: str, against: int, source: str, *rest: object) -> LearnedTask:
    session, link, held_out, identity = rest
    known = None if session is None else str(session), None if link is None else str(link)
    return LearnedTask(resource, task, at, against == 1, TaskSource(source), *known, int(str(identity)), held_out == 1)


class LearnedTasks(SqliteRepository):
    """The learned tasks of a library."""

    def sequence(self) -> int:
        """Return the number of the newest change, 0 where nothing was ever learned."""
        row = self._one("SELECT max(sequence) FROM learned_change")
        return int(row[0] or 0) if row else 0

    def changed(self, after: int) -> dict[int, int]:
        """Return the resources whose tasks changed after this number, each with the number of its last change."""
        query = "SELECT resource, sequence FROM learned_change WHERE sequence > ? ORDER BY sequence"
        return dict(self._rows(query, after))

    def tasks_of(self, resources: Iterable[int]) -> dict[int, list[LearnedTask]]:
        """Return the tasks of those of these resources that have any, oldest first."""
        query = f"""SELECT {_COLUMNS}, id FROM learned
            WHERE resource IN ({_NUMBERS}) ORDER BY resource, at, id"""
        found: dict[int, list[LearnedTask]] = {}
        for one in self._all(_as_task, query, json.dumps(list(resources))):
            found.setdefault(one.resource, []).append(one)
        return found

    def held_out(self) -> list[LearnedTask]:
        """Return the labels that only test lookup, oldest first."""
        return self._all(_as_task, f"SELECT {_COLUMNS}, id FROM learned WHERE held_out = 1 ORDER BY at, id")

    def resources(self) -> list[int]:
        """Return the resources that have learned tasks."""
        return self._all(int, "SELECT DISTINCT resource FROM learned ORDER BY resource")

    def add(self, tasks: Sequence[LearnedTask]) -> None:
        """Store tasks that a person named. The limits of a resource hold."""
        with self._backend.writing() as db:
            for one in tasks:
                _insert(db, one)
            _note_changes(db, {one.resource for one in tasks})

    def remove(self, identity: int) -> LearnedTask:
        """Remove one task for good and return it. Raises NoSuchUse."""
        with self._backend.writing() as db:
            db.execute("PRAGMA secure_delete=ON")
            row = db.execute(f"DELETE FROM learned WHERE id = ? RETURNING {_COLUMNS}, id", (identity,)).fetchone()
            if row is None:
                raise NoSuchUse(f"There is no learned task {identity}.", "`evolvable learned` lists them.")
            removed = _as_task(*row)
            _note_changes(db, {removed.resource})
        return removed

    def forget(self, resources: Iterable[int]) -> None:
        """Remove every task of these resources for good."""
        with self._backend.writing() as db:
            db.execute("PRAGMA secure_delete=ON")
            query = f"DELETE FROM learned WHERE resource IN ({_NUMBERS}) RETURNING resource"
            _note_changes(db, {int(row[0]) for row in db.execute(query, (json.dumps(list(resources)),)).fetchall()})


def replace_tasks(db: Connection, session: str, tasks: Sequence[LearnedTask]) -> None:
    """Store what a session teaches instead of what it taught before.

    Of one connection each resource has one task of each sign: the last one. The limits of a resource hold.
    """
    source = TaskSource.SESSION
    if _of_session(db, session) == {(one.resource, one.task, one.against) for one in tasks}:
        return
    gone = "DELETE FROM learned WHERE session = ? AND source = ? RETURNING resource"
    touched = {int(row[0]) for row in db.execute(gone, (session, source)).fetchall()}
    for one in tasks:
        db.execute(
            "DELETE FROM learned WHERE resource = ? AND against = ? AND source = ? AND link = ?",
            (one.resource, int(one.against), source, one.link),
        )
        _insert(db, one)
    _note_changes(db, touched | {one.resource for one in tasks})


def _of_session(db: Connection, session: str) -> set[tuple[int, str, bool]]:
    query = "SELECT resource, task, against FROM learned WHERE session = ? AND source = ?"
    rows = db.execute(query, (session, TaskSource.SESSION)).fetchall()
    return {(int(resource), str(task), against == 1) for resource, task, against in rows}


def _insert(db: Connection, one: LearnedTask) -> None:
    row = (one.resource, one.task, one.at, int(one.against), one.source, one.session, one.link, int(one.held_out))
    db.execute(f"INSERT INTO learned ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    if one.held_out:
        db.execute(
            """DELETE FROM learned WHERE held_out = 1 AND id NOT IN (
                SELECT id FROM learned WHERE held_out = 1 ORDER BY at DESC, id DESC LIMIT ?)""",
            (MAX_HELD_OUT,),
        )
        return
    db.execute(
        """DELETE FROM learned WHERE resource = ?1 AND against = ?2 AND held_out = 0 AND id NOT IN (
            SELECT id FROM learned WHERE resource = ?1 AND against = ?2 AND held_out = 0
            ORDER BY source = 'person' DESC, at DESC, id DESC LIMIT ?3)""",
        (one.resource, int(one.against), MAX_AGAINST if one.against else MAX_TASKS),
    )


def _note_changes(db: Connection, resources: Iterable[int]) -> None:
    rows = [(resource,) for resource in sorted(resources)]
    db.executemany("INSERT OR REPLACE INTO learned_change (resource) VALUES (?)", rows)


def by_sign(tasks: Mapping[int, Sequence[LearnedTask]], resource: int, *, against: bool) -> list[LearnedTask]:
    """Return the tasks of one resource that count for it, or against it; none that are held out."""
    return [one for one in tasks.get(resource, ()) if one.against is against and not one.held_out]
