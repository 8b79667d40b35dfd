"""A stand-in for a model, to try `evolvable role model` without one: it speaks OpenAI's chat
completions locally.

It answers two questions: that of `evolvable role model test`, and that of a judge of search, where
it chooses what shares most words with the task. It keeps nothing, and needs nothing but Python:
python3 model_stand_in.py [PORT]
"""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(data: dict[str, object]) -> dict[str, object]:
    """Return the answer to a question's data."""
    choices = data.get("choices")
    if not isinstance(choices, list):
        return {"word": data.get("word", "")}
    task = words(data["task"])
    best = max(choices, key=lambda one: len(task & words([one["name"], one["description"]])))
    return {"choice": best["label"], "why": "it shares most words with the task"}


def words(value: object) -> set[str]:
    """Return the words of a JSON value, in small letters."""
    return set(re.findall(r"[a-z]+", json.dumps(value).lower()))


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions."""

    def do_POST(self) -> None:
        """Answer one question."""
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        text = json.dumps(answer(json.loads(asked["messages"][-1]["content"])))
        message = {"role": "assistant", "content": text}
        said = {
            "id": "stand-in",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(
        ("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8765), Handler
    )
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()
