"""A real HTTP server in a process of its own, with tools that only tests want, and raw requests to
it.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_place import Place
from processes import poll

from evolvable_server.grants import Permission
from evolvable_teams.tokens import Tokens

MODERN = "2026-07-28"

MORE = """
import importlib, json, sys, time
from mcp.server.mcpserver import Context
from evolvable_server import serving

class WithTools(serving.Serving):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)

        def hold(seconds: float) -> str:
            print("holding", file=sys.stderr, flush=True)
            time.sleep(seconds)
            return "held"

        def seen(ctx: Context) -> str:
            request = ctx.request_context.request
            return f"{request.url.scheme} {request.client.host} {request.url.netloc}"

        def review(transcript_path: str = "") -> str:
            return open(transcript_path).read()

        for tool in (hold, seen, review):
            self.server.add_tool(tool)

serving.Serving = WithTools
for name, value in json.loads(sys.argv.pop(1)).items():
    module, _, constant = name.rpartition(".")
    setattr(importlib.import_module(module), constant, value)
from evolvable_server.cli import main
main()
"""
"""The program with more tools, which are known to nobody's table of permissions, and with other
limits.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; status 0: the connection was closed without an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The JSON-RPC answer, also when it came as an event."""
        text = self.body.decode("utf-8")
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            text = next(line[6:] for line in text.splitlines() if line.startswith("data: {"))
        return json.loads(text)


class HttpServer:
    """A server that runs, and what a client may send it."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, secret: str | None) -> None:
        self.process, self.port, self.secret = process, port, secret

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def connect(self, data: bytes = b"") -> socket.socket:
        """Open a connection and send bytes as they are."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        try:
            connection.sendall(data)
        except OSError:
            connection.close()
            raise
        return connection

    def raw(self, data: bytes) -> Answer:
        """Send bytes as they are; return what comes back until the answer ends."""
        with self.connect(data) as connection:
            return received(connection)

    def post(
        self,
        body: bytes | Mapping[str, Any],
        headers: Mapping[str, str | None] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> Answer:
        """Send one request as a well-behaved client with the server's token does, but for what
        `headers` says.
        """
        return self.raw(self.request(body, headers, method=method, path=path))

    def request(
        self,
        body: bytes | Mapping[str, Any] = b"",
        headers: Mapping[str, str | None] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
    ) -> bytes:
        """Return the bytes of a request. A header that is None is left out."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8")
        sent: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            "Authorization": f"Bearer {self.secret}" if self.secret else None,
            "Connection": "close",
            **(headers or {}),
        }
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in sent.items() if value is not None),
        ]
        return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + data

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """Make one request of the modern era."""
        frame, own = modern(method, params)
        return self.post(frame, own | dict(headers or {}))

    def tool(self, name: str, arguments: Mapping[str, Any], secret: str | None = None) -> Answer:
        """Call a tool, with another token when one is given."""
        headers = {"Authorization": f"Bearer {secret}"} if secret else None
        return self.call("tools/call", {"name": name, "arguments": arguments}, headers)

    def said(self, word: str) -> str:
        """Return the next line on the server's stderr with this word in it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if word in line:
                return line
        raise AssertionError(f"the server never said {word!r}")


def modern(method: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str | None]]:
    """Return a request of the modern era and the headers that go with it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    frame = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers: dict[str, str | None] = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = str(params["name"])
    return frame, headers


def received(connection: socket.socket) -> Answer:
    """Return the answer on a connection that the server closes after it."""
    data = bytearray()
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            data += part
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    return Answer(
        int(first.split()[1]) if first.startswith("HTTP/") else 0,
        headers,
        _unchunked(body) if _is_chunked(headers) else body,
    )


def _is_chunked(headers: Mapping[str, str]) -> bool:
    return headers.get("transfer-encoding") == "chunked"


def _unchunked(data: bytes) -> bytes:
    whole = bytearray()
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size or b"0", 16)
        whole += data[:length]
        data = data[length + 2 :] if length else b""
    return bytes(whole)


@contextlib.contextmanager
def http_server(
    place: Place,
    *options: str,
    secret: str | None = None,
    tools: bool = False,
    limits: Mapping[str, float] | None = None,
    address: str = "127.0.0.1:0",
    environment: Mapping[str, str] | None = None,
) -> Iterator[HttpServer]:
    """Run a server on a free port; it must have ended well by the end, or is ended.

    tools: with the tools for tests. limits: constants, by module and name, that are other ones in
    this server.
    """
    more = tools or limits
    program: Sequence[str] = (
        ["-c", MORE, json.dumps(limits or {})] if more else ["-m", "evolvable_server"]
    )
    command = [sys.executable, "-P", *program, "serve", "--http", address, *options]
    env = {**place.environment, **(environment or {})}
    process = subprocess.Popen(command, env=env, cwd=place.root, stderr=subprocess.PIPE, text=True)
    try:
        server = HttpServer(process, 0, secret)
        line = server.said("Serving http")
        server.port = int(line.split("/mcp")[0].rsplit(":", 1)[1])
        yield server
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=20)
        assert process.returncode == 0, rest
        assert "Traceback" not in rest, rest
    finally:
        process.kill()
        process.communicate()


def made_token(place: Place, name: str, *permissions: Permission) -> str:
    """Make a token; return its secret."""
    poll(place.home.is_dir, "the library")
    return Tokens(place.home).add(name, permissions)[1]
