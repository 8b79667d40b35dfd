"""Talk to an OpenID provider: read its metadata and its published keys, and check its tokens.

PyJWT checks signatures and lifetimes. This module decides which addresses are allowed, which
algorithms and kinds of token are accepted, and how often keys are fetched. It imports no MCP,
because the local page uses it too.
"""

import ipaddress
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt

from evolvable_server import read_person_config
from evolvable_store.errors import InvalidArgument

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS = (*_RSA, "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a private key only: a service that checks tokens by a shared key can make them."""

ACCESS_TYPES = ("jwt", "at+jwt", "application/at+jwt")
"""Values of the header `typ` that an access token may have.

A token of another kind is refused, also when the same key signed it (RFC 9068, section 4).
"""

SIGN_IN_CLAIMS = frozenset(("nonce", "at_hash", "c_hash", "s_hash"))
"""Claims that only an ID token has: many providers write the type JWT for both kinds."""

LEEWAY_SECONDS = 30
"""How far apart the two servers' clocks may be."""

KEYS_SECONDS = 600
"""How long published keys are used before they are fetched again."""

AGAIN_SECONDS = 30
"""The least time between two fetches of the keys, also when tokens name unknown keys."""

TIMEOUT_SECONDS = 5.0
"""For each step of a request: connecting, sending, and each read."""

MAX_ANSWER = 1024 * 1024
"""Bytes of an answer."""

MAX_TOKEN = 16 * 1024
"""Characters of a token."""

_METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_url(url: str) -> None:
    """Raise InvalidArgument for a text that is no URL, and for plain http beyond this machine."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or port == 0 or parts.scheme not in ("http", "https") or parts.fragment:
        raise InvalidArgument(
            f"{ascii(url[:200])} is not a URL.",
            "Write it whole, such as https://login.example.org.",
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise InvalidArgument(
            f"{ascii(url[:200])} is not encrypted.", "Use https beyond this machine."
        )


_HERE: dict[str, httpx2.AsyncBaseTransport | None] = dict.fromkeys(
    ("all://127.0.0.1", "all://localhost", "all://*.localhost", "all://[::1]")
)
"""Addresses of this machine, which are asked without the proxy."""


def new_client(
    timeout: httpx2.Timeout | float = 0.0, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    """Return a client that follows no redirects and reads nothing from the environment.

    Either could send a secret to another host: a program that sets the proxy and the certificates
    could answer as the provider. The proxy is that of the person's configuration. timeout:
    TIMEOUT_SECONDS by default.
    """
    return httpx2.AsyncClient(
        auth=auth,
        timeout=timeout or TIMEOUT_SECONDS,
        follow_redirects=False,
        trust_env=False,
        verify=_certificates(),
        proxy=read_person_config().models.get("proxy"),
        mounts=_HERE,
    )


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    """Return the certificates that the system trusts, read once in a process."""
    return httpx2.create_ssl_context(trust_env=False)


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    """The metadata of a provider. An endpoint that it does not have is ''.

    keys: the address of its keys. names_issuer: whether its answers to a sign-in name the issuer
    (RFC 9207).
    """

    issuer: str
    keys: str
    authorization: str = ""
    token: str = ""
    userinfo: str = ""
    end_session: str = ""
    device: str = ""
    registration: str = ""
    names_issuer: bool = False


_ENDPOINTS = {
    "keys": "jwks_uri",
    "authorization": "authorization_endpoint",
    "token": "token_endpoint",
    "userinfo": "userinfo_endpoint",
    "end_session": "end_session_endpoint",
    "device": "device_authorization_endpoint",
    "registration": "registration_endpoint",
}


async def discover(client: httpx2.AsyncClient, issuer: str) -> ProviderMetadata:
    """Return the metadata of an issuer (RFC 8414, OpenID Connect Discovery).

    Only a document that names the issuer verbatim counts, and only encrypted endpoints. Raise
    ValueError.
    """
    url = httpx2.URL(issuer)
    path = url.path.rstrip("/")
    for place in (_METADATA[0] + path, _METADATA[1] + path, path + _METADATA[1]):
        try:
            # RFC 8414 puts the well-known path before the path of the issuer, OpenID Connect after
            # it; providers do either.
            document = await read_json(client, "GET", str(url.copy_with(path=place)))
        except (httpx2.HTTPStatusError, ValueError):
            continue
        if document.get("issuer") == issuer and isinstance(document.get("jwks_uri"), str):
            # null is as good as absent: some providers write it for what they do not have.
            endpoints = {name: str(document.get(key) or "") for name, key in _ENDPOINTS.items()}
            for endpoint in filter(None, endpoints.values()):
                check_url(endpoint)
            names_issuer = document.get("authorization_response_iss_parameter_supported") is True
            return ProviderMetadata(issuer, **endpoints, names_issuer=names_issuer)
    raise ValueError(f"{issuer} publishes no metadata that names its keys")


async def read_json(
    client: httpx2.AsyncClient, method: str, url: str, **options: Any
) -> dict[str, Any]:
    """Return the JSON object that a URL answers with. Raise httpx2.HTTPError, ValueError."""
    status, document = await ask_json(client, method, url, **options)
    if status >= 300:
        raise ValueError(f"{url} answers {status}")
    return document


async def ask_json(
    client: httpx2.AsyncClient, method: str, url: str, **options: Any
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object that a URL answers with, for errors of OAuth too.

    Raise httpx2.HTTPError, ValueError.
    """
    body, headers = bytearray(), {"accept": "application/json", **options.pop("headers", {})}
    async with client.stream(method, url, headers=headers, **options) as answer:
        async for part in answer.aiter_bytes():
            body += part
            # Counted while it arrives: a Content-Length may be missing or wrong.
            if len(body) > MAX_ANSWER:
                raise ValueError(f"{url} answers with too much")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ValueError(f"{url} does not answer with an object (status {answer.status_code})")
    return answer.status_code, document


class KeySet:
    """Checks JWTs by the keys that a provider publishes.

    A key that the provider withdraws is accepted for KEYS_SECONDS more at most.
    """

    def __init__(
        self, issuer: str, address: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """address: of the keys; '' for the one that the metadata names."""
        self._issuer, self._address, self._clock = issuer, address, clock
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched = -float("inf")
        # Guards _keys and _fetched, so that callers that wait at once fetch the keys once.
        self._fetching = anyio.Lock()

    async def access_claims(self, token: str, resource: str) -> dict[str, Any] | None:
        """Return the claims of an access token for this resource, None for any other token."""
        checked = await self._check_token(token, resource, ["exp", "iss", "aud"])
        if checked is None:
            return None
        kind, claims = checked
        return claims if kind in ACCESS_TYPES and not is_of_sign_in(claims) else None

    async def identity_claims(self, token: str, client: str, nonce: str) -> dict[str, Any] | None:
        """Return the claims of an ID token for this client and this nonce, None for any other."""
        required = ["exp", "iat", "iss", "aud", "sub", "nonce"]
        checked = await self._check_token(token, client, required)
        if checked is None:
            return None
        kind, claims = checked
        if kind != "jwt" or claims["nonce"] != nonce:
            return None
        audience = claims["aud"]
        has_others = isinstance(audience, list) and len(audience) > 1
        # OpenID Connect Core, 3.1.3.7: several audiences need `azp`, and it names this client.
        if claims.get("azp", client) != client or (has_others and "azp" not in claims):
            return None
        return claims if isinstance(claims["sub"], str) and claims["sub"] else None

    async def _check_token(
        self, token: str, audience: str, required: list[str]
    ) -> tuple[str, dict[str, Any]] | None:
        """Return the kind of a valid token and its claims, None for an invalid one.

        required: the claims that it must have. Raise httpx2.HTTPError or ValueError where the keys
        cannot be fetched.
        """
        if len(token) > MAX_TOKEN or not token.isascii():
            return None
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None
        # Checked before any key is fetched: an unknown algorithm is no reason to ask the provider.
        if header.get("alg") not in ALGORITHMS:
            return None
        kid = header.get("kid")
        key = await self._find_key(kid if isinstance(kid, str) else None)
        if key is None:
            return None
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                issuer=self._issuer,
                audience=audience,
                leeway=LEEWAY_SECONDS,
                options={"require": required},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        return str(header.get("typ", "JWT")).lower(), claims

    async def _find_key(self, kid: str | None) -> jwt.PyJWK | None:
        age = self._clock() - self._fetched
        if age > KEYS_SECONDS or (kid not in self._keys and age > AGAIN_SECONDS):
            async with self._fetching:
                if self._clock() - self._fetched >= age:  # nobody fetched while we waited
                    # Before the request: else every caller would ask again a provider that does not
                    # answer.
                    self._fetched = self._clock()
                    self._keys = await self._fetch_keys()
        return self._keys.get(kid)

    async def _fetch_keys(self) -> dict[str | None, jwt.PyJWK]:
        async with new_client() as client:
            url = self._address or (await discover(client, self._issuer)).keys
            document = await read_json(client, "GET", url)
        keys = [
            key
            for key in jwt.PyJWKSet.from_dict(document).keys
            if key.public_key_use in (None, "sig")
        ]
        # A token need not name its key where there is only one.
        unnamed = {None: keys[0]} if len(keys) == 1 else {}
        return {key.key_id: key for key in keys} | unnamed


def is_of_sign_in(claims: Mapping[str, Any]) -> bool:
    """Return whether claims are those of a token that permits no call, such as an ID token.

    Keycloak writes the kind of a token into its claim `typ`: Bearer for an access token.
    """
    kind = str(claims.get("typ", "Bearer")).lower()
    return bool(SIGN_IN_CLAIMS & claims.keys()) or kind in ("id", "refresh", "offline", "logout")


def in_time(claims: Mapping[str, Any]) -> bool:
    """Return whether the time is within the lifetime that claims name, as far as they name one."""
    now, expires, begins = time.time(), claims.get("exp"), claims.get("nbf")
    if isinstance(expires, int | float) and expires + LEEWAY_SECONDS < now:
        return False
    return not (isinstance(begins, int | float) and begins - LEEWAY_SECONDS > now)
