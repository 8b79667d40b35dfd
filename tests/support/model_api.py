"""A stand-in for the APIs of models on this machine: it answers by a script and keeps what it was
asked.

Replies are made for Anthropic's messages (`says`), and for OpenAI's chat completions (`chats`) and
responses (`responds`).
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, BinaryIO, Self

from evolvable_tools.llm.api_model import ApiModel
from evolvable_tools.llm.endpoint import anthropic_endpoint


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; with `hang` none comes until the stand-in closes, with `cut` the connection ends
    before its end, and with `drip` the body is a byte now and then without an end.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False
    cut: bool = False
    drip: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its headers in lower case, and its JSON."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


def says(text: str, *, stop: str = "end_turn", thought: str = "", **more: Any) -> Reply:
    """A whole message of this text, after a thought when there is one."""
    thoughts = [{"type": "thinking", "thinking": thought, "signature": "c2ln"}] if thought else []
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [*thoughts, {"type": "text", "text": text}],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
        **more,
    }
    return Reply(body=json.dumps(message).encode())


def chats(text: str | None, *, stop: str = "stop", **more: Any) -> Reply:
    """A whole chat completion of this text.

    more: of its message, such as `refusal` or `tool_calls`.
    """
    message = {"role": "assistant", "content": text, **more}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": stop}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    return Reply(body=json.dumps(answer).encode())


def responds(*items: str | dict[str, Any], **more: Any) -> Reply:
    """A whole response of these items; a text is a message.

    more: of the response, such as `incomplete_details`.
    """
    output = [
        {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": item, "annotations": []}],
        }
        if isinstance(item, str)
        else item
        for number, item in enumerate(items)
    ]
    answer = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "scripted",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        },
        **more,
    }
    return Reply(body=json.dumps(answer).encode())


def chooses(choice: str, why: str = "it is for that") -> Reply:
    """The answer of a judge."""
    return says(json.dumps({"choice": choice, "why": why}))


def fails(status: int, message: str, **headers: str) -> Reply:
    """An error of the API; underscores in the names of headers are hyphens."""
    error = {"type": "error", "error": {"type": "some_error", "message": message}}
    return Reply(
        status,
        json.dumps(error).encode(),
        {name.replace("_", "-"): value for name, value in headers.items()},
    )


HANGS = Reply(hang=True)
DRIPS = Reply(drip=True)
CUT = Reply(body=b'{"choices": [', cut=True)


class ModelApi:
    """Serves the replies in order, at `url`; a request too many fails.

    `asked` has every request.
    """

    def __init__(self, *replies: Reply) -> None:
        self.asked: list[Asked] = []
        self._replies: list[Reply] = list(replies)
        self._closing = threading.Event()
        self._turn = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def then(self, *replies: Reply) -> None:
        """Add to the script."""
        self._replies += replies

    def forget(self) -> None:
        """Drop what is left of the script."""
        self._replies.clear()

    def answer(self, asked: Asked) -> Reply:
        with self._turn:
            self.asked.append(asked)
            reply = self._replies.pop(0) if self._replies else fails(418, "the script is over")
        if reply.hang:
            self._closing.wait(60)
        return reply

    def drip(self, stream: BinaryIO) -> None:
        """Write a byte now and then until the other side hangs up."""
        while not self._closing.wait(0.02):
            stream.write(b" ")

    @property
    def shown(self) -> Sequence[Any]:
        """The JSON documents that were given as data, one for each request."""
        return [json.loads(asked.body["messages"][-1]["content"]) for asked in self.asked]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def opened(
    key: str | None, address: str | None = None, timeout: float = 20.0, attempts: int = 2
) -> ApiModel:
    """A model of Anthropic's at this address."""
    return replace(anthropic_endpoint(key, address=address), attempts=attempts).open(timeout)


@contextmanager
def asking(api: ModelApi) -> Iterator[ApiModel]:
    """Yield who thinks with this stand-in, and ask it once."""
    thinker = opened("sk-ant-test", api.url, attempts=1)
    try:
        yield thinker
    finally:
        thinker.close()


def labels(document: Any) -> dict[str, str]:
    """The labels in a document that a judge was shown, by the names of the choices."""
    return {choice["name"]: choice["label"] for choice in document["choices"]}


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news."""


def _handler(api: ModelApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = api.answer(
                Asked(self.path, headers, json.loads(self.rfile.read(length) or b"{}"))
            )
            if reply.hang:
                return
            missing = 1_000_000 if reply.drip else 100 if reply.cut else 0
            self.send_response(reply.status)
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body) + missing))
            self.end_headers()
            self.wfile.write(reply.body)
            if reply.drip:
                with suppress(OSError):
                    api.drip(self.wfile)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """The test's output stays clean."""

    return Handler
