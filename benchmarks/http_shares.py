"""Measures what one bearer that takes all it can get over HTTP costs another: the latency of calls
beside the load.

The load is 24 connections of one token that call find_skill without a pause, then 1,100 sessions
opened in a row, then 100 requests with 14,000 headers each. The other token's calls are measured
alone and beside each load.
"""

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_teams.tokens import Tokens

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "b", "version": "1"},
    },
}
CONNECTIONS, SESSIONS, LONG_HEADERS = 24, 1_100, 100


def post(
    connection: http.client.HTTPConnection, secret: str, frame: object, more: dict[str, str]
) -> int:
    """Send one request and return the status of its answer."""
    headers = HEADERS | more | {"Authorization": f"Bearer {secret}"}
    connection.request("POST", "/mcp", json.dumps(frame).encode(), headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def find(connection: http.client.HTTPConnection, secret: str) -> int:
    """Call find_skill."""
    params = {"name": "find_skill", "arguments": {"task": "fill a PDF form"}, "_meta": META}
    frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    more = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "find_skill",
    }
    return post(connection, secret, frame, more)


def calls(port: int, secret: str, until: Callable[[], bool]) -> list[float]:
    """Return the milliseconds of calls, one after another, until told to stop; at least 20."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    taken = []
    while len(taken) < 20 or not until():
        began = time.perf_counter()
        assert find(connection, secret) == 200
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def finding(port: int, secret: str, seconds: float) -> None:
    """Call find_skill on many connections without a pause."""
    until = time.monotonic() + seconds

    def call() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while time.monotonic() < until:
            find(connection, secret)

    threads = [threading.Thread(target=call) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def opening(port: int, secret: str, seconds: float) -> None:
    """Open sessions."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(SESSIONS):
        assert post(connection, secret, INITIALIZE, {}) in (200, 429)


def long_headers(port: int, secret: str, seconds: float) -> None:
    """Send requests with 14,000 headers."""
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {secret}\r\n"
    ).encode()
    request = head + b"".join(b"a%d:\r\n" % number for number in range(14_000)) + b"\r\n"
    for _ in range(LONG_HEADERS):
        with (
            socket.create_connection(("127.0.0.1", port)) as connection,
            contextlib.suppress(OSError),
        ):
            connection.sendall(request)
            connection.recv(65536)


@contextlib.contextmanager
def serving(home: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the port of a server over a library with one skill, and two tokens."""
    text = b"---\nname: pdf\ndescription: Merge, split and fill PDF forms.\n---\n\nHow.\n"
    with Store.open(home, create=True) as store, store.transaction(Actor.HUMAN, "begin") as tx:
        tx.put(Ref.parse("skill:pdf"), {"SKILL.md": File(text)})
    secrets = [Tokens(home).add(name, ())[1] for name in ("greedy", "other")]
    command = [
        sys.executable,
        "-P",
        "-m",
        "evolvable_server",
        "--home",
        str(home),
        "serve",
        "--http",
        "127.0.0.1:0",
    ]
    env = {**os.environ, "EVOLVABLE_EMBEDDER": "off"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "Serving" in line)
            yield int(line.split("/mcp")[0].rsplit(":", 1)[1]), secrets
        finally:
            process.terminate()


def measure(
    port: int, secrets: list[str], load: Callable[[int, str, float], None] | None
) -> list[float]:
    """Return the milliseconds of the other token's calls beside a load of the greedy one."""
    if load is None:
        return calls(port, secrets[1], lambda: True)
    loading = threading.Thread(target=load, args=(port, secrets[0], 5.0))
    loading.start()
    taken = calls(port, secrets[1], lambda: not loading.is_alive())
    loading.join()
    return taken


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "home") as (port, secrets):
        measure(port, secrets, None)
        for load in (None, finding, opening, long_headers):
            taken = sorted(measure(port, secrets, load))
            what = load.__name__ if load else "alone"
            p99 = taken[int(len(taken) * 0.99)]
            print(
                f"{what:14} {len(taken):5} calls  p50 {statistics.median(taken):7.1f} ms  p99 "
                f"{p99:7.1f} ms"
            )


if __name__ == "__main__":
    main()
