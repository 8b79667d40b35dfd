"""The transcripts of Cline CLI and Continue CLI: a JSON document for each session, with messages as
APIs have them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from evolvable_store import read_regular
from evolvable_tools.sessions.json_lines import Hasher
from evolvable_tools.sessions.message_list import MessageListFormat
from evolvable_tools.sessions.session import (
    Origin,
    RawPiece,
    as_list,
    as_mapping,
    as_text,
    moment_of,
    parse_json,
    text_of,
)
from evolvable_tools.sessions.transcript_formats import split_typed

MAX_DOCUMENT = 128 * 1024 * 1024
"""Bytes of a document that is read."""

_NAMES = re.compile(r".+\.messages\.json|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json")
_LEAD = (None, "lead")
_FAILED = ("canceled", "cancelled", "errored")
_TYPED = re.compile(r"\s*<user_input\b[^>\n]{0,200}>(.*?)(?:</user_input>|\Z)", re.DOTALL)


def is_document_name(name: str) -> bool:
    """Return whether a file is named as Cline CLI and Continue CLI name the document of
    a session.
    """
    return _NAMES.fullmatch(name) is not None


def read_document(
    path: Path, hasher: Hasher
) -> tuple[MessageListFormat, Iterator[Mapping[str, Any]]] | None:
    """Return the reader of a session in one JSON document, and its messages one by one; None for
    another file.

    Raises OSError.
    """
    text = read_regular(path, MAX_DOCUMENT).decode("utf-8", "replace")
    document = as_mapping(parse_json(text.removeprefix("\ufeff")))
    session = as_text(document.get("sessionId"))
    messages, history = document.get("messages"), document.get("history")
    rows: list[Any] | None = next(
        (value for value in (messages, history) if isinstance(value, list)), None
    )
    if session is None or rows is None:
        return None
    hasher.update(json.dumps(rows, sort_keys=True).encode("utf-8", "replace"))
    about = {"session_id": session, "cwd": _read_folder(document.get("workspaceDirectory"))}
    if isinstance(messages, list):
        agent = document.get("agent") not in _LEAD
        run = as_text(as_mapping(document.get("origin")).get("subagent")) or session
        reader = ClineFormat(run[:80] if agent else None)
        return reader, (_make_cline_message(row, about, agent) for row in map(as_mapping, rows))
    every = chain.from_iterable(map(_make_continue_messages, map(as_mapping, rows)))
    return ContinueFormat(), ({**message, **about} for message in every)


def _read_folder(value: object) -> str | None:
    return (as_text(value) or "").removeprefix("file://") or None


def _make_cline_message(
    row: Mapping[str, Any], about: Mapping[str, Any], agent: bool
) -> Mapping[str, Any]:
    """Return a message of Cline. agent: of a subagent, whose prompts no person typed."""
    at, model = moment_of(row.get("ts")), as_mapping(row.get("modelInfo")).get("id")
    message = {**row, **about, "timestamp": at and at.isoformat(), "model": model}
    if as_mapping(row.get("metadata")).get("displayRole") == "system":
        return {**message, "origin": Origin.MEMORY.value}
    return {**message, "origin": Origin.ASSISTANT.value} if agent else message


def _make_continue_messages(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message of Continue, what the client added to it, and the results of its calls."""
    message = as_mapping(row.get("message"))
    yield {**message, "tool_calls": message.get("toolCalls")}
    for item in map(as_mapping, as_list(row.get("contextItems"))):
        if text := as_text(item.get("content")):
            yield {"role": "user", "content": text, "origin": Origin.WEB.value}
    for state in map(as_mapping, as_list(row.get("toolCallStates"))):
        status, call = state.get("status"), as_text(state.get("toolCallId"))
        if status == "done" or status in _FAILED:
            texts = [
                _read_blocks(as_mapping(block).get("content"))
                for block in as_list(state.get("output"))
            ]
            answer = {"role": "tool", "tool_call_id": call, "content": "\n".join(texts)}
            yield {**answer, "is_error": status in _FAILED}
    if summary := as_text(row.get("conversationSummary")):
        yield {"role": "assistant", "content": summary}


def _read_blocks(content: object) -> str:
    """Return the text of a result. Of an MCP server it is a JSON list of blocks."""
    blocks = parse_json(content) if isinstance(content, str) and content.startswith("[{") else None
    is_blocks = isinstance(blocks, list) and all(
        isinstance(block, dict) and "type" in block for block in blocks
    )
    return text_of(blocks if is_blocks else content)


class ClineFormat(MessageListFormat):
    """Reads the messages of one session of Cline CLI.

    agent: the subagent whose file it is. No file says its name.
    """

    client = "cline"

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        used = as_mapping(record.get("metrics"))
        paid = [
            count for key in ("inputTokens", "outputTokens") if type(count := used.get(key)) is int
        ]
        if paid:
            cached = used.get("cacheReadTokens")
            spent = sum(paid) - (cached if type(cached) is int else 0)
            self.about.tokens = (self.about.tokens or 0) + spent
        for piece in super().read(record):
            piece.agent = self._agent
            yield piece

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        return as_text(record.get("id"))

    def _split_user_text(self, text: str, base: RawPiece) -> Iterator[RawPiece]:
        """Yield a text in a person's name: what was typed stands in a tag at its beginning."""
        typed = _TYPED.match(text)
        if typed is not None:
            yield from split_typed(typed[1], base)
        if rest := text[typed.end() if typed else 0 :]:
            yield base.copy(text=rest)

    def _read_message_result(
        self, call: str | None, content: object, fields: Mapping[str, Any], base: RawPiece
    ) -> RawPiece:
        """Return a result. Of an MCP server it is the whole answer, as JSON."""
        is_object = isinstance(content, str) and content.startswith("{")
        answer = as_mapping(parse_json(str(content))) if is_object else {}
        # Tools of MCP servers are named SERVER__TOOL there; other tools may print such JSON
        # themselves.
        if "__" in str(fields.get("name")) and isinstance(answer.get("content"), list):
            failed = answer.get("isError") is True or fields.get("is_error") is True
            fields, content = {**fields, "is_error": failed}, answer["content"]
        return super()._read_message_result(call, content, fields, base)


class ContinueFormat(MessageListFormat):
    """Reads the messages of one session of Continue CLI."""

    client = "continue"

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        used = as_mapping(record.get("usage"))
        if type(total := used.get("total_tokens")) is int:
            self.about.tokens = (self.about.tokens or 0) + total
            record = {**record, "model": used.get("model")}
        yield from super().read(record)
