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
from evolvable_server.http.drain import Drain
from evolvable_server.http.hosts import HostCheck, accepted_hosts, accepted_origins
from evolvable_server.http.permissions import check_permission
from evolvable_server.http.places import Places
from evolvable_server.http.settings import HttpSettings
from evolvable_server.http.streams import Streams
from evolvable_server.http.tokens import Tokens
from evolvable_server.http.transcripts import Transcripts
from evolvable_server.mcp.bearer import Permission
from evolvable_server.mcp.server import LibraryServer

PATH = "/mcp"

MAX_SESSIONS = 1000
"""Sessions of the handshake era that are open together; an idle one ends after half an hour."""


def application(
    server: LibraryServer, settings: HttpSettings, tokens: Tokens, port: int, transcripts: Sequence[Path]
) -> Drain:
    """Returns the application over a server, for an address with this port: its outermost part, to end it by.

    transcripts: folders of this machine with files that clients without a token may name. Call it once, on the event
    loop. Raises InvalidArgument for a host or an origin that no client would send.
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
        server._lowlevel_server, max_request_body_size=MAX_BODY, max_sessions=MAX_SESSIONS
    )
    ending = anyio.Event()
    limited = Bodies(Places(StreamableHTTPASGIApp(manager)))
    door = Access(Streams(limited, ending, verifier.still_valid), settings, tokens, verifier)
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
