"""Admit browsers with a session to the local page, exchange links and logins for one, and check
every request.
"""

from html import escape
from typing import TYPE_CHECKING, Literal

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evolvable_page.access import (
    CALLBACK_PATH,
    OPEN_PATH,
    SIGN_IN_PATH,
    PageAccess,
    PageSession,
    cookie_values,
)
from evolvable_page.kept_page import READING_SECONDS
from evolvable_store.errors import Refused

if TYPE_CHECKING:
    from evolvable_server.page_kit import SignedIn

KEEP_PATH = "/keep"
"""Where a browser that decides gets the cookie for reading, under the name that the home keeps."""

# A proposal's texts are edited whole; beyond this a body would only fill memory.
MAX_BODY = 4 * 1024 * 1024
"""Bytes of a form: a person may edit the texts of a proposal in it."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types evolvable"
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

SIGN_IN = (
    "This page opens by the link that `evolvable ui` printed at your terminal. Press Enter there "
    "for a new one, or run `evolvable ui --open`.\n"
)


class PageGuard:
    """Middleware: exchanges a link's token or a provider's login for a session, and refuses all
    else without one.

    A request that changes something needs the page's own Origin too, and `site` compares the token
    of its form. It comes after `HostCheck`, and no bearer token of an agent means anything to it.
    """

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The order matters: the ways in need no session, a session is checked before the form, and
        # `/keep` needs a session that decides.
        headers, method = Headers(scope=scope), scope["method"]
        if method == "GET" and (answer := await self._answer_entrance(scope, headers)) is not None:
            await answer(scope, receive, _add_headers(send))
            return
        session, renewed = self._access.session_and_cookie(headers)
        if session is not None and not await self._access.holds(session):
            # The provider no longer vouches for the person, which counts like no session at all.
            session = None
        refusal = self._ask_to_sign_in() if session is None else self._find_refusal(headers, method)
        if refusal is None and scope["path"] == KEEP_PATH:
            refusal = self._redirect_to_reading(session)
        if refusal is not None:
            await refusal(scope, receive, _add_headers(send))
            return
        assert session is not None
        session.address = (scope.get("client") or ("",))[0]
        scope["page_session"] = session
        cookie_source = None
        if renewed:
            cookie_source = Response()
            self._set_cookie(cookie_source, self._access.cookie, renewed, "strict", READING_SECONDS)
        await self._app(scope, _limit_body(receive), _add_headers(send, cookie_source))

    async def _answer_entrance(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer of a way into the page, None for every other address."""
        flow, path = self._access.flow, scope["path"]
        if flow is None:
            return self._answer_link(scope, headers) if path == OPEN_PATH else None
        try:
            if path == SIGN_IN_PATH:
                # The cookie ties the provider's answer to this browser, so that nobody is signed in
                # by the link of another.
                address, login_cookie = await flow.begin()
                answer: Response = RedirectResponse(address, 303)
                # Lax: the provider's answer comes from another site.
                self._set_cookie(answer, self._access.login_cookie, login_cookie, "lax")
                return answer
            if path == CALLBACK_PATH:
                cookie = next(iter(cookie_values(headers, self._access.login_cookie)), "")
                signed = await flow.finish(scope["query_string"].decode("latin-1"), cookie)
                return self._answer_login(headers, signed)
        except Refused as error:
            answer = _make_small_page(f"{error} {error.hint or ''}", 403, SIGN_IN_PATH, "Sign in")
            answer.delete_cookie(
                self._access.login_cookie, secure=self._access.secure, httponly=True
            )
            return answer
        return None

    def _answer_login(self, headers: Headers, signed: "SignedIn") -> Response:
        if (before := self._access.session(headers)) is not None:
            # A new login replaces the session, so that a secret that was set before it is worth
            # nothing (session fixation).
            self._access.end(before)
        # The browser goes on from a page of this site: a cookie that is strict is not sent after a
        # redirect of another.
        answer = _make_small_page(
            f"You are signed in as {signed.subject}.", 200, self._access.start, "Go on", onward=True
        )
        self._set_cookie(answer, self._access.cookie, self._access.open_for(signed), "strict")
        answer.delete_cookie(self._access.login_cookie, secure=self._access.secure, httponly=True)
        return answer

    def _ask_to_sign_in(self) -> Response:
        if self._access.flow is None:
            return PlainTextResponse(SIGN_IN, 401)
        return _make_small_page("", 401, SIGN_IN_PATH, f"Sign in at {self._access.flow.provider}")

    def _set_cookie(
        self,
        answer: Response,
        name: str,
        value: str,
        same_site: Literal["lax", "strict"],
        seconds: float | None = None,
    ) -> None:
        """Have the browser keep a cookie, for some seconds or until it is closed."""
        # Without a domain the cookie is for this very name, never for localhost and the names
        # beside it.
        lasts = int(seconds) if seconds is not None else None
        answer.set_cookie(
            name,
            value,
            lasts,
            path="/",
            secure=self._access.secure,
            httponly=True,
            samesite=same_site,
        )

    def _redirect_to_reading(self, session: PageSession | None) -> Response | None:
        """Return the redirect to the name that the home keeps, None for a browser that reads."""
        link = self._access.new_reading_link() if session is not None and session.decides else ""
        return RedirectResponse(link, 303) if link else None

    def _answer_link(self, scope: Scope, headers: Headers) -> Response:
        # Not parsed as a query: a token has no character that a browser would escape, and nothing
        # else may stand beside it.
        query, decides = scope["query_string"].decode("latin-1"), self._access.decides_at(headers)
        token = query.removeprefix("token=") if query.startswith("token=") else ""
        secret = self._access.exchange(token, decides=decides)
        if secret is None:
            return PlainTextResponse(f"This link was used already, or is too old. {SIGN_IN}", 401)
        address = self._access.start if decides else "/"
        answer: Response = RedirectResponse(address, 303)
        if headers.get("sec-fetch-site", "none") != "none":
            # As in `_answer_login`: the file that `ui --open` has the browser read is another site.
            answer = _make_small_page("The page is open.", 200, address, "Go on", onward=True)
        self._set_cookie(
            answer, self._access.cookie, secret, "strict", None if decides else READING_SECONDS
        )
        if not decides:
            # Another program may have had the port meanwhile, and a service worker that it left
            # would read what the page shows.
            answer.headers["clear-site-data"] = '"storage"'
        return answer

    def _find_refusal(self, headers: Headers, method: str) -> Response | None:
        if method in SAFE_METHODS:
            return None
        # Of the very name that it is sent to: what runs at the name for reading never acts at the
        # one that decides.
        if headers.getlist("origin") != [self._access.origins.get(headers.get("host", "").lower())]:
            return PlainTextResponse("Only a form of this page itself may be sent here.\n", 403)
        # Absent in old browsers, where Origin and the token of the form have to do.
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("Only a form of this page itself may be sent here.\n", 403)
        return None


