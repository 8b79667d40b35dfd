"""Every way in which a model is asked sends the key to one server, and one module alone writes it
into a header.
"""

import ast
import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from evolving import a_program, a_task
from mcp import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from model_api import ModelApi, Reply, chats, responds, says

import evolvable_evolve
import evolvable_tools
from evolvable_evolve.evolution.executors.model_api import ApiSettings, ModelExecutor
from evolvable_evolve.evolution.proposers.proposer_model import (
    ModelQuestion,
    ModelRole,
    ModelSpec,
    NoAnswer,
)
from evolvable_server.config import read_config
from evolvable_server.mcp.sampling import sampling_model
from evolvable_server.model_setup import make_judge
from evolvable_tools.llm.conversation import Conversation, ConversationSettings, TurnFailed
from evolvable_tools.llm.endpoint import ModelEndpoint
from evolvable_tools.llm.language_model import ProviderError, Request
from evolvable_tools.llm.transport import (
    API_KEY,
    BEARER,
    ForeignAddress,
    RequestRules,
    async_http_client,
    http_client,
    key_header,
)

KEY = "sk-secret-of-the-test"
SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
QUESTION = Request("Say a word.", "{}", SCHEMA)
WRITTEN = {"anthropic": says, "openai-chat": chats, "openai-responses": responds}


def endpoint(protocol: str, url: str) -> ModelEndpoint:
    return ModelEndpoint("local", protocol, "m", url, key=KEY)


def ask_once(protocol: str, url: str, folder: Path) -> None:
    """As a reviewer, a judge and `evolvable model test` do."""
    model = endpoint(protocol, url).open(5.0)
    try:
        model.think(QUESTION)
    finally:
        model.close()


def ask_as_proposer(protocol: str, url: str, folder: Path) -> None:
    spec = ModelSpec("local", folder, endpoint=endpoint(protocol, url))
    asyncio.run(spec.ask(ModelQuestion(ModelRole.PROPOSER, "Say a word.", {}, SCHEMA)))


def converse(protocol: str, url: str, folder: Path) -> None:
    async def run() -> None:
        access = endpoint(protocol, url)
        async with Conversation(
            ConversationSettings(access, "local:m", "Say a word.", "Now.", (), 100, 5.0)
        ) as held:
            await held.turn()

    asyncio.run(run())


def execute(protocol: str, url: str, folder: Path) -> None:
    executor = ModelExecutor(ApiSettings(KEY, "m", url, protocol=protocol))
    rollout = asyncio.run(
        executor.run(a_task(prompt="Say a word.", timeout_s=20.0), a_program(), 0, folder)
    )
    if rollout.detail:
        raise ProviderError(rollout.detail, "")


WAYS: list[Callable[[str, str, Path], None]] = [ask_once, ask_as_proposer, converse, execute]


@pytest.mark.process
@pytest.mark.parametrize("protocol", list(WRITTEN))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_way_of_asking_follows_a_redirect_to_another_server(
    way: Callable[[str, str, Path], None], protocol: str, tmp_path: Path
) -> None:
    answer = WRITTEN[protocol]('{"word": "heron"}')
    with ModelApi() as api, ModelApi(answer) as other:
        for status in (301, 302, 303, 307, 308):
            api.then(Reply(status, b"", {"location": f"{other.url}/steal"}))
            with pytest.raises((ProviderError, NoAnswer, TurnFailed), match=str(status)) as failure:
                way(protocol, api.url, tmp_path)
            assert KEY not in str(failure.value) and not other.asked
        sent = [{name for name, value in one.headers.items() if KEY in value} for one in api.asked]
        assert sent == [{API_KEY if protocol == "anthropic" else BEARER}] * 5, (
            "one request each, with one key"
        )
        api.then(answer)
        way(protocol, api.url, tmp_path)


