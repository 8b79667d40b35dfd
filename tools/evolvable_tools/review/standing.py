"""How reviews stand: what waits, what the last one came to and why, and what of today's budget is left."""

import json
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.review_queue import waiting_sessions
from evolvable_store.storage.proposals import OPEN, Proposals, Review, Reviews, ReviewState
from evolvable_tools.library import Library
from evolvable_tools.review.settings import ReviewSettings

MOST = 100
"""Reviews that are looked through, and listed."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A review that waits. state: begun (for somebody who thinks) or answered (for its next step)."""

    review_id: str
    session: str
    at: str
    state: str


@dataclass(frozen=True, slots=True)
class Last:
    """The review that was done last. why: why nothing came of it, '' when something did. refused: codes of rules."""

    review_id: str
    session: str
    at: str
    why: str
    signals: dict[str, int]
    proposals: list[int]
    refused: list[str]


@dataclass(frozen=True, slots=True)
class Left:
    """What a day may still cost, and what it may cost in all. money: None without a limit."""

    day: str
    calls: int
    of_calls: int
    tokens: int
    of_tokens: int
    money: float | None = None
    of_money: float | None = None


@dataclass(frozen=True)
class Standing:
    """How reviews stand. thinker: who is asked, `handoff` for whoever calls. queued: sessions that hooks have queued.

    proposals: how many wait for a person.
    """

    on: bool
    thinker: str
    policies: dict[str, str]
    queued: list[str]
    waiting: list[Begun]
    last: Last | None
    left: Left
    proposals: int


def standing(library: Library, settings: ReviewSettings, home: Path) -> Standing:
    """Returns how reviews stand, and changes nothing."""
    reviews = Reviews(library.store.backend)
    newest = reviews.newest(MOST)
    done = next((one for one in newest if one.state is ReviewState.DONE), None)
    day = library.store.clock().date().isoformat()
    spent, budget = reviews.spent(day), settings.budget
    return Standing(
        settings.on,
        settings.thinker.name if settings.thinker is not None else "handoff",
        {kind.value: policy.value for kind, policy in settings.policies.items()},
        [entry.session or entry.transcript for entry in waiting_sessions(home)],
        [Begun(one.id, one.session, one.at, one.state) for one in newest if one.state is not ReviewState.DONE],
        _last(done) if done is not None else None,
        Left(
            day,
            max(0, budget.calls - spent.calls),
            budget.calls,
            max(0, budget.tokens - spent.tokens),
            budget.tokens,
            None if budget.money is None else max(0.0, round(budget.money - spent.money, 6)),
            budget.money,
        ),
        len(Proposals(library.store.backend).in_state(OPEN, 10_000)),
    )


def _last(review: Review) -> Last:
    kept = json.loads(review.result or "{}")
    refused = [f"{one['code']}: {one['reason']}" for one in kept.get("refused", [])]
    proposals = json.loads(review.answer or "[]")
    return Last(review.id, review.session, review.at, kept.get("why", ""), kept.get("signals", {}), proposals, refused)
