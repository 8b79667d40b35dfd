"""Work on a whole library: checks, unreferenced blobs, purges, found secrets, copies."""

import base64
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_store.errors import LibraryCorrupt
from evolvable_store.objects import (
    PURGED,
    TOMBSTONES,
    Tombstone,
    pack_tombstone,
    unpack,
    unpack_tombstone,
)
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import connection, migrations
from evolvable_store.storage.connection import Connection
from evolvable_store.storage.network_disk import on_network
from evolvable_store.storage.sqlite_file import SqliteRepository

# A manifest is {"path": [sha256, size, mode]}.
_REFERENCED = """SELECT file.value ->> 0 FROM change, json_each(change.manifest) AS file
    WHERE change.manifest IS NOT NULL AND change.sequence > ?
    UNION ALL SELECT file.value ->> 0 FROM proposal, json_each(proposal.manifest) AS file
    WHERE proposal.files_removed_at IS NULL"""
_UNREFERENCED = (
    f"SELECT id, sha256, length(data) FROM blob WHERE sha256 NOT IN ({_REFERENCED}) ORDER BY id"
)

_CHAINED = ("change", "operation", "blob", "purging")
"""Tables in which a purge replaces no texts: version hashes cover the first two, and the others are
handled separately.
"""

_PAGES_PER_STEP = 1000  # pages that are copied between two calls of `progress`


