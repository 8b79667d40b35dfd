"""Work on a whole library: checks, unreferenced blobs, purges, found secrets, copies."""

import base64
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evolvable_store.errors import LibraryCorrupt
from evolvable_store.objects import PURGED, TOMBSTONES, Tombstone, pack_tombstone, unpack, unpack_tombstone
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import connection, migrations

if TYPE_CHECKING:
    from evolvable_store.storage.connection import Connection
    from evolvable_store.storage.sqlite import SqliteStorage

# A manifest is {"path": [sha256, size, mode]}.
_REFERENCED = """SELECT file.value ->> 0 FROM change, json_each(change.manifest) AS file
    WHERE change.manifest IS NOT NULL AND change.sequence > ?
    UNION ALL SELECT file.value ->> 0 FROM proposal, json_each(proposal.manifest) AS file"""
_UNREFERENCED = f"SELECT id, sha256, length(data) FROM blob WHERE sha256 NOT IN ({_REFERENCED}) ORDER BY id"

_CHAINED = ("change", "operation", "blob", "purging")
"""Tables that are not edited: version hashes cover the first two, a purge treats the others separately."""

_PAGES_PER_STEP = 1000  # pages: some MB between two calls of `progress`


MAX_ITEMS, MAX_BYTES = 200, 8 * 2**20
"""What is written under one lock: some 10 ms."""

T = TypeVar("T")


