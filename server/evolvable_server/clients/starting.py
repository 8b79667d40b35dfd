"""Starts a server as a client would, and measures how long it takes until its tools are listed."""

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

CLIENT = "evolvable-doctor"

_HANDSHAKE: tuple[dict[str, Any], ...] = (
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": CLIENT, "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)


@dataclass(frozen=True, slots=True)
class Started:
    """How a start went. seconds: until the tools were listed; listed: whether they were; failure: why not, else ''."""

    seconds: float
    listed: bool = False
    failure: str = ""


def start(command: Sequence[str], env: Mapping[str, str], folder: Path, patience: float) -> Started:
    """Starts a server, asks it for its tools, ends it, and returns how that went. Takes `patience` seconds at most.

    env: the whole environment. The server is asked as Codex does: a handshake, then the list.
    """
    began = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        return Started(0.0, failure=f"it cannot be started: {getattr(error, 'strerror', None) or error}")
    answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
    said: list[bytes] = []
    assert process.stdin and process.stdout and process.stderr
    threads = [
        threading.Thread(target=_answers, args=(process.stdout, answers), daemon=True),
        threading.Thread(target=_keep, args=(process.stderr, said), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        started = _ask(process.stdin, answers, began, patience)
    finally:
        _end(process)
        for thread in threads:
            thread.join(1)
        for stream in (process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                stream.close()
    if started.failure or started.listed:
        return started
    told = b"".join(said).decode("utf-8", "replace").strip().splitlines()
    return replace(started, failure=f"it ended at once: {told[-1][:300] if told else 'it said nothing'}")


def _ask(
    stdin: IO[bytes],
    answers: "queue.Queue[dict[str, Any] | None]",
    began: float,
    patience: float,
) -> Started:
    waiting = {1: _HANDSHAKE[1:], 2: ()}
    try:
        _send(stdin, _HANDSHAKE[:1])
        while True:
            answer = answers.get(timeout=max(0.0, began + patience - time.monotonic()))
            seconds = time.monotonic() - began
            if answer is None:
                break
            if answer.get("id") not in waiting:
                continue
            if not isinstance(answer.get("result"), dict):
                return Started(seconds, failure=f"it answered with an error: {json.dumps(answer.get('error'))[:200]}")
            if answer["id"] == 2:
                return Started(seconds, listed=True)
            _send(stdin, waiting[1])
    except queue.Empty:
        return Started(patience, failure=f"it lists no tools within {patience:g} seconds")
    except OSError:
        pass
    return Started(time.monotonic() - began)


def _send(stdin: IO[bytes], frames: Sequence[dict[str, Any]]) -> None:
    for frame in frames:
        stdin.write(json.dumps(frame).encode() + b"\n")
    stdin.flush()


def _answers(stdout: IO[bytes], answers: "queue.Queue[dict[str, Any] | None]") -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in stdout:
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    answers.put(answer)
    answers.put(None)


def _keep(stderr: IO[bytes], said: list[bytes]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in stderr:
            if len(said) < 1000:
                said.append(line)


def _end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
