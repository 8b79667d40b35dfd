"""Take bytes out of the library for good: a tombstone says who did and why, and every hash stays as it is.

A manifest names its files by their sha256. A purge replaces the row of such a blob by a tombstone with the same name
and size, so no version, no hash of a version and no list of files changes. The same bytes never come back under that
name.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evolvable_store.errors import LibraryReadOnly
from evolvable_store.packing import PURGED, TOMBSTONES, Tombstone, pack_tombstone, unpack, unpack_tombstone
from evolvable_store.vectors_file import FILE as VECTORS

if TYPE_CHECKING:
    from evolvable_store.driver import Connection
    from evolvable_store.store import Store

_CHAINED = ("change", "operation", "blob", "purging")
"""Tables that are not edited: version hashes cover the first two, the others are handled apart."""


@dataclass(frozen=True, slots=True)
class Job:
    """A purge. texts: bytes to take out wherever they stand. blobs: the files to take out whole, by their hash."""

    id: int
    at: str
    actor: str
    reason: str
    kind: str
    texts: tuple[bytes, ...]
    blobs: tuple[str, ...]

    @property
    def mark(self) -> bytes:
        """What stands where a secret was."""
        return f"[purged {self.kind}, {self.at[:10]}, {self.actor}: {self.reason}]".encode()

    @property
    def notice(self) -> bytes:
        """What stands for a whole file."""
        return f"[This file was purged on {self.at[:10]} by {self.actor}: {self.reason}]\n".encode()


def begin(store: "Store", actor: str, reason: str, kind: str, texts: Iterable[bytes], blobs: Iterable[str]) -> Job:
    """Note a purge before anything is removed, so that one that is killed can be ended. Raises LibraryReadOnly."""
    encoded = json.dumps([base64.b64encode(text).decode("ascii") for text in texts])
    at = store.now()
    with _writing(store) as db:
        row = (at, actor, reason, kind, encoded, json.dumps(list(blobs)))
        db.execute("INSERT INTO purging (at, actor, reason, kind, texts, blobs) VALUES (?, ?, ?, ?, ?, ?)", row)
    return pending(store)[-1]


def pending(store: "Store") -> list[Job]:
    """Return the purges that have not ended, the oldest first."""
    with store.backend.reading() as db:
        rows = db.execute("SELECT id, at, actor, reason, kind, texts, blobs FROM purging ORDER BY id").fetchall()
    return [
        Job(
            identity, at, actor, reason, kind, tuple(map(base64.b64decode, json.loads(texts))), tuple(json.loads(blobs))
        )
        for identity, at, actor, reason, kind, texts, blobs in rows
    ]


def blobs_with(store: "Store", texts: Iterable[bytes]) -> list[str]:
    """Return the blobs that hold one of these texts. Every blob is read."""
    wanted = tuple(texts)
    return [name for name, data in _contents(store) if any(text in data for text in wanted)] if wanted else []


def bury(store: "Store", job: Job) -> list[str]:
    """Replace the blobs of a job by tombstones and its texts in every table by a mark; return the blobs' hashes.

    Each step is a transaction; done again it does what is left.
    """
    done = [*_bury(store, job, dict.fromkeys(job.blobs, job.notice))]
    for name in blobs_with(store, job.texts):
        data = store.backend.blob(name)
        assert data is not None
        done += _bury(store, job, {name: replaced(data, job)})
    with _writing(store) as db:
        for table, column in _columns(db):
            for text in map(_decoded, job.texts):
                for said, mark in _spellings(text, job.mark.decode()):
                    db.execute(
                        f'UPDATE OR REPLACE "{table}" SET "{column}" = replace("{column}", ?1, ?2)'
                        f' WHERE typeof("{column}") = \'text\' AND instr("{column}", ?1) > 0',
                        (said, mark),
                    )
        db.execute(
            "DELETE FROM looked WHERE sha256 IN (SELECT sha256 FROM blob WHERE codec = 'purged')",
        )
    return done


def replaced(data: bytes, job: Job) -> bytes:
    """Return bytes with the texts of a job replaced by its mark."""
    for text in sorted(job.texts, key=len, reverse=True):
        data = data.replace(text, job.mark)
    return data


def chained(store: "Store", job: Job) -> list[int]:
    """Return the operations whose own words hold a text of the job. Version hashes cover them: they stay."""
    found: list[int] = []
    with store.backend.reading() as db:
        for text in map(_decoded, job.texts):
            for said, _ in _spellings(text, ""):
                query = "SELECT id FROM operation WHERE instr(reason, ?1) OR instr(coalesce(evidence, ''), ?1)"
                found += [identity for (identity,) in db.execute(query, (said,))]
    return sorted(set(found))


def finish(store: "Store", job: Job) -> bool:
    """Overwrite what the file and its log still hold of removed rows, and end the job.

    Returns False when another process kept the log from being emptied: the purge is then to be run again.
    """
    with store.backend.reading() as db:
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("VACUUM")
    with _writing(store) as db:
        db.execute("UPDATE purging SET texts = '[]' WHERE id = ?", (job.id,))
    if not _emptied(store):
        return False
    with _writing(store) as db:
        blobs = json.dumps(sorted(_named_by(db, job)))
        row = (job.at, job.actor, job.reason, job.kind, blobs)
        db.execute("INSERT INTO purged (at, actor, reason, kind, blobs) VALUES (?, ?, ?, ?, ?)", row)
        db.execute("DELETE FROM purging WHERE id = ?", (job.id,))
    return _emptied(store)


def tombstone(store: "Store", sha256: str) -> tuple[Tombstone, int] | None:
    """Return who purged a blob, when and why, and how many bytes it had; None for a blob that has its bytes."""
    with store.backend.reading() as db:
        row = db.execute("SELECT data, codec, size FROM blob WHERE sha256 = ?", (sha256,)).fetchone()
    if row is None or row[1] not in TOMBSTONES:
        return None
    return unpack_tombstone(row[0]), int(row[2])


def forget_vectors(store: "Store", resources: Iterable[int]) -> None:
    """Remove the vectors of these resources' texts; they are made again from the texts that are left."""
    from evolvable_store import driver

    path = store.home / VECTORS
    if not path.exists():
        return
    ids = json.dumps(list(resources))
    connection = driver.connect(path, durable=False, access="write")
    try:
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute(
            """DELETE FROM vector WHERE hash IN (
                SELECT hash FROM said WHERE resource IN (SELECT value FROM json_each(?)))""",
            (ids,),
        )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


