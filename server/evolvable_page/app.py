"""Assemble the local page and serve it on a loopback port until the process is told to end."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from evolvable_page import (
    activity_pages,
    changed_list,
    health_pages,
    home_pages,
    inbox_pages,
    key_page,
    learn_pages,
    library_pages,
    resource_pages,
    search_pages,
    session_pages,
)
from evolvable_page.access import PageAccess
from evolvable_page.guard import PageGuard
from evolvable_page.kept_page import KeptPage, only_page
from evolvable_page.layout import PageBody
from evolvable_page.live import ChangeFeed, stream_endpoint
from evolvable_page.parts import page_parts
from evolvable_page.site import PageRequest, PageServices, PageView, Site
from evolvable_server.transport import HostCheck
from evolvable_store.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from evolvable_server.page_kit import SignInFlow

MODULES = (
    home_pages,
    inbox_pages,
    changed_list,
    learn_pages,
    resource_pages,
    library_pages,
    search_pages,
    session_pages,
    activity_pages,
    health_pages,
)

OWN = {"sessions": session_pages, "health": health_pages}
"""Sections about the machine of the person who serves the page, with their modules.

People who sign in through a provider have neither.
"""

# Bounds memory: beyond it uvicorn answers 503. Each open tab holds one for its stream.
CONNECTIONS = 100
"""Connections that are served at once."""

# h11 allows 16 KiB by default; cookies of other programs on the host come along and can be larger.
MAX_HEADER = 64 * 1024
"""Bytes of the head of a request."""

# A port is taken rarely, so that 20 in a row mean another cause, which the error then names.
TRIES = 20
"""Ports that are tried until one is free at both loopback addresses."""


def _refuse_unknown_page(site: Site, request: PageRequest) -> PageBody:
    raise NotFound(f"There is no page /{request.path['rest'][:80]}.", "Follow a link of the page.")


def page_application(services: PageServices, access: PageAccess, feed: ChangeFeed) -> ASGIApp:
    """Return the application: the check of Host and Origin, then of the session, then the pages."""
    parts = page_parts()
    added = {
        page_part.section[0]: page_part.section[1:]
        for page_part in parts
        if page_part.section is not None
    }
    left_out = OWN if access.flow is not None else {}
    site = Site(
        services,
        access,
        feed.notify,
        lambda: feed.seen,
        feed.commits,
        left_out=frozenset(left_out),
        added=added,
    )
    modules = [module for module in MODULES if module not in left_out.values()]
    views = [view for module in (*modules, key_page) for view in module.VIEWS]
    views += [view for part in parts for view in part.views]
    rest = PageView("/{rest:path}", _refuse_unknown_page)
    actions = [action for module in modules for action in module.ACTIONS]
    actions += [action for part in parts for action in part.actions]
    live = Route("/live", stream_endpoint(feed, access), methods=["GET"])
    routes = [
        live,
        site.form_route(key_page.PATH, key_page.make_key),
        *site.routes([*views, rest], actions),
    ]
    app = Starlette(routes=routes)
    # A redirect would be made from the Host that the browser sends.
    app.router.redirect_slashes = False
    hint = "The page lives under the name that `evolvable ui` printed."
    hosts, origins = frozenset(access.origins), frozenset(access.origins.values())
    return HostCheck(PageGuard(app, access), hosts, origins, hint, hint)


class PeerCheck:
    """Middleware: 403 for a connection that does not come from one of the proxies.

    An address that other machines reach is for the proxy alone: without encryption, a program that
    reads the network could read the cookie of a session.
    """

    def __init__(self, app: ASGIApp, proxies: Sequence[str]) -> None:
        self._app, self._networks = app, [ipaddress.ip_network(proxy) for proxy in proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_proxy((scope.get("client") or ("",))[0]):
            await PlainTextResponse("Only the proxy of this page may connect here.\n", 403)(
                scope, receive, send
            )
        else:
            await self._app(scope, receive, send)

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        # A socket of both families shows 10.0.0.1 as ::ffff:10.0.0.1; networks are written in the
        # short form.
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


class PageServer:
    """A page that is served: `access` makes its links, `stop` ends it from any thread."""

    def __init__(
        self,
        services: PageServices,
        port: int = 0,
        start: str = "/",
        flow: "SignInFlow | None" = None,
        proxies: Sequence[str] = (),
        host: str = "",
    ) -> None:
        """port: 0 for any that is free. start: where its links lead. flow: a provider's login in
        place of links.

        proxies: addresses whose X-Forwarded-For is believed. host: the address to listen at, '' for
        both loopback addresses; one that other machines reach answers the proxies alone. Raise
        InvalidArgument for a port that is not free, and for such an address without proxies.
        """
        self.services = services
        reached = bool(host) and not ipaddress.ip_address(host).is_loopback
        if reached and not proxies:
            raise InvalidArgument(
                f"{host} can be reached from other machines, and no proxy is named.",
                "The page speaks no TLS: write the addresses of your proxy as `proxies` of "
                "[sign_in].",
            )
        self._open = contextlib.ExitStack()
        home = services.library.store.home
        # Only the page of one person at loopback keeps a name: elsewhere the proxy decides which
        # name it has.
        keeps = flow is None and not host and os.access(home, os.W_OK)
        kept_page = KeptPage(home) if keeps else None
        # Bound here and not by uvicorn: the port must be known for the links before anything is
        # served.
        self._sockets = [_bind(host, port)] if host else self._open_sockets(kept_page, port)
        self.access = PageAccess(
            self._sockets[0].getsockname()[1], start=start, flow=flow, kept_page=kept_page
        )
        self._feed = ChangeFeed(services.library.store.backend, services.library.store.home)
        app = page_application(services, self.access, self._feed)
        if proxies:
            # Inside `PeerCheck`, which has to see the address of the connection and not the one
            # that a header claims.
            app = ProxyHeadersMiddleware(app, list(proxies))  # type: ignore[arg-type, assignment]
        config = uvicorn.Config(
            PeerCheck(app, proxies) if reached else app,
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            server_header=False,
            # After the check of the peer, which needs the address of the connection.
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            # Streams never end by themselves, and would hold the command after Ctrl+C.
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=MAX_HEADER,
        )
        self._server = _Server(config)

    def _open_sockets(self, kept_page: KeptPage | None, port: int) -> list[socket.socket]:
        """Return the sockets of the page.

        Those of a home that keeps its page are at its port and no other.
        """
        if kept_page is None:
            return _listen(port)
        home, is_new = self.services.library.store.home, not (port or kept_page.port)
        for tries in range(TRIES, 0, -1):
            try:
                sockets = _listen(port or kept_page.choose_port())
                break
            except InvalidArgument:
                if is_new and tries > 1:
                    continue
                with only_page(home):  # says so where it is our own page that has the port
                    # A browser may have sent its cookie to who listens there.
                    kept_page.end_reading()
                if port:
                    raise
                raise _port_taken_error(kept_page) from None
        try:
            # Only after the sockets: of two starts at once the second closes its own, and says that
            # a page is open.
            self._open.enter_context(only_page(home))
        except InvalidArgument:
            for listener in sockets:
                listener.close()
            raise
        # Under the lock, so that two starts never write two ports.
        kept_page.keep(sockets[0].getsockname()[1])
        return sockets

    def serve(self, ready: Callable[[], None]) -> None:
        """Serve until `stop`, or an interrupt. ready: called when requests are answered."""
        try:
            asyncio.run(self._serve(ready))
        finally:
            self._feed.close()
            for listener in self._sockets:
                listener.close()
            self._open.close()

    def stop(self) -> None:
        """End the page; open streams end at once."""
        self._server.should_exit = True
        self._feed.close()

    async def _serve(self, ready: Callable[[], None]) -> None:
        running = asyncio.create_task(self._server.serve(sockets=self._sockets))
        # uvicorn has no event for it, and `ready` prints the link, which must not come before the
        # page answers.
        while not (self._server.started or running.done()):
            await asyncio.sleep(0.005)
        if self._server.started:
            ready()
        try:
            # Shielded, so that an interrupt does not cancel the server in the middle of an answer.
            await asyncio.shield(running)
        except asyncio.CancelledError:  # an interrupt: what is under way ends, open streams first
            self.stop()
            await running


class _Server(uvicorn.Server):
    """uvicorn's server without its signals: an interrupt ends the command as it ends every other
    one.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _port_taken_error(kept_page: KeptPage) -> InvalidArgument:
    return InvalidArgument(
        f"Another program has port {kept_page.port}, at which browsers know the page of this "
        "library. The page takes no other, and no browser reads without a new link.",
        "End that program. Or run `evolvable ui --forget`, which has the next start choose a new "
        "name and port.",
    )


