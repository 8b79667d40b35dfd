"""Hands things from any thread to one task of the event loop."""

import asyncio
import collections
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """What waits to be taken: at most `most` things, of which the oldest are dropped."""

    def __init__(self, most: int) -> None:
        self._things: collections.deque[T] = collections.deque(maxlen=most)
        self._wake: Callable[[], object] = lambda: None

    def post(self, things: Iterable[T]) -> None:
        """Adds things; called on any thread."""
        self._things.extend(things)
        with contextlib.suppress(RuntimeError):  # the loop has just been closed: nobody is there to be told
            self._wake()

    async def taken(self) -> list[T]:
        """Waits until something is there and returns all of it, oldest first. One task at a time."""
        while True:
            event = asyncio.Event()
            # Before the look, so that nothing can come in between and wake nobody.
            self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, event.set)
            if self._things:
                return [self._things.popleft() for _ in range(len(self._things))]
            await event.wait()
