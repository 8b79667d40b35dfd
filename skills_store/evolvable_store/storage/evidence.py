"""Evidence: uses, reported outcomes, and the attempts that they make.

One session is at most one attempt, however often it loaded or reported, so that attempts are
independent. Each use whose session is unknown counts as a separate attempt.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from dataclasses import fields as dataclass_fields
from enum import StrEnum
from typing import Any

from evolvable_store.errors import NoSuchUse
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.connection import Connection, read_queries
from evolvable_store.storage.sqlite_file import SqliteRepository


class Outcome(StrEnum):
    """The result of a task in which a resource was loaded."""

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
    """How far the end of a task counts as evidence."""

    HISTORY = ""
    """It is kept, and counts nothing."""

    REPORTED = "reported"
    """A session that was served the version says so itself."""

    VERIFIED = "verified"
    """A transcript of a session that the server saw and served shows it, or a person says so."""


@dataclass(frozen=True, slots=True)
class Use:
    """One loading of one version.

    search: the id of the search that led to it, if one did. principal: who was served. connection:
    the server's own name of the connection over which it was served, which no caller can choose;
    None where the server cannot tell connections apart.
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
class ReportedOutcome:
    """One reported outcome.

    use: None for a report that names a resource and no use. grade: how far it counts. voter: of one
    voter's outcomes of a version only one counts, by grade and then by time.
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
    """Counts over all versions of one resource: loadings here, and by kind the outcomes that count.

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
class UngradedEvidence:
    """The counts of a version's outcomes before evidence was graded.

    version: 0 for all versions together. ends: how many outcomes counted.
    """

    resource: int
    version: int
    ends: int
    successes: int


QUERIES = read_queries()

_USE = "id, at, resource, version, search, session, principal, connection"


def add_client_session(
    db: Connection, session: str | None, connection: str | None, at: str
) -> None:
    """Store that the server saw a client's session over a connection of its own."""
    if session and connection:
        db.execute(
            # OR IGNORE: the first time stays, which tells whether the server saw the session before
            # its transcript.
            "INSERT OR IGNORE INTO client_session (session, connection, at) VALUES (?, ?, ?)",
            (session, connection, at),
        )


def recount_votes(db: Connection, voter: str | None, resource: int | None = None) -> None:
    """Mark the outcome of a voter that counts for each version: the last one of the best grade."""
    if voter is None:
        return
    where = "voter = ?1 AND grade <> '' AND (?2 IS NULL OR resource = ?2)"
    db.execute(
        f"""UPDATE outcome SET counts = CASE WHEN id IN (SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY resource, version
            ORDER BY grade DESC, at DESC, id DESC) AS place
            FROM outcome WHERE {where}) WHERE place = 1) THEN 1 ELSE 0 END WHERE {where}""",
        (voter, resource),
    )


@dataclass(frozen=True, slots=True)
class GradedEnd:
    """How work with a version ended, and how far that counts: the base of attempts and executions.

    model: the model that did the work. outcome: None without any that counts; UNKNOWN also when its
    outcomes contradict each other. grade: of the outcome. link: the connection over which the
    server saw the session, None where it did not.
    """

    version: int | None
    at: str
    model: str | None
    outcome: Outcome | None
    grade: Grade = field(default=Grade.HISTORY, kw_only=True)
    link: str | None = field(default=None, kw_only=True)

    @property
    def verified(self) -> bool:
        """Whether the end is verified."""
        return self.grade is Grade.VERIFIED


@dataclass(frozen=True, slots=True)
class Attempt(GradedEnd):
    """One attempt at a task with a resource.

    key: its session, or the id of a use without one. version: None where versions are counted
    together. outcome: None without any that counts, UNKNOWN also for outcomes that contradict each
    other.
    """

    resource: int
    key: str
    task_type: str | None
    loaded: bool
    used: bool


