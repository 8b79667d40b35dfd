"""The MCP server over one library: its callers and their permissions, its lazy tools, and how tools fail.

Making a tool takes longer than everything else before the first answer: the modules behind it, and the schema from its
signature. So the list is the file `tools.json`, which a test compares with the tools, and each tool is made at its
first call. The tool `hook_event`, which the hooks of clients call, is not listed: a model must not see it.
"""

import contextlib
import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio.to_thread
import mcp_types as types
from mcp.server import CacheHint, MCPServer
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from evolvable_server.config import Config
from evolvable_server.environment import BEARERS, PROJECTS, bearer_session, client_session
from evolvable_server.grants import SCOPE
from evolvable_server.mcp.results import brief_result, error_result, invalid_arguments
from evolvable_server.mcp.sdk_import import hidden_modules
from evolvable_server.mcp.small_tools import SMALL_TOOLS, small_tool
from evolvable_store import __version__
from evolvable_store.errors import EvolvableError, InvalidRef
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import USER_SCOPE, check_scope, is_plugins
from evolvable_tools.library import Caller, Library

if TYPE_CHECKING:
    from evolvable_server.mcp.prompts_and_skills import LibraryPrompts
    from evolvable_server.mcp.review_tools import SettingsFactory
    from evolvable_server.mcp.rspl_tools import ApprovedTools
    from evolvable_server.mcp.tools import ToolSpec

# Start time: tools and hooks are imported at their first call.


PREPARE_SECONDS = 0.5
"""How long after the first answer of a tool the scan of changes is imported."""

SELF_CHECK = "evolvable/self-check"
"""In the `_meta` of a call: the program tries itself, and shows the answer to no agent."""


class Permission(StrEnum):
    """What a bearer may do: read, report outcomes, change the library, decide about proposals.

    A bearer that may write may report.
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
    """Return the name of the bearer behind an HTTP request, None when there is none.

    request: what the SDK hands to a handler as the transport's request; None over stdio.
    """
    return bearer_in(request.scope) if request is not None else None


def bearer_in(scope: Any) -> str | None:
    """Return the same for an ASGI scope. A name of an authorization server's begins with `oauth:`."""
    user = _user(scope)
    if user is None:
        return None
    token = user.access_token
    if not (token.claims or {}).get("iss"):
        return token.client_id
    name = token.subject or token.client_id
    return "oauth:" + "".join(char if char.isprintable() and char not in "/\\" else "_" for char in name[:100])


def permissions_of(request: Any) -> frozenset[Permission]:
    """Return what the caller behind a request may do."""
    user = _user(request.scope) if request is not None else None
    if user is None:
        return frozenset(Permission)
    given = frozenset(permission for permission in Permission if permission.scope in user.scopes)
    return given | {Permission.REPORT} if Permission.WRITE in given else given


def session_of(request: Any, session: str | None) -> str | None:
    """Return the session of a call: what the client names, behind the bearer that it calls for.

    So operations say whose token made them, and no client can speak in the session of another's.
    """
    name = name_of(request)
    if name is None:
        return client_session(session)
    # A name of the library's tokens has no colon, so nobody is called like one of an authorization server's.
    return bearer_session(name if name.startswith(BEARERS) else f"token:{name}", session)


def connection_of(request: Any, connection: str | None) -> str | None:
    """Return the connection of a call: none for a bearer, who may be many clients on many machines."""
    return connection if name_of(request) is None else None


def address_of(request: Any) -> str:
    """Return from where an HTTP request came, '' over stdio."""
    client = request.client if request is not None else None
    return client.host if client is not None else ""


MAX_PROJECTS = 16


def scopes_of(request: Any, own: Sequence[str]) -> tuple[str, ...]:
    """Return the scopes that an HTTP request names for its client's directory, the user's, and those of plugins.

    own: the scopes that the server reads, which a request without the header gets.

    They give no right: a ref may name any scope of the library.
    """
    named = request.headers.get(PROJECTS, "") if request is not None else ""
    found = list[str]()
    for name in named.split(",", MAX_PROJECTS)[:MAX_PROJECTS] if named else ():
        with contextlib.suppress(InvalidRef):
            found.append(check_scope(name.strip()))
    return tuple(dict.fromkeys((*found, USER_SCOPE, *filter(is_plugins, own)))) if found else tuple(own)


