"""The gate before an adoption: the person at the client is asked what they are about to make live."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context

from evolvable_server.mcp.deciding import Decision
from evolvable_server.mcp.server import Call, Gate

MAX_DIFF = 3_000
"""Characters of the diff in the question."""


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
        """Returns what the person is asked: the verdict, and what would change."""
        from evolvable_tools.evolve import programs
        from evolvable_tools.evolve.driving import state_of
        from evolvable_tools.evolve.run_folder import the_run

        folder = the_run(self._home, arguments.get("run"))
        state = state_of(folder)
        verdict = state.verdict.get("verdict", "no verdict yet")
        lines = [f"Adopt what run {folder.id} found? {verdict} [{state.label}]: {state.verdict.get('why', '')}"]
        if digest := state.verdict.get("candidate"):
            lines.append(programs.diff(folder.program(state.base), folder.program(digest))[:MAX_DIFF])
        return "\n".join(lines)


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
