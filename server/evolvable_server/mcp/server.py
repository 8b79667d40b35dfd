"""The MCP server over one library: what it says of itself, and how its tools fail."""

from typing import Any

from mcp.server import CacheHint, MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, TextContent
from pydantic import ValidationError

from evolvable_store import __version__
from evolvable_store.errors import EvolvableError

INSTRUCTIONS = """\
Evolvable: a searchable, versioned library of skills (how-to guides for tasks). \
Call find_skill with your task before you start work; load_skill opens the match.
When you are done, call report_outcome with the use_id, so that the library learns what helps. \
Everything that changes the library (update_resource, restore_resource, remove_resource) makes a version that undo \
takes back; say why in `reason`. Read the head first and pass its version as expected_version. \
Refs: skill:pdf is the newest version, skill:pdf@3 the third, skill:acme/pdf the one of project acme. \
Kinds: skill, prompt, agent, tool, environment, memory.
"""


class LibraryServer(MCPServer[Any]):
    """An MCPServer whose tools answer every mistake with a text that says what, which and what next."""

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

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Calls a tool; a mistake of the caller comes back as an error text, never as a protocol error."""
        tools = {tool.name: tool for tool in await self.list_tools()}
        if name not in tools:
            return _failure(f"There is no tool {ascii(name[:80])}. The tools are {', '.join(sorted(tools))}.")
        known = tools[name].input_schema.get("properties", {})
        unknown = sorted(set(arguments) - set(known))
        if unknown:
            return _failure(f"{name} has no argument {', '.join(map(ascii, unknown))}. It has {', '.join(known)}.")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, EvolvableError):
                return _failure(error.__cause__.text)
            if isinstance(error.__cause__, ValidationError):
                return _failure(_invalid(name, error.__cause__))
            raise


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _invalid(name: str, error: ValidationError) -> str:
    parts = [f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg'].lower()}" for fault in error.errors()]
    return f"{name} was called with arguments that do not fit. {'; '.join(parts)}."
