"""Removes blobs that no version and no proposal names.

Versions are kept for ever, so there are few: what a program left that was not ours, or an import that broke off.

Take bytes out of the library for good: a tombstone says who did and why, and every hash stays as it is.

A manifest names its files by their sha256. A purge replaces the row of such a blob by a tombstone with the same name
and size, so no version, no hash of a version and no list of files changes. The same bytes never come back under that
name.

What a search for secrets found in which blob: kept by the hash of the content, so that nothing is read twice.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evolvable_store.errors import LibraryReadOnly
from evolvable_store.objects import PURGED, TOMBSTONES, Tombstone, pack_tombstone, unpack, unpack_tombstone
from evolvable_store.resource import Kind, Ref
from evolvable_store.search.vector_store import FILE as VECTORS
from evolvable_store.storage.connection import split_batches

if TYPE_CHECKING:
    from evolvable_store.storage.connection import Connection
    from evolvable_store.store import Store


# A manifest is {"path": [sha256, size, mode]}.
_REFERENCED = """SELECT file.value ->> 0 FROM change, json_each(change.manifest) AS file
    WHERE change.manifest IS NOT NULL AND change.sequence > ?
    UNION ALL SELECT file.value ->> 0 FROM proposal, json_each(proposal.manifest) AS file"""
_UNREFERENCED = f"SELECT id, sha256, length(data) FROM blob WHERE sha256 NOT IN ({_REFERENCED}) ORDER BY id"


@dataclass(frozen=True, slots=True)
class CollectedBlobs:
    """How many blobs nobody named, and the bytes that they take up as stored."""

    blobs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Blob:
    id: int
    sha256: str
    size: int


def collect(store: "Store", dry_run: bool = False, *, shrink: bool = False) -> CollectedBlobs:
    """Returns what was removed, or with `dry_run` what would be.

    Safe beside any number of writers, who wait for no longer than a batch takes. shrink: give the freed space back
    to the disk; this copies the whole file while writers wait. Raises LibraryCorrupt before anything is removed
    when a manifest cannot be read, LibraryBusy, LibraryReadOnly.
    """
    # A version that is published from now on has a sequence over `seen`, and each batch looks at those again. What
    # they name is kept, or was sent along with them: a transaction leaves out only blobs that a version names
    # already (see Transaction._known_blobs), and those are never found here.
    seen, unnamed = _survey(store)
    removed = CollectedBlobs(len(unnamed), sum(blob.size for blob in unnamed))
    if not dry_run:
        gone = [_delete_batch(store, batch, seen) for batch in split_batches(unnamed, lambda blob: blob.size)]
        removed = CollectedBlobs(sum(done.blobs for done in gone), sum(done.bytes for done in gone))
        if shrink:
            _shrink(store)
    return removed


def _survey(store: "Store") -> tuple[int, list[_Blob]]:
    with store.backend.reading() as db:
        # In this order: a version that comes between the two is only kept twice.
        seen = int(db.execute("SELECT coalesce(max(sequence), 0) FROM change").fetchone()[0])
        return seen, [_Blob(*row) for row in db.execute(_UNREFERENCED, (0,))]


def _delete_batch(store: "Store", batch: list[_Blob], seen: int) -> CollectedBlobs:
    with store.backend.writing() as db:
        since = {sha256 for (sha256,) in db.execute(_REFERENCED, (seen,))}
        gone = [blob for blob in batch if blob.sha256 not in since and _delete_blob(db, blob)]
    return CollectedBlobs(len(gone), sum(blob.size for blob in gone))


def _delete_blob(db: "Connection", blob: _Blob) -> bool:
    # By both: the blob may have been removed and come back meanwhile, and its id may be another's now.
    return bool(db.execute("DELETE FROM blob WHERE id = ? AND sha256 = ?", (blob.id, blob.sha256)).rowcount)


def _shrink(store: "Store") -> None:
    with store.backend.reading() as db:
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


_CHAINED = ("change", "operation", "blob", "purging")
"""Tables that are not edited: version hashes cover the first two, the others are handled apart."""


@dataclass(frozen=True, slots=True)
class PurgeJob:
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


def begin_purge(
    store: "Store", actor: str, reason: str, kind: str, texts: Iterable[bytes], blobs: Iterable[str]
) -> PurgeJob:
    """Note a purge before anything is removed, so that one that is killed can be ended. Raises LibraryReadOnly."""
    encoded = json.dumps([base64.b64encode(text).decode("ascii") for text in texts])
    at = store.now()
    with _SecureWrite(store) as db:
        row = (at, actor, reason, kind, encoded, json.dumps(list(blobs)))
        db.execute("INSERT INTO purging (at, actor, reason, kind, texts, blobs) VALUES (?, ?, ?, ?, ?, ?)", row)
    return pending_purges(store)[-1]


def pending_purges(store: "Store") -> list[PurgeJob]:
    """Return the purges that have not ended, the oldest first."""
    with store.backend.reading() as db:
        rows = db.execute("SELECT id, at, actor, reason, kind, texts, blobs FROM purging ORDER BY id").fetchall()
    return [
        PurgeJob(
            identity, at, actor, reason, kind, tuple(map(base64.b64decode, json.loads(texts))), tuple(json.loads(blobs))
        )
        for identity, at, actor, reason, kind, texts, blobs in rows
    ]


def blobs_with(store: "Store", texts: Iterable[bytes]) -> list[str]:
    """Return the blobs that hold one of these texts. Every blob is read."""
    wanted = tuple(texts)
    return [name for name, data in _contents(store) if any(text in data for text in wanted)] if wanted else []


def purge_content(store: "Store", job: PurgeJob) -> list[str]:
    """Replace the blobs of a job by tombstones and its texts in every table by a mark; return the blobs' hashes.

    Each step is a transaction; done again it does what is left.
    """
    done = [*_write_tombstones(store, job, dict.fromkeys(job.blobs, job.notice))]
    for name in blobs_with(store, job.texts):
        data = store.backend.blob(name)
        assert data is not None
        done += _write_tombstones(store, job, {name: replace_texts(data, job)})
    with _SecureWrite(store) as db:
        for table, column in _columns(db):
            for text in map(_decode, job.texts):
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


def replace_texts(data: bytes, job: PurgeJob) -> bytes:
    """Return bytes with the texts of a job replaced by its mark."""
    for text in sorted(job.texts, key=len, reverse=True):
        data = data.replace(text, job.mark)
    return data


def operations_with_text(store: "Store", job: PurgeJob) -> list[int]:
    """Return the operations whose own words hold a text of the job. Version hashes cover them: they stay."""
    found: list[int] = []
    with store.backend.reading() as db:
        for text in map(_decode, job.texts):
            for said, _ in _spellings(text, ""):
                query = "SELECT id FROM operation WHERE instr(reason, ?1) OR instr(coalesce(evidence, ''), ?1)"
                found += [identity for (identity,) in db.execute(query, (said,))]
    return sorted(set(found))


def finish_purge(store: "Store", job: PurgeJob) -> bool:
    """Overwrite what the file and its log still hold of removed rows, and end the job.

    Returns False when another process kept the log from being emptied: the purge is then to be run again.
    """
    with store.backend.reading() as db:
        db.execute("PRAGMA temp_store=MEMORY")
        db.execute("VACUUM")
    with _SecureWrite(store) as db:
        db.execute("UPDATE purging SET texts = '[]' WHERE id = ?", (job.id,))
    if not _empty_log(store):
        return False
    with _SecureWrite(store) as db:
        blobs = json.dumps(sorted(_purged_blobs(db, job)))
        row = (job.at, job.actor, job.reason, job.kind, blobs)
        db.execute("INSERT INTO purged (at, actor, reason, kind, blobs) VALUES (?, ?, ?, ?, ?)", row)
        db.execute("DELETE FROM purging WHERE id = ?", (job.id,))
    return _empty_log(store)


def find_tombstone(store: "Store", sha256: str) -> tuple[Tombstone, int] | None:
    """Return who purged a blob, when and why, and how many bytes it had; None for a blob that has its bytes."""
    with store.backend.reading() as db:
        row = db.execute("SELECT data, codec, size FROM blob WHERE sha256 = ?", (sha256,)).fetchone()
    if row is None or row[1] not in TOMBSTONES:
        return None
    return unpack_tombstone(row[0]), int(row[2])


def forget_vectors(store: "Store", resources: Iterable[int]) -> None:
    """Remove the vectors of these resources' texts; they are made again from the texts that are left."""
    from evolvable_store.storage import connection as driver

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


