"""The MCP server over one library: its callers and their permissions, its lazy tools, and how tools
fail.

Making a tool takes longer than everything else before the first answer: the modules behind it, and
the schema from its signature. So the list is the file `tools.json`, which a test compares with the
tools, and each tool is made at its first call. The tool `hook_event`, which the hooks of clients
call, is not listed: a model must not see it.
"""

import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Protocol

import anyio.to_thread
import mcp_types as types
from mcp.server import CacheHint, MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from evolvable_server import hooks
from evolvable_server.config import SELF_CHECK, Config
from evolvable_server.mcp.call import Call, CallSessions, connection_of, session_of
from evolvable_server.mcp.results import (
    brief_result,
    error_result,
    invalid_arguments,
    with_warnings,
)
from evolvable_server.mcp.sdk_import import hidden_modules
from evolvable_store import __version__
from evolvable_store.errors import EvolvableError
from evolvable_tools import Caller, Library

# Start time: tools and hooks are imported at their first call.


PREPARE_SECONDS = 0.5
"""Seconds from the first answer of another tool than FIND to the import of the scan of changes."""

FIND = "find_skill"
"""The tool after which the scan, which takes 3 MB, is not imported.

A session that only searches changes nothing. One that changes a resource opens it first.
"""

INSTRUCTIONS = """\
Evolvable: a searchable, versioned library of skills (how-to guides for tasks). \
Call find_skill with your task before you start work; load_skill opens the match.
When you are done, call report_outcome with the use_id, so that the library learns what helps. \
Everything that changes the library (update_resource, restore_resource, remove_resource) makes a \
version that undo takes back; say why in `reason`. Read the head first and pass its version as \
expected_version. After long or corrected work, review_session proposes what to learn; \
review_inbox shows what waits for the user. \
Refs: skill:pdf is the newest version, skill:pdf@3 the third, skill:acme/pdf the one of project \
acme. \
Kinds: skill, prompt, agent, tool, environment, memory.
"""


class ToolGate(Protocol):
    """Asks for an approval before a tool runs."""

    def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call has to be approved."""

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Make the call, by `call`, once it is approved."""


class ToolSource(Protocol):
    """The approved tools of the library."""

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools, by name."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: Context[Any, Any] | None
    ) -> types.CallToolResult:
        """Run a tool. Return every error as a text for the model."""

    async def watch(self, notifier: Any) -> None:
        """Notify clients of each approved or withdrawn tool, for as long as the server runs."""


class LateTools(Protocol):
    """Tools that are listed before they are made."""

    schemas: dict[str, dict[str, Any]]
    """The schema of the arguments of each tool."""

    @property
    def listed_tools(self) -> list[types.Tool]:
        """The tools as a client is told of them."""

    def make(self, name: str) -> None:
        """Make the tool of this name, unless it is made already or is none of these."""


