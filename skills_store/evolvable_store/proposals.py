"""Changes that wait for a decision: complete contents, kept beside the history until somebody says yes or no."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evolvable_store.errors import NotFound
from evolvable_store.objects import Files, Manifest, manifest_of
from evolvable_store.operation import Actor
from evolvable_store.packing import pack
from evolvable_store.resource import Kind, Ref
from evolvable_store.sqlite import SqliteBackend

OPEN, APPROVED, REJECTED, EXPIRED = "open", "approved", "rejected", "expired"


@dataclass(frozen=True, slots=True)
class Draft:
    """A change to be proposed: its whole content (none: it removes the resource), and what there is to say for it.

    grounds: JSON of the verb that proposes. fingerprint: what is proposed, by which the same is known again.
    expires: when it closes by itself. findings: JSON of what a scan found in it.
    """

    ref: Ref
    base: int
    files: Files
    reason: str
    grounds: str | None = None
    fingerprint: str | None = None
    expires: str | None = None
    findings: str | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that waits, or waited. `base`: the version it was made from, 0 for a new resource.

    times: how often the same was proposed while it waited; reason and session are those of the last time.
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
    grounds: str | None = None
    fingerprint: str | None = None
    expires: str | None = None
    findings: str | None = None
    times: int = 1

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

    def add(
        self,
        at: str,
        ref: Ref,
        base: int,
        files: Files,
        reason: str,
        actor: Actor,
        session: str | None,
        findings: str | None = None,
    ) -> int:
        """Keeps a proposal with its content and returns its id.

        Where somebody other than a person proposes what waits already (the same content, made from the same version),
        that is counted, and takes the new reason and session.
        """
        adding = Adding(at, actor, session, [Draft(ref, base, files, reason, findings=findings)])
        like = (ref.kind, ref.scope, ref.name, base, manifest_of(files).to_json(), actor, OPEN)
        with self._backend.writing() as db:
            same = db.execute(_SAME, like).fetchone() if actor is not Actor.HUMAN else None
            if same is None:
                return adding.into(db)[0]
            db.execute(_AGAIN, (reason, session, same[0]))
            return int(same[0])

    def get(self, identity: int) -> Proposal:
        """Returns one proposal. Raises NotFound."""
        with self._backend.reading() as db:
            row = db.execute(f"{_PROPOSAL} WHERE id = ?", (identity,)).fetchone()
        if row is None:
            raise NotFound(f"There is no proposal {identity}.", "`evolvable inbox` lists those that wait.")
        return _as_proposal(row)

    def waiting(self, limit: int = 100) -> list[Proposal]:
        """Returns up to `limit` open proposals, oldest first."""
        return self.in_state(OPEN, limit)

    def in_state(self, state: str, limit: int) -> list[Proposal]:
        """Returns up to `limit` proposals in this state, oldest first of those that wait, else newest first."""
        order = "ASC" if state == OPEN else "DESC"
        with self._backend.reading() as db:
            rows = db.execute(f"{_PROPOSAL} WHERE state = ? ORDER BY id {order} LIMIT ?", (state, limit)).fetchall()
        return [_as_proposal(row) for row in rows]

    def approved_of(self, session: str) -> list[Proposal]:
        """Returns the approved proposals that a session led to."""
        query = f"{_PROPOSAL} WHERE session = ? AND state = ? AND operation IS NOT NULL ORDER BY id"
        with self._backend.reading() as db:
            return [_as_proposal(row) for row in db.execute(query, (session, APPROVED)).fetchall()]

    def expire(self, now: str) -> int:
        """Closes the open proposals whose time is over; returns how many."""
        query = "UPDATE proposal SET state = ?, decision = 'nobody decided in time' WHERE state = ? AND expires < ?"
        with self._backend.writing() as db:
            return int(db.execute(query, (EXPIRED, OPEN, now)).rowcount)

    def reject(self, identity: int, decision: str) -> bool:
        """Closes an open proposal without a change; returns False when somebody else was first."""
        with self._backend.write() as writer:
            return writer.close_proposal(identity, REJECTED, decision, None)


class Adding:
    """Proposals made together, ready to be written: their contents are packed while nobody waits."""

    def __init__(self, at: str, actor: Actor, session: str | None, drafts: Sequence[Draft]) -> None:
        self._blobs, self._rows = list[Any](), list[Any]()
        for draft in drafts:
            manifest = manifest_of(draft.files)
            for path, entry in manifest.items():
                self._blobs.append((entry.sha256, entry.size, *reversed(pack(draft.files[path].data))))
            named = (at, draft.ref.kind, draft.ref.scope, draft.ref.name, draft.base, manifest.to_json(), draft.reason)
            told = (draft.grounds, draft.fingerprint, draft.expires, draft.findings)
            self._rows.append((*named, actor, session, OPEN, *told))

    def into(self, db: Any) -> list[int]:
        """Writes them inside a transaction, and returns their ids."""
        db.executemany(_BLOB, self._blobs)
        return [int(db.execute(_ADD, row).lastrowid) for row in self._rows]


_BLOB = """INSERT INTO blob (sha256, size, codec, data) VALUES (?, ?, ?, ?) ON CONFLICT (sha256)
    DO UPDATE SET codec = excluded.codec, data = excluded.data WHERE blob.codec = 'absent'"""
_ADD = """INSERT INTO proposal (at, kind, scope, name, base, manifest, reason, actor, session, state, grounds,
    fingerprint, expires, findings) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_SAME = """SELECT id FROM proposal WHERE kind = ? AND scope = ? AND name = ? AND base = ? AND manifest = ?
    AND actor = ? AND state = ? AND grounds IS NULL ORDER BY id LIMIT 1"""
_AGAIN = "UPDATE proposal SET times = times + 1, reason = ?, session = ? WHERE id = ?"
_PROPOSAL = """SELECT id, at, kind, scope, name, base, manifest, reason, actor, session, state, decision, operation,
    grounds, fingerprint, expires, findings, times FROM proposal"""


def _as_proposal(row: Any) -> Proposal:
    identity, at, kind, scope, name, base, manifest, reason, actor, *rest = row
    return Proposal(
        identity, at, Kind(kind), scope, name, base, Manifest.from_json(manifest), reason, Actor(actor), *rest
    )
