"""What finished sessions showed: which versions were loaded and used in them, and how they ended."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from evolvable_store.evidence import Grade, Outcome, Usage, settle_votes
from evolvable_store.sqlite import SqliteBackend

if TYPE_CHECKING:
    from evolvable_store.driver import Connection


@dataclass(frozen=True, slots=True)
class Signal:
    """One thing in a session that tells how it ended. kind: tests, commit or words; span: where it stands."""

    kind: str
    outcome: Outcome
    span: int
    turn: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a session showed of one version.

    at: when it was first seen; how: by what, such as `skill` or `read`. outcome: what the signals after its first
    use say, None when there were none. model: whose session it was at that time.
    """

    resource: int
    version: int
    at: str
    model: str | None
    loaded: bool
    used: bool
    how: tuple[str, ...]
    outcome: Outcome | None = None
    signals: tuple[Signal, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """A session that was taken in. spans: how many it had; outcome and signals: of the whole session."""

    session: str
    client: str
    digest: str
    spans: int
    at: str
    model: str | None
    outcome: Outcome | None = None
    signals: tuple[Signal, ...] = ()


class SightingLog:
    """The sessions that one library has taken in."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    def take(
        self,
        taken: Taken,
        sightings: Iterable[Sighting],
        *,
        uses: Sequence[str] = (),
        searches: Sequence[str] = (),
    ) -> bool:
        """Keeps what a session showed instead of what it showed before; returns whether anything was kept.

        A session that is known as it is, or known longer, is left as it stands. uses, searches: those that the
        session made; where nobody knew whose they are, they become this session's. Its ends count only where the server
        saw the session before.
        """
        with self._backend.writing() as db:
            known = db.execute(
                "SELECT digest, spans, witnessed FROM taken WHERE session = ? AND origin IS NULL", (taken.session,)
            ).fetchone()
            if known is not None and (known[0] == taken.digest or known[1] > taken.spans):
                return False
            link = _link(db, taken.session)
            # A session that was told of before the server saw it stays unseen, whatever is called by its name later.
            witnessed = link is not None and (known is None or known[2] == 1)
            t = taken
            values = (t.session, t.client, t.digest, t.spans, t.at, t.model, t.outcome, _signals(t.signals), witnessed)
            db.execute(f"INSERT OR REPLACE INTO taken ({_TAKEN}, witnessed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            db.execute("DELETE FROM sighting WHERE session = ?", (taken.session,))
            for one in sightings:
                grade = _grade(db, taken.session, one) if witnessed else Grade.HISTORY
                row = (*_row(taken.session, one), grade, link if witnessed else None)
                db.execute(f"INSERT INTO sighting ({_SIGHTING}, grade, link) VALUES ({_MARKS})", row)
            asked = "IN (SELECT value FROM json_each(?))"
            for table, key, ids, more in (
                *(("use", "id", uses, ""), ("shown", "search", searches, "")),
                ("outcome", "use", uses, ", voter = CASE grade WHEN 'reported' THEN ?1 ELSE voter END"),
            ):
                db.execute(
                    f"UPDATE {table} SET session = ?1{more} WHERE session IS NULL AND {key} {asked.replace('?', '?2')}",
                    (taken.session, json.dumps(list(ids))),
                )
            if uses:
                settle_votes(db, taken.session)
        return True

    def taken(self, session: str) -> Taken | None:
        """Returns what was taken in of a session, None when nothing was."""
        with self._backend.reading() as db:
            row = db.execute(f"SELECT {_TAKEN} FROM taken WHERE session = ? AND origin IS NULL", (session,)).fetchone()
        if row is None:
            return None
        name, client, digest, spans, at, model, outcome, signals = row
        return Taken(name, client, digest, spans, at, model, _outcome(outcome), signals_of(signals))

    def sightings(self, session: str) -> list[Sighting]:
        """Returns what a session showed, by resource and version."""
        with self._backend.reading() as db:
            rows = db.execute(
                f"SELECT {_SIGHTING} FROM sighting WHERE session = ? AND origin IS NULL ORDER BY resource, version",
                (session,),
            ).fetchall()
        return [_as_sighting(row) for row in rows]

    def version_at(self, resource: int, at: str) -> int | None:
        """Returns the version that was the head at a moment (ISO 8601 in UTC); None when it was not there."""
        query = """SELECT c.after FROM change c JOIN operation o ON o.id = c.operation
            WHERE c.resource = ? AND o.at <= ? ORDER BY c.sequence DESC LIMIT 1"""
        with self._backend.reading() as db:
            row: tuple[int | None] | None = db.execute(query, (resource, at)).fetchone()
        return row[0] if row else None


_TAKEN = "session, client, digest, spans, at, model, outcome, signals"
_SIGHTING = "session, resource, version, at, model, loaded, used, how, outcome, signals"
_MARKS = ", ".join("?" * 12)


def _link(db: "Connection", session: str) -> str | None:
    """Return the connection over which the server saw a session first, None when it never did.

    A connection that tells clients apart comes before one that several share.
    """
    query = "SELECT connection FROM client_session WHERE session = ? ORDER BY connection LIKE 'http%', at LIMIT 1"
    row = db.execute(query, (session,)).fetchone()
    return row[0] if row else None


def _grade(db: "Connection", session: str, one: Sighting) -> Grade:
    """Return the grade of what a session that the server saw shows: verified where it served that very version."""
    served = """SELECT 1 FROM use WHERE session = ? AND resource = ? AND version = ? AND connection IS NOT NULL
        AND origin IS NULL LIMIT 1"""
    agrees = one.loaded and db.execute(served, (session, one.resource, one.version)).fetchone() is not None
    return Grade.VERIFIED if agrees else Grade.REPORTED


def _as_sighting(row: tuple[Any, ...]) -> Sighting:
    _, resource, version, at, model, loaded, used, how, outcome, signals = row
    seen = (loaded == 1, used == 1, tuple(how.split()))
    return Sighting(resource, version, at, model, *seen, _outcome(outcome), signals_of(signals))


def _row(session: str, s: Sighting) -> tuple[object, ...]:
    plain = (session, s.resource, s.version, s.at, s.model, int(s.loaded), int(s.used), " ".join(s.how))
    return (*plain, s.outcome, _signals(s.signals))


def _signals(signals: Iterable[Signal]) -> str:
    return json.dumps([asdict(signal) for signal in signals])


def _outcome(text: str | None) -> Outcome | None:
    return None if text is None else Outcome(text)


def signals_of(text: str) -> tuple[Signal, ...]:
    """Returns signals as they are stored. Raises ValueError, TypeError or KeyError for what is not."""
    return tuple(Signal(s["kind"], Outcome(s["outcome"]), int(s["span"]), int(s["turn"])) for s in json.loads(text))


def faults(backend: SqliteBackend) -> Iterator[tuple[str, str]]:
    """Yields (which, what is wrong with it) for the evidence that does not fit the rest of the library."""
    for table, key in (("shown", "search"), ("use", "id"), ("outcome", "id"), ("sighting", "session")):
        missing = f"""SELECT {key}, resource, version FROM {table} e WHERE version < 1 OR version > (
            SELECT coalesce(max(latest), 0) FROM change WHERE resource = e.resource)"""
        with backend.reading() as db:
            rows = db.execute(missing).fetchall()
        yield from ((f"{table} {row[0]}", f"version {row[2]} of resource {row[1]} is missing") for row in rows)
    for table, column, words in (
        ("outcome", "outcome", Outcome),
        ("outcome", "usage", Usage),
        ("sighting", "outcome", Outcome),
        ("taken", "outcome", Outcome),
    ):
        listed = ", ".join(f"'{word}'" for word in words)
        with backend.reading() as db:
            query = f"SELECT coalesce(session, ''), {column} FROM {table} WHERE {column} NOT IN ({listed})"
            rows = db.execute(query).fetchall()
        yield from ((f"{table} of session {row[0]}", f"there is no {column} {row[1]!r}") for row in rows)
    for table in ("sighting", "taken"):
        with backend.reading() as db:
            rows = db.execute(f"SELECT session, signals FROM {table}").fetchall()
        for session, signals in rows:
            try:
                signals_of(signals)
            except (ValueError, TypeError, KeyError):
                yield f"{table} of session {session}", "its signals cannot be read"
