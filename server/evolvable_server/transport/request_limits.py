"""Bound and check HTTP requests before the SDK sees them.

No bearer, and no group of bearers, can take the whole of a limit (`FairShares`). uvicorn's
`limit_concurrency` is one number for everybody: when one bearer holds all connections, it refuses
all others with 503. So it is not used.

A body is received before its request takes a place among those at work, so a slow sender delays
nobody. Messages are checked by the rules for lines on stdio, because the SDK drops or accepts
messages that it should refuse. A stream is a request that stays open for notifications: it costs a
connection and no work, so streams have places of their own. They end when the server ends or their
token is no longer valid. uvicorn's `timeout_graceful_shutdown` begins to count at its own signal
and refuses no new request, so `Drain` ends the server.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Self

import anyio
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evolvable_server.mcp.call import bearer_in
from evolvable_server.transport.json_rpc import MAX_LINE, JsonRpcRefusal, read_frame


class Full(Exception):
    """A limit has no room.

    `status`: 429 when the bearer holds too much itself, 503 when all bearers together do.
    """

    def __init__(self, status: int) -> None:
        self.status = status


class FairShares:
    """Counts how much of a limit each bearer holds.

    Callers without a token are one bearer, None, whom only the whole limit bounds. A bearer may
    hold at most as much as is still free, and never more than its own limit. With one bearer that
    is half of the limit, with two a third each, and so on. So a part is always free for a bearer
    that holds nothing. Switches use this rule, the dynamic threshold, to share a buffer.
    """

    def __init__(self, limit: int, each: int) -> None:
        """limit: of all bearers together. each: of one."""
        self._limit, self._each = limit, each
        self._held: Counter[str | None] = Counter()
        self._total = 0
        self._freed: anyio.Event | None = None

    def hold(self, bearer: str | None) -> "Hold":
        """Return a hold for a request of this bearer, at first on nothing.

        The end of its `with` frees all of it.
        """
        return Hold(self, bearer)

    async def until_free(self, bearer: str | None, seconds: float) -> None:
        """Wait until this bearer may hold one more, at most `seconds`."""
        with anyio.move_on_after(seconds):
            while self.refusal(bearer):
                self._freed = self._freed or anyio.Event()
                await self._freed.wait()

    def refusal(self, bearer: str | None, amount: int = 1) -> int | None:
        """Return the status to refuse this amount with, None when there is room for it."""
        free, own = self._limit - self._total, self._held[bearer]
        if bearer is not None and own and own + amount > min(self._each, free):
            return 429
        if bearer is not None and amount > self._each:
            return 429
        return 503 if amount > free else None

    def change(self, bearer: str | None, amount: int) -> None:
        """Count an amount as held, or a negative one as free again."""
        self._total += amount
        self._held[bearer] += amount
        # Bearers come and go: one that holds nothing takes no memory.
        if not self._held[bearer]:
            del self._held[bearer]
        if amount <= 0 and self._freed is not None:
            # All waiting tasks check again; the next one to wait makes a new event.
            self._freed.set()
            self._freed = None


class Hold:
    """The amount that one request holds of a limit."""

    def __init__(self, shares: FairShares, bearer: str | None) -> None:
        self._shares, self._bearer = shares, bearer
        self._amount = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def add(self, amount: int = 1) -> None:
        """Hold more. Raise Full when there is no room for it."""
        if status := self._shares.refusal(self._bearer, amount):
            raise Full(status)
        self._shares.change(self._bearer, amount)
        self._amount += amount

    def free(self) -> None:
        """Hold nothing any more."""
        self._shares.change(self._bearer, -self._amount)
        self._amount = 0


RETRY_SECONDS = 5
"""Seconds of Retry-After: by then a server that ends has ended, and a full one has room."""


def retry_response(text: str, status: int = 503) -> PlainTextResponse:
    """Return the answer that asks a client to send its request again later."""
    return PlainTextResponse(text + "\n", status, {"retry-after": str(RETRY_SECONDS)})


class Drain:
    """A middleware that counts the requests in flight, and refuses new ones once the end has begun.

    /healthz says that the process answers, /readyz whether it takes requests. Neither asks for a
    token or a Host, because load balancers use addresses, and neither tells anything else.
    """

    def __init__(self, app: ASGIApp, ending: anyio.Event) -> None:
        """Pass requests to `app`. ending: set when the end begins."""
        self._app, self._ending = app, ending
        self._in_flight = 0
        self._quiet = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The messages for the start and the end of the server are no requests.
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] in ("/healthz", "/readyz"):
            await self._answer_probe(scope, receive, send)
        elif self._ending.is_set():
            await retry_response("This server is ending.")(scope, receive, send)
        else:
            self._in_flight += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._in_flight -= 1
                if not self._in_flight:
                    self._quiet.set()

    def begin(self) -> None:
        """Refuse new requests from now on."""
        self._ending.set()

    async def wait_until_idle(self, grace: float) -> bool:
        """Wait for the requests in flight, at most `grace` seconds; return whether all ended."""
        with anyio.move_on_after(grace):
            while self._in_flight:
                self._quiet = anyio.Event()
                await self._quiet.wait()
        return not self._in_flight

    async def _answer_probe(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            answer = PlainTextResponse("", 405, {"allow": "GET, HEAD"})
        elif scope["path"] == "/readyz" and self._ending.is_set():
            answer = retry_response("ending")
        else:
            answer = PlainTextResponse("ok\n", headers={"cache-control": "no-store"})
        await answer(scope, receive, send)


# One bearer gets at most three eighths of the requests at work and a quarter of the streams.
REQUESTS, REQUESTS_EACH = 64, 24
STREAMS, STREAMS_EACH = 256, 64
WAIT_SECONDS = 2.0
"""Seconds that a request waits for a place before it is refused."""


def is_stream(scope: Scope) -> bool:
    """Return whether a request stays open for notifications, in either protocol version."""
    if scope["method"] == "GET":
        return True
    return Headers(scope=scope).get("mcp-method") == "subscriptions/listen"


LimitFor = Callable[[Scope], tuple[FairShares, float]]
"""Returns the limit for a request, and how many seconds it waits for a place."""


class ShareLimit:
    """A middleware: 429 when a bearer has too many requests, 503 when all bearers together have."""

    def __init__(
        self, app: ASGIApp, limit_for: LimitFor, what: str, *, closes: bool = False
    ) -> None:
        """Pass requests to `app`.

        what: the name of what is limited. closes: the connection ends with a refusal.
        """
        self._app, self._limit_for, self._what, self._closes = app, limit_for, what, closes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        (shares, wait), bearer = self._limit_for(scope), bearer_in(scope)
        with shares.hold(bearer) as hold:
            # The hold is empty while it waits: a wait must not take a place.
            await shares.until_free(bearer, wait)
            try:
                hold.add()
            except Full as full:
                await limit_response(full, self._what, close=self._closes)(scope, receive, send)
                return
            await self._app(scope, receive, send)


def limit_in_flight(app: ASGIApp, connections: int) -> ShareLimit:
    """Bound the requests of a bearer from their header to their answer, and so its connections.

    This limit is checked before the body is received: a slow sender holds a connection too. The
    body of a refused request may never come, so the connection is closed.

    Args:
        connections: How many the process may have. A tenth of them is left to requests whose
        header has not arrived.
    """
    shares = FairShares(connections * 9 // 10, max(connections // 4, 1))
    return ShareLimit(app, lambda _: (shares, 0.0), "requests in flight", closes=True)


def limit_at_work(app: ASGIApp) -> ShareLimit:
    """Bound the requests at work and the open streams of a bearer."""
    requests, streams = FairShares(REQUESTS, REQUESTS_EACH), FairShares(STREAMS, STREAMS_EACH)

    def limit_for(scope: Scope) -> tuple[FairShares, float]:
        return (streams, 0.0) if is_stream(scope) else (requests, WAIT_SECONDS)

    return ShareLimit(app, limit_for, "requests under way")


def limit_response(full: Full, what: str, *, close: bool = False) -> ASGIApp:
    """Return the answer to a request over a limit, which says when to send it again."""
    subject = "You have" if full.status == 429 else "There are"
    answer = retry_response(f"{subject} too many {what}.", full.status)
    if close:
        answer.headers["connection"] = "close"
    return answer


LOOK_SECONDS = 1.0
"""Seconds between two checks of a stream's token."""

