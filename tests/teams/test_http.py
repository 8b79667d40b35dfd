"""The same surface over streamable HTTP, for clients of this machine."""

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import anyio
import pytest
from http_place import HttpServer, http_server, modern
from mcp import Client
from mcp_place import ERAS, Place, skill_text

pytestmark = [pytest.mark.process, pytest.mark.anyio]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, HttpServer]]:
    place = Place(tmp_path_factory.mktemp("http"))
    with http_server(place) as server:
        yield place, server


async def test_a_client_finds_and_changes_over_http(team, era):
    place, server = team
    with anyio.fail_after(30):
        async with Client(server.url, mode=ERAS[era]) as client:
            found = await client.call_tool(
                "find_skill", {"task": "use the pdf skill", "detail": True}
            )
            arguments = {
                "ref": "pdf",
                "reason": "x",
                "files": {"SKILL.md": skill_text("pdf", body=f"over {era} http")},
            }
            arguments["expected_version"] = found.structured_content["matches"][0]["version"]
            updated = await client.call_tool("update_resource", arguments)

    assert found.structured_content["matches"][0]["ref"] == "skill:pdf"
    assert updated.structured_content["version"] >= 2
    assert f"over {era} http" in (place.skills / "pdf/SKILL.md").read_text(encoding="utf-8")


async def test_two_clients_of_one_server_see_each_others_changes(team):
    _, server = team
    with anyio.fail_after(30):
        async with (
            Client(server.url, mode=ERAS["modern"]) as one,
            Client(server.url, mode=ERAS["handshake"]) as other,
        ):
            await one.call_tool(
                "update_resource", {"ref": "csv", "reason": "x", "files": {"a.md": "a"}}
            )
            history = await other.call_tool("resource_history", {"ref": "csv"})

    assert history.structured_content["head"] == 2


def test_no_answer_waits_until_the_client_has_confirmed_its_header(team):
    _, server = team
    frame, headers = modern("tools/list", {})
    kept = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **headers,
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with contextlib.closing(connection):
        seconds = []
        for _ in range(30):  # at first the system confirms at once
            began = time.perf_counter()
            connection.request("POST", "/mcp", json.dumps(frame).encode(), kept)
            connection.getresponse().read()
            seconds.append(time.perf_counter() - began)

    assert min(seconds[-5:]) < 0.035  # a confirmation that waits does so for 40 ms


def test_a_port_that_is_taken_is_said_so(place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "evolvable_server", "serve", "--http", address]

        done = subprocess.run(
            command, env=place.environment, capture_output=True, text=True, timeout=60
        )

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
