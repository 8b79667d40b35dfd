"""Compute beside the page what takes long: the last value is shown until the next one is there."""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from evolvable_store.errors import EvolvableError

log = logging.getLogger(__name__)

# Below the 100 ms that a page may take; a small library is read within it, and the page is complete
# at once.
FIRST_SECONDS = 0.06
"""How long a page waits for the first value of a computation."""

_FAILED: Hashable = object()
"""The key of a value that could not be computed.

It differs from every other key, so that the next request computes the value again.
"""

Result = TypeVar("Result")


class BackgroundValue(Generic[Result]):
    """A value that takes long to compute: pages show the last one while a thread computes the
    next.
    """

    def __init__(
        self, compute: Callable[[], Result], done: Callable[[], None], least_seconds: float = 5.0
    ) -> None:
        """done: called when a new value is there. least_seconds: between two computations."""
        self._compute, self._done, self._least = compute, done, least_seconds
        # Guards the decision to begin, so that one thread at a time computes.
        self._lock = threading.Lock()
        self._value: Result | None = None
        self._key: Hashable = None
        self._began = -least_seconds
        self._running = False
        self._first = threading.Event()

    def get(self, key: Hashable) -> Result | None:
        """Return the last value, None before there is one.

        key: when it differs, the value is computed again; so it is when it could not be computed
        the last time. The first value is waited for, but not for long: without JavaScript a page is
        not drawn again by itself.
        """
        self._begin(key)
        self._first.wait(FIRST_SECONDS)
        return self._value

    def _begin(self, key: Hashable) -> None:
        """Start a thread that computes the value, where the key differs and none runs."""
        with self._lock:
            stale = self._key != key and time.monotonic() - self._began >= self._least
            if stale and not self._running:
                self._running, self._key, self._began = True, key, time.monotonic()
                threading.Thread(target=self._run, name="evolvable-page-value", daemon=True).start()

    def _run(self) -> None:
        began = time.monotonic()
        key = _FAILED
        try:
            self._value = self._compute()
            key = self._key
        except EvolvableError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("a value of the page could not be computed")
        # However often it is asked for, it takes at most a twentieth of the time of one processor.
        self._least = max(self._least, 20 * (time.monotonic() - began))
        self._key, self._running = key, False
        self._first.set()
        if key is not _FAILED:
            self._done()
