"""Connections that cannot be held open by a client that sends little: every request has to arrive in time.

uvicorn waits for ever for the rest of a header or of a body. Here a timer runs from the first byte of a request to its
last, and from the opening of a connection to its first request; and of too many connections those go first that have
asked nothing yet.
"""

import asyncio
import contextlib
import socket
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

HEADER_SECONDS = 10.0
"""From the opening of a connection, or the first byte of its next request, to the end of the header."""

BODY_SECONDS = 60.0
"""From the end of the header to the end of the body."""

IDLE_SECONDS = 75
"""Between two requests; longer than proxies and clients keep a connection, so that they close it first."""

MAX_HEADER = 128 * 1024
"""Bytes of a header; h11 refuses more."""

MAX_CONNECTIONS = 1000

SPARE_DESCRIPTORS = 200
"""Descriptors that connections leave to the library and to those who watch its folders."""


def connection_limit() -> int:
    """Returns how many connections there may be; raises the process's limit of descriptors where that is allowed."""
    try:
        import resource
    except ImportError:  # Windows
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(16, min(MAX_CONNECTIONS, soft - SPARE_DESCRIPTORS))


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
        self._timed: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Makes room when there is none, else closes the new connection."""
        super().connection_made(transport)
        # asyncio does this only where the listening socket names its protocol. Without it the end of an answer waits,
        # on Linux 40 ms, until the client has confirmed the header.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self.limit and not self._make_room():
            transport.write(_FULL)
            transport.close()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Takes what arrived, and watches for the rest."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Goes on with the connection, as uvicorn does, and watches what is left of the request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the timer with the connection."""
        self._stop()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP; uvicorn says 400 of a header that is too long too."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer is under way, or was given
            return
        if len(self.conn.trailing_data[0]) > MAX_HEADER:
            self._end(431, "The header is too long.")
        else:
            super().send_400_response(msg)

    @property
    def waits(self) -> bool:
        """Whether nothing is asked on this connection: no request has arrived whole, and none is worked on."""
        return bool(self.conn.their_state is h11.IDLE)

    def _make_room(self) -> bool:
        """Closes the connection that has waited longest without asking anything; returns whether there was one."""
        waiting = [
            one for one in self.connections if isinstance(one, TimedConnection) and one.waits and one is not self
        ]
        oldest = min(waiting, key=lambda one: one._since, default=None)
        if oldest is None:
            return False
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    @property
    def _since(self) -> float:
        return self._timer.when() if self._timer else 0.0

    def _watch(self) -> None:
        """Starts the timer of what is awaited now, unless it runs already."""
        state = self.conn.their_state
        if self.transport.is_closing() or state not in (h11.IDLE, h11.SEND_BODY):
            self._stop()
        elif state is h11.IDLE and self.timeout_keep_alive_task is not None:
            self._stop()  # between two requests; uvicorn's own timer runs
        elif self._timed is not state:
            self._stop()
            seconds = HEADER_SECONDS if state is h11.IDLE else BODY_SECONDS
            self._timed, self._timer = state, self.loop.call_later(seconds, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timed = None, None

    def _late(self) -> None:
        """Closes the connection; says so where no answer has begun, and nothing at all to one that sent nothing."""
        self._timer, self._timed = None, None
        silent = self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]
        if not silent and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._end(408, "The request did not arrive in time.")
        else:
            self.transport.close()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _end(self, status: int, text: str) -> None:
        body = f"{text}\n".encode("ascii")
        headers = [("content-type", "text/plain"), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


_FULL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 5\r\nconnection: close\r\n\r\n"
