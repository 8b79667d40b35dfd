"""Usage in transcripts of finished sessions, and impressions: versions that searches showed."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass

from evolvable_store.storage.connection import Connection
from evolvable_store.storage.evidence import (
    QUERIES,
    Grade,
    GradedEnd,
    Outcome,
    Usage,
    recount_votes,
)
from evolvable_store.storage.learned import LearnedTask, replace_tasks
from evolvable_store.storage.sqlite_file import SqliteRepository


@dataclass(frozen=True, slots=True)
class OutcomeSignal:
    """One sign in a session of how it ended.

    kind: `tests`, `commit` or `words`. span, turn: where it is.
    """

    kind: str
    outcome: Outcome
    span: int
    turn: int


@dataclass(frozen=True, slots=True)
class ObservedUse:
    """The use of one version by a session, or by one executor in it.

    at: the time of the first sign of it. how: the kinds of signs, such as `skill` or `read`.
    outcome: by the signals after the first use, None without any.
    """

    resource: int
    version: int
    at: str
    loaded: bool
    used: bool
    how: tuple[str, ...]
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class UsageObservation(ObservedUse):
    """The use of one version in a session.

    model: the session's model at that time. signals: of its outcome.
    """

    model: str | None = None
    signals: tuple[OutcomeSignal, ...] = ()


@dataclass(frozen=True, slots=True)
class IngestedSession:
    """An ingested session.

    digest: of its transcript. spans: how many it had. outcome, signals: of the whole session.
    task_type: its label, None where an earlier version read it.
    """

    session: str
    client: str
    digest: str
    spans: int
    at: str
    model: str | None
    outcome: Outcome | None = None
    signals: tuple[OutcomeSignal, ...] = ()
    task_type: str | None = None


@dataclass(frozen=True, slots=True)
class ExecutionUse(ObservedUse):
    """The use of one version by one executor of a session.

    grade: of its outcome, set by the storage.
    """

    grade: Grade = Grade.HISTORY


MAIN = "main"
"""The executor of a session's own work, outside of its sub-agents."""

ITEM_SESSIONS = "ags:"
"""The prefix of sessions that stand for items of runs of agents. They have no executor MAIN."""


@dataclass(frozen=True, slots=True)
class Execution(GradedEnd):
    """The work of one executor in a session, however often it was started.

    executor: MAIN; the ref of an agent of the library, such as `agent:clerk`, as it was when the
    session was ingested; or `subagent:NAME` for another one, by the name that the client gives it.
    agent, version: the library's resource and the version that ran, None for MAIN and others. at:
    of its first span. spans: how many it has. outcome: of MAIN that of the session; of another one
    by the signals from its start to two turns after its end.

    The storage sets `grade` and `link`. An execution of grade HISTORY counts nothing.
    """

    session: str
    executor: str
    agent: int | None
    spans: int
    uses: tuple[ExecutionUse, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifiedEnd:
    """A session that the server saw before its transcript was read. outcome: by its signals.

    link: the connection over which the server saw it first.
    """

    session: str
    at: str
    outcome: Outcome | None
    task_type: str | None
    link: str | None


_TAKEN = "session, client, digest, spans, at, model, outcome, signals, task_type"
# In the digest: servers of an earlier program find it unequal to every digest, and read the session
# again.
_UNLEARNED = "unlearned:"
"""The prefix of a session's digest until the tasks that it teaches are stored."""

_OBSERVED = "resource, version, at, loaded, used, how, outcome"
_SIGHTING = "resource, version, at, model, loaded, used, how, outcome, signals"
_ADD_OBSERVATION = (
    f"INSERT INTO sighting ({_OBSERVED}, model, signals, session, grade, link) "
    f"VALUES ({', '.join('?' * 12)})"
)
_ADD_EXECUTION_USE = (
    f"INSERT INTO execution_use (session, executor, {_OBSERVED}) VALUES ({', '.join('?' * 9)})"
)


def _link(db: Connection, session: str) -> str | None:
    """Return the connection over which the server saw a session first, None when it never did.

    A connection that tells clients apart comes before one that several share.
    """
    # Several clients can share one HTTP connection, so it tells less about who worked.
    query = (
        "SELECT connection FROM client_session WHERE session = ? "
        "ORDER BY connection LIKE 'http%', at LIMIT 1"
    )
    row = db.execute(query, (session,)).fetchone()
    return row[0] if row else None


def _only_committed(signals: Iterable[OutcomeSignal]) -> bool:
    return {signal.kind for signal in signals} == {"commit"}


def _grade(db: Connection, session: str, observation: UsageObservation) -> Grade:
    """Return the grade of an observation in a session that the server saw.

    It is verified where the server served that very version to the session. A commit alone tells
    that something was done and not that it was right, so it is reported.
    """
    if _only_committed(observation.signals):
        return Grade.REPORTED
    served = """SELECT 1 FROM use WHERE session = ? AND resource = ? AND version = ?
        AND connection IS NOT NULL
        AND origin IS NULL LIMIT 1"""
    if not observation.loaded:
        return Grade.REPORTED
    row = db.execute(served, (session, observation.resource, observation.version)).fetchone()
    return Grade.REPORTED if row is None else Grade.VERIFIED


def _replace_executions(db: Connection, session: str, executions: Iterable[Execution]) -> None:
    """Store the executions of a session instead of those it had."""
    # Replaced as a whole: a session that went on may have other executors.
    for table in ("execution", "execution_use"):
        db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
    for execution in executions:
        db.execute(
            "INSERT INTO execution (session, executor, agent, version, at, model, spans, outcome)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                session,
                execution.executor,
                execution.agent,
                execution.version,
                execution.at,
                execution.model,
                execution.spans,
                execution.outcome,
            ),
        )
        for use in execution.uses:
            db.execute(_ADD_EXECUTION_USE, (session, execution.executor, *_columns(use)))


