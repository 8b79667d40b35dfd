"""The transcripts of Gemini CLI: messages, each of which a later line may write again, whole."""

import glob
from collections.abc import Iterable, Iterator, Mapping
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

GEMINI_TYPES = frozenset(TABLES["types"]["gemini"].split())
"""Types of messages that are read. Others are skipped."""

_START = "invoke_agent"
"""The tool that starts a subagent."""

_PATCH = "$set"
"""The key of a line that changes facts of the session, or puts messages in before a person wrote
any.
"""

_WRAP = ("<untrusted_context>\n", "\n</untrusted_context>")
"""What the client writes around the answers of MCP servers."""

_CHATS, _SESSION, _BEGUN = "chats", "session-", 8
"""The folder of sessions, how the name of a session's file begins, and how many characters of its
id end the name.
"""


def is_subagent_of_gemini(path: Path) -> bool:
    """Return whether a file holds what a subagent did in a session whose file is there too."""
    chats = path.parent.parent
    begun = glob.escape(path.parent.name[:_BEGUN])
    return chats.name == _CHATS and any(chats.glob(f"{_SESSION}*-{begun}.jsonl"))


def is_gemini(record: Mapping[str, Any]) -> bool:
    """Return whether a line is a message of Gemini CLI, a change, or the beginning of
    its session.
    """
    message = record.get("type") in ("user", "gemini") and "id" in record and "content" in record
    return message or _PATCH in record or {"sessionId", "projectHash"} <= record.keys()


class GeminiFormat(TranscriptFormat):
    """Reads the lines of one file of Gemini CLI. agent: the subagent whose file it is.

    The file of a subagent does not say its name. The call that started it does, in the file of the
    session.
    """

    client = "gemini"

    def __init__(self, agent: str | None = None) -> None:
        super().__init__(agent)
        self._answered: set[str] = set()

    def whole(self, lines: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
        """Return the lines with each message once: as it was written last, where it was written
        first.
        """
        whole_lines: list[Mapping[str, Any]] = []
        places: dict[str, int] = {}
        for line in lines:
            patched = as_list(as_mapping(line.get(_PATCH)).get("messages"))
            if as_text(line.get("id")) is None:
                whole_lines.append(line)
            messages: list[Mapping[str, Any]] = [
                {**as_mapping(item), _PATCH: True} for item in patched
            ]
            for message in messages or [line]:
                name = as_text(message.get("id"))
                if name in places:
                    whole_lines[places[name]] = {**whole_lines[places[name]], **message}
                elif name is not None:
                    places[name] = len(whole_lines)
                    whole_lines.append(message)
        return whole_lines

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        kind = record.get("type")
        about = kind is None and bool({_PATCH, "projectHash"} & record.keys())
        if not about and (not isinstance(kind, str) or kind not in GEMINI_TYPES):
            return
        if record.get("kind") == "subagent":
            self._agent = as_text(record.get("sessionId")) or "subagent"
        at = parse_moment(record.get("timestamp") or record.get("startTime"))
        base = RawPiece("system", Origin.MEMORY, "", at, agent=self._agent)
        self._learn_session(record, base, "sessionId")
        if kind == "user":
            yield from typed_once(self._read_user(record, base))
        elif kind == "gemini":
            yield from self._read_model(record, base)
        elif not about:
            yield base.copy(text=text_of(record.get("content")))

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if record.get("type") not in ("user", "gemini"):
            return None
        content = record.get("content")
        if not isinstance(content, list):
            return record
        silent = {"functionResponse", "inlineData", "fileData"}
        return {
            "content": [
                {"type": "file"} if silent & as_mapping(part).keys() else part for part in content
            ]
        }

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        return as_text(record.get("id"))

    def subagent_files(self, path: Path) -> Iterator[tuple[str, Path]]:
        begun = path.stem.rpartition("-")[2]
        if path.parent.name == _CHATS and path.name.startswith(_SESSION) and len(begun) == _BEGUN:
            for file in sorted(path.parent.glob(f"{glob.escape(begun)}*/*.jsonl")):
                yield file.stem[:80], file

    def _read_user(self, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        """Yield what a person typed, apart from it what hooks and the client added, and results of
        calls.
        """
        content, displayed = record.get("content"), record.get("displayContent")
        parts = content if isinstance(content, list) else [content]
        displayed_parts = displayed if isinstance(displayed, list) else [displayed]
        typed = [text_of(part) for part in displayed_parts]
        for part in parts:
            answer = as_mapping(as_mapping(part).get("functionResponse"))
            text = text_of(part)
            if answer:
                yield from self._read_answer(answer, "", base)
            elif base.agent is not None:
                yield base.copy(origin=Origin.ASSISTANT, text=text)
            elif text in typed or (displayed is None and record.get(_PATCH) is not True):
                yield from split_typed(text, base)
            else:
                yield base.copy(text=text)

    def _read_model(self, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        base.model = self.about.model = as_text(record.get("model")) or self.about.model
        self._count_tokens(as_mapping(record.get("tokens")))
        if text := text_of(record.get("content")):
            yield base.copy(role="assistant", origin=Origin.ASSISTANT, text=text)
        for call in map(as_mapping, as_list(record.get("toolCalls"))):
            identity, status = as_text(call.get("id")), str(call.get("status"))
            if tool := as_text(call.get("name")):
                started = as_mapping(call.get("args"))
                yield self._make_call(identity, tool, started, base)
                if tool == _START and (agent := as_text(call.get("agentId"))):
                    name = as_text(started.get("agent_name")) or ""
                    self.about.learn_subagent(agent[:80], name=name, call_id=identity or "")
            answers = [
                as_mapping(as_mapping(part).get("functionResponse"))
                for part in as_list(call.get("result"))
            ]
            if not answers and (text := text_of(call.get("resultDisplay"))):
                answers = [{"response": {"output": text}}]
            for answer in answers:
                yield from self._read_answer({"id": identity, **answer}, status, base)

    def _read_answer(
        self, answer: Mapping[str, Any], status: str, base: RawPiece
    ) -> Iterator[RawPiece]:
        """Yield the result of a call, once: it stands beside the call, and in a message to the
        model.
        """
        call, response = as_text(answer.get("id")), as_mapping(answer.get("response"))
        # Gemini writes the result twice; the first one that is read counts.
        if call is None or call in self._answered:
            return
        self._answered.add(call)
        text = text_of(response.get("error", response.get("output")))
        text = text.removeprefix(_WRAP[0]).removesuffix(_WRAP[1])
        failed = "error" in response or status in ("error", "cancelled")
        yield self._make_result(
            call, text, failed, base.copy(model=None), unknown=as_text(answer.get("name"))
        )

    def _count_tokens(self, tokens: Mapping[str, Any]) -> None:
        total, cached = tokens.get("total"), tokens.get("cached")
        if type(total) is int:
            spent = total - (cached if type(cached) is int else 0)
            self.about.tokens = (self.about.tokens or 0) + spent
