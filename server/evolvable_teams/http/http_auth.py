"""Settings of HTTP, and the bearer tokens of a library: made once, stored as hashes, checked at every request.

Tokens are in a file beside the library and not in it: a backup or an export carries no access, a read-only library can
still be served to a team, and a server sees a token revoked by another process with one short read. Writers take turns
by a lock and replace the whole file, so every reader sees a complete one.
"""

import base64
import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

from anyio.to_thread import run_sync
from filelock import FileLock, Timeout
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.routes import build_resource_metadata_url
from pydantic import AfterValidator, AnyHttpUrl, BaseModel, ConfigDict, ValidationError
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from evolvable_server.grants import Grant
from evolvable_server.mcp.call import Permission
from evolvable_store.errors import (
    AlreadyExists,
    EvolvableError,
    InvalidArgument,
    LibraryBusy,
    LibraryCorrupt,
    LibraryReadOnly,
    LibraryUnreachable,
    NoLibrary,
    NotFound,
    Refused,
    TryAgain,
)
from evolvable_store.private_files import write_private
from evolvable_store.regular_files import regular_file
from evolvable_teams.oidc import check_url, is_loopback

GRACE = 10.0
"""Seconds that requests in flight get after the first signal."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """An authorization server whose tokens are accepted.

    issuer: its URL, exactly as its tokens name it. resource: the public URL of this server's /mcp, which the tokens
    must be issued for. introspection: where it is asked about a token; without it a token is a JWT, checked against
    the keys at `jwks`, by default those that the issuer's metadata names. client, secret: who asks. grants: what the
    claims of a token give; None where its scopes alone say it. projects: the names of the library that is served.
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

    hosts, origins: accepted in Host and Origin besides this machine's own. proxies: addresses whose X-Forwarded-For
    and X-Forwarded-Proto are believed. grace: seconds for requests in flight when the process is told to end.
    """

    host: str = "127.0.0.1"
    port: int = 8642
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    oauth: OAuth | None = None
    grace: float = GRACE


PREFIX = "evo_"
"""What every secret begins with, so that scanners for leaked secrets can know it."""

FILE = "tokens.json"

USE_SECONDS = 60
"""How exact the time of the last use is; a token in use costs one write in so many seconds."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PATIENCE = 10.0


class NoSuchToken(NotFound):
    """No token has this name."""


def _with_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("it has no time zone")
    return text