class _SecureWrite:
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


def _write_tombstones(store: "Store", job: PurgeJob, contents: Mapping[str, bytes]) -> list[str]:
    with _SecureWrite(store) as db:
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


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _purged_blobs(db: "Connection", job: PurgeJob) -> list[str]:
    rows = db.execute("SELECT sha256, data FROM blob WHERE codec = ?", (PURGED,)).fetchall()
    return [name for name, data in rows if (stone := unpack_tombstone(data)).at == job.at and stone.kind == job.kind]


def _empty_log(store: "Store") -> bool:
    """Fold the log into the file and empty it; return whether that was done."""
    with store.backend.reading() as db:
        row = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return row is None or row[0] == 0


_BATCH = 200


@dataclass(frozen=True, slots=True)
class DetectedSecret:
    """One secret in a blob. id: the same for the same secret anywhere. line: counted from 1, 0 for a whole file."""

    id: str
    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class SecretOccurrence:
    """A secret, and one file of a version that holds it. newest: the version is the resource's head."""

    found: DetectedSecret
    ref: Ref
    version: int
    path: str
    sha256: str
    newest: bool


BlobLocation = tuple[Ref, int, str, str, bool]
"""A ref, a version, a path, the blob's hash, and whether the version is the head."""

SecretDetector = Callable[[bytes], list[DetectedSecret]]


