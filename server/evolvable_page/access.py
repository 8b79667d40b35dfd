"""Know the links and the sessions that open the local page, and the names that it has.

The page lives on random names below `localhost`. A cookie ignores ports, so one for 127.0.0.1 or
localhost would be sent to every development server of the machine. One for a random name is not,
since nobody else knows it.

A home keeps one name, at which browsers read. Another program may have had the port of that name
while the page was closed, and may have left a service worker there. So decisions have a name of
their own, new at each start.
"""

import hashlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from evolvable_page.kept_page import KeptPage
from evolvable_store.errors import Refused

if TYPE_CHECKING:
    from evolvable_server.page_kit import SignedIn, SignInFlow

COOKIE = "evolvable"
OPEN_PATH = "/open"
SIGN_IN_PATH, CALLBACK_PATH = "/sign-in", "/callback"
LOGIN_COOKIE = "evolvable-login"

# A group that the provider takes away counts here within this time; a shorter one asks the provider
# more often.
RECHECK_SECONDS = 60.0
"""How long a person who signed in is believed before the provider is asked whether that still
holds.
"""

# Long enough to walk to the browser; a link in the scrollback of a terminal is worth nothing
# afterwards.
TOKEN_SECONDS = 600.0
"""How long a printed link opens the page."""

# A working day: who closes the laptop at night opens the page by a new link in the morning.
SESSION_SECONDS = 12 * 3600.0
"""How long a browser that a link opened decides without a request."""

# Long enough for the open tabs to reconnect; a copied cookie is noticed only after it.
EXCHANGE_SECONDS = 60.0
"""How long a secret of an earlier start still counts after it was replaced: open tabs send it at
the same time.
"""

RENEW_SECONDS = 86_400.0
"""How often a browser is told again how long its cookie holds."""

# One person on one machine: more entries would only be sessions that a closed browser left behind.
MAX_SESSIONS = 16
"""Browsers that may be signed in; the one that was quiet longest is signed out for another."""

# A team shares one page here, so the bound is on memory alone.
MAX_SIGNED_IN = 1_000
"""Browsers that may be signed in through a provider."""

MAX_TOKENS = 16
"""Links that wait to be opened."""

# Bounds memory; a double click or a reload comes long before a hundred other forms.
MAX_ANSWERS = 100
"""Forms of a session whose answers are known; an older one that is sent again counts again."""

MAX_LOOKED = 1_000
"""Proposals of a session whose shown content is known."""


