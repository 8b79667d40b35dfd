"""The model of a client, lent for the time of a call by MCP sampling.

Sampling is used in the handshake protocol versions alone, where a server may send a request during
a call. In the modern version the call would end and be repeated with the answer; there the caller
chooses.
"""

from functools import partial
from typing import Any

import anyio
import anyio.from_thread
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from evolvable_tools.llm import (
    LanguageModel,
    ProviderError,
    Request,
    instructions_with_schema,
    parse_answer,
    printable_line,
)

TIMEOUT = 60.0
"""Seconds for an answer; a person may have to allow it first."""

_ELSE = "Choose by yourself, or give the server another provider."


def sampling_model(ctx: Context, timeout: float = TIMEOUT) -> LanguageModel | None:
    """Return the client's model for the time of this call; None when the client does not lend it.

    It may think only on a worker thread of anyio, as functions of tools run on.
    """
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        return None
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or not ctx.session.can_send_request:
        return None
    return SamplingModel(ctx, timeout)


class SamplingModel:
    """The model of the client that made a call. `timeout`: seconds for an answer."""

    def __init__(self, ctx: Context, timeout: float = TIMEOUT) -> None:
        self._ctx, self._timeout = ctx, timeout
        params = ctx.session.client_params
        self.name = f"sampling:{printable_line(params.client_info.name) if params else 'client'}"

    def think(self, request: Request) -> dict[str, Any]:
        """Return the client's answer. Raises ProviderError."""
        try:
            result = anyio.from_thread.run(partial(self._sample, request))
        except MCPError as error:
            raise ProviderError(
                f"{self.name} did not answer: {printable_line(str(error))}", _ELSE
            ) from None
        except (RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise ProviderError(
                f"{self.name} cannot be asked from here: {printable_line(str(error))}", _ELSE
            ) from None
        except ValidationError:
            raise ProviderError(
                f"{self.name} answered with something that is no message.", _ELSE
            ) from None
        if not isinstance(result.content, TextContent):
            raise ProviderError(
                f"{self.name} answered with {result.content.type} and not with text.", _ELSE
            )
        return parse_answer([result.content.text], request.schema, self.name)

    async def _sample(self, request: Request) -> CreateMessageResult:
        # create_message would do the same and warn that sampling is deprecated, at each call.
        message = SamplingMessage(role="user", content=TextContent(type="text", text=request.data))
        params = CreateMessageRequestParams(
            messages=[message],
            system_prompt=instructions_with_schema(request),
            max_tokens=request.max_tokens,
        )
        answer: CreateMessageResult = await self._ctx.session.send_request(
            CreateMessageRequest(params=params),
            CreateMessageResult,
            request_read_timeout_seconds=self._timeout,
            # Over HTTP, the question goes out on the stream of the call.
            metadata=ServerMessageMetadata(related_request_id=self._ctx.request_id),
        )
        return answer