@dataclass(frozen=True, slots=True)
class BlobRow:
    """A stored blob. size: bytes as stored."""

    id: int
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The extent of a library for a check.

    end: the last change. claimed: the last change that an operation names. rows: to read.
    """

    end: int
    claimed: int
    rows: int


@dataclass(frozen=True, slots=True)
class SqliteFacts:
    """The SQLite in use.

    journal: the journal mode, '' when read-only. why: the reason for that mode.
    """

    version: str
    module: str
    journal: str
    why: str


def describe_sqlite(journal: str, home: Path) -> SqliteFacts:
    """Return the SQLite in use and why a library in `home` has this journal mode."""
    safe = ".".join(map(str, connection.SAFE_VERSION))
    # In this order: the version decides before the disk does.
    if not connection.wal_is_safe():
        why = (
            f"before {safe} a write-ahead log can lose data when several processes write; "
            "pysqlite3 brings a newer one"
        )
    elif on_network(home if home.exists() else home.parent):
        why = "a write-ahead log does not work on a network file system, and FUSE may hide one"
    elif journal in ("wal", ""):
        why = f"from {safe} on a write-ahead log is safe with several processes"
    else:
        why = "another program keeps the file from using a write-ahead log"
    module = connection.dbapi.__name__.partition(".")[0]
    return SqliteFacts(connection.dbapi.sqlite_version, module, journal, why)


class Maintenance(SqliteRepository):
    """Checks, deletion of unreferenced blobs, copies."""

    def on_network(self) -> bool:
        """Return whether the library lies on a disk that several machines may share."""
        return on_network(self._backend.path.parent)

    def schema_version(self) -> int:
        """Return the number of the schema."""
        with self._backend.reading() as db:
            return migrations.schema_version(db, self._backend.path)

    def table_sizes(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        with self._backend.reading() as db:
            return {
                table: db.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
                for table in _tables(db)
            }

    def file_faults(self) -> list[str]:
        """Return the faults that the database reports of its own file."""
        return [text for (text,) in self._rows("PRAGMA integrity_check") if text != "ok"]

    def unsafe_settings(self) -> list[str]:
        """Return the settings of the database that let a committed change be lost.

        SQLite has none, because `connection.connect` sets them.
        """
        return []

    def extent(self) -> LogExtent:
        """Return the extent of the log now."""
        query = """SELECT
            (SELECT coalesce(max(sequence), 0) FROM change), (SELECT coalesce(max(last), 0)
            FROM operation),
            (SELECT count(*) FROM blob) + 2 * (SELECT count(*) FROM change) + (SELECT count(*)
            FROM operation)"""
        return LogExtent(*self._one(query))

    def blobs_after(self, identity: int, limit: int) -> list[tuple[int, str, int, str]]:
        """Return (id, sha256, size, codec) of up to `limit` blobs, by id."""
        return self._rows(
            "SELECT id, sha256, size, codec FROM blob WHERE id > ? ORDER BY id LIMIT ?",
            identity,
            limit,
        )

    def packed_by_id(self, identity: int) -> bytes | None:
        """Return the stored bytes of a blob, None when it was collected."""
        row = self._one("SELECT data FROM blob WHERE id = ?", identity)
        return row[0] if row else None

    def packed_blob(self, sha256: str) -> tuple[bytes, str] | None:
        """Return the stored bytes of a blob and their codec, unverified."""
        row: tuple[bytes, str] | None = self._one(
            "SELECT data, codec FROM blob WHERE sha256 = ?", sha256
        )
        return row

    def packed_blobs(self, names: Iterable[str]) -> list[tuple[str, bytes, str]]:
        """Return hash, stored bytes and codec of these blobs, unverified."""
        query = (
            "SELECT sha256, data, codec FROM blob WHERE sha256 IN (SELECT value FROM json_each(?))"
        )
        return self._rows(query, json.dumps(list(names)))

    def blob_size(self, sha256: str) -> int | None:
        """Return the size in the record of a blob, None when it is missing."""
        row = self._one("SELECT size FROM blob WHERE sha256 = ?", sha256)
        return row[0] if row else None

    def changes_after(self, sequence: int, end: int, limit: int) -> list[tuple[int, int, int]]:
        """Return (sequence, operation, whether the resource exists) of up to `limit` changes up to
        `end`.
        """
        query = """SELECT sequence, operation, (SELECT count(*) FROM resource r
            WHERE r.id = c.resource)
            FROM change c WHERE sequence > ? AND sequence <= ? ORDER BY sequence LIMIT ?"""
        return self._rows(query, sequence, end, limit)

    def operations_after(self, identity: int, end: int, limit: int) -> list[tuple[int, int]]:
        """Return (first change, last change) of up to `limit` operations up to `end`."""
        query = "SELECT id, last FROM operation WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
        return self._rows(query, identity, end, limit)

    def resources_after(self, identity: int, limit: int) -> list[tuple[int, str, str, str]]:
        """Return (id, kind, scope, name) of up to `limit` resources, by id."""
        return self._rows(
            "SELECT id, kind, scope, name FROM resource WHERE id > ? ORDER BY id LIMIT ?",
            identity,
            limit,
        )

    def history_after(
        self, resource: int, after: tuple[int, int], end: int, limit: int
    ) -> list[tuple[Any, ...]]:
        """Return up to `limit` changes of a resource up to `end`, in the order that makes the last
        one its head.

        Each is (latest, sequence, operation, before, after, tree, hash, frozen, manifest).

        Args:
            after: latest and sequence of the row before the first.
        """
        query = """SELECT latest, sequence, operation, before, after, tree, hash, frozen, manifest
            FROM change
            WHERE (latest, sequence) > (?, ?) AND resource = ? AND sequence <= ?
            ORDER BY latest, sequence LIMIT ?"""
        return self._rows(query, *after, resource, end, limit)

    def has_history(self, resource: int) -> bool:
        """Return whether any change of a resource is stored."""
        return bool(self._rows("SELECT 1 FROM change WHERE resource = ? LIMIT 1", resource))

    def unreferenced_blobs(self) -> tuple[int, list[BlobRow]]:
        """Return the newest sequence, and the blobs that no version and no proposal refers to."""
        with self._backend.reading() as db:
            # In this order: blobs of a version that is published between the two reads are at most
            # checked again by `delete_blobs`.
            seen = int(db.execute("SELECT coalesce(max(sequence), 0) FROM change").fetchone()[0])
            return seen, [BlobRow(*row) for row in db.execute(_UNREFERENCED, (0,))]

    def delete_blobs(self, blobs: Iterable[BlobRow], seen: int) -> list[BlobRow]:
        """Delete those of these blobs that no change after `seen` refers to; return them."""
        # By id and hash: the blob may have been removed and added again meanwhile, and its id may
        # belong to another.
        delete = "DELETE FROM blob WHERE id = ? AND sha256 = ?"
        with self._backend.writing() as db:
            since = {sha256 for (sha256,) in db.execute(_REFERENCED, (seen,))}
            return [
                blob
                for blob in blobs
                if blob.sha256 not in since and db.execute(delete, (blob.id, blob.sha256)).rowcount
            ]

    def vacuum(self, *, in_memory: bool = False) -> None:
        """Rewrite the file without free space. in_memory: leave no temporary copy on the disk."""
        with self._backend.reading() as db:
            if in_memory:
                # A purge must not leave its texts in a temporary file.
                db.execute("PRAGMA temp_store=MEMORY")
            db.execute("VACUUM")
            # The vacuum wrote all pages into the log.
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def empty_log(self) -> bool:
        """Copy the log into the file and empty it; return False when another process reads it."""
        row = self._one("PRAGMA wal_checkpoint(TRUNCATE)")
        return row is None or row[0] == 0

    def copy_to(self, file: Path, progress: Callable[[int, int], None]) -> None:
        """Copy the library as it is now, without its watched folders, and verify the copy.

        Args:
            progress: called with pages copied and all pages.

        Raises:
            LibraryCorrupt: The copy is damaged.
        """
        with self._backend.reading() as source, _open_copy(file) as copy:
            # Nothing relies on the draft until it is renamed; it is synced once, at the end.
            copy.execute("PRAGMA synchronous=OFF")
            with _snapshot(source):
                source.backup(
                    copy,
                    pages=_PAGES_PER_STEP,
                    progress=lambda _, left, total: progress(total - left, total),
                )
            # A copy must not write into the folders of the original.
            copy.execute("DELETE FROM binding")
            copy.execute("DELETE FROM folder")
            # One file, which also opens on a read-only disk. Opening it for writing sets the
            # library's own mode again.
            copy.execute("PRAGMA journal_mode=DELETE")
        with _open_copy(file) as copy:
            # Opened again, so that the file is checked and not the pages in memory. 3: the most
            # faults that are listed.
            faults = copy.execute("PRAGMA quick_check(3)").fetchall()
        if faults != [("ok",)]:
            raise LibraryCorrupt(
                f"The copy is damaged ({'; '.join(text for (text,) in faults)}), so it "
                "was not kept.",
                "Run `evolvable care fsck` on the library.",
            )


@contextlib.contextmanager
def _snapshot(source: Connection) -> Iterator[None]:
    """Hold the source at its present state.

    Otherwise SQLite restarts the copy after every write of another process, and with steady writers
    it does not end. VACUUM INTO would end too, and take longer.
    """
    source.execute("BEGIN")
    try:
        # BEGIN alone takes no snapshot: the first read does.
        source.execute("SELECT 1 FROM sqlite_master").fetchone()
        yield
    finally:
        source.execute("ROLLBACK")


@contextlib.contextmanager
def _open_copy(file: Path) -> Iterator[Connection]:
    with (
        connection.translate_errors(file),
        contextlib.closing(connection.dbapi.connect(str(file), isolation_level=None)) as copy,
    ):
        yield copy


def _tables(db: Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return [name for (name,) in db.execute(query).fetchall()]


@dataclass(frozen=True, slots=True)
class PurgeJob:
    """A purge that is not finished.

    texts: bytes to remove from every record. blobs: hashes of the files to remove whole.
    """

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


def _as_purge_job(
    identity: int, at: str, actor: str, reason: str, kind: str, texts: str, blobs: str
) -> PurgeJob:
    decoded = tuple(map(base64.b64decode, json.loads(texts)))
    return PurgeJob(identity, at, actor, reason, kind, decoded, tuple(json.loads(blobs)))


class Purges(SqliteRepository):
    """Purges of content. Deleted content is overwritten."""

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._backend.writing() as db:
            # SQLite overwrites deleted content with zeros instead of only marking it free.
            db.execute("PRAGMA secure_delete=ON")
            yield db

    def begin(
        self,
        at: str,
        actor: str,
        reason: str,
        kind: str,
        texts: Iterable[bytes],
        blobs: Iterable[str],
    ) -> PurgeJob:
        """Record a purge before anything is removed, so that one that is killed can be finished."""
        encoded = json.dumps([base64.b64encode(text).decode("ascii") for text in texts])
        row = (at, actor, reason, kind, encoded, json.dumps(list(blobs)))
        with self._writing() as db:
            db.execute(
                "INSERT INTO purging (at, actor, reason, kind, texts, blobs) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )
        return self.pending()[-1]

    def pending(self) -> list[PurgeJob]:
        """Return the purges that are not finished, oldest first."""
        query = "SELECT id, at, actor, reason, kind, texts, blobs FROM purging ORDER BY id"
        return self._all(_as_purge_job, query)

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield the hash and the bytes of every blob."""
        for identity, name in self._rows("SELECT id, sha256 FROM blob ORDER BY id"):
            row = self._one("SELECT data, codec FROM blob WHERE id = ?", identity)
            if row is not None:  # else it was collected meanwhile
                yield name, unpack(*row)

    def write_tombstones(self, job: PurgeJob, contents: Mapping[str, bytes]) -> list[str]:
        """Replace blobs by tombstones with these contents; return their hashes."""
        with self._writing() as db:
            for name, content in contents.items():
                data = pack_tombstone(
                    Tombstone(job.at, job.actor, job.reason, job.kind, content or job.notice)
                )
                # The row keeps its hash and size, so that versions and manifests stay valid.
                db.execute(
                    "UPDATE blob SET codec = ?, data = ? WHERE sha256 = ?", (PURGED, data, name)
                )
        return list(contents)

    def replace_texts(self, job: PurgeJob) -> None:
        """Replace the texts of a job by its mark in every table that no hash covers.

        Delete the findings in purged blobs.
        """
        spellings = [
            spelling
            for text in job.texts
            for spelling in _spellings(text.decode("utf-8", "replace"), job.mark.decode())
        ]
        with self._writing() as db:
            for table, column in _text_columns(db):
                # OR REPLACE: two rows that differed only in the secret become one.
                update = (
                    f'UPDATE OR REPLACE "{table}" SET "{column}" = replace("{column}", '
                    f"?1, ?2) WHERE typeof(\"{column}\") = 'text' "
                    f'AND instr("{column}", ?1) > 0'
                )
                for spelling, mark in spellings:
                    db.execute(update, (spelling, mark))
            # The findings of a purged blob name the secret's line.
            db.execute(
                "DELETE FROM looked WHERE sha256 IN (SELECT sha256 FROM blob "
                "WHERE codec = 'purged')"
            )

    def operations_with(self, texts: Iterable[bytes]) -> list[int]:
        """Return the operations whose reason or evidence holds one of these texts.

        A purge cannot change them, because version hashes cover them.
        """
        query = (
            "SELECT id FROM operation WHERE instr(reason, ?1) OR instr(coalesce(evidence, ''), ?1)"
        )
        operations: set[int] = set()
        for text in texts:
            for spelling, _ in _spellings(text.decode("utf-8", "replace"), ""):
                operations.update(self._all(int, query, spelling))
        return sorted(operations)

    def finish(self, job: PurgeJob) -> bool:
        """Overwrite the remains of removed rows in the file and its log, and end the job.

        Return False when another process kept the log from being emptied; then the purge has to run
        again.
        """
        # In this order: the free pages, the texts of the job, the log, and last the row of the job.
        # After a crash at any step the job is still pending, and is finished again.
        Maintenance(self._backend).vacuum(in_memory=True)
        with self._writing() as db:
            db.execute("UPDATE purging SET texts = '[]' WHERE id = ?", (job.id,))
        if not Maintenance(self._backend).empty_log():
            return False
        with self._writing() as db:
            blobs = json.dumps(sorted(_purged_blobs(db, job)))
            row = (job.at, job.actor, job.reason, job.kind, blobs)
            db.execute(
                "INSERT INTO purged (at, actor, reason, kind, blobs) VALUES (?, ?, ?, ?, ?)", row
            )
            db.execute("DELETE FROM purging WHERE id = ?", (job.id,))
        return Maintenance(self._backend).empty_log()

    def tombstones(self) -> list[tuple[str, int, Tombstone]]:
        """Return hash, former size and record of every blob whose bytes were purged, here or
        elsewhere.
        """
        rows = self._rows(
            "SELECT sha256, size, data FROM blob WHERE codec IN ('purged', 'absent') "
            "ORDER BY sha256"
        )
        return [(name, int(size), unpack_tombstone(data)) for name, size, data in rows]

    def tombstone(self, sha256: str) -> tuple[Tombstone, int] | None:
        """Return the record of the purge of a blob and its former size; None for a blob that has
        its bytes.
        """
        row = self._one("SELECT data, codec, size FROM blob WHERE sha256 = ?", sha256)
        if row is None or row[1] not in TOMBSTONES:
            return None
        return unpack_tombstone(row[0]), int(row[2])


