"""What a client says to a hook: nothing of it can be relied on, so whatever is no text is empty."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

MAX_TEXT = 200_000
"""Characters of one field that are looked at."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a session. event: UserPromptSubmit, PreToolUse, PostToolUse, Stop or SessionEnd.

    skill, file_path, command: what a tool was given, by the names that the clients' tools use.
    """

    event: str = ""
    client: str = ""
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_use_id: str = ""
    skill: str = ""
    file_path: str = ""
    command: str = ""


_NAMES = tuple(field.name for field in fields(Event))


def event_of(payload: Mapping[str, Any]) -> Event:
    """Returns the event in a payload, whose tool's input may stand in `tool_input` or beside the rest."""
    given = payload.get("tool_input")
    said = {**(given if isinstance(given, Mapping) else {}), **payload}
    texts = {name: _text(said.get(name)) for name in _NAMES}
    texts["event"] = _text(payload.get("hook_event_name"))
    return Event(**texts)


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        value = shlex.join(value)  # a command as a list of words
    # A client leaves a placeholder as it stands when it has nothing to put there.
    return value[:MAX_TEXT] if isinstance(value, str) and not value.startswith("${") else ""
