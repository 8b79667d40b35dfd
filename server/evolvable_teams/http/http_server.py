"""Assemble the HTTP application from its middleware, and run it until the process ends."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

import anyio
import uvicorn
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette
from starlette.routing import Route

from evolvable_server import Config, Permission, Serving, read_machine, transport
from evolvable_server.mcp.server import LibraryServer
from evolvable_server.transport import HostCheck
from evolvable_store.errors import InvalidArgument
from evolvable_teams.http import connection_limits, http_access
from evolvable_teams.http.http_auth import Access, HttpSettings, Verifier, check_reach
from evolvable_teams.http.state_key import read_state_key
from evolvable_teams.tokens import Tokens

PATH = "/mcp"

ALLOW_HOST = "`evolvable serve --allowed-host` adds one."
ALLOW_ORIGIN = "`evolvable serve --allowed-origin` adds one."


def application(
    server: LibraryServer,
    settings: HttpSettings,
    tokens: Tokens,
    port: int,
    transcripts: Sequence[Path],
    connections: int = connection_limits.MAX_CONNECTIONS,
) -> transport.Drain:
    """Return the application over a server; call it once, on the event loop.

    Args:
        port: Of the address that is served.
        transcripts: Folders of this machine with files that clients without a token may name.
        connections: How many the process may have.

    Raises:
        InvalidArgument: A host or an origin in the settings is none that a client would send.
    """
    oauth = settings.oauth
    verifier = Verifier(tokens, http_access.OAuthVerifier(oauth) if oauth else None)
    server.middleware.append(http_access.check_permission)
    server.middleware.append(http_access.Transcripts(transcripts).check)
    manager = StreamableHTTPSessionManager(
        server._lowlevel_server,
        max_request_body_size=transport.MAX_BODY,
        session_idle_timeout=connection_limits.SESSION_IDLE_SECONDS,
        # `HttpSessions` limits sessions before the SDK sees them. Here room is left for requests
        # that open none: the SDK makes a session of each for a moment.
        max_sessions=connection_limits.SESSIONS + transport.REQUESTS,
    )
    ending = anyio.Event()
    limited = transport.BodyLimit(
        transport.limit_at_work(connection_limits.HttpSessions(StreamableHTTPASGIApp(manager)))
    )
    streams = transport.StreamEnd(limited, ending, verifier.still_valid)
    guarded = Access(transport.limit_in_flight(streams, connections), settings, tokens, verifier)
    routes: list[Route] = [Route(PATH, endpoint=guarded)]
    if oauth is not None:
        # The SDK's settings keep a URL as it was written; clients compare an issuer verbatim.
        auth = AuthSettings(
            issuer_url=oauth.issuer,  # type: ignore[arg-type]
            resource_server_url=oauth.resource,  # type: ignore[arg-type]
            validate_token_resource=False,  # our verifiers check the audience of a token
        )
        assert auth.resource_server_url is not None
        routes += create_protected_resource_routes(
            auth.resource_server_url,
            [auth.issuer_url],
            [permission.scope for permission in Permission],
            resource_name="Evolvable",
        )
    site = Starlette(routes=routes, lifespan=lambda app: manager.run())
    # A redirect would repeat the Host and the scheme that the client sends.
    site.router.redirect_slashes = False
    hosts = http_access.accepted_hosts(settings, port)
    origins = http_access.accepted_origins(settings, port)
    return transport.Drain(HostCheck(site, hosts, origins, ALLOW_HOST, ALLOW_ORIGIN), ending)


END_SECONDS = 2.0
"""After the grace, for streams and the library to close; then the process ends, also while work
still runs.
"""

BACKLOG = 512  # connections that wait to be accepted
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve_http(
    config: Config,
    settings: HttpSettings,
    ready: Callable[[str], None],
    at_end: Callable[[], object] = lambda: None,
) -> NoReturn:
    """Serve clients over streamable HTTP until a signal, then end the process.

    Call it on the main thread. ready: called with the server's URL once it listens. at_end: called
    last, however the process ends itself. SIGTERM or SIGINT begins the end: requests in flight have
    `settings.grace` seconds, new ones get 503; exit code 0. A second signal ends it at once, with
    128 + its number. Raise InvalidArgument for settings that do not fit, and as Serving.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="evolvable: %(message)s")
    tokens = Tokens(config.home)
    check_reach(settings, tokens)
    with _open_listener(settings) as listener:
        # After the socket is bound: a second server on the port fails before it opens the library.
        serving = Serving(config, shared=True, state_key=read_state_key)
        end = _End(settings.grace, at_end)
        try:
            transcripts = read_machine(config.project).transcripts
            asyncio.run(_serve(serving, settings, tokens, transcripts, listener, end, ready))
        finally:
            serving.close()
    # A tool that still runs on a thread would keep the process alive.
    end.now(0)