def _text_columns(db: Connection) -> list[tuple[str, str]]:
    """Return the columns that may hold texts, of the tables that a purge edits."""
    return [
        (table, column)
        for table in _tables(db)
        # Names come from the database's own schema, so quoting them is enough.
        if table not in _CHAINED
        for _, column, kind, *_ in db.execute(f'PRAGMA table_info("{table}")').fetchall()
        if kind.upper() in ("TEXT", "")
    ]


def _spellings(text: str, mark: str) -> list[tuple[str, str]]:
    """Return a text as it is and as JSON writes it, each with its mark."""
    spellings = {text: mark}
    for ascii_only in (True, False):
        spelling = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        spellings.setdefault(spelling, json.dumps(mark, ensure_ascii=ascii_only)[1:-1])
    return list(spellings.items())


def _purged_blobs(db: Connection, job: PurgeJob) -> list[str]:
    rows = db.execute("SELECT sha256, data FROM blob WHERE codec = ?", (PURGED,)).fetchall()
    return [
        name
        for name, data in rows
        if (stone := unpack_tombstone(data)).at == job.at and stone.kind == job.kind
    ]


BlobLocation = tuple[Ref, int, str, str, bool]
"""A ref, a version, a path, the blob's hash, and whether the version is the head."""


class Secrets(SqliteRepository):
    """Detected secrets, by the hash of the content."""

    def list_unscanned(self, rules: int) -> list[str]:
        """Return the hashes of the blobs that these rules have not scanned."""
        query = """SELECT b.sha256 FROM blob b LEFT JOIN looked l ON l.sha256 = b.sha256
            AND l.rules = ?
            WHERE l.sha256 IS NULL AND b.codec NOT IN ('purged', 'absent') ORDER BY b.id"""
        return self._all(str, query, rules)

    def add(self, findings: Iterable[tuple[str, int, str]]) -> None:
        """Store the findings of scanned blobs: hash, rules, findings as JSON ('' for none)."""
        with self._backend.writing() as db:
            db.executemany(
                "INSERT OR REPLACE INTO looked (sha256, rules, found) VALUES (?, ?, ?)", findings
            )

    def findings(self) -> dict[str, str]:
        """Return the findings, as JSON, of the blobs that have any."""
        query = """SELECT l.sha256, l.found FROM looked l JOIN blob b ON b.sha256 = l.sha256
            WHERE l.found <> '' AND b.codec NOT IN ('purged', 'absent')"""
        return dict(self._rows(query))

    def accepted_findings(self) -> dict[str, str]:
        """Return the findings that a person accepted, by id, each with the reason."""
        return dict(self._rows("SELECT id, reason FROM accepted"))

    def accept(self, finding: str, at: str, actor: str, reason: str) -> None:
        """Record that a person accepts a finding."""
        self._do(
            "INSERT OR REPLACE INTO accepted (id, at, actor, reason) VALUES (?, ?, ?, ?)",
            finding,
            at,
            actor,
            reason,
        )

    def locations(self, blobs: Iterable[str]) -> list[BlobLocation]:
        """Return every file of a version whose content is one of these blobs."""
        return self._locate(
            "f.value ->> 0 IN (SELECT value FROM json_each(?))", json.dumps(list(blobs))
        )

    def locations_like(self, pattern: str) -> list[BlobLocation]:
        """Return every file of a version whose path matches a LIKE pattern, unless it
        was purged.
        """
        purged = "SELECT sha256 FROM blob WHERE codec IN ('purged', 'absent')"
        return self._locate(f"f.key LIKE ? AND f.value ->> 0 NOT IN ({purged})", pattern)

    def _locate(self, where: str, value: str) -> list[BlobLocation]:
        query = f"""SELECT r.kind, r.name, r.scope, c.latest, f.key, f.value ->> 0, c.latest = (
                    SELECT h.after FROM change h WHERE h.resource = c.resource
                    ORDER BY h.latest DESC, h.sequence DESC LIMIT 1)
                FROM change c JOIN resource r ON r.id = c.resource, json_each(c.manifest) f
                WHERE c.manifest IS NOT NULL AND {where}"""
        return [
            (Ref(Kind(kind), name, scope), version, path, sha256, bool(newest))
            for kind, name, scope, version, path, sha256, newest in self._rows(query, value)
        ]
