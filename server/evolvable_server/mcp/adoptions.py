"""The gate before an adoption: the person at the client is asked what they are about to make live."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from evolvable_server.mcp.approvals import NOTHING_TO_FILL, elicit, may_ask
from evolvable_server.mcp.bearer import name_of
from evolvable_server.mcp.server import Call, Gate
from evolvable_store.errors import EvolvableError

MAX_DIFF = 3_000
"""Characters of the diff in the question."""

_KEY = "adopt"


class Adoptions:
    """Asks a person before what a run promoted becomes the library's; over HTTP its bearer's permission decides."""

    def __init__(self, home: Path) -> None:
        self._home = home

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call adopts something."""
        return tool == "evolve_adopt"

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Makes the call when a person says yes, or when its bearer is one who may decide."""
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if modern and context.request_state is not None:
            answer = (context.input_responses or {}).get(_KEY)
            return await self._answered(answer, tool, arguments, context, call)
        if not may_ask(context):
            if name_of(context.request_context.request) is not None:
                return await call(tool, arguments, context)
            return _by_hand(arguments, "No person can be asked through this client")
        try:
            question = await run_sync(self._question, arguments.get("run"))
        except EvolvableError as error:
            return _text(error.text)
        if modern:
            form = types.ElicitRequestFormParams(message=question, requested_schema=NOTHING_TO_FILL)
            return types.InputRequiredResult(
                input_requests={_KEY: types.ElicitRequest(params=form)}, request_state=_KEY
            )
        return await self._answered(await elicit(context, question), tool, arguments, context, call)

    async def _answered(
        self, answer: Any, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        if isinstance(answer, types.ElicitResult) and answer.action == "accept":
            return await call(tool, arguments, context)
        return _by_hand(arguments, "The person or the client did not accept")

    def _question(self, run: str | None) -> str:
        """Returns what the person is asked: the verdict, and what would change."""
        from evolvable_tools.evolve import programs
        from evolvable_tools.evolve.driving import state_of
        from evolvable_tools.evolve.run_folder import the_run

        folder = the_run(self._home, run)
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


def _by_hand(arguments: Mapping[str, Any], why: str) -> types.CallToolResult:
    run = f" {arguments['run']}" if arguments.get("run") else ""
    return _text(f"{why}, and only a person adopts. Nothing changed; `evolvable evolve adopt{run}` does it by hand.")


def _text(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
