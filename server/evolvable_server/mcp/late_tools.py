"""The tools that every client is offered: listed from a file, and each made when it is first called.

What makes a tool takes longer than all else that a server does before its first answer: the modules behind it, and
the schemas that are worked out from its signature. So the list is kept beside this module, as `tools.json`. A test
holds it to what the tools themselves say.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_types import Tool

from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.sessions import Sessions
from evolvable_tools.library import Caller, Library

if TYPE_CHECKING:
    from evolvable_server.mcp.declared import Declared
    from evolvable_server.mcp.reviewing import Settings

LIST = Path(__file__).with_name("tools.json")


class LateTools:
    """What is listed of some tools, and how they are made. groups: each returns some of them, in the list's order."""

    def __init__(self, server: LibraryServer, groups: Sequence[Callable[[], "Iterable[Declared]"]]) -> None:
        self._server, self._groups = server, groups
        self.listed = [Tool.model_validate(tool) for tool in json.loads(LIST.read_text(encoding="utf-8"))]
        self._waiting = {tool.name for tool in self.listed}

    def make(self, name: str) -> None:
        """Makes the tool of this name, unless it is made already or is none of these."""
        if name not in self._waiting:
            return
        from evolvable_server.mcp.declared import add_tool

        add_tool(self._server, next(tool for tool in self.declared() if tool.function.__name__ == name))
        self._waiting.discard(name)

    def declared(self) -> "Iterator[Declared]":
        """Yields the tools as the list has to name them, in its order."""
        for group in self._groups:
            yield from group()


def add_late_tools(
    server: LibraryServer, library: Library, caller: Caller, sessions: Sessions, settings: "Settings"
) -> None:
    """Adds the tools over a library and those around reviews. settings: made when they are first needed."""

    def over_the_library() -> "Iterable[Declared]":
        from evolvable_server.mcp.tools import library_tools

        return library_tools(library, caller, sessions)

    def around_reviews() -> "Iterable[Declared]":
        from evolvable_server.mcp.reviewing import review_tools

        return review_tools(library, caller, sessions, settings)

    server.late_tools = LateTools(server, (over_the_library, around_reviews))
