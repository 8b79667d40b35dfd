"""Proposals with their complete contents, reviews of sessions, and the spending on model calls."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from typing import Any

from evolvable_store.errors import NotFound
from evolvable_store.objects import Files, Manifest, make_manifest, pack
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.audit import Decision, add_decisions
from evolvable_store.storage.connection import Connection
from evolvable_store.storage.sqlite_file import SqliteRepository

OPEN, APPROVED, REJECTED, EXPIRED = "open", "approved", "rejected", "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalGrounds:
    """The reasons and findings that a proposed change is presented with.

    grounds: JSON of the verb that proposes. fingerprint: equal for proposals of the same change.
    expires: the time at which it closes. findings: JSON of the findings of a scan.
    """

    grounds: str | None = None
    fingerprint: str | None = None
    expires: str | None = None
    findings: str | None = None


@dataclass(frozen=True, slots=True)
class Draft(ProposalGrounds):
    """A change to be proposed.

    base: the version from which it was made. files: its whole content, none to remove the resource.
    """

    ref: Ref
    base: int
    files: Files
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal(ProposalGrounds):
    """A change that waits for a decision, or waited.

    base: the version from which it was made, 0 for a new resource. manifest: empty to remove the
    resource. times: how often the same was proposed while it waited; reason and session are those
    of the last time. files_removed_at: when the files of a rejected one were removed, None while
    they are stored.
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
    times: int = 1
    files_removed_at: str | None = None

    @property
    def removes(self) -> bool:
        """Whether it proposes to remove the resource."""
        return not self.manifest

    @property
    def ref(self) -> Ref:
        """The resource, without a version."""
        return Ref(self.kind, self.name, self.scope)


