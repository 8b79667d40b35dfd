"""Why a version is thought to help: which versions were loaded, and what came of it, as told by whom."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store.errors import NoSuchUse
from evolvable_store.sqlite import SqliteBackend


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


@dataclass(frozen=True, slots=True)
class Use:
    """One loading of one version. `search` is the id of the search that led to it, if one did."""

    id: str
    at: str
    resource: int
    version: int
    search: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """One reported outcome. `use` is None when it was told of a resource without a use."""

    at: str
    resource: int
    version: int
    outcome: Outcome
    use: str | None = None
    usage: Usage | None = None
    task_type: str | None = None
    evidence: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts over all versions of one resource: loadings, and outcomes by kind, as told or as a session showed."""

    loaded: int = 0
    succeeded: int = 0
    failed: int = 0
    partial: int = 0
    abandoned: int = 0
    unknown: int = 0


class EvidenceLog:
    """The evidence of one library. Rows are only added."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    def add_use(self, use: Use) -> None:
        """Keeps a use."""
        row = (use.id, use.at, use.resource, use.version, use.search, use.session)
        with self._backend.writing() as db:
            db.execute("INSERT INTO use VALUES (?, ?, ?, ?, ?, ?)", row)

    def add_first_use(self, use: Use) -> bool:
        """Keeps a use unless its session has one of that resource already; returns whether it was kept."""
        row = (use.id, use.at, use.resource, use.version, use.search, use.session, use.resource, use.session)
        with self._backend.writing() as db:
            added = db.execute(
                "INSERT INTO use SELECT ?, ?, ?, ?, ?, ?"
                " WHERE NOT EXISTS (SELECT 1 FROM use WHERE resource = ? AND session = ?)",
                row,
            )
            return bool(added.rowcount)

    def used_in(self, session: str, resources: Iterable[int]) -> set[int]:
        """Returns those of `resources` that a session has loaded."""
        query = "SELECT DISTINCT resource FROM use WHERE session = ? AND resource IN (SELECT value FROM json_each(?))"
        with self._backend.reading() as db:
            return {row[0] for row in db.execute(query, (session, json.dumps(list(resources)))).fetchall()}

    def use(self, identity: str) -> Use:
        """Returns the use with this id. Raises NoSuchUse."""
        with self._backend.reading() as db:
            row = db.execute("SELECT * FROM use WHERE id = ?", (identity,)).fetchone()
        if row is None:
            raise NoSuchUse(
                f"There is no use {ascii(identity[:80])}.", "load_skill returns a use_id; a ref does as well."
            )
        return Use(*row)

    def add_outcome(self, told: Told) -> None:
        """Keeps an outcome; a later one for the same use counts instead of the earlier."""
        t = told
        row = (t.at, t.use, t.resource, t.version, t.outcome, t.usage, t.task_type, t.evidence, t.session)
        with self._backend.writing() as db:
            db.execute(
                "INSERT INTO outcome (at, use, resource, version, outcome, usage, task_type, evidence, session)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )

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


# What a transcript shows is counted where no call told it already.
_LOADED = """WITH asked AS (SELECT value FROM json_each(?1))
    SELECT resource, count(*) FROM (
        SELECT resource FROM use WHERE resource IN asked
        UNION ALL
        SELECT resource FROM sighting s WHERE resource IN asked AND loaded AND NOT EXISTS (
            SELECT 1 FROM use u WHERE u.session = s.session AND u.resource = s.resource)
    ) GROUP BY resource"""
_TOLD = """WITH asked AS (SELECT value FROM json_each(?1))
    SELECT resource, outcome, count(*) FROM (
        SELECT resource, outcome FROM outcome
        WHERE id IN (SELECT id FROM (
            SELECT id, row_number() OVER (PARTITION BY coalesce(use, id) ORDER BY at DESC, id DESC) AS place
            FROM outcome WHERE resource IN asked) WHERE place = 1)
        UNION ALL
        SELECT resource, outcome FROM sighting s
        WHERE resource IN asked AND outcome IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM outcome o WHERE o.session = s.session AND o.resource = s.resource)
    ) GROUP BY resource, outcome"""
