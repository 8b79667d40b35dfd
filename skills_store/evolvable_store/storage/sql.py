"""The common part of both implementations of the storage: the statements of the log of changes.

Each statement is one that SQLite and PostgreSQL understand, once `postgres.dialect` has translated
the few differences.
"""

import contextlib
import json
import os
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from evolvable_store.errors import LibraryCorrupt
from evolvable_store.objects import Manifest, Version, unpack_verified
from evolvable_store.operation import Actor, Change, Head, Intent, Operation, Principal
from evolvable_store.provenance import Provenance
from evolvable_store.resource import Kind
from evolvable_store.storage.attestations import Attestations, Signatures, Verify
from evolvable_store.storage.audit import AuditLog, Decision, add_decisions
from evolvable_store.storage.authorship import (
    AuthorshipReader,
    read_provenance,
    vouched_tree_reader,
)
from evolvable_store.storage.bindings import (
    BIND,
    Bindings,
    HeldDirectories,
    ProjectMarks,
    WaitingPlaces,
)
from evolvable_store.storage.carried_places import carried_places, forget_carried
from evolvable_store.storage.collection_store import Collections
from evolvable_store.storage.connection import RESTORE, Connection
from evolvable_store.storage.evidence import EvidenceLog
from evolvable_store.storage.folding import Folding
from evolvable_store.storage.learned import LearnedTasks
from evolvable_store.storage.maintenance import Maintenance, Purges, Secrets
from evolvable_store.storage.observations import Observations
from evolvable_store.storage.proposals import ProposalBatch, Proposals, Reviews, close_proposal
from evolvable_store.storage.protocol import SharedVectors
from evolvable_store.storage.release_channel import (
    Channel,
    ChannelState,
    MoveNote,
    add_move,
    follow_policy,
)
from evolvable_store.storage.remotes import Remotes, RemoteState, RemoteWaiting, save_remote
from evolvable_store.storage.sqlite_file import (
    FollowedFolders,
    Lender,
    SqliteRepository,
    TrustedFolders,
    every_folder,
)
from evolvable_store.storage.transcript_rows import TranscriptRows
from evolvable_store.storage.trial_pool import TrialPool

# The last change of a resource is its head: the index orders by `latest`, rows of one `latest` by
# sequence.
_LAST = (
    "SELECT sequence FROM change WHERE resource = {} ORDER BY latest DESC, sequence DESC LIMIT 1"
)
# A row found through an index is compared with the searched key: a damaged index leads to rows of
# other keys.
_HEAD = f"""SELECT r.id, r.kind, r.scope, r.name, c.after, c.latest, c.tree, c.hash, c.frozen,
    c.sequence
    FROM resource r JOIN change c ON c.sequence = ({_LAST.format("r.id")}) AND c.resource = r.id"""
# Where few heads are read, `c.sequence` is compared with a subquery that names neither table:
# otherwise PostgreSQL reads the whole log, because of row-level security.
_FEW_HEADS = _HEAD.replace(f"c.sequence = ({_LAST.format('r.id')}) AND ", "")
# A "+" before a column keeps SQLite from using an index on it: the row itself is compared.
_ID = "(SELECT id FROM resource WHERE name = ?1 AND kind = ?2 AND scope = ?3)"
_NAMED_HEAD = f"""{_FEW_HEADS.replace("c.resource", "+c.resource")}
    WHERE c.sequence = ({_LAST.format(_ID)})
    AND r.id = {_ID} AND +r.name = ?1 AND +r.kind = ?2 AND +r.scope = ?3"""
_HEADS_BY_ID = f"""{_FEW_HEADS} WHERE c.sequence IN
    (SELECT DISTINCT ({_LAST.format("CAST(value AS INTEGER)")}) FROM json_each(?))"""
