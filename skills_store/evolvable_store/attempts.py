"""Attempts: what is known of each task in which a version was loaded, from the calls and from the transcripts.

One session is one attempt at most, however often it loaded or reported, so that attempts are independent. A use whose
session nobody knows is an attempt of its own.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from evolvable_store.evidence import Grade, Outcome
from evolvable_store.sqlite import SqliteBackend


@dataclass(frozen=True, slots=True)
class Attempt:
    """One task. key: its session, or the use's own id. version: None where several versions are put together.

    outcome: None when nothing that counts was said; UNKNOWN too when what was said contradicts itself. grade: of that
    outcome. link: the connection over which the server saw the session, None where it did not.
    """

    resource: int
    version: int | None
    key: str
    at: str
    model: str | None
    task_type: str | None
    loaded: bool
    used: bool
    outcome: Outcome | None
    grade: Grade = Grade.HISTORY
    link: str | None = None

    @property
    def verified(self) -> bool:
        """Whether its end is verified."""
        return self.grade is Grade.VERIFIED


@dataclass(frozen=True, slots=True)
class Proof:
    """Over the attempts in which a resource was used: how many ended in a way that counts, and how many well.

    verified, verified_successes: of those, the verified ones, one of each connection.
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
class Seen:
    """How often a resource was shown, and when it was last; in all, and since a moment."""

    times: int
    since: int
    last: str


# Of the words of one voter about a version the best and then the last one counts. Words about a skill that was not
# followed say nothing of it. `ends` are the ends that are known; a session may bring several, which agree or do not.
_FACTS = """
    WITH asked AS (SELECT value AS id FROM json_each(?1)),
    fact AS (
        SELECT o.resource, o.version, o.voter AS key, o.at, NULL AS model, lower(trim(o.task_type)) AS task_type,
            0 AS loaded, coalesce(o.usage, 'used') IN ('used', 'partially_used') AS used,
            CASE WHEN coalesce(o.usage, 'used') IN ('used', 'partially_used') THEN o.outcome END AS outcome,
            o.grade, NULL AS link
        FROM (SELECT *, row_number() OVER (
                PARTITION BY resource, version, voter ORDER BY grade DESC, at DESC, id DESC) AS place
            FROM outcome WHERE grade <> '' AND {among}) o WHERE o.place = 1
        UNION ALL
        SELECT resource, version, session, at, model, NULL, loaded, used, CASE WHEN grade <> '' THEN outcome END,
            grade, link
        FROM sighting WHERE origin IS NULL AND {among}
        {more}
    )"""
# Loading proves nothing, so it is left out where only the proof is asked for.
_LOADED = """UNION ALL SELECT resource, version, coalesce(session, id), at, NULL, NULL, 1, 0, NULL, '', NULL
    FROM use WHERE origin IS NULL AND {among}"""
_KNOWN = "CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END"
_GRADED = "max(CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN grade END)"
_ATTEMPT = f"""SELECT resource, {{version}}, key, min(at), max(loaded), max(used), max(task_type),
        count(DISTINCT {_KNOWN}), max({_KNOWN}), max(outcome), max(model), {_GRADED}, max(link)
    FROM fact GROUP BY resource, key{{also}}"""


def attempts(
    backend: SqliteBackend, resources: Iterable[int] | None = None, *, versions: bool = False
) -> list[Attempt]:
    """Returns the attempts of these resources, by default of all, in the order of their time.

    versions: one session that used two versions of a resource is two attempts, one of each.
    """
    chosen = {"version": "version", "also": ", version"} if versions else {"version": "NULL", "also": ""}
    among = "?1 IS NULL" if resources is None else "resource IN asked"
    facts = _FACTS.format(among=among, more=_LOADED.format(among=among))
    query = f"{facts} {_ATTEMPT.format(**chosen)} ORDER BY min(at), key, resource, version"
    asked = None if resources is None else json.dumps(list(resources))
    models = _models(backend)
    with backend.reading() as db:
        rows = db.execute(query, (asked,)).fetchall()
    return [
        Attempt(
            *(resource, version, key, at, model or models.get(key), task_type, loaded == 1, used == 1),
            _outcome(kinds, known, anything),
            Grade(grade or "") if kinds == 1 else Grade.HISTORY,
            link,
        )
        for resource, version, key, at, loaded, used, task_type, kinds, known, anything, model, grade, link in rows
    ]


def proofs(backend: SqliteBackend, resources: Iterable[int]) -> dict[int, Proof]:
    """Returns the proof of those of these resources that have any."""
    facts = _FACTS.format(among="resource IN asked", more="")
    query = f"""{facts} SELECT resource, count(*), sum(known = 'succeeded'),
            sum(grade = 'verified' AND place = 1), sum(grade = 'verified' AND place = 1 AND known = 'succeeded')
        FROM (
            SELECT *, row_number() OVER (
                PARTITION BY resource, grade, coalesce(link, key) ORDER BY at DESC, key) AS place
            FROM (
                SELECT resource, key, max(at) AS at, max(used) AS used, count(DISTINCT {_KNOWN}) AS kinds,
                    max({_KNOWN}) AS known, {_GRADED} AS grade, max(link) AS link
                FROM fact GROUP BY resource, key)
            WHERE used AND kinds = 1)
        GROUP BY resource"""
    with backend.reading() as db:
        rows = db.execute(query, (json.dumps(list(resources)),)).fetchall()
    return {resource: Proof(*counts) for resource, *counts in rows}


def one_of_each_connection(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the verified attempts, of each connection the last one: a client names as many sessions as it likes."""
    last = {attempt.link or attempt.key: attempt for attempt in attempts if attempt.verified}
    return list(last.values())


def connections_of(backend: SqliteBackend, sessions: Iterable[str]) -> set[str]:
    """Return the connections over which the server saw these sessions."""
    query = "SELECT connection FROM client_session WHERE session IN (SELECT value FROM json_each(?))"
    with backend.reading() as db:
        return {row[0] for row in db.execute(query, (json.dumps(list(sessions)),)).fetchall()}


def shown(backend: SqliteBackend, since: str) -> dict[int, Seen]:
    """Returns by resource how often it was shown to agents; since: ISO 8601 in UTC."""
    query = "SELECT resource, count(*), sum(at >= ?), max(at) FROM shown WHERE origin IS NULL GROUP BY resource"
    with backend.reading() as db:
        return {resource: Seen(times, later, last) for resource, times, later, last in db.execute(query, (since,))}


def without_any(backend: SqliteBackend) -> Proof:
    """Return how the sessions that the server saw ended, as far as is known, in which no resource was loaded."""
    query = """SELECT count(*), coalesce(sum(outcome = 'succeeded'), 0) FROM taken t
        WHERE outcome IN ('succeeded', 'failed', 'partial') AND witnessed AND origin IS NULL
        AND NOT EXISTS (SELECT 1 FROM sighting s WHERE s.session = t.session)
        AND NOT EXISTS (SELECT 1 FROM use u WHERE u.session = t.session)
        AND NOT EXISTS (SELECT 1 FROM outcome o WHERE o.session = t.session)"""
    with backend.reading() as db:
        return Proof(*db.execute(query).fetchone())


def _models(backend: SqliteBackend) -> dict[str, str]:
    with backend.reading() as db:
        return dict(db.execute("SELECT session, model FROM taken WHERE model IS NOT NULL").fetchall())


def _outcome(kinds: int, known: str | None, anything: str | None) -> Outcome | None:
    if kinds > 1:
        return Outcome.UNKNOWN
    text = known or anything
    return None if text is None else Outcome(text)
