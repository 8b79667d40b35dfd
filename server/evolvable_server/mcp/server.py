"""The MCP server over one library: what it says of itself, and how its tools fail."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from mcp.server import CacheHint, MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    GetPromptResult,
    InputRequiredResult,
    Prompt,
    TextContent,
    Tool,
)
from pydantic import ValidationError

from evolvable_store import __version__
from evolvable_store.errors import EvolvableError

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


Call = Callable[[str, dict[str, Any], Context[Any, Any]], Awaitable[CallToolResult | InputRequiredResult]]
"""Calls a tool of this name with these arguments."""


class Gate(Protocol):
    """Who has to be asked before a tool does what it is called for."""

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call has to be approved."""

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> CallToolResult | InputRequiredResult:
        """Makes the call, by `call`, once it is approved."""


class LivePrompts(Protocol):
    """Prompts that are not registered once, but looked up for every question."""

    async def everything(self) -> list[Prompt]:
        """Returns all there are."""

    async def filled(self, name: str, arguments: Mapping[str, str]) -> GetPromptResult:
        """Returns one with its arguments filled in. Raises MCPError."""


class ToolsByName(Protocol):
    """Tools that are listed before they are made."""

    @property
    def listed(self) -> Sequence[Tool]:
        """What is listed of them."""

    def make(self, name: str) -> None:
        """Makes the one of this name, unless it is made already or is none of these."""


class LibraryServer(MCPServer[Any]):
    """An MCPServer whose tools answer every mistake with a text that says what, which and what next."""

    late_tools: ToolsByName | None = None
    live_prompts: LivePrompts | None = None
    approvals: Gate | None = None
    decisions: Gate | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(
            "evolvable",
            title="Evolvable",
            version=__version__,
            instructions=INSTRUCTIONS,
            log_level="WARNING",
            # The tools never change while a server runs; what lists resources may change at any moment.
            cache_hints={"tools/list": CacheHint(ttl_ms=3_600_000), "resources/list": CacheHint(ttl_ms=0)},
            **options,
        )
        self.unlisted: dict[str, Callable[[Mapping[str, Any], Any], Awaitable[CallToolResult]]] = {}
        """Tools that answer and are not listed, as what calls them is no model: of arguments and the HTTP request."""

    async def list_tools(self) -> list[Tool]:
        """Returns the tools that may not be made yet, then the others."""
        late = self.late_tools.listed if self.late_tools else ()
        names = {tool.name for tool in late}
        return [*late, *(tool for tool in await super().list_tools() if tool.name not in names)]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Calls a tool; a mistake of the caller comes back as an error text, never as a protocol error."""
        if name in self.unlisted:
            return await self.unlisted[name](arguments, context.request_context.request if context else None)
        tools = {tool.name: tool for tool in await self.list_tools()}
        if name not in tools:
            return _failure(f"There is no tool {ascii(name[:80])}. The tools are {', '.join(sorted(tools))}.")
        known = tools[name].input_schema.get("properties", {})
        unknown = sorted(set(arguments) - set(known))
        if unknown:
            return _failure(f"{name} has no argument {', '.join(map(ascii, unknown))}. It has {', '.join(known)}.")
        for gate in (self.approvals, self.decisions):
            if gate is not None and context is not None and await gate.asks(name, arguments):
                return await gate.call(name, arguments, context, self._call)
        return await self._call(name, arguments, context)

    async def _call(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None
    ) -> CallToolResult | InputRequiredResult:
        if self.late_tools is not None:
            self.late_tools.make(name)
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, EvolvableError):
                return _failure(error.__cause__.text)
            if isinstance(error.__cause__, ValidationError):
                return _failure(_invalid(name, error.__cause__))
            raise

    async def list_prompts(self) -> list[Prompt]:
        """Returns the prompts that are registered, then those of the library as it is now."""
        return [*await super().list_prompts(), *(await self.live_prompts.everything() if self.live_prompts else [])]

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """Returns a prompt. A mistake of the caller is the error "invalid params" with what, which and what next."""
        registered = {prompt.name for prompt in await super().list_prompts()}
        if self.live_prompts is not None and name not in registered:
            return await self.live_prompts.filled(name, arguments or {})
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as error:
            ours = _cause(error)
            if ours is None and not str(error).startswith("Missing required arguments"):
                raise
            raise MCPError(code=INVALID_PARAMS, message=ours.text if ours else f"{error}.") from None


def _cause(error: BaseException | None) -> EvolvableError | None:
    """Returns the error of ours that the SDK wrapped, if any."""
    while error is not None and not isinstance(error, EvolvableError):
        error = error.__cause__
    return error


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _invalid(name: str, error: ValidationError) -> str:
    parts = [f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg'].lower()}" for fault in error.errors()]
    return f"{name} was called with arguments that do not fit. {'; '.join(parts)}."