def _adopt_calls(
    db: Connection, session: str, uses: Sequence[str], searches: Sequence[str]
) -> None:
    """Assign uses and searches without a session to this session, whose transcript names them."""
    own_origin = ", origin = CASE origin WHEN 'unknown' THEN NULL ELSE origin END"
    voter = ", voter = CASE grade WHEN 'reported' THEN ?1 ELSE voter END"
    for table, key, ids, more in (
        ("use", "id", uses, ""),
        ("shown", "search", searches, own_origin),
        ("outcome", "use", uses, voter),
    ):
        db.execute(
            f"""UPDATE {table} SET session = ?1{more}
                WHERE session IS NULL AND {key} IN (SELECT value FROM json_each(?2))""",
            (session, json.dumps(list(ids))),
        )


def _as_observation(
    resource: int,
    version: int,
    at: str,
    model: str,
    loaded: int,
    used: int,
    how: str,
    outcome: str,
    signals: str,
) -> UsageObservation:
    use = (resource, version, at, loaded == 1, used == 1, tuple(how.split()), _outcome(outcome))
    return UsageObservation(*use, model, parse_signals(signals))


def _as_execution_use(
    session: str,
    executor: str,
    resource: int,
    version: int,
    at: str,
    loaded: int,
    used: int,
    how: str,
    *end: str,
) -> tuple[tuple[str, str], ExecutionUse]:
    outcome, grade = end
    use = (resource, version, at, loaded == 1, used == 1, tuple(how.split()), _outcome(outcome))
    return (session, executor), ExecutionUse(*use, Grade(grade))


def _as_session(
    session: str,
    client: str,
    digest: str,
    spans: int,
    at: str,
    model: str | None,
    outcome: str | None,
    signals: str,
    task_type: str | None,
) -> IngestedSession:
    digest = digest.removeprefix(_UNLEARNED)
    end = (_outcome(outcome), parse_signals(signals))
    return IngestedSession(session, client, digest, spans, at, model, *end, task_type)


def _columns(use: ObservedUse) -> tuple[object, ...]:
    """Return the columns that every observed use has, in the order of `_OBSERVED`."""
    return use.resource, use.version, use.at, use.loaded, use.used, " ".join(use.how), use.outcome


def _signals(signals: Iterable[OutcomeSignal]) -> str:
    return json.dumps([asdict(signal) for signal in signals])


def _outcome(text: str | None) -> Outcome | None:
    return None if text is None else Outcome(text)


def parse_signals(text: str) -> tuple[OutcomeSignal, ...]:
    """Return signals from their stored form.

    Raises ValueError, TypeError or KeyError for any other text.
    """
    return tuple(
        OutcomeSignal(row["kind"], Outcome(row["outcome"]), int(row["span"]), int(row["turn"]))
        for row in json.loads(text)
    )


