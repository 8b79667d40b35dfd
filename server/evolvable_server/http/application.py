"""Puts the parts of the HTTP server together, from the outermost door to the SDK's own handler."""

from collections.abc import Sequence
from pathlib import Path

import anyio
from mcp.server.auth.routes import create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

from evolvable_server.http.access import Access, Verifier
from evolvable_server.http.bodies import MAX_BODY, Bodies
from evolvable_server.http.connections import MAX_CONNECTIONS
from evolvable_server.http.drain import Drain
from evolvable_server.http.hosts import HostCheck, accepted_hosts, accepted_origins
from evolvable_server.http.permissions import check_permission
from evolvable_server.http.places import REQUESTS, InFlight, Places
from evolvable_server.http.sessions import IDLE_SECONDS, SESSIONS, Sessions
from evolvable_server.http.settings import HttpSettings
from evolvable_server.http.streams import Streams
from evolvable_server.http.tokens import Tokens
from evolvable_server.http.transcripts import Transcripts
from evolvable_server.mcp.bearer import Permission
from evolvable_server.mcp.server import LibraryServer

PATH = "/mcp"


def application(
    server: LibraryServer,
    settings: HttpSettings,
    tokens: Tokens,
    port: int,
    transcripts: Sequence[Path],
    connections: int = MAX_CONNECTIONS,
) -> Drain:
    """Returns the application over a server, for an address with this port: its outermost part, to end it by.

    transcripts: folders of this machine with files that clients without a token may name. Call it once, on the event
    loop. connections: how many the process may have.
    Raises InvalidArgument for a host or an origin that no client would send.
    """
    oauth = settings.oauth
    if oauth is None:
        verifier = Verifier(tokens)
    else:
        from evolvable_server.http.oauth import OAuthVerifier

        verifier = Verifier(tokens, OAuthVerifier(oauth))
    server.middleware.append(check_permission)
    server.middleware.append(Transcripts(transcripts).check)
    manager = StreamableHTTPSessionManager(
        server._lowlevel_server,
        max_request_body_size=MAX_BODY,
        session_idle_timeout=IDLE_SECONDS,
        # Sessions are counted before the SDK sees them; a request that opens none has one for a moment.
        max_sessions=SESSIONS + REQUESTS,
    )
    ending = anyio.Event()
    limited = Bodies(Places(Sessions(StreamableHTTPASGIApp(manager))))
    streams = Streams(limited, ending, verifier.still_valid)
    door = Access(InFlight(streams, connections), settings, tokens, verifier)
    routes: list[Route] = [Route(PATH, endpoint=door)]
    if oauth is not None:
        # The SDK's settings keep a URL as it was written; clients compare an issuer letter by letter.
        auth = AuthSettings(
            issuer_url=oauth.issuer,  # type: ignore[arg-type]
            resource_server_url=oauth.resource,  # type: ignore[arg-type]
            validate_token_resource=False,  # our verifiers check whom a token is for
        )
        assert auth.resource_server_url is not None
        routes += create_protected_resource_routes(
            auth.resource_server_url,
            [auth.issuer_url],
            [permission.scope for permission in Permission],
            resource_name="Evolvable",
        )
    site = Starlette(routes=routes, lifespan=lambda app: manager.run())
    # An address is one address: a redirect would be made from what the client says of the way it came.
    site.router.redirect_slashes = False
    hosts, origins = accepted_hosts(settings, port), accepted_origins(settings, port)
    return Drain(HostCheck(site, hosts, origins), ending)
