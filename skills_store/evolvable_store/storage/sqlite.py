"""The default storage: one SQLite file that many processes read and write at once."""

import contextlib
import json
import os
import threading
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from evolvable_store.errors import LibraryCorrupt, LibraryReadOnly, NoLibrary
from evolvable_store.objects import TOMBSTONES, Manifest, Version, blob_hash, unpack
from evolvable_store.operation import Actor, Change, Head, Intent, Operation, Principal
from evolvable_store.paths import LIBRARY_FILE, Registered, TrustedFolders, check_home, every_folder, no_homes
from evolvable_store.resource import Kind
from evolvable_store.storage import connection as driver
from evolvable_store.storage import migrations
from evolvable_store.storage.attestations import Attestations, Signatures, Verify
from evolvable_store.storage.bindings import Bindings, HeldDirectories
from evolvable_store.storage.connection import Connection
from evolvable_store.storage.evidence import EvidenceLog
from evolvable_store.storage.learned import LearnedTasks
from evolvable_store.storage.maintenance import Maintenance, Purges, Secrets
from evolvable_store.storage.observations import Observations
from evolvable_store.storage.proposals import ProposalBatch, Proposals, Reviews
from evolvable_store.storage.protocol import ChannelState, MoveNote
from evolvable_store.storage.release_channel import Channel, add_move, follow_policy
from evolvable_store.storage.remotes import Remotes, RemoteState, RemoteWaiting, save_remote
from evolvable_store.storage.trial_pool import TrialPool

# The last change of a resource is its head: the index orders by `latest`, rows of one `latest` by sequence.
_LAST = "SELECT sequence FROM change WHERE resource = {} ORDER BY latest DESC, sequence DESC LIMIT 1"
# A row found through an index is compared with what was looked for: a damaged index leads to rows of others.
_HEAD = f"""SELECT r.id, r.kind, r.scope, r.name, c.after, c.latest, c.tree, c.hash, c.frozen, c.sequence
    FROM resource r JOIN change c ON c.sequence = ({_LAST.format("r.id")}) AND c.resource = r.id"""
_NAMED_HEAD = f"""{_HEAD} WHERE r.id = (SELECT id FROM resource WHERE name = ?1 AND kind = ?2 AND scope = ?3)
    AND +r.name = ?1 AND +r.kind = ?2 AND +r.scope = ?3"""
_STATE = f"""SELECT after, latest, tree, hash, frozen, sequence
    FROM change WHERE sequence = ({_LAST.format("?1")}) AND resource = ?1"""
_CHANGE = """SELECT c.sequence, c.operation, r.kind, r.scope, r.name, c.before, c.after
    FROM change c JOIN resource r ON r.id = c.resource"""
_VERSION = "SELECT latest, tree, hash, operation FROM change WHERE manifest IS NOT NULL AND resource = ?"
_MANIFEST = """SELECT manifest, tree, resource, latest FROM change WHERE sequence =
    (SELECT sequence FROM change WHERE resource = ? AND latest = ? ORDER BY sequence LIMIT 1)"""
_OPERATION = """SELECT id, at, actor, reason, session, evidence, undoes, principal, via, arrived
    FROM operation"""
_SEQUENCE = "SELECT coalesce(max(sequence), 0) FROM change"
_SEQUENCES = f"SELECT ({_SEQUENCE}), (SELECT coalesce(max(sequence), 0) FROM learned_change)"