_Time = Annotated[str, AfterValidator(_with_zone)]


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is stored. Times are ISO 8601 in UTC; `digest` is the sha256 of its secret."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    name: str
    permissions: tuple[Permission, ...]
    created: _Time
    digest: str
    expires: _Time | None = None
    last_used: _Time | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether its time has not run out."""
        return self.expires is None or now < datetime.fromisoformat(self.expires)


class TokenFile(BaseModel):
    """What the file of the tokens holds."""

    version: Literal[1] = 1
    tokens: tuple[Token, ...]


class Tokens:
    """The tokens of the library in `home`, shared with every other process."""

    def __init__(self, home: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._home, self._path, self._clock = home, home / FILE, clock
        self._read: bytes | None = None
        self._parsed: tuple[Token, ...] = ()
        self._noted: dict[str, datetime] = {}

    def begun(self) -> bool:
        """Return whether a token was ever made here; from then on a server asks everybody for one."""
        return self._path.exists()

    def all(self) -> tuple[Token, ...]:
        """Return the tokens by name.

        Raise LibraryCorrupt when their file cannot be read as ours, Refused when another account made it or could
        have changed it.
        """
        try:
            with open(self._path, "rb", opener=regular_file) as stream:
                self._check_owner(os.fstat(stream.fileno()))
                data = stream.read()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise LibraryCorrupt(f"{self._path} cannot be read: {error.strerror}.", _REPAIR_HINT) from None
        if data != self._read:
            try:
                self._parsed, self._read = TokenFile.model_validate_json(data).tokens, data
            except ValidationError:
                raise LibraryCorrupt(f"{self._path} is not a list of tokens.", _REPAIR_HINT) from None
        return self._parsed

    def _check_owner(self, status: os.stat_result) -> None:
        """Raise Refused for a file that another account made or could have changed."""
        if os.name != "posix":
            return
        # A home of another account was registered by the person, or nothing would have been opened in it.
        owners = {os.geteuid(), self._home.stat().st_uid}
        if status.st_uid in owners and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return
        raise Refused(
            f"{self._path} is not believed: another account made it or could have changed it (owner {status.st_uid}, "
            f"mode {stat.S_IMODE(status.st_mode):04o}; this process runs as user {os.geteuid()}).",
            "Nobody is let in. Look at what stands in it; then delete it and make new tokens, or take it over with "
            "chown and chmod 600.",
        )

    def add(self, name: str, permissions: Iterable[Permission], lifetime: timedelta | None = None) -> tuple[Token, str]:
        """Make a token; return it and its secret, which is kept nowhere.

        Every token may read. Raise InvalidArgument, AlreadyExists for a name in use, NoLibrary, LibraryBusy,
        LibraryReadOnly, LibraryCorrupt.
        """
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"{ascii(name[:80])} is no name for a token.",
                "Use up to 64 small letters, digits, dots, dashes and underscores, such as alice-laptop.",
            )
        if not self._home.is_dir():
            raise NoLibrary(f"There is no library in {self._home}.", "`evolvable init` makes one.")
        secret = PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).decode("ascii").rstrip("=")
        now = self._clock()
        with self._changing() as tokens:
            if any(token.name == name for token in tokens):
                raise AlreadyExists(f"There is a token {name} already.", f"`evolvable token revoke {name}` ends it.")
            may = tuple(permission for permission in Permission if permission in {Permission.READ, *permissions})
            expires = _iso(now + lifetime) if lifetime is not None else None
            token = Token(name, may, _iso(now), _digest(secret), expires)
            tokens.append(token)
        return token, secret

    def revoke(self, name: str) -> Token:
        """End a token; servers refuse it from their next request on. Raise NoSuchToken, and as `add`."""
        with self._changing() as tokens:
            for token in tokens:
                if token.name == name:
                    tokens.remove(token)
                    return token
            raise NoSuchToken(f"There is no token {ascii(name[:80])}.", "`evolvable token list` shows them.")

    def find(self, secret: str) -> Token | None:
        """Return the valid token of this secret. Raise LibraryCorrupt.

        Every stored hash is compared whole, so the time it takes tells nothing. A plain hash is enough: a secret is
        256 random bits, which no dictionary holds.
        """
        digest, found = _digest(secret), None
        for token in self.all():
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found if found is not None and found.is_valid(self._clock()) else None

    def note_use(self, token: Token) -> None:
        """Keep that a token was used now, at most once in USE_SECONDS; a home that cannot be written is left alone."""
        now = self._clock()
        last = [datetime.fromisoformat(token.last_used)] if token.last_used else []
        last += [self._noted[token.digest]] if token.digest in self._noted else []
        if last and now - max(last) < timedelta(seconds=USE_SECONDS):
            return
        self._noted[token.digest] = now
        with (
            contextlib.suppress(TryAgain, LibraryCorrupt, Refused),
            self._changing(patience=1.0) as tokens,
        ):
            tokens[:] = [replace(t, last_used=_iso(now)) if t.digest == token.digest else t for t in tokens]

    @contextlib.contextmanager
    def _changing(self, patience: float = _PATIENCE) -> Iterator[list[Token]]:
        """Yield the tokens to change; what is left of them is written when the block ends without an error."""
        try:
            with FileLock(self._home / "tokens.lock", timeout=patience, mode=0o600):
                tokens = list(self.all())
                yield tokens
                stored = TokenFile(tokens=tuple(sorted(tokens, key=lambda token: token.name)))
                write_private(self._path, stored.model_dump_json(indent=1) + "\n")
        except Timeout:
            raise LibraryBusy("Another process is changing the tokens.", "Try again.") from None
        except PermissionError:
            raise LibraryReadOnly(f"{self._home} cannot be written.", "Ask the owner of the folder.") from None
        except OSError as error:
            raise LibraryUnreachable(f"{self._home} cannot be written: {error.strerror}.", "Nothing changed.") from None


_REPAIR_HINT = "Nobody is let in until it is fixed; delete it to begin again, with new tokens."


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


log = logging.getLogger(__name__)


RECHECK_SECONDS = 30.0
"""How long the bearer of an open stream is believed before an authorization server's token is checked again."""

MAX_RECHECKED = 1_000


class Verifier:
    """The SDK's TokenVerifier over the library's tokens and, for all others, an authorization server's."""

    def __init__(self, tokens: Tokens, other: TokenVerifier | None = None) -> None:
        self._tokens, self._other = tokens, other
        self._said = ""
        self._checked: OrderedDict[str, float] = OrderedDict()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a secret is good for, None when it is for nothing; a broken file lets nobody in."""
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
        """Return whether an authorization server's token is still good for what it was; asked every RECHECK_SECONDS."""
        digest, now = _digest(token.token), time.monotonic()
        if self._checked.setdefault(digest, now) + RECHECK_SECONDS > now:
            return True
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
    """Check that a non-loopback address has authentication. Raise InvalidArgument, and as `Tokens.all`."""
    if tokens.all() or settings.oauth is not None or is_loopback(settings.host):
        return
    raise InvalidArgument(
        f"{settings.host} can be reached from other machines, and there is no token to ask for.",
        "`evolvable token add NAME` makes one; 127.0.0.1 serves this machine alone.",
    )


def _access(secret: str, token: Token) -> AccessToken:
    scopes = [permission.scope for permission in token.permissions]
    # The digest distinguishes two tokens that had one name after the other: sessions do not pass on.
    return AccessToken(token=secret, client_id=token.name, subject=token.digest, scopes=scopes)
