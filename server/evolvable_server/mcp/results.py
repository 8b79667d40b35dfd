"""Results and errors of calls, in the forms that clients read."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import anyio.to_thread
import mcp_types as types
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from evolvable_store.errors import EvolvableError, LibraryError

T = TypeVar("T")

KEPT: Mapping[str, frozenset[str]] = {
    "compress_history": frozenset({"messages"}),
    "evolve_opportunities": frozenset({"found"}),
    "evolve_pending": frozenset({"packets"}),
    "get_variables": frozenset({"variables", "value"}),
    "load_contract": frozenset({"entries"}),
    "resource_history": frozenset({"versions"}),
    "review_inbox": frozenset({"proposals"}),
    "run_resource": frozenset({"text", "value"}),
}
"""By tool the fields that its answer has even when they are empty: what was asked for, and values
that are data.
"""

_EMPTY: tuple[Any, ...] = (None, "", [], {})


async def answer_on_thread(
    answer: Callable[..., T], *arguments: object, uri: str | None = None
) -> T:
    """Return the answer, found on a thread of its own; what is wrong with the question
    is -32602.
    """
    try:
        return await anyio.to_thread.run_sync(answer, *arguments)
    except EvolvableError as error:
        # A fault of the library is ours, any other one the caller's.
        code = types.INTERNAL_ERROR if isinstance(error, LibraryError) else types.INVALID_PARAMS
        raise MCPError(code=code, message=error.text, data={"uri": uri} if uri else None) from None


def brief_result(
    result: types.CallToolResult | types.InputRequiredResult, tool: Tool | None
) -> types.CallToolResult | types.InputRequiredResult:
    """Return the result of a call in both its forms, without the fields that say nothing.

    tool: of ours; None for a tool of the library, whose result stays as it is. One without a schema
    of its results chooses their fields itself.
    """
    structured = result.structured_content if isinstance(result, types.CallToolResult) else None
    # The SDK's form of a text.
    if tool is None or structured is None or structured.keys() == {"result"}:
        return result
    return structured_result(
        without_empty(structured, tool.output_schema or {}, KEPT.get(tool.name, ()))
    )


def structured_result(structured: dict[str, Any]) -> types.CallToolResult:
    """Return a structured result whose text is the same, as JSON on one line.

    Clients that show both forms to a model leave one out where they are equal. Some compare the
    texts, and JavaScript writes 1.0 as 1: so both forms have the whole number.
    """
    same = json.loads(as_json(structured), parse_float=_shortest)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=as_json(same))], structured_content=same
    )


def with_warnings(
    result: types.CallToolResult, tool: Tool | None, lines: Sequence[str]
) -> types.CallToolResult:
    """Return a result with these lines: at the end of `warnings` where its schema has them, else
    each as a text block.

    tool: that the result is of, None for one of the library.
    """
    structured = result.structured_content
    fields = (tool.output_schema or {}).get("properties", {}) if tool is not None else {}
    if structured is not None and "warnings" in fields:
        return structured_result(
            structured | {"warnings": [*structured.get("warnings", ()), *lines]}
        )
    blocks = [types.TextContent(type="text", text=line) for line in lines]
    return result.model_copy(update={"content": [*result.content, *blocks]})


def without_empty(value: Any, schema: Mapping[str, Any], kept_fields: Collection[str] = ()) -> Any:
    """Return a value without the fields of it that say nothing: null, "", [], {}, and false where
    that is the default.

    schema: of the value; what it does not name, such as the keys of a map, is data and stays.
    kept_fields: fields that stay.
    """
    return _without_empty(value, schema, kept_fields, schema.get("$defs", {}))


def _without_empty(
    value: Any, schema: Mapping[str, Any], kept_fields: Collection[str], parts: Mapping[str, Any]
) -> Any:
    schema = _resolve_schema(schema, parts)
    if isinstance(value, list):
        return [_without_empty(item, schema.get("items", {}), kept_fields, parts) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    whole = dict[str, Any]()
    for name, field in value.items():
        part = schema["properties"].get(name, {})
        field = _without_empty(field, part, kept_fields, parts)
        says_nothing = field in _EMPTY or (field is False and part.get("default") is False)
        if name in kept_fields or not says_nothing:
            whole[name] = field
    return whole


def _resolve_schema(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that is referred to; of a value that may be null that of the value."""
    for option in schema.get("anyOf", ()):
        if option != {"type": "null"}:
            schema = option
            break
    return parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def optional_fields(schema: Any) -> Any:
    """Return the schema of a result that may lack every field."""
    if isinstance(schema, list):
        return [optional_fields(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    keyed = {"properties", "$defs"}
    return {
        key: {name: optional_fields(field_schema) for name, field_schema in part.items()}
        if key in keyed
        else optional_fields(part)
        for key, part in schema.items()
        if key != "required"
    }


def as_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shortest(number: str) -> float | int:
    value = float(number)
    # JavaScript has no exact whole numbers beyond this.
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def error_result(text: str) -> types.CallToolResult:
    """Return the result of a call that failed, with a text for the model."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def invalid_arguments(name: str, error: ValidationError) -> str:
    """Return what is wrong with the arguments of a call."""
    parts = [
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg'].lower()}"
        for fault in error.errors()
    ]
    return f"{name} was called with arguments that do not fit. {'; '.join(parts)}."
