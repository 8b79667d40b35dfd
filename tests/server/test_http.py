"""The same surface over streamable HTTP, for clients of this machine."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import anyio
import pytest
from mcp import Client
from mcp_place import ERAS, skill_text

pytestmark = pytest.mark.anyio


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(place, *more: str) -> Iterator[str]:
    """Runs a server on a free port of the loopback interface; yields its URL."""
    port = free_port()
    command = [sys.executable, "-m", "evolvable_server", "serve", "--http", f"127.0.0.1:{port}", *more]
    process = subprocess.Popen(command, env=place.environment, cwd=place.root, stderr=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    finally:
        process.kill()
        process.communicate()


async def connected(url: str) -> None:
    """Waits until the server accepts connections."""
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    with anyio.fail_after(20):
        while True:
            try:
                stream = await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                await anyio.sleep(0.05)
            else:
                await stream.aclose()
                return


async def test_a_client_finds_and_changes_over_http(place, era):
    with serving(place) as url:
        await connected(url)
        with anyio.fail_after(30):
            async with Client(url, mode=ERAS[era]) as client:
                found = await client.call_tool("find_skill", {"task": "fill a PDF form"})
                arguments = {"ref": "pdf", "reason": "x", "files": {"SKILL.md": skill_text("pdf", body="over http")}}
                updated = await client.call_tool("update_resource", arguments)

    assert found.structured_content["matches"][0]["ref"] == "skill:pdf"
    assert updated.structured_content["version"] == 2
    assert "over http" in (place.skills / "pdf/SKILL.md").read_text(encoding="utf-8")


async def test_two_clients_of_one_server_see_each_others_changes(place):
    with serving(place) as url:
        await connected(url)
        with anyio.fail_after(30):
            async with Client(url, mode=ERAS["modern"]) as one, Client(url, mode=ERAS["handshake"]) as other:
                await one.call_tool("update_resource", {"ref": "pdf", "reason": "x", "files": {"a.md": "a"}})
                history = await other.call_tool("resource_history", {"ref": "pdf"})

    assert history.structured_content["head"] == 2


@pytest.mark.parametrize("address", ["0.0.0.0:8000", "192.168.0.1:8000", "example.org:80"])
def test_an_address_that_others_could_reach_is_refused(place, address):
    command = [sys.executable, "-m", "evolvable_server", "serve", "--http", address]

    done = subprocess.run(command, env=place.environment, capture_output=True, text=True, timeout=60)

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "Hint:" in done.stderr


def test_a_port_that_is_taken_is_said_so(place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "evolvable_server", "serve", "--http", address]

        done = subprocess.run(command, env=place.environment, capture_output=True, text=True, timeout=60)

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
