"""Proposals with their complete contents, reviews of sessions, and the spending on model calls."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from evolvable_store.errors import NotFound
from evolvable_store.objects import Files, Manifest, make_manifest, pack
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref

if TYPE_CHECKING:
    from evolvable_store.storage.sqlite import SqliteStorage

OPEN, APPROVED, REJECTED, EXPIRED = "open", "approved", "rejected", "expired"


@dataclass(frozen=True, slots=True)
class Draft:
    """A change to be proposed: its whole content (none: it removes the resource), and what there is to say for it.

    grounds: JSON of the verb that proposes. fingerprint: what is proposed, by which the same is known again.
    expires: the time at which it closes. findings: JSON of what a scan found in it.
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


class SqliteProposals:
    """The proposals of one library."""

    def __init__(self, backend: "SqliteStorage") -> None:
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
        adding = ProposalBatch(at, actor, session, [Draft(ref, base, files, reason, findings=findings)])
        like = (ref.kind, ref.scope, ref.name, base, make_manifest(files).to_json(), actor, OPEN)
        with self._backend.writing() as db:
            same = db.execute(_SAME, like).fetchone() if actor is not Actor.HUMAN else None
            if same is None:
                return adding.into(db)[0]
            db.execute(_AGAIN, (reason, session, same[0]))
            return int(same[0])

    def get(self, identity: int) -> Proposal:
        with self._backend.reading() as db:
            row = db.execute(f"{_PROPOSAL} WHERE id = ?", (identity,)).fetchone()
        if row is None:
            raise NotFound(f"There is no proposal {identity}.", "`evolvable inbox` lists those that wait.")
        return _as_proposal(row)

    def waiting(self, limit: int = 100) -> list[Proposal]:
        return self.in_state(OPEN, limit)

    def in_state(self, state: str, limit: int) -> list[Proposal]:
        order = "ASC" if state == OPEN else "DESC"
        with self._backend.reading() as db:
            rows = db.execute(f"{_PROPOSAL} WHERE state = ? ORDER BY id {order} LIMIT ?", (state, limit)).fetchall()
        return [_as_proposal(row) for row in rows]

    def approved_in_session(self, session: str) -> list[Proposal]:
        query = f"{_PROPOSAL} WHERE session = ? AND state = ? AND operation IS NOT NULL ORDER BY id"
        with self._backend.reading() as db:
            return [_as_proposal(row) for row in db.execute(query, (session, APPROVED)).fetchall()]

    def expire(self, now: str) -> int:
        query = "UPDATE proposal SET state = ?, decision = 'nobody decided in time' WHERE state = ? AND expires < ?"
        with self._backend.writing() as db:
            return int(db.execute(query, (EXPIRED, OPEN, now)).rowcount)

    def reject(self, identity: int, decision: str) -> bool:
        with self._backend.write() as writer:
            return writer.close_proposal(identity, REJECTED, decision, None)


class ProposalBatch:
    """Proposals made together, ready to be written: their contents are packed while nobody waits."""

    def __init__(self, at: str, actor: Actor, session: str | None, drafts: Sequence[Draft]) -> None:
        self._blobs, self._rows = list[Any](), list[Any]()
        for draft in drafts:
            manifest = make_manifest(draft.files)
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


class ReviewState(StrEnum):
    """How far a review has come."""

    BEGUN = "begun"
    """Its request is stored; no model has answered it yet."""

    ANSWERED = "answered"
    """The answer is stored: it is not asked for again."""

    DONE = "done"
    """Its proposals and its result are stored; its request is deleted."""


@dataclass(frozen=True, slots=True)
class Review:
    """One review. request, answer, result: JSON of the verb; session: as its client names it."""

    id: str
    session: str
    digest: str
    reviewer: int
    at: str
    state: ReviewState
    request: str | None = None
    answer: str | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Episode:
    """What one turn of a session showed, in a few words. key: by which the same is known in another session.

    settled: whether it was seen that it came out well. id: 0 until it is kept.
    """

    session: str
    turn: int
    at: str
    signal: str
    key: str
    quote: str
    origin: str
    settled: bool
    id: int = 0


@dataclass(frozen=True, slots=True)
class Spending:
    """The cost of model calls in a day: calls, tokens, and money in the unit of the prices."""

    calls: int = 0
    tokens: int = 0
    money: float = 0.0


