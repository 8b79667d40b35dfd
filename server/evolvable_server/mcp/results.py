"""Results and errors of calls, in the forms that clients read."""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from evolvable_store.errors import EvolvableError, LibraryError

T = TypeVar("T")


async def answered(answer: Callable[..., T], *arguments: object, uri: str | None = None) -> T:
    """Return the answer, found on a thread of its own; what is wrong with the question is -32602."""
    try:
        return await anyio.to_thread.run_sync(answer, *arguments)
    except EvolvableError as error:
        code = types.INTERNAL_ERROR if isinstance(error, LibraryError) else types.INVALID_PARAMS
        raise MCPError(code=code, message=error.text, data={"uri": uri} if uri else None) from None


def structured_result(structured: dict[str, Any]) -> types.CallToolResult:
    """Return a structured result whose text is the same, as JSON on one line.

    Clients that show both forms to a model leave one out where they are equal. Some compare the texts,
    and JavaScript writes 1.0 as 1: so both forms have the whole number.
    """
    same = json.loads(as_json(structured), parse_float=_shortest)
    return types.CallToolResult(content=[types.TextContent(type="text", text=as_json(same))], structured_content=same)


def with_warnings(result: types.CallToolResult, lines: Sequence[str]) -> types.CallToolResult:
    """Return a result with these lines: at the end of its `warnings`, else each as a text block of its own."""
    structured = result.structured_content
    if structured is not None and isinstance(structured.get("warnings"), list):
        return structured_result(structured | {"warnings": [*structured["warnings"], *lines]})
    blocks = [types.TextContent(type="text", text=line) for line in lines]
    return result.model_copy(update={"content": [*result.content, *blocks]})


def as_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shortest(number: str) -> float | int:
    value = float(number)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def error_result(text: str) -> types.CallToolResult:
    """Return the result of a call that failed, with a text for the model."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def invalid_arguments(name: str, error: ValidationError) -> str:
    """Return what is wrong with the arguments of a call."""
    parts = [f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg'].lower()}" for fault in error.errors()]
    return f"{name} was called with arguments that do not fit. {'; '.join(parts)}."
