"""Attack T9: one bearer takes all it can get over HTTP. The others must not notice."""

import contextlib
import json
import select
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from http_place import Answer, HttpServer, http_server, made_token, modern, received
from mcp_place import Place

from evolvable_server.grants import Permission

pytestmark = pytest.mark.process

LIMITS = {
    "evolvable_server.transport.request_limits.REQUESTS": 4,
    "evolvable_server.transport.request_limits.REQUESTS_EACH": 4,
    "evolvable_server.transport.request_limits.WAIT_SECONDS": 0.2,
    "evolvable_server.transport.request_limits.MAX_HELD": 4_000_000,
    "evolvable_server.transport.request_limits.MAX_HELD_EACH": 1_500_000,
    "evolvable_teams.http.connection_limits.SESSIONS": 6,
    "evolvable_teams.http.connection_limits.SESSIONS_EACH": 3,
    "evolvable_teams.http.connection_limits.MAX_CONNECTIONS": 40,
    "evolvable_teams.http.connection_limits.SEND_SECONDS": 0.5,
}

HEADERS = 14_000


def team(root: Path) -> tuple[Place, dict[str, str]]:
    place = Place(root)
    return place, {name: made_token(place, name) for name in ("greedy", "other", "third")}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpServer, dict[str, str]]]:
    """A server with the usual limits."""
    place, secrets = team(tmp_path_factory.mktemp("usual"))
    with http_server(place, secret=secrets["greedy"]) as server:
        yield server, secrets


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpServer, dict[str, str]]]:
    """A server with small limits."""
    place, secrets = team(tmp_path_factory.mktemp("small"))
    with http_server(place, secret=secrets["greedy"], limits=LIMITS) as server:
        yield server, secrets


def bearer(secret: str) -> dict[str, str | None]:
    return {"Authorization": f"Bearer {secret}"}


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def opened(server: HttpServer, secret: str) -> Answer:
    """Asks for a session of the handshake era."""
    return server.post(INITIALIZE, bearer(secret))


def find(server: HttpServer, secret: str, session: str) -> Answer:
    frame = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
    frame["params"] = {"name": "find_skill", "arguments": {"task": "fill a PDF form"}}
    headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    return server.post(frame, bearer(secret) | headers)


def ready(server: HttpServer, secret: str, session: str) -> int:
    frame = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    return server.post(frame, bearer(secret) | headers).status


def session_of(answer: Answer) -> str:
    assert answer.status == 200, answer
    return answer.headers["mcp-session-id"]


def listening(server: HttpServer, secret: str, session: str) -> bytes:
    """Returns the request of a stream that keeps a session busy."""
    headers = {
        "Mcp-Session-Id": session,
        "MCP-Protocol-Version": "2025-11-25",
        "Accept": "text/event-stream",
    }
    return server.request(
        b"", bearer(secret) | headers | {"Connection": "keep-alive"}, method="GET"
    )


def is_well(server: HttpServer, secret: str) -> bool:
    began = time.monotonic()
    session = session_of(opened(server, secret))
    ready(server, secret, session)
    found = find(server, secret, session)
    return "skill:pdf" in found.body.decode() and time.monotonic() - began < 10


@pytest.mark.nightly
def test_1100_sessions_of_one_bearer_leave_the_others_theirs(usual):
    server, secrets = usual
    first = session_of(opened(server, secrets["greedy"]))
    used = session_of(opened(server, secrets["greedy"]))
    ready(server, secrets["greedy"], used)
    statuses = [opened(server, secrets["greedy"]).status for _ in range(1_100)]

    assert is_well(server, secrets["other"])
    assert set(statuses) <= {200, 429}
    # The oldest that nobody used has made room.
    assert find(server, secrets["greedy"], first).status == 404
    assert find(server, secrets["greedy"], used).status == 200


def test_a_bearer_whose_sessions_are_all_at_work_is_told_when_to_come_again(small):
    server, secrets = small
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            request = listening(
                server, secrets["greedy"], session_of(opened(server, secrets["greedy"]))
            )
            stream = stack.enter_context(server.connect(request))
            assert stream.recv(65536).startswith(b"HTTP/1.1 200")
        refused = opened(server, secrets["greedy"])

        assert is_well(server, secrets["other"])
    assert (refused.status, refused.headers["retry-after"]) == (429, "5")


def test_when_all_sessions_are_taken_the_bearer_with_the_most_makes_room(small):
    server, secrets = small
    kept = session_of(opened(server, secrets["other"]))
    taken = [session_of(opened(server, secrets["greedy"])) for _ in range(3)]
    more = [session_of(opened(server, secrets["third"])) for _ in range(4)]

    assert find(server, secrets["other"], kept).status == 200
    assert is_well(server, secrets["other"])
    assert [find(server, secrets["third"], session).status for session in more][0] == 404
    assert 404 in [find(server, secrets["greedy"], session).status for session in (*taken, more[1])]


def processor_seconds(server: HttpServer) -> float:
    times = psutil.Process(server.process.pid).cpu_times()
    return times.user + times.system


def many(server: HttpServer, body: bytes = b"") -> bytes:
    request = server.request(body, {"Connection": "keep-alive"})
    head, _, rest = request.partition(b"\r\n\r\n")
    return (
        head
        + b"\r\n"
        + b"".join(b"a%d:\r\n" % number for number in range(HEADERS))
        + b"\r\n"
        + rest
    )