_IDS_BY_NAME = (
    "SELECT id FROM resource WHERE kind = ? AND scope = ? AND name IN (SELECT value "
    "FROM json_each(?))"
)
# By the changes and not by all resources: the index asks for the heads of each batch.
_CHANGED_HEADS = f"""{_FEW_HEADS} WHERE c.sequence IN (SELECT DISTINCT
    ({_LAST.format("moved.resource")})
    FROM change moved WHERE moved.sequence > ? AND moved.sequence <= ?)"""
_STATE = f"""SELECT after, latest, tree, hash, frozen, sequence
    FROM change WHERE sequence = ({_LAST.format("?1")}) AND +resource = ?1
    AND EXISTS (SELECT 1 FROM resource WHERE id = ?1 AND kind = ?2 AND scope = ?3 AND name = ?4)"""
_NAME = "SELECT kind, scope, name FROM resource WHERE id = ?"
_IS_NAMED = "SELECT 1 FROM resource WHERE id = ? AND kind = ? AND scope = ? AND name = ?"
_CHANGE = """SELECT c.sequence, c.operation, r.kind, r.scope, r.name, c.before, c.after
    FROM change c JOIN resource r ON r.id = c.resource"""
_VERSION = (
    "SELECT latest, tree, hash, operation FROM change WHERE manifest IS NOT NULL AND resource = ?"
)
# A version and a later return have the same number; the first change is the one with the manifest.
_MANIFEST = """SELECT manifest, tree, resource, latest FROM change WHERE sequence =
    (SELECT sequence FROM change WHERE resource = ? AND latest = ? ORDER BY sequence LIMIT 1)"""
_OPERATION = """SELECT id, at, actor, reason, session, evidence, undoes, principal, via, arrived
    FROM operation"""
# The author that counts: a later attribution, then the archive, then the operation's own principal.
_COPY_AUTHORS = """INSERT OR IGNORE INTO attribution (resource, version, principal, via, at)
    SELECT CAST(?2 AS INTEGER), c.latest, coalesce(a.principal, CASE o.arrived WHEN 1 THEN 'import'
    END, o.principal,
        CASE o.actor WHEN 'human' THEN 'person' WHEN 'import' THEN 'import' ELSE 'agent' END),
        coalesce(a.via, o.via, ''), coalesce(a.at, o.at)
    FROM change c JOIN operation o ON o.id = c.operation
    LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
    WHERE c.resource = ?1 AND c.manifest IS NOT NULL"""
_COPY_PROVENANCE = """UPDATE change SET provenance = (SELECT c.provenance FROM change c
        WHERE c.resource = ?1 AND c.latest = change.latest AND c.manifest IS NOT NULL)
    WHERE resource = ?2 AND manifest IS NOT NULL"""
# Without signed decisions: a signature covers the id of its resource.
_COPY_VOUCHED = """INSERT INTO vouched (resource, tree, at, principal, via, withdrawn, folder)
    SELECT CAST(?2 AS INTEGER), tree, at, principal, via, withdrawn, folder FROM vouched
    WHERE resource = ?1 AND signature IS NULL ORDER BY id"""
SEQUENCE = "SELECT coalesce(max(sequence), 0) FROM change"
_SEQUENCES = f"SELECT ({SEQUENCE}), (SELECT coalesce(max(sequence), 0) FROM learned_change)"


