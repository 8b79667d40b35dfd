"""The caller of a request: its bearer and what that may do, its session, and the caller of its
verb.
"""

import contextlib
import re
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.mcpserver import Context

from evolvable_server.environment import BEARERS, PROJECTS, bearer_session, client_session
from evolvable_server.grants import Permission
from evolvable_store import Actor, Principal
from evolvable_store.errors import InvalidRef
from evolvable_store.resource import USER_SCOPE, check_scope, is_plugins
from evolvable_tools import Caller

Call = Callable[
    [str, dict[str, Any], Context[Any, Any]],
    Awaitable[types.CallToolResult | types.InputRequiredResult],
]
"""Calls a tool of this name with these arguments."""


def name_of(request: Any) -> str | None:
    """Return the name of the bearer behind an HTTP request, None when there is none.

    request: what the SDK hands to a handler as the transport's request; None over stdio.
    """
    return bearer_in(request.scope) if request is not None else None


def bearer_in(scope: Any) -> str | None:
    """Return the name of the bearer of an ASGI scope, None when there is none.

    The name of an authorization server's bearer begins with `oauth:`.
    """
    user = _find_user(scope)
    if user is None:
        return None
    token = user.access_token
    # A token without an issuer is one of the library's own.
    if not (token.claims or {}).get("iss"):
        return token.client_id
    name = token.subject or token.client_id
    # A slash separates bearer and session, and the provider chooses the name.
    return "oauth:" + "".join(
        char if char.isprintable() and char not in "/\\" else "_" for char in name[:100]
    )


def permissions_of(request: Any) -> frozenset[Permission]:
    """Return the permissions of the caller behind a request."""
    user = _find_user(request.scope) if request is not None else None
    # Over stdio the client is the person's own, and gates ask the person.
    if user is None:
        return frozenset(Permission)
    permissions = frozenset(
        permission for permission in Permission if permission.scope in user.scopes
    )
    return permissions | {Permission.REPORT} if Permission.WRITE in permissions else permissions


def session_of(request: Any, session: str | None) -> str | None:
    """Return the session of a call: the bearer's name, then the session that the client names.

    So operations say whose token made them, and no client can speak in another bearer's session.
    """
    name = name_of(request)
    if name is None:
        return client_session(session)
    # A name of the library's tokens has no colon, so nobody is called like one of an authorization
    # server's.
    return bearer_session(name if name.startswith(BEARERS) else f"token:{name}", session)


def connection_of(request: Any, connection: str | None) -> str | None:
    """Return the connection of a call, None for a bearer: many clients may share its token."""
    return connection if name_of(request) is None else None


def address_of(request: Any) -> str:
    """Return from where an HTTP request came, '' over stdio."""
    client = request.client if request is not None else None
    return client.host if client is not None else ""


MAX_PROJECTS = 16
"""Projects that one request may name: more than any directory lies in."""


def scopes_of(request: Any, own: Sequence[str]) -> tuple[str, ...]:
    """Return the scopes that an HTTP request names for its client's directory, the user's, and
    those of plugins.

    own: the scopes that the server reads, which a request without the header gets.

    A scope gives no right: a ref may name any scope of the library.
    """
    header = request.headers.get(PROJECTS, "") if request is not None else ""
    projects = list[str]()
    # The part after the last separator that counts is dropped, and not read as a name.
    for name in header.split(",", MAX_PROJECTS)[:MAX_PROJECTS] if header else ():
        with contextlib.suppress(InvalidRef):
            projects.append(check_scope(name.strip()))
    if not projects:
        return tuple(own)
    return tuple(dict.fromkeys((*projects, USER_SCOPE, *filter(is_plugins, own))))


def caller_of(caller: Caller, context: Context[Any, Any], sessions: "CallSessions") -> Caller:
    """Return the caller of a tool: an agent, known by its token over HTTP, else by the name its
    client gives itself.
    """
    request = context.request_context.request
    name, params = name_of(request), context.session.client_params
    client = _simplify_name(params.client_info.name) if params is not None else ""
    via = f"token:{name}" if name is not None else f"client:{client}" if client else "mcp"
    session = sessions.of(context.request_context.meta, getattr(request, "headers", None))
    return replace(
        caller,
        scopes=scopes_of(request, caller.scopes),
        session=session_of(request, session),
        principal=Principal.AGENT,
        via=via,
        connection=connection_of(request, caller.connection),
        address=address_of(request),
        conversation=conversation_of(caller, context.request_context, sessions),
    )