async def _serve(
    serving: Serving,
    settings: HttpSettings,
    tokens: Tokens,
    transcripts: Sequence[Path],
    listener: socket.socket,
    end: "_End",
    ready: Callable[[str], None],
) -> None:
    host, port = listener.getsockname()[:2]
    connection_limits.TimedConnection.limit = connection_limits.connection_limit()
    app = application(
        serving.server, settings, tokens, port, transcripts, connection_limits.TimedConnection.limit
    )
    # sse-starlette ends streams at a signal by itself, which would cut answers under way.
    AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]
    server = _Server(_configure_uvicorn(app, settings))
    end.listen()
    running = asyncio.create_task(server.serve(sockets=[listener]))
    while not (server.started or running.done()):
        await asyncio.sleep(0.005)
    if server.started:
        serving.start_following()
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")
    await asyncio.wait(
        (running, asyncio.create_task(end.begun.wait())), return_when=asyncio.FIRST_COMPLETED
    )
    app.begin()
    if not await app.wait_until_idle(settings.grace):
        logging.getLogger(__name__).warning(
            "requests that took longer than %g s were cut", settings.grace
        )
        serving.close()
        end.now(0)  # uvicorn would wait for the threads they run on
    server.should_exit = True
    await running


def _configure_uvicorn(app: object, settings: HttpSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=connection_limits.TimedConnection,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        timeout_keep_alive=connection_limits.KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=connection_limits.MAX_HEADER,
    )


class _Server(uvicorn.Server):
    """uvicorn's server without its handlers of signals.

    They would stop listening before the requests in flight have ended.
    """

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _End:
    """Ends the process after a signal."""

    def __init__(self, grace: float, at_end: Callable[[], object]) -> None:
        self._grace, self._at_end = grace, at_end
        self.begun = asyncio.Event()

    def listen(self) -> None:
        """Take the signals over. Call it on the event loop, on the main thread."""
        loop = asyncio.get_running_loop()

        def handle_signal(number: int, _: FrameType | None) -> None:
            if self.begun.is_set():
                self.now(128 + number)
            # A signal handler may interrupt the loop anywhere, so it only schedules the work.
            loop.call_soon_threadsafe(self._begin)

        for number in _SIGNALS:
            signal.signal(number, handle_signal)

    def _begin(self) -> None:
        self.begun.set()
        # A thread and not the loop: it ends the process also where the loop is blocked.
        last = threading.Timer(self._grace + END_SECONDS, self.now, (0,))
        last.daemon = True
        last.start()

    def now(self, code: int) -> NoReturn:
        """End the process with every thread that still runs."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        with contextlib.suppress(Exception):
            self._at_end()
        os._exit(code)


def _open_listener(settings: HttpSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except socket.gaierror:
        raise InvalidArgument(
            f"{ascii(settings.host)} is no address of this machine.", "Try 127.0.0.1."
        ) from None
    except OSError as error:
        text = f"{settings.host}:{settings.port} cannot be served at: {error.strerror}."
        raise InvalidArgument(text, "Choose another port, or end what uses it.") from None
