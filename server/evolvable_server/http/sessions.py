"""The sessions of the handshake era: how many each bearer may have, and which one ends when there is no room.

The SDK keeps a session until it was idle for half an hour and refuses new ones at its limit, whoever has them. Here an
idle session makes room for a new one of its bearer, and when all sessions are taken, the bearer with the most gives one
up. A client whose session ended gets 404 for it and opens another one, as the protocol says.
"""

import time
from dataclasses import dataclass, field

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evolvable_server.http.bodies import replayed
from evolvable_server.http.places import refused
from evolvable_server.http.shares import Full
from evolvable_server.mcp.bearer import bearer_in

SESSIONS, SESSIONS_EACH = 1000, 128
"""Sessions that are open together, and those of one bearer; callers without a token share all of them."""

IDLE_SECONDS = 30 * 60
"""After so long without a request the SDK ends a session."""

_ID = "mcp-session-id"
_VERSION = "mcp-protocol-version"


@dataclass(eq=False, slots=True)
class _Session:
    """bearer, user: who opened it. busy: requests and streams of it that are under way. used: asked for after that."""

    bearer: str | None
    user: object
    id: str = ""
    busy: int = 1
    used: bool = False
    last: float = field(default_factory=time.monotonic)

    @property
    def rank(self) -> tuple[bool, float]:
        """The lowest ends first: a session that was opened and not used since, then the one that is idle longest."""
        return self.used, self.last


class Sessions:
    """Middleware: 429 when all sessions of a bearer are at work, 503 when all sessions are."""

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
        elif scope["method"] == "POST" and headers.get(_VERSION) in (None, *HANDSHAKE_PROTOCOL_VERSIONS):
            message = await receive()
            receive = replayed(message.get("body", b""), receive)
            if _is_initialize(message):
                await self._open(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _use(self, session: _Session, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def seen(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        session.busy += 1
        session.used = True
        try:
            await self._app(scope, receive, seen)
        finally:
            session.busy -= 1
            session.last = time.monotonic()
            if status == 404 or (scope["method"] == "DELETE" and status == 200):
                self._forget(session)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        bearer = bearer_in(scope)
        try:
            await self._make_room(bearer, scope)
        except Full as full:
            await refused(full, "sessions at work")(scope, receive, send)
            return
        session = _Session(bearer, scope.get("user"))
        self._sessions.add(session)

        async def seen(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                session.id = Headers(raw=message["headers"]).get(_ID, "")
                self._by_id[session.id] = session
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            session.busy -= 1
            session.last = time.monotonic()
            if not session.id:
                self._forget(session)

    async def _make_room(self, bearer: str | None, scope: Scope) -> None:
        """End sessions until there is room for one more of this bearer. Raises Full when none of them is idle."""
        late = time.monotonic() - IDLE_SECONDS
        for session in [one for one in self._sessions if not one.busy and one.last < late]:
            self._forget(session)  # the SDK has ended it
        while (crowd := self._crowd(bearer)) is not None:
            idle = min((one for one in crowd if not one.busy), key=lambda one: one.rank, default=None)
            if idle is None:
                raise Full(429 if bearer is not None and any(one.bearer == bearer for one in crowd) else 503)
            await self._end(idle, scope)

    def _crowd(self, bearer: str | None) -> list[_Session] | None:
        """Return the sessions of which one has to end before this bearer opens another, None when there is room."""
        of: dict[str | None, list[_Session]] = {bearer: []}
        for session in self._sessions:
            of.setdefault(session.bearer, []).append(session)
        if bearer is not None and len(of[bearer]) >= SESSIONS_EACH:
            return of[bearer]
        if len(self._sessions) < SESSIONS:
            return None
        most = max(of.values(), key=len)
        return most if len(most) > len(of[bearer]) else of[bearer]

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
