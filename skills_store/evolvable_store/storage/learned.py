"""Learned tasks: those for which a resource was used with success, or for which it was wrong.

A person's label is either learned, or held out to measure lookup.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store.errors import NoSuchUse
from evolvable_store.storage.connection import Connection
from evolvable_store.storage.sqlite_file import SqliteRepository

# Each task adds words to the index; more of them blur what the resource is for.
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

    TRANSCRIPT = "transcript"
    """A transcript in which a skill was opened, where the person opted in."""

    PERSON = "person"
    """A person said which resource is right."""


@dataclass(frozen=True, slots=True)
class LearnedTask:
    """One task, redacted.

    against: whether another resource was right for it. link: the connection of the session. id: 0
    when new. held_out: lookup is tested with it and never learns it.
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


_REFUSED = "SELECT resource FROM learned_refusal WHERE session = ?"
_NUMBERS = "SELECT CAST(value AS INTEGER) FROM json_each(?)"
_COLUMNS = "resource, task, at, against, source, session, link, held_out"


def _as_task(
    resource: int, task: str, at: str, against: int, source: str, *rest: object
) -> LearnedTask:
    session, link, held_out, identity = rest
    return LearnedTask(
        resource,
        task,
        at,
        against == 1,
        TaskSource(source),
        None if session is None else str(session),
        None if link is None else str(link),
        int(str(identity)),
        held_out == 1,
    )


