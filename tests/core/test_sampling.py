"""The client's own model as a thinker, in both eras, with the SDK's own client."""

import json
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from evolvable_server.mcp.sampling import SamplingModel, sampling_model
from evolvable_tools.llm.language_model import ProviderError, Request

SCHEMA = {"type": "object", "properties": {"choice": {"type": "string"}}, "required": ["choice"]}
ASKED = Request("Choose one.", '{"task": "fill in a form"}', SCHEMA, max_tokens=77)

pytestmark = pytest.mark.anyio


def server(timeout: float = 30.0) -> MCPServer[Any]:
    """One tool that thinks with the client's model, where there is one."""
    made = MCPServer("sampling", log_level="ERROR")

    @made.tool(structured_output=False)
    def choose(ctx: Context) -> str:
        thinker = sampling_model(ctx, timeout)
        if thinker is None:
            return "nobody"
        try:
            return f"{thinker.name} {json.dumps(thinker.think(ASKED))}"
        except ProviderError as error:
            return f"failed: {error.text}"

    return made


class Model:
    """A client's model; keeps what it was asked."""

    def __init__(self, content: types.SamplingContent | Exception) -> None:
        self._content, self.asked = content, list[types.CreateMessageRequestParams]()

    async def __call__(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        self.asked.append(params)
        if isinstance(self._content, Exception):
            return types.ErrorData(code=-1, message=str(self._content))
        return types.CreateMessageResult(
            role="assistant", model="clients-own", content=self._content
        )


def written(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


async def asked(model: Any, mode: str = "legacy", timeout: float = 30.0) -> str:
    with anyio.fail_after(20):
        async with Client(server(timeout), mode=mode, sampling_callback=model) as client:  # type: ignore[arg-type]
            result = await client.call_tool("choose", {})
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def test_a_client_that_lends_its_model_is_asked_with_instructions_and_data_apart() -> None:
    model = Model(written('Well: {"choice": "A"}'))

    assert await asked(model) == 'sampling:mcp {"choice": "A"}'

    (params,) = model.asked
    assert params.system_prompt is not None
    assert params.system_prompt.startswith("Choose one.\n")
    assert json.dumps(SCHEMA) in params.system_prompt
    (message,) = params.messages
    assert message.content == written(ASKED.data)
    assert params.max_tokens == 77


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_that_lends_none_is_left_alone(mode: str) -> None:
    assert await asked(None, mode) == "nobody"


async def test_in_the_modern_era_nobody_is_asked_in_the_middle_of_a_call() -> None:
    model = Model(written('{"choice": "A"}'))

    assert await asked(model, "auto") == "nobody"
    assert not model.asked


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PermissionError("the person said no"), "did not answer: the person said no"),
        (written("A, I think"), "without a JSON object: A, I think"),
        (written('{"chosen": "A"}'), "by another schema"),
        (
            types.ImageContent(type="image", data="AA==", mime_type="image/png"),
            "answered with image",
        ),
    ],
    ids=["refuses", "prose", "schema", "picture"],
)
async def test_what_is_no_answer_is_a_failure_that_is_told(
    content: types.SamplingContent | Exception, said: str
) -> None:
    answer = await asked(Model(content))

    assert answer.startswith("failed: sampling:mcp ")
    assert said in answer


async def test_a_person_who_never_allows_it_holds_the_call_up_no_longer_than_the_timeout() -> None:
    async def never(context: ClientRequestContext, params: Any) -> types.CreateMessageResult:
        await anyio.sleep_forever()
        raise AssertionError

    assert "failed: sampling:mcp did not answer" in await asked(never, timeout=0.2)


async def test_a_thinker_away_from_a_worker_thread_fails_clearly() -> None:
    said: list[str] = []
    made = MCPServer("sampling", log_level="ERROR")

    @made.tool(structured_output=False)
    async def choose(ctx: Context) -> str:
        try:
            SamplingModel(ctx).think(ASKED)
        except ProviderError as error:
            said.append(error.text)
        return ""

    async with Client(made, mode="legacy", sampling_callback=Model(written("{}"))) as client:
        await client.call_tool("choose", {})

    assert "cannot be asked from here" in said[0]
