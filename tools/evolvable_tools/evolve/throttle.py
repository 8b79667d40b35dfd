"""How many trials run at once: more while all goes well, half as many when the provider says it is too much."""

import math
import time
from collections.abc import Callable

RAISE_AFTER = 20
"""Trials in a row that were not throttled before one more may run at once."""

USUAL, MOST = 4, 16
"""Trials at once: in the beginning, and at most."""

_PAUSE, _LONGEST_PAUSE = 2.0, 60.0  # seconds, where the provider does not say how long


class Throttle:
    """Additive increase, multiplicative decrease, for one provider; several measurements may share it.

    `limit` is how many may run now. `clock` gives seconds.
    """

    def __init__(
        self, start: int = USUAL, least: int = 1, most: int = MOST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit = max(least, min(start, most))
        self._least, self._most, self._clock = least, most, clock
        self._fine = 0
        self._era = 0
        self._until = -math.inf
        self._pause = _PAUSE

    def wait(self, in_flight: int) -> float:
        """Returns in how many seconds one more may start beside so many: 0 at once, inf when one has ended."""
        if in_flight >= self.limit:
            return math.inf
        return max(0.0, self._until - self._clock())

    def began(self) -> int:
        """Returns what `ended` wants to know of a trial that begins now."""
        return self._era

    def ended(self, began: int, retry_after: float | None = None) -> None:
        """Takes in that a trial ended. retry_after: seconds that the provider asks to wait; 0 when it throttled
        without saying how long; None when it did not throttle.
        """
        if retry_after is None:
            self._fine += 1
            self._pause = _PAUSE
            if self._fine >= RAISE_AFTER:
                self._fine = 0
                self.limit = min(self._most, self.limit + 1)
            return
        self._until = max(self._until, self._clock() + (retry_after or self._pause))
        if began == self._era:  # else it began before the last halving, which was for the likes of it
            self._era += 1
            self._fine = 0
            self.limit = max(self._least, self.limit // 2)
            self._pause = min(_LONGEST_PAUSE, self._pause * 2)


def throttle_of(at_once: int) -> Throttle:
    """Returns the throttle of a run that begins with so many trials at once.

    Whoever wants fewer than usual wants no more than that, ever; else there may be up to 16, or what was wanted.
    """
    return Throttle(at_once, most=at_once if at_once < USUAL else max(MOST, at_once))
