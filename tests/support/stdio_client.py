"""A client of a stdio server that needs nothing but the standard library: `stdio_client.py PYTHON
SKILL`.

Starts a server with that Python, loads the skill, reports that it succeeded, and writes {"use",
"report"} as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

SERVE = ["-P", "-m", "evolvable_server", "serve"]


class Server:
    """A server below this process."""

    def __init__(self, python: str, *, command: Sequence[str] = SERVE, **options: Any) -> None:
        """command: what Python runs. options: of the process."""
        self.process = subprocess.Popen(
            [python, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
        )
        self._number = 0
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        self.ask("initialize", about)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, frame: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(frame) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of a request."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer["result"]
        raise AssertionError("the server ended")

    def call(self, tool: str, **arguments: Any) -> str:
        """Return the text that a tool answers with."""
        return str(
            self.ask("tools/call", {"name": tool, "arguments": arguments})["content"][0]["text"]
        )

    def close(self) -> None:
        """End the server as clients do."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)
        assert self.process.stdout is not None
        self.process.stdout.close()


if __name__ == "__main__":
    server = Server(sys.argv[1])
    use = server.call("load_skill", ref=sys.argv[2]).rsplit("use_id: ")[1].split()[0]
    report = server.call("report_outcome", use_id=use, outcome="succeeded")
    server.close()
    print(json.dumps({"use": use, "report": report}))
