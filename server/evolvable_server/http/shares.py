"""How a limit is divided among bearers: no bearer, and no group of bearers, can take the whole of it.

A bearer may hold at most as much as is still free, and never more than its own limit. With one bearer that is half of
the limit, with two a third each, and so on: a part is always free for a bearer that holds nothing. This is the dynamic
threshold that packet switches use to share a buffer.
"""

from collections import Counter


class Full(Exception):
    """There is no room. `status`: 429 when the bearer holds too much itself, 503 when all together do."""

    def __init__(self, status: int) -> None:
        self.status = status


class Shares:
    """Counts how much of a limit each bearer holds. Callers without a token are one bearer, None, without a share."""

    def __init__(self, limit: int, each: int) -> None:
        """limit: of all bearers together. each: of one."""
        self._limit, self._each = limit, each
        self._held: Counter[str | None] = Counter()
        self._total = 0

    def refusal(self, bearer: str | None, amount: int = 1) -> int | None:
        """Return the status to refuse this amount with, None when there is room for it."""
        free, own = self._limit - self._total, self._held[bearer]
        if bearer is not None and own and own + amount > min(self._each, free):
            return 429
        if bearer is not None and amount > self._each:
            return 429
        return 503 if amount > free else None

    def take(self, bearer: str | None, amount: int = 1) -> None:
        """Count an amount as held. Raises Full when there is no room for it."""
        if status := self.refusal(bearer, amount):
            raise Full(status)
        self._held[bearer] += amount
        self._total += amount

    def give(self, bearer: str | None, amount: int = 1) -> None:
        """Count an amount as free again."""
        self._total -= amount
        self._held[bearer] -= amount
        if not self._held[bearer]:
            del self._held[bearer]
