"""The tools, resources and prompts with fixed names that the conformance suite calls, added to the
real server.

What each has to say is laid down by the suite's scenarios. Nothing of this is part of the product.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import mcp_types as types
from asking import ASKING, TEXT, form
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import Field

from evolvable_server.mcp.server import LibraryServer

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/"
    "iZk9HQAAAABJRU5ErkJggg=="
)
WAV = base64.b64encode(
    b"RIFF\x26\0\0\0WAVEfmt "
    b"\x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x02\0\0\0\0\0"
).decode()


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, words: str, mime: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(
        type="resource", resource=types.TextResourceContents(uri=uri, text=words, mime_type=mime)
    )


# Tools


def test_simple_text() -> types.CallToolResult:
    return types.CallToolResult(content=[text("This is a simple text response for testing.")])


def test_image_content() -> types.CallToolResult:
    return types.CallToolResult(content=[image()])


def test_audio_content() -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")]
    )


def test_embedded_resource() -> types.CallToolResult:
    return types.CallToolResult(
        content=[embedded("test://embedded-resource", "This is an embedded resource content.")]
    )


def test_multiple_content_types() -> types.CallToolResult:
    data = json.dumps({"test": "data", "value": 123})
    mixed = embedded("test://mixed-content-resource", data, "application/json")
    return types.CallToolResult(content=[text("Multiple content types test:"), image(), mixed])


def test_error_handling() -> types.CallToolResult:
    raise ToolError("This tool intentionally returns an error for testing")


async def test_tool_with_logging(ctx: Context) -> str:
    for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message("info", step, related_request_id=ctx.request_id)
        await asyncio.sleep(0.05)
    return "logged"


async def test_tool_with_progress(ctx: Context) -> str:
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
        await asyncio.sleep(0.05)
    return "done"


async def test_sampling(prompt: str, ctx: Context) -> str:
    asked = [types.SamplingMessage(role="user", content=text(prompt))]
    answer = await ctx.session.create_message(
        asked, max_tokens=100, related_request_id=ctx.request_id
    )
    return f"LLM response: {getattr(answer.content, 'text', '')}"


async def test_missing_capability(ctx: Context) -> str:
    if ctx.client_capabilities is None or ctx.client_capabilities.sampling is None:
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="This tool needs a client that samples.",
            data={"requiredCapabilities": {"sampling": {}}},
        )
    return "the client samples"


async def test_reconnection(ctx: Context) -> str:
    await ctx.close_sse_stream()
    await asyncio.sleep(0.2)
    return "Reconnection test completed"


async def test_trigger_tool_change(ctx: Context) -> str:
    await ctx.notify_tools_changed()
    return "said"


async def test_trigger_prompt_change(ctx: Context) -> str:
    await ctx.notify_prompts_changed()
    return "said"


def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "none",
) -> str:
    return f"region={region}"


def json_schema_2020_12_tool() -> str:
    return "its schema is what is looked at"


SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

TOOLS: tuple[Callable[..., Any], ...] = (
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_logging,
    test_tool_with_progress,
    test_sampling,
    test_missing_capability,
    test_reconnection,
    test_trigger_tool_change,
    test_trigger_prompt_change,
    test_x_mcp_header,
    json_schema_2020_12_tool,
)


def add_tools(server: LibraryServer) -> None:
    for function in TOOLS:
        server.add_tool(function, description="a fixture", structured_output=False)
    for name, function in ASKING.items():
        server.add_tool(
            function, name=name, description="a fixture that asks", structured_output=False
        )
    schema = server._tool_manager.get_tool("json_schema_2020_12_tool")
    assert schema is not None
    schema.parameters = SCHEMA_2020_12


# Resources and prompts stand before the real handlers, which answer everything else.


def read(uri: str) -> types.TextResourceContents | types.BlobResourceContents | None:
    """Returns the fixture at this URI, None for any other."""
    if uri == "test://static-binary":
        return types.BlobResourceContents(uri=uri, blob=PNG, mime_type="image/png")
    if uri == "test://static-text":
        words, mime = "This is the content of the static text resource.", "text/plain"
    elif uri == "test://watched-resource":
        words, mime = "Watched resource content", "text/plain"
    elif uri.startswith("test://template/") and uri.endswith("/data"):
        key = uri.split("/")[3]
        words = json.dumps({"id": key, "templateTest": True, "data": f"Data for ID: {key}"})
        mime = "application/json"
    else:
        return None
    return types.TextResourceContents(uri=uri, text=words, mime_type=mime)


def prompt(
    params: types.GetPromptRequestParams,
) -> types.GetPromptResult | types.InputRequiredResult | None:
    """Returns what the fixture of this name says, None for any other prompt."""
    values = params.arguments or {}
    said: list[types.ContentBlock]
    if params.name == "test_simple_prompt":
        said = [text("This is a simple prompt for testing.")]
    elif params.name == "test_prompt_with_arguments":
        said = [text(f"Prompt with arguments: arg1='{values['arg1']}', arg2='{values['arg2']}'")]
    elif params.name == "test_prompt_with_embedded_resource":
        resource = embedded(values["resourceUri"], "Embedded resource content for testing.")
        said = [resource, text("Please process the embedded resource above.")]
    elif params.name == "test_prompt_with_image":
        said = [image(), text("Please analyze the image above.")]
    elif params.name == "test_input_required_result_prompt":
        answer = (params.input_responses or {}).get("user_context")
        if not isinstance(answer, types.ElicitResult):
            return types.InputRequiredResult(
                input_requests={"user_context": form("Which context?", context=TEXT)}
            )
        said = [text(f"Use this context: {(answer.content or {}).get('context')}")]
    else:
        return None
    return types.GetPromptResult(
        messages=[types.PromptMessage(role="user", content=block) for block in said]
    )


Handler = Callable[[Any, Any], Awaitable[Any]]


def add_resources_and_prompts(server: LibraryServer) -> None:
    low = server._lowlevel_server
    resources, prompts = (
        low.get_request_handler("resources/read"),
        low.get_request_handler("prompts/get"),
    )
    assert resources is not None and prompts is not None
    read_real: Handler = resources.handler
    prompt_real: Handler = prompts.handler

    async def read_any(ctx: Any, params: types.ReadResourceRequestParams) -> Any:
        found = read(str(params.uri))
        return types.ReadResourceResult(contents=[found]) if found else await read_real(ctx, params)

    async def prompt_any(ctx: Any, params: types.GetPromptRequestParams) -> Any:
        return prompt(params) or await prompt_real(ctx, params)

    low.add_request_handler("resources/read", types.ReadResourceRequestParams, read_any)
    low.add_request_handler("prompts/get", types.GetPromptRequestParams, prompt_any)


def add_fixtures(server: LibraryServer) -> None:
    """Adds every fixture to a server that is otherwise complete."""
    add_tools(server)
    add_resources_and_prompts(server)
