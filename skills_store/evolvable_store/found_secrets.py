"""What a search for secrets found in which blob: kept by the hash of the content, so that nothing is read twice."""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evolvable_store.packing import unpack
from evolvable_store.resource import Kind, Ref

if TYPE_CHECKING:
    from evolvable_store.store import Store

_BATCH = 200


@dataclass(frozen=True, slots=True)
class Found:
    """One secret in a blob. id: the same for the same secret anywhere. line: counted from 1, 0 for a whole file."""

    id: str
    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class Held:
    """A secret, and one file of a version that holds it. newest: the version is the resource's head."""

    found: Found
    ref: Ref
    version: int
    path: str
    sha256: str
    newest: bool


Place = tuple[Ref, int, str, str, bool]
"""A ref, a version, a path, the blob's hash, and whether the version is the head."""

Look = Callable[[bytes], list[Found]]


class FoundSecrets:
    """The findings of a library. rules: a number that changes with the rules; blobs seen by others are seen again."""

    def __init__(self, store: "Store", look: Look, rules: int) -> None:
        self._store, self._look, self._rules = store, look, rules

    def catch_up(self) -> int:
        """Look at every blob that was not looked at by these rules; return how many there were.

        A library that cannot be written is looked at again each time. Raises LibraryError as the store does.
        """
        query = """SELECT b.sha256 FROM blob b LEFT JOIN looked l ON l.sha256 = b.sha256 AND l.rules = ?
            WHERE l.sha256 IS NULL AND b.codec NOT IN ('purged', 'absent') ORDER BY b.id"""
        with self._store.backend.reading() as db:
            unseen = [sha256 for (sha256,) in db.execute(query, (self._rules,))]
        for start in range(0, len(unseen), _BATCH):
            rows = list(self._rows(unseen[start : start + _BATCH]))
            if not self._store.read_only:
                with self._store.backend.writing() as writer:
                    writer.executemany("INSERT OR REPLACE INTO looked VALUES (?, ?, ?)", rows)
        return len(unseen)

    def _rows(self, names: Iterable[str]) -> Iterator[tuple[str, int, str]]:
        query = "SELECT sha256, data, codec FROM blob WHERE sha256 IN (SELECT value FROM json_each(?))"
        with self._store.backend.reading() as db:
            rows = db.execute(query, (json.dumps(list(names)),)).fetchall()
        for name, data, codec in rows:
            try:
                found = self._look(unpack(data, codec))
            except zlib.error:
                continue  # fsck names it
            said = json.dumps([[one.id, one.kind, one.line] for one in found]) if found else ""
            yield name, self._rules, said

    def accepted(self) -> dict[str, str]:
        """Return the ids that a person accepted, each with the reason."""
        with self._store.backend.reading() as db:
            return dict(db.execute("SELECT id, reason FROM accepted").fetchall())

    def accept(self, id: str, actor: str, reason: str) -> None:
        """Note that a person knows of a finding and keeps it."""
        with self._store.backend.writing() as db:
            db.execute("INSERT OR REPLACE INTO accepted VALUES (?, ?, ?, ?)", (id, self._store.now(), actor, reason))

    def held(self, *, everything: bool = False) -> list[Held]:
        """Return every finding with every file of a version that holds it. everything: accepted ones too."""
        accepted = {} if everything else self.accepted()
        with self._store.backend.reading() as db:
            rows = db.execute(
                """SELECT l.sha256, l.found FROM looked l JOIN blob b ON b.sha256 = l.sha256
                WHERE l.found <> '' AND b.codec NOT IN ('purged', 'absent')"""
            ).fetchall()
            by_blob = {sha256: [one for one in _parsed(found) if one.id not in accepted] for sha256, found in rows}
            names = [sha256 for sha256, found in by_blob.items() if found]
            where = "f.value ->> 0 IN (SELECT value FROM json_each(?))"
            places = _places(db, where, json.dumps(names)) if names else []
        held = [Held(one, *place) for place in places for one in by_blob[place[3]]]
        return sorted(held, key=lambda one: (str(one.ref), -one.version, one.path, one.found.line))

    def named(self, pattern: str) -> list[Place]:
        """Return every file of a version whose path is like a pattern of SQL, unless it was purged."""
        where = "f.key LIKE ? AND f.value ->> 0 NOT IN (SELECT sha256 FROM blob WHERE codec IN ('purged', 'absent'))"
        with self._store.backend.reading() as db:
            return _places(db, where, pattern)


def _places(db: Any, where: str, value: str) -> list[Place]:
    query = f"""SELECT r.kind, r.name, r.scope, c.latest, f.key, f.value ->> 0, c.latest = (
                SELECT h.after FROM change h WHERE h.resource = c.resource
                ORDER BY h.latest DESC, h.sequence DESC LIMIT 1)
            FROM change c, json_each(c.manifest) f JOIN resource r ON r.id = c.resource
            WHERE c.manifest IS NOT NULL AND {where}"""
    rows = db.execute(query, (value,)).fetchall()
    return [
        (Ref(Kind(kind), name, scope), version, path, sha256, bool(newest))
        for kind, name, scope, version, path, sha256, newest in rows
    ]


def _parsed(said: str) -> list[Found]:
    return [Found(*fields) for fields in json.loads(said)] if said else []
