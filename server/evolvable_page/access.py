"""Decide who may open the local page: one-time tokens or a provider's login, sessions, the checks of every request.

The page lives on a random name below `localhost`, which its home keeps. A cookie ignores ports, so one for 127.0.0.1 or
localhost would be sent to every development server of the machine; one for this name is not: nobody else knows it.
"""

import hashlib
import math
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evolvable_page.kept_page import READING_SECONDS, KeptPage
from evolvable_store.errors import Refused

if TYPE_CHECKING:
    from evolvable_server.page_kit import SignedIn, SignInFlow

COOKIE = "evolvable"
OPEN_PATH = "/open"
SIGN_IN_PATH, CALLBACK_PATH = "/sign-in", "/callback"
LOGIN_COOKIE = "evolvable-login"

RECHECK_SECONDS = 60.0
"""How long a person who signed in is believed before the provider is asked whether that still holds."""

TOKEN_SECONDS = 600.0
"""How long a printed link opens the page."""

SESSION_SECONDS = 12 * 3600.0
"""How long a browser that a link opened decides without a request. Then it reads, if a cookie opens reading."""

EXCHANGE_SECONDS = 60.0
"""How long a secret of an earlier start still counts after it was replaced: open tabs send it at the same time."""

RENEW_SECONDS = 86_400.0
"""How often a browser is told again how long its cookie holds."""

MAX_SESSIONS = 16
"""Browsers that may be signed in; the one that was quiet longest is signed out for another."""

MAX_SIGNED_IN = 1_000
"""Browsers that may be signed in through a provider."""

MAX_TOKENS = 16
"""Links that wait to be opened."""

MAX_ANSWERS = 100
"""Forms of a session whose answers are known; an older one that is sent again counts again."""

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

MAY_READ = "This browser may read, and decides nothing."
MAY_READ_NEXT = "Open the link of this start: press Enter where `evolvable ui` runs, or run `evolvable ui --open`."

SIGN_IN = "This page opens by the link that `evolvable ui` printed at your terminal. Press Enter there for a new one.\n"


@dataclass(slots=True)
class PageSession:
    """One browser that is signed in.

    csrf: stands in every form of its pages. seen: when it asked last. signed: the person whom a provider named, None
    for who opened the page by a link. ends: when the session ends in any case. checked: when the provider was asked.
    address: from where the browser asked last. decides: a link of this start opened it; without that it reads only.
    told: when the browser was told how long its cookie holds.
    """

    csrf: str
    seen: float
    signed: "SignedIn | None" = None
    ends: float = math.inf
    checked: float = 0.0
    address: str = ""
    decides: bool = True
    told: float = 0.0
    _answers: dict[str, str] = field(default_factory=dict)
    _acting: threading.Lock = field(default_factory=threading.Lock)

    def answer_once(self, form: str, act: Callable[[], str]) -> str:
        """Return the address that `act` leads to; the one of the first time where the same form was sent before.

        A double click sends a form twice, and so does a reload of its answer. form: what is sent, with what differs in
        every form that is drawn; '' acts each time. A form that failed may be sent again.
        """
        with self._acting:
            if form in self._answers:
                return self._answers[form]
            address = act()
            if form:
                self._answers[form] = address
                if len(self._answers) > MAX_ANSWERS:
                    del self._answers[next(iter(self._answers))]
            return address


