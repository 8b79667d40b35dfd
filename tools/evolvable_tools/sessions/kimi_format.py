"""The transcripts of Kimi Code: records of what was put into the context of one agent, a file for
each agent.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evolvable_tools.sessions.session import (
    Origin,
    RawPiece,
    as_mapping,
    as_text,
    moment_of,
    text_of,
)
from evolvable_tools.sessions.taint import TABLES
from evolvable_tools.sessions.transcript_formats import TranscriptFormat, split_typed, typed_once

KIMI_TYPES = frozenset(TABLES["types"]["kimi"].split())
"""Types of lines that are read. Others are skipped: some repeat the messages, some hold the prompts
of the client.
"""

_FILE, _AGENTS, _MAIN = "wire.jsonl", "agents", "main"


def is_kimi(record: Mapping[str, Any]) -> bool:
    """Return whether a line is a record of Kimi Code."""
    return str(record.get("type")) in KIMI_TYPES and bool(
        {"time", "protocol_version"} & record.keys()
    )


def session_name(path: Path) -> str | None:
    """Return the session that a file of Kimi Code belongs to, by its folder; None for another
    file.
    """
    is_agents = path.name == _FILE and path.parent.parent.name == _AGENTS
    return path.parents[2].name if is_agents else None


def is_subagent_file(path: Path) -> bool:
    """Return whether a file holds what a subagent of Kimi Code did."""
    return session_name(path) is not None and path.parent.name != _MAIN


class KimiFormat(TranscriptFormat):
    """Reads the records of one agent of Kimi Code. agent: the subagent whose file it is."""

    client = "kimi"

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        kind = record.get("type")
        if not isinstance(kind, str) or kind not in KIMI_TYPES:
            return
        at = moment_of(record.get("time") or record.get("created_at"))
        base = RawPiece("system", Origin.MEMORY, "", at, agent=self._agent)
        self._learn_session(as_mapping(record.get("environmentDisclosure")), base)
        if kind == "context.append_message":
            yield from typed_once(self._read_message(as_mapping(record.get("message")), base))
        elif kind == "context.append_loop_event":
            yield from self._read_event(as_mapping(record.get("event")), base)
        elif kind == "context.apply_compaction":
            yield base.copy(origin=Origin.ASSISTANT, text=text_of(record.get("summary")))
        elif kind == "turn.ended" and record.get("reason") != "completed":
            yield base.copy(
                text=f"[The turn was aborted: {as_text(record.get('reason')) or 'nobody says why'}]"
            )
        elif kind == "usage.record":
            self._count_tokens(record)
        elif kind == "profile.bind" and self._agent is not None:
            self.about.learn_subagent(self._agent, name=as_text(record.get("profileName")) or "")

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        event = as_mapping(record.get("event"))
        if record.get("type") == "context.append_message":
            return as_mapping(record.get("message"))
        if event.get("type") != "content.part":
            return None
        part = as_mapping(event.get("part"))
        return {"content": [{"type": "thinking"} if part.get("type") == "think" else part]}

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        return as_text(as_mapping(record.get("message")).get("id"))

    def subagent_files(self, path: Path) -> Iterator[tuple[str, Path]]:
        if session_name(path) is not None and not is_subagent_file(path):
            for file in sorted(path.parents[1].glob(f"*/{_FILE}")):
                if is_subagent_file(file):
                    yield file.parent.name[:80], file

    def _read_message(self, message: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        kind, text = as_mapping(message.get("origin")).get("kind"), text_of(message.get("content"))
        is_models = message.get("role") == "assistant" or kind == "compaction_summary"
        if is_models or (base.agent and kind == "user"):
            yield base.copy(origin=Origin.ASSISTANT, text=text)
        elif kind == "user":
            yield from split_typed(text, base)
        else:
            yield base.copy(text=text)

    def _read_event(self, event: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        kind, call = event.get("type"), as_text(event.get("toolCallId"))
        if kind == "content.part" and (text := text_of(event.get("part"))):
            yield base.copy(
                role="assistant", origin=Origin.ASSISTANT, text=text, model=self.about.model
            )
        elif kind == "tool.call" and (tool := as_text(event.get("name"))):
            yield self._make_call(
                call, tool, as_mapping(event.get("args")), base.copy(model=self.about.model)
            )
        elif kind == "tool.result":
            result = as_mapping(event.get("result"))
            yield self._make_result(
                call, text_of(result.get("output")), result.get("isError") is True, base
            )

    def _count_tokens(self, record: Mapping[str, Any]) -> None:
        self.about.model = as_text(record.get("model")) or self.about.model
        usage = as_mapping(record.get("usage"))
        keys = ("inputOther", "inputCacheCreation", "output")
        paid = [count for key in keys if type(count := usage.get(key)) is int]
        if paid:
            self.about.tokens = (self.about.tokens or 0) + sum(paid)