class _CommonReads:
    """What a library and an open transaction read in the same way."""

    path: Path
    _ids: dict[tuple[str, str, str], int]
    """Ids of names. Which id a name has never changes, so it is looked up once."""

    found: dict[tuple[str, str, str], int]
    """Where ids that are looked up are noted."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Lend a connection for a few statements."""
        raise NotImplementedError

    def head(self, kind: Kind, scope: str, name: str) -> Head | None:
        known = self._ids.get((kind, scope, name))
        with self.reading() as db:
            if known is None:
                row = db.execute(_NAMED_HEAD, (name, kind, scope)).fetchone()
            elif row := db.execute(_STATE, (known,)).fetchone():
                row = (known, kind, scope, name, *row)
            else:
                raise ValueError(f"{kind} {name} is known, but not where it points")
            head = _as_head(*row) if row else None
        if head is not None:
            self.found[(kind, scope, name)] = head.id
        return head

    def manifest(self, resource: int, number: int) -> Manifest | None:
        with self.reading() as db:
            row = db.execute(_MANIFEST, (resource, number)).fetchone()
            if row is None:
                return None
            manifest = Manifest.from_json(row[0])
            if (manifest.tree, *row[2:]) != (row[1], resource, number):
                raise ValueError(f"the manifest of version {number} of resource {resource} is not what was written")
        return manifest

    def blob(self, sha256: str) -> bytes | None:
        with self.reading() as db:
            row = db.execute("SELECT data, codec FROM blob WHERE sha256 = ?", (sha256,)).fetchone()
            if row is None:
                return None
            try:
                data = unpack(*row)
            except zlib.error:
                data = b""
        if blob_hash(data) != sha256 and (row[1] not in TOMBSTONES or not data):
            raise LibraryCorrupt(
                f"Blob {sha256[:12]} in {self.path} does not match its hash.",
                "Run `evolvable fsck` to see what is affected; restore the last `evolvable backup`.",
            )
        return data

    def sequence(self) -> int:
        with self.reading() as db:
            return int(db.execute(_SEQUENCE).fetchone()[0])