class _CommonReads:
    """The reads that a library and an open transaction share."""

    path: Path
    _ids: dict[tuple[str, str, str], int]
    """Ids by kind, scope and name. A resource may get another name, so a read compares it."""

    found: dict[tuple[str, str, str], int]
    """The dict to which reads add ids: of a transaction its own, else `_ids`."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Lend a connection for a few statements."""
        raise NotImplementedError

    def head(self, kind: Kind, scope: str, name: str) -> Head | None:
        # With the id a head is one lookup; the statement also checks that the name is still that
        # resource's.
        resource_id = self._ids.get((kind, scope, name))
        with self.reading() as db:
            named = (resource_id, kind, scope, name)
            state = db.execute(_STATE, named).fetchone() if resource_id is not None else None
            if state is not None:
                row = (*named, *state)
            else:
                row = db.execute(_NAMED_HEAD, (name, kind, scope)).fetchone()
                is_lost = row is None and resource_id is not None
                if is_lost and db.execute(_IS_NAMED, named).fetchone():
                    # The resource is there and has no last change: the index is damaged.
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
            # A damaged page or index can return another row that parses well.
            if (manifest.tree, *row[2:]) != (row[1], resource, number):
                raise ValueError(
                    f"the manifest of version {number} of resource {resource} is not what "
                    "was written"
                )
        return manifest

    def blob(self, sha256: str) -> bytes | None:
        with self.reading() as db:
            row = db.execute("SELECT data, codec FROM blob WHERE sha256 = ?", (sha256,)).fetchone()
            if row is None:
                return None
        try:
            return unpack_verified(sha256, *row)
        except zlib.error:
            raise LibraryCorrupt(
                f"Blob {sha256[:12]} in {self.path} does not match its hash.",
                f"Run `evolvable care fsck` to see what is affected. {RESTORE}",
            ) from None

    def sequence(self) -> int:
        with self.reading() as db:
            return int(db.execute(SEQUENCE).fetchone()[0])


