"""The limits of a run: the budget, reserved before and settled after, and the trials at once."""

import math
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.ledger import Ledger, LedgerRecord
from evolvable_evolve.evolution.run_config import SpendLimit
from evolvable_evolve.evolution.task import ModelUsage
from evolvable_evolve.evolution.trials.trial import judging_usage
from evolvable_store.errors import EvolvableError

_NANO = 10**9  # the unit of bills: whole numbers add up to the same sum in any order


class BudgetSpent(EvolvableError):
    """The rest of the budget does not cover the next piece of work. Finished work is kept."""


class PriceUnknown(BudgetSpent):
    """The budget is in money alone, and some work has no known price."""


_NO_LIMITS = SpendLimit()
_NO_USAGE = ModelUsage()


@dataclass(frozen=True, slots=True)
class Bill:
    """A sum of usages.

    nanos: billionths of a dollar, so that sums do not depend on their order. unpriced: pieces of
    work with tokens or calls that have no price.
    """

    nanos: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0

    @property
    def cost(self) -> float:
        """The cost in US dollars of all work with a price."""
        return self.nanos / _NANO

    @property
    def tokens(self) -> int:
        """Tokens in both directions."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(*(getattr(self, name) + getattr(other, name) for name in Bill.__slots__))


_NOTHING = Bill()


def to_bill(usage: ModelUsage) -> Bill:
    """Return the bill of one piece of work."""
    nanos = 0 if usage.cost is None else round(usage.cost * _NANO)
    is_used = (usage.input_tokens + usage.output_tokens + usage.calls) > 0
    unpriced = int(usage.cost is None and is_used)
    return Bill(nanos, unpriced, usage.input_tokens, usage.output_tokens, usage.calls)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A part of the budget that work under way may use up. `wall` is in seconds."""

    number: int
    upper: ModelUsage
    wall: float = 0.0