_IMPRESSION = "search, resource, version, at, session"


@dataclass(frozen=True, slots=True)
class Impression:
    """One version that a search showed. at: ISO 8601 in UTC."""

    search: str
    resource: int
    version: int
    at: str
    session: str | None = None


@dataclass(frozen=True, slots=True)
class ClientSession:
    """A client's session that the server saw. connection: as of a use."""

    session: str
    connection: str
    at: str


class Observations(SqliteRepository):
    """Usage observed in transcripts, and impressions."""

    def take(
        self,
        ingested: IngestedSession,
        observations: Iterable[UsageObservation],
        *,
        uses: Sequence[str] = (),
        searches: Sequence[str] = (),
        executions: Sequence[Execution] = (),
        teaches: bool = False,
    ) -> bool:
        """Store the observations of a session in place of earlier ones; return whether it did.

        It does not where the same or a longer reading is stored. executions: of each of its
        executors. uses, searches: ids in its transcript; those without a session become this
        session's. Outcomes count only where the server saw the session before. teaches: `learn` has
        to be called for it, by a later process if this one ends before, see `is_unlearned`.
        """
        with self._backend.writing() as db:
            stored = db.execute(
                "SELECT digest, spans, witnessed FROM taken WHERE session = ? AND origin IS NULL",
                (ingested.session,),
            ).fetchone()
            # A shorter reading is an older copy of the transcript, such as one from a backup.
            if stored is not None and (
                stored[0].removeprefix(_UNLEARNED) == ingested.digest or stored[1] > ingested.spans
            ):
                return False
            link = _link(db, ingested.session)
            # A session whose transcript was read before the server saw it stays unwitnessed: later
            # calls may use its name.
            witnessed = link is not None and (stored is None or stored[2] == 1)
            signals, task_type = _signals(ingested.signals), ingested.task_type
            values = (*astuple(ingested)[:-2], signals, task_type, witnessed)
            places = ", ".join("?" * len(values))
            db.execute(
                f"INSERT OR REPLACE INTO taken ({_TAKEN}, witnessed) VALUES ({places})", values
            )
            if teaches:
                query = "UPDATE taken SET digest = ? WHERE session = ? AND origin IS NULL"
                db.execute(query, (_UNLEARNED + ingested.digest, ingested.session))
            # A later reading may find fewer uses than the one before, so rows are not merged.
            db.execute("DELETE FROM sighting WHERE session = ?", (ingested.session,))
            for observation in observations:
                grade = _grade(db, ingested.session, observation) if witnessed else Grade.HISTORY
                row = (
                    *_columns(observation),
                    observation.model,
                    _signals(observation.signals),
                    ingested.session,
                    grade,
                    link if witnessed else None,
                )
                db.execute(_ADD_OBSERVATION, row)
            _replace_executions(db, ingested.session, executions)
            _adopt_calls(db, ingested.session, uses, searches)
            if uses:
                recount_votes(db, ingested.session)
        return True

    def is_unlearned(self, session: str, digest: str) -> bool:
        """Return whether this reading of a session is stored without the tasks that it teaches."""
        query = "SELECT 1 FROM taken WHERE session = ? AND digest = ? AND origin IS NULL"
        return self._one(query, session, _UNLEARNED + digest) is not None

    def learn(self, session: str, digest: str, tasks: Sequence[LearnedTask]) -> None:
        """Store the tasks that a session teaches, as `replace_tasks` does, and note that."""
        with self._backend.writing() as db:
            replace_tasks(db, session, tasks)
            # With the old digest: a longer reading since then has its own tasks to teach.
            query = (
                "UPDATE taken SET digest = ? WHERE session = ? AND digest = ? AND origin IS NULL"
            )
            db.execute(query, (digest, session, _UNLEARNED + digest))

    def ingested_session(self, session: str) -> IngestedSession | None:
        """Return the stored data of a session, None when it was not ingested."""
        query = f"SELECT {_TAKEN} FROM taken WHERE session = ? AND origin IS NULL"
        return next(iter(self._all(_as_session, query, session)), None)

    def verified_ends(self) -> list[VerifiedEnd]:
        """Return the sessions that the server saw before their transcripts were read, by time.

        One whose only signal is a commit has no outcome: see `_grade`.
        """
        query = """SELECT t.session, t.at, t.outcome, t.signals, t.task_type, (SELECT connection
            FROM client_session c
                WHERE c.session = t.session ORDER BY connection LIKE 'http%', at LIMIT 1)
            FROM taken t WHERE t.witnessed = 1 AND t.origin IS NULL ORDER BY t.at, t.session"""
        rows = self._rows(query)
        return [
            VerifiedEnd(
                session,
                at,
                None if _only_committed(parse_signals(signals)) else _outcome(outcome),
                *rest,
            )
            for session, at, outcome, signals, *rest in rows
        ]

    def shown_in(self, session: str) -> set[int]:
        """Return the resources that searches showed in a session."""
        return {
            row[0]
            for row in self._rows("SELECT DISTINCT resource FROM shown WHERE session = ?", session)
        }

    def sightings(self, session: str) -> list[UsageObservation]:
        """Return the observations of a session, by resource and version."""
        query = (
            f"SELECT {_SIGHTING} FROM sighting WHERE session = ? AND origin IS NULL "
            "ORDER BY resource, version"
        )
        return self._all(_as_observation, query, session)

    def executions(
        self, since: str | None = None, *, session: str | None = None
    ) -> list[Execution]:
        """Return the executions of the ingested sessions by time, each with its uses.

        since: only those whose first span is not older (ISO 8601 in UTC). session: only those of
        one session. Sessions that were ingested before executions were stored have none, nor have
        those of an imported archive. A use, and the end of an agent's execution, have the grade of
        what the session showed of that version. The end of another one is VERIFIED where the server
        saw the session itself. What is not witnessed is HISTORY and has no link.
        """
        values = (since, session)
        uses: dict[tuple[str, str], list[ExecutionUse]] = {}
        for key, use in self._all(_as_execution_use, QUERIES["execution_uses"], *values):
            uses.setdefault(key, []).append(use)
        rows = self._rows(QUERIES["executions"], *values)
        return [
            Execution(
                *(version, at, model, _outcome(outcome), session, executor, agent, spans),
                uses=tuple(uses.get((session, executor), ())),
                grade=Grade(grade),
                link=link,
            )
            for session, executor, agent, version, at, model, spans, outcome, grade, link in rows
        ]

    def version_at(self, resource: int, at: str) -> int | None:
        """Return the version that was the head here at a moment (ISO 8601 in UTC), None for none.

        Changes of another library count from their arrival here. Of the changes by that moment the
        last one counts.
        """
        row: tuple[int | None] | None = self._one(QUERIES["version_at"], resource, at)
        return row[0] if row else None

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield (place, fault) for evidence that contradicts the rest of the library."""
        words = {"outcomes": json.dumps(list(Outcome)), "usages": json.dumps(list(Usage))}
        # SQL checks all but signals, which are JSON.
        yield from self._check("evidence_checks.sql", **words)
        for table in ("sighting", "taken"):
            for session, signals in self._rows(f"SELECT session, signals FROM {table}"):
                try:
                    parse_signals(signals)
                except (ValueError, TypeError, KeyError):
                    yield f"{table} of session {session}", "its signals cannot be read"

    def unknown_sessions(self, sessions: Iterable[ClientSession]) -> list[ClientSession]:
        """Return the sessions among these that are not stored with their connection."""
        query = "SELECT 1 FROM client_session WHERE session = ? AND connection = ?"
        with self._backend.reading() as db:
            return [
                client_session
                for client_session in sessions
                if not db.execute(
                    query, (client_session.session, client_session.connection)
                ).fetchone()
            ]

    def add_impressions(
        self, rows: Iterable[Impression], sessions: Iterable[ClientSession]
    ) -> None:
        """Store impressions, each search and resource once, and sessions that the server saw."""
        insert = f"INSERT OR IGNORE INTO shown ({_IMPRESSION}) VALUES (?, ?, ?, ?, ?)"
        with self._backend.writing() as db:
            db.executemany(
                "INSERT OR IGNORE INTO client_session (session, connection, at) VALUES (?, ?, ?)",
                map(astuple, sessions),
            )
            db.executemany(insert, map(astuple, rows))
