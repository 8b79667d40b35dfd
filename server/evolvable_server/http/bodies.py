"""Takes a request's body in before anything works on it: bounded, plain, and one JSON-RPC message.

A body is read before the request takes a place among those that are worked on, so a slow sender holds nobody up. The
same judge that reads lines on stdio says what is wrong with a message, because the SDK's own drops or lets through
what it should refuse.
"""

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evolvable_server.http.places import refused
from evolvable_server.http.shares import Full, Shares
from evolvable_server.mcp.bearer import bearer_in
from evolvable_server.mcp.frames import MAX_LINE, Refusal, read_frame

MAX_BODY = MAX_LINE
"""Bytes of a body, declared or not; the same as of a line on stdio."""

MAX_DISCARDED = 16 * MAX_BODY
"""Bytes of a body over the limit that are taken and dropped: many clients read no answer before they have sent all."""

MAX_HELD = 16 * MAX_BODY
"""Bytes of all bodies that are held together, from their first byte until their request is answered."""

MAX_HELD_EACH = 4 * MAX_BODY
"""Those of one bearer."""


class _Gone(Exception):
    """The client left before its body was whole."""


class _TooLong(Exception):
    """The body is over the limit; `more`: there is more of it to come."""

    def __init__(self, more: bool) -> None:
        self.more = more


class Bodies:
    """Middleware: 413 over the limit, also in chunks; 415 when packed; 400 for what is no message.

    429 when the bodies of a bearer are too much together, 503 when all bodies are.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._held = Shares(MAX_HELD, MAX_HELD_EACH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := _refusal(Headers(scope=scope)):
            await refusal(scope, receive, send)
            return
        with _Held(self._held, bearer_in(scope)) as held:
            try:
                body = await _whole(receive, held)
            except _Gone:
                return
            except _TooLong as long:
                held.free()  # what is dropped is not held
                await _discard(receive, long.more)
                await _TOO_LONG(scope, receive, send)
                return
            except Full as full:
                await refused(full, "bytes of bodies under way", close=True)(scope, receive, send)
                return
            if scope["method"] == "POST" and isinstance(frame := read_frame(body), Refusal):
                text = frame.reply.model_dump_json(by_alias=True)
                await Response(text, 400, media_type="application/json")(scope, receive, send)
                return
            await self._app(scope, replayed(body, receive), send)


class _Held:
    """The bytes that one request holds."""

    def __init__(self, shares: Shares, bearer: str | None) -> None:
        self._shares, self._bearer = shares, bearer
        self._bytes = 0

    def __enter__(self) -> "_Held":
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()

    def add(self, count: int) -> None:
        """Count more bytes. Raises Full."""
        self._shares.take(self._bearer, count)
        self._bytes += count

    def free(self) -> None:
        """Count them as free again."""
        self._shares.give(self._bearer, self._bytes)
        self._bytes = 0


async def _whole(receive: Receive, held: _Held) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _Gone
        part, more = message.get("body", b""), message.get("more_body", False)
        held.add(len(part))
        body += part
        if len(body) > MAX_BODY:
            raise _TooLong(more)
        if not more:
            return bytes(body)


_TOO_LONG = PlainTextResponse(f"A body has at most {MAX_BODY:,} bytes.\n", 413)


def _refusal(headers: Headers) -> PlainTextResponse | None:
    if "transfer-encoding" in headers and "content-length" in headers:
        # Two lengths: a proxy may believe the other one, and see two requests where we see one.
        return PlainTextResponse("A request has Transfer-Encoding or Content-Length, not both.\n", 400)
    if headers.get("content-encoding", "identity").lower() != "identity":
        return PlainTextResponse("Bodies are not unpacked here.\n", 415)
    length = headers.get("content-length", "0")
    waits = "expect" in headers  # for a word from us before it sends the body
    return _TOO_LONG if length.isdigit() and int(length[:20]) > (MAX_BODY if waits else MAX_DISCARDED) else None


async def _discard(receive: Receive, more: bool) -> None:
    dropped = 0
    while more and dropped < MAX_DISCARDED:
        message = await receive()
        more = message.get("more_body", False)
        dropped += len(message.get("body", b""))


def replayed(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that gives the body as one message, and then what comes."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
