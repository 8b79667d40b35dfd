"""Hostile HTTP: every case has its status, and the server goes on answering those who behave."""

import json
import re
import time
from pathlib import Path

import pytest
from http_place import HttpServer, http_server, made_token, modern, received
from mcp_place import Place
from samples import attacks

from evolvable_server.grants import Permission

pytestmark = pytest.mark.process

MORE = json.loads(
    (Path(__file__).parents[1] / "data" / "http_attacks.json").read_text(encoding="utf-8")
)["cases"]

FRAMES = [case for case in attacks("frame") if not {"hold_s", "flood"} & case.get("gen", {}).keys()]
"""The two others are about a pipe that stays open."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("http"))
    secret = made_token(place, "alice", Permission.WRITE)
    with http_server(place, secret=secret) as running:
        yield running


def is_well(server: HttpServer) -> bool:
    """Whether a client that behaves gets its answer."""
    return "tools" in server.call("tools/list", {}).json["result"]


def sent(server: HttpServer, case: dict) -> bytes:
    """The request of a case: a call of a tool, but for what the case says."""
    given = {
        name: str(value).replace("PORT", str(server.port)) if value else value
        for name, value in case["input"].items()
    }
    pad = int(given.pop("pad_bytes", 0) or 0)
    method, path = given.pop("method", "POST"), given.pop("path", "/mcp")
    if pad:
        name = list(given)[0]
        given[name] = str(given[name]) + "a" * pad
    frame, headers = modern("tools/call", {"name": "list_resources", "arguments": {}})
    return server.request(frame, {**headers, **given}, method=method, path=path)


@pytest.mark.parametrize("case", [*attacks("http"), *MORE], ids=lambda case: case["id"])
def test_a_hostile_request_gets_its_status(server, case):
    """attacks.json and http_attacks.json."""
    answer = server.raw(sent(server, case))

    assert f"status {answer.status}" == case["expect"]
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert answer.status != 401 or answer.headers["www-authenticate"].startswith("Bearer ")
    assert is_well(server)


def frame_bytes(case: dict) -> bytes:
    if "b64" in case:
        import base64

        return base64.b64decode(case["b64"])
    if "gen" in case:
        text, times = case["gen"].get("repeat", ("", 0))
        return (
            case["gen"].get("prefix", "") + text * times + case["gen"].get("suffix", "")
        ).encode()
    return case["input"].encode()


@pytest.mark.parametrize("era", ["modern", "handshake"])
@pytest.mark.parametrize("case", FRAMES, ids=lambda case: case["id"])
def test_a_hostile_frame_in_a_body_is_answered(server, case, era):
    """attacks.json, frame cases: the answer carries one of the codes that the case asks for."""
    headers = {"MCP-Protocol-Version": "2026-07-28"} if era == "modern" else {}
    found = re.search(rb'"method":"(\w+/\w+|\w+)"', frame_bytes(case))
    if era == "modern" and found:
        headers["Mcp-Method"] = found[1].decode()

    answer = server.post(frame_bytes(case), headers)

    assert answer.status in (200, 202, 400, 404)
    if answer.body:
        assert "Traceback" not in answer.body.decode()
        # Every answer is one of JSON-RPC, so that no client waits.
        assert {"result", "error"} & answer.json.keys()
    codes = [int(code) for code in re.findall(r"-32\d{3}", case["why"])]
    if (
        codes
        and b'"method":"nope"' not in frame_bytes(case)
        and answer.status == 400
        and case["id"] in JUDGED
    ):
        assert answer.json["error"]["code"] in codes
    assert is_well(server)


JUDGED = {f"frame-{number:02}" for number in (0, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 19, 28, 29)}
"""Cases that are wrong whatever the protocol's state is; what the others get depends on the session
they come in.
"""


def test_a_body_in_chunks_is_limited_without_a_length(server):
    head = server.request(b"", {"Content-Length": None, "Transfer-Encoding": "chunked"})
    with server.connect(head) as connection:
        for _ in range(5):
            connection.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        answer = received(connection)

    assert answer.status == 413
    assert is_well(server)


def test_a_body_of_the_limit_is_taken(server):
    frame, headers = modern("tools/list", {})
    body = json.dumps(frame).encode()

    assert server.post(body + b" " * (4 * 1024 * 1024 - len(body)), headers).status == 200
    assert server.post(body + b" " * (4 * 1024 * 1024 - len(body) + 1), headers).status == 413


def test_what_is_not_http_is_refused_and_closed(server):
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"\r\n" * 50 + b"GET\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        assert server.raw(data).status in (0, 400)
    assert is_well(server)


def test_many_half_open_connections_leave_the_others_alone(server):
    """300 that sent half a header, half a body or nothing; the benchmark measures what
    they cost.
    """
    half = server.request(b"x" * 1000)[:-500], server.request(b"")[:40], b""
    open_ones = [server.connect(half[number % 3]) for number in range(300)]
    try:
        began = time.monotonic()
        assert all(is_well(server) for _ in range(5))
        assert time.monotonic() - began < 5
    finally:
        for connection in open_ones:
            connection.close()


@pytest.mark.parametrize("second", ["Bearer wrong", "Basic eDp5", ""])
def test_two_authorizations_are_refused_though_one_is_good(server, second):
    """A proxy in front may have looked at the other one."""
    frame, headers = modern("tools/call", {"name": "list_resources", "arguments": {}})
    good = server.request(frame, headers)
    line = f"Authorization: {second}\r\n".encode()
    before, after = (
        good.replace(b"Authorization: ", put, 1)
        for put in (line + b"Authorization: ", b"authorization: ")
    )

    assert server.raw(good).status == 200
    assert server.raw(before).status == 400
    assert server.raw(after.replace(b"Connection: ", line + b"Connection: ", 1)).status == 400
    assert is_well(server)


def test_nobody_asks_more_of_health_than_that_it_is_there(server):
    for path in ("/healthz", "/readyz"):
        answer = server.post(
            b"", {"Host": "10.1.2.3", "Authorization": None}, method="GET", path=path
        )
        assert (answer.status, answer.body) == (200, b"ok\n")
    assert server.post(b"", method="POST", path="/healthz").status == 405
