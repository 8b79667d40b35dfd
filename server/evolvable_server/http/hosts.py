"""Which Host and Origin are answered: exact names and nothing like them.

A web page that a browser on this machine shows must not reach the library: not under a name that the page's owner
points here (Host), and not from another site (Origin). The SDK compares a host with its port left open by its
beginning only, and after it asked for a token; both are too late here.
"""

import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from evolvable_server.http.settings import HttpSettings, is_loopback
from evolvable_store.errors import InvalidArgument

_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN = re.compile(rf"https?://{_HOST.pattern}")
_USUAL = {"http": ":80", "https": ":443"}


def accepted_hosts(settings: HttpSettings, port: int) -> frozenset[str]:
    """Returns the values of Host that are answered: this machine's names, the address, and those that are set.

    Raises InvalidArgument for a host that no client would send.
    """
    names = ["127.0.0.1", "localhost", "[::1]"]
    if not is_loopback(settings.host) and not _is_wildcard(settings.host):
        names.append(f"[{settings.host}]" if ":" in settings.host else settings.host.lower())
    own = {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())
    return frozenset(own | set(_checked(settings.hosts, _HOST, "host", "skills.example.org or 10.0.0.5:8642")))


def accepted_origins(settings: HttpSettings, port: int) -> frozenset[str]:
    """Returns the values of Origin that are answered: pages of this server itself, and those that are set."""
    own = {f"http://{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    return frozenset(own | set(_checked(settings.origins, _ORIGIN, "origin", "https://skills.example.org")))


class HostCheck:
    """Middleware: 400 without a Host or with two bearers, 421 for another's Host, 403 for another's Origin.

    Nothing else is looked at before.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str], origins: frozenset[str]) -> None:
        self._app, self._hosts, self._origins = app, hosts, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal := self._refusal(Headers(scope=scope)) if scope["type"] == "http" else None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not hosts[0]:
            return PlainTextResponse("A request has one Host.\n", 400)
        if hosts[0].lower() not in self._hosts:
            return PlainTextResponse("This Host is not served here. `evolvable serve --allowed-host` adds one.\n", 421)
        if any(origin.lower() not in self._origins for origin in origins):
            return PlainTextResponse("This Origin is not let in. `evolvable serve --allowed-origin` adds one.\n", 403)
        if len(headers.getlist("authorization")) > 1:  # a proxy may have checked the other one
            return PlainTextResponse("A request has one Authorization at most.\n", 400)
        return None


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
