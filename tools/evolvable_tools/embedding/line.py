"""One connection to the embedder's process, used for one task at a time; late answers are told by their numbers."""

import time
from multiprocessing.connection import Connection
from typing import Any

from evolvable_tools.embedding import wire

_MOST_UNANSWERED = 32  # tasks begun and never asked about, after which a process that hangs could make us wait


class Line:
    """An open connection. `owes`: an answer that was not waited for is still to come; `is_lost`: it cannot be used."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._number = self._unanswered = 0
        self.owes = self.is_lost = False

    def begin(self, task: str) -> int:
        """Sends a task; returns its number. It may turn out that the line is lost."""
        self._number += 1
        self._unanswered += 1
        if self._unanswered > _MOST_UNANSWERED:
            self.is_lost = True
            return self._number
        self._send({"op": "begin", "number": self._number, "task": task})
        return self._number

    def ask(self, number: int, question: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Returns the answer to a question about the task of this number; None when none comes in time or at all."""
        self._send(question | {"number": number})
        self.owes = True
        deadline = time.monotonic() + seconds
        while not self.is_lost and (left := deadline - time.monotonic()) >= 0:
            answer = self._next(left)
            if answer is not None and answer.get("number") == number:
                return answer
        return None

    def drain(self) -> None:
        """Throws away what has come meanwhile, and notes when the process has gone; never waits."""
        while self._next(0) is not None:
            pass

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            wire.send(self._connection, message)
        except (OSError, ValueError):
            self.is_lost = True

    def _next(self, seconds: float) -> dict[str, Any] | None:
        try:
            if not self._connection.poll(seconds):
                return None
            answer = wire.receive(self._connection)
        except (OSError, EOFError, wire.Garbled):
            self.is_lost = True
            return None
        self.owes = self.owes and answer.get("number") != self._number
        self._unanswered = 0
        return answer
