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
"""By tool, the fields that its answer has even when they are empty.

The caller asked for them, or their values are data.
"""

_EMPTY: tuple[Any, ...] = (None, "", [], {})


async def answer_on_thread(
    answer: Callable[..., T], *arguments: object, uri: str | None = None
) -> T:
    """Return the answer of a function that runs on a thread. Raise MCPError.

    uri: the URI that a request was about, for the error.
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
    """Return the result of a call in both its forms, without its empty fields.

    tool: None for a tool of the library, whose result stays as it is. A tool without a schema of
    its results chooses their fields itself.
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
    same = json.loads(as_json(structured), parse_float=_shorten_number)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=as_json(same))], structured_content=same
    )


def with_warnings(
    result: types.CallToolResult, tool: Tool | None, lines: Sequence[str]
) -> types.CallToolResult:
    """Return a result with these lines: at the end of `warnings`, else each as a text block.

    tool: the tool of the result, None for a tool of the library. Its schema says whether the result
    has `warnings`.
    """
    structured = result.structured_content
    schema = tool.output_schema if tool is not None else None
    fields = (schema or {}).get("properties", {})
    if structured is not None and "warnings" in fields:
        return structured_result(
            structured | {"warnings": [*structured.get("warnings", ()), *lines]}
        )
    blocks = [types.TextContent(type="text", text=line) for line in lines]
    return result.model_copy(update={"content": [*result.content, *blocks]})


def without_empty(value: Any, schema: Mapping[str, Any], kept_fields: Collection[str] = ()) -> Any:
    """Return a value without its empty fields: null, "", [], {}, and false where false is the
    default.

    schema: the schema of the value. Fields that it does not name, such as the keys of a map, are
    data and stay. kept_fields: fields that stay although they are empty.
    """
    return _drop_empty(value, schema, kept_fields, schema.get("$defs", {}))


def _drop_empty(
    value: Any, schema: Mapping[str, Any], kept_fields: Collection[str], parts: Mapping[str, Any]
) -> Any:
    schema = _resolve_schema(schema, parts)
    if isinstance(value, list):
        return [_drop_empty(item, schema.get("items", {}), kept_fields, parts) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    whole = dict[str, Any]()
    for name, field in value.items():
        part = schema["properties"].get(name, {})
        field = _drop_empty(field, part, kept_fields, parts)
        is_default_false = field is False and part.get("default") is False
        if name in kept_fields or not (field in _EMPTY or is_default_false):
            whole[name] = field
    return whole


def _resolve_schema(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without its reference, and without the option null."""
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
    optional = dict[str, Any]()
    for key, part in schema.items():
        if key in ("properties", "$defs"):
            # The keys of these maps are names, of which one may be `required`.
            optional[key] = {name: optional_fields(field) for name, field in part.items()}
        elif key != "required":
            optional[key] = optional_fields(part)
    return optional


def as_json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shorten_number(number: str) -> float | int:
    value = float(number)
    # JavaScript has no exact whole numbers beyond this.
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def error_result(text: str) -> types.CallToolResult:
    """Return the result of a call that failed, with a text for the model."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def invalid_arguments(name: str, error: ValidationError) -> str:
    """Return the error text for the arguments of a call that pydantic refused."""
    faults = []
    for fault in error.errors():
        place = ".".join(map(str, fault["loc"])) or "arguments"
        faults.append(f"{place}: {fault['msg'].lower()}")
    return f"{name} was called with arguments that do not fit. {'; '.join(faults)}."