def _make_small_page(
    text: str, status: int, address: str, link: str, *, onward: bool = False
) -> Response:
    """Return a page without the library around it.

    onward: the browser follows the link by itself.
    """
    # Not a redirect by status: the cookies of this site are strict, and are not sent along a
    # redirect from another site.
    follow = f'<meta http-equiv="refresh" content="0; url={escape(address)}">' if onward else ""
    paragraph = f"<p>{escape(text)}</p>" if text else ""
    onwards = f'<p><a href="{escape(address)}">{escape(link)}</a></p>'
    return HTMLResponse(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{follow}'
        "<title>Evolvable</title></head>"
        f"<body><main><h1>Evolvable</h1>{paragraph}{onwards}</main></body></html>",
        status,
    )


class BodyTooLong(Exception):
    """The body of a request has more than MAX_BODY bytes."""


def _limit_body(receive: Receive) -> Receive:
    left = MAX_BODY

    async def receive_limited() -> Message:
        nonlocal left
        message = await receive()
        # Counted as it arrives: a chunked body names no length.
        left -= len(message.get("body", b""))
        if left < 0:
            raise BodyTooLong
        return message

    return receive_limited


def _add_headers(send: Send, cookie_source: Response | None = None) -> Send:
    """Return a `send` that adds the headers of every answer. Browsers store no answer but those of
    `/static`.

    cookie_source: a response whose cookie is sent with the answer.
    """

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            # A page shows private texts, which must not lie in the browser's cache; `_answer_file`
            # of `site` sets its own header.
            headers.setdefault("cache-control", "no-store")
            if cookie_source is not None:
                headers.append("set-cookie", cookie_source.headers["set-cookie"])
        await send(message)

    return send_with_headers
