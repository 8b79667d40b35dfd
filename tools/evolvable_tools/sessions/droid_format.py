"""The transcripts of Droid: the messages of Claude Code in another envelope."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evolvable_store import read_regular
from evolvable_tools.sessions.session import (
    Origin,
    RawPiece,
    as_list,
    as_mapping,
    as_text,
    parse_json,
    parse_moment,
    text_of,
)
from evolvable_tools.sessions.taint import TABLES
from evolvable_tools.sessions.transcript_formats import ClaudeCodeFormat, typed_once

DROID_TYPES = frozenset(TABLES["types"]["droid"].split())
"""Types of lines that are read. Others are skipped."""

_STARTS = "task-invocations.json"
"""The file in Droid's folder in which it notes each start of a subagent, with the id of the
subagent's session.
"""

MAX_STARTS = 8 * 1024 * 1024
"""Bytes of that file that are read."""

_UNSEEN = "user_only"
"""The visibility of what the model is not given: the runs of hooks."""


def is_droid(record: Mapping[str, Any]) -> bool:
    """Return whether a line is a message of Droid, or the beginning of its session."""
    if record.get("type") == "session_start":
        return "cwd" in record and "id" in record
    return record.get("type") == "message" and "role" in as_mapping(record.get("message"))


class DroidFormat(ClaudeCodeFormat):
    """Reads the lines of one session of Droid.

    A subagent has a session of its own, which names its caller.
    """

    client = "droid"

    def learn_from_notes(self, path: Path) -> None:
        notes_path = path.parent.parent.parent / _STARTS
        try:
            text = read_regular(notes_path, MAX_STARTS).decode("utf-8", "replace")
        except (OSError, ValueError):
            return
        starts = as_mapping(parse_json(text))
        for start in map(as_mapping, as_list(starts.get("invocations"))):
            if start.get("childSessionId") == path.stem:
                name = as_text(start.get("subagentType")) or ""
                call = as_text(start.get("parentToolUseId")) or ""
                self.about.learn_subagent(path.stem, name=name, call_id=call)

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        kind = record.get("type")
        if not isinstance(kind, str) or kind not in DROID_TYPES:
            return
        if kind == "session_start" and as_text(record.get("callingSessionId")):
            self._agent = as_text(record.get("id")) or "subagent"
        message = as_mapping(record.get("message"))
        base = RawPiece(
            "system", Origin.MEMORY, "", parse_moment(record.get("timestamp")), agent=self._agent
        )
        self._learn_session(
            {**record, "sessionId": record.get("id") if kind == "session_start" else None},
            base,
            "sessionId",
        )
        if kind == "compaction_state":
            yield base.copy(origin=Origin.ASSISTANT, text=text_of(record.get("summaryText")))
        elif message.get("visibility") == _UNSEEN:
            return
        elif message.get("role") == "assistant":
            yield from self._read_assistant({**message, "model": message.get("modelId")}, base)
        elif message.get("visibility") == "llm_only":
            yield base.copy(text=text_of(message.get("content")))
        elif message.get("role") == "user":
            yield from typed_once(self._read_user({"message": message}, base))

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        message = record.get("message")
        if record.get("type") != "message" or not isinstance(message, dict):
            return None
        return None if message.get("visibility") == _UNSEEN else message

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        return as_text(record.get("id")) if record.get("type") == "message" else None

    def subagent_folder(self, path: Path) -> Path | None:
        return None
