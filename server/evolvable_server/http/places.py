"""How many requests and open streams there may be at once, in all and for each bearer.

A stream is a request that stays open to be told of changes. It costs a connection and no work, so it has places of its
own and takes none from those who ask something.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from evolvable_server.http.drain import busy
from evolvable_server.mcp.bearer import bearer_in

REQUESTS, REQUESTS_EACH = 64, 24
STREAMS, STREAMS_EACH = 256, 64
WAIT_SECONDS = 2.0
"""How long a request waits for a place before it is sent away."""


def is_stream(scope: Scope) -> bool:
    """Returns whether a request stays open to be told of changes, in either era of the protocol."""
    return bool(scope["method"] == "GET" or Headers(scope=scope).get("mcp-method") == "subscriptions/listen")


class _Full(Exception):
    """There is no place; `status` says whose fault that is."""

    def __init__(self, status: int) -> None:
        self.status = status


class Places:
    """Middleware: 429 when a bearer has too many under way, 503 when all together have."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._requests, self._streams = _Kind(REQUESTS, REQUESTS_EACH), _Kind(STREAMS, STREAMS_EACH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind, wait = (self._streams, 0.0) if is_stream(scope) else (self._requests, WAIT_SECONDS)
        try:
            async with kind.place(bearer_in(scope), wait):
                await self._app(scope, receive, send)
        except _Full as full:
            whose = "You have" if full.status == 429 else "There are"
            await busy(f"{whose} too many requests under way.", full.status)(scope, receive, send)


class _Kind:
    def __init__(self, limit: int, each: int) -> None:
        self._limit, self._each = limit, each
        self._under_way: Counter[str | None] = Counter()
        self._freed = anyio.Event()

    @contextlib.asynccontextmanager
    async def place(self, bearer: str | None, wait: float) -> AsyncIterator[None]:
        """Yields once there is a place. Raises _Full after `wait` seconds."""
        with anyio.move_on_after(wait):
            while self._status(bearer):
                await self._freed.wait()
        if status := self._status(bearer):
            raise _Full(status)
        self._under_way[bearer] += 1
        try:
            yield
        finally:
            self._under_way[bearer] -= 1
            self._under_way += Counter()  # forgets who has none
            self._freed.set()
            self._freed = anyio.Event()

    def _status(self, bearer: str | None) -> int | None:
        """Returns the status to refuse with, None when there is a place. Without a token all are one bearer."""
        if bearer is not None and self._under_way[bearer] >= self._each:
            return 429
        return 503 if self._under_way.total() >= self._limit else None
