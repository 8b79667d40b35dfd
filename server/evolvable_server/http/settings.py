"""What a person decides about serving over HTTP."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from evolvable_store.errors import InvalidArgument

GRACE = 10.0
"""Seconds that requests in flight get after the first signal."""


@dataclass(frozen=True, slots=True)
class OAuth:
    """An authorization server whose tokens are accepted.

    issuer: its URL, exactly as its tokens name it. resource: the public URL of this server's /mcp, which the tokens
    must be issued for. introspection: where it is asked about a token; without it a token is a JWT, checked against
    the keys at `jwks`, by default those that the issuer's metadata names. client, secret: who asks.
    """

    issuer: str
    resource: str
    jwks: str | None = None
    introspection: str | None = None
    client: str | None = None
    secret: str | None = None

    def __post_init__(self) -> None:
        """Raises InvalidArgument for a URL whose answers somebody on the way could change."""
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


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_url(url: str) -> None:
    """Raises InvalidArgument for what is no URL, and for one that is not encrypted beyond this machine."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or port == 0 or parts.scheme not in ("http", "https") or parts.fragment:
        raise InvalidArgument(f"{ascii(url[:200])} is not a URL.", "Write it whole, such as https://login.example.org.")
    if parts.scheme == "http" and not is_loopback(host):
        raise InvalidArgument(f"{ascii(url[:200])} is not encrypted.", "Use https beyond this machine.")
