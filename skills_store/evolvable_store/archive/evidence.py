"""The evidence in a JSON archive: what was shown, loaded, told, and seen in sessions, each by the ref it is about.

    {"type": "shown", "ref", "version", "at", "search", "session"}
    {"type": "use", "ref", "version", "at", "id", "search", "session"}
    {"type": "outcome", "ref", "version", "at", "use", "outcome", "usage", "task_type", "evidence", "session"}
    {"type": "sighting", "ref", "version", "at", "session", "model", "loaded", "used", "how", "outcome", "signals"}
    {"type": "taken", "session", "client", "digest", "spans", "at", "model", "outcome", "signals"}

A `taken` stands for a whole session, so only an export of the whole library has them. Whoever made an archive can write
into it what they like, so an import keeps its evidence as history and counts none of it.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

from evolvable_store.evidence import Outcome, Usage
from evolvable_store.resource import Kind, Ref
from evolvable_store.sightings import signals_of

if TYPE_CHECKING:
    from evolvable_store.driver import Connection
    from evolvable_store.store import Store


def _shape(texts: str = "", maybe: str = "", numbers: str = "") -> dict[str, tuple[type, ...]]:
    of: dict[str, tuple[type, ...]] = dict.fromkeys(texts.split(), (str,))
    return of | dict.fromkeys(maybe.split(), (str, NoneType)) | dict.fromkeys(numbers.split(), (int,))


SHAPES = {
    "shown": _shape("ref at search", "session", "version"),
    "use": _shape("ref at id", "search session", "version"),
    "outcome": _shape("ref at outcome", "use usage task_type evidence session", "version"),
    "sighting": _shape("ref at session how signals", "model outcome", "version loaded used"),
    "taken": _shape("session client digest at signals", "model outcome", "spans"),
}
"""Every type of record, with its fields and what they may be. The fields but `ref` are the columns of its table."""

_BATCH = 500


def export_evidence(store: "Store", latest: Mapping[Ref, int], *, whole: bool) -> Iterator[dict[str, Any]]:
    """Yields the evidence in an order that is the same each time. latest: the newest version of each resource that it
    may be about. whole: these are all resources.
    """
    for kind, shape in SHAPES.items():
        if kind == "taken" and not whole:
            return
        columns = [field for field in shape if field != "ref"]
        listed = ", ".join(f"e.{column}" for column in columns)
        about = "r.kind, r.scope, r.name" if "ref" in shape else "NULL, NULL, NULL"
        joined = "JOIN resource r ON r.id = e.resource" if "ref" in shape else ""
        order = "e.id" if kind in ("use", "outcome") else "e.session, e.at" if kind == "taken" else "e.at, e.resource"
        with store.backend.reading() as db:
            rows = db.execute(f"SELECT {about}, {listed} FROM {kind} e {joined} ORDER BY {order}").fetchall()
        for resource_kind, scope, name, *values in rows:
            record = {"type": kind}
            if "ref" in shape:
                ref = Ref(Kind(resource_kind), name, scope)
                if values[columns.index("version")] > latest.get(ref, 0):
                    continue
                record["ref"] = str(ref)
            yield record | dict(zip(columns, values, strict=True))


def is_sound(record: Mapping[str, Any]) -> bool:
    """Returns whether the words in a record of the right shape are known."""
    outcome, usage = record.get("outcome"), record.get("usage")
    if (outcome is not None and outcome not in set(Outcome)) or (usage is not None and usage not in set(Usage)):
        return False
    try:
        signals_of(record.get("signals", "[]"))
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    return True


def take_evidence(store: "Store", records: Iterable[Mapping[str, Any]], known: Mapping[str, tuple[int, int]]) -> None:
    """Add the evidence that is not here yet, as history that counts nothing.

    known: ref -> (id, newest version) of the resources that it may be about.

    What was said here already is left as it is, so taking in the same archive again changes nothing.
    """
    # The type is the table, and is one of SHAPES.
    rest = iter(records)
    while batch := list(itertools.islice(rest, _BATCH)):
        with store.backend.writing() as db:
            for record in batch:
                _take(db, record, known)


def _take(db: "Connection", record: Mapping[str, Any], known: Mapping[str, tuple[int, int]]) -> None:
    table = record["type"]
    row = {field: record[field] for field in SHAPES[table] if field != "ref"} | {"origin": "import"}
    if "ref" in SHAPES[table]:
        identity, latest = known.get(record["ref"], (0, 0))
        if not 1 <= record["version"] <= latest:
            return
        row["resource"] = identity
    unless = ""
    if table == "outcome":
        unless = """ WHERE NOT EXISTS (SELECT 1 FROM outcome o WHERE o.resource = :resource AND o.use IS :use
            AND o.session IS :session AND o.at = :at AND o.outcome = :outcome)"""
    columns, values = ", ".join(row), ", ".join(f":{column}" for column in row)
    db.execute(f"INSERT OR IGNORE INTO {table} ({columns}) SELECT {values}{unless}", row)