StillValid = Callable[[Scope], Awaitable[bool]]


class StreamEnd:
    """A middleware that ends a stream with the message that a client sends when it leaves."""

    def __init__(self, app: ASGIApp, ending: anyio.Event, still_valid: StillValid) -> None:
        self._app, self._ending, self._still_valid = app, ending, still_valid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_until_end() -> Message:
            async with anyio.create_task_group() as tasks:

                async def watch() -> None:
                    await self._wait_for_end(scope)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(watch)
                message = await receive()
                tasks.cancel_scope.cancel()
                return message
            # The watch has ended the wait: the SDK is told that the client left, and closes the
            # stream.
            return {"type": "http.disconnect"}

        await self._app(scope, receive_until_end if is_stream(scope) else receive, send)

    async def _wait_for_end(self, scope: Scope) -> None:
        while not self._ending.is_set() and await self._still_valid(scope):
            with anyio.move_on_after(LOOK_SECONDS):
                await self._ending.wait()


MAX_BODY = MAX_LINE
"""Bytes of a body, declared or not; as many as of a line on stdio."""

MAX_DISCARDED = 16 * MAX_BODY
"""Bytes of a body over the limit that are read and dropped.

Many clients read no answer before they have sent the whole body.
"""

MAX_HELD = 16 * MAX_BODY
"""Bytes of all bodies together, from their first byte until their request is answered."""

