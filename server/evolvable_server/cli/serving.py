"""The command that serves clients: serve. It imports nothing that a client would wait for."""

import dataclasses
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from evolvable_server.cli.state import State, home_option, pass_state
from evolvable_server.cli.terminal import remark
from evolvable_server.config import Config, process_session, read_oauth_client, toolsets_of

if TYPE_CHECKING:
    from evolvable_server.http.settings import OAuth
    from evolvable_server.mcp.early import Early


def _address(_: click.Context, param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and host and port.isascii() and port.isdigit() and int(port[:6]) < 2**16):
        raise click.BadParameter(f"{ascii(value)} is not HOST:PORT, such as 127.0.0.1:8765.", param=param)
    return host, int(port)


@click.command("serve")
@click.option("--toolsets", metavar="NAMES", help="Groups of tools to list besides, such as evolve.")
@click.option("--http", callback=_address, metavar="HOST:PORT", help="Serve streamable HTTP at /mcp.")
@click.option("--allowed-host", multiple=True, metavar="HOST", help="A name passed on by a proxy; repeatable.")
@click.option("--allowed-origin", multiple=True, metavar="URL", help="A web page's origin that may call; repeatable.")
@click.option("--trusted-proxy", multiple=True, metavar="ADDRESS", help="Whose X-Forwarded-* is believed; repeatable.")
@click.option(
    "--grace", type=click.FloatRange(0, 3600), metavar="SECONDS", help="For what runs at the end [default: 10]."
)
@click.option("--oauth-issuer", metavar="URL", help="The authorization server whose tokens are accepted.")
@click.option("--oauth-resource", metavar="URL", help="The public URL of /mcp that its tokens are issued for.")
@click.option("--oauth-jwks", metavar="URL", help="Where its keys are [default: what its metadata says].")
@click.option("--oauth-introspection", metavar="URL", help="Ask it about every token instead of checking signatures.")
@home_option
@pass_state
def serve_command(
    state: State,
    toolsets: str | None,
    http: tuple[str, int] | None,
    allowed_host: tuple[str, ...],
    allowed_origin: tuple[str, ...],
    trusted_proxy: tuple[str, ...],
    grace: float | None,
    oauth_issuer: str | None,
    oauth_resource: str | None,
    oauth_jwks: str | None,
    oauth_introspection: str | None,
) -> None:
    """Serve the library to an MCP client.

    Clients start this themselves, and talk to it on its stdin and stdout. The library is made when it is missing.
    Over HTTP it serves several; beyond this machine only with tokens (`evolvable token add`) or an authorization
    server. The other options go with --http.
    """
    if http is None:
        oauth_given = oauth_issuer or oauth_resource or oauth_jwks or oauth_introspection
        if allowed_host or allowed_origin or trusted_proxy or grace is not None or oauth_given:
            raise click.UsageError("These options go with --http.")
        _serve_stdio(_config(state, toolsets))
    from evolvable_server.http.serving import serve_http
    from evolvable_server.http.settings import GRACE, HttpSettings

    host, port = http
    settings = HttpSettings(
        host,
        port,
        hosts=allowed_host,
        origins=allowed_origin,
        proxies=trusted_proxy,
        oauth=_oauth(oauth_issuer, oauth_resource, oauth_jwks, oauth_introspection),
        grace=GRACE if grace is None else grace,
    )
    serve_http(_config(state, toolsets), settings, lambda url: remark(f"Serving {url}; Ctrl-C ends it."))


def _config(state: State, toolsets: str | None) -> Config:
    config = state.config()
    if toolsets is None:
        return config
    return dataclasses.replace(config, toolsets=toolsets_of(toolsets))


def _serve_stdio(config: Config) -> NoReturn:
    if sys.stdin.isatty():
        remark("Waiting for an MCP client on stdin; Ctrl-C ends it. `evolvable connect` has your client start it.")
    early = _early(config)
    from evolvable_server.run import serve_stdio

    serve_stdio(dataclasses.replace(config, session=config.session or process_session()), early)


def _early(config: Config) -> "Early | None":
    """Begins to answer while the rest is imported. What keeps the server from serving is told before any answer."""
    from evolvable_server.homes import registered_homes
    from evolvable_server.mcp.early import Early, possible
    from evolvable_server.means import opened
    from evolvable_server.reviews import policies
    from evolvable_store.store import Store

    policies(config)
    with opened(config, serving=True):
        Store.open(config.home, create=True, registered=registered_homes).close()
    return Early.begin() if possible() and not config.toolsets else None


def _oauth(issuer: str | None, resource: str | None, jwks: str | None, introspection: str | None) -> "OAuth | None":
    from evolvable_server.http.settings import OAuth

    if not (issuer or resource or jwks or introspection):
        return None
    if not (issuer and resource) or (jwks and introspection):
        raise click.UsageError(
            "--oauth-issuer and --oauth-resource go together; beside them --oauth-jwks or --oauth-introspection."
        )
    client, secret = read_oauth_client()
    return OAuth(issuer, resource, jwks, introspection, client, secret)
