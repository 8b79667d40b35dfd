"""Who calls over HTTP, and what that bearer may do. Over stdio, and where no token is asked for, everybody may all."""

import re
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

from evolvable_server.session_names import BEARERS, of_bearer, of_client
from evolvable_store.operation import Actor, Principal
from evolvable_tools.library import Caller

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context

SCOPE = "evolvable:"
"""What the names of our permissions begin with as scopes of OAuth, where other products' scopes stand beside them."""


class Permission(StrEnum):
    """What a bearer may do: read, report outcomes, change the library, decide about proposals.

    Whoever may write may report.
    """

    READ = "read"
    REPORT = "report"
    WRITE = "write"
    APPROVE = "approve"

    @property
    def scope(self) -> str:
        """Its name as a scope of OAuth."""
        return SCOPE + self


def name_of(request: Any) -> str | None:
    """Returns the name of the bearer behind an HTTP request, None when there is none.

    request: what the SDK hands to a handler as the transport's request; None over stdio.
    """
    return bearer_in(request.scope) if request is not None else None


def bearer_in(scope: Any) -> str | None:
    """Returns the same for an ASGI scope. A name of an authorization server's begins with `oauth:`."""
    user = _user(scope)
    if user is None:
        return None
    token = user.access_token
    if not (token.claims or {}).get("iss"):
        return token.client_id
    name = token.subject or token.client_id
    return "oauth:" + "".join(char if char.isprintable() and char not in "/\\" else "_" for char in name[:100])


def permissions_of(request: Any) -> frozenset[Permission]:
    """Returns what the caller behind a request may do."""
    user = _user(request.scope) if request is not None else None
    if user is None:
        return frozenset(Permission)
    given = frozenset(permission for permission in Permission if permission.scope in user.scopes)
    return given | {Permission.REPORT} if Permission.WRITE in given else given


def session_of(request: Any, session: str | None) -> str | None:
    """Returns the session of a call: what the client names, behind the bearer that it calls for.

    So operations say whose token made them, and no client can speak in the session of another's.
    """
    name = name_of(request)
    if name is None:
        return of_client(session)
    # A name of the library's tokens has no colon, so nobody is called like one of an authorization server's.
    return of_bearer(name if name.startswith(BEARERS) else f"token:{name}", session)


def connection_of(request: Any, connection: str | None) -> str | None:
    """Return the connection of a call: none for a bearer, who may be many clients on many machines."""
    return connection if name_of(request) is None else None


def caller_of(caller: Caller, context: "Context[Any, Any]", session: str | None) -> Caller:
    """Return the caller of a tool: an agent, known by its token over HTTP, else by the name its client gives itself.

    session: what the client names.
    """
    request = context.request_context.request
    name, params = name_of(request), context.session.client_params
    client = re.sub(r"[^a-z0-9]+", "-", params.client_info.name.lower()).strip("-")[:60] if params is not None else ""
    via = f"token:{name}" if name is not None else f"client:{client}" if client else "mcp"
    connection = connection_of(request, caller.connection)
    session = session_of(request, session)
    return replace(caller, session=session, principal=Principal.AGENT, via=via, connection=connection)


def decider_of(caller: Caller, request: Any) -> Caller:
    """Return the caller that makes a decision which the gate let pass: the person who answered the client's question,
    or over HTTP the script whose token may approve."""
    name = name_of(request)
    if name is None:
        return replace(caller, actor=Actor.HUMAN, principal=Principal.PERSON, via="elicitation")
    return replace(caller, actor=Actor.HUMAN, principal=Principal.SCRIPT, via=f"token:{name}")


def _user(scope: Any) -> AuthenticatedUser | None:
    user = scope.get("user")
    return user if isinstance(user, AuthenticatedUser) else None