class RunBudget:
    """Limits of a run: work starts only when its upper estimate fits beside all reservations.

    The work in flight may exceed its estimates, and the budget by as much. Several ledgers may
    share one budget. `clock` gives seconds, and only counts within `running`. `bill` is the settled
    part. `most` and `longest` (seconds) are the maxima of one trial. `interrupted` is the sum of
    the reservations of work whose process died. Its usage is unknown, so it counts as spent, apart
    from the bill.
    """

    def __init__(
        self, limits: SpendLimit | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits or SpendLimit()
        self.bill = Bill()
        self.interrupted = Bill()
        self._clock = clock
        self._reserved: dict[int, Reservation] = {}
        self._numbers = 0
        self._ledgers: set[Path] = set()
        self.most, self.longest = ModelUsage(), 0.0
        # Seconds of earlier blocks of `running`, the start of the present one, and its depth.
        self._carried, self._since, self._depth = 0.0, 0.0, 0

    @property
    def elapsed(self) -> float:
        """Seconds that this budget was running, in this process and those before it."""
        if not self._depth:
            return self._carried
        return self._carried + (self._clock() - self._since)

    @property
    def seconds_left(self) -> float:
        """Seconds until the limit of time, inf without one; never below 0."""
        if self.limits.wall is None:
            return math.inf
        return max(0.0, self.limits.wall - self.elapsed)

    @contextmanager
    def running(self) -> Generator[None]:
        """Count time while the block runs; blocks within blocks count once."""
        if not self._depth:
            self._since = self._clock()
        self._depth += 1
        try:
            yield
        finally:
            if self._depth == 1:
                self._carried = self.elapsed
            self._depth -= 1

    def reserve(self, upper: ModelUsage, wall: float = 0.0) -> Reservation | None:
        """Return a reservation for work that takes at most `upper`, None when it does not fit now.

        It may fit when others are settled. Raises PriceUnknown.
        """
        # Another limit still ends the run. A limit in money alone cannot be kept without prices.
        if self.bill.unpriced and self.limits.cost is not None and not self._has_other_limit:
            raise PriceUnknown(
                "The budget is in money, and the price of what was used is unknown.",
                "Give a budget in tokens, calls or time as well, or the model's price.",
            )
        if self._find_shortage(upper, wall):
            return None
        self._numbers += 1
        reservation = Reservation(self._numbers, upper, wall)
        self._reserved[reservation.number] = reservation
        return reservation

    @property
    def _has_other_limit(self) -> bool:
        limits = (self.limits.tokens, self.limits.calls, self.limits.wall)
        return any(limit is not None for limit in limits)

    def _find_shortage(self, upper: ModelUsage, wall: float) -> str:
        """Return which limit leaves no room, or ''."""
        limits = self.limits
        # The usual case, and the check runs for every trial.
        if limits == _NO_LIMITS:
            return ""
        reserved = (to_bill(reservation.upper) for reservation in self._reserved.values())
        bill = sum(reserved, self.bill + self.interrupted)
        after = bill + to_bill(upper)
        checks = (
            ("money", bill.cost, after.cost, limits.cost),
            ("tokens", bill.tokens, after.tokens, limits.tokens),
            ("calls", bill.calls, after.calls, limits.calls),
            ("time", self.elapsed, self.elapsed + wall, limits.wall),
        )
        for name, now, then, limit in checks:
            # Without an estimate, work starts as long as anything is left.
            if limit is not None and (then > limit or now >= limit):
                return name
        return ""

    def settle(
        self,
        reservation: Reservation,
        usage: ModelUsage,
        *,
        judging: ModelUsage = _NO_USAGE,
        lost: bool = False,
    ) -> None:
        """Replace a reservation by the real usage.

        judging: the usage of scoring besides. lost: the real usage is unknown, so the whole
        reservation counts as interrupted.
        """
        del self._reserved[reservation.number]
        self.bill += to_bill(usage) + to_bill(judging)
        if lost:
            self.interrupted += to_bill(reservation.upper)

    def release(self, reservation: Reservation) -> None:
        """Drop the reservation of work that did not take place."""
        del self._reserved[reservation.number]

    @contextmanager
    def reserving(self, upper: ModelUsage) -> Generator[Callable[[ModelUsage], None]]:
        """Reserve for one piece of work, and yield a function that settles it.

        A reservation that is not settled is released. Raises BudgetSpent when it does not fit,
        PriceUnknown.
        """
        reserved = self.reserve(upper)
        if reserved is None:
            raise self.shortage_error(upper)
        try:
            yield lambda usage: self.settle(reserved, usage)
        finally:
            # The block has settled it already where the work was done.
            self._reserved.pop(reserved.number, None)

    def learn(self, usage: ModelUsage, wall: float, judging: ModelUsage = _NO_USAGE) -> None:
        """Note the usage of one trial, for the estimates of the next.

        judging: the usage of scoring besides.
        """
        if judging != _NO_USAGE:
            usage = _combine_usage(sum, usage, judging)
        if usage != self.most:
            self.most = _combine_usage(max, self.most, usage)
        self.longest = max(self.longest, wall)

    def shortage_error(self, upper: ModelUsage, wall: float = 0.0) -> BudgetSpent:
        """Return the error that says why work of this size does not fit."""
        short = self._find_shortage(upper, wall) or "money"
        bill = self.bill
        return BudgetSpent(
            f"The budget is spent: what is left of its {short} does not cover the next trial "
            f"(so far ${bill.cost:.4f}, {bill.tokens:,} tokens, {bill.calls:,} calls, "
            f"{self.elapsed:.0f} s).",
            "Everything measured is kept. Raise the budget to continue, or finish with "
            "what there is.",
        )

    def add_ledger(self, ledger: Ledger) -> None:
        """Add the usage of a ledger's records from before it was opened; a ledger counts once."""
        if ledger.path not in self._ledgers:
            self._ledgers.add(ledger.path)
            self.replay(ledger.records)

    def replay(self, records: Iterable[LedgerRecord]) -> None:
        """Add the usage of these records; called once for all records of a ledger."""
        begun: dict[tuple[str, int], LedgerRecord] = {}
        lost: list[LedgerRecord] = []
        for record in records:
            kind = record["type"]
            if kind == "started":
                ticket = record["key"], record["attempt"]
                # Begun again: the first attempt never ended.
                if ticket in begun:
                    lost.append(begun[ticket])
                begun[ticket] = record
            # A trial from the cache costs nothing again.
            elif kind == "trial" and not record["trial"]["cached"]:
                started = begun.pop((record["trial"]["key"], record["attempt"]), None)
                if record["lost"] and started:
                    lost.append(started)
                usage = ModelUsage(**record["trial"]["usage"])
                judging = judging_usage(record["trial"])
                self.bill += to_bill(usage) + to_bill(judging)
                self.learn(usage, record["trial"]["wall"], judging)
                # `elapsed` is a running total, and parallel trials are not recorded in its order.
                self._carried = max(self._carried, record["elapsed"])
            elif kind == "answered":
                tokens = record["input_tokens"], record["output_tokens"]
                self.bill += to_bill(ModelUsage(*tokens, record.get("calls", 1), record["cost"]))
        # A trial that began and has no end was under way when its process died.
        for record in (*lost, *begun.values()):
            self.interrupted += to_bill(ModelUsage(**record["reserved"]))


def _combine_usage(
    how: Callable[[Iterable[Any]], Any], first: ModelUsage, second: ModelUsage
) -> ModelUsage:
    """Return two usages as one, figure by figure: their sum or the larger.

    A cost that is unknown is left out.
    """
    costs = [cost for cost in (first.cost, second.cost) if cost is not None]
    return ModelUsage(
        how((first.input_tokens, second.input_tokens)),
        how((first.output_tokens, second.output_tokens)),
        how((first.calls, second.calls)),
        how(costs) if costs else None,
    )


# The limit rises slowly and is halved at once: throttling delays every trial.
SUCCESSES_TO_RAISE = 20
"""Trials in a row that were not throttled before one more may run at once."""

# Four at first, because the provider's limit is not known.
USUAL_CONCURRENCY, MAX_CONCURRENCY = 4, 16
"""Trials at once: in the beginning, and at most."""

_PAUSE, _LONGEST_PAUSE = 2.0, 60.0  # seconds, where the provider does not say how long


class ConcurrencyLimit:
    """The number of trials at once: additive increase, multiplicative decrease, for one provider.

    Several measurements may share it. `limit` is the present number. `clock` gives seconds.
    """

    def __init__(
        self,
        start: int = USUAL_CONCURRENCY,
        least: int = 1,
        most: int = MAX_CONCURRENCY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = max(least, min(start, most))
        self._least, self._most, self._clock = least, most, clock
        # Trials in a row that were not throttled.
        self._successes = 0
        # Number of halvings so far: a trial that began before the last one must not halve again.
        self._halvings = 0
        # The time before which no trial may start.
        self._until = -math.inf
        self._pause = _PAUSE

    def wait(self, in_flight: int) -> float:
        """Return the seconds until one more may start beside `in_flight` others.

        They are 0 for at once, inf when another one has to end first.
        """
        if in_flight >= self.limit:
            return math.inf
        return max(0.0, self._until - self._clock())

    def begin_trial(self) -> int:
        """Return the number that `end_trial` takes for a trial that begins now."""
        return self._halvings

    def end_trial(self, halvings: int, retry_after: float | None = None) -> None:
        """Note that a trial ended.

        halvings: the number from `begin_trial`. retry_after: seconds that the provider asks to
        wait; 0 when it throttled without a number; None when it did not throttle.
        """
        if retry_after is None:
            self._successes += 1
            self._pause = _PAUSE
            if self._successes >= SUCCESSES_TO_RAISE:
                self._successes = 0
                self.limit = min(self._most, self.limit + 1)
            return
        self._until = max(self._until, self._clock() + (retry_after or self._pause))
        # A trial that began before the last halving was throttled by the old limit.
        if halvings == self._halvings:
            self._halvings += 1
            self._successes = 0
            self.limit = max(self._least, self.limit // 2)
            self._pause = min(_LONGEST_PAUSE, self._pause * 2)


def make_concurrency_limit(at_once: int) -> ConcurrencyLimit:
    """Return the limit of a run that begins with `at_once` trials at a time.

    A number below the usual one is the maximum too; else the maximum is 16, or the number itself.
    """
    if at_once < USUAL_CONCURRENCY:
        return ConcurrencyLimit(at_once, most=at_once)
    return ConcurrencyLimit(at_once, most=max(MAX_CONCURRENCY, at_once))
