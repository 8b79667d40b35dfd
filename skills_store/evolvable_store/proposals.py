"""Changes that wait for a decision: complete contents, kept beside the history until somebody says yes or no."""

from dataclasses import dataclass
from typing import Any

from evolvable_store.errors import NotFound
from evolvable_store.objects import Files, Manifest, manifest_of
from evolvable_store.operation import Actor
from evolvable_store.packing import pack
from evolvable_store.resource import Kind, Ref
from evolvable_store.sqlite import SqliteBackend

OPEN, APPROVED, REJECTED = "open", "approved", "rejected"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that waits, or waited. `base`: the version it was made from, 0 for a new resource.

    An empty manifest proposes to remove the resource: none can be without a file.
    """

    id: int
    at: str
    kind: Kind
    scope: str
    name: str
    base: int
    manifest: Manifest
    reason: str
    actor: Actor
    session: str | None
    state: str
    decision: str | None
    operation: int | None

    @property
    def removes(self) -> bool:
        """Whether it proposes to remove the resource."""
        return not self.manifest

    @property
    def ref(self) -> Ref:
        """The resource, without a version."""
        return Ref(self.kind, self.name, self.scope)


class Proposals:
    """The proposals of one library."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    def add(self, at: str, ref: Ref, base: int, files: Files, reason: str, actor: Actor, session: str | None) -> int:
        """Keeps a proposal with its content and returns its id."""
        manifest = manifest_of(files)
        blobs = [(files[path].data, entry) for path, entry in manifest.items()]
        packed = [(entry.sha256, entry.size, *reversed(pack(data))) for data, entry in blobs]
        row = (at, ref.kind, ref.scope, ref.name, base, manifest.to_json(), reason, actor, session, OPEN)
        with self._backend.writing() as db:
            db.executemany(
                "INSERT INTO blob (sha256, size, codec, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", packed
            )
            cursor = db.execute(
                "INSERT INTO proposal (at, kind, scope, name, base, manifest, reason, actor, session, state)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def get(self, identity: int) -> Proposal:
        """Returns one proposal. Raises NotFound."""
        with self._backend.reading() as db:
            row = db.execute(f"{_PROPOSAL} WHERE id = ?", (identity,)).fetchone()
        if row is None:
            raise NotFound(f"There is no proposal {identity}.", "`evolvable inbox` lists those that wait.")
        return _as_proposal(row)

    def waiting(self, limit: int = 100) -> list[Proposal]:
        """Returns up to `limit` open proposals, oldest first."""
        with self._backend.reading() as db:
            rows = db.execute(f"{_PROPOSAL} WHERE state = ? ORDER BY id LIMIT ?", (OPEN, limit)).fetchall()
        return [_as_proposal(row) for row in rows]

    def reject(self, identity: int, decision: str) -> bool:
        """Closes an open proposal without a change; returns False when somebody else was first."""
        with self._backend.write() as writer:
            return writer.close_proposal(identity, REJECTED, decision, None)


_PROPOSAL = """SELECT id, at, kind, scope, name, base, manifest, reason, actor, session, state, decision, operation
    FROM proposal"""


def _as_proposal(row: Any) -> Proposal:
    identity, at, kind, scope, name, base, manifest, reason, actor, *rest = row
    return Proposal(
        identity, at, Kind(kind), scope, name, base, Manifest.from_json(manifest), reason, Actor(actor), *rest
    )