class PageAccess:
    """The name of the page, the links that open it, and the sessions that were opened. Used from any thread."""

    def __init__(
        self,
        port: int,
        clock: Callable[[], float] = time.monotonic,
        start: str = "/",
        flow: "SignInFlow | None" = None,
        kept: KeptPage | None = None,
    ) -> None:
        """start: the address that a link leads to. flow: the provider's login; then no link opens the page.

        kept: the name and the readers of the home; without it the name is new, and a cookie ends with this process.
        """
        self.start, self.flow, self._kept = start, flow, kept
        name = kept.host if kept is not None else secrets.token_hex(8)
        self.origin = flow.origin if flow is not None else f"http://{name}.localhost:{port}"
        self.host = urlsplit(self.origin).netloc
        self.secure = self.origin.startswith("https:")
        # A browser takes a name that begins so only from the host itself, encrypted, for every path.
        prefix = "__Host-" if self.secure else ""
        self.cookie, self.login_cookie = prefix + COOKIE, prefix + LOGIN_COOKIE
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: dict[bytes, float] = {}
        self._sessions: dict[bytes, PageSession] = {}
        self._replaced: dict[bytes, tuple[PageSession, float]] = {}

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
            return self._new_session(MAX_SESSIONS)

    def open_for(self, signed: "SignedIn") -> str:
        """Return the secret of a new session of a person whom the provider named."""
        with self._lock:
            return self._new_session(MAX_SIGNED_IN, signed, self._clock() + signed.seconds)

    def _new_session(self, limit: int, signed: "SignedIn | None" = None, ends: float = math.inf) -> str:
        while len(self._sessions) >= limit:
            del self._sessions[min(self._sessions, key=lambda one: self._sessions[one].seen)]
        secret, now = secrets.token_urlsafe(32), self._clock()
        self._sessions[_digest(secret)] = PageSession(secrets.token_urlsafe(32), now, signed, ends, now, told=now)
        if self._kept is not None:
            self._kept.add(_digest(secret))
        return secret

    @property
    def cookie_seconds(self) -> int | None:
        """How long a browser keeps the cookie; None until it is closed."""
        return int(READING_SECONDS) if self._kept is not None else None

    def session(self, headers: Headers) -> PageSession | None:
        """Return the session of a request's cookies, None without one. It counts as used now."""
        return self.session_and_cookie(headers)[0]

    def session_and_cookie(self, headers: Headers) -> tuple[PageSession | None, str]:
        """Return the session of a request's cookies, and the secret that the browser has to keep from now, or ''."""
        now = self._clock()
        with self._lock:
            if self._kept is not None and not self._kept.holds:
                return None, ""
            for secret in cookie_values(headers, self.cookie):
                found = self._sessions.get(_digest(secret))
                if found is not None and self._is_used(found, _digest(secret), now):
                    if self._kept is None or found.told + RENEW_SECONDS > now:
                        return found, ""
                    found.told = now
                    return found, secret
                if found is None and (opened := self._reading(_digest(secret), now)) is not None:
                    return opened
        return None, ""

    def _is_used(self, found: PageSession, digest: bytes, now: float) -> bool:
        """Return whether a session holds, and note its use. A quiet one that a link opened decides no more."""
        if found.ends <= now:
            return False
        if found.seen + SESSION_SECONDS <= now:
            if self._kept is None:
                return False
            found.decides = False
        if self._kept is not None and not self._kept.opens(digest):
            return False
        found.seen = now
        return True

    def _reading(self, digest: bytes, now: float) -> tuple[PageSession, str] | None:
        """Return the session that a cookie of an earlier start opens, and the secret that replaces it.

        Who sends a secret long after it was replaced does not know the new one, so two have it: both are ended.
        """
        if self._kept is None:
            return None
        if digest in self._replaced:
            session, at = self._replaced[digest]
            if at + EXCHANGE_SECONDS > now and any(one is session for one in self._sessions.values()):
                return session, ""
            self._end(session)
            return None
        if not self._kept.opens(digest):
            return None
        self._kept.remove(digest)
        secret = self._new_session(MAX_SESSIONS)
        session = self._sessions[_digest(secret)]
        session.decides = False
        self._replaced[digest] = session, now
        return session, secret

    def is_open(self, session: PageSession) -> bool:
        """Return whether a session was not ended meanwhile."""
        with self._lock:
            return any(one is session for one in self._sessions.values())

    async def holds(self, session: PageSession) -> bool:
        """Return whether a session still holds; one of a provider is asked about there every RECHECK_SECONDS."""
        now = self._clock()
        if session.ends <= now or not self.is_open(session):
            return False
        if self.flow is None or session.signed is None or session.checked + RECHECK_SECONDS > now:
            return True
        session.checked = now
        try:
            found = await self.flow.recheck(session.signed)
        except Refused:
            found = None
        if found is None:
            self.end(session)
            return False
        session.signed = found
        return True

    def end(self, session: PageSession) -> None:
        """End a session."""
        with self._lock:
            self._end(session)

    def _end(self, session: PageSession) -> None:
        if self._kept is not None:
            self._kept.remove(*(key for key, one in self._sessions.items() if one is session))
        self._sessions = {key: one for key, one in self._sessions.items() if one is not session}


def _digest(secret: str) -> bytes:
    # Looked up by its hash, so that the time of a comparison says nothing of a secret.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def cookie_values(headers: Headers, name: str) -> list[str]:
    """Return every value of a cookie; another program of this machine may have added one."""
    found = []
    for line in headers.getlist("cookie"):
        for part in line.split(";"):
            try:
                morsel = SimpleCookie(part.strip()).get(name)
            except CookieError:
                continue
            if morsel is not None:
                found.append(morsel.value)
    return found


