"""A model that says what a script tells it, behind the APIs that the clients speak: Messages and
Responses.

`chat` has a third one.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Say:
    """The model answers with text and ends its turn."""

    text: str


@dataclass(frozen=True, slots=True)
class Use:
    """The model uses a tool: one of an MCP server when `server` names it, else one of the client's
    own.
    """

    tool: str
    values: dict[str, Any]
    server: str = ""


@dataclass
class Seen:
    """What the model has been shown: the results of the tools it used, oldest first, and the whole
    request.
    """

    results: list[str] = field(default_factory=list)
    request: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> str:
        return self.results[-1] if self.results else ""


Turn = Callable[[Seen], Say | Use]
Reviewer = Callable[[dict[str, Any]], dict[str, Any]]
"""Answers what a review asks: given the data, it returns candidates."""

QUESTIONS = (
    "(evolvable-thinking: ",
    "You review a finished session",
    "You are given one finished session",
)
"""How a question begins that a review asks, by a command of the user's and by the API, and one of a
round.
"""

DATA = ('{"session":', '{"reason":')
"""How the data of a review's question begin, and of a round's."""


class Model:
    """Serves the APIs on a loopback port; each request of the agent gets what the next turn says.

    A request without tools is the client's own (a title, a summary); it takes no turn. `asked`
    keeps the requests and `said` what was answered. What a review asks goes to the reviewer:
    `reviewed` keeps what it was shown, `questions` the whole requests. bare: the client was started
    without tools, and every request is the agent's.
    """

    def __init__(
        self, turns: Iterable[Turn], reviewer: Reviewer | None = None, *, bare: bool = False
    ) -> None:
        self._turns, self._bare = iter(turns), bare
        self._reviewer = reviewer
        self.reviewed: list[dict[str, Any]] = []
        self.questions: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._numbers = count(1)
        self.asked: list[dict[str, Any]] = []
        self.said: list[Say | Use] = []
        self.seen = Seen()
        self.failures: list[str] = []
        self.waiting: list[Use] = []
        """What is said once the server that it needs has started, or a search has brought the tool
        for it.
        """
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: dict[str, Any], results: list[str]) -> Say | Use:
        """Return what to say to a request whose conversation holds these results of tools."""
        question = _question(request) if self._reviewer is not None else None
        if self._reviewer is not None and question is not None:
            self.reviewed.append(question)
            self.questions.append(request)
            return Say(json.dumps(self._reviewer(question)))
        if not request.get("tools") and not self._bare:
            return Say("ok")
        with self._lock:
            self.asked.append(request)
            self.seen = Seen(results, request)
            self.said.append(self._next())
            return self.said[-1]

    def _next(self) -> Say | Use:
        try:
            return next(self._turns)(self.seen)
        except StopIteration:
            return Say("The script has ended.")
        except Exception as error:
            self.failures.append(
                f"{type(error).__name__}: {error}; the last result was {self.seen.last[:300]!r}"
            )
            return Say("The script failed.")

    @property
    def ended(self) -> bool:
        """Whether the model has ended its turn."""
        return bool(self.said) and isinstance(self.said[-1], Say)

    def chat(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events of an answer of Chat Completions; one event, the whole answer, where
        none is streamed.
        """
        raise NotImplementedError

    def name(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers):06}"