class _writing:
    """Lends the writing connection with deleted content overwritten."""

    def __init__(self, store: "Store") -> None:
        if store.read_only:
            raise LibraryReadOnly(f"{store.backend.path} cannot be written.", "Check its permissions.")
        self._context = store.backend.writing()

    def __enter__(self) -> "Connection":
        db = self._context.__enter__()
        db.execute("PRAGMA secure_delete=ON")
        return db

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)


def _bury(store: "Store", job: Job, contents: Mapping[str, bytes]) -> list[str]:
    with _writing(store) as db:
        for name, content in contents.items():
            data = pack_tombstone(Tombstone(job.at, job.actor, job.reason, job.kind, content or job.notice))
            db.execute("UPDATE blob SET codec = ?, data = ? WHERE sha256 = ?", (PURGED, data, name))
    return list(contents)


def _contents(store: "Store") -> Iterator[tuple[str, bytes]]:
    with store.backend.reading() as db:
        names = db.execute("SELECT id, sha256 FROM blob ORDER BY id").fetchall()
    for identity, name in names:
        with store.backend.reading() as db:
            row = db.execute("SELECT data, codec FROM blob WHERE id = ?", (identity,)).fetchone()
        if row is not None:
            yield name, unpack(*row)


def _columns(db: "Connection") -> list[tuple[str, str]]:
    """Return every column of text in the tables that may be edited."""
    tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
    return [
        (table, column)
        for (table,) in tables
        if table not in _CHAINED
        for _, column, kind, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall()
        if kind.upper() in ("TEXT", "")
    ]


def _spellings(text: str, mark: str) -> list[tuple[str, str]]:
    """Return a text as it stands, and as JSON writes it; each with its mark."""
    plain = [(text, mark)]
    for ascii_only in (True, False):
        said = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        if said not in [one for one, _ in plain]:
            plain.append((said, json.dumps(mark, ensure_ascii=ascii_only)[1:-1]))
    return plain


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _named_by(db: "Connection", job: Job) -> list[str]:
    rows = db.execute("SELECT sha256, data FROM blob WHERE codec = ?", (PURGED,)).fetchall()
    return [name for name, data in rows if (stone := unpack_tombstone(data)).at == job.at and stone.kind == job.kind]


def _emptied(store: "Store") -> bool:
    """Fold the log into the file and empty it; return whether that was done."""
    with store.backend.reading() as db:
        row = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return row is None or row[0] == 0
