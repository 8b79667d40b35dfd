"""What a server does when a request does not arrive, when it is full, and behind a proxy."""

import asyncio
import contextlib
import gc
import socket
import struct
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from http_place import Answer, HttpServer, http_server, modern, received
from mcp_place import Place
from uvicorn.server import ServerState

from evolvable_teams.http.connection_limits import TimedConnection

pytestmark = pytest.mark.process

LIMITS = {
    "evolvable_teams.http.connection_limits.HEADER_SECONDS": 0.7,
    "evolvable_teams.http.connection_limits.BODY_SECONDS": 0.7,
    "evolvable_teams.http.connection_limits.MAX_CONNECTIONS": 16,
    "evolvable_server.transport.request_limits.REQUESTS": 2,
    "evolvable_server.transport.request_limits.STREAMS": 2,
    "evolvable_server.transport.request_limits.WAIT_SECONDS": 0.2,
    "evolvable_server.transport.request_limits.MAX_HELD": 2_000_000,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """A server with small limits that believes a proxy on this machine."""
    with http_server(
        Place(tmp_path_factory.mktemp("limits")), "--trusted-proxy", "127.0.0.1", limits=LIMITS
    ) as running:
        yield running


def holding(server: HttpServer, seconds: float) -> bytes:
    frame, headers = modern("tools/call", {"name": "hold", "arguments": {"seconds": seconds}})
    return server.request(frame, headers)


@pytest.mark.parametrize("part", [60, -10], ids=["header", "body"])
def test_a_request_that_does_not_arrive_is_ended(server, part):
    whole = server.request(
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', {"Connection": "keep-alive"}
    )
    with server.connect(whole[:part]) as connection:
        answer = received(connection)

    assert answer.status == 408
    assert answer.headers["connection"] == "close"


def test_a_connection_that_says_nothing_is_closed_without_a_word(server):
    assert server.raw(b"").status == 0


def test_when_too_many_requests_are_at_work_the_next_one_is_told_when_to_come_again(server):
    with server.connect(holding(server, 1.5)) as one, server.connect(holding(server, 1.5)) as other:
        for _ in range(2):
            server.said("holding")
        refused = server.call("tools/list", {})
        health = server.post(b"", method="GET", path="/healthz")
        done = [received(connection).status for connection in (one, other)]

    assert (refused.status, refused.headers["retry-after"], refused.body) == (
        503,
        "5",
        b"There are too many requests under way.\n",
    )
    assert health.status == 200
    assert done == [200, 200]
    assert server.call("tools/list", {}).status == 200


def test_streams_have_places_of_their_own(server):
    frame, headers = modern(
        "subscriptions/listen", {"notifications": {"resourcesListChanged": True}}
    )
    request = server.request(frame, headers | {"Connection": "keep-alive"})
    with server.connect(request) as one, server.connect(request) as other:
        assert [stream.recv(65536)[:12] for stream in (one, other)] == [b"HTTP/1.1 200"] * 2
        assert server.raw(server.request(frame, headers)).status == 503
        assert server.call("tools/list", {}).status == 200


def test_bodies_that_are_received_together_are_bounded(server):
    head = server.request(b"", {"Content-Length": "1500000"})
    with (
        server.connect(head + b" " * 1_400_000) as half,
        server.connect(head + b" " * 1_400_000) as more,
    ):
        statuses = sorted(received(connection).status for connection in (half, more))

    assert statuses == [408, 503]


def test_when_there_are_too_many_connections_those_go_that_asked_nothing(server):
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(server.connect()) for _ in range(15)]
        answer: Answer = server.call("tools/list", {})
        more = [stack.enter_context(server.connect()) for _ in range(2)]
        assert answer.status == 200
        assert received(silent[0]).status == 0
        assert server.call("tools/list", {}).status == 200
        del more


def test_a_proxy_that_is_trusted_says_for_whom_it_asks_and_not_which_host(server):
    frame, headers = modern("tools/call", {"name": "seen", "arguments": {}})
    forwarded = {
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "evil.example",
    }
    through = server.post(frame, headers | forwarded).json["result"]["content"][0]["text"]

    assert through == f"https 203.0.113.9 127.0.0.1:{server.port}"
    assert server.post(frame, headers | forwarded | {"Host": "evil.example"}).status == 421


async def answer_nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
def test_a_connection_that_its_client_left_takes_no_memory(reset):
    gone: list[weakref.ref[TimedConnection]] = []

    def connection() -> TimedConnection:
        made = TimedConnection(config, ServerState(), {})
        gone.append(weakref.ref(made))
        return made

    async def call_and_leave() -> None:
        served = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*served.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"204" in await reader.readuntil(b"\r\n\r\n")
        if reset:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        writer.close()
        async with asyncio.timeout(10):
            while gone[0]() is not None:
                await asyncio.sleep(0.01)
                gc.collect()
        served.close()

    config = uvicorn.Config(answer_nothing, timeout_keep_alive=75, log_config=None)
    asyncio.run(call_and_leave())