class Proposals(SqliteRepository):
    """Changes that wait for a decision."""

    def add(self, at: str, actor: Actor, session: str | None, draft: Draft) -> int:
        """Store a proposal with its content; return its id.

        Where somebody other than a person proposes what waits already, the same content from the
        same version, the waiting proposal counts it, and takes the new reason and session.
        """
        # Packed before the write lock is taken.
        adding, ref = ProposalBatch(at, actor, session, [draft]), draft.ref
        like = (
            ref.kind,
            ref.scope,
            ref.name,
            draft.base,
            make_manifest(draft.files).to_json(),
            actor,
            OPEN,
        )
        with self._backend.writing() as db:
            # A person's proposal is never merged into another: its reason is the person's own.
            same = db.execute(_SAME, like).fetchone() if actor is not Actor.HUMAN else None
            if same is None:
                return adding.into(db)[0]
            db.execute(_AGAIN, (draft.reason, session, same[0]))
            return int(same[0])

    def get(self, identity: int) -> Proposal:
        """Return one proposal. Raises NotFound."""
        for proposal in self._all(_as_proposal, f"{_PROPOSAL} WHERE id = ?", identity):
            return proposal
        raise NotFound(
            f"There is no proposal {identity}.", "`evolvable inbox` lists those that wait."
        )

    def waiting(self, limit: int = 100) -> list[Proposal]:
        """Return up to `limit` open proposals, oldest first."""
        return self.in_state(OPEN, limit)

    def count_waiting(self, now: str, limit: int) -> int:
        """Return how many open proposals there are whose time is not over, at most `limit`."""
        query = """SELECT count(*) FROM (
            SELECT 1 FROM proposal WHERE state = ? AND (expires IS NULL OR expires >= ?)
            LIMIT ?) AS waiting"""
        return self._all(int, query, OPEN, now, limit)[0]

    def in_state(self, state: str, limit: int) -> list[Proposal]:
        """Return up to `limit` proposals in this state.

        Open ones come oldest first, others newest first.
        """
        order = "ASC" if state == OPEN else "DESC"
        return self._all(
            _as_proposal, f"{_PROPOSAL} WHERE state = ? ORDER BY id {order} LIMIT ?", state, limit
        )

    def approved_in_session(self, session: str) -> list[Proposal]:
        """Return the approved proposals that a session led to."""
        query = f"{_PROPOSAL} WHERE session = ? AND state = ? AND operation IS NOT NULL ORDER BY id"
        return self._all(_as_proposal, query, session, APPROVED)

    def reasons(self, ref: Ref, operations: Iterable[int]) -> dict[int, list[str]]:
        """Return by operation the reasons of the proposals of a resource that it approved.

        Only those whose approval gave no reason.
        """
        query = """SELECT operation, reason FROM proposal WHERE kind = ? AND scope = ? AND name = ?
            AND state = ?
            AND coalesce(decision, '') = ''
            AND operation IN (SELECT CAST(value AS INTEGER) FROM json_each(?)) ORDER BY id"""
        ids = json.dumps(list(operations))
        by_operation: dict[int, list[str]] = {}
        rows = self._rows(query, ref.kind, ref.scope, ref.name, APPROVED, ids)
        for operation, reason in rows:
            by_operation.setdefault(operation, []).append(reason)
        return by_operation

    def approved_beside(
        self, ref: Ref, operations: Iterable[int]
    ) -> dict[int, list[tuple[int, str]]]:
        """Return by operation the proposals of other resources that it approved, with reasons."""
        query = """SELECT operation, id, reason FROM proposal WHERE NOT (kind = ? AND scope = ?
            AND name = ?)
            AND state = ? AND operation IN (SELECT CAST(value AS INTEGER) FROM json_each(?))
            ORDER BY id"""
        ids = json.dumps(list(operations))
        by_operation: dict[int, list[tuple[int, str]]] = {}
        rows = self._rows(query, ref.kind, ref.scope, ref.name, APPROVED, ids)
        for operation, identity, reason in rows:
            by_operation.setdefault(operation, []).append((identity, reason))
        return by_operation

    def about(self, ref: Ref) -> list[Proposal]:
        """Return all proposals for a resource, in any state, oldest first."""
        query = f"{_PROPOSAL} WHERE kind = ? AND scope = ? AND name = ? ORDER BY id"
        return self._all(_as_proposal, query, ref.kind, ref.scope, ref.name)

    def expire(self, now: str) -> int:
        """Close the open proposals whose time is over; return how many."""
        query = (
            "UPDATE proposal SET state = ?, decision = 'nobody decided in time' WHERE state = ? "
            "AND expires < ?"
        )
        return self._do(query, EXPIRED, OPEN, now)

    def reject(self, identity: int, decision: str, *audited: Decision) -> bool:
        """Close an open proposal without a change; return False when somebody else was first.

        audited: the rows for the audit log.
        """
        with self._backend.writing() as db:
            # One transaction, so that no rejection is without its row in the audit log.
            closed = close_proposal(db, identity, REJECTED, decision, None)
            if closed:
                add_decisions(db, audited)
        return closed

    def reopen(self, identity: int, *audited: Decision) -> bool:
        """Let a rejected proposal wait again; return False unless it is rejected and has its files.

        audited: as for `reject`.
        """
        query = (
            "UPDATE proposal SET state = ?, decision = NULL WHERE id = ? AND state = ? "
            "AND files_removed_at IS NULL"
        )
        with self._backend.writing() as db:
            reopened = db.execute(query, (OPEN, identity, REJECTED)).rowcount > 0
            if reopened:
                add_decisions(db, audited)
        return reopened


def close_proposal(
    db: Connection, proposal: int, state: str, decision: str, operation: int | None
) -> bool:
    """Close an open proposal; return False when it is not open."""
    query = (
        "UPDATE proposal SET state = ?, decision = ?, operation = ? WHERE id = ? AND state = 'open'"
    )
    return bool(db.execute(query, (state, decision, operation, proposal)).rowcount)


class ProposalBatch:
    """Proposals that are written together, with their contents packed."""

    def __init__(self, at: str, actor: Actor, session: str | None, drafts: Sequence[Draft]) -> None:
        # Hashing and packing take milliseconds, so they happen before the write lock is taken.
        self._blobs, self._rows = list[Any](), list[Any]()
        for draft in drafts:
            manifest = make_manifest(draft.files)
            for path, entry in manifest.items():
                data, codec = pack(draft.files[path].data)
                self._blobs.append((entry.sha256, entry.size, codec, data))
            row = (
                at,
                draft.ref.kind,
                draft.ref.scope,
                draft.ref.name,
                draft.base,
                manifest.to_json(),
                draft.reason,
                actor,
                session,
                OPEN,
                *(getattr(draft, name) for name in _GROUNDS),
            )
            self._rows.append(row)

    def into(self, db: Any) -> list[int]:
        """Write them inside a transaction, and return their ids."""
        db.executemany(_BLOB, self._blobs)
        return [int(db.execute(_ADD, row).fetchall()[0][0]) for row in self._rows]


