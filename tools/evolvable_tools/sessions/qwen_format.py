"""The transcripts of Qwen Code: the envelope of Claude Code around messages whose text is in
`parts`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evolvable_tools.sessions.session import (
    Origin,
    RawPiece,
    as_list,
    as_mapping,
    as_text,
    parse_moment,
    text_of,
)
from evolvable_tools.sessions.taint import TABLES
from evolvable_tools.sessions.transcript_formats import TranscriptFormat, split_typed, typed_once

QWEN_TYPES = frozenset(TABLES["types"]["qwen"].split())
"""Types of lines that are read. Others are skipped."""

_WRAPPER = "tool_call"
"""The tool by which a model calls the tools that the client holds back; their names are in its
arguments.
"""

_TYPED = frozenset((None, "mid_turn_user_message"))
"""Subtypes of the lines under the user's name that a person wrote: notifications and timers have
others.
"""

_CONTEXT = "<qwen:"
"""How a part begins that the client or a hook added to a person's message."""


def is_qwen(record: Mapping[str, Any]) -> bool:
    """Return whether a line is a message of Qwen Code."""
    message = as_mapping(record.get("message"))
    return "sessionId" in record and isinstance(message.get("parts"), list)


class QwenFormat(TranscriptFormat):
    """Reads the lines of one file of Qwen Code. agent: the subagent whose file it is."""

    client = "qwen"

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        kind = record.get("type")
        if not isinstance(kind, str) or kind not in QWEN_TYPES:
            return
        agent = self._agent
        if agent is None and record.get("isSidechain") is True:
            agent = as_text(record.get("agentId")) or "sidechain"
        base = RawPiece(
            "system", Origin.MEMORY, "", parse_moment(record.get("timestamp")), agent=agent
        )
        self._learn_session(record, base, "sessionId")
        if agent is not None and (name := as_text(record.get("agentName"))):
            self.about.learn_subagent(agent, name=name)
        if kind == "assistant":
            yield from self._read_assistant(record, base)
        elif kind == "tool_result":
            yield from self._read_results(record, base)
        elif kind == "user":
            yield from typed_once(self._read_user(record, base))
        elif record.get("subtype") == "chat_compression":
            # The messages that the model keeps stand in the file already; only the summary is new.
            history = as_list(as_mapping(record.get("systemPayload")).get("compressedHistory"))
            yield base.copy(
                origin=Origin.ASSISTANT,
                text=text_of(as_mapping(next(iter(history), None)).get("parts")),
            )

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        message = record.get("message")
        if record.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            return None
        parts = message.get("parts")
        if not isinstance(parts, list):
            return message
        return {"content": [_make_block(part) for part in parts]}

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        return as_text(record.get("uuid"))

    def subagent_folder(self, path: Path) -> Path | None:
        return path.parent.parent / "subagents" / path.stem

    def _read_assistant(self, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        base.model = self.about.model = as_text(record.get("model")) or self.about.model
        self._count_tokens(as_mapping(record.get("usageMetadata")))
        for part in _list_parts(record):
            called = as_mapping(part.get("functionCall"))
            if tool := as_text(called.get("name")):
                arguments = as_mapping(called.get("args"))
                if tool == _WRAPPER and (inner := as_text(arguments.get("name"))):
                    tool, arguments = inner, as_mapping(arguments.get("arguments"))
                yield self._make_call(as_text(called.get("id")), tool, arguments, base)
            elif part.get("thought") is not True and (text := as_text(part.get("text"))):
                yield base.copy(role="assistant", origin=Origin.ASSISTANT, text=text)

    def _read_results(self, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        status = as_mapping(record.get("toolCallResult")).get("status")
        for part in _list_parts(record):
            answer = as_mapping(part.get("functionResponse"))
            if answer:
                response = as_mapping(answer.get("response"))
                failed = "error" in response or status in ("error", "cancelled")
                text = text_of(response.get("error", response.get("output")))
                yield self._make_result(
                    as_text(answer.get("id")),
                    text,
                    failed,
                    base,
                    unknown=as_text(answer.get("name")),
                )

    def _read_user(self, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        """Yield what a person typed, and apart from it what the client and hooks added."""
        typed = (
            record.get("provenance", "real_user") == "real_user" and record.get("subtype") in _TYPED
        )
        texts = [text for part in _list_parts(record) if (text := as_text(part.get("text")))]
        if base.agent is not None:
            yield from (base.copy(text=text, origin=Origin.ASSISTANT) for text in texts)
            return
        displayed = as_text(as_mapping(record.get("systemPayload")).get("displayText"))
        if typed and displayed is not None:
            yield from split_typed(displayed, base)
        for text in texts:
            if not typed or text.lstrip().startswith(_CONTEXT):
                yield base.copy(text=text)
            elif displayed is None:
                yield from split_typed(text, base)
            elif text != displayed:
                yield base.copy(text=text)

    def _count_tokens(self, usage: Mapping[str, Any]) -> None:
        total, cached = usage.get("totalTokenCount"), usage.get("cachedContentTokenCount")
        if type(total) is int:
            spent = total - (cached if type(cached) is int else 0)
            self.about.tokens = (self.about.tokens or 0) + spent


def _list_parts(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [as_mapping(part) for part in as_list(as_mapping(record.get("message")).get("parts"))]


def _make_block(part: object) -> object:
    """Return a part in the form of a block, as far as it is known to hold no text."""
    fields = as_mapping(part)
    if fields.get("thought") is True:
        return {"type": "thinking"}
    return {"type": "file"} if {"inlineData", "fileData"} & fields.keys() else part
