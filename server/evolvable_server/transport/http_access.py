"""Decide what a request over HTTP may do: the Hosts and Origins, its bearer's permissions, the files that it names.

Tokens of an external authorization server are checked here too: JWTs by its published keys, others by asking it. Which
server to ask, and the audience and lifetime of a token are ours; PyJWT checks signatures.
"""

import ipaddress
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jwt
from mcp.server.auth.provider import AccessToken
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from evolvable_server.mcp.server import Permission, name_of, permissions_of
from evolvable_server.transport.http_auth import HttpSettings, OAuth, check_url, is_loopback
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_tools.verbs.registry import TOOLS, VERBS

_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rf"https?://{_HOST.pattern}")
_USUAL = {"http": ":80", "https": ":443"}


def accepted_hosts(settings: HttpSettings, port: int) -> frozenset[str]:
    """Return the values of Host that are answered: this machine's names, the address, and those that are set.

    Raise InvalidArgument for a host that no client would send.
    """
    names = ["127.0.0.1", "localhost", "[::1]"]
    if not is_loopback(settings.host) and not _is_wildcard(settings.host):
        names.append(f"[{settings.host}]" if ":" in settings.host else settings.host.lower())
    own = {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())
    return frozenset(own | set(_checked(settings.hosts, _HOST, "host", "skills.example.org or 10.0.0.5:8642")))


