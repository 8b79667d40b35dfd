"""Uses of tools that the library could not record when a hook reported them: one file each, until
the next hook.

A client reports each use once. What a library refuses then, because it is busy, full or read only,
would be lost.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evolvable_store import read_regular, write_private

USED_TOOL = "PostToolUse"
"""The event that is kept: the next prompt asks for skills again, and the end of a session has a
queue of its own.
"""

# A library that refuses for long must not fill the disk.
MAX_WAITING = 500
"""Events that wait; no more are kept."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One event of a session. event: UserPromptSubmit, PreToolUse, PostToolUse, Stop or
    SessionEnd.

    skill, file_path, command, subagent_type: arguments of a tool, by the names that the clients'
    tools use. prompt_id: the id of the prompt, '' in clients that report each prompt once.
    """

    event: str = ""
    client: str = ""
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    prompt: str = ""
    prompt_id: str = ""
    tool_name: str = ""
    tool_use_id: str = ""
    skill: str = ""
    file_path: str = ""
    command: str = ""
    subagent_type: str = ""


@dataclass(frozen=True, slots=True)
class WaitingEvent:
    """An event that was kept. at: its time, ISO 8601. place: its file."""

    payload: Mapping[str, Any]
    at: str
    place: Path

    def remove(self) -> None:
        """Remove the event, which is recorded by now."""
        with contextlib.suppress(OSError):  # recorded once more, it changes nothing
            self.place.unlink()


def keep_event(home: Path, event: HookEvent, at: str) -> None:
    """Keep a use of a tool for the next hook.

    Raise nothing: where nothing can be written, the event is lost.
    """
    folder = home / "hooks" / "waiting"
    if event.event != USED_TOOL:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sum(1 for _ in os.scandir(folder)) < MAX_WAITING:
            text = json.dumps({"at": at, "event": asdict(event)})
            # The name sorts by time, and the number of the process keeps two processes apart.
            write_private(folder / f"{time.time_ns():020}-{os.getpid()}.json", text)


def waiting_events(home: Path) -> Iterator[WaitingEvent]:
    """Yield the events that were kept, the oldest first; remove files that hold none."""
    for place in sorted((home / "hooks" / "waiting").glob("*.json")):
        try:
            record = json.loads(read_regular(place))
            waiting = WaitingEvent(dict(record["event"]), str(record["at"]), place)
        except OSError:
            continue  # it may be readable later
        except (ValueError, KeyError, TypeError, RecursionError):
            with contextlib.suppress(OSError):
                place.unlink()
            continue
        yield waiting
