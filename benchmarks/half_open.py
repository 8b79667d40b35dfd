"""Measures what 300 half-open connections cost those who behave: the latency of calls over HTTP
with and without them.

A third sent half a header, a third half a body, a third nothing; all go on dripping a byte now and
then, as a slow sender does. Both sides are measured in turns on one server, so that a busy machine
changes both alike.
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
import time
from collections.abc import Iterator
from pathlib import Path

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

HALF_OPEN = 300
MOST = 1.5
"""The target: the p50 beside them is at most so many times that without them."""

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
ARGUMENTS = {"ref": "pdf"}


def call(connection: http.client.HTTPConnection) -> float:
    """Return the milliseconds of one call."""
    params = {"name": "get_resource", "arguments": ARGUMENTS, "_meta": META}
    # As bytes it leaves in one packet with the header; else the system waits 40 ms between the two.
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    ).encode()
    more = {
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "get_resource",
    }
    began = time.perf_counter()
    connection.request("POST", "/mcp", body, HEADERS | more)
    answer = connection.getresponse()
    text = answer.read()
    taken = (time.perf_counter() - began) * 1000
    assert answer.status == 200 and b"How" in text, text
    return taken


@contextlib.contextmanager
def half_open(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Yield connections that sent a part of a request."""
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    ).encode()
    parts = (head, head + b"Content-Length: 5000\r\n\r\n{", b"")
    connections = []
    for number in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(parts[number % 3])
        connections.append(connection)
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


def drip(connections: list[socket.socket], number: int) -> None:
    with contextlib.suppress(OSError):  # the server has had enough of it
        connections[number % len(connections)].send(b"x")


@contextlib.contextmanager
def serving(home: Path) -> Iterator[int]:
    """Yield the port of a server over a library with one skill."""
    text = b"---\nname: pdf\ndescription: Fill PDF forms.\n---\n\nHow.\n"
    with Store.open(home, create=True) as store, store.transaction(Actor.HUMAN, "begin") as tx:
        tx.put(Ref.parse("pdf"), {"SKILL.md": File(text)})
    command = [sys.executable, "-m", "evolvable_server", "serve", "--http", "127.0.0.1:0"]
    env = {**os.environ, "EVOLVABLE_HOME": str(home)}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield int(process.stderr.readline().split("/mcp")[0].rsplit(":", 1)[1])
    finally:
        process.terminate()
        process.communicate()


def main() -> int:
    """Print the two latencies and their ratio; return 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    rounds, calls = (4, 100) if parser.parse_args().quick else (10, 300)
    alone: list[float] = []
    beside: list[float] = []
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "library") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(100):
            call(connection)
        for _ in range(rounds):
            alone += [call(connection) for _ in range(calls)]
            with half_open(port, HALF_OPEN) as open_ones:
                for number in range(calls):
                    beside.append(call(connection))
                    if number % 10 == 0:
                        drip(open_ones, number // 10)
        connection.close()
    ratio = statistics.median(beside) / statistics.median(alone)
    for name, times in (("alone", alone), (f"beside {HALF_OPEN} half-open", beside)):
        ninety_nine = statistics.quantiles(times, n=100)[98]
        print(
            f"{name:24} p50 {statistics.median(times):6.2f} ms   p99 {ninety_nine:6.2f} ms   of "
            f"{len(times):,}"
        )
    print(
        f"ratio of the medians {ratio:.2f}, target at most {MOST}: "
        f"{'met' if ratio <= MOST else 'missed'}"
    )
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
