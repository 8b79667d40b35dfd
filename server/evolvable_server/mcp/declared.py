"""How a tool is declared, and made: a function whose signature is its schema and whose docstring is its description."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp_types import ToolAnnotations

from evolvable_server.mcp.server import LibraryServer

READ = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
NOTE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
TAKES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)
"""Takes away, takes back or replaces what others did. `codex exec` refuses such tools."""

RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
"""Executes commands, asks models and may spend money."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A tool that is not made yet. Its name is the function's."""

    function: Callable[..., Any]
    title: str
    annotations: ToolAnnotations
    structured: bool = True
    meta: dict[str, Any] | None = None


def add_tool(server: LibraryServer, tool: Declared) -> None:
    """Makes a tool of the server; what a client shows of it is its docstring on one line."""
    # structured=True makes the SDK refuse a result type it cannot read (a dataclass with slots), instead of
    # silently sending text alone.
    server.add_tool(
        tool.function,
        title=tool.title,
        annotations=tool.annotations,
        structured_output=tool.structured,
        meta=tool.meta,
    )
    # Unknown arguments are refused (see LibraryServer.call_tool); the schema says so.
    added = server._tool_manager.get_tool(tool.function.__name__)
    assert added is not None
    added.parameters["additionalProperties"] = False
    added.description = " ".join(added.description.split())
