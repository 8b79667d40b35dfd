"""Why a version is thought to help: which versions were loaded by whom, what came of it, and how far that counts."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from dataclasses import fields as dataclass_fields
from enum import StrEnum
from typing import TYPE_CHECKING

from evolvable_store.errors import NoSuchUse
from evolvable_store.sqlite import SqliteBackend

if TYPE_CHECKING:
    from evolvable_store.driver import Connection


class Outcome(StrEnum):
    """What came of a task in which a resource was loaded."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PARTIAL = "partial"
    ABANDONED = "abandoned"
    UNKNOWN = "unknown"


class Usage(StrEnum):
    """How far a loaded resource was followed."""

    USED = "used"
    PARTIALLY_USED = "partially_used"
    IGNORED = "ignored"
    INAPPLICABLE = "inapplicable"


class Grade(StrEnum):
    """How far an end counts."""

    HISTORY = ""
    """Kept, and counts nothing."""

    REPORTED = "reported"
    """A session that was served the version says so itself."""

    VERIFIED = "verified"
    """A transcript of a session that the server saw and served shows it, or a person says so."""


@dataclass(frozen=True, slots=True)
class Use:
    """One loading of one version. `search` is the id of the search that led to it, if one did.

    principal: who was served. connection: the server's own name of the connection over which it was served, None where
    the server cannot tell connections apart; no caller can choose it.
    """

    id: str
    at: str
    resource: int
    version: int
    search: str | None = None
    session: str | None = None
    principal: str | None = None
    connection: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """One reported outcome. `use` is None when it was told of a resource without a use.

    grade: how far it counts. voter: of its words about a version the best and then the last one counts.
    """

    at: str
    resource: int
    version: int
    outcome: Outcome
    use: str | None = None
    usage: Usage | None = None
    task_type: str | None = None
    evidence: str | None = None
    session: str | None = None
    principal: str | None = None
    grade: Grade = Grade.HISTORY
    voter: str | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts over all versions of one resource: loadings that this library noted, and the outcomes that count by kind.

    not_counted: outcomes that are kept as history.
    """

    loaded: int = 0
    succeeded: int = 0
    failed: int = 0
    partial: int = 0
    abandoned: int = 0
    unknown: int = 0
    not_counted: int = 0


@dataclass(frozen=True, slots=True)
class Regraded:
    """What the ends of a version were worth before evidence was graded; version 0: of all versions together."""

    resource: int
    version: int
    ends: int
    successes: int


class EvidenceLog:
    """The evidence of one library. Rows are only added."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    def add_use(self, use: Use) -> None:
        """Keep a use, and that the server saw its session."""
        with self._backend.writing() as db:
            db.execute(f"INSERT INTO use ({_USE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", astuple(use))
            note_session(db, use.session, use.connection, use.at)

    def add_first_use(self, use: Use) -> bool:
        """Keep a use unless its session has one of that resource already; return whether it was kept."""
        with self._backend.writing() as db:
            added = db.execute(
                f"INSERT INTO use ({_USE}) SELECT ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS ("
                "SELECT 1 FROM use WHERE resource = ? AND session = ? AND origin IS NULL)",
                (*astuple(use), use.resource, use.session),
            )
            note_session(db, use.session, use.connection, use.at)
            return bool(added.rowcount)

    def served(self, resource: int, version: int, principal: str, session: str | None, connection: str | None) -> bool:
        """Return whether this principal was served the version in this session, or over this connection."""
        query = """SELECT 1 FROM use WHERE resource = ? AND version = ? AND origin IS NULL
            AND coalesce(principal, ?3) = ?3 AND (session IS ?4 OR connection = ?5) LIMIT 1"""
        with self._backend.reading() as db:
            return db.execute(query, (resource, version, principal, session, connection)).fetchone() is not None

    def used_in(self, session: str, resources: Iterable[int]) -> set[int]:
        """Returns those of `resources` that a session has loaded."""
        query = """SELECT DISTINCT resource FROM use
            WHERE session = ? AND origin IS NULL AND resource IN (SELECT value FROM json_each(?))"""
        with self._backend.reading() as db:
            return {row[0] for row in db.execute(query, (session, json.dumps(list(resources)))).fetchall()}

    def use(self, identity: str) -> Use:
        """Returns the use with this id. Raises NoSuchUse."""
        with self._backend.reading() as db:
            row = db.execute(f"SELECT {_USE} FROM use WHERE id = ? AND origin IS NULL", (identity,)).fetchone()
        if row is None:
            raise NoSuchUse(
                f"There is no use {ascii(identity[:80])}.", "load_skill returns a use_id; a ref does as well."
            )
        return Use(*row)

    def add_outcome(self, told: Told) -> None:
        """Keep an outcome."""
        fields = ", ".join(field.name for field in dataclass_fields(told))
        with self._backend.writing() as db:
            db.execute(f"INSERT INTO outcome ({fields}) VALUES ({', '.join('?' * len(astuple(told)))})", astuple(told))
            settle_votes(db, told.voter, told.resource)

    def regraded(self, *, unsaid: bool = False) -> list[Regraded]:
        """Return what older evidence was worth before it was graded. unsaid: only if nobody was told yet."""
        where = "WHERE NOT said" if unsaid else ""
        with self._backend.reading() as db:
            rows = db.execute(f"SELECT resource, version, ends, successes FROM regraded {where}").fetchall()
        return [Regraded(*row) for row in rows]

    def regrading_said(self) -> None:
        """Note that a person was told what fell."""
        with self._backend.writing() as db:
            db.execute("UPDATE regraded SET said = 1 WHERE NOT said")

    def tally(self, resource: int) -> Tally:
        """Returns the counts of one resource."""
        return self.tallies([resource]).get(resource, Tally())

    def tallies(self, resources: Iterable[int]) -> dict[int, Tally]:
        """Returns the counts of those of `resources` that have any."""
        ids = json.dumps(list(resources))
        with self._backend.reading() as db:
            loaded: Sequence[tuple[int, int]] = db.execute(_LOADED, (ids,)).fetchall()
            told: Sequence[tuple[int, str, int]] = db.execute(_TOLD, (ids,)).fetchall()
        counts: dict[int, Counter[str]] = {}
        for resource, number in loaded:
            counts.setdefault(resource, Counter())["loaded"] = number
        for resource, outcome, number in told:
            counts.setdefault(resource, Counter())[outcome] = number
        return {resource: Tally(**count) for resource, count in counts.items()}


