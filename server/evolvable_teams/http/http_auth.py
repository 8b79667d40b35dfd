"""Settings of HTTP, and who is let in: the bearers of the library's tokens, and those of an
authorization server.
"""

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
from evolvable_store.errors import (
    EvolvableError,
    InvalidArgument,
)
from evolvable_teams.oidc import check_url, is_loopback
from evolvable_teams.tokens import PREFIX, Token, Tokens, digest_of

GRACE = 10.0
"""Seconds that requests in flight get after the first signal."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """An authorization server whose tokens are accepted.

    issuer: its URL, exactly as its tokens name it. resource: the public URL of this server's /mcp,
    which the tokens must be issued for. introspection: where it is asked about a token; without it
    a token is a JWT, checked against the keys at `jwks`, by default those that the issuer's
    metadata names. client, secret: who asks. grants: what the claims of a token give; None where
    its scopes alone say it. projects: the names of the library that is served.
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
    """Where to serve and for whom.

    hosts, origins: accepted in Host and Origin besides this machine's own. proxies: addresses whose
    X-Forwarded-For and X-Forwarded-Proto are believed. grace: seconds for requests in flight when
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
"""How long the bearer of an open stream is believed before an authorization server's token is
checked again.
"""

MAX_RECHECKED = 1_000


class Verifier:
    """The SDK's TokenVerifier over the library's tokens and, for all others, an authorization
    server's.
    """

    def __init__(self, tokens: Tokens, other: TokenVerifier | None = None) -> None:
        self._tokens, self._other = tokens, other
        self._last_error = ""
        self._checked: OrderedDict[str, float] = OrderedDict()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a secret is good for, None when it is for nothing.

        A broken file lets nobody in.
        """
        if not token.startswith(PREFIX):
            return await self._other.verify_token(token) if self._other is not None else None
        try:
            found = self._tokens.find(token)
            if found is None:
                return None
            await run_sync(self._tokens.note_use, found)
        except EvolvableError as error:
            self._say(error.text)
            return None
        return _access(token, found)

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
            self._say(error.text)
            return False

    async def _still_lets_in(self, token: AccessToken) -> bool:
        """Return whether an authorization server's token is still good for what it was; asked every
        RECHECK_SECONDS.
        """
        digest, now = digest_of(token.token), time.monotonic()
        # Keyed by the digest, so that no token stays in memory here.
        if self._checked.setdefault(digest, now) + RECHECK_SECONDS > now:
            return True
        # Set before the question is asked: parallel streams of one bearer ask once.
        self._checked[digest] = now
        self._checked.move_to_end(digest)
        while len(self._checked) > MAX_RECHECKED:
            self._checked.popitem(last=False)
        found = await self._other.verify_token(token.token) if self._other is not None else None
        if found is None or not set(token.scopes) <= set(found.scopes):
            del self._checked[digest]
            return False
        return True

    def _say(self, text: str) -> None:
        if text != self._last_error:
            self._last_error = text
            log.error("%s", text)


class Access:
    """Middleware: 401 for who shows no valid token, 403 for one that may not read.

    Where nobody but this machine can reach the server, it asks for tokens from the moment on that
    one was made.
    """

    def __init__(
        self, app: ASGIApp, settings: HttpSettings, tokens: Tokens, verifier: Verifier
    ) -> None:
        metadata = (
            build_resource_metadata_url(AnyHttpUrl(settings.oauth.resource))
            if settings.oauth
            else None
        )
        required = RequireAuthMiddleware(
            AuthContextMiddleware(app), [Permission.READ.scope], metadata
        )
        self._closed = AuthenticationMiddleware(required, BearerAuthBackend(verifier))
        self._open, self._tokens = app, tokens
        self._asks = settings.oauth is not None or not is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Once a token was made the answer stays yes, also when the file of tokens is deleted.
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


def _access(secret: str, token: Token) -> AccessToken:
    scopes = [permission.scope for permission in token.permissions]
    # The digest distinguishes two tokens that had one name after the other: sessions do not pass
    # on.
    return AccessToken(token=secret, client_id=token.name, subject=token.digest, scopes=scopes)
