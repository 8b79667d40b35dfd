"""The configuration of reviews, their status, and the budget of a day.

Before a call the library reserves its highest cost, and the actual cost replaces it afterwards. A
process that dies in between leaves its reservation, so no number of processes passes the limit.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_store import waiting_sessions
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.resource import Kind
from evolvable_store.storage import OPEN, Review, Reviews, ReviewState, Spending
from evolvable_tools.approvals import ApprovalPolicy
from evolvable_tools.library import Library
from evolvable_tools.llm import LanguageModel, ModelAttempt, Request, most_tokens
from evolvable_tools.redaction import Redactor

MILLION = 1_000_000
CALLS, TOKENS = 20, 500_000
"""Calls and tokens of a day where nobody set a budget: they bound an unattended loop of reviews."""


class OverBudget(Refused):
    """A call would pass what a day may cost."""


@dataclass(frozen=True, slots=True)
class ReviewBudget:
    """Limits of one day in UTC. money: in the unit of the prices; None: no limit.

    price_in, price_out: of a million tokens; without them a limit of money lets no call be made.
    """

    calls: int = CALLS
    tokens: int = TOKENS
    money: float | None = None
    price_in: float | None = None
    price_out: float | None = None


def stricter_budget(floor: ReviewBudget, other: ReviewBudget) -> ReviewBudget:
    """Return the budget that allows no more than either of two.

    The prices are the floor's, where it has any.
    """
    limits = [budget.money for budget in (floor, other) if budget.money is not None]
    priced = floor if floor.price_in is not None else other
    return replace(
        priced,
        calls=min(floor.calls, other.calls),
        tokens=min(floor.tokens, other.tokens),
        money=min(limits, default=None),
    )


def parse_budget(text: str, floor: ReviewBudget | None = None) -> ReviewBudget:
    """Return the budget that a setting says, such as `calls=10,tokens=200000,money=2,price=3/15`.

    floor: says what the setting does not. Raises InvalidArgument.
    """
    limits: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        try:
            if name == "price":
                limits["price_in"], limits["price_out"] = map(_parse_amount, value.split("/"))
            elif name in ("calls", "tokens", "money"):
                limits[name] = _parse_amount(value)
            else:
                raise ValueError
        except ValueError:
            hint = (
                "Write calls=10,tokens=200000,money=2,price=3/15: price is of a million tokens "
                "in and out."
            )
            raise InvalidArgument(f"{part[:40]!r} is no limit of a budget.", hint) from None
    whole = {name: int(limits.pop(name)) for name in ("calls", "tokens") if name in limits}
    return replace(floor or ReviewBudget(), **whole, **limits)  # type: ignore[arg-type]


def _parse_amount(text: str) -> float:
    value = float(text)
    # Also refuses NaN and infinity, which `float` accepts.
    if not 0 <= value < 1e12:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class BudgetReservation:
    """A call that may be made. most: what it was reserved for."""

    id: int
    most: Spending


def reserve(
    reviews: Reviews,
    budget: ReviewBudget,
    day: str,
    review: str,
    model: LanguageModel,
    request: Request,
) -> BudgetReservation:
    """Reserve the most that a question can cost.

    Raises OverBudget, which says which limit it would pass.
    """
    has_price = getattr(model, "price", None) is not None
    has_price = has_price or None not in (budget.price_in, budget.price_out)
    # Without any price the cost of a call is unknown, so a limit of money could not be kept.
    if budget.money is not None and not has_price:
        hint = (
            "Give the model a price (`evolvable role model add --price`), or add price=IN/OUT, of "
            "a million tokens."
        )
        raise OverBudget("A limit of money is set and no price.", hint)
    most = _estimate_highest_cost(budget, request, model)
    limit = Spending(
        budget.calls, budget.tokens, float("inf") if budget.money is None else budget.money
    )
    reserved = reviews.reserve(day, review, model.name, most, limit)
    if reserved is None:
        spent = reviews.spending_of(day)
        used = (
            f"{spent.calls} of {budget.calls} calls, {spent.tokens:,} of {budget.tokens:,} tokens"
        )
        money = f", {spent.money:.2f} of {budget.money:.2f}" if budget.money is not None else ""
        why = f"{used}{money} are spent, and it may take {most.tokens:,} tokens."
        hint = "It goes on tomorrow (UTC), or with a larger budget in the person's configuration."
        raise OverBudget(f"The budget of {day} does not allow this: {why}", hint)
    return BudgetReservation(reserved, most)


@dataclass(slots=True)
class QuestionUsage:
    """What one question cost, as its model reports. attempts: of a model behind an API. paid: US
    dollars that a command reported.
    """

    tokens: list[tuple[int, int]] = field(default_factory=list)
    attempts: list[ModelAttempt] = field(default_factory=list)
    paid: list[float] = field(default_factory=list)

    def hooks(self) -> dict[str, Any]:
        """Return the callbacks by which a request reports its tokens, its cost and its attempts."""
        spent = {
            "spent": lambda tokens_in, tokens_out: self.tokens.append((tokens_in, tokens_out)),
            "paid": self.paid.append,
        }
        return {**spent, "attempted": self.attempts.append}

    @property
    def is_reported(self) -> bool:
        """Whether the model reported anything."""
        return bool(self.tokens or self.attempts)

    def spending(self, budget: ReviewBudget) -> Spending:
        """Return what it took.

        An attempt that was refused is no call. A price of the model's own counts first.
        """
        spent: list[tuple[int, int, float | None]] = [(*each, None) for each in self.tokens]
        spent += [
            (attempt.input_tokens, attempt.output_tokens, attempt.cost) for attempt in self.attempts
        ]
        money = sum(
            _price_tokens(budget, tokens_in, tokens_out) if cost is None else cost
            for tokens_in, tokens_out, cost in spent
        )
        # A command reports dollars itself; attempts behind an API are counted one by one.
        money = sum(self.paid) if self.paid and not self.attempts else money
        totals = [tokens_in + tokens_out for tokens_in, tokens_out, _ in spent]
        calls = sum(total > 0 for total in totals)
        return Spending(max(1, calls), sum(totals), money)

    def to_json(self) -> dict[str, Any]:
        """Return the attempts as the record of a review or a round holds them, nothing without any.

        Without the seconds: the state of a round is the same however long its models took.
        """
        attempts = [
            {name: value for name, value in asdict(attempt).items() if name != "seconds"}
            for attempt in self.attempts
        ]
        return {"attempts": attempts} if attempts else {}


def settle(
    reviews: Reviews, budget: ReviewBudget, reserved: BudgetReservation, usage: QuestionUsage
) -> Spending:
    """Note what a question did cost instead of what was reserved for it, and return that."""
    cost = usage.spending(budget)
    reviews.settle(reserved.id, cost)
    return cost


def _estimate_highest_cost(
    budget: ReviewBudget, request: Request, model: LanguageModel
) -> Spending:
    # A model that may try several times is reserved for all of them.
    tries = getattr(model, "tries", 1)
    most_in, most_out = most_tokens(request, getattr(model, "beyond", 0))
    tokens_in, tokens_out = most_in * tries, most_out * tries
    price = getattr(model, "price", None)
    money = _price_tokens(budget, tokens_in, tokens_out)
    if price is not None:
        money = (tokens_in * price[0] + tokens_out * price[1]) / MILLION
    return Spending(tries, tokens_in + tokens_out, money)


def _price_tokens(budget: ReviewBudget, tokens_in: int, tokens_out: int) -> float:
    return (tokens_in * (budget.price_in or 0.0) + tokens_out * (budget.price_out or 0.0)) / MILLION


@dataclass(frozen=True, slots=True)
class ReviewSettings:
    """The settings of reviews.

    on: whether there are reviews at all. reviewer_model: the language model; without one the caller
    answers. boot: of a project's folder, the texts that a client reads there at its start.
    transcript: of a session, its file. home: what `~` means in a session's commands. learns:
    whether the prompts in a transcript teach, see `past_prompts`. auto_refs: the skills whose
    lessons are made without a question, where the scan has none.
    """

    redactor: Redactor
    on: bool = True
    reviewer_model: LanguageModel | None = None
    budget: ReviewBudget = field(default_factory=ReviewBudget)
    policies: Mapping[Kind, ApprovalPolicy] = field(default_factory=dict)
    boot: Callable[[str | None], tuple[str, ...]] = lambda project: ()
    transcript: Callable[[str], Path | None] = lambda session: None
    home: Path | None = None
    learns: Callable[[Path], bool] = lambda transcript: False
    auto_refs: frozenset[str] = frozenset()

    def policy(self, kind: Kind) -> ApprovalPolicy:
        """Return what becomes of proposals of this kind."""
        return self.policies.get(kind, ApprovalPolicy.ASK)


MOST = 100
"""Reviews that are looked through, and listed."""


@dataclass(frozen=True, slots=True)
class PendingReview:
    """A review that waits. state: begun (it needs a model) or answered (for its next step)."""

    review_id: str
    session: str
    at: str
    state: str


@dataclass(frozen=True, slots=True)
class LastReview:
    """The review that was done last.

    why: why nothing came of it, '' when something did. refused: codes of rules.
    """

    review_id: str
    session: str
    at: str
    why: str
    signals: dict[str, int]
    proposals: list[int]
    refused: list[str]


@dataclass(frozen=True, slots=True)
class BudgetLeft:
    """What a day may still cost, and what it may cost in all. money: None without a limit."""

    day: str
    calls: int
    of_calls: int
    tokens: int
    of_tokens: int
    money: float | None = None
    of_money: float | None = None


@dataclass(frozen=True)
class ReviewStatus:
    """The status of reviews. thinker: the model, `handoff` for the caller. queued: sessions that
    hooks have queued.

    proposals: how many wait for a person.
    """

    on: bool
    thinker: str
    policies: dict[str, str]
    queued: list[str]
    waiting: list[PendingReview]
    last: LastReview | None
    left: BudgetLeft
    proposals: int


def review_status(library: Library, settings: ReviewSettings, home: Path) -> ReviewStatus:
    """Return the status of reviews, without a change."""
    reviews = library.store.backend.reviews
    newest = reviews.newest(MOST)
    done = next((review for review in newest if review.state is ReviewState.DONE), None)
    pending = [
        PendingReview(review.id, review.session, review.at, review.state)
        for review in newest
        if review.state is not ReviewState.DONE
    ]
    day = library.store.clock().date().isoformat()
    model = settings.reviewer_model
    return ReviewStatus(
        on=settings.on,
        thinker=model.name if model is not None else "handoff",
        policies={kind.value: policy.value for kind, policy in settings.policies.items()},
        queued=[entry.session or entry.transcript for entry in waiting_sessions(home)],
        waiting=pending,
        last=_describe_last(done) if done is not None else None,
        left=budget_left(reviews, settings.budget, day),
        proposals=len(library.store.backend.proposals.in_state(OPEN, 10_000)),
    )


def budget_left(reviews: Reviews, budget: ReviewBudget, day: str) -> BudgetLeft:
    """Return what a day in UTC may still cost."""
    spent = reviews.spending_of(day)
    calls = max(0, budget.calls - spent.calls)
    tokens = max(0, budget.tokens - spent.tokens)
    money = None if budget.money is None else max(0.0, round(budget.money - spent.money, 6))
    return BudgetLeft(day, calls, budget.calls, tokens, budget.tokens, money, budget.money)


def _describe_last(review: Review) -> LastReview:
    result = json.loads(review.result or "{}")
    refused = [f"{refusal['code']}: {refusal['reason']}" for refusal in result.get("refused", [])]
    about = (review.id, review.session, review.at, result.get("why", ""), result.get("signals", {}))
    return LastReview(*about, json.loads(review.answer or "[]"), refused)
