"""Who comes in: bearers of a token of this library or of the authorization server; where none was made, everybody."""

import logging
import time

from anyio.to_thread import run_sync
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.routes import build_resource_metadata_url
from pydantic import AnyHttpUrl
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from evolvable_server.http.settings import HttpSettings, is_loopback
from evolvable_server.http.tokens import PREFIX, Token, Tokens
from evolvable_server.mcp.bearer import Permission
from evolvable_store.errors import EvolvableError, InvalidArgument

log = logging.getLogger(__name__)


class Verifier:
    """The SDK's TokenVerifier over the library's tokens and, for all others, an authorization server's."""

    def __init__(self, tokens: Tokens, other: TokenVerifier | None = None) -> None:
        self._tokens, self._other = tokens, other
        self._said = ""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Returns what a secret is good for, None when it is for nothing; a broken file lets nobody in."""
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
        """Returns whether the bearer of a request that was let in still would be."""
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            return True
        token = user.access_token
        if token.expires_at is not None and token.expires_at < time.time():
            return False
        try:
            return not token.token.startswith(PREFIX) or self._tokens.find(token.token) is not None
        except EvolvableError as error:
            self._say(error.text)
            return False

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            log.error("%s", text)


class Access:
    """Middleware: 401 for who shows no valid token, 403 for one that may not read.

    Where nobody but this machine can reach the server, it asks for tokens from the moment on that one was made.
    """

    def __init__(self, app: ASGIApp, settings: HttpSettings, tokens: Tokens, verifier: Verifier) -> None:
        metadata = build_resource_metadata_url(AnyHttpUrl(settings.oauth.resource)) if settings.oauth else None
        asked = RequireAuthMiddleware(AuthContextMiddleware(app), [Permission.READ.scope], metadata)
        self._closed = AuthenticationMiddleware(asked, BearerAuthBackend(verifier))
        self._open, self._tokens = app, tokens
        self._asks = settings.oauth is not None or not is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._asks = self._asks or self._tokens.begun()
        await (self._closed if self._asks else self._open)(scope, receive, send)


def check_reach(settings: HttpSettings, tokens: Tokens) -> None:
    """Raises InvalidArgument for an address that others reach while nobody could be told from anybody; and as `all`."""
    if tokens.all() or settings.oauth is not None or is_loopback(settings.host):
        return
    raise InvalidArgument(
        f"{settings.host} can be reached from other machines, and there is no token to ask for.",
        "`evolvable token add NAME` makes one; 127.0.0.1 serves this machine alone.",
    )


def _access(secret: str, token: Token) -> AccessToken:
    scopes = [permission.scope for permission in token.permissions]
    # The digest tells two tokens apart that had one name after the other: sessions do not pass on.
    return AccessToken(token=secret, client_id=token.name, subject=token.digest, scopes=scopes)