MAX_HELD_EACH = 4 * MAX_BODY
"""Bytes of all bodies of one bearer."""


class _ClientGone(Exception):
    """The client left before its body was whole."""


class _TooLong(Exception):
    """The body is over the limit. `more`: a part of it has not been received."""

    def __init__(self, more: bool) -> None:
        self.more = more


class BodyLimit:
    """A middleware that receives the body and checks it.

    It answers 413 for a body over the limit, also in chunks, 415 for a packed one, and 400 for no
    message. It answers 429 when the bodies of a bearer are too large together, 503 when all are.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._held = FairShares(MAX_HELD, MAX_HELD_EACH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := _check_headers(Headers(scope=scope)):
            await refusal(scope, receive, send)
            return
        with self._held.hold(bearer_in(scope)) as hold:
            try:
                body = await _read_body(receive, hold)
            except _ClientGone:
                return
            except _TooLong as long:
                # Freed before the rest is read: dropped bytes take no room.
                hold.free()
                await _discard(receive, long.more)
                await _TOO_LONG(scope, receive, send)
                return
            except Full as full:
                answer = limit_response(full, "bytes of bodies under way", close=True)
                await answer(scope, receive, send)
                return
            # Only a POST carries a message.
            if scope["method"] == "POST" and isinstance(frame := read_frame(body), JsonRpcRefusal):
                text = frame.reply.model_dump_json(by_alias=True)
                await Response(text, 400, media_type="application/json")(scope, receive, send)
                return
            await self._app(scope, replay_body(body, receive), send)


async def _read_body(receive: Receive, hold: Hold) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _ClientGone
        part, more = message.get("body", b""), message.get("more_body", False)
        # Counted before it is kept: a part without room raises Full.
        hold.add(len(part))
        body += part
        if len(body) > MAX_BODY:
            raise _TooLong(more)
        if not more:
            return bytes(body)


_TOO_LONG = PlainTextResponse(f"A body has at most {MAX_BODY:,} bytes.\n", 413)


def _check_headers(headers: Headers) -> PlainTextResponse | None:
    if "transfer-encoding" in headers and "content-length" in headers:
        # Two lengths: a proxy may believe the other one, and see two requests in this one.
        text = "A request has Transfer-Encoding or Content-Length, not both.\n"
        return PlainTextResponse(text, 400)
    if headers.get("content-encoding", "identity").lower() != "identity":
        return PlainTextResponse("Bodies are not unpacked here.\n", 415)
    length = headers.get("content-length", "0")
    # A client with this header waits for the answer before it sends the body.
    most = MAX_BODY if "expect" in headers else MAX_DISCARDED
    # Twenty digits are enough to be too large, and Python refuses to convert thousands of them.
    is_too_long = length.isdigit() and int(length[:20]) > most
    return _TOO_LONG if is_too_long else None


async def _discard(receive: Receive, more: bool) -> None:
    dropped = 0
    while more and dropped < MAX_DISCARDED:
        message = await receive()
        more = message.get("more_body", False)
        dropped += len(message.get("body", b""))


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body as one message, and then the messages of `receive`."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