def split_batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in lists of at most MAX_ITEMS and MAX_BYTES, so that other processes wait for one list only.

    A single item over MAX_BYTES is a list of its own.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        if batch and (len(batch) >= MAX_ITEMS or total + size(item) > MAX_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class BlobRow:
    """A stored blob. size: bytes as stored."""

    id: int
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The end of the log, the last change that an operation claims, and the number of rows that a check reads."""

    end: int
    claimed: int
    rows: int


@dataclass(frozen=True, slots=True)
class SqliteFacts:
    """The SQLite in use, its module, the journal mode ('' when read-only), and the reason for that mode."""

    version: str
    module: str
    journal: str
    why: str


def describe_sqlite(journal: str, home: Path) -> SqliteFacts:
    """Return the SQLite in use and why a library in `home` has this journal mode."""
    safe = ".".join(map(str, connection.SAFE_VERSION))
    if not connection.wal_is_safe():
        why = (
            f"before {safe} a write-ahead log can lose data when several processes write; pysqlite3 brings a newer one"
        )
    elif connection.on_network(home if home.exists() else home.parent):
        why = "a write-ahead log does not work on a network file system"
    elif journal in ("wal", ""):
        why = f"from {safe} on a write-ahead log is safe with several processes"
    else:
        why = "another program keeps the file from using a write-ahead log"
    module = connection.dbapi.__name__.partition(".")[0]
    return SqliteFacts(connection.dbapi.sqlite_version, module, journal, why)


class SqliteMaintenance:
    """Checks, collection and copies of one library."""

    def __init__(self, backend: "SqliteStorage") -> None:
        self._backend = backend

    def on_network(self) -> bool:
        return connection.on_network(self._backend.path.parent)

    def schema_version(self) -> int:
        with self._backend.reading() as db:
            return migrations.schema_version(db, self._backend.path)

    def table_sizes(self) -> dict[str, int]:
        with self._backend.reading() as db:
            return {table: db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in _tables(db)}

    def file_faults(self) -> list[str]:
        return [text for (text,) in self._all("PRAGMA integrity_check") if text != "ok"]

    def extent(self) -> LogExtent:
        query = """SELECT
            (SELECT coalesce(max(sequence), 0) FROM change), (SELECT coalesce(max(last), 0) FROM operation),
            (SELECT count(*) FROM blob) + 2 * (SELECT count(*) FROM change) + (SELECT count(*) FROM operation)"""
        return LogExtent(*self._all(query)[0])

    def blobs_after(self, identity: int, limit: int) -> list[tuple[int, str, int, str]]:
        return self._all("SELECT id, sha256, size, codec FROM blob WHERE id > ? ORDER BY id LIMIT ?", identity, limit)

    def packed_by_id(self, identity: int) -> bytes | None:
        rows = self._all("SELECT data FROM blob WHERE id = ?", identity)
        return rows[0][0] if rows else None

    def packed_blob(self, sha256: str) -> tuple[bytes, str] | None:
        rows = self._all("SELECT data, codec FROM blob WHERE sha256 = ?", sha256)
        return rows[0] if rows else None

    def blob_size(self, sha256: str) -> int | None:
        rows = self._all("SELECT size FROM blob WHERE sha256 = ?", sha256)
        return rows[0][0] if rows else None

    def changes_after(self, sequence: int, end: int, limit: int) -> list[tuple[int, int, int]]:
        query = """SELECT sequence, operation, (SELECT count(*) FROM resource r WHERE r.id = c.resource)
            FROM change c WHERE sequence > ? AND sequence <= ? ORDER BY sequence LIMIT ?"""
        return self._all(query, sequence, end, limit)

    def operations_after(self, identity: int, end: int, limit: int) -> list[tuple[int, int]]:
        query = "SELECT id, last FROM operation WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
        return self._all(query, identity, end, limit)

    def resources_after(self, identity: int, limit: int) -> list[tuple[int, str, str, str]]:
        return self._all("SELECT id, kind, scope, name FROM resource WHERE id > ? ORDER BY id LIMIT ?", identity, limit)

    def history_after(self, resource: int, after: tuple[int, int], end: int, limit: int) -> list[tuple[Any, ...]]:
        query = """SELECT latest, sequence, operation, before, after, tree, hash, frozen, manifest FROM change
            WHERE (latest, sequence) > (?, ?) AND resource = ? AND sequence <= ? ORDER BY latest, sequence LIMIT ?"""
        return self._all(query, *after, resource, end, limit)

    def has_history(self, resource: int) -> bool:
        return bool(self._all("SELECT 1 FROM change WHERE resource = ? LIMIT 1", resource))

    def _all(self, query: str, *values: Any) -> list[Any]:
        with self._backend.reading() as db:
            return db.execute(query, values).fetchall()

    def unreferenced_blobs(self) -> tuple[int, list[BlobRow]]:
        with self._backend.reading() as db:
            # In this order: a version that is published between the two reads only keeps its blobs twice.
            seen = int(db.execute("SELECT coalesce(max(sequence), 0) FROM change").fetchone()[0])
            return seen, [BlobRow(*row) for row in db.execute(_UNREFERENCED, (0,))]

    def delete_blobs(self, blobs: Iterable[BlobRow], seen: int) -> list[BlobRow]:
        # By id and hash: the blob may have been removed and added again, and its id may be another's now.
        delete = "DELETE FROM blob WHERE id = ? AND sha256 = ?"
        with self._backend.writing() as db:
            since = {sha256 for (sha256,) in db.execute(_REFERENCED, (seen,))}
            return [
                blob
                for blob in blobs
                if blob.sha256 not in since and db.execute(delete, (blob.id, blob.sha256)).rowcount
            ]

    def vacuum(self, *, in_memory: bool = False) -> None:
        with self._backend.reading() as db:
            if in_memory:
                db.execute("PRAGMA temp_store=MEMORY")
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def empty_log(self) -> bool:
        with self._backend.reading() as db:
            row = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return row is None or row[0] == 0

    def copy_to(self, file: Path, progress: Callable[[int, int], None]) -> None:
        with self._backend.reading() as source, _open_copy(file) as copy:
            # Nothing relies on the draft until it is renamed; it is synced once, at the end.
            copy.execute("PRAGMA synchronous=OFF")
            with _snapshot(source):
                source.backup(
                    copy, pages=_PAGES_PER_STEP, progress=lambda _, left, total: progress(total - left, total)
                )
            # A copy must not write into the folders of the original.
            copy.execute("DELETE FROM binding")
            copy.execute("DELETE FROM folder")
            # One file, which also opens on a read-only disk. Opening it for writing sets the library's own mode again.
            copy.execute("PRAGMA journal_mode=DELETE")
        with _open_copy(file) as copy:
            found = copy.execute("PRAGMA quick_check(3)").fetchall()
        if found != [("ok",)]:
            raise LibraryCorrupt(
                f"The copy is damaged ({'; '.join(text for (text,) in found)}), so it was not kept.",
                "Run `evolvable fsck` on the library.",
            )


@contextlib.contextmanager
def _snapshot(source: "Connection") -> Iterator[None]:
    """Hold the source at its present state.

    Otherwise SQLite restarts the copy after every write of another process; with two writers it was measured never to
    end. VACUUM INTO ends too, in twice the time.
    """
    source.execute("BEGIN")
    try:
        source.execute("SELECT 1 FROM sqlite_master").fetchone()
        yield
    finally:
        source.execute("ROLLBACK")


@contextlib.contextmanager
def _open_copy(file: Path) -> Iterator["Connection"]:
    with (
        connection.translate_errors(file),
        contextlib.closing(connection.dbapi.connect(str(file), isolation_level=None)) as copy,
    ):
        yield copy


def _tables(db: "Connection") -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in db.execute(query).fetchall()]


@dataclass(frozen=True, slots=True)
class PurgeJob:
    """A purge. texts: bytes to remove from every record. blobs: hashes of the files to remove whole."""

    id: int
    at: str
    actor: str
    reason: str
    kind: str
    texts: tuple[bytes, ...]
    blobs: tuple[str, ...]

    @property
    def mark(self) -> bytes:
        """The text that replaces a secret."""
        return f"[purged {self.kind}, {self.at[:10]}, {self.actor}: {self.reason}]".encode()

    @property
    def notice(self) -> bytes:
        """The text that replaces a whole file."""
        return f"[This file was purged on {self.at[:10]} by {self.actor}: {self.reason}]\n".encode()

    def replace_texts(self, data: bytes) -> bytes:
        """Return bytes with the texts of the job replaced by its mark."""
        for text in sorted(self.texts, key=len, reverse=True):
            data = data.replace(text, self.mark)
        return data


class SqlitePurges:
    """The purges of one library. Deleted content is overwritten."""

    def __init__(self, backend: "SqliteStorage") -> None:
        self._backend = backend

    @contextlib.contextmanager
    def _writing(self) -> Iterator["Connection"]:
        with self._backend.writing() as db:
            db.execute("PRAGMA secure_delete=ON")
            yield db

    def begin(
        self, at: str, actor: str, reason: str, kind: str, texts: Iterable[bytes], blobs: Iterable[str]
    ) -> PurgeJob:
        encoded = json.dumps([base64.b64encode(text).decode("ascii") for text in texts])
        with self._writing() as db:
            row = (at, actor, reason, kind, encoded, json.dumps(list(blobs)))
            db.execute("INSERT INTO purging (at, actor, reason, kind, texts, blobs) VALUES (?, ?, ?, ?, ?, ?)", row)
        return self.pending()[-1]

    def pending(self) -> list[PurgeJob]:
        with self._backend.reading() as db:
            rows = db.execute("SELECT id, at, actor, reason, kind, texts, blobs FROM purging ORDER BY id").fetchall()
        return [
            PurgeJob(
                identity,
                at,
                actor,
                reason,
                kind,
                tuple(map(base64.b64decode, json.loads(texts))),
                tuple(json.loads(blobs)),
            )
            for identity, at, actor, reason, kind, texts, blobs in rows
        ]

    def contents(self) -> Iterator[tuple[str, bytes]]:
        with self._backend.reading() as db:
            names = db.execute("SELECT id, sha256 FROM blob ORDER BY id").fetchall()
        for identity, name in names:
            with self._backend.reading() as db:
                row = db.execute("SELECT data, codec FROM blob WHERE id = ?", (identity,)).fetchone()
            if row is not None:
                yield name, unpack(*row)

    def write_tombstones(self, job: PurgeJob, contents: Mapping[str, bytes]) -> list[str]:
        with self._writing() as db:
            for name, content in contents.items():
                data = pack_tombstone(Tombstone(job.at, job.actor, job.reason, job.kind, content or job.notice))
                db.execute("UPDATE blob SET codec = ?, data = ? WHERE sha256 = ?", (PURGED, data, name))
        return list(contents)

    def replace_texts(self, job: PurgeJob) -> None:
        with self._writing() as db:
            for table, column in _text_columns(db):
                for text in job.texts:
                    for spelling, mark in _spellings(text.decode("utf-8", "replace"), job.mark.decode()):
                        db.execute(
                            f'UPDATE OR REPLACE "{table}" SET "{column}" = replace("{column}", ?1, ?2)'
                            f' WHERE typeof("{column}") = \'text\' AND instr("{column}", ?1) > 0',
                            (spelling, mark),
                        )
            db.execute("DELETE FROM looked WHERE sha256 IN (SELECT sha256 FROM blob WHERE codec = 'purged')")

    def operations_with(self, texts: Iterable[bytes]) -> list[int]:
        query = "SELECT id FROM operation WHERE instr(reason, ?1) OR instr(coalesce(evidence, ''), ?1)"
        found: set[int] = set()
        with self._backend.reading() as db:
            for text in texts:
                for spelling, _ in _spellings(text.decode("utf-8", "replace"), ""):
                    found.update(identity for (identity,) in db.execute(query, (spelling,)))
        return sorted(found)

    def finish(self, job: PurgeJob) -> bool:
        self._backend.maintenance.vacuum(in_memory=True)
        with self._writing() as db:
            db.execute("UPDATE purging SET texts = '[]' WHERE id = ?", (job.id,))
        if not self._backend.maintenance.empty_log():
            return False
        with self._writing() as db:
            row = (job.at, job.actor, job.reason, job.kind, json.dumps(sorted(_purged_blobs(db, job))))
            db.execute("INSERT INTO purged (at, actor, reason, kind, blobs) VALUES (?, ?, ?, ?, ?)", row)
            db.execute("DELETE FROM purging WHERE id = ?", (job.id,))
        return self._backend.maintenance.empty_log()

    def tombstone(self, sha256: str) -> tuple[Tombstone, int] | None:
        with self._backend.reading() as db:
            row = db.execute("SELECT data, codec, size FROM blob WHERE sha256 = ?", (sha256,)).fetchone()
        if row is None or row[1] not in TOMBSTONES:
            return None
        return unpack_tombstone(row[0]), int(row[2])


def _text_columns(db: "Connection") -> list[tuple[str, str]]:
    return [
        (table, column)
        for table in _tables(db)
        if table not in _CHAINED
        for _, column, kind, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall()
        if kind.upper() in ("TEXT", "")
    ]


def _spellings(text: str, mark: str) -> list[tuple[str, str]]:
    """Return a text as it is and as JSON writes it, each with its mark."""
    found = {text: mark}
    for ascii_only in (True, False):
        spelling = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        found.setdefault(spelling, json.dumps(mark, ensure_ascii=ascii_only)[1:-1])
    return list(found.items())


def _purged_blobs(db: "Connection", job: PurgeJob) -> list[str]:
    rows = db.execute("SELECT sha256, data FROM blob WHERE codec = ?", (PURGED,)).fetchall()
    return [name for name, data in rows if (stone := unpack_tombstone(data)).at == job.at and stone.kind == job.kind]


BlobLocation = tuple[Ref, int, str, str, bool]
"""A ref, a version, a path, the blob's hash, and whether the version is the head."""


class SqliteSecrets:
    """The detected secrets of one library, by the hash of the content."""

    def __init__(self, backend: "SqliteStorage") -> None:
        self._backend = backend

    def unscanned(self, rules: int) -> list[str]:
        query = """SELECT b.sha256 FROM blob b LEFT JOIN looked l ON l.sha256 = b.sha256 AND l.rules = ?
            WHERE l.sha256 IS NULL AND b.codec NOT IN ('purged', 'absent') ORDER BY b.id"""
        with self._backend.reading() as db:
            return [sha256 for (sha256,) in db.execute(query, (rules,))]

    def packed(self, names: Iterable[str]) -> list[tuple[str, bytes, str]]:
        query = "SELECT sha256, data, codec FROM blob WHERE sha256 IN (SELECT value FROM json_each(?))"
        with self._backend.reading() as db:
            return db.execute(query, (json.dumps(list(names)),)).fetchall()

    def add(self, findings: Iterable[tuple[str, int, str]]) -> None:
        with self._backend.writing() as db:
            db.executemany("INSERT OR REPLACE INTO looked VALUES (?, ?, ?)", findings)

    def found(self) -> dict[str, str]:
        query = """SELECT l.sha256, l.found FROM looked l JOIN blob b ON b.sha256 = l.sha256
            WHERE l.found <> '' AND b.codec NOT IN ('purged', 'absent')"""
        with self._backend.reading() as db:
            return dict(db.execute(query).fetchall())

    def accepted(self) -> dict[str, str]:
        with self._backend.reading() as db:
            return dict(db.execute("SELECT id, reason FROM accepted").fetchall())

    def accept(self, finding: str, at: str, actor: str, reason: str) -> None:
        with self._backend.writing() as db:
            db.execute("INSERT OR REPLACE INTO accepted VALUES (?, ?, ?, ?)", (finding, at, actor, reason))

    def locations(self, blobs: Iterable[str]) -> list[BlobLocation]:
        return self._locate("f.value ->> 0 IN (SELECT value FROM json_each(?))", json.dumps(list(blobs)))

    def locations_like(self, pattern: str) -> list[BlobLocation]:
        purged = "SELECT sha256 FROM blob WHERE codec IN ('purged', 'absent')"
        return self._locate(f"f.key LIKE ? AND f.value ->> 0 NOT IN ({purged})", pattern)

    def _locate(self, where: str, value: str) -> list[BlobLocation]:
        query = f"""SELECT r.kind, r.name, r.scope, c.latest, f.key, f.value ->> 0, c.latest = (
                    SELECT h.after FROM change h WHERE h.resource = c.resource
                    ORDER BY h.latest DESC, h.sequence DESC LIMIT 1)
                FROM change c, json_each(c.manifest) f JOIN resource r ON r.id = c.resource
                WHERE c.manifest IS NOT NULL AND {where}"""
        with self._backend.reading() as db:
            rows = db.execute(query, (value,)).fetchall()
        return [
            (Ref(Kind(kind), name, scope), version, path, sha256, bool(newest))
            for kind, name, scope, version, path, sha256, newest in rows
        ]
