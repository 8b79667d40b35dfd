"""How many requests and open streams there may be at once, in all and for each bearer.

A stream is a request that stays open to be told of changes. It costs a connection and no work, so it has places of its
own and takes none from those who ask something.
"""

import contextlib
from collections.abc import AsyncIterator

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from evolvable_server.http.drain import busy
from evolvable_server.http.shares import Full, Shares
from evolvable_server.mcp.bearer import bearer_in

REQUESTS, REQUESTS_EACH = 64, 24
STREAMS, STREAMS_EACH = 256, 64
WAIT_SECONDS = 2.0
"""How long a request waits for a place before it is sent away."""


def is_stream(scope: Scope) -> bool:
    """Returns whether a request stays open to be told of changes, in either era of the protocol."""
    return bool(scope["method"] == "GET" or Headers(scope=scope).get("mcp-method") == "subscriptions/listen")


class InFlight:
    """Middleware: bounds the requests of a bearer from their header to their answer, so also the connections they hold.

    It stands before the body is received: a slow sender holds a connection as long as one whose request is at work.
    """

    def __init__(self, app: ASGIApp, connections: int) -> None:
        """connections: how many the process may have. A tenth of them is left to requests that have not arrived."""
        self._app = app
        self._shares = Shares(connections * 9 // 10, max(connections // 4, 1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        bearer = bearer_in(scope)
        try:
            self._shares.take(bearer)
        except Full as full:
            # The body may never come, so the connection ends with the answer.
            await refused(full, "requests in flight", close=True)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._shares.give(bearer)


class Places:
    """Middleware: 429 when a bearer has too many under way, 503 when all together have."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._requests, self._streams = _Kind(REQUESTS, REQUESTS_EACH), _Kind(STREAMS, STREAMS_EACH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind, wait = (self._streams, 0.0) if is_stream(scope) else (self._requests, WAIT_SECONDS)
        async with contextlib.AsyncExitStack() as until_answered:
            try:
                await until_answered.enter_async_context(kind.place(bearer_in(scope), wait))
            except Full as full:
                await refused(full, "requests under way")(scope, receive, send)
                return
            await self._app(scope, receive, send)


def refused(full: Full, what: str, *, close: bool = False) -> ASGIApp:
    """Return the answer that says who has too many of something, and when to come again."""
    whose = "You have" if full.status == 429 else "There are"
    answer = busy(f"{whose} too many {what}.", full.status)
    if close:
        answer.headers["connection"] = "close"
    return answer


class _Kind:
    def __init__(self, limit: int, each: int) -> None:
        self._shares = Shares(limit, each)
        self._freed = anyio.Event()

    @contextlib.asynccontextmanager
    async def place(self, bearer: str | None, wait: float) -> AsyncIterator[None]:
        """Yields once there is a place. Raises Full after `wait` seconds."""
        with anyio.move_on_after(wait):
            while self._shares.refusal(bearer):
                await self._freed.wait()
        self._shares.take(bearer)
        try:
            yield
        finally:
            self._shares.give(bearer)
            self._freed.set()
            self._freed = anyio.Event()
