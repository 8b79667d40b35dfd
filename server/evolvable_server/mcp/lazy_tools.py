"""The tools that a server lists from a file, and makes at their first calls."""

import json
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types as types

from evolvable_server.mcp.call import CallSessions
from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.small_tools import SMALL_TOOLS, small_tool
from evolvable_tools import Caller, Library

if TYPE_CHECKING:
    from evolvable_server.mcp.review_tools import SettingsFactory
    from evolvable_server.mcp.tools import Tools, ToolSpec

# Start time: the modules of tools are imported at their first call.

TOOLS_FILE = Path(__file__).with_name("tools.json")


class LazyTools:
    """Tools that are listed from a file and made at their first calls.

    declared: yields the tools in the order of the list. small: only the tools of SMALL_TOOLS are
    there, and listed with the arguments that it names. They accept the others too.
    """

    def __init__(
        self,
        server: LibraryServer,
        declared: Callable[[], "Iterator[ToolSpec]"],
        *,
        small: bool = False,
    ) -> None:
        self._server, self.declared = server, declared
        tools = json.loads(TOOLS_FILE.read_text(encoding="utf-8"))
        if small:
            tools = [tool for tool in tools if tool["name"] in SMALL_TOOLS]
        self.schemas: dict[str, dict[str, Any]] = {
            tool["name"]: tool["inputSchema"] for tool in tools
        }
        self._tools = [small_tool(tool) for tool in tools] if small else tools
        self._unmade = set(self.schemas)

    @cached_property
    def listed_tools(self) -> list[types.Tool]:
        """The tools as a client is told of them."""
        return [types.Tool.model_validate(tool) for tool in self._tools]

    def make(self, name: str) -> None:
        """Make the tool of this name, unless it is made already or is none of these."""
        if name not in self._unmade:
            return
        from evolvable_server.mcp.tools import add_tool

        add_tool(self._server, next(spec for spec in self.declared() if spec.tool.name == name))
        self._unmade.discard(name)


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

    settings: made when they are first needed. delegates: the server has `delegate_skill` too.
    small: the small group.
    """

    @cache
    def tools() -> "Tools":
        from evolvable_server.mcp.tools import Tools

        # One instance: a search leaves its task type for a load.
        return Tools(library, caller, sessions, delegates=delegates)

    def declare_all() -> "Iterator[ToolSpec]":
        from evolvable_server.mcp.tools import declare_tools

        yield from declare_tools(tools(), "library")
        from evolvable_server.mcp.review_tools import ReviewTools

        yield from declare_tools(ReviewTools(library, caller, sessions, settings), "review")

    server.late_tools = LazyTools(server, declare_all, small=small)