@pytest.mark.anyio
async def test_a_model_that_a_client_lends_is_asked_without_a_key_and_without_http(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[types.CreateMessageRequestParams]()

    async def lend(
        context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        asked.append(params)
        content = types.TextContent(type="text", text='{"word": "heron"}')
        return types.CreateMessageResult(role="assistant", model="m", content=content)

    made = MCPServer("sampling", log_level="ERROR")

    @made.tool(structured_output=False)
    def choose(ctx: Context) -> str:
        model = sampling_model(ctx)
        assert model is not None
        return json.dumps(model.think(QUESTION))

    with ModelApi() as api, anyio.fail_after(20):
        for name, value in {"API_KEY": KEY, "BASE_URL": api.url}.items():
            monkeypatch.setenv(f"ANTHROPIC_{name}", value)
            monkeypatch.setenv(f"OPENAI_{name}", value)
        async with Client(made, mode="legacy", sampling_callback=lend) as client:
            result = await client.call_tool("choose", {})

    assert "heron" in str(result.content) and len(asked) == 1 and not api.asked
    assert KEY not in str(asked)


def test_the_judge_of_the_settings_is_asked_by_the_same_transport(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(tmp_path))
    path = tmp_path / ".config/evolvable/config.toml"
    path.parent.mkdir(parents=True)
    with ModelApi() as api, ModelApi(says('{"word": "heron"}')) as other:
        path.write_text(
            f'[models]\nanthropic = "{api.url}"\n[roles]\njudge = "anthropic:m"\n', encoding="utf-8"
        )
        api.then(Reply(307, b"", {"location": other.url}))
        judge = make_judge(
            read_config({"EVOLVABLE_HOME": str(tmp_path / "home"), "ANTHROPIC_API_KEY": KEY})
        )
        assert judge is not None
        with pytest.raises(ProviderError, match="answered 307"):
            judge.think(QUESTION)
        judge.close()

    assert api.asked[0].headers[API_KEY] == KEY and not other.asked


def test_a_client_with_a_key_asks_no_other_server_whoever_follows_a_redirect() -> None:
    with ModelApi() as api, ModelApi() as other:
        rules = RequestRules(api.url, key_header(BEARER, KEY), seconds=5.0)
        with http_client(rules) as client:
            with pytest.raises(ForeignAddress):
                client.post(other.url, json={})
            api.then(Reply(307, b"", {"location": other.url}))
            with pytest.raises(ForeignAddress):
                client.post(api.url, json={}, follow_redirects=True)

        async def run() -> None:
            async with async_http_client(rules) as client:
                with pytest.raises(ForeignAddress):
                    await client.post(other.url, json={})

        asyncio.run(run())
        assert len(api.asked) == 1 and not other.asked


WORDS = (
    "x-api-key",
    "bearer ",
    "httpx",
    "_connection",
    "urllib",
    "http.client",
    "requests",
    "aiohttp",
)
SENDERS = frozenset(("Client", "AsyncClient", "HTTPTransport", "AsyncHTTPTransport"))
OTHER_SENDERS = frozenset(
    ("urllib.request", "http.client", "requests", "aiohttp", "httpx", "urllib3")
)


def sources() -> Iterator[tuple[str, ast.AST]]:
    """Yield the modules below the server in which one of the words stands."""
    for package in (evolvable_tools, evolvable_evolve):
        folder = Path(str(package.__file__)).parent
        for path in folder.rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if any(word in text.lower() for word in WORDS):
                yield path.relative_to(folder).as_posix(), ast.parse(text)


def key_writers(tree: ast.AST) -> Iterator[str]:
    """Yield what names the header of a key, writes one, or sends HTTP by itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and str(node.value).lower() in ("x-api-key", "bearer "):
            yield str(node.value)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "httpx2"
        ):
            yield from {node.attr} & SENDERS
        elif isinstance(node, ast.Attribute) and node.attr in (
            "open_connection",
            "create_connection",
        ):
            yield node.attr
        elif isinstance(node, ast.Import):
            yield from {one.name for one in node.names} & OTHER_SENDERS
        elif isinstance(node, ast.ImportFrom):
            yield from {str(node.module)} & OTHER_SENDERS
            yield from {one.name for one in node.names if node.module == "httpx2"} & SENDERS


@pytest.mark.process
def test_one_module_writes_keys_into_headers_and_makes_clients() -> None:
    found = {name: set(key_writers(tree)) for name, tree in sources()}

    assert {name: what for name, what in found.items() if what and name != "llm/transport.py"} == {}
    assert {"x-api-key", "Bearer ", "Client", "AsyncClient"} <= found["llm/transport.py"]
