"""The command that serves clients: serve. It imports nothing that a client would wait for."""

import dataclasses
import sys

import click

from evolvable_server.cli.state import State, home_option, pass_state
from evolvable_server.cli.terminal import remark
from evolvable_server.config import process_session


def _address(_: click.Context, param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and host and port.isascii() and port.isdigit() and int(port[:6]) < 2**16):
        raise click.BadParameter(f"{ascii(value)} is not HOST:PORT, such as 127.0.0.1:8765.", param=param)
    return host, int(port)


@click.command("serve")
@click.option(
    "--http", callback=_address, metavar="HOST:PORT", help="Serve streamable HTTP at /mcp, on this machine only."
)
@home_option
@pass_state
def serve_command(state: State, http: tuple[str, int] | None) -> None:
    """Serve the library to an MCP client.

    Clients start this themselves, and talk to it on its stdin and stdout. The library is made when it is missing.
    """
    from evolvable_server.run import LOOPBACK, serve_http, serve_stdio

    if http is None:
        if sys.stdin.isatty():
            remark(
                "Waiting for an MCP client on stdin; Ctrl-C ends it. `evolvable quickstart` says how to connect one."
            )
        config = state.config()
        serve_stdio(dataclasses.replace(config, session=config.session or process_session()))
    host, port = http
    if host in LOOPBACK:
        remark(f"Serving http://{f'[{host}]' if ':' in host else host}:{port}/mcp; Ctrl-C ends it.")
    serve_http(state.config(), host, port)
