"""Attempts: what is known of each task in which a version was loaded, from the calls and from the transcripts.

One session is one attempt at most, however often it loaded or reported, so that attempts are independent. A use whose
session nobody knows is an attempt of its own.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from evolvable_store.evidence import Outcome
from evolvable_store.sqlite import SqliteBackend


@dataclass(frozen=True, slots=True)
class Attempt:
    """One task. key: its session, or the use's own id. version: None where several versions are put together.

    outcome: None when nobody said anything; UNKNOWN too when what was said contradicts itself.
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


@dataclass(frozen=True, slots=True)
class Proof:
    """Over the attempts in which a resource was used: how many ended in a way that is known, and how many well."""

    ends: int = 0
    successes: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """How often a resource was shown, and when it was last; in all, and since a moment."""

    times: int
    since: int
    last: str


# A later word about the same use counts instead of the earlier. Words about a skill that was not followed say nothing
# of it. `ends` are the ends that are known; a session may bring several, which agree or do not.
_FACTS = """
    WITH asked AS (SELECT value AS id FROM json_each(?1)),
    fact AS (
        SELECT o.resource, o.version,
            coalesce(o.session, (SELECT session FROM use WHERE id = o.use), o.use, 'word-' || o.id) AS key, o.at,
            NULL AS model, lower(trim(o.task_type)) AS task_type, 0 AS loaded,
            coalesce(o.usage, 'used') IN ('used', 'partially_used') AS used,
            CASE WHEN coalesce(o.usage, 'used') IN ('used', 'partially_used') THEN o.outcome END AS outcome
        FROM outcome o WHERE o.id IN (SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY coalesce(use, id) ORDER BY at DESC, id DESC) AS place
            FROM outcome WHERE {among}) WHERE place = 1)
        UNION ALL
        SELECT resource, version, session, at, model, NULL, loaded, used, outcome
        FROM sighting WHERE {among}
        {more}
    )"""
# Loading proves nothing, so it is left out where only the proof is asked for.
_LOADED = (
    """UNION ALL SELECT resource, version, coalesce(session, id), at, NULL, NULL, 1, 0, NULL FROM use WHERE {among}"""
)
_KNOWN = "CASE WHEN outcome IN ('succeeded', 'failed', 'partial') THEN outcome END"
_ATTEMPT = f"""SELECT resource, {{version}}, key, min(at), max(loaded), max(used), max(task_type),
        count(DISTINCT {_KNOWN}), max({_KNOWN}), max(outcome), max(model)
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
        )
        for resource, version, key, at, loaded, used, task_type, kinds, known, anything, model in rows
    ]


def proofs(backend: SqliteBackend, resources: Iterable[int]) -> dict[int, Proof]:
    """Returns the proof of those of these resources that have any."""
    facts = _FACTS.format(among="resource IN asked", more="")
    query = f"""{facts} SELECT resource, count(*), sum(known = 'succeeded') FROM (
            SELECT resource, max(used) AS used, count(DISTINCT {_KNOWN}) AS kinds, max({_KNOWN}) AS known
            FROM fact GROUP BY resource, key)
        WHERE used AND kinds = 1 GROUP BY resource"""
    with backend.reading() as db:
        rows = db.execute(query, (json.dumps(list(resources)),)).fetchall()
    return {resource: Proof(ends, successes) for resource, ends, successes in rows}


def shown(backend: SqliteBackend, since: str) -> dict[int, Seen]:
    """Returns by resource how often it was shown to agents; since: ISO 8601 in UTC."""
    query = "SELECT resource, count(*), sum(at >= ?), max(at) FROM shown GROUP BY resource"
    with backend.reading() as db:
        return {resource: Seen(times, later, last) for resource, times, later, last in db.execute(query, (since,))}


def without_any(backend: SqliteBackend) -> Proof:
    """Returns how the sessions ended, as far as is known, in which no resource was loaded."""
    query = """SELECT count(*), coalesce(sum(outcome = 'succeeded'), 0) FROM taken t
        WHERE outcome IN ('succeeded', 'failed', 'partial')
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