def caller_of(caller: Caller, context: Context[Any, Any], sessions: "CallSessions") -> Caller:
    """Return the caller of a tool: an agent, known by its token over HTTP, else by the name its client gives itself."""
    request = context.request_context.request
    name, params = name_of(request), context.session.client_params
    client = re.sub(r"[^a-z0-9]+", "-", params.client_info.name.lower()).strip("-")[:60] if params is not None else ""
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


def conversation_of(caller: Caller, context: Any, sessions: "CallSessions") -> str:
    """Return whom the texts of a request are served to, '' where one of several clients names no session.

    context: the SDK's of the request.
    """
    request = context.request
    session = sessions.of(context.meta, getattr(request, "headers", None))
    if sessions.shared:
        return (session_of(request, session) or "") if session else ""
    return f"{caller.connection} {session or ''}"


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


MAX_SESSION = 200
"""Characters of a session's name; a longer one is not taken."""

CALLS = 1_000
"""Calls of tools that were announced and may still come."""


class CallSessions:
    """The sessions of one server's clients. Safe from any thread."""

    def __init__(self, usual: str | None, *, shared: bool = False) -> None:
        """usual: the session of a call that names none. shared: several clients call, so what one of them says of its
        session is true of no other's call."""
        self.shared = shared
        self._usual = usual
        self._announced: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, meta: Mapping[str, Any] | None, headers: Mapping[str, str] | None = None) -> str | None:
        """Return the session of a call with this _meta, and these headers over HTTP; None when nothing says it.

        The first that is said counts: the session in `x-codex-turn-metadata`, `threadId`, the session that a hook
        announced for `claudecode/toolUseId`, the header `mcp-session-id`, the usual one.
        """
        meta = meta or {}
        turn = meta.get("x-codex-turn-metadata")
        with self._lock:
            announced = self._announced.get(str(meta.get("claudecode/toolUseId")))
        named = (
            turn.get("session_id") if isinstance(turn, Mapping) else None,
            meta.get("threadId"),
            announced,
            _connection(headers),
        )
        return next((name for name in named if _is_session(name)), self._usual)

    def heard(self, session: str, tool_use: str = "") -> None:
        """Note that a hook named its session, and for a hook before a tool which call it announces.

        A process with one client takes it for all calls from then on: a client keeps its server when the person begins
        another session.
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


def _connection(headers: Mapping[str, str] | None) -> str | None:
    name = headers.get("mcp-session-id") if headers else None
    return f"http-{name}" if name else None


def _is_session(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_SESSION


INSTRUCTIONS = """\
Evolvable: a searchable, versioned library of skills (how-to guides for tasks). \
Call find_skill with your task before you start work; load_skill opens the match.
When you are done, call report_outcome with the use_id, so that the library learns what helps. \
Everything that changes the library (update_resource, restore_resource, remove_resource) makes a version that undo \
takes back; say why in `reason`. Read the head first and pass its version as expected_version. \
After long or corrected work, review_session proposes what to learn; review_inbox shows what waits for the user. \
Refs: skill:pdf is the newest version, skill:pdf@3 the third, skill:acme/pdf the one of project acme. \
Kinds: skill, prompt, agent, tool, environment, memory.
"""


Call = Callable[[str, dict[str, Any], Context[Any, Any]], Awaitable[types.CallToolResult | types.InputRequiredResult]]
"""Calls a tool of this name with these arguments."""


class ToolGate(Protocol):
    """Who has to be asked before a tool does what it is called for."""

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call has to be approved."""

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Make the call, by `call`, once it is approved."""


class LibraryServer(MCPServer[Any]):
    """An MCPServer whose tools answer every mistake with a text that says what, which and what next."""

    late_tools: "LazyTools | None" = None
    late_prompts: Iterable[Callable[[], Prompt]] = ()
    """Each makes a registered prompt, when one is first asked for: the schemas of their arguments take a while."""

    live_prompts: "LibraryPrompts | None" = None
    approved_tools: "ApprovedTools | None" = None
    prefix = ""
    """What stands before the name of each listed tool; a call may leave it out."""

    def __init__(self, *, tools_change: bool = False, **options: Any) -> None:
        """tools_change: the list of tools changes while the server runs, as the library's own are in it."""
        # The SDK makes a console of rich for its logging, which is of no use where logging is configured.
        with hidden_modules("rich") if logging.getLogger().handlers else contextlib.nullcontext():
            self._init_sdk(tools_change, options)
        self.gates: list[ToolGate] = []
        self._prepared = False
        self.unlisted: dict[str, Callable[[Mapping[str, Any], Any], Awaitable[types.CallToolResult]]] = {}
        """Tools that answer and are not listed, as what calls them is no model: of arguments and the HTTP request."""

    def _init_sdk(self, tools_change: bool, options: dict[str, Any]) -> None:
        super().__init__(
            "evolvable",
            title="Evolvable",
            version=__version__,
            instructions=INSTRUCTIONS,
            log_level="WARNING",
            # Without the library's own, the tools never change while a server runs; resources may at any moment.
            cache_hints={
                "tools/list": CacheHint(ttl_ms=0 if tools_change else 3_600_000),
                "resources/list": CacheHint(ttl_ms=0),
            },
            **options,
        )

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools that may not be made yet, then the others."""
        late = self.late_tools.listed if self.late_tools else ()
        names = {tool.name for tool in late}
        # No known client reads an output schema, and together they would double the list. docs/mcp.md has the fields.
        made = (tool.model_copy(update={"output_schema": None}) for tool in await super().list_tools())
        approved = await self.approved_tools.listed() if self.approved_tools else []
        tools = [*late, *(tool for tool in made if tool.name not in names), *approved]
        return [tool.model_copy(update={"name": self.prefix + tool.name}) for tool in tools] if self.prefix else tools

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool; a mistake of the caller comes back as an error text, never as a protocol error."""
        try:
            name = name.removeprefix(self.prefix)
            return brief_result(await self._gated(name, arguments, context), self._tool_manager.get_tool(name))
        except EvolvableError as error:  # before the tool ran, such as of its module, which could not be loaded
            return error_result(error.text)

    async def _gated(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        if name in self.unlisted:
            return await self.unlisted[name](arguments, context.request_context.request if context else None)
        if self.approved_tools is not None and name.startswith("tool_"):
            return await self.approved_tools.call(name, arguments, context)
        schema = self.late_tools.schemas.get(name) if self.late_tools else None
        if schema is None:
            tools = {tool.name: tool for tool in await self.list_tools()}
            if self.prefix + name not in tools:
                return error_result(f"There is no tool {ascii(name[:80])}. The tools are {', '.join(sorted(tools))}.")
            schema = tools[self.prefix + name].input_schema
        known = schema.get("properties", {})
        if unknown := sorted(set(arguments) - set(known)):
            return error_result(f"{name} has no argument {', '.join(map(ascii, unknown))}. It has {', '.join(known)}.")
        for gate in self.gates:
            if context is not None and gate.asks(name, arguments):
                return await gate.call(name, arguments, context, self._call)
        return await self._call(name, arguments, context)

    async def _call(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        if self.late_tools is not None:
            self.late_tools.make(name)
        try:
            result = await super().call_tool(name, arguments, context)
            self._prepare_changes()
            return result
        except ToolError as error:
            if isinstance(error.__cause__, EvolvableError):
                return error_result(error.__cause__.text)
            if isinstance(error.__cause__, ValidationError):
                return error_result(invalid_arguments(name, error.__cause__))
            raise

    def _prepare_changes(self) -> None:
        """Import the scan once the client uses the library and is answered: its first change would wait for that."""
        if not self._prepared:
            self._prepared = True
            timer = threading.Timer(PREPARE_SECONDS, import_module, ["evolvable_tools.scan.scanner"])
            timer.daemon = True
            timer.start()

    async def list_prompts(self) -> list[types.Prompt]:
        """Return the prompts that are registered, then those of the library as it is now.

        A prompt of the library that is called like a registered one is left out: it could pass for it.
        """
        self._make_prompts()
        ours = await super().list_prompts()
        names = {prompt.name for prompt in ours}
        live = await self.live_prompts.everything() if self.live_prompts else []
        return [*ours, *(prompt for prompt in live if prompt.name not in names)]

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> types.GetPromptResult | types.InputRequiredResult:
        """Return a prompt. A mistake of the caller is the error "invalid params" with what, which and what next."""
        self._make_prompts()
        registered = {prompt.name for prompt in await super().list_prompts()}
        if self.live_prompts is not None and name not in registered:
            return await self.live_prompts.filled(name, arguments or {})
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            ours = _cause(error)
            if ours is None and not str(error).startswith("Missing required arguments"):
                raise
            raise MCPError(code=types.INVALID_PARAMS, message=ours.text if ours else f"{error}.") from None

    def _make_prompts(self) -> None:
        late, self.late_prompts = self.late_prompts, ()
        for make in late:
            self.add_prompt(make())


def _cause(error: BaseException | None) -> EvolvableError | None:
    """Return the error of ours that the SDK wrapped, if any."""
    while error is not None and not isinstance(error, EvolvableError):
        error = error.__cause__
    return error


TOOLS_FILE = Path(__file__).with_name("tools.json")


class LazyTools:
    """What is listed of some tools, and how they are made. declared: yields them in the list's order.

    small: only those of SMALL_TOOLS are there, and listed with the arguments that it names. They take the others too.
    """

    def __init__(
        self, server: LibraryServer, declared: Callable[[], "Iterator[ToolSpec]"], *, small: bool = False
    ) -> None:
        self._server, self.declared = server, declared
        tools = json.loads(TOOLS_FILE.read_text(encoding="utf-8"))
        tools = [tool for tool in tools if tool["name"] in SMALL_TOOLS] if small else tools
        self.schemas: dict[str, dict[str, Any]] = {tool["name"]: tool["inputSchema"] for tool in tools}
        self._tools = [small_tool(tool) for tool in tools] if small else tools
        self._waiting = set(self.schemas)

    @cached_property
    def listed(self) -> list[types.Tool]:
        """The tools as a client is told of them."""
        return [types.Tool.model_validate(tool) for tool in self._tools]

    def make(self, name: str) -> None:
        """Make the tool of this name, unless it is made already or is none of these."""
        if name not in self._waiting:
            return
        from evolvable_server.mcp.tools import add_tool

        add_tool(self._server, next(spec for spec in self.declared() if spec.tool.name == name))
        self._waiting.discard(name)


def add_lazy_tools(
    server: LibraryServer,
    library: Library,
    caller: Caller,
    sessions: CallSessions,
    settings: "SettingsFactory",
    *,
    delegates: bool = False,
    small: bool = False,
) -> None:
    """Add the tools over a library and those around reviews.

    settings: made when they are first needed. delegates: the server has `delegate_skill` too. small: the small group.
    """

    def declared() -> "Iterator[ToolSpec]":
        from evolvable_server.mcp.tools import Tools, declare_tools

        yield from declare_tools(Tools(library, caller, sessions, delegates=delegates), "library")
        from evolvable_server.mcp.review_tools import ReviewTools

        yield from declare_tools(ReviewTools(library, caller, sessions, settings), "review")

    server.late_tools = LazyTools(server, declared, small=small)


def add_hook_event(
    server: LibraryServer, config: Config, library: Library, caller: Caller, sessions: CallSessions
) -> None:
    """Make the server answer hooks, and learn from them which session its client is in."""

    async def hook_event(arguments: Mapping[str, Any], request: Any) -> types.CallToolResult:
        from evolvable_server.hooks.dispatch import HookDispatcher, parse_event

        event = parse_event(arguments)
        sessions.heard(event.session_id, event.tool_use_id if event.event == "PreToolUse" else "")
        own = session_of(request, event.session_id) if event.session_id else ""
        hooks = HookDispatcher(config, library, replace(caller, connection=connection_of(request, caller.connection)))
        text = await anyio.to_thread.run_sync(hooks.answer, {**arguments, "session_id": own})
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server.unlisted["hook_event"] = hook_event