class LearnedTasks(SqliteRepository):
    """The learned tasks of a library."""

    def sequence(self) -> int:
        """Return the number of the newest change, 0 where nothing was ever learned."""
        row = self._one("SELECT max(sequence) FROM learned_change")
        return int(row[0] or 0) if row else 0

    def changed_resources(self, after: int) -> dict[int, int]:
        """Return the resources whose tasks changed after this number, with their last changes."""
        query = "SELECT resource, sequence FROM learned_change WHERE sequence > ? ORDER BY sequence"
        return dict(self._rows(query, after))

    def tasks_of(self, resources: Iterable[int]) -> dict[int, list[LearnedTask]]:
        """Return the tasks of these resources, oldest first, without resources that have none."""
        query = f"""SELECT {_COLUMNS}, id FROM learned
            WHERE resource IN ({_NUMBERS}) ORDER BY resource, at, id"""
        by_resource: dict[int, list[LearnedTask]] = {}
        for task in self._all(_as_task, query, json.dumps(list(resources))):
            by_resource.setdefault(task.resource, []).append(task)
        return by_resource

    def held_out(self) -> list[LearnedTask]:
        """Return the labels that only test lookup, oldest first."""
        return self._all(
            _as_task, f"SELECT {_COLUMNS}, id FROM learned WHERE held_out = 1 ORDER BY at, id"
        )

    def resources(self) -> list[int]:
        """Return the resources that have learned tasks."""
        return self._all(int, "SELECT DISTINCT resource FROM learned ORDER BY resource")

    def add(self, tasks: Sequence[LearnedTask]) -> None:
        """Store tasks that a person named. The limits of a resource hold."""
        with self._backend.writing() as db:
            for task in tasks:
                _insert(db, task)
            _note_changes(db, {task.resource for task in tasks})

    def task(self, identity: int) -> LearnedTask:
        """Return one task. Raises NoSuchUse."""
        tasks = self._all(_as_task, f"SELECT {_COLUMNS}, id FROM learned WHERE id = ?", identity)
        if not tasks:
            raise _no_such_task(identity)
        return tasks[0]

    def remove(self, identity: int, *, refuse: bool = False) -> LearnedTask:
        """Remove one task for good and return it. Raises NoSuchUse.

        refuse: its session teaches the resource nothing more, however often it is read.
        """
        with self._backend.writing() as db:
            # A task is a person's own words: the bytes on the disk are overwritten.
            db.execute("PRAGMA secure_delete=ON")
            row = db.execute(
                f"DELETE FROM learned WHERE id = ? RETURNING {_COLUMNS}, id", (identity,)
            ).fetchone()
            if row is None:
                raise _no_such_task(identity)
            removed = _as_task(*row)
            # A person's own label has no session that could teach it again.
            if refuse and removed.source is not TaskSource.PERSON:
                _refuse(db, [(removed.session, removed.resource)])
            _note_changes(db, {removed.resource})
        return removed

    def forget(self, resources: Iterable[int]) -> None:
        """Remove every task of these resources for good; their sessions teach them nothing more."""
        with self._backend.writing() as db:
            db.execute("PRAGMA secure_delete=ON")
            query = (
                f"DELETE FROM learned WHERE resource IN ({_NUMBERS}) "
                "RETURNING session, resource, source"
            )
            gone = db.execute(query, (json.dumps(list(resources)),)).fetchall()
            taught = [row[:2] for row in gone if row[2] != TaskSource.PERSON]
            _refuse(db, taught)
            _note_changes(db, {int(resource) for _, resource, _ in gone})

    def refuse_texts(self, texts: Iterable[str]) -> None:
        """Refuse what the sessions of tasks with one of these texts teach their resources."""
        search_texts = list(texts)
        with self._backend.writing() as db:
            query = "SELECT session, resource, task FROM learned WHERE source <> ?"
            rows = db.execute(query, (TaskSource.PERSON,)).fetchall()
            matching = [row[:2] for row in rows if any(text in row[2] for text in search_texts)]
            _refuse(db, matching)

    # Transcripts that a person let this library read

    def is_read(self, file: str, status: str) -> bool:
        """Return whether a transcript was read as it is now. file: a hash of its path."""
        query = "SELECT 1 FROM learned_transcript WHERE file = ? AND status = ?"
        return self._one(query, file, status) is not None

    def take_transcript(
        self, file: str, status: str, session: str, tasks: Sequence[LearnedTask]
    ) -> int:
        """Store a transcript's tasks in place of its session's earlier ones, and that it was read.

        session: '' for a file that teaches nothing. Returns how many tasks are new.
        """
        with self._backend.writing() as db:
            new = replace_tasks(db, session, tasks, TaskSource.TRANSCRIPT) if session else 0
            db.execute(
                "INSERT INTO learned_transcript (file, status) VALUES (?, ?)"
                " ON CONFLICT (file) DO UPDATE SET status = excluded.status",
                (file, status),
            )
        return new

    def replace_transcript(self, session: str, tasks: Sequence[LearnedTask]) -> int:
        """Store the tasks of a session's prompts in place of earlier ones.

        Return how many are new.
        """
        with self._backend.writing() as db:
            return replace_tasks(db, session, tasks, TaskSource.TRANSCRIPT)

    def forget_transcripts(self) -> int:
        """Remove the tasks of transcripts, and which were read; return how many tasks."""
        with self._backend.writing() as db:
            db.execute("PRAGMA secure_delete=ON")
            query = "DELETE FROM learned WHERE source = ? RETURNING resource"
            gone = db.execute(query, (TaskSource.TRANSCRIPT,)).fetchall()
            _note_changes(db, {int(row[0]) for row in gone})
            db.execute("DELETE FROM learned_transcript")
        return len(gone)


def _no_such_task(identity: int) -> NoSuchUse:
    return NoSuchUse(f"There is no learned task {identity}.", "`evolvable learn tasks` lists them.")


def _refuse(db: Connection, rows: Iterable[tuple[str | None, int]]) -> None:
    refusals = [(session, resource) for session, resource in rows if session is not None]
    db.executemany(
        "INSERT OR IGNORE INTO learned_refusal (session, resource) VALUES (?, ?)", refusals
    )


