"""The gate before an adoption: the person at the client is asked what they are about to make live."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context

from evolvable_server.mcp.deciding import Decision
from evolvable_server.mcp.server import Call, Gate
from evolvable_store.errors import Refused

MAX_QUESTION = 60_000
"""Characters of a question; a longer change is adopted by hand, where all of it is shown."""


class Adoptions(Decision):
    """Asks a person before what a run promoted becomes the library's."""

    key = "adopt"

    def __init__(self, home: Path) -> None:
        self._home = home

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call adopts something."""
        return tool == "evolve_adopt"

    def by_hand(self, arguments: Mapping[str, Any], why: str) -> str:
        """Returns what the agent is told when nobody said yes."""
        return f"{why}, and only a person adopts what a run found. Nothing changed; the run and its report stay."

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Return the question: the verdict, the capabilities and findings of the scan, and the whole difference.

        Raises NotPromoted, Refused for a change that is too long for a question.
        """
        from evolvable_tools.evolve.deploy import preview_adoption

        shown = preview_adoption(self._home, arguments.get("run"))
        lines = [f"Adopt what run {shown.run} found? {shown.verdict} [{shown.label}]: {shown.why}"]
        for title, rows in (("It can do now", shown.capabilities), ("The scan found", shown.findings)):
            lines += [f"{title}:", *(f"- {row}" for row in rows)] if rows else [f"{title}: nothing new."]
        text = "\n".join([*lines, shown.diff])
        if len(text) > MAX_QUESTION:
            raise Refused(
                f"The change of run {shown.run} has {len(shown.diff):,} characters, too many for one question.",
                "A person adopts it at a terminal, where all of it is shown.",
            )
        return text


class AnyOf:
    """Several gates as one: the first that wants to be asked is."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(gates)

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether any of them has to be asked."""
        return any([await gate.asks(tool, arguments) for gate in self._gates])

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Makes the call by the first gate that has to be asked."""
        for gate in self._gates:
            if await gate.asks(tool, arguments):
                return await gate.call(tool, arguments, context, call)
        return await call(tool, arguments, context)