class SqliteReviews:
    """The reviews of one library."""

    def __init__(self, backend: "SqliteStorage") -> None:
        self._backend = backend

    def get(self, identity: str) -> Review:
        with self._backend.reading() as db:
            row = db.execute(f"{_REVIEW} WHERE id = ?", (identity,)).fetchone()
        if row is None:
            raise NotFound(f"There is no review {ascii(identity[:80])}.", "review_session begins one.")
        return _as_review(row)

    def of(self, session: str) -> list[Review]:
        with self._backend.reading() as db:
            rows = db.execute(f"{_REVIEW} WHERE session = ? ORDER BY at, id", (session,)).fetchall()
        return [_as_review(row) for row in rows]

    def newest(self, limit: int) -> list[Review]:
        with self._backend.reading() as db:
            return [_as_review(row) for row in db.execute(f"{_REVIEW} ORDER BY at DESC LIMIT ?", (limit,)).fetchall()]

    def begin(self, review: Review, episodes: Iterable[Episode]) -> Review:
        r = review
        shown = [(e.session, e.turn, e.at, e.signal, e.key, e.quote, e.origin, int(e.settled)) for e in episodes]
        with self._backend.writing() as db:
            row = (r.id, r.session, r.digest, r.reviewer, r.at, r.state, r.request)
            db.execute(
                "INSERT INTO review (id, session, digest, reviewer, at, state, packet) VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                row,
            )
            db.executemany(
                "INSERT INTO episode (session, turn, at, signal, key, quote, origin, settled)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET settled = max(settled, excluded.settled)",
                shown,
            )
        return self.get(r.id)

    def answered(self, identity: str, answer: str) -> None:
        with self._backend.writing() as db:
            query = "UPDATE review SET state = ?, answer = ? WHERE id = ? AND state = ?"
            db.execute(query, (ReviewState.ANSWERED, answer, identity, ReviewState.BEGUN))

    def finish(self, review: Review, now: str, drafts: Sequence[Draft], result: str) -> tuple[list[int], bool]:
        adding = ProposalBatch(now, Actor.REVIEW, review.session, drafts)
        with self._backend.writing() as db:
            row = db.execute("SELECT state FROM review WHERE id = ?", (review.id,)).fetchone()
            if row is None or row[0] == ReviewState.DONE:
                return [], False
            ids = adding.into(db)
            query = "UPDATE review SET state = ?, packet = NULL, answer = ?, result = ? WHERE id = ?"
            db.execute(query, (ReviewState.DONE, json.dumps(ids), result, review.id))
        return ids, True

    def forget(self, before: str) -> int:
        with self._backend.writing() as db:
            query = "DELETE FROM review WHERE state = ? AND at < ?"
            return int(db.execute(query, (ReviewState.BEGUN, before)).rowcount)

    def episodes(self, keys: Iterable[str], besides: str, limit: int = 40) -> list[Episode]:
        query = f"{_EPISODE} WHERE key IN (SELECT value FROM json_each(?)) AND session <> ? ORDER BY id DESC LIMIT ?"
        with self._backend.reading() as db:
            rows = db.execute(query, (json.dumps(list(keys)), besides, limit)).fetchall()
        return [_as_episode(*row) for row in rows]

    def spent(self, day: str) -> Spending:
        with self._backend.reading() as db:
            return Spending(*db.execute(_SPENT, (day,)).fetchone())

    def reserve(self, day: str, review: str, model: str, cost: Spending, limit: Spending) -> int | None:
        with self._backend.writing() as db:
            calls, tokens, money = db.execute(_SPENT, (day,)).fetchone()
            if calls + 1 > limit.calls or tokens + cost.tokens > limit.tokens or money + cost.money > limit.money:
                return None
            query = "INSERT INTO spending (day, review, thinker, tokens, money) VALUES (?, ?, ?, ?, ?)"
            return db.execute(query, (day, review, model, cost.tokens, cost.money)).lastrowid

    def settle(self, reserved: int, cost: Spending) -> None:
        with self._backend.writing() as db:
            db.execute("UPDATE spending SET tokens = ?, money = ? WHERE id = ?", (cost.tokens, cost.money, reserved))


_REVIEW = "SELECT id, session, digest, reviewer, at, state, packet, answer, result FROM review"
_EPISODE = "SELECT session, turn, at, signal, key, quote, origin, settled, id FROM episode"
_SPENT = "SELECT count(*), coalesce(sum(tokens), 0), coalesce(sum(money), 0.0) FROM spending WHERE day = ?"


def _as_review(row: Sequence[object]) -> Review:
    identity, session, digest, reviewer, at, state, *rest = row
    return Review(
        str(identity),
        str(session),
        str(digest),
        int(str(reviewer)),
        str(at),
        ReviewState(str(state)),
        *map(_text, rest),
    )


def _as_episode(
    session: str, turn: int, at: str, signal: str, key: str, quote: str, origin: str, settled: int, identity: int
) -> Episode:
    return Episode(session, turn, at, signal, key, quote, origin, settled == 1, identity)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