class SecretFindings:
    """The findings of a library. rules: a number that changes with the rules; blobs seen by others are seen again."""

    def __init__(self, store: "Store", look: SecretDetector, rules: int) -> None:
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

    def held(self, *, everything: bool = False) -> list[SecretOccurrence]:
        """Return every finding with every file of a version that holds it. everything: accepted ones too."""
        accepted = {} if everything else self.accepted()
        with self._store.backend.reading() as db:
            rows = db.execute(
                """SELECT l.sha256, l.found FROM looked l JOIN blob b ON b.sha256 = l.sha256
                WHERE l.found <> '' AND b.codec NOT IN ('purged', 'absent')"""
            ).fetchall()
            by_blob = {
                sha256: [one for one in _parse_findings(found) if one.id not in accepted] for sha256, found in rows
            }
            names = [sha256 for sha256, found in by_blob.items() if found]
            where = "f.value ->> 0 IN (SELECT value FROM json_each(?))"
            places = _locate_blobs(db, where, json.dumps(names)) if names else []
        held = [SecretOccurrence(one, *place) for place in places for one in by_blob[place[3]]]
        return sorted(held, key=lambda one: (str(one.ref), -one.version, one.path, one.found.line))

    def named(self, pattern: str) -> list[BlobLocation]:
        """Return every file of a version whose path is like a pattern of SQL, unless it was purged."""
        where = "f.key LIKE ? AND f.value ->> 0 NOT IN (SELECT sha256 FROM blob WHERE codec IN ('purged', 'absent'))"
        with self._store.backend.reading() as db:
            return _locate_blobs(db, where, pattern)


def _locate_blobs(db: Any, where: str, value: str) -> list[BlobLocation]:
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


def _parse_findings(said: str) -> list[DetectedSecret]:
    return [DetectedSecret(*fields) for fields in json.loads(said)] if said else []