class SqlStorage(_CommonReads, SqliteRepository):
    """A library in a database.

    A subclass opens it, and lends connections for reading and for writing.
    """

    where: str
    shared = False

    def __init__(self, path: Path, places: Lender | None = None) -> None:
        """places: of the tables that name paths of this machine, where they are in another file."""
        super().__init__(self)
        self.path = path
        self.trusted_folders: TrustedFolders = every_folder
        self.followed_folders: FollowedFolders = frozenset
        # One dict, so that later reads use the ids at once.
        self._ids = self.found = {}
        self.evidence = EvidenceLog(self)
        self.observations = Observations(self)
        self.transcript_rows = TranscriptRows(self)
        self.learned = LearnedTasks(self)
        self.pool = TrialPool(self)
        self.proposals = Proposals(self)
        self.reviews = Reviews(self)
        self.channel = Channel(self)
        self.collections = Collections(self, places or self)
        self.bindings = Bindings(self, places)
        self.project_marks = ProjectMarks(self)
        self.held_directories = HeldDirectories(self)
        self.attestations = Attestations(self)
        self.authorship = AuthorshipReader(self)
        self.secrets = Secrets(self)
        self.purges = Purges(self)
        self.remotes = Remotes(self)
        self.audit = AuditLog(self)
        self.maintenance = Maintenance(self)
        self.folding = Folding(self)

    def follow_forks(self) -> None:
        """Have `before_fork` and `after_fork` called from now on."""
        _open_storages.add(self)

    def before_fork(self) -> None:
        """Wait for the write in flight and close idle connections: none must cross a fork."""
        raise NotImplementedError

    def after_fork(self) -> None:
        """Let writes go on, in the parent and in the child; each opens its own connections."""
        raise NotImplementedError

    def writing(self) -> AbstractContextManager[Connection]:
        """Lend the writing connection inside a transaction that holds the only write lock."""
        raise NotImplementedError

    def _open_places(self, db: Connection, until: contextlib.ExitStack) -> Callable[[], Connection]:
        """Return a function that lends the writing connection to the tables that name paths.

        until: the end of it ends the loan.
        """
        return lambda: db

    def signatures(self, key: str, verify: Verify) -> Signatures:
        return Signatures(self, key, verify)

    def shared_vectors(self) -> SharedVectors | None:
        return None

    def waiting_places(self) -> WaitingPlaces:
        return carried_places(self.path.parent)

    def settle_places(self, found: WaitingPlaces) -> None:
        if "carried" in found.rows:
            forget_carried(self.path.parent)

    def resource_ids(self) -> list[int]:
        return self._all(int, "SELECT id FROM resource")

    def heads(self, kind: Kind | None = None, scope: str | None = None) -> list[Head]:
        where = (
            "c.after IS NOT NULL AND (?1 IS NULL OR r.kind = ?1) AND (?2 IS NULL OR r.scope = ?2)"
        )
        return self._all(
            _as_head, f"{_HEAD} WHERE {where} ORDER BY r.kind, r.name, r.scope", kind, scope
        )

    def heads_by_id(self, ids: Iterable[int]) -> dict[int, Head]:
        wanted_ids = frozenset(ids)
        heads = self._all(_as_head, _HEADS_BY_ID, json.dumps(list(wanted_ids)))
        # A damaged index may lead to heads of other resources.
        return {head.id: head for head in heads if head.id in wanted_ids}

    def heads_by_name(self, kind: Kind, scope: str, names: Iterable[str]) -> dict[str, Head]:
        ids = self._all(int, _IDS_BY_NAME, kind, scope, json.dumps(list(names)))
        return {head.name: head for head in self.heads_by_id(ids).values()} if ids else {}

    def changed_heads(self, after: int, last: int) -> list[Head]:
        return self._all(_as_head, _CHANGED_HEADS, after, last)

    def version(self, resource: int, number: int) -> Version | None:
        return next(iter(self._all(Version, f"{_VERSION} AND latest = ?", resource, number)), None)

    def versions(self, resource: int, limit: int, below: int | None = None) -> list[Version]:
        query = f"{_VERSION} AND latest < ? ORDER BY latest DESC LIMIT ?"
        # Above every number of a version.
        return self._all(Version, query, resource, 2**40 if below is None else below, limit)

    def operation(self, identity: int) -> Operation | None:
        return next(iter(self._all(_as_operation, f"{_OPERATION} WHERE id = ?", identity)), None)

    def operations(self, limit: int, session: str | None = None) -> list[Operation]:
        where, values = ("WHERE session = ?", [session]) if session is not None else ("", [])
        return self._all(
            _as_operation, f"{_OPERATION} {where} ORDER BY id DESC LIMIT ?", *values, limit
        )

    def changes(self, after: int, limit: int) -> list[Change]:
        return self._all(
            _as_change, f"{_CHANGE} WHERE c.sequence > ? ORDER BY c.sequence LIMIT ?", after, limit
        )

    def changes_of(self, operations: Sequence[int]) -> list[Change]:
        # The changes of an operation are consecutive in the log.
        query = f"""{_CHANGE} JOIN operation o ON c.sequence BETWEEN o.id AND o.last
            WHERE o.id IN (SELECT CAST(value AS INTEGER) FROM json_each(?)) ORDER BY c.sequence"""
        return self._all(_as_change, query, json.dumps(list(operations)))

    def first_changes_of(self, operations: Sequence[int], most: int) -> list[Change]:
        # The id of an operation is the sequence of its first change.
        query = f"""{_CHANGE} JOIN operation o ON c.sequence BETWEEN o.id AND o.last
            AND c.sequence < o.id + ?
            WHERE o.id IN (SELECT CAST(value AS INTEGER) FROM json_each(?)) ORDER BY c.sequence"""
        return self._all(_as_change, query, most, json.dumps(list(operations)))

    def changes_to(self, resource: int, after: int) -> list[Change]:
        query = f"{_CHANGE} WHERE c.resource = ? AND c.sequence > ? ORDER BY c.sequence"
        return self._all(_as_change, query, resource, after)

    def sequences(self) -> tuple[int, int]:
        with self.reading() as db:
            changes, learned = db.execute(_SEQUENCES).fetchone()
        return int(changes), int(learned)

    @contextlib.contextmanager
    def write(self) -> Iterator["SqlWriter"]:
        # `places` is committed after the library: after a crash in between, the next sync settles a
        # binding that names an older version.
        with contextlib.ExitStack() as places, self.writing() as db:
            writer = SqlWriter(
                db, self.path, self._ids, self.trusted_folders, self._open_places(db, places)
            )
            yield writer
        # Only after the commit: a rollback takes back the ids of new resources.
        self._ids.update(writer.found)