class PageGuard:
    """Middleware: exchanges a link's token or a provider's login for a session, and refuses all else without one.

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
        if method == "GET" and (answer := await self._entrance(scope, headers)) is not None:
            await answer(scope, receive, _guarded(send))
            return
        session, renewed = self._access.session_and_cookie(headers)
        if session is not None and not await self._access.holds(session):
            session = None
        refusal = self._sign_in_first() if session is None else self._refusal(headers, method)
        if refusal is not None:
            await refusal(scope, receive, _guarded(send))
            return
        assert session is not None
        session.address = (scope.get("client") or ("",))[0]
        scope["page_session"] = session
        kept = None
        if renewed:
            kept = Response()
            self._set_cookie(kept, self._access.cookie, renewed, "strict")
        await self._app(scope, _limited(receive), _guarded(send, kept))

    async def _entrance(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer of a way into the page, None for every other address."""
        flow, path = self._access.flow, scope["path"]
        if flow is None:
            return self._open(scope, headers) if path == OPEN_PATH else None
        try:
            if path == SIGN_IN_PATH:
                address, kept = await flow.begin()
                answer: Response = RedirectResponse(address, 303)
                # Lax: the provider's answer comes from another site.
                self._set_cookie(answer, self._access.login_cookie, kept, "lax")
                return answer
            if path == CALLBACK_PATH:
                cookie = next(iter(cookie_values(headers, self._access.login_cookie)), "")
                return self._signed_in(headers, await flow.finish(scope["query_string"].decode("latin-1"), cookie))
        except Refused as error:
            answer = _small_page(f"{error} {error.hint or ''}", 403, SIGN_IN_PATH, "Sign in")
            answer.delete_cookie(self._access.login_cookie, secure=self._access.secure, httponly=True)
            return answer
        return None

    def _signed_in(self, headers: Headers, signed: "SignedIn") -> Response:
        if (before := self._access.session(headers)) is not None:
            self._access.end(before)
        # The browser goes on from a page of this site: a cookie that is strict is not sent after a redirect of another.
        answer = _small_page(f"You are signed in as {signed.subject}.", 200, self._access.start, "Go on", onward=True)
        self._set_cookie(answer, self._access.cookie, self._access.open_for(signed), "strict")
        answer.delete_cookie(self._access.login_cookie, secure=self._access.secure, httponly=True)
        return answer

    def _sign_in_first(self) -> Response:
        if self._access.flow is None:
            return PlainTextResponse(SIGN_IN, 401)
        return _small_page("", 401, SIGN_IN_PATH, f"Sign in at {self._access.flow.provider}")

    def _set_cookie(self, answer: Response, name: str, value: str, same_site: Literal["lax", "strict"]) -> None:
        # Without a domain the cookie is for this very name, never for localhost and the names beside it.
        lasts = self._access.cookie_seconds
        answer.set_cookie(name, value, lasts, path="/", secure=self._access.secure, httponly=True, samesite=same_site)

    def _open(self, scope: Scope, headers: Headers) -> Response:
        query = scope["query_string"].decode("latin-1")
        secret = self._access.exchange(query.removeprefix("token=")) if query.startswith("token=") else None
        if secret is None:
            return PlainTextResponse(f"This link was used already, or is too old. {SIGN_IN}", 401)
        answer: Response = RedirectResponse(self._access.start, 303)
        if headers.get("sec-fetch-site", "none") != "none":
            # As in `_signed_in`: the file that `ui --open` has the browser read is another site.
            answer = _small_page("The page is open.", 200, self._access.start, "Go on", onward=True)
        self._set_cookie(answer, self._access.cookie, secret, "strict")
        # What a program left there that had the port meanwhile: a service worker would read what the page shows.
        answer.headers["clear-site-data"] = '"storage"'
        return answer

    def _refusal(self, headers: Headers, method: str) -> Response | None:
        if method in SAFE_METHODS:
            return None
        if headers.getlist("origin") != [self._access.origin]:
            return PlainTextResponse("Only a form of this page itself may be sent here.\n", 403)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("Only a form of this page itself may be sent here.\n", 403)
        return None


def _small_page(text: str, status: int, address: str, link: str, *, onward: bool = False) -> Response:
    """Return a page without the library around it. onward: the browser follows the link by itself."""
    follow = f'<meta http-equiv="refresh" content="0; url={escape(address)}">' if onward else ""
    said = f"<p>{escape(text)}</p>" if text else ""
    onwards = f'<p><a href="{escape(address)}">{escape(link)}</a></p>'
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{follow}<title>Evolvable</title></head>'
        f"<body><main><h1>Evolvable</h1>{said}{onwards}</main></body></html>",
        status,
    )


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


def _guarded(send: Send, kept: Response | None = None) -> Send:
    """Return what sends an answer with the headers of every answer; answers are not stored, but for `static` ones.

    kept: whose cookie goes with the answer.
    """

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
            if kept is not None:
                headers.append("set-cookie", kept.headers["set-cookie"])
        await send(message)

    return sent
