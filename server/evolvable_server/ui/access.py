"""Decide who may open the local page: one-time tokens, sessions, and the checks of every request.

The page lives on a random name below `localhost`. A cookie ignores ports, so one for 127.0.0.1 or localhost would be
sent to every development server of the machine; a cookie for this name is not, because nobody else knows the name.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "evolvable"
OPEN_PATH = "/open"

TOKEN_SECONDS = 600.0
"""How long a printed link opens the page."""

SESSION_SECONDS = 12 * 3600.0
"""How long a session lasts without a request."""

MAX_SESSIONS = 16
"""Browsers that may be signed in; the one that was quiet longest is signed out for another."""

MAX_TOKENS = 16
"""Links that wait to be opened."""

MAX_BODY = 4 * 1024 * 1024
"""Bytes of a form: a person may edit the texts of a proposal in it."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script';"
    " trusted-types evolvable"
)
"""The Content-Security-Policy of every answer."""

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    # Not no-referrer: a browser would then send `Origin: null` with the page's own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
}

SAFE_METHODS = ("GET", "HEAD")

SIGN_IN = "This page opens by the link that `evolvable ui` printed at your terminal. Press Enter there for a new one.\n"


@dataclass(slots=True)
class PageSession:
    """One browser that is signed in. csrf: stands in every form of its pages. seen: when it asked last."""

    csrf: str
    seen: float


class PageAccess:
    """The name of the page, the links that open it, and the sessions that were opened. Used from any thread."""

    def __init__(self, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = f"{secrets.token_hex(8)}.localhost"
        self.host = f"{self.name}:{port}"
        self.origin = f"http://{self.host}"
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: dict[bytes, float] = {}
        self._sessions: dict[bytes, PageSession] = {}

    def new_link(self) -> str:
        """Return a link that opens the page once, within TOKEN_SECONDS."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[_digest(token)] = self._clock() + TOKEN_SECONDS
            while len(self._tokens) > MAX_TOKENS:
                del self._tokens[next(iter(self._tokens))]
        return f"{self.origin}{OPEN_PATH}?token={token}"

    def exchange(self, token: str) -> str | None:
        """Return the secret of a new session for the token of a link, None for one that is not valid any more."""
        with self._lock:
            if self._tokens.pop(_digest(token), 0.0) <= self._clock():
                return None
            while len(self._sessions) >= MAX_SESSIONS:
                del self._sessions[min(self._sessions, key=lambda one: self._sessions[one].seen)]
            secret = secrets.token_urlsafe(32)
            self._sessions[_digest(secret)] = PageSession(secrets.token_urlsafe(32), self._clock())
        return secret

    def session(self, headers: Headers) -> PageSession | None:
        """Return the session of a request's cookies, None without one. It counts as used now."""
        now = self._clock()
        with self._lock:
            for secret in _cookies(headers):
                found = self._sessions.get(_digest(secret))
                if found is not None and found.seen + SESSION_SECONDS > now:
                    found.seen = now
                    return found
        return None

    def is_open(self, session: PageSession) -> bool:
        """Return whether a session was not ended meanwhile."""
        with self._lock:
            return any(one is session for one in self._sessions.values())

    def end(self, session: PageSession) -> None:
        """End a session."""
        with self._lock:
            self._sessions = {key: one for key, one in self._sessions.items() if one is not session}


def _digest(secret: str) -> bytes:
    # Looked up by its hash, so that the time of a comparison says nothing of a secret.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _cookies(headers: Headers) -> list[str]:
    """Return every value of the page's cookie; another program of this machine may have added one."""
    found = []
    for line in headers.getlist("cookie"):
        for part in line.split(";"):
            try:
                morsel = SimpleCookie(part.strip()).get(COOKIE)
            except CookieError:
                continue
            if morsel is not None:
                found.append(morsel.value)
    return found


class PageGuard:
    """Middleware: exchanges the token of a link for a session, and refuses every request without one.

    A request that changes something needs the page's own Origin too, and `site` compares the token of its form. It
    comes after `HostCheck`, and no bearer token of an agent means anything to it.
    """

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, method = Headers(scope=scope), scope["method"]
        if method == "GET" and scope["path"] == OPEN_PATH:
            await self._open(scope)(scope, receive, _guarded(send))
            return
        session = self._access.session(headers)
        refusal = PlainTextResponse(SIGN_IN, 401) if session is None else self._refusal(headers, method)
        if refusal is not None:
            await refusal(scope, receive, _guarded(send))
            return
        scope["page_session"] = session
        await self._app(scope, _limited(receive), _guarded(send))

    def _open(self, scope: Scope) -> Response:
        query = scope["query_string"].decode("latin-1")
        secret = self._access.exchange(query.removeprefix("token=")) if query.startswith("token=") else None
        if secret is None:
            return PlainTextResponse(f"This link was used already, or is too old. {SIGN_IN}", 401)
        answer = RedirectResponse("/", 303)
        # Without a domain the cookie is for this very name, never for localhost and the names beside it.
        answer.set_cookie(COOKIE, secret, path="/", httponly=True, samesite="strict")
        return answer

    def _refusal(self, headers: Headers, method: str) -> Response | None:
        if method in SAFE_METHODS:
            return None
        if headers.getlist("origin") != [self._access.origin]:
            return PlainTextResponse("Only a form of this page itself may be sent here.\n", 403)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("Only a form of this page itself may be sent here.\n", 403)
        return None


class BodyTooLong(Exception):
    """The body of a request has more than MAX_BODY bytes."""


def _limited(receive: Receive) -> Receive:
    left = MAX_BODY

    async def received() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise BodyTooLong
        return message

    return received


def _guarded(send: Send) -> Send:
    """Return what sends an answer with the headers of every answer; answers are not stored, but for `static` ones."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return sent