def _listen(port: int) -> list[socket.socket]:
    """Return sockets at 127.0.0.1 and, where there is IPv6, at ::1 with the same port.

    A browser may try either address for a name below localhost. Were only one ours, a program of
    another account could listen at the other one. It would receive the token of a link, and open
    the page with it.
    """
    for _ in range(TRIES):
        first = _bind("127.0.0.1", port)
        try:
            return [first, *_bind_ipv6(first.getsockname()[1])]
        except OSError as error:
            first.close()
            if port:
                raise InvalidArgument(
                    f"Port {port} of ::1 is taken: {error.strerror}.", "Choose another one."
                ) from None
    raise InvalidArgument("No port is free at both 127.0.0.1 and ::1.", "Name one with --port.")


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return _disable_delay(socket.create_server((host, port), family=family))
    except OSError as error:
        raise InvalidArgument(
            f"{host}:{port} cannot be served at: {error.strerror}.", "Choose another port."
        ) from None


def _disable_delay(listening: socket.socket) -> socket.socket:
    """Return a listening socket whose connections send written bytes at once.

    asyncio sets this for a socket that names its protocol, which those of `create_server` do not.
    Without it the body of an answer waits until the browser acknowledges the head, for 40 ms.
    """
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _bind_ipv6(port: int) -> list[socket.socket]:
    """Return the socket at ::1, none on a machine without IPv6.

    Raise OSError when another program has the port.
    """
    try:
        return [_disable_delay(socket.create_server(("::1", port), family=socket.AF_INET6))]
    except OSError as error:
        # On Windows a port that another program holds for itself gives EACCES. Other errors mean:
        # no IPv6.
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise
        return []
