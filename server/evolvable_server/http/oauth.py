"""Tokens of an external authorization server: JWTs by its published keys, others by asking it.

Which server to ask, whom a token is meant for and for how long are checked here; signatures are PyJWT's business.
"""

import json
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

import anyio
import httpx2
import jwt
from mcp.server.auth.provider import AccessToken

from evolvable_server.http.settings import OAuth, check_url
from evolvable_store.errors import EvolvableError

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a private key only: with a shared one, whoever can check a token can make one."""

LEEWAY_SECONDS = 30
"""How far apart the two servers' clocks may be."""

KEYS_SECONDS = 600
"""How long published keys are used before they are fetched again."""

AGAIN_SECONDS = 30
"""The least time between two fetches, whatever unknown keys tokens name."""

TIMEOUT_SECONDS = 5.0
MAX_ANSWER = 1024 * 1024
MAX_TOKEN = 16 * 1024

log = logging.getLogger(__name__)


class Checker(Protocol):
    """Says what a token claims, None when the token is not good."""

    async def claims(self, token: str) -> dict[str, Any] | None: ...


class OAuthVerifier:
    """A TokenVerifier of the SDK over an authorization server."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._checker: Checker = _Introspection(oauth) if oauth.introspection else _Keys(oauth)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Returns what a token is good for; None when it is not, or when its server cannot be asked."""
        if len(token) > MAX_TOKEN or not token.isascii():
            return None
        try:
            claims = await self._checker.claims(token)
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
        # What is no access token must not open anything, even when the same key signed it (RFC 9068, section 4).
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


class _Introspection:
    """Asks the authorization server about every token (RFC 7662); it can end one at any moment, so nothing is kept."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth

    async def claims(self, token: str) -> dict[str, Any] | None:
        oauth, url = self._oauth, self._oauth.introspection
        assert url is not None
        auth = (oauth.client, oauth.secret or "") if oauth.client else None
        async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
            claims = await _json(client, "POST", url, data={"token": token}, auth=auth)
        audience = claims.get("aud")
        meant = audience if isinstance(audience, list) else [audience]
        good = (
            claims.get("active") is True and oauth.resource in meant and claims.get("iss", oauth.issuer) == oauth.issuer
        )
        if not good or not _in_time(claims):
            return None
        return {**claims, "iss": oauth.issuer}


_TYPES = ("jwt", "at+jwt", "application/at+jwt")

_METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


async def _jwks_url(client: httpx2.AsyncClient, issuer: str) -> str:
    """Returns where the issuer's metadata says its keys are (RFC 8414, OpenID Connect Discovery)."""
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
    """Returns the object that a URL answers with. Raises httpx2.HTTPError, ValueError."""
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
