"""The relay between a sandboxed client and its model: it streams, holds the key, and has the limits
of all requests.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from model_api import ModelApi, Reply, says

from evolvable_evolve.evolution.executors.agent_cli import ClientSettings
from evolvable_evolve.evolution.executors.coding_agents import claude_access, codex_access
from evolvable_evolve.sandbox.exchange import ModelAccess, SandboxOutputError, relay
from evolvable_tools.llm.transport import API_KEY, BEARER, key_header

pytestmark = pytest.mark.process

KEY = "sk-ant-of-the-test"
PATHS = frozenset(("/v1/messages",))
HEAD = (
    b"POST /v1/messages HTTP/1.1\r\nhost: inside\r\nx-api-key: stolen\r\nx-client: 9\r\n"
    b"content-length: 16\r\n\r\n"
)
QUESTION = HEAD + b'{"stream": true}'

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[ModelAccess]:
    """Yield the access to a model of our own."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield ModelAccess(f"http://user:pass@127.0.0.1:{port}", PATHS, key_header(API_KEY, KEY))


async def whole_answer(access: ModelAccess, question: bytes = QUESTION) -> bytes:
    """Return what a command inside reads."""
    async with relay(access) as place, asyncio.timeout(20):
        reader, writer = await asyncio.open_unix_connection(place)
        writer.write(question)
        answer = await reader.read()
        writer.close()
        return answer


def test_a_stream_reaches_the_client_event_by_event_and_one_that_breaks_off_has_no_end() -> None:
    heads = list[bytes]()

    async def run() -> None:
        seen = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(16)
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            writer.write(b"8\r\nevent: a\r\n")
            await writer.drain()
            await seen.wait()
            writer.write(
                b"8\r\nevent: b\r\n" + (b"0\r\n\r\n" if len(heads) == 1 else b"100\r\nhalf")
            )
            await writer.drain()
            writer.close()

        async with serving(serve) as access, asyncio.timeout(20):
            async with relay(access) as place:
                reader, writer = await asyncio.open_unix_connection(place)
                writer.write(QUESTION)
                first = await reader.readuntil(b"event: a")
                assert b"text/event-stream" in first, (
                    "the first event is there before the second is sent"
                )
                seen.set()
                assert (await reader.read()).endswith(b"event: b\r\n0\r\n\r\n")
                writer.close()
            assert not (await whole_answer(access)).endswith(b"0\r\n\r\n")

    asyncio.run(run())
    assert f"x-api-key: {KEY}".encode() in heads[0].lower() and b"x-client: 9" in heads[0].lower()
    assert b"stolen" not in heads[0] and b"authorization" not in heads[0].lower()


def accesses(address: str, **more: str) -> list[ModelAccess]:
    """Return what the relay of each client lets through, with each kind of key."""
    given = [
        {"ANTHROPIC_BASE_URL": address, name: KEY}
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    ]
    codex = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": KEY, **more}
    return [
        *(claude_access({**one, **more})[0] for one in given),
        codex_access(ClientSettings("codex", "9", "m", codex))[0],
    ]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_passed_on_and_the_key_goes_to_no_other_server(status: int) -> None:
    with ModelApi() as api, ModelApi() as other:
        for access in accesses(api.url):
            api.then(Reply(status, b"", {"location": f"{other.url}/steal"}))
            path = sorted(access.paths)[0].encode()
            base = b"/v1" if not path.startswith(b"/v1") else b""
            question = b"POST " + base + path + QUESTION.removeprefix(b"POST /v1/messages")

            answer = asyncio.run(whole_answer(access, question))

            assert answer.startswith(b"HTTP/1.1 %d" % status) and KEY.encode() not in answer
        assert len(api.asked) == 3 and not other.asked
        assert all(
            KEY in f"{one.headers.get(BEARER)}{one.headers.get(API_KEY)}" for one in api.asked
        )


def test_a_model_on_another_machine_is_asked_through_the_person_s_proxy_and_one_here_is_not() -> (
    None
):
    with ModelApi(says("here")) as api, ModelApi(says("there")) as proxy:
        here, there = (
            accesses(url, HTTPS_PROXY=proxy.url)[0] for url in (api.url, "http://models.example")
        )

        assert b'"here"' in asyncio.run(whole_answer(here)) and b'"there"' in asyncio.run(
            whole_answer(there)
        )

    [seen] = proxy.asked
    assert seen.path == "http://models.example/v1/messages"
    assert seen.headers["host"] == "models.example"
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    "access", [("http://127.0.0.1:x", None), ("http://models.example", "no proxy")]
)
def test_an_address_or_a_proxy_that_is_none_is_said_before_the_client_begins(
    access: tuple[str, str | None],
) -> None:
    address, proxy = access

    with pytest.raises(SandboxOutputError, match="is none"):
        asyncio.run(whole_answer(ModelAccess(address, PATHS, {}, proxy)))


def test_a_question_for_an_address_that_is_none_is_answered_and_not_asked() -> None:
    with ModelApi() as api:
        access = ModelAccess(api.url, PATHS, key_header(API_KEY, KEY))
        odd = QUESTION.replace(b"/v1/messages", b"/v1/messages?\x01")

        assert (asyncio.run(whole_answer(access, odd))).startswith(b"HTTP/1.1 502")
        assert not api.asked
