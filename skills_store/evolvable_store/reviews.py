"""Reviews of sessions: how far each has come, what sessions have shown so far, and what thinking has cost."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store.errors import NotFound
from evolvable_store.operation import Actor
from evolvable_store.proposals import Adding, Draft
from evolvable_store.sqlite import SqliteBackend


class State(StrEnum):
    """How far a review has come."""

    BEGUN = "begun"
    """Its packet is kept; nobody has thought about it yet."""

    ANSWERED = "answered"
    """Somebody has, and the answer is kept: it is not asked for again."""

    DONE = "done"
    """Its proposals and its result are kept; its packet is forgotten."""


@dataclass(frozen=True, slots=True)
class Review:
    """One review. packet, answer, result: JSON of the verb; session: as its client names it."""

    id: str
    session: str
    digest: str
    reviewer: int
    at: str
    state: State
    packet: str | None = None
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
class Spent:
    """What thinking cost in a day: calls, tokens, and money in the unit of the prices."""

    calls: int = 0
    tokens: int = 0
    money: float = 0.0


class Reviews:
    """The reviews of one library."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    def get(self, identity: str) -> Review:
        """Returns one review. Raises NotFound."""
        with self._backend.reading() as db:
            row = db.execute(f"{_REVIEW} WHERE id = ?", (identity,)).fetchone()
        if row is None:
            raise NotFound(f"There is no review {ascii(identity[:80])}.", "review_session begins one.")
        return _as_review(row)

    def of(self, session: str) -> list[Review]:
        """Returns the reviews of a session, the oldest first."""
        with self._backend.reading() as db:
            rows = db.execute(f"{_REVIEW} WHERE session = ? ORDER BY at, id", (session,)).fetchall()
        return [_as_review(row) for row in rows]

    def newest(self, limit: int) -> list[Review]:
        """Returns the newest reviews, newest first."""
        with self._backend.reading() as db:
            return [_as_review(row) for row in db.execute(f"{_REVIEW} ORDER BY at DESC LIMIT ?", (limit,)).fetchall()]

    def begin(self, review: Review, episodes: Iterable[Episode]) -> Review:
        """Keeps a review with what its session showed, once; returns it as it is kept, however far it has come."""
        r = review
        shown = [(e.session, e.turn, e.at, e.signal, e.key, e.quote, e.origin, int(e.settled)) for e in episodes]
        with self._backend.writing() as db:
            row = (r.id, r.session, r.digest, r.reviewer, r.at, r.state, r.packet)
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
        """Keeps the answer of a review that has none yet."""
        with self._backend.writing() as db:
            query = "UPDATE review SET state = ?, answer = ? WHERE id = ? AND state = ?"
            db.execute(query, (State.ANSWERED, answer, identity, State.BEGUN))

    def finish(self, review: Review, now: str, drafts: Sequence[Draft], result: str) -> tuple[list[int], bool]:
        """Keeps a review's proposals and its result together, once, and forgets its packet.

        Returns the ids of the proposals, and whether it was this call that did it.
        """
        adding = Adding(now, Actor.REVIEW, review.session, drafts)
        with self._backend.writing() as db:
            row = db.execute("SELECT state FROM review WHERE id = ?", (review.id,)).fetchone()
            if row is None or row[0] == State.DONE:
                return [], False
            ids = adding.into(db)
            query = "UPDATE review SET state = ?, packet = NULL, answer = ?, result = ? WHERE id = ?"
            db.execute(query, (State.DONE, json.dumps(ids), result, review.id))
        return ids, True

    def forget(self, before: str) -> int:
        """Removes reviews that were begun before this moment and never answered; returns how many."""
        with self._backend.writing() as db:
            query = "DELETE FROM review WHERE state = ? AND at < ?"
            return int(db.execute(query, (State.BEGUN, before)).rowcount)

    def episodes(self, keys: Iterable[str], besides: str, limit: int = 40) -> list[Episode]:
        """Returns what other sessions have shown of these keys, newest first."""
        query = f"{_EPISODE} WHERE key IN (SELECT value FROM json_each(?)) AND session <> ? ORDER BY id DESC LIMIT ?"
        with self._backend.reading() as db:
            rows = db.execute(query, (json.dumps(list(keys)), besides, limit)).fetchall()
        return [_as_episode(*row) for row in rows]

    def spent(self, day: str) -> Spent:
        """Returns what was spent on a day, what is reserved included."""
        with self._backend.reading() as db:
            return Spent(*db.execute(_SPENT, (day,)).fetchone())

    def reserve(self, day: str, review: str, thinker: str, cost: Spent, limit: Spent) -> int | None:
        """Notes a call before it is made, if all of the day stays within the limit; returns its id, None if not."""
        with self._backend.writing() as db:
            calls, tokens, money = db.execute(_SPENT, (day,)).fetchone()
            if calls + 1 > limit.calls or tokens + cost.tokens > limit.tokens or money + cost.money > limit.money:
                return None
            query = "INSERT INTO spending (day, review, thinker, tokens, money) VALUES (?, ?, ?, ?, ?)"
            return db.execute(query, (day, review, thinker, cost.tokens, cost.money)).lastrowid

    def settle(self, reserved: int, cost: Spent) -> None:
        """Replaces what was reserved for a call by what it cost."""
        with self._backend.writing() as db:
            db.execute("UPDATE spending SET tokens = ?, money = ? WHERE id = ?", (cost.tokens, cost.money, reserved))


_REVIEW = "SELECT id, session, digest, reviewer, at, state, packet, answer, result FROM review"
_EPISODE = "SELECT session, turn, at, signal, key, quote, origin, settled, id FROM episode"
_SPENT = "SELECT count(*), coalesce(sum(tokens), 0), coalesce(sum(money), 0.0) FROM spending WHERE day = ?"


def _as_review(row: Sequence[object]) -> Review:
    identity, session, digest, reviewer, at, state, *rest = row
    return Review(
        str(identity), str(session), str(digest), int(str(reviewer)), str(at), State(str(state)), *map(_text, rest)
    )


def _as_episode(
    session: str, turn: int, at: str, signal: str, key: str, quote: str, origin: str, settled: int, identity: int
) -> Episode:
    return Episode(session, turn, at, signal, key, quote, origin, settled == 1, identity)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
