"""The forms in which clients report events and read answers, where they are not Claude Code's.

A client waits for a hook, so this imports the standard library alone.
"""

import json
import os
from collections.abc import Mapping

COPILOT, OPENCODE = "copilot", "opencode"

_EVENTS = {
    "userPromptSubmitted": "UserPromptSubmit",
    "preToolUse": "PreToolUse",
    "postToolUse": "PostToolUse",
    "agentStop": "Stop",
    "sessionEnd": "SessionEnd",
}
"""Copilot CLI's names of events -> those of Claude Code."""

_FIELDS = {
    "sessionId": "session_id",
    "transcriptPath": "transcript_path",
    "toolName": "tool_name",
    "toolArgs": "tool_input",
}
"""Copilot CLI's names of fields -> those of Claude Code."""

_ARGUMENTS = {
    COPILOT: {"path": "file_path", "agent_type": "subagent_type"},
    OPENCODE: {"filePath": "file_path", "name": "skill", "patchText": "command"},
}
"""Client -> names of arguments of its own tools -> those of Claude Code's."""


def usual_payload(client: object, payload: Mapping[str, object]) -> dict[str, object]:
    """Return a payload with Claude Code's names; unchanged where the client uses them itself."""
    names = _ARGUMENTS.get(str(client))
    if names is None:
        return dict(payload)
    fields = _FIELDS if client == COPILOT else {}
    # A result may have megabytes, and nothing here reads it.
    usual = {fields.get(key, key): value for key, value in payload.items() if key != "toolResult"}
    tool_input = usual.get("tool_input")
    if isinstance(tool_input, Mapping):
        usual["tool_input"] = {names.get(key, key): value for key, value in tool_input.items()}
    session = usual.get("session_id")
    # The name becomes a part of a path.
    if client == OPENCODE and isinstance(session, str) and os.sep not in session:
        usual["transcript_path"] = _make_database_path(session)
    return usual


def _make_database_path(session: str) -> str:
    """Return the path that names a session of OpenCode in its database."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "opencode", "opencode.db", session)


def usual_event(client: object, event: object) -> object:
    """Return the name that Claude Code gives an event."""
    if client == COPILOT and isinstance(event, str):
        return _EVENTS.get(event, event)
    return event


def context_answer(client: str, event: str, text: str, message: str = "") -> str:
    """Return the JSON text with which a hook puts a text before the model, and a message before the
    person.
    """
    if client == COPILOT:
        return json.dumps({"additionalContext": text})
    answer: dict[str, object] = {
        "hookSpecificOutput": {"hookEventName": event, "additionalContext": text}
    }
    if message:
        answer["systemMessage"] = f"Evolvable: {message}"
    return json.dumps(answer)