_USE = "id, at, resource, version, search, session, principal, connection"


def note_session(db: "Connection", session: str | None, connection: str | None, at: str) -> None:
    """Keep that the server saw a client's session over a connection of its own."""
    if session and connection:
        db.execute("INSERT OR IGNORE INTO client_session VALUES (?, ?, ?)", (session, connection, at))


def settle_votes(db: "Connection", voter: str | None, resource: int | None = None) -> None:
    """Have the best and then the last word of a voter about each version count, and no other one."""
    if voter is None:
        return
    where = "voter = ?1 AND grade <> '' AND (?2 IS NULL OR resource = ?2)"
    db.execute(
        f"""UPDATE outcome SET counts = id IN (SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY resource, version ORDER BY grade DESC, at DESC, id DESC) AS place
            FROM outcome WHERE {where}) WHERE place = 1) WHERE {where}""",
        (voter, resource),
    )


# What a transcript shows is counted where no call told it already.
_LOADED = """WITH asked AS (SELECT value FROM json_each(?1))
    SELECT resource, count(*) FROM (
        SELECT resource FROM use WHERE resource IN asked AND origin IS NULL
        UNION ALL
        SELECT resource FROM sighting s WHERE resource IN asked AND loaded AND origin IS NULL AND NOT EXISTS (
            SELECT 1 FROM use u WHERE u.session = s.session AND u.resource = s.resource AND u.origin IS NULL)
    ) GROUP BY resource"""
_TOLD = """WITH asked AS (SELECT value FROM json_each(?1))
    SELECT resource, outcome, count(*) FROM (
        SELECT resource, CASE grade WHEN '' THEN 'not_counted' ELSE outcome END AS outcome
        FROM outcome WHERE resource IN asked AND (counts OR grade = '')
        UNION ALL
        SELECT resource, CASE grade WHEN '' THEN 'not_counted' ELSE outcome END FROM sighting s
        WHERE resource IN asked AND outcome IS NOT NULL AND (grade = '' OR NOT EXISTS (
            SELECT 1 FROM outcome o WHERE o.voter = s.session AND o.resource = s.resource AND o.grade <> ''))
    ) GROUP BY resource, outcome"""