class SqliteStorage(_CommonReads, driver.SqliteRepository):
    """A library in the folder `home`. Safe to share between threads, and across a fork while no thread reads."""

    def __init__(self, home: Path, *, create: bool = False, registered: Registered = no_homes) -> None:
        """Opens `home`/library.db; with `create`, makes it when it is missing.

        registered: as `check_home` takes it. Raises UntrustedHome, NoLibrary, LibraryTooNew, LibraryCorrupt,
        LibraryReadOnly.
        """
        check_home(home, registered, create=create)
        super().__init__(self)
        self.path = home / LIBRARY_FILE
        self.trusted_folders: TrustedFolders = every_folder
        self._idle: list[Connection] = []
        self._writer: Connection | None = None
        self._write_lock = threading.RLock()
        self._ids = self.found = {}
        self.evidence = EvidenceLog(self)
        self.observations = Observations(self)
        self.learned = LearnedTasks(self)
        self.pool = TrialPool(self)
        self.proposals = Proposals(self)
        self.reviews = Reviews(self)
        self.channel = Channel(self)
        self.bindings = Bindings(self)
        self.held = HeldDirectories(self)
        self.attestations = Attestations(self)
        self.secrets = Secrets(self)
        self.purges = Purges(self)
        self.remotes = Remotes(self)
        self.maintenance = Maintenance(self)
        if not self.path.exists():
            if not create:
                raise NoLibrary(f"There is no library in {home}.", "`evolvable init` makes one.")
        elif not create and not self._is_filled():
            raise LibraryCorrupt(
                f"{self.path} is not a library: it is empty.",
                "Restore the last `evolvable backup`; `evolvable init` makes a new one if there is none.",
            )
        opened, self._access, self.journal = migrations.open_library(self.path)
        self._idle.append(opened)
        _open_backends.add(self)

    def _is_filled(self) -> bool:
        # Another process may be about to make it.
        return any(not self.path.is_file() or self.path.stat().st_size for _ in driver.retry(1.0, longest=0.02))

    @property
    def read_only(self) -> bool:
        """Whether the library lies where it cannot be written."""
        return self._access in ("read", "immutable")

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lends a connection for a few statements; SQLite's errors come out as ours."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = driver.connect(self.path, durable=True, access=self._access)
        try:
            yield connection
        except driver.UNUSABLE as error:
            raise driver.as_library_error(error, self.path) from error
        finally:
            # Many at once are opened and closed again: each keeps its pages in memory and two files open.
            if len(self._idle) < driver.MAX_IDLE:
                self._idle.append(connection)
            else:
                connection.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lends the writing connection inside BEGIN IMMEDIATE ... COMMIT. Raises LibraryReadOnly, LibraryBusy."""
        if self.read_only:
            raise LibraryReadOnly(f"{self.path} cannot be written.", "Reading goes on; check its permissions.")
        with self._write_lock:
            writer = self._writer
            if writer is None:
                writer = self._writer = driver.connect(self.path, durable=True, access="write")
                # Our own retry waits fairly; SQLite's handler would not (see driver.attempts).
                writer.execute("PRAGMA busy_timeout=0")
                # With a rollback journal, spilling into the file before the commit would have to wait for readers.
                writer.execute("PRAGMA cache_spill=OFF")
            try:
                with driver.ImmediateTransaction(writer, self.path):
                    yield writer
            except driver.UNUSABLE as error:
                raise driver.as_library_error(error, self.path) from error
            finally:
                if writer.in_transaction:  # a signal between two statements, or a disk that failed the rollback too
                    self._writer = None
                    writer.close()

    def before_fork(self) -> None:
        """Waits for the write in flight and closes what is idle: SQLite's connections must not cross a fork."""
        self._write_lock.acquire()
        self.close()

    def after_fork(self) -> None:
        """Lets writes go on, in the parent and in the child; each opens its own connections."""
        self._write_lock.release()

    def close(self) -> None:
        """Closes every connection; the last process to do so folds the log into the file."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        with self._write_lock:
            if self._writer is not None and not self._writer.in_transaction:
                self._writer.close()
                self._writer = None

    def signatures(self, key: str, verify: Verify) -> Signatures:
        return Signatures(self, key, verify)

    def resource_ids(self) -> list[int]:
        return self._all(int, "SELECT id FROM resource")

    def heads(self, kind: Kind | None = None, scope: str | None = None) -> list[Head]:
        where = "c.after IS NOT NULL AND (?1 IS NULL OR r.kind = ?1) AND (?2 IS NULL OR r.scope = ?2)"
        return self._all(_as_head, f"{_HEAD} WHERE {where} ORDER BY r.kind, r.name, r.scope", kind, scope)

    def heads_by_id(self, ids: Iterable[int]) -> dict[int, Head]:
        query = f"{_HEAD} WHERE r.id IN (SELECT value FROM json_each(?))"
        return {head.id: head for head in self._all(_as_head, query, json.dumps(list(ids)))}

    def version(self, resource: int, number: int) -> Version | None:
        return next(iter(self._all(Version, f"{_VERSION} AND latest = ?", resource, number)), None)

    def versions(self, resource: int, limit: int, below: int | None = None) -> list[Version]:
        query = f"{_VERSION} AND latest < ? ORDER BY latest DESC LIMIT ?"
        return self._all(Version, query, resource, 2**40 if below is None else below, limit)

    def operation(self, identity: int) -> Operation | None:
        return next(iter(self._all(_as_operation, f"{_OPERATION} WHERE id = ?", identity)), None)

    def operations(self, limit: int, session: str | None = None) -> list[Operation]:
        where, values = ("WHERE session = ?", [session]) if session is not None else ("", [])
        return self._all(_as_operation, f"{_OPERATION} {where} ORDER BY id DESC LIMIT ?", *values, limit)

    def changes(self, after: int, limit: int) -> list[Change]:
        return self._all(_as_change, f"{_CHANGE} WHERE c.sequence > ? ORDER BY c.sequence LIMIT ?", after, limit)

    def changes_of(self, operations: Sequence[int]) -> list[Change]:
        # The changes of an operation are consecutive in the log.
        query = f"""{_CHANGE} JOIN operation o ON c.sequence BETWEEN o.id AND o.last
            WHERE o.id IN (SELECT value FROM json_each(?)) ORDER BY c.sequence"""
        return self._all(_as_change, query, json.dumps(list(operations)))

    def changes_to(self, resource: int, after: int) -> list[Change]:
        query = f"{_CHANGE} WHERE c.resource = ? AND c.sequence > ? ORDER BY c.sequence"
        return self._all(_as_change, query, resource, after)

    def sequences(self) -> tuple[int, int]:
        with self.reading() as db:
            changes, learned = db.execute(_SEQUENCES).fetchone()
        return int(changes), int(learned)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Callable[[], int]]:
        """Lends a function whose result differs from its last one when anybody has committed in between."""
        with self.reading() as db:
            yield lambda: int(db.execute("PRAGMA data_version").fetchone()[0])

    @contextlib.contextmanager
    def write(self) -> Iterator["SqliteWriter"]:
        with self.writing() as db:
            writer = SqliteWriter(db, self.path, self._ids)
            yield writer
        self._ids.update(writer.found)


class SqliteWriter(_CommonReads):
    """The Writer protocol over one open transaction."""

    def __init__(self, connection: Connection, path: Path, ids: dict[tuple[str, str, str], int]) -> None:
        self.db, self.path, self._ids = connection, path, ids
        # Kept by the backend after the commit: a rollback takes back the ids that it made.
        self.found = {}

    def reading(self) -> AbstractContextManager[Connection]:
        return contextlib.nullcontext(self.db)

    def add_blob(self, sha256: str, size: int, packed: bytes, codec: str) -> None:
        self.db.execute(
            """INSERT INTO blob (sha256, size, codec, data) VALUES (?, ?, ?, ?) ON CONFLICT (sha256)
            DO UPDATE SET codec = excluded.codec, data = excluded.data
            WHERE blob.codec = 'absent' AND excluded.codec IN ('zlib', 'raw')""",
            (sha256, size, codec, packed),
        )

    def add_resource(self, kind: Kind, scope: str, name: str) -> Head:
        insert = "INSERT INTO resource (kind, scope, name) VALUES (?, ?, ?)"
        identity = self.db.execute(insert, (kind, scope, name)).lastrowid
        assert identity is not None
        return Head(identity, kind, scope, name, None, 0, "", "", False, 0)

    def add_change(self, head: Head, operation: int, before: int | None, manifest: Manifest | None) -> None:
        h = head
        text = None if manifest is None else manifest.to_json()
        self.db.execute(
            "INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (h.sequence, operation, h.id, before, h.version, h.latest, h.tree, h.hash, int(h.frozen), text),
        )

    def add_operation(self, identity: int, last: int, intent: Intent, arrived: bool = False) -> None:
        evidence = json.dumps(intent.evidence) if intent.evidence else None
        undoes = json.dumps(intent.undoes) if intent.undoes else None
        self.db.execute(
            "INSERT INTO operation VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(identity, last, intent.at, intent.actor.value, intent.reason, intent.session, evidence, undoes),
                *(intent.principal, intent.via or None, int(arrived)),
            ),
        )

    def add_signature(self, operation: int, key: str, signature: bytes) -> None:
        self.db.execute("INSERT INTO signature VALUES (?, ?, ?)", (operation, key, signature))

    def bind(
        self, folder: int, directory: str, resource: int, version: int | None, signature: str, conflict: str
    ) -> None:
        row = (folder, directory, resource, version, signature, conflict)
        self.db.execute("INSERT OR REPLACE INTO binding VALUES (?, ?, ?, ?, ?, ?)", row)

    def close_proposal(self, proposal: int, state: str, decision: str, operation: int | None) -> bool:
        query = "UPDATE proposal SET state = ?, decision = ?, operation = ? WHERE id = ? AND state = 'open'"
        return bool(self.db.execute(query, (state, decision, operation, proposal)).rowcount)

    def propose(self, batch: ProposalBatch) -> list[int]:
        return batch.into(self.db)

    def save_remote(self, state: RemoteState, waiting: Iterable[RemoteWaiting]) -> None:
        save_remote(self.db, state, waiting)

    def add_move(self, note: MoveNote, stands: Mapping[int, ChannelState]) -> int | None:
        return add_move(self.db, note, stands)

    def follow(self, note: MoveNote, moved: Mapping[int, tuple[int | None, int | None]]) -> None:
        follow_policy(self.db, note, moved)


_open_backends: weakref.WeakSet[SqliteStorage] = weakref.WeakSet()
_forking_backends: list[SqliteStorage] = []


def _before_fork() -> None:
    for backend in list(_open_backends):
        backend.before_fork()
        _forking_backends.append(backend)


def _after_fork() -> None:
    while _forking_backends:
        _forking_backends.pop().after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _as_head(identity: int, kind: str, *rest: Any) -> Head:
    scope, name, version, latest, tree, hash_, frozen, sequence = rest
    return Head(identity, Kind(kind), scope, name, version, latest, tree, hash_, frozen == 1, sequence)


def _as_operation(
    identity: int, at: str, actor: str, reason: str, session: str | None, evidence: str, undoes: str, *whose: Any
) -> Operation:
    principal, via, arrived = whose
    said = tuple(json.loads(evidence or "[]")), tuple(json.loads(undoes or "[]"))
    known = Principal(principal) if principal else None
    return Operation(identity, Intent(at, Actor(actor), reason, session, *said, known, via or ""), bool(arrived))


def _as_change(sequence: int, operation: int, kind: str, *rest: Any) -> Change:
    return Change(sequence, operation, Kind(kind), *rest)