@pytest.mark.parametrize("way", ["at once", "in pieces", "behind another request", "as trailers"])
def test_14000_headers_are_counted_and_not_worked_on(usual, way):
    server, secrets = usual
    request = many(server)
    assert is_well(server, secrets["other"])
    before = processor_seconds(server)
    if way == "at once":
        status = server.raw(request).status
    elif way == "in pieces":
        with server.connect() as connection, contextlib.suppress(OSError):
            for at in range(0, len(request), 1000):
                connection.sendall(request[at : at + 1000])
        status = 431
    elif way == "behind another request":
        frame, headers = modern("tools/list", {})
        one = server.request(frame, headers | {"Connection": "keep-alive"})
        with server.connect(one + request) as connection:
            text = b"".join(iter(lambda: connection.recv(65536), b""))
        status = int(text[text.rindex(b"HTTP/1.1 ") :].split()[1])
    else:
        frame, headers = modern("tools/list", {})
        body = json.dumps(frame).encode()
        chunked = {"Content-Length": None, "Transfer-Encoding": "chunked"}
        trailers = b"".join(b"a%d: b\r\n" % number for number in range(HEADERS))
        whole = server.request(b"", headers | chunked) + b"%x\r\n%s\r\n0\r\n%s\r\n" % (
            len(body),
            body,
            trailers,
        )
        status = server.raw(whole).status

    assert status == 431
    assert processor_seconds(server) - before < 0.5
    assert is_well(server, secrets["other"])


@pytest.mark.parametrize(("count", "status"), [(100, 200), (101, 431)])
def test_a_request_has_a_hundred_headers(usual, count, status):
    server, _ = usual
    frame, headers = modern("tools/list", {})
    own = server.request(frame, headers).partition(b"\r\n\r\n")[0].count(b"\r\n")
    more = {f"x-{number}": "1" for number in range(count - own)}

    assert server.post(frame, headers | more).status == status


def test_half_bodies_of_one_bearer_leave_connections_to_the_others(small):
    server, secrets = small
    head = server.request(b"", {"Content-Length": "1000", "Connection": "keep-alive"})
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(server.connect(head + b"{")) for _ in range(40)]
        assert is_well(server, secrets["other"])
        refused = [received(connection) for connection in held[-3:]]

    assert {answer.status for answer in refused} == {429}
    assert {answer.headers["retry-after"] for answer in refused} == {"5"}


def test_requests_without_a_token_hold_no_connection(small):
    server, secrets = small
    nobody = {"Authorization": None, "Content-Length": "1000", "Connection": "keep-alive"}
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(server.connect(server.request(b"", nobody) + b"{"))
            assert connection.recv(100).startswith(b"HTTP/1.1 401")
        assert is_well(server, secrets["other"])


def test_the_bytes_that_one_bearer_holds_are_its_own(small):
    server, secrets = small
    frame, headers = modern("tools/list", {})
    head = server.request(b"", {"Content-Length": "1400000"})
    with (
        server.connect(head + b" " * 1_300_000) as one,
        server.connect(head + b" " * 1_300_000) as two,
    ):
        # The server may count either of them first.
        answered, _, _ = select.select([one, two], [], [], 30)
        refused = received(answered[0])
        padded = json.dumps(frame).encode() + b" " * 1_200_000
        fine = server.post(padded, headers | bearer(secrets["other"]))

    assert refused.status == 429
    assert fine.status == 200


def holding(server: HttpServer, secret: str, seconds: float) -> bytes:
    frame, headers = modern("tools/call", {"name": "hold", "arguments": {"seconds": seconds}})
    return server.request(frame, headers | bearer(secret))


def test_two_bearers_leave_a_place_at_work_to_a_third(tmp_path):
    place = Place(tmp_path)
    secrets = {name: made_token(place, name, *Permission) for name in ("greedy", "other")} | {
        "third": made_token(place, "third")
    }
    limits = {
        "evolvable_server.transport.request_limits.REQUESTS": 4,
        "evolvable_server.transport.request_limits.REQUESTS_EACH": 4,
        "evolvable_server.transport.request_limits.WAIT_SECONDS": 0.2,
    }
    with (
        http_server(place, limits=limits, secret=secrets["third"]) as server,
        contextlib.ExitStack() as stack,
    ):
        held = [
            stack.enter_context(server.connect(holding(server, secrets[name], 2.0)))
            for name in ("greedy", "other")
            for _ in range(4)
        ]
        for _ in range(2):
            server.said("holding")
        began = time.monotonic()
        answered = server.call("tools/list", {}).status
        waited = time.monotonic() - began
        statuses = {received(connection).status for connection in held}

    assert answered == 200 and waited < 1.9
    assert statuses == {200, 429}


def test_an_answer_that_nobody_reads_ends_its_connection(small):
    """Requests whose answers are not read, until the buffers of the system are full."""
    server, secrets = small
    frame, headers = modern("tools/list", {})
    request = server.request(frame, headers | {"Connection": "keep-alive"})
    with server.connect() as connection, pytest.raises(ConnectionError):
        for _ in range(200_000):
            connection.sendall(request)
    assert is_well(server, secrets["other"])


def test_without_tokens_a_flood_of_sessions_leaves_room_for_the_next_one(tmp_path):
    limits = {"evolvable_teams.http.connection_limits.SESSIONS": 20}
    with http_server(Place(tmp_path), limits=limits) as server:
        used = session_of(opened(server, ""))
        ready(server, "", used)
        statuses = {opened(server, "").status for _ in range(60)}
        found = find(server, "", used)

    assert statuses == {200}
    assert found.status == 200