def _handler(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Say nothing: stderr belongs to the checks."""

        def do_HEAD(self) -> None:
            self._json({})

        def do_GET(self) -> None:
            if self.headers.get("upgrade"):
                self.send_error(426)  # Codex asks for a WebSocket first
            else:
                self._json({"data": [], "models": [], "has_more": False})

        def do_POST(self) -> None:
            try:
                self._answer(json.loads(self._body() or b"{}"))
            except ConnectionError:  # the reviewer hangs up, or the client did
                self.close_connection = True

        def _answer(self, request: dict[str, Any]) -> None:
            path = self.path.partition("?")[0].rstrip("/")
            if path.endswith("/chat/completions"):
                self._chat(request)
            elif path.endswith("/responses"):
                self._stream(_responses(model, request))
            elif path.endswith("/messages") and request.get("stream"):
                self._stream(_messages(model, request))
            elif path.endswith("/messages"):
                said = model.answer(request, [])
                text = said.text if isinstance(said, Say) else "ok"
                self._json(_message(model, request, [{"type": "text", "text": text}], "end_turn"))
            else:
                self._json({"input_tokens": 1})

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("transfer-encoding", ""):
                return self.rfile.read(int(self.headers.get("content-length", 0)))
            parts = []
            while size := int(self.rfile.readline().strip() or b"0", 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _chat(self, request: dict[str, Any]) -> None:
            if not request.get("stream"):
                self._json(next(model.chat(request)))
                return
            self._begin("text/event-stream")
            for event in model.chat(request):
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def _json(self, data: Any) -> None:
            self._begin("application/json")
            self.wfile.write(json.dumps(data).encode())

        def _stream(self, events: Iterator[dict[str, Any]]) -> None:
            self._begin("text/event-stream")
            for event in events:
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()

        def _begin(self, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True

    return Handler


def _question(request: dict[str, Any]) -> dict[str, Any] | None:
    """Return the data of a question of a review or a round, None for any other request."""
    texts = [_text(request.get("system"))]
    for message in [*request.get("messages", []), *request.get("input", [])]:
        content = message.get("content")
        blocks = content if isinstance(content, list) else [content]
        texts += [_text([block] if isinstance(block, dict) else block) for block in blocks]
    if not any(
        text.lstrip('"\n ').startswith(QUESTIONS) or QUESTIONS[0] in text[:300] for text in texts
    ):
        return None
    for text in texts:
        start = min((at for at in map(text.find, DATA) if at >= 0), default=-1)
        if start >= 0:
            data, _ = json.JSONDecoder().raw_decode(text[start:])
            return dict(data)
    return None


# The Messages API


WAITS = "WaitForMcpServers"
"""The tool of Claude Code with which its model waits for servers that are starting, as a real one
does.
"""


def _messages(model: Model, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    said = _awaited(model, request)
    if isinstance(said, Say):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": said.text}
    else:
        name = f"mcp__{said.server}__{said.tool}" if said.server else said.tool
        block = {"type": "tool_use", "id": model.name("toolu"), "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(said.values)}
    stop = "end_turn" if isinstance(said, Say) else "tool_use"
    yield {"type": "message_start", "message": _message(model, request, [], None)}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": 9},
    }
    yield {"type": "message_stop"}


def _awaited(model: Model, request: dict[str, Any]) -> Say | Use:
    """Return what to say: where the tool for it may be missing because a server starts, that it
    waits, once.
    """
    names = {tool.get("name") for tool in request.get("tools") or []}
    if model.waiting and names:
        return model.waiting.pop()
    said = model.answer(request, _message_results(request))
    if (
        isinstance(said, Use)
        and said.server
        and WAITS in names
        and f"mcp__{said.server}__{said.tool}" not in names
    ):
        model.waiting.append(said)
        return Use(WAITS, {})
    return said


def _message(
    model: Model, request: dict[str, Any], content: list[Any], stop: str | None
) -> dict[str, Any]:
    return {
        "id": model.name("msg"),
        "type": "message",
        "role": "assistant",
        "model": request.get("model", "script"),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 1},
    }


def _message_results(request: dict[str, Any]) -> list[str]:
    blocks = [
        block
        for message in request.get("messages", [])
        if isinstance(message.get("content"), list)
        for block in message["content"]
    ]
    waits = {block.get("id") for block in blocks if block.get("name") == WAITS}
    results = [block for block in blocks if block.get("type") == "tool_result"]
    return [
        _text(block.get("content")) for block in results if block.get("tool_use_id") not in waits
    ]


# The Responses API


def _responses(model: Model, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    outputs = [
        item for item in request.get("input", []) if item.get("type") == "function_call_output"
    ]
    said = model.answer(request, [_text(item.get("output")) for item in outputs])
    item: dict[str, Any]
    if isinstance(said, Say):
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        item = {"type": "message", "id": model.name("msg"), "role": "assistant", "content": content}
    else:
        item = {
            "type": "function_call",
            "id": model.name("fc"),
            "call_id": model.name("call"),
            "name": said.tool,
        }
        item["arguments"] = json.dumps(said.values)
        item |= {"namespace": f"mcp__{said.server}"} if said.server else {}
    response: dict[str, Any] = {
        "id": model.name("resp"),
        "object": "response",
        "created_at": 0,
        "output": [],
    }
    details = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    usage = {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18, **details}
    done = {**item, "status": "completed"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress"},
        },
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [done], "usage": usage},
        },
    ]
    for number, event in enumerate(events):
        yield {**event, "sequence_number": number}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or [] if isinstance(part, dict))