@dataclass(frozen=True, slots=True)
class SuccessCounts:
    """Counts over the attempts in which a resource was used.

    ends: those whose end counts. successes: those that ended well. verified, verified_successes: of
    these, the verified ones, one of each connection.
    """

    ends: int = 0
    successes: int = 0
    verified: int = 0
    verified_successes: int = 0

    @property
    def reported(self) -> int:
        """The ends that count without being verified."""
        return self.ends - self.verified


@dataclass(frozen=True, slots=True)
class ImpressionCount:
    """How often a resource was shown: in all, since a moment, and when it was last."""

    times: int
    since: int
    last: str


_GRADES: dict[str | None, Grade] = {None: Grade.HISTORY, **{grade.value: grade for grade in Grade}}
_OUTCOMES: dict[str | None, Outcome | None] = {
    None: None,
    **{outcome.value: outcome for outcome in Outcome},
}


def one_of_each_connection(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the verified attempts, the last one of each connection.

    A client can name any number of sessions over one connection.
    """
    # Attempts come in the order of their time, so the last one stays in the dict.
    last = {attempt.link or attempt.key: attempt for attempt in attempts if attempt.verified}
    return list(last.values())


def _outcome(least: str | None, most: str | None, anything: str | None) -> Outcome | None:
    """Return the outcome of an attempt.

    least, most: the first and the last, in alphabetical order, of the outcomes that count.
    anything: one of those that do not count.
    """
    # They differ where the session contradicts itself.
    if least != most:
        return Outcome.UNKNOWN
    return _OUTCOMES[most or anything]


# Outcomes have no key, so every column that tells one apart is compared; IS finds NULL equal too.
_UNLESS_REPORTED = """ WHERE NOT EXISTS (SELECT 1 FROM outcome o WHERE o.resource = :resource
    AND o.use IS :use
    AND o.session IS :session AND o.at = :at AND o.outcome = :outcome)"""


class EvidenceLog(SqliteRepository):
    """Uses, reported outcomes and attempts. Rows are only added."""

    def add_use(self, use: Use) -> None:
        """Store a use, and that the server saw its session."""
        with self._backend.writing() as db:
            db.execute(f"INSERT INTO use ({_USE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", astuple(use))
            add_client_session(db, use.session, use.connection, use.at)

    def add_first_use(self, use: Use) -> bool:
        """Store a use unless its session has one of that resource already.

        Return whether it was stored.
        """
        with self._backend.writing() as db:
            added = db.execute(
                f"INSERT INTO use ({_USE}) SELECT ?, ?, ?, ?, ?, ?, ?, ? WHERE NOT EXISTS ("
                "SELECT 1 FROM use WHERE resource = ? AND session = ? AND origin IS NULL)",
                (*astuple(use), use.resource, use.session),
            )
            add_client_session(db, use.session, use.connection, use.at)
            return bool(added.rowcount)

    def was_served(
        self,
        resource: int,
        version: int,
        principal: str,
        session: str | None,
        connection: str | None,
    ) -> bool:
        """Return whether this principal was served the version in this session, or over this
        connection.
        """
        # A use of an earlier version has no principal, and counts for anybody.
        query = """SELECT 1 FROM use WHERE resource = ? AND version = ? AND origin IS NULL
            AND coalesce(principal, ?3) = ?3 AND (session IS ?4 OR connection = ?5) LIMIT 1"""
        return self._one(query, resource, version, principal, session, connection) is not None

    def used_in(self, session: str, resources: Iterable[int]) -> set[int]:
        """Return the resources among these that a session has loaded."""
        query = """SELECT DISTINCT resource FROM use
            WHERE session = ? AND origin IS NULL AND resource IN (SELECT CAST(value AS INTEGER)
            FROM json_each(?))"""
        return set(self._all(int, query, session, json.dumps(list(resources))))

    def count_uses(self, resource: int, version: int) -> int:
        """Return how often a resource was loaded here in this version or a later one."""
        query = "SELECT count(*) FROM use WHERE resource = ? AND version >= ? AND origin IS NULL"
        return int(self._one(query, resource, version)[0])

    def use(self, identity: str) -> Use:
        """Return the use with this id. Raises NoSuchUse."""
        row = self._one(f"SELECT {_USE} FROM use WHERE id = ? AND origin IS NULL", identity)
        if row is None:
            raise NoSuchUse(
                f"There is no use {ascii(identity[:80])}.",
                "load_skill returns a use_id; a ref does as well.",
            )
        return Use(*row)

    def add_outcome(self, outcome: ReportedOutcome) -> None:
        """Store an outcome."""
        fields = ", ".join(field.name for field in dataclass_fields(outcome))
        with self._backend.writing() as db:
            db.execute(
                f"INSERT INTO outcome ({fields}) VALUES ({', '.join('?' * len(astuple(outcome)))})",
                astuple(outcome),
            )
            # In the same transaction: no reader sees two votes of one voter.
            recount_votes(db, outcome.voter, outcome.resource)

    def list_regraded(self, *, unsaid: bool = False) -> list[UngradedEvidence]:
        """Return the counts of evidence before it was graded.

        unsaid: only those that no person was shown yet.
        """
        where = "WHERE said = 0" if unsaid else ""
        return self._all(
            UngradedEvidence, f"SELECT resource, version, ends, successes FROM regraded {where}"
        )

    def mark_regrading_reported(self) -> None:
        """Note that a person was shown the evidence that counts less since it was graded."""
        self._do("UPDATE regraded SET said = 1 WHERE said = 0")

    def tally(self, resource: int) -> Tally:
        """Return the counts of one resource."""
        return self.tallies([resource]).get(resource, Tally())

    def tallies(self, resources: Iterable[int]) -> dict[int, Tally]:
        """Return the counts of these resources, without resources that have none."""
        ids = json.dumps(list(resources))
        with self._backend.reading() as db:
            loaded: Sequence[tuple[int, int]] = db.execute(QUERIES["loaded"], (ids,)).fetchall()
            outcome_counts: Sequence[tuple[int, str, int]] = db.execute(
                QUERIES["reported"], (ids,)
            ).fetchall()
        counts: dict[int, Counter[str]] = {}
        for resource, number in loaded:
            counts.setdefault(resource, Counter())["loaded"] = number
        for resource, outcome, number in outcome_counts:
            counts.setdefault(resource, Counter())[outcome] = number
        return {resource: Tally(**count) for resource, count in counts.items()}

    def list_attempts(
        self, resources: Iterable[int] | None = None, *, versions: bool = False
    ) -> list[Attempt]:
        """Return the attempts of these resources, by default of all, in the order of their time.

        versions: one session that used two versions of a resource is two attempts, one of each.
        """
        # These parts of the query are fixed texts; ids are bound as JSON.
        version, also = ("version", ", version") if versions else ("NULL", "")
        among = "?1 IS NULL" if resources is None else "resource IN (SELECT id FROM asked)"
        # Attempts and successes are computed from the same facts, so that both count the same.
        loads = QUERIES["attempt_loads"].format(among=among)
        facts = QUERIES["attempt_facts"].format(among=among, more=loads)
        ends = QUERIES["ends"]
        query = facts + QUERIES["attempts"].format(ends=ends, version=version, also=also)
        resource_ids = None if resources is None else json.dumps(list(resources))
        models = dict(self._rows("SELECT session, model FROM taken WHERE model IS NOT NULL"))
        types = dict(self._rows("SELECT session, task_type FROM taken WHERE task_type IS NOT NULL"))
        rows = self._rows(query, resource_ids)
        attempts = []
        for row in rows:
            resource, version, key, at, loaded, used, task_type, *graded = row
            least, most, grade, anything, model, link = graded
            attempt = Attempt(
                version=version,
                at=at,
                model=model or models.get(key),
                outcome=_outcome(least, most, anything),
                resource=resource,
                key=key,
                task_type=task_type or types.get(key),
                loaded=loaded == 1,
                used=used == 1,
                grade=_GRADES[grade] if least == most else Grade.HISTORY,
                link=link,
            )
            attempts.append(attempt)
        return attempts

    def count_successes(self, resources: Iterable[int]) -> dict[int, SuccessCounts]:
        """Return the counts of successes of these resources, without resources that have none."""
        facts = QUERIES["attempt_facts"].format(among="resource IN (SELECT id FROM asked)", more="")
        query = facts + QUERIES["successes"].format(ends=QUERIES["ends"])
        rows = self._rows(query, json.dumps(list(resources)))
        by_resource: dict[int, tuple[int, ...]] = {}
        # One row for all ends, then one for the verified ones, as the query orders them.
        for resource, _, ends, successes in rows:
            by_resource[resource] = (*by_resource.get(resource, ()), ends, successes)
        return {resource: SuccessCounts(*counts) for resource, counts in by_resource.items()}

    def most_successful(self, limit: int) -> list[int]:
        """Return the resources with the most successes that count, those with more verified ones
        first.
        """
        query = """SELECT resource FROM (
                SELECT resource, grade FROM outcome WHERE counts AND outcome = 'succeeded'
                UNION ALL SELECT resource, grade FROM sighting
                WHERE origin IS NULL AND grade <> '' AND outcome = 'succeeded')
            GROUP BY resource ORDER BY sum(grade = 'verified') DESC, count(*) DESC, resource
            LIMIT ?"""
        return [resource for (resource,) in self._rows(query, limit)]

    def session_connections(self, sessions: Iterable[str]) -> set[str]:
        """Return the connections over which the server saw these sessions."""
        query = (
            "SELECT connection FROM client_session WHERE session IN (SELECT value "
            "FROM json_each(?))"
        )
        return set(self._all(str, query, json.dumps(list(sessions))))

    def count_impressions(self, since: str) -> dict[int, ImpressionCount]:
        """Return by resource how often it was shown to agents; since: ISO 8601 in UTC.

        What an archive brought, and searches of earlier versions that may have been a review's, do
        not count. Of a day whose impressions are folded all count as the last of them.
        """
        return {
            row[0]: ImpressionCount(*row[1:]) for row in self._rows(QUERIES["impressions"], since)
        }

    def baseline_successes(self) -> SuccessCounts:
        """Return the counts of the sessions that the server saw in which no resource was loaded."""
        return SuccessCounts(*self._one(QUERIES["baseline_successes"]))

    def export_rows(
        self, table: str, columns: Sequence[str]
    ) -> list[tuple[Ref | None, tuple[Any, ...]]]:
        """Return these columns of every row of a table in a stable order, each with its ref.

        The ref is None in the table of sessions, whose rows are about no resource.
        """
        # Columns are names of SHAPES, never text of a caller.
        column_list = ", ".join(f"e.{column}" for column in columns)
        about, joined = "r.kind, r.scope, r.name", "JOIN resource r ON r.id = e.resource"
        if table == "taken":
            about, joined = "NULL, NULL, NULL", ""
        orders = {"use": "e.id", "outcome": "e.id", "taken": "e.session, e.at"}
        order = orders.get(table, "e.at, e.resource")
        rows = self._rows(f"SELECT {about}, {column_list} FROM {table} e {joined} ORDER BY {order}")
        return [
            (Ref(Kind(kind), name, scope) if kind else None, tuple(values))
            for kind, scope, name, *values in rows
        ]

    def import_rows(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Add rows of another library to these tables, unless they are here already."""
        with self._backend.writing() as db:
            for table, row in rows:
                unless = _UNLESS_REPORTED if table == "outcome" else ""
                columns, values = ", ".join(row), ", ".join(f":{column}" for column in row)
                db.execute(
                    f"INSERT OR IGNORE INTO {table} ({columns}) SELECT {values}{unless}", row
                )