@dataclass(slots=True)
class PageSession:
    """One browser that is signed in.

    csrf: stands in every form of its pages. seen: when it asked last. signed: the person whom a
    provider named, None for a browser that a link opened. ends: when the session ends in any case.
    checked: when the provider was asked. address: from where the browser asked last. shown_hashes:
    by proposal the hash of its content, where all of it was shown. decides: it came by a link of
    this start, under the name of this start. Another session only reads, under the name that the
    home keeps. renewed: when the browser was told how long its cookie holds.
    """

    csrf: str
    seen: float
    signed: "SignedIn | None" = None
    ends: float = math.inf
    checked: float = 0.0
    address: str = ""
    shown_hashes: dict[int, str] = field(default_factory=dict)
    decides: bool = True
    renewed: float = 0.0
    _remarks: tuple[int, Sequence[str]] = 0, ()
    _answers: dict[str, str] = field(default_factory=dict)
    # Guards `shown_hashes` and `_answers`, and is held during an action, so that of a form that is
    # sent twice at once the second waits for the answer of the first.
    _acting: threading.Lock = field(default_factory=threading.Lock)

    def look_at(self, proposal: int, content_hash: str) -> None:
        """Note that all of a proposal was shown. content_hash: the hash of it."""
        with self._acting:
            # Removed first, so that the dict is in the order of the last look and its first key is
            # the oldest.
            self.shown_hashes.pop(proposal, None)
            self.shown_hashes[proposal] = content_hash
            if len(self.shown_hashes) > MAX_LOOKED:
                del self.shown_hashes[next(iter(self.shown_hashes))]

    def remark(self, operation: int | None, lines: Sequence[str]) -> None:
        """Store the remarks on an operation, in place of those on the operation before."""
        self._remarks = operation or 0, lines

    def remarks(self, operation: int) -> Sequence[str]:
        """Return the stored remarks on an operation, () without any."""
        return self._remarks[1] if self._remarks[0] == operation else ()

    def answer_once(self, form: str, act: Callable[[], str]) -> str:
        """Return the address that `act` leads to, or the stored one where the same form was sent
        before.

        A double click sends a form twice, and so does a reload of its answer. form: the hash of
        the sent fields, which differs for every form that is drawn; '' acts each time. A form that
        failed may be sent again.
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
    """The names of the page, the links that open it, and the sessions that were opened.

    Used from any thread.
    """

    def __init__(
        self,
        port: int,
        clock: Callable[[], float] = time.monotonic,
        start: str = "/",
        flow: "SignInFlow | None" = None,
        kept_page: KeptPage | None = None,
    ) -> None:
        """start: the address that a link leads to. flow: the provider's login; then no link opens
        the page.

        kept_page: the name and the readers of the home; without it no cookie outlives this process.
        """
        self.start, self.flow, self._kept_page = start, flow, kept_page
        self.origin = (
            flow.origin if flow is not None else f"http://{secrets.token_hex(8)}.localhost:{port}"
        )
        self.host = urlsplit(self.origin).netloc
        self.reading_origin = (
            f"http://{kept_page.host}.localhost:{port}" if kept_page is not None else ""
        )
        self.origins = {
            urlsplit(origin).netloc: origin
            for origin in (self.origin, self.reading_origin)
            if origin
        }
        """Host of a request -> the origin of its page."""
        self.secure = self.origin.startswith("https:")
        # A browser takes a name that begins so only from the host itself, encrypted, for every
        # path.
        prefix = "__Host-" if self.secure else ""
        self.cookie, self.login_cookie = prefix + COOKIE, prefix + LOGIN_COOKIE
        self._clock = clock
        # Guards the three dicts below and the calls of `_kept_page` that go with them. It is held
        # only for dict operations and one small file.
        self._lock = threading.Lock()
        # By the hash of the token: when it ends, and whether it opens the page for decisions.
        self._tokens: dict[bytes, tuple[float, bool]] = {}
        self._sessions: dict[bytes, PageSession] = {}
        # By the hash of a cookie from an earlier start: the session that took its place, and when.
        self._replaced: dict[bytes, tuple[PageSession, float]] = {}

    def decides_at(self, headers: Headers) -> bool:
        """Return whether a request came to the name of this start, where browsers decide."""
        return self.origins.get(headers.get("host", "").lower(), self.origin) == self.origin

    def new_link(self) -> str:
        """Return a link that opens the page for decisions once, within TOKEN_SECONDS."""
        return f"{self.origin}{OPEN_PATH}?token={self._make_token(decides=True)}"

    def new_reading_link(self) -> str:
        """Return a link that opens the name that the home keeps, for reading. '' where it keeps
        none.
        """
        if self._kept_page is None:
            return ""
        return f"{self.reading_origin}{OPEN_PATH}?token={self._make_token(decides=False)}"

    def _make_token(self, *, decides: bool) -> str:
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[_hash_secret(token)] = self._clock() + TOKEN_SECONDS, decides
            while len(self._tokens) > MAX_TOKENS:
                del self._tokens[next(iter(self._tokens))]
        return token

    def exchange(self, token: str, *, decides: bool = True) -> str | None:
        """Return the secret of a new session for the token of a link, None for one that is not
        valid any more.

        decides: whether it came to the name of this start. A token of the other name is not valid
        there.
        """
        with self._lock:
            # Popped before it is checked: a link that is tried under the wrong name is used up too.
            ends, for_decisions = self._tokens.pop(_hash_secret(token), (0.0, decides))
            if ends <= self._clock() or for_decisions != decides:
                return None
            return self._add_session(MAX_SESSIONS, decides=decides)

    def open_for(self, signed: "SignedIn") -> str:
        """Return the secret of a new session of a person whom the provider named."""
        with self._lock:
            return self._add_session(MAX_SIGNED_IN, signed, self._clock() + signed.seconds)

    def _add_session(
        self,
        limit: int,
        signed: "SignedIn | None" = None,
        ends: float = math.inf,
        *,
        decides: bool = True,
    ) -> str:
        # Each name has its own bound: many browsers that read never sign out one that decides.
        others = [
            key for key, open_session in self._sessions.items() if open_session.decides == decides
        ]
        if len(others) >= limit:
            del self._sessions[min(others, key=lambda candidate: self._sessions[candidate].seen)]
        secret, now = secrets.token_urlsafe(32), self._clock()
        session = PageSession(
            secrets.token_urlsafe(32), now, signed, ends, now, decides=decides, renewed=now
        )
        self._sessions[_hash_secret(secret)] = session
        if self._kept_page is not None and not decides:
            self._kept_page.add(_hash_secret(secret))
        return secret

    def session(self, headers: Headers) -> PageSession | None:
        """Return the session of a request's cookies, None without one. It counts as used now."""
        return self.session_and_cookie(headers)[0]

    def session_and_cookie(self, headers: Headers) -> tuple[PageSession | None, str]:
        """Return the session of a request's cookies, and the secret that the browser has to keep
        from now, or ''.
        """
        now, decides = self._clock(), self.decides_at(headers)
        with self._lock:
            # After `evolvable ui --forget` in another process no cookie opens anything, whatever
            # this process still holds.
            if self._kept_page is not None and not self._kept_page.holds:
                return None, ""
            # All values, not the first: a program on the same host may have set a cookie of this
            # name, and it must not lock the person out.
            for secret in cookie_values(headers, self.cookie):
                digest = _hash_secret(secret)
                session = self._sessions.get(digest)
                if session is None:
                    opened = None if decides else self._replace_reading_secret(digest, now)
                    if opened is not None:
                        return opened
                # A cookie for reading opens nothing under the name for decisions, and the other way
                # round.
                elif session.decides == decides and self._note_use(session, digest, now):
                    # A cookie for decisions ends with the browser, so only one for reading has a
                    # date to extend.
                    if decides or session.renewed + RENEW_SECONDS > now:
                        return session, ""
                    session.renewed = now
                    return session, secret
        return None, ""

    def _note_use(self, session: PageSession, digest: bytes, now: float) -> bool:
        """Return whether a session holds, and note its use where it does."""
        if session.decides:
            holds = session.ends > now and session.seen + SESSION_SECONDS > now
        else:
            holds = self._kept_page is not None and self._kept_page.opens(digest)
        if holds:
            session.seen = now
        return holds

    def _replace_reading_secret(self, digest: bytes, now: float) -> tuple[PageSession, str] | None:
        """Return the session that a cookie of an earlier start opens, and the secret that replaces
        it.

        A browser that sends a replaced secret after EXCHANGE_SECONDS does not know the new one, so
        two browsers had the secret: the session is ended.
        """
        if self._kept_page is None:
            return None
        if digest in self._replaced:
            session, at = self._replaced[digest]
            if at + EXCHANGE_SECONDS > now and self._holds_session(session):
                return session, ""
            self._end(session)
            return None
        if not self._kept_page.opens(digest):
            return None
        # Removed before the new secret is stored: a process that is killed in between signs a
        # browser out, and leaves no old secret that opens.
        self._kept_page.remove(digest)
        secret = self._add_session(MAX_SESSIONS, decides=False)
        session = self._sessions[_hash_secret(secret)]
        self._replaced[digest] = session, now
        return session, secret

    def is_open(self, session: PageSession) -> bool:
        """Return whether a session was not ended meanwhile."""
        with self._lock:
            return self._holds_session(session)

    def _holds_session(self, session: PageSession) -> bool:
        # By identity: a caller has the session, and neither its secret nor the hash of it.
        return any(open_session is session for open_session in self._sessions.values())

    async def holds(self, session: PageSession) -> bool:
        """Return whether a session still holds.

        One of a provider is asked about there every RECHECK_SECONDS.
        """
        now = self._clock()
        if session.ends <= now or not self.is_open(session):
            return False
        if self.flow is None or session.signed is None or session.checked + RECHECK_SECONDS > now:
            return True
        # Set before the question, so that requests that come during it do not ask the provider too.
        session.checked = now
        try:
            signed = await self.flow.recheck(session.signed)
        except Refused:
            signed = None
        if signed is None:
            self.end(session)
            return False
        session.signed = signed
        return True

    def end(self, session: PageSession) -> None:
        """End a session."""
        with self._lock:
            self._end(session)

    def _end(self, session: PageSession) -> None:
        if self._kept_page is not None:
            self._kept_page.remove(
                *(key for key, open_session in self._sessions.items() if open_session is session)
            )
        # By identity: a caller has the session, and neither its secret nor the hash of it.
        self._sessions = {
            key: open_session
            for key, open_session in self._sessions.items()
            if open_session is not session
        }


def _hash_secret(secret: str) -> bytes:
    # Looked up by its hash, so that the time of a comparison says nothing of a secret.
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def cookie_values(headers: Headers, name: str) -> list[str]:
    """Return every value of a cookie; another program of this machine may have added one."""
    values = []
    for line in headers.getlist("cookie"):
        for part in line.split(";"):
            # One cookie at a time: a malformed one of another program must not hide the page's own.
            try:
                morsel = SimpleCookie(part.strip()).get(name)
            except CookieError:
                continue
            if morsel is not None:
                values.append(morsel.value)
    return values
