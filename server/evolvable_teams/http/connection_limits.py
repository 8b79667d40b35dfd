"""Bound connections and sessions over HTTP: every request has to arrive in time, and every bearer
finds room.

uvicorn waits without limit for the rest of a header or of a body, and counts no headers; only the
size of a header and the time between two requests are its own limits (`http_server`). Here a timer
runs from the first byte of a request to its last, and from the opening of a connection to its first
request; another one while an answer is not read. When there are too many connections, idle ones are
closed first, and a new one waits a moment for one to become idle; uvicorn's `limit_concurrency`
would refuse it. Header lines are counted before any is parsed: later work on headers may take time
with the square of their number.

The SDK keeps a session of the protocol with a handshake until it was idle for half an hour, and
refuses new ones at its limit, without regard to their bearers. `HttpSessions` ends an idle session
to make room for a new one of its bearer. When all sessions are in use, the bearer with the most
loses one. A client whose session ended gets 404 and opens another one, as the protocol says.
"""

import asyncio
import contextlib
import selectors
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from evolvable_server.mcp.call import bearer_in
from evolvable_server.transport import Full, limit_response, replay_body

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Enough for a slow network; short for a client that sends single bytes to hold a connection.
HEADER_SECONDS = 10.0
"""From the opening of a connection, or the first byte of its next request, to the end of the
header.
"""

BODY_SECONDS = 60.0
"""From the end of the header to the end of the body."""

KEEP_ALIVE_SECONDS = 75
"""Between two requests; longer than proxies and clients keep a connection, so that they close it
first.
"""

ANSWERED_SECONDS = 5.0
"""For the rest of a request that is answered already, such as one that was refused without a token.
"""

SEND_SECONDS = 60.0
"""For a client to read on, once the buffer of its answer is full and writing is paused."""

MAX_HEADER = 128 * 1024
"""Bytes of a header; h11 refuses more."""

# Later work on headers may take time with the square of their number.
MAX_HEADERS = 100
"""Headers of a request, and trailers of a chunked body."""

MAX_CONNECTIONS = 1000
"""Connections at once, where the limit of open files allows it."""

ROOM_SECONDS, ROOM_PAUSE = 1.0, 0.05
"""Seconds that a new connection waits until another one is idle, and seconds between two looks."""

MAX_NEWCOMERS = 64
"""Connections that wait for room at once; more are refused with 503 at once."""

SPARE_DESCRIPTORS = 200
"""File descriptors that connections leave to the library and to the watchers of its folders."""


def connection_limit() -> int:
    """Return how many connections there may be.

    Raise the process's limit of descriptors where that is allowed.
    """
    if resource is None:
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_CONNECTIONS + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(16, min(MAX_CONNECTIONS, soft - SPARE_DESCRIPTORS))


class TooManyHeaders(h11.RemoteProtocolError):
    """A header has too many lines."""

    def __init__(self) -> None:
        super().__init__("too many headers", error_status_hint=431)


class _CountedLines(ReceiveBuffer):
    """h11's buffer, which refuses a header with too many lines before any line is parsed, also one
    that is incomplete.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused = False
        # Bytes of an incomplete header that were counted, and the line ends in them.
        self._counted, self._lines = 0, 0

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines up to the first blank one, None until it arrives.

        Raise TooManyHeaders.
        """
        lines = super().maybe_extract_lines()
        if lines is None:
            self._lines += self._data.count(b"\n", self._counted)
            self._counted = len(self._data)
        else:
            self._counted, self._lines = 0, len(lines)
        if self._lines > MAX_HEADERS + 1:  # one more for the request line
            self.refused = True
            raise TooManyHeaders
        if lines is not None:
            self._lines = 0
        return lines