def accepted_origins(settings: HttpSettings, port: int) -> frozenset[str]:
    """Return the values of Origin that are answered: pages of this server itself, and those that are set."""
    own = {f"http://{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    return frozenset(own | set(_checked(settings.origins, _ORIGIN, "origin", "https://skills.example.org")))


def _checked(values: Iterable[str], form: re.Pattern[str], what: str, example: str) -> Iterable[str]:
    for value in values:
        small = value.lower()
        if not form.fullmatch(small):
            raise InvalidArgument(f"{ascii(value[:200])} is no {what}.", f"Write it as clients send it: {example}.")
        yield small
        scheme, _, rest = small.rpartition("://")
        usual = _USUAL.get(scheme or "https", "")
        if small.endswith(usual):  # clients leave the usual port out
            yield small.removesuffix(usual)


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a private key only: who can check a token with a shared key can also make one."""

LEEWAY_SECONDS = 30
"""How far apart the two servers' clocks may be."""

KEYS_SECONDS = 600
"""How long published keys are used before they are fetched again."""

AGAIN_SECONDS = 30
"""The least time between two fetches, also when tokens name unknown keys."""

TIMEOUT_SECONDS = 5.0
MAX_ANSWER = 1024 * 1024
MAX_TOKEN = 16 * 1024

log = logging.getLogger(__name__)


class OAuthVerifier:
    """A TokenVerifier of the SDK over an authorization server."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._claims = partial(_introspected, oauth) if oauth.introspection else _Keys(oauth).claims

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token is good for; None when it is not, or when its server cannot be asked."""
        if len(token) > MAX_TOKEN or not token.isascii():
            return None
        try:
            claims = await self._claims(token)
        except (httpx2.HTTPError, ValueError, KeyError, TypeError, jwt.PyJWTError, EvolvableError) as error:
            log.warning("the authorization server cannot be asked: %s: %s", type(error).__name__, error)
            return None
        return _access(token, claims, self._oauth) if claims is not None else None


class _Keys:
    """Checks JWTs by the keys that the authorization server publishes."""

    def __init__(self, oauth: OAuth, clock: Callable[[], float] = time.monotonic) -> None:
        self._oauth, self._clock = oauth, clock
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched = -float("inf")
        self._fetching = anyio.Lock()

    async def claims(self, token: str) -> dict[str, Any] | None:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None
        # Another kind of token must not open anything, even when the same key signed it (RFC 9068, section 4).
        if header.get("alg") not in ALGORITHMS or str(header.get("typ", "JWT")).lower() not in _TYPES:
            return None
        key = await self._key(header.get("kid"))
        if key is None:
            return None
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                issuer=self._oauth.issuer,
                audience=self._oauth.resource,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        return claims

    async def _key(self, kid: str | None) -> jwt.PyJWK | None:
        age = self._clock() - self._fetched
        if age > KEYS_SECONDS or (kid not in self._keys and age > AGAIN_SECONDS):
            async with self._fetching:
                if self._clock() - self._fetched >= age:  # nobody fetched while we waited
                    self._fetched = self._clock()
                    self._keys = await self._fetch()
        return self._keys.get(kid)

    async def _fetch(self) -> dict[str | None, jwt.PyJWK]:
        async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
            url = self._oauth.jwks or await _jwks_url(client, self._oauth.issuer)
            document = await _json(client, "GET", url)
        keys = [key for key in jwt.PyJWKSet.from_dict(document).keys if key.public_key_use in (None, "sig")]
        # A token may name no key where there is only one.
        return {key.key_id: key for key in keys} | ({None: keys[0]} if len(keys) == 1 else {})


async def _introspected(oauth: OAuth, token: str) -> dict[str, Any] | None:
    """Ask the authorization server about a token (RFC 7662); it can end one at any moment, so nothing is kept."""
    assert oauth.introspection is not None
    auth = (oauth.client, oauth.secret or "") if oauth.client else None
    async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
        claims = await _json(client, "POST", oauth.introspection, data={"token": token}, auth=auth)
    audience, issuer = claims.get("aud"), claims.get("iss", oauth.issuer)
    meant = audience if isinstance(audience, list) else [audience]
    good = claims.get("active") is True and oauth.resource in meant and issuer == oauth.issuer
    return {**claims, "iss": oauth.issuer} if good and _in_time(claims) else None


_TYPES = ("jwt", "at+jwt", "application/at+jwt")

_METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


async def _jwks_url(client: httpx2.AsyncClient, issuer: str) -> str:
    """Return where the issuer's metadata says its keys are (RFC 8414, OpenID Connect Discovery)."""
    url = httpx2.URL(issuer)
    path = url.path.rstrip("/")
    for place in (_METADATA[0] + path, _METADATA[1] + path, path + _METADATA[1]):
        try:
            document = await _json(client, "GET", str(url.copy_with(path=place)))
        except (httpx2.HTTPStatusError, ValueError):
            continue
        if document.get("issuer") == issuer and isinstance(document.get("jwks_uri"), str):
            check_url(document["jwks_uri"])
            return str(document["jwks_uri"])
    raise ValueError(f"{issuer} publishes no metadata that names its keys")


async def _json(client: httpx2.AsyncClient, method: str, url: str, **options: Any) -> dict[str, Any]:
    """Return the object that a URL answers with. Raise httpx2.HTTPError, ValueError."""
    body = bytearray()
    async with client.stream(method, url, headers={"accept": "application/json"}, **options) as answer:
        answer.raise_for_status()
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > MAX_ANSWER:
                raise ValueError(f"{url} answers with too much")
    document = json.loads(body)
    if not isinstance(document, dict):
        raise ValueError(f"{url} does not answer with an object")
    return document


def _in_time(claims: dict[str, Any]) -> bool:
    now, expires, begins = time.time(), claims.get("exp"), claims.get("nbf")
    if isinstance(expires, int | float) and expires + LEEWAY_SECONDS < now:
        return False
    return not (isinstance(begins, int | float) and begins - LEEWAY_SECONDS > now)


def _access(token: str, claims: dict[str, Any], oauth: OAuth) -> AccessToken | None:
    scope, subject = claims.get("scope", claims.get("scp", "")), claims.get("sub")
    client = claims.get("client_id") or claims.get("azp") or subject
    if not isinstance(client, str) or not isinstance(subject, str | None):
        return None
    scopes = scope.split() if isinstance(scope, str) else [str(one) for one in scope] if isinstance(scope, list) else []
    expires = claims.get("exp")
    return AccessToken(
        token=token,
        client_id=client,
        subject=subject,
        scopes=scopes,
        expires_at=int(expires) + LEEWAY_SECONDS if isinstance(expires, int | float) else None,
        resource=oauth.resource,
        claims={"iss": oauth.issuer},
    )


def required_permissions(tool: str, arguments: Mapping[str, Any]) -> frozenset[Permission]:
    """Return the permissions that a call needs.

    A tool that the registry of verbs does not name needs every permission, so that a forgotten one opens nothing.
    """
    if tool == "hook_event" and arguments.get("hook_event_name") == "UserPromptSubmit":
        return frozenset({Permission.READ})
    if tool.startswith("tool_"):  # an approved tool of the library
        return frozenset({Permission(VERBS["rspl run"].authority)})
    return (
        frozenset({Permission(TOOLS[tool].needs(arguments.get("action")))}) if tool in TOOLS else frozenset(Permission)
    )


async def check_permission(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware: answers a call that its bearer may not make with an error that the model can read.

    Every bearer may read, so only calls of tools are checked: everything else that the server answers is reading.
    """
    if ctx.method != "tools/call":
        return await call_next(ctx)
    params = ctx.params or {}
    tool, arguments = params.get("name"), params.get("arguments")
    has = permissions_of(ctx.request)
    missing = required_permissions(str(tool), arguments if isinstance(arguments, Mapping) else {}) - has
    if not missing:
        return await call_next(ctx)
    text = (
        f"The token {name_of(ctx.request)} may {_listed(has)}; {ascii(tool)} needs {_listed(missing)}. "
        f"Go on without it, or ask the owner of the library for a token that may {_listed(missing)}."
    )
    return _refused(ctx, text)


def _refused(ctx: ServerRequestContext[Any, Any], text: str) -> dict[str, Any]:
    """Return an error result for the model. A middleware that answers has to fill the whole result."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    return result | ({"resultType": "complete"} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else {})


def _listed(permissions: frozenset[Permission]) -> str:
    return " and ".join(permission.value for permission in Permission if permission in permissions)


ARGUMENT = "transcript_path"
"""The argument of any tool that names such a file."""


class Transcripts:
    """Middleware: refuses a call that names a transcript it may not; of a hook's call it only drops the name.

    A client over stdio runs as the person who owns the files. A caller over HTTP need not be that person, and a review
    shows others what it finds in a file. So a bearer names none; without tokens only files in `folders` count.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """folders: where clients of this machine's person write transcripts."""
        self._folders = [Path(os.path.realpath(folder)) for folder in folders]
        self._said = False

    async def check(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Check one call, and answer it or pass it on."""
        params = ctx.params or {}
        given = params.get("arguments")
        arguments: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        named = arguments.get(ARGUMENT)
        if ctx.method != "tools/call" or not named or self._may(ctx.request, named):
            return await call_next(ctx)
        if params.get("name") == "hook_event":
            if not self._said:
                self._said = True
                log.warning(
                    "a hook named a transcript over HTTP that is not read; its session is not queued for review"
                )
            return await call_next(replace(ctx, params={**params, "arguments": {**arguments, ARGUMENT: ""}}))
        return _refused(ctx, REFUSAL)

    def _may(self, request: Any, named: Any) -> bool:
        if name_of(request) is not None or not isinstance(named, str) or "\0" in named:
            return False
        place = Path(os.path.realpath(named))
        return place.suffix == ".jsonl" and any(place.is_relative_to(folder) for folder in self._folders)


REFUSAL = (
    f"Over HTTP {ARGUMENT} is refused: it names a file on the server's machine, and this one may not be read for you. "
    "Leave it out, or call the tool of a server that your client starts itself."
)