class SqlWriter(_CommonReads):
    """The Writer protocol over one open transaction."""

    def __init__(
        self,
        connection: Connection,
        path: Path,
        ids: dict[tuple[str, str, str], int],
        trusted_folders: TrustedFolders,
        places: Callable[[], Connection],
    ) -> None:
        self.db, self.path, self._ids, self._places = connection, path, ids, places
        self._trusted_folders = trusted_folders
        self._lent = contextlib.nullcontext(connection)
        # `SqlStorage.write` takes these over after the commit.
        self.found = {}

    def reading(self) -> AbstractContextManager[Connection]:
        return self._lent

    def add_blob(self, sha256: str, size: int, packed: bytes, codec: str) -> None:
        self.db.execute(
            """INSERT INTO blob (sha256, size, codec, data) VALUES (?, ?, ?, ?) ON CONFLICT (sha256)
            DO UPDATE SET codec = excluded.codec, data = excluded.data
            WHERE blob.codec = 'absent' AND excluded.codec IN ('zlib', 'raw')""",
            (sha256, size, codec, packed),
        )

    def add_resource(self, kind: Kind, scope: str, name: str) -> Head:
        insert = "INSERT INTO resource (kind, scope, name) VALUES (?, ?, ?) RETURNING id"
        # fetchall, since a statement with RETURNING is done only when all its rows are read.
        identity = int(self.db.execute(insert, (kind, scope, name)).fetchall()[0][0])
        return Head(identity, kind, scope, name, None, 0, "", "", False, 0)

    def rename(self, resource: int, scope: str, name: str) -> None:
        # Open proposals name the resource, and would otherwise be about one that is gone.
        kind, *old_name = self.db.execute(_NAME, (resource,)).fetchone()
        update = "UPDATE proposal SET scope = ?, name = ? WHERE kind = ? AND scope = ? AND name = ?"
        self.db.execute(update, (scope, name, kind, *old_name))
        self.db.execute(
            "UPDATE resource SET scope = ?, name = ? WHERE id = ?", (scope, name, resource)
        )

    def rescope_folder(self, folder: int, scope: str) -> None:
        self._places().execute("UPDATE folder SET scope = ? WHERE id = ?", (scope, folder))
        update = (
            "UPDATE proposal SET scope = ? WHERE id IN (SELECT proposal FROM held WHERE folder = ?)"
        )
        self.db.execute(update, (scope, folder))

    def rebind(self, folder: int, old: int, new: int) -> None:
        update = "UPDATE binding SET resource = ? WHERE folder = ? AND resource = ?"
        self._places().execute(update, (new, folder, old))
        (kind, *old_name), (_, *new_name) = (
            self.db.execute(_NAME, (resource,)).fetchone() for resource in (old, new)
        )
        update_held = """UPDATE proposal SET scope = ?, name = ? WHERE kind = ? AND scope = ?
            AND name = ?
            AND id IN (SELECT proposal FROM held WHERE folder = ?)"""
        self.db.execute(update_held, (*new_name, kind, *old_name, folder))

    def copy_authors(self, old: int, new: int) -> None:
        self.db.execute(_COPY_AUTHORS, (old, new))
        self.db.execute(_COPY_PROVENANCE, (old, new))
        self.db.execute(_COPY_VOUCHED, (old, new))

    def provenance(self, resource: int, number: int) -> Provenance:
        return read_provenance(
            self.db, resource, number, vouched_tree_reader(self._trusted_folders())
        )

    def add_change(
        self,
        head: Head,
        operation: int,
        before: int | None,
        manifest: Manifest | None,
        provenance: Provenance | None = None,
    ) -> None:
        # NULL for a removal or a return, which make no version.
        texts = (part.to_json() if part is not None else None for part in (manifest, provenance))
        row = (
            head.sequence,
            operation,
            head.id,
            before,
            head.version,
            head.latest,
            head.tree,
            head.hash,
            int(head.frozen),
            *texts,
        )
        self.db.execute(
            "INSERT INTO change (sequence, operation, resource, before, after, latest, tree, "
            "hash, frozen, manifest, provenance) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )

    def add_operation(
        self,
        identity: int,
        last: int,
        intent: Intent,
        arrived: bool = False,
        arrived_at: str | None = None,
    ) -> None:
        evidence = json.dumps(intent.evidence) if intent.evidence else None
        undoes = json.dumps(intent.undoes) if intent.undoes else None
        row = (
            identity,
            last,
            intent.at,
            intent.actor.value,
            intent.reason,
            intent.session,
            evidence,
            undoes,
            intent.principal,
            intent.via or None,
            int(arrived),
            arrived_at,
        )
        self.db.execute(
            "INSERT INTO operation (id, last, at, actor, reason, session, evidence, undoes, "
            "principal, via, arrived, arrived_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )

    def add_signature(self, operation: int, key: str, signature: bytes) -> None:
        self.db.execute(
            "INSERT INTO signature (operation, key, signature) VALUES (?, ?, ?)",
            (operation, key, signature),
        )

    def bind(
        self,
        folder: int,
        directory: str,
        resource: int,
        version: int | None,
        signature: str,
        conflict: str,
    ) -> None:
        row = (folder, directory, resource, version, signature, conflict)
        self._places().execute(BIND, row)

    def close_proposal(
        self, proposal: int, state: str, decision: str, operation: int | None
    ) -> bool:
        return close_proposal(self.db, proposal, state, decision, operation)

    def add_decisions(self, decisions: Sequence[Decision]) -> None:
        add_decisions(self.db, decisions)

    def propose(self, batch: ProposalBatch) -> list[int]:
        return batch.into(self.db)

    def save_remote(self, state: RemoteState, waiting: Iterable[RemoteWaiting]) -> None:
        save_remote(self.db, state, waiting)

    def add_move(self, note: MoveNote, states: Mapping[int, ChannelState]) -> int | None:
        return add_move(self.db, note, states)

    def follow(self, note: MoveNote, moved: Mapping[int, tuple[int | None, int | None]]) -> None:
        follow_policy(self.db, note, moved)


# Weak: a storage that nobody uses any more must not be kept open for a fork.
_open_storages: weakref.WeakSet[SqlStorage] = weakref.WeakSet()
_forking_storages: list[SqlStorage] = []


def _before_fork() -> None:
    for storage in list(_open_storages):
        storage.before_fork()
        # A strong reference until the fork is over: its lock has to be released on both sides.
        _forking_storages.append(storage)


def _after_fork() -> None:
    while _forking_storages:
        _forking_storages.pop().after_fork()


if hasattr(os, "register_at_fork"):
    # Windows has no fork.
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


def _as_head(identity: int, kind: str, *rest: Any) -> Head:
    scope, name, version, latest, tree, hash_, frozen, sequence = rest
    # One wrong bit in the header of a row makes a text a number.
    if not isinstance(scope, str) or not isinstance(name, str):
        raise ValueError(f"the scope or the name of resource {identity} is no text")
    return Head(
        identity, Kind(kind), scope, name, version, latest, tree, hash_, frozen == 1, sequence
    )


def _as_operation(
    identity: int,
    at: str,
    actor: str,
    reason: str,
    session: str | None,
    evidence: str,
    undoes: str,
    *principal_fields: Any,
) -> Operation:
    principal, via, arrived = principal_fields
    lists = tuple(json.loads(evidence or "[]")), tuple(json.loads(undoes or "[]"))
    principal_kind = Principal(principal) if principal else None
    return Operation(
        identity,
        Intent(at, Actor(actor), reason, session, *lists, principal_kind, via or ""),
        bool(arrived),
    )


def _as_change(sequence: int, operation: int, kind: str, *rest: Any) -> Change:
    return Change(sequence, operation, Kind(kind), *rest)
