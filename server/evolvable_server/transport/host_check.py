"""Refuse requests for another Host or from another Origin.

Every HTTP server of the package begins with this check.
"""

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class HostCheck:
    """A middleware that answers 421 for another Host and 403 for another Origin.

    It answers 400 for a request without one Host, or with two bearers. It is the outermost check: a
    web page in a browser on this machine must not reach the library. Neither a name that its owner
    points here (Host) nor another site (Origin) is served.
    """

    # Starlette's TrustedHostMiddleware is weaker: it ignores the port, a second Host and Origin,
    # and answers 400 where HTTP has 421. The SDK compares a host with an open port by its
    # beginning, and only after it asked for a token.

    def __init__(
        self,
        app: ASGIApp,
        hosts: frozenset[str],
        origins: frozenset[str],
        host_hint: str = "",
        origin_hint: str = "",
    ) -> None:
        """hosts, origins: the values that are answered.

        host_hint, origin_hint: what to do about another one.
        """
        self._app, self._hosts, self._origins = app, hosts, origins
        self._host_hint, self._origin_hint = host_hint, origin_hint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] == "http"
        refusal = self._check_headers(Headers(scope=scope)) if is_request else None
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check_headers(self, headers: Headers) -> PlainTextResponse | None:
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not hosts[0]:
            return PlainTextResponse("A request has one Host.\n", 400)
        if hosts[0].lower() not in self._hosts:
            return PlainTextResponse(f"This Host is not served here. {self._host_hint}\n", 421)
        if any(origin.lower() not in self._origins for origin in origins):
            return PlainTextResponse(f"This Origin is not let in. {self._origin_hint}\n", 403)
        # A proxy may have checked the other one.
        if len(headers.getlist("authorization")) > 1:
            return PlainTextResponse("A request has one Authorization at most.\n", 400)
        return None
