"""The gate before what only a person decides: the one at the client is asked, and nothing happens without a yes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from evolvable_server.mcp import asking
from evolvable_server.mcp.bearer import name_of
from evolvable_server.mcp.server import Call
from evolvable_store.errors import EvolvableError


class Decision(ABC):
    """One kind of decision; over HTTP the permission of its bearer stands for the person."""

    locked: bool = False
    """Whether approvals are locked: then no answer in a client decides anything."""

    key: str
    """What the question is called between two calls of the modern era."""

    @abstractmethod
    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call decides something."""

    @abstractmethod
    def question(self, arguments: Mapping[str, Any]) -> str:
        """Returns what the person is asked. Raises EvolvableError when there is nothing to ask about."""

    @abstractmethod
    def by_hand(self, arguments: Mapping[str, Any], why: str) -> str:
        """Returns what the agent is told when nobody said yes: why, and what stays; never a command."""

    async def call(
        self, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Makes the call when a person says yes, or when its bearer is one who may decide."""
        if self.locked:
            return _refused(self.by_hand(arguments, "Approvals are locked, so no answer in a client decides"))
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        if modern and context.request_state is not None:
            answer = (context.input_responses or {}).get(self.key)
            return await self._answered(answer, tool, arguments, context, call)
        if not asking.may_ask(context):
            if name_of(context.request_context.request) is not None:
                return await call(tool, arguments, context)
            return _refused(self.by_hand(arguments, "No person can be asked through this client"))
        try:
            question = await run_sync(self.question, arguments)
        except EvolvableError as error:
            return _refused(error.text)
        if modern:
            return types.InputRequiredResult(
                input_requests={self.key: asking.request(context, question)}, request_state=self.key
            )
        return await self._answered(await asking.elicit(context, question), tool, arguments, context, call)

    async def _answered(
        self, answer: Any, tool: str, arguments: dict[str, Any], context: Context[Any, Any], call: Call
    ) -> types.CallToolResult | types.InputRequiredResult:
        if asking.said(context, answer) == "accept":
            return await call(tool, arguments, context)
        return _refused(self.by_hand(arguments, "The person or the client did not accept"))


def _refused(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
