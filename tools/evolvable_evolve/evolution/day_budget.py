"""The spending that a person allows callers that are no person, and the rest of it on a day."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock

from evolvable_evolve.evolution.run_config import SpendLimit
from evolvable_store.errors import InvalidArgument, Refused

_LIMITS = ("cost", "tokens", "calls", "minutes")
_LOCK_TIMEOUT = 15.0  # seconds for another start to end
_DAY = 24 * 3600.0  # seconds


@dataclass(frozen=True)
class Allowance:
    """The limits of runs that callers start who are no person: executors, a planner, and the
    spending of a day.

    executors: by the texts that name them; the first is the default. day: of all such runs of 24
    hours together.
    """

    executors: tuple[str, ...] = ()
    planner: str = "handoff"
    day: SpendLimit = SpendLimit()

    @classmethod
    def from_config(cls, table: object, name: str) -> "Allowance | None":
        """Return the allowance of a table of `budgets` in the person's configuration, None where
        there is none.

        Raises InvalidArgument for a table that is not valid.
        """
        if table is None:
            return None
        hint = (
            'Write executors = ["NAME"], and cost, tokens, calls or minutes of a day, '
            "each a number."
        )
        wrong = f"budgets.{name} of the person's configuration is not valid."
        # A misspelt limit must not leave the day unlimited.
        if not isinstance(table, Mapping) or not set(table) <= {"executors", "planner", *_LIMITS}:
            raise InvalidArgument(wrong, hint)
        executors, planner = table.get("executors", []), table.get("planner", "handoff")
        limits: dict[str, Any] = {
            name: table[name] for name in _LIMITS if table.get(name) is not None
        }
        numbers = all(
            isinstance(limit, int | float) and not isinstance(limit, bool) and limit >= 0
            for limit in limits.values()
        )
        texts = isinstance(executors, list) and all(
            isinstance(text, str) for text in [*executors, planner]
        )
        # Without any limit a table allows nothing.
        if not numbers or not texts or not limits:
            raise InvalidArgument(wrong, hint)
        if "minutes" in limits:
            # People write minutes, and runs count seconds.
            limits["wall"] = limits.pop("minutes") * 60
        return cls(tuple(executors), planner, SpendLimit(**limits))

    @classmethod
    def strictest(cls, tables: Iterable[object], name: str) -> "Allowance | None":
        """Return what all tables allow together, None where the first, the account's, allows
        nothing.

        Raises InvalidArgument for a table that is not valid.
        """
        # A project can only narrow what the account allows.
        account, *others = (cls.from_config(table, name) for table in tables)
        for other in filter(None, others if account is not None else ()):
            account = account.stricter(other) if account is not None else None
        return account

    def require_executor(self, name: str, where: str, role: str = "executor") -> None:
        """Raise Refused for an executor that is not allowed.

        where: the table that allows executors, in words.
        """
        if name not in self.executors:
            allowed = ", ".join(self.executors) or "none"
            raise Refused(
                f"The {role} {ascii(name[:80])} is not allowed to callers.",
                f"{where} allows: {allowed}.",
            )

    def stricter(self, other: "Allowance") -> "Allowance":
        """Return what both allow: the executors of both, the lower limits, and a planner only where
        they agree.
        """
        limits: dict[str, Any] = {}
        for limit in fields(SpendLimit):
            both = (getattr(self.day, limit.name), getattr(other.day, limit.name))
            # No limit on one side leaves that of the other.
            limits[limit.name] = min((value for value in both if value is not None), default=None)
        common = tuple(executor for executor in self.executors if executor in other.executors)
        planner = self.planner if self.planner == other.planner else "handoff"
        return Allowance(common, planner, SpendLimit(**limits))

    def rest(self, requested: SpendLimit, spent: Mapping[str, float], name: str) -> SpendLimit:
        """Return the limits of one more run. spent: in the last 24 hours, with the number of uses
        without a price. Raises Refused.
        """
        # Spending without a price cannot be held against a limit in money.
        if spent["unpriced"] and self.day == SpendLimit(cost=self.day.cost):
            hint = f"The person adds tokens, calls or minutes to budgets.{name}."
            raise Refused(
                "The budget is in money alone, and runs of this day used what has no price.", hint
            )
        remaining = {key: value for key, value in asdict(requested).items() if value is not None}
        for limit, most in asdict(self.day).items():
            if most is None:
                continue
            left = most - spent[limit]
            if left <= 0:
                hint = (
                    "Runs of 24 hours count, with all that those under way may spend. Wait, or "
                    "ask the person."
                )
                raise Refused(f"The budget that the person set for a day is spent ({limit}).", hint)
            remaining[limit] = min(left, remaining.get(limit, left))
        return SpendLimit(**remaining)


class RunBill(Protocol):
    """The bill of a run, by its ledger."""

    @property
    def cost(self) -> float:
        """US dollars, of the uses with a price."""

    @property
    def tokens(self) -> int:
        """Tokens in both directions."""

    @property
    def calls(self) -> int:
        """Calls of models."""

    @property
    def unpriced(self) -> int:
        """The number of uses without a price."""


def no_spending() -> dict[str, float]:
    """Return the spending of a day without runs."""
    return dict.fromkeys(("cost", "tokens", "calls", "wall", "unpriced"), 0.0)


def add_spending(
    day: dict[str, float], spent: RunBill, wall: float, reserved: Mapping[str, Any]
) -> None:
    """Add a run to the spending of a day.

    wall: its seconds. reserved: its own limits while it runs; {} once ended.
    """
    used = {
        "cost": spent.cost,
        "tokens": spent.tokens,
        "calls": spent.calls,
        "wall": wall,
        "unpriced": spent.unpriced,
    }
    for name, value in used.items():
        # A run under way may still spend all that it may.
        day[name] += max(value, reserved.get(name) or 0.0)


def is_of_today(ledger: Path) -> bool:
    """Return whether a run wrote into its ledger within the last 24 hours."""
    return time.time() - ledger.stat().st_ctime <= _DAY


@contextlib.contextmanager
def budget_turn(home: Path, area: str) -> Iterator[None]:
    """Let one start at a time read the day's spending and begin its run.

    area: the folder of these runs.
    """
    (home / area).mkdir(mode=0o700, parents=True, exist_ok=True)
    # Guards the reading of the day's spending and the record of a new run: two starts at once would
    # both have the rest.
    with FileLock(home / area / "start.lock", timeout=_LOCK_TIMEOUT):
        yield
