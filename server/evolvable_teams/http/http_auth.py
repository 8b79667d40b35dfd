"""The settings of HTTP, and authentication by the library's tokens or an authorization server's."""

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass

from anyio.to_thread import run_sync
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import (
    AuthenticatedUser,
    BearerAuthBackend,
    RequireAuthMiddleware,
)
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.routes import build_resource_metadata_url
from pydantic import AnyHttpUrl
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from evolvable_server import Grant, Permission
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_teams.oidc import check_url, is_loopback
from evolvable_teams.tokens import PREFIX, Token, Tokens, digest_of

GRACE = 10.0
"""Seconds that requests in flight get after the first signal."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """An authorization server whose tokens are accepted.

    issuer: its URL, exactly as its tokens name it. resource: the public URL of this server's /mcp,
    for which the tokens must be issued. introspection: the URL to ask about a token; without it a
    token is a JWT, checked by the keys at `jwks`, by default those that the issuer's metadata
    names. client, secret: credentials for introspection. grants: permissions by the claims of a
    token; None where its scopes alone decide. projects: the names of the library that is served.
    """

    issuer: str
    resource: str
    jwks: str | None = None
    introspection: str | None = None
    client: str | None = None
    secret: str | None = None
    grants: tuple[Grant, ...] | None = None
    projects: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that no third party can change what the URLs answer. Raise InvalidArgument."""
        for url in (self.issuer, self.resource, self.jwks, self.introspection):
            if url is not None:
                check_url(url)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The address to serve at, and what is accepted there.

    hosts, origins: accepted in Host and Origin besides this machine's own. proxies: addresses whose
    X-Forwarded-For and X-Forwarded-Proto are trusted. grace: seconds for requests in flight when
    the process is told to end.
    """

    host: str = "127.0.0.1"
    port: int = 8642
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    oauth: OAuth | None = None
    grace: float = GRACE


log = logging.getLogger(__name__)


RECHECK_SECONDS = 30.0
"""How long an open stream lasts before an authorization server's token of it is checked again."""

MAX_RECHECKED = 1_000
"""Tokens whose last check is remembered; the oldest give way."""


class Verifier:
    """The SDK's TokenVerifier over the library's tokens and, for all others, an authorization
    server's.
    """

    def __init__(self, tokens: Tokens, other: TokenVerifier | None = None) -> None:
        self._tokens, self._other = tokens, other
        self._last_error = ""
        self._checked: OrderedDict[str, float] = OrderedDict()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a secret permits, None when it permits nothing.

        Where the file of tokens is damaged, no token is valid.
        """
        if not token.startswith(PREFIX):
            return await self._other.verify_token(token) if self._other is not None else None
        try:
            stored = self._tokens.find(token)
            if stored is None:
                return None
            await run_sync(self._tokens.note_use, stored)
        except EvolvableError as error:
            self._log_once(error.text)
            return None
        return _make_access(token, stored)

    async def still_valid(self, scope: Scope) -> bool:
        """Return whether the bearer of a request that was let in still would be."""
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            return True
        token = user.access_token
        if token.expires_at is not None and token.expires_at < time.time():
            return False
        if not token.token.startswith(PREFIX):
            return await self._still_lets_in(token)
        try:
            return self._tokens.find(token.token) is not None
        except EvolvableError as error:
            self._log_once(error.text)
            return False

    async def _still_lets_in(self, token: AccessToken) -> bool:
        """Return whether an authorization server's token still has its scopes.

        It is checked every RECHECK_SECONDS.
        """
        digest, now = digest_of(token.token), time.monotonic()
        # Keyed by the digest, so that no token stays in memory here.
        if self._checked.setdefault(digest, now) + RECHECK_SECONDS > now:
            return True
        # Before the server is asked, so that parallel streams of one bearer ask once.
        self._checked[digest] = now
        self._checked.move_to_end(digest)
        while len(self._checked) > MAX_RECHECKED:
            self._checked.popitem(last=False)
        current = await self._other.verify_token(token.token) if self._other is not None else None
        if current is None or not set(token.scopes) <= set(current.scopes):
            del self._checked[digest]
            return False
        return True

    def _log_once(self, text: str) -> None:
        if text != self._last_error:
            self._last_error = text
            log.error("%s", text)


class Access:
    """Middleware: 401 without a valid token, 403 for a token that may not read.

    A server that only this machine can reach asks for tokens once one was made.
    """

    def __init__(
        self, app: ASGIApp, settings: HttpSettings, tokens: Tokens, verifier: Verifier
    ) -> None:
        oauth = settings.oauth
        metadata = build_resource_metadata_url(AnyHttpUrl(oauth.resource)) if oauth else None
        required = RequireAuthMiddleware(
            AuthContextMiddleware(app), [Permission.READ.scope], metadata
        )
        self._closed = AuthenticationMiddleware(required, BearerAuthBackend(verifier))
        self._open, self._tokens = app, tokens
        self._asks = settings.oauth is not None or not is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Never False again: a deleted file of tokens must not open a running server.
        self._asks = self._asks or self._tokens.is_in_use()
        await (self._closed if self._asks else self._open)(scope, receive, send)


def check_reach(settings: HttpSettings, tokens: Tokens) -> None:
    """Check that a non-loopback address has authentication.

    Raise InvalidArgument, and as `Tokens.all`.
    """
    if tokens.all() or settings.oauth is not None or is_loopback(settings.host):
        return
    raise InvalidArgument(
        f"{settings.host} can be reached from other machines, and there is no token to ask for.",
        "`evolvable team token add NAME` makes one; 127.0.0.1 serves this machine alone.",
    )


def _make_access(secret: str, token: Token) -> AccessToken:
    scopes = [permission.scope for permission in token.permissions]
    # The digest differs between two tokens that had one name in turn, so that the second cannot
    # take over sessions of the first.
    return AccessToken(token=secret, client_id=token.name, subject=token.digest, scopes=scopes)
