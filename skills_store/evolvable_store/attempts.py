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


_GRADES: dict[str | None, Grade] = {None: Grade.HISTORY, **{grade.value: grade for grade in Grade}}
_OUTCOMES: dict[str | None, Outcome | None] = {None: None, **{outcome.value: outcome for outcome in Outcome}}

# Of the words of one voter about a version one counts. Words about a skill that was not followed say nothing of it. An
# end that is `known` has a grade; a session may bring several, which agree or do not.
_FACTS = """
    WITH asked AS (SELECT value AS id FROM json_each(?1)),
    fact AS (
        SELECT resource, version, voter AS key, at, NULL AS model, lower(trim(task_type)) AS task_type, 0 AS loaded,
            1 AS used, outcome, grade, NULL AS link
        FROM outcome WHERE counts AND coalesce(usage, 'used') IN ('used', 'partially_used') AND {among}
        UNION ALL
        SELECT resource, version, session, at, model, NULL, loaded, used, CASE WHEN grade <> '' THEN outcome END,
            grade, link
        FROM sighting WHERE origin IS NULL AND {among}
        {more}
    )"""
# Neither loading nor what was said of a skill that was not followed proves anything: both are left out where only the
# proof is asked for.
_LOADED = """UNION ALL SELECT resource, version, coalesce(session, id), at, NULL, NULL, 1, 0, NULL, '', NULL
    FROM use WHERE origin IS NULL AND {among}
    UNION ALL SELECT resource, version, voter, at, NULL, lower(trim(task_type)), 0, 0, NULL, '', NULL
    FROM outcome WHERE counts AND usage IN ('ignored', 'inapplicable') AND {among}"""
_KNOWN = "CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN {} END"
_ENDS = f"""min({_KNOWN.format("outcome")}) AS least, max({_KNOWN.format("outcome")}) AS known,
    max({_KNOWN.format("grade")}) AS grade"""
_ATTEMPT = f"""SELECT resource, {{version}}, key, min(at), max(loaded), max(used), max(task_type), {_ENDS},
        max(outcome), max(model), max(link)
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
            _outcome(least, known, anything),
            _GRADES[grade] if least == known else Grade.HISTORY,
            link,
        )
        for resource, version, key, at, loaded, used, task_type, least, known, grade, anything, model, link in rows
    ]


def proofs(backend: SqliteBackend, resources: Iterable[int]) -> dict[int, Proof]:
    """Returns the proof of those of these resources that have any."""
    facts = _FACTS.format(among="resource IN asked", more="")
    query = f"""{facts}, attempt AS MATERIALIZED (
            SELECT resource, key, at, link, known, grade FROM (
                SELECT resource, key, max(at) AS at, max(link) AS link, max(used) AS used, {_ENDS}
                FROM fact GROUP BY resource, key)
            WHERE used AND least = known)
        SELECT resource, 0, count(*), sum(known = 'succeeded') FROM attempt GROUP BY resource
        UNION ALL
        SELECT resource, 1, count(*), sum(known = 'succeeded') FROM (
            SELECT resource, known, max(at) FROM attempt WHERE grade = 'verified'
            GROUP BY resource, coalesce(link, key))
        GROUP BY resource"""
    with backend.reading() as db:
        rows = db.execute(query, (json.dumps(list(resources)),)).fetchall()
    found: dict[int, tuple[int, ...]] = {}
    for resource, _, ends, successes in rows:  # the verified ones come after all of them
        found[resource] = (*found.get(resource, ()), ends, successes)
    return {resource: Proof(*counts) for resource, counts in found.items()}


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


def _outcome(least: str | None, known: str | None, anything: str | None) -> Outcome | None:
    if least != known:
        return Outcome.UNKNOWN
    return _OUTCOMES[known or anything]