def replace_tasks(
    db: Connection,
    session: str,
    tasks: Sequence[LearnedTask],
    source: TaskSource = TaskSource.SESSION,
) -> int:
    """Store the tasks that a session teaches in place of its earlier ones; return how many are new.

    A resource has one task for it and one against it of each connection: the last one. The limits
    of a resource hold. Where a person refused what the session teaches a resource, nothing changes.
    A task with a verified end replaces the one that the transcript alone taught a resource.
    """
    refused = {int(row[0]) for row in db.execute(_REFUSED, (session,)).fetchall()}
    if source is TaskSource.TRANSCRIPT:
        refused |= {
            resource
            for resource, _, against in _of_session(db, session, TaskSource.SESSION)
            if not against
        }
    tasks = [task for task in tasks if task.resource not in refused]
    before = {row for row in _of_session(db, session, source) if row[0] not in refused}
    # Reading a session again changes nothing, and no index has to be made again.
    if before == {(task.resource, task.task, task.against) for task in tasks}:
        return 0
    db.execute("PRAGMA secure_delete=ON")
    delete = f"""DELETE FROM learned WHERE session = ? AND source = ?
        AND resource NOT IN ({_NUMBERS}) RETURNING resource"""
    rows = db.execute(delete, (session, source, json.dumps(sorted(refused)))).fetchall()
    touched = {int(row[0]) for row in rows}
    for task in tasks:
        db.execute(
            "DELETE FROM learned WHERE session = ? AND resource = ? AND source = ?",
            (session, task.resource, TaskSource.TRANSCRIPT),
        )
        db.execute(
            "DELETE FROM learned WHERE resource = ? AND against = ? AND source = ? AND link = ?",
            (task.resource, int(task.against), source, task.link),
        )
        _insert(db, task)
    _note_changes(db, touched | {task.resource for task in tasks})
    return sum((task.resource, task.task, task.against) not in before for task in tasks)


def _of_session(db: Connection, session: str, source: TaskSource) -> set[tuple[int, str, bool]]:
    query = "SELECT resource, task, against FROM learned WHERE session = ? AND source = ?"
    rows = db.execute(query, (session, source)).fetchall()
    return {(int(resource), str(task), against == 1) for resource, task, against in rows}


def _insert(db: Connection, task: LearnedTask) -> None:
    """Store a task, and remove the oldest ones beyond the limits."""
    row = (
        task.resource,
        task.task,
        task.at,
        int(task.against),
        task.source,
        task.session,
        task.link,
        int(task.held_out),
    )
    db.execute(f"INSERT INTO learned ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    # Held-out labels have a limit of their own for the whole library.
    if task.held_out:
        db.execute(
            """DELETE FROM learned WHERE held_out = 1 AND id NOT IN (
                SELECT id FROM learned WHERE held_out = 1 ORDER BY at DESC, id DESC LIMIT ?)""",
            (MAX_HELD_OUT,),
        )
        return
    db.execute(
        """DELETE FROM learned WHERE resource = ?1 AND against = ?2 AND held_out = 0 AND id NOT IN (
            SELECT id FROM learned WHERE resource = ?1 AND against = ?2 AND held_out = 0
            ORDER BY source = 'person' DESC, source = 'session' DESC, at DESC, id DESC LIMIT ?3)""",
        (task.resource, int(task.against), MAX_AGAINST if task.against else MAX_TASKS),
    )


def _note_changes(db: Connection, resources: Iterable[int]) -> None:
    # REPLACE gives the resource a new, higher number.
    rows = [(resource,) for resource in sorted(resources)]
    db.executemany("INSERT OR REPLACE INTO learned_change (resource) VALUES (?)", rows)


def by_sign(
    tasks: Mapping[int, Sequence[LearnedTask]], resource: int, *, against: bool
) -> list[LearnedTask]:
    """Return the tasks of one resource that count for it, or against it; none that are held out."""
    return [
        task for task in tasks.get(resource, ()) if task.against is against and not task.held_out
    ]