class LivePrompts(Protocol):
    """The prompts of a library, as they are now."""

    async def everything(self) -> list[types.Prompt]:
        """Return the prompts, by name."""

    async def fill_prompt(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """Return a prompt with its arguments.

        A mistake of the caller is the error "invalid params".
        """


class LibraryServer(MCPServer[Any]):
    """An MCPServer whose tools answer every mistake with a text that says what, which and what
    next.
    """

    late_tools: LateTools | None = None
    late_prompts: Iterable[Callable[[], Prompt]] = ()
    """Each makes a registered prompt, when a prompt is first asked for: their schemas take time."""

    live_prompts: LivePrompts | None = None
    approved_tools: ToolSource | None = None
    take_hints: Callable[[Any], Sequence[str]] | None = None
    """Returns the lines that the answer to a request tells its client, each line once."""

    prefix = ""
    """What stands before the name of each listed tool; a call may leave it out."""

    def __init__(self, *, tools_change: bool = False, **options: Any) -> None:
        """Make the server.

        tools_change: the list of tools changes while the server runs, as it has the library's own.
        """
        # The SDK makes a console of rich for its logging, which is of no use where logging is
        # configured.
        with hidden_modules("rich") if logging.getLogger().handlers else contextlib.nullcontext():
            self._init_sdk(tools_change, options)
        self.gates: list[ToolGate] = []
        self._prepared = False
        self.unlisted: dict[
            str, Callable[[Mapping[str, Any], Any], Awaitable[types.CallToolResult]]
        ] = {}
        """Tools that are not listed, because no model calls them.

        Each takes its arguments and the HTTP request, None over stdio.
        """

    def _init_sdk(self, tools_change: bool, options: dict[str, Any]) -> None:
        super().__init__(
            "evolvable",
            title="Evolvable",
            version=__version__,
            instructions=INSTRUCTIONS,
            log_level="WARNING",
            # Without the library's own, the tools never change while a server runs; resources may
            # at any moment.
            cache_hints={
                "tools/list": CacheHint(ttl_ms=0 if tools_change else 3_600_000),
                "resources/list": CacheHint(ttl_ms=0),
            },
            **options,
        )

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools that may not be made yet, then the others."""
        late = self.late_tools.listed_tools if self.late_tools else ()
        names = {tool.name for tool in late}
        # No known client reads an output schema, and together they would double the list.
        # docs/mcp.md has the fields.
        registered = (
            tool.model_copy(update={"output_schema": None}) for tool in await super().list_tools()
        )
        approved = await self.approved_tools.list_tools() if self.approved_tools else []
        tools = [*late, *(tool for tool in registered if tool.name not in names), *approved]
        if not self.prefix:
            return tools
        return [tool.model_copy(update={"name": self.prefix + tool.name}) for tool in tools]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Call a tool; a mistake of the caller comes back as an error text, never as a protocol
        error.
        """
        try:
            name = name.removeprefix(self.prefix)
            answer = await self._call_through_gates(name, arguments, context)
            tool = self._tool_manager.get_tool(name)
            return self._with_hints(brief_result(answer, tool), tool, context)
        except EvolvableError as error:
            # Before the tool ran, such as of its module, which could not be loaded.
            return error_result(error.text)

    async def _call_through_gates(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> types.CallToolResult | types.InputRequiredResult:
        if name in self.unlisted:
            return await self.unlisted[name](
                arguments, context.request_context.request if context else None
            )
        # The names of the library's tools begin so.
        if self.approved_tools is not None and name.startswith("tool_"):
            return await self.approved_tools.call(name, arguments, context)
        # The file that lists the tools has their schemas, so no tool is made for this check.
        schema = self.late_tools.schemas.get(name) if self.late_tools else None
        if schema is None:
            tools = {tool.name: tool for tool in await self.list_tools()}
            if self.prefix + name not in tools:
                return error_result(
                    f"There is no tool {ascii(name[:80])}. The tools are "
                    f"{', '.join(sorted(tools))}."
                )
            schema = tools[self.prefix + name].input_schema
        properties = schema.get("properties", {})
        # pydantic would drop them, and a misspelt argument would pass unnoticed.
        if unknown := sorted(set(arguments) - set(properties)):
            return error_result(
                f"{name} has no argument {', '.join(map(ascii, unknown))}. It has "
                f"{', '.join(properties)}."
            )
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
            if name != FIND:
                self._prepare_changes()
            return result
        except ToolError as error:
            if isinstance(error.__cause__, EvolvableError):
                return error_result(error.__cause__.text)
            if isinstance(error.__cause__, ValidationError):
                return error_result(invalid_arguments(name, error.__cause__))
            raise

    def _with_hints(
        self,
        result: types.CallToolResult | types.InputRequiredResult,
        tool: Tool | None,
        context: Context[Any, Any] | None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        if not isinstance(result, types.CallToolResult) or result.is_error:
            return result
        if self.take_hints is None or context is None:
            return result
        # Hints are given once, and a self-check shows them to nobody.
        if SELF_CHECK in (context.request_context.meta or {}):
            return result
        lines = self.take_hints(context.request_context)
        return with_warnings(result, tool, lines) if lines else result

    def _prepare_changes(self) -> None:
        """Import the scan after an answer, so that no change waits for the import."""
        if not self._prepared:
            self._prepared = True
            scanner = "evolvable_tools.scan.scanner"
            timer = threading.Timer(PREPARE_SECONDS, import_module, [scanner])
            # The end of the server does not wait for it.
            timer.daemon = True
            timer.start()

    async def list_prompts(self) -> list[types.Prompt]:
        """Return the prompts that are registered, then those of the library as it is now.

        A prompt of the library with the name of a registered one is left out: it could pass for it.
        """
        self._make_prompts()
        registered = await super().list_prompts()
        names = {prompt.name for prompt in registered}
        live = await self.live_prompts.everything() if self.live_prompts else []
        return [*registered, *(prompt for prompt in live if prompt.name not in names)]

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: Context[Any, Any] | None = None,
    ) -> types.GetPromptResult | types.InputRequiredResult:
        """Return a prompt.

        A mistake of the caller is the error "invalid params" with what, which and what next.
        """
        self._make_prompts()
        registered_names = {prompt.name for prompt in await super().list_prompts()}
        if self.live_prompts is not None and name not in registered_names:
            return await self.live_prompts.fill_prompt(name, arguments or {})
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            # The SDK raises ValueError for a mistake of the caller and for an error of ours.
            cause = _find_cause(error)
            if cause is None and not str(error).startswith("Missing required arguments"):
                raise
            message = cause.text if cause else f"{error}."
            raise MCPError(code=types.INVALID_PARAMS, message=message) from None

    def _make_prompts(self) -> None:
        # Taken before they are made, so that a second request does not add them again.
        late, self.late_prompts = self.late_prompts, ()
        for make in late:
            self.add_prompt(make())


def _find_cause(error: BaseException | None) -> EvolvableError | None:
    """Return the error of ours that the SDK wrapped, if any."""
    while error is not None and not isinstance(error, EvolvableError):
        error = error.__cause__
    return error


def add_hook_event(
    server: LibraryServer, config: Config, library: Library, caller: Caller, sessions: CallSessions
) -> None:
    """Make the server answer hooks, and learn from them which session its client is in."""

    async def hook_event(arguments: Mapping[str, Any], request: Any) -> types.CallToolResult:
        event = hooks.parse_event(arguments)
        # Only a hook before a tool announces the call of that tool.
        announced_call = event.tool_use_id if event.event == "PreToolUse" else ""
        sessions.note_session(event.session_id, announced_call)
        session = session_of(request, event.session_id) if event.session_id else ""
        client_caller = replace(caller, connection=connection_of(request, caller.connection))
        dispatcher = hooks.HookDispatcher(config, library, client_caller)
        fields = {**arguments, "session_id": session}
        text = await anyio.to_thread.run_sync(dispatcher.answer, fields)
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    server.unlisted["hook_event"] = hook_event
