"""The end of a server that is told to end: what runs is finished, what comes is sent away, and anybody may look.

/healthz says that the process answers, /readyz whether it takes requests. Neither asks for a token or a Host, because
those who look use addresses, and neither tells anything else.
"""

import anyio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

RETRY_SECONDS = 5
"""What Retry-After says: by then a server that ends has ended, and a full one has room."""


def busy(text: str, status: int = 503) -> PlainTextResponse:
    """Returns the answer to a request that should come again."""
    return PlainTextResponse(text + "\n", status, {"retry-after": str(RETRY_SECONDS)})


class Drain:
    """Middleware: knows what is in flight, and lets nothing new in once the end has begun."""

    def __init__(self, app: ASGIApp, ending: anyio.Event) -> None:
        """ending: set when the end begins."""
        self._app, self._ending = app, ending
        self._in_flight = 0
        self._quiet = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] in ("/healthz", "/readyz"):
            await self._health(scope, receive, send)
        elif self._ending.is_set():
            await busy("This server is ending.")(scope, receive, send)
        else:
            self._in_flight += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._in_flight -= 1
                if not self._in_flight:
                    self._quiet.set()

    def begin(self) -> None:
        """Lets nothing new in from now on."""
        self._ending.set()

    async def finished(self, grace: float) -> bool:
        """Returns whether all that was in flight ended within `grace` seconds; at once when nothing was."""
        with anyio.move_on_after(grace):
            while self._in_flight:
                self._quiet = anyio.Event()
                await self._quiet.wait()
        return not self._in_flight

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            answer = PlainTextResponse("", 405, {"allow": "GET, HEAD"})
        elif scope["path"] == "/readyz" and self._ending.is_set():
            answer = busy("ending")
        else:
            answer = PlainTextResponse("ok\n", headers={"cache-control": "no-store"})
        await answer(scope, receive, send)