class TimedConnection(H11Protocol):
    """uvicorn's connection with the timers."""

    limit = MAX_CONNECTIONS
    """Connections of the process; set before it serves."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timer: asyncio.TimerHandle | None = None
        self._awaited: object = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._newcomer = False
        self._lines = _CountedLines()
        # h11 has no public hook here. Lines have to be counted before h11 parses them.
        self.conn._receive_buffer = self._lines

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection when there is room, or as soon as there is; else answer 503 and close
        it.
        """
        super().connection_made(transport)
        # asyncio does this only where the listening socket names its protocol. Without it the end
        # of an answer waits, on Linux 40 ms, until the client has confirmed the header.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._has_room():
            self._restart_timer()
        elif len(self.connections) > self.limit + MAX_NEWCOMERS:
            self._refuse()
        else:
            self._newcomer = True
            transport.pause_reading()
            # Reading is paused, so the kernel holds back what the client sends meanwhile.
            self._await_room(self.loop.time() + ROOM_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Take what arrived, and time what is still to come."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._restart_timer()

    def on_response_complete(self) -> None:
        """Go on with the connection, as uvicorn does, and time what is left of the request."""
        super().on_response_complete()
        self._restart_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timers with the connection."""
        self._stop_timer()
        self._stop_write_timer()
        super().connection_lost(exc)
        # Where the client leaves, uvicorn's timer runs on and keeps the connection with its last
        # request for 75 s.
        self._unset_keepalive_if_required()

    def pause_writing(self) -> None:
        """Wait for the client to read on, and end the connection of one that does not."""
        super().pause_writing()
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(SEND_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with the answer."""
        self._stop_write_timer()
        super().resume_writing()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._write_timer = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with 400, and a header that is too long with 431."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer is under way, or was given
            return
        if self._lines.refused:
            self._end(431, f"A request has at most {MAX_HEADERS} headers.")
            self._tell_application()
        elif len(self.conn.trailing_data[0]) > MAX_HEADER:
            self._end(431, "The header is too long.")
        else:
            super().send_400_response(msg)

    @property
    def waits(self) -> bool:
        """Whether nothing is asked on this connection: no request is arriving or worked on, or all
        are answered.
        """
        return bool(
            self.conn.their_state is h11.IDLE or self._is_answered or self.transport.is_closing()
        )

    @property
    def _is_answered(self) -> bool:
        """Whether the request is answered, though the rest of it may still be on its way."""
        return self.cycle is not None and self.cycle.response_complete

    def _await_room(self, until: float) -> None:
        if self.transport.is_closing():
            return
        if self._has_room():
            self._newcomer = False
            self.transport.resume_reading()
            self._restart_timer()
        elif self.loop.time() < until:
            self._timer = self.loop.call_later(ROOM_PAUSE, self._await_room, until)
        else:
            self._refuse()

    def _refuse(self) -> None:
        self.transport.write(_FULL)
        self.transport.close()

    def _has_room(self) -> bool:
        """Return whether this connection can stay.

        Close the one that is idle longest when that is needed for it.
        """
        if len(self.connections) <= self.limit:
            return True
        admitted = [
            connection
            for connection in self.connections
            if isinstance(connection, TimedConnection)
            and connection is not self
            and not connection._newcomer
        ]
        if len(admitted) < self.limit:
            return True
        oldest = _longest_idle(admitted)
        if oldest is None:
            return False
        # Before the abort: connection_lost runs in a later turn of the loop, and two newcomers must
        # not end the same connection.
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    @property
    def _since(self) -> float:
        """When its timer ends, 0 without one: the earlier, the longer it is idle."""
        return self._timer.when() if self._timer else 0.0

    def _restart_timer(self) -> None:
        """Start the timer of what is awaited now, unless it runs already."""
        state = self.conn.their_state
        if self.transport.is_closing() or state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_timer()
        elif state is h11.IDLE and self.timeout_keep_alive_task is not None:
            self._stop_timer()  # between two requests; uvicorn's own timer runs
        elif self._awaited != (awaited := (state, state is h11.SEND_BODY and self._is_answered)):
            self._stop_timer()
            self._awaited = awaited
            self._timer = self.loop.call_later(self._allowed_seconds(), self._end_late)

    def _allowed_seconds(self) -> float:
        """Return how long the client may take with what is awaited now."""
        if self.conn.their_state is h11.IDLE:
            return HEADER_SECONDS
        return ANSWERED_SECONDS if self._is_answered else BODY_SECONDS

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._awaited = None, None

    def _end_late(self) -> None:
        """Close the connection of a client that took too long.

        Answer 408 where no answer has begun, and nothing to a client that sent nothing.
        """
        self._timer, self._awaited = None, None
        sent_nothing = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if not sent_nothing and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._end(408, "The request did not arrive in time.")
        else:
            self.transport.close()
        self._tell_application()

    def _tell_application(self) -> None:
        """Tell the application that nobody waits for its answer any more."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _end(self, status: int, text: str) -> None:
        body = f"{text}\n".encode("ascii")
        headers = [
            ("content-type", "text/plain"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        for event in (
            h11.Response(status_code=status, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _longest_idle(connections: Iterable[TimedConnection]) -> TimedConnection | None:
    """Return the connection that is idle longest, None where none is."""
    waiting = sorted(
        (connection for connection in connections if connection.waits),
        key=lambda connection: connection._since,
    )
    # A request whose bytes have arrived and were not read yet must not be cut off.
    idle = (connection for connection in waiting if not _has_arrived(connection.transport))
    return next(idle, None)


def _has_arrived(transport: asyncio.Transport) -> bool:
    """Return whether bytes of an open connection wait to be read."""
    if transport.is_closing():
        return False
    with selectors.DefaultSelector() as ready:
        # The bytes of a request may lie in the kernel's buffer while the loop has not read them.
        ready.register(transport.get_extra_info("socket").fileno(), selectors.EVENT_READ)
        return bool(ready.select(0))


_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 5\r\n"
    b"connection: close\r\n\r\n"
)

# One bearer cannot take all sessions: its limit is about an eighth of the whole.
SESSIONS, SESSIONS_EACH = 1000, 128
"""Sessions that are open together, and those of one bearer; callers without a token share all of
them.
"""

SESSION_IDLE_SECONDS = 30 * 60
"""After so long without a request the SDK ends a session."""

_ID = "mcp-session-id"
_VERSION = "mcp-protocol-version"
# A client of a protocol with a handshake names no version before it.
_OPENING_VERSIONS = (None, *HANDSHAKE_PROTOCOL_VERSIONS)


@dataclass(eq=False, slots=True)
class _Session:
    """An open session. bearer, user: who opened it.

    busy: requests and streams of it that are under way. used: whether a request came after the
    opening one. last: when the last request ended, by the monotonic clock.
    """

    bearer: str | None
    user: object
    id: str = ""
    busy: int = 0
    used: bool = False
    last: float = field(default_factory=time.monotonic)

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of ending, the lowest first: sessions never used since they were opened, then
        those that are idle longest.
        """
        return self.used, self.last


class HttpSessions:
    """Middleware: 429 when all sessions of a bearer are at work, 503 when all sessions are.

    Only the event loop uses it, so no lock guards its sessions.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._sessions: set[_Session] = set()
        self._by_id: dict[str, _Session] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        identity = headers.get(_ID)
        if identity is not None:
            session = self._by_id.get(identity)
            if session is not None and session.bearer == bearer_in(scope):
                await self._use(session, scope, receive, send)
                return
        elif scope["method"] == "POST" and headers.get(_VERSION) in _OPENING_VERSIONS:
            message = await receive()
            receive = replay_body(message.get("body", b""), receive)
            if _is_initialize(message):
                await self._open(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        bearer = bearer_in(scope)
        try:
            await self._make_room(bearer, scope)
        except Full as full:
            await limit_response(full, "sessions at work")(scope, receive, send)
            return
        session = _Session(bearer, scope.get("user"))
        self._sessions.add(session)
        await self._use(session, scope, receive, send)

    async def _use(self, session: _Session, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request of a session, or the one that opens it.

        Forget the session when it ends.
        """
        status = 0

        async def note_start(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if not session.id and status < 400:
                    session.id = Headers(raw=message["headers"]).get(_ID, "")
                    self._by_id[session.id] = session
            await send(message)

        # The first request opens the session and has no id yet; only later ones count as use.
        session.used = bool(session.id)
        session.busy += 1
        try:
            await self._app(scope, receive, note_start)
        finally:
            session.busy -= 1
            session.last = time.monotonic()
            # No id: the opening failed. 404: the SDK has ended the session itself.
            if not session.id or status == 404 or (scope["method"] == "DELETE" and status == 200):
                self._forget(session)

    async def _make_room(self, bearer: str | None, scope: Scope) -> None:
        """End sessions until there is room for one more of this bearer.

        Raise Full when none of them is idle.
        """
        self._forget_expired()
        # Ending a session awaits the application, so the count is taken again each time.
        while (crowd := self._crowded_sessions(bearer)) is not None:
            idle = min(
                (candidate for candidate in crowd if not candidate.busy),
                key=lambda candidate: candidate.rank,
                default=None,
            )
            if idle is None:
                is_own = bearer is not None and any(session.bearer == bearer for session in crowd)
                raise Full(429 if is_own else 503)
            await self._end(idle, scope)

    def _forget_expired(self) -> None:
        """Forget the sessions that the SDK has ended because nobody used them."""
        earliest = time.monotonic() - SESSION_IDLE_SECONDS
        for session in list(self._sessions):
            if not session.busy and session.last < earliest:
                self._forget(session)

    def _crowded_sessions(self, bearer: str | None) -> list[_Session] | None:
        """Return the sessions of which one has to end before this bearer opens another, None when
        there is room.
        """
        by_bearer: dict[str | None, list[_Session]] = {bearer: []}
        for session in self._sessions:
            by_bearer.setdefault(session.bearer, []).append(session)
        own = by_bearer[bearer]
        if bearer is not None and len(own) >= SESSIONS_EACH:
            return own
        if len(self._sessions) < SESSIONS:
            return None
        most = max(by_bearer.values(), key=len)
        return most if len(most) > len(own) else own

    async def _end(self, session: _Session, scope: Scope) -> None:
        """End a session as its own client would, with a DELETE."""
        self._forget(session)
        headers = [(_ID.encode(), session.id.encode("latin-1"))]
        ending = {**scope, "method": "DELETE", "headers": headers, "user": session.user}
        if session.user is None:
            del ending["user"]

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            return None

        await self._app(ending, receive, send)

    def _forget(self, session: _Session) -> None:
        self._sessions.discard(session)
        self._by_id.pop(session.id, None)


def _is_initialize(message: Message) -> bool:
    body = message.get("body", b"")
    if b'"initialize"' not in body:
        return False
    try:
        frame = from_json(body)
    except ValueError:
        return False
    return isinstance(frame, dict) and frame.get("method") == "initialize"
