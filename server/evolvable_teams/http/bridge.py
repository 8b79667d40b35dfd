"""Serve a joined library over stdio: pass every message on to the server, with the person's token.

The SDK speaks both transports. This module adds the headers that a message needs over HTTP, and the
token.
"""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from evolvable_server import PROJECTS
from evolvable_store.errors import EvolvableError
from evolvable_teams.joining import projects_at
from evolvable_teams.membership_auth import MembershipAuth
from evolvable_teams.oidc import new_client

_VERSION = "io.modelcontextprotocol/protocolVersion"

READ_SECONDS = 300.0
"""How long to wait for the next bytes of an answer; a stream sends a comment more often."""


def run_bridge(name: str) -> None:
    """Serve until the client closes stdin.

    Raise NotFound or Refused for a membership that cannot be used.
    """
    auth = MembershipAuth(name)
    anyio.run(_serve, auth, ", ".join(projects_at(name, Path.cwd())))
    sys.stdout.flush()
    os._exit(0)  # a thread of the SDK may still wait for stdin


async def _serve(auth: MembershipAuth, projects: str) -> None:
    timeout = httpx2.Timeout(30.0, read=READ_SECONDS)
    async with (
        new_client(timeout, auth) as http,
        stdio_server() as (from_client, to_client),
        streamable_http_client(auth.resource, http_client=http) as (from_server, to_server),
        anyio.create_task_group() as tasks,
    ):
        negotiated: dict[str, Any] = {"asked": None, "version": None, "projects": projects}

        async def pass_answers() -> None:
            async for message in from_server:
                if isinstance(message, Exception):
                    _print_error(message)
                    continue
                _note_version(negotiated, message)
                await to_client.send(message)

        # Both directions run at once: a server may ask the client while a call is open.
        tasks.start_soon(pass_answers)
        async for message in from_client:
            if not isinstance(message, Exception):
                await to_server.send(_with_headers(negotiated, message))
        tasks.cancel_scope.cancel()


def _print_error(error: Exception) -> None:
    text = error.text if isinstance(error, EvolvableError) else f"{type(error).__name__}: {error}"
    print(f"evolvable: {text}", file=sys.stderr, flush=True)


def _with_headers(negotiated: dict[str, Any], message: SessionMessage) -> SessionMessage:
    """Return a message of the client with the headers that repeat parts of its body over HTTP."""
    body = message.message
    params = getattr(body, "params", None) or {}
    method = getattr(body, "method", "")
    if method == "initialize":
        negotiated["asked"] = getattr(body, "id", None)
    # Messages of a protocol without a handshake name its version each.
    own_version = (params.get("_meta") or {}).get(_VERSION)
    version = own_version or negotiated["version"]
    headers = {"mcp-protocol-version": str(version)} if version else {}
    headers |= {PROJECTS: negotiated["projects"]} if negotiated["projects"] else {}
    if own_version:
        headers["mcp-method"] = method
        name = params.get("name") or params.get("uri")
        if isinstance(name, str) and name.isascii() and name.isprintable():
            headers["mcp-name"] = name
    return SessionMessage(body, ClientMessageMetadata(headers=headers) if headers else None)


def _note_version(negotiated: dict[str, Any], message: SessionMessage) -> None:
    """Note the version that the answer to `initialize` names."""
    body = message.message
    if isinstance(body, types.JSONRPCResponse) and body.id == negotiated["asked"] is not None:
        negotiated["version"] = body.result.get("protocolVersion")
