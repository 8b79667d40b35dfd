"""What thinking may cost in a day. A call that might pass a limit is not made, by however many processes.

Before a call the most that it can cost is reserved in the library; after it what it did cost stands there instead. A
process that dies in between leaves its reservation, so that a limit is passed by nobody.
"""

from dataclasses import dataclass, replace

from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.storage.proposals import Reviews, Spending
from evolvable_tools.providers.answers import as_prompt
from evolvable_tools.providers.thinker import Request, Thinker

MILLION = 1_000_000
CALLS, TOKENS = 20, 500_000
"""What a day may have where nothing else is set."""


class OverBudget(Refused):
    """A call would pass what a day may cost."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one day in UTC. money: in the unit of the prices; None: no limit.

    price_in, price_out: of a million tokens; without them a limit of money lets no call be made.
    """

    calls: int = CALLS
    tokens: int = TOKENS
    money: float | None = None
    price_in: float | None = None
    price_out: float | None = None


def lower(floor: Budget, said: Budget) -> Budget:
    """Return the budget that allows no more than either of two. The prices are the floor's, where it has any."""
    money = [one.money for one in (floor, said) if one.money is not None]
    priced = floor if floor.price_in is not None else said
    return Budget(
        min(floor.calls, said.calls),
        min(floor.tokens, said.tokens),
        min(money) if money else None,
        priced.price_in,
        priced.price_out,
    )


def budget_of(text: str, floor: Budget | None = None) -> Budget:
    """Returns the budget that a setting says, such as `calls=10,tokens=200000,money=2,price=3/15`.

    floor: says what the setting does not. Raises InvalidArgument.
    """
    said: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        try:
            if name == "price":
                said["price_in"], said["price_out"] = map(_amount, value.split("/"))
            elif name in ("calls", "tokens", "money"):
                said[name] = _amount(value)
            else:
                raise ValueError
        except ValueError:
            hint = "Write calls=10,tokens=200000,money=2,price=3/15: price is of a million tokens in and out."
            raise InvalidArgument(f"{part[:40]!r} is no limit of a budget.", hint) from None
    whole = {name: int(said.pop(name)) for name in ("calls", "tokens") if name in said}
    return replace(floor or Budget(), **whole, **said)  # type: ignore[arg-type]


def _amount(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e12:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class Reserved:
    """A call that may be made. most: what it was reserved for."""

    id: int
    most: Spending


def reserve(reviews: Reviews, budget: Budget, day: str, review: str, thinker: Thinker, request: Request) -> Reserved:
    """Reserves the most that a question can cost. Raises OverBudget, which says which limit it would pass."""
    if budget.money is not None and (budget.price_in is None or budget.price_out is None):
        raise OverBudget("A limit of money is set and no price.", "Add price=IN/OUT, of a million tokens.")
    most = _most(budget, request, thinker)
    limit = Spending(budget.calls, budget.tokens, float("inf") if budget.money is None else budget.money)
    reserved = reviews.reserve(day, review, thinker.name, most, limit)
    if reserved is None:
        spent = reviews.spent(day)
        used = f"{spent.calls} of {budget.calls} calls, {spent.tokens:,} of {budget.tokens:,} tokens"
        money = f", {spent.money:.2f} of {budget.money:.2f}" if budget.money is not None else ""
        text = (
            f"The budget of {day} does not allow this: {used}{money} are spent, and it may take {most.tokens:,} tokens."
        )
        raise OverBudget(text, "It goes on tomorrow (UTC), or with a larger budget in the person's configuration.")
    return Reserved(reserved, most)


def settle(reviews: Reviews, budget: Budget, reserved: Reserved, tokens_in: int, tokens_out: int) -> Spending:
    """Notes what a call did cost instead of what was reserved for it, and returns that."""
    cost = Spending(1, tokens_in + tokens_out, _money(budget, tokens_in, tokens_out))
    reviews.settle(reserved.id, cost)
    return cost


def _most(budget: Budget, request: Request, thinker: Thinker) -> Spending:
    # A token has two bytes or more in every script but rare ones; English has four.
    tokens_in = len(as_prompt(request).encode("utf-8", "replace")) // 2 + 500 + getattr(thinker, "beyond", 0)
    tries = getattr(thinker, "tries", 1)
    tokens_in, tokens_out = tokens_in * tries, request.max_tokens * tries
    return Spending(1, tokens_in + tokens_out, _money(budget, tokens_in, tokens_out))


def _money(budget: Budget, tokens_in: int, tokens_out: int) -> float:
    return (tokens_in * (budget.price_in or 0.0) + tokens_out * (budget.price_out or 0.0)) / MILLION