# A blob that an archive brought as absent gets its bytes; one that was purged here stays purged.
_BLOB = """INSERT INTO blob (sha256, size, codec, data) VALUES (?, ?, ?, ?) ON CONFLICT (sha256)
    DO UPDATE SET codec = excluded.codec, data = excluded.data WHERE blob.codec = 'absent'"""
_GROUNDS = tuple(field.name for field in fields(ProposalGrounds))
_ADD = f"""INSERT INTO proposal (at, kind, scope, name, base, manifest, reason, actor, session,
    state,
    {", ".join(_GROUNDS)}) VALUES ({", ".join("?" * (10 + len(_GROUNDS)))}) RETURNING id"""
_SAME = """SELECT id FROM proposal WHERE kind = ? AND scope = ? AND name = ? AND base = ?
    AND manifest = ?
    AND actor = ? AND state = ? AND grounds IS NULL ORDER BY id LIMIT 1"""
_AGAIN = "UPDATE proposal SET times = times + 1, reason = ?, session = ? WHERE id = ?"
_PROPOSAL = f"""SELECT {", ".join(_GROUNDS)}, id, at, kind, scope, name, base, manifest, reason,
    actor, session, state,
    decision, operation, times, files_removed_at FROM proposal"""


def _as_proposal(*row: Any) -> Proposal:
    id, at, kind, scope, name, base, manifest, reason, actor, *rest = row[len(_GROUNDS) :]
    entries, grounds = Manifest.from_json(manifest), dict(zip(_GROUNDS, row, strict=False))
    return Proposal(
        id, at, Kind(kind), scope, name, base, entries, reason, Actor(actor), *rest, **grounds
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
    """An observation of one turn of a session, in a few words.

    key: equal for the same observation in another session. settled: whether the session later
    showed that it ended well. id: 0 until it is stored.
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


class Reviews(SqliteRepository):
    """Reviews of sessions, and the spending on model calls."""

    def get(self, identity: str) -> Review:
        """Return one review. Raises NotFound."""
        for review in self._all(_as_review, f"{_REVIEW} WHERE id = ?", identity):
            return review
        raise NotFound(f"There is no review {ascii(identity[:80])}.", "review_session begins one.")

    def of(self, session: str) -> list[Review]:
        """Return the reviews of a session, the oldest first."""
        return self._all(_as_review, f"{_REVIEW} WHERE session = ? ORDER BY at, id", session)

    def newest(self, limit: int) -> list[Review]:
        """Return the newest reviews, newest first."""
        return self._all(_as_review, f"{_REVIEW} ORDER BY at DESC LIMIT ?", limit)

    def begin(self, review: Review, episodes: Iterable[Episode]) -> Review:
        """Store a review with the episodes of its session, once.

        Return the stored review, in whatever state it is.
        """
        episode_rows = [astuple(episode)[:-1] for episode in episodes]
        with self._backend.writing() as db:
            # Without answer and result, which a new review does not have.
            db.execute(_ADD_REVIEW, astuple(review)[:-2])
            db.executemany(_ADD_EPISODE, episode_rows)
        return self.get(review.id)

    def store_answer(self, identity: str, answer: str) -> None:
        """Store the answer of a review that has none yet."""
        query = "UPDATE review SET state = ?, answer = ? WHERE id = ? AND state = ?"
        self._do(query, ReviewState.ANSWERED, answer, identity, ReviewState.BEGUN)

    def replace_answer(self, identity: str, answer: str) -> None:
        """Store another answer of a review that has one and is not done."""
        query = "UPDATE review SET answer = ? WHERE id = ? AND state = ?"
        self._do(query, answer, identity, ReviewState.ANSWERED)

    def reopen(self, identity: str, now: str) -> None:
        """Let an answered review that is not done wait for another answer, as the last in line."""
        query = "UPDATE review SET state = ?, answer = NULL, at = ? WHERE id = ? AND state = ?"
        self._do(query, ReviewState.BEGUN, now, identity, ReviewState.ANSWERED)

    def finish(
        self, review: Review, now: str, drafts: Sequence[Draft], result: str
    ) -> tuple[list[int], bool]:
        """Store a review's proposals and its result together, once, and delete its request.

        Return the ids of the proposals, and whether this call stored them.
        """
        # Packed before the write lock is taken.
        adding = ProposalBatch(now, Actor.REVIEW, review.session, drafts)
        with self._backend.writing() as db:
            row = db.execute("SELECT state FROM review WHERE id = ?", (review.id,)).fetchone()
            # Two processes can get the answer; only the first stores proposals.
            if row is None or row[0] == ReviewState.DONE:
                return [], False
            ids = adding.into(db)
            query = (
                "UPDATE review SET state = ?, packet = NULL, answer = ?, result = ? WHERE id = ?"
            )
            db.execute(query, (ReviewState.DONE, json.dumps(ids), result, review.id))
        return ids, True

    def forget(self, before: str) -> int:
        """Remove reviews that were begun before this moment and never answered; return how many."""
        return self._do("DELETE FROM review WHERE state = ? AND at < ?", ReviewState.BEGUN, before)

    def episodes(self, keys: Iterable[str], besides: str, limit: int = 40) -> list[Episode]:
        """Return the episodes of other sessions with these keys, newest first."""
        query = (
            f"{_EPISODE} WHERE key IN (SELECT value FROM json_each(?)) AND session <> ? "
            "ORDER BY id DESC LIMIT ?"
        )
        return self._all(_as_episode, query, json.dumps(list(keys)), besides, limit)

    def spending_of(self, day: str) -> Spending:
        """Return the spending of a day, reserved calls included."""
        return Spending(*self._one(_SPENT, day))

    def reserve(
        self, day: str, review: str, model: str, cost: Spending, limit: Spending
    ) -> int | None:
        """Record a call before it is made, if the day stays within the limit.

        Return its id, None if it does not.
        """
        with self._backend.writing() as db:
            # Under the write lock, so that two processes cannot both take the rest of the day's
            # limit.
            calls, tokens, money = db.execute(_SPENT, (day,)).fetchone()
            has_money = money + cost.money <= limit.money
            if not has_money or calls + 1 > limit.calls or tokens + cost.tokens > limit.tokens:
                return None
            # The column keeps its first name, because older programs write to the same table.
            query = (
                "INSERT INTO spending (day, review, thinker, tokens, money) "
                "VALUES (?, ?, ?, ?, ?) RETURNING id"
            )
            row = (day, review, model, cost.tokens, cost.money)
            return int(db.execute(query, row).fetchall()[0][0])

    def settle(self, reserved: int, cost: Spending) -> None:
        """Replace the reserved cost of a call by its real cost."""
        self._do(
            "UPDATE spending SET tokens = ?, money = ? WHERE id = ?",
            cost.tokens,
            cost.money,
            reserved,
        )


_ADD_REVIEW = """INSERT INTO review (id, session, digest, reviewer, at, state, packet)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
_ADD_EPISODE = """INSERT INTO episode (session, turn, at, signal, key, quote, origin, settled)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session, turn, signal, key)
    DO UPDATE SET settled = max(episode.settled, excluded.settled)"""
_REVIEW = "SELECT id, session, digest, reviewer, at, state, packet, answer, result FROM review"
_EPISODE = "SELECT session, turn, at, signal, key, quote, origin, settled, id FROM episode"
_SPENT = (
    "SELECT count(*), coalesce(sum(tokens), 0), coalesce(sum(money), 0.0) FROM spending "
    "WHERE day = ?"
)


def _as_review(
    identity: str, session: str, digest: str, reviewer: int, at: str, state: str, *texts: str | None
) -> Review:
    return Review(identity, session, digest, reviewer, at, ReviewState(state), *texts)


def _as_episode(
    session: str,
    turn: int,
    at: str,
    signal: str,
    key: str,
    quote: str,
    origin: str,
    settled: int,
    identity: int,
) -> Episode:
    return Episode(session, turn, at, signal, key, quote, origin, settled == 1, identity)