def _simplify_name(name: str) -> str:
    """Return a client's name as a part of `via`: the client chooses it, so it may have any text."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]


def conversation_of(caller: Caller, context: Any, sessions: "CallSessions") -> str:
    """Return the conversation that the texts of a request go to, '' where one of several clients
    names no session.

    context: the SDK's context of the request.
    """
    request = context.request
    session = sessions.of(context.meta, getattr(request, "headers", None))
    # What one of several clients was served must not count as read by another one.
    if sessions.shared:
        return (session_of(request, session) or "") if session else ""
    return f"{caller.connection} {session or ''}"


def decider_of(caller: Caller, request: Any) -> Caller:
    """Return the caller that makes a decision which the gate let pass: the person who answered the
    client's question, or over HTTP the script whose token may approve.
    """
    name = name_of(request)
    if name is None:
        return replace(caller, actor=Actor.HUMAN, principal=Principal.PERSON, via="elicitation")
    return replace(caller, actor=Actor.HUMAN, principal=Principal.SCRIPT, via=f"token:{name}")


def _find_user(scope: Any) -> AuthenticatedUser | None:
    user = scope.get("user")
    return user if isinstance(user, AuthenticatedUser) else None


MAX_SESSION = 200
"""Characters of a session's name; a longer one is not taken."""

CALLS = 1_000
"""Announced calls whose sessions are kept until the calls come, the newest."""


class CallSessions:
    """The sessions of one server's clients. Safe from any thread."""

    def __init__(
        self,
        usual: str | None,
        *,
        shared: bool = False,
        hook_session: Callable[[], str | None] = lambda: None,
    ) -> None:
        """usual: the session of a call that names none. shared: several clients call, so what one
        of them says of its session is true of no other's call. hook_session: returns the session
        that a hook of the client named last in a process of its own; it counts before the usual
        one.
        """
        self.shared = shared
        self._usual, self._hook_session = usual, hook_session
        self._announced: OrderedDict[str, str] = OrderedDict()
        # Guards `_announced` and `_usual`: hooks and calls come on several threads.
        self._lock = threading.Lock()

    def of(
        self, meta: Mapping[str, Any] | None, headers: Mapping[str, str] | None = None
    ) -> str | None:
        """Return the session of a call with this _meta, and these headers over HTTP; None when
        nothing names it.

        The first of these counts: the session in `x-codex-turn-metadata`, `threadId`, Droid's
        `assemblySessionId`, the session that a hook announced for `claudecode/toolUseId`, the
        header `mcp-session-id`, the session of `hook_session`, the usual one.
        """
        meta = meta or {}
        turn = meta.get("x-codex-turn-metadata")
        with self._lock:
            announced = self._announced.get(str(meta.get("claudecode/toolUseId")))
        candidates = (
            turn.get("session_id") if isinstance(turn, Mapping) else None,
            meta.get("threadId"),
            meta.get("assemblySessionId"),
            announced,
            _name_http_session(headers),
        )
        named = next((name for name in candidates if _is_session(name)), None)
        return named or self._hook_session() or self._usual

    def note_session(self, session: str, tool_use: str = "") -> None:
        """Note that a hook named its session, and for a hook before a tool which call
        it announces.

        A process with one client takes it for all calls from then on: a client keeps its server
        when the person begins another session.
        """
        if not _is_session(session):
            return
        with self._lock:
            if not self.shared:
                self._usual = session
            if tool_use:
                self._announced[tool_use] = session
                while len(self._announced) > CALLS:
                    self._announced.popitem(last=False)


def _name_http_session(headers: Mapping[str, str] | None) -> str | None:
    name = headers.get("mcp-session-id") if headers else None
    return f"http-{name}" if name else None


def _is_session(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_SESSION
