"""Transcripts that repeat another one, as clients write them when a person resumes, forks or
compacts a session.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from transcripts import Event, session_id

Write = Callable[..., Path]


def fork(write: Write, home: Path, origin: Path, events: Iterable[Event], *, session: str) -> Path:
    """Write a session that begins with all the lines of another one and goes on with these events.

    Claude Code gives the copied lines the new session's id and says where they come from. Codex
    writes them, the old metadata too, below metadata of its own, with new times.
    """
    path = write(home, events, session=session)
    own, identity = _records(path), session_id(session)
    copied = _records(origin)
    if write.__name__ == "write_claude_code":
        before = [_claude_copy(line, identity) for line in copied]
        _save(path, [*before, *own])
    else:
        for line in copied:
            line["timestamp"] = own[0]["timestamp"]
        _save(path, [own[0], *copied, *own[1:]])
    os.utime(path, (origin.stat().st_mtime + 60,) * 2)
    return path


def copy(origin: Path, *, session: str) -> Path:
    """Write the file of a session again under another session's id; return its path."""
    text = origin.read_text(encoding="utf-8").replace(_session(origin), session_id(session))
    path = origin.with_name(origin.name.replace(_session(origin), session_id(session)))
    path.write_text(text, encoding="utf-8")
    os.utime(path, (origin.stat().st_mtime + 60,) * 2)
    return path


def replay(path: Path, times: int = 3) -> Path:
    """Write all lines of a session again, so many times, as compacting and resuming it does."""
    lines = _records(path)
    _save(path, lines * (times + 1))
    return path


def _claude_copy(line: dict[str, Any], session: str) -> dict[str, Any]:
    came = (
        {"forkedFrom": {"sessionId": line.get("sessionId"), "messageUuid": line["uuid"]}}
        if "uuid" in line
        else {}
    )
    return {**line, "sessionId": session, **came}


def _session(path: Path) -> str:
    return path.stem[-36:]


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _save(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
