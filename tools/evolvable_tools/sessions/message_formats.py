"""The formats of messages: Claude Code's transcripts, and plain lists of the Anthropic and OpenAI APIs."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from evolvable_tools.sessions import (
    Origin,
    RawPiece,
    TranscriptInfo,
    as_list,
    as_mapping,
    as_text,
    parse_moment,
    text_of,
)
from evolvable_tools.sessions.taint import result_origin, skill_name, split_message

CLIENT = "claude-code"

TYPES = frozenset(("user", "assistant", "attachment", "system", "summary", "file-history-snapshot", "queue-operation"))
"""Types of lines by which a file of Claude Code is known; others come and go."""

_SAID = "To tell you how to proceed, the user said:\n"
_PERSONS = frozenset(("human", "user"))


class ClaudeCodeFormat:
    """Reads the lines of one file. agent: the subagent whose file it is."""

    def __init__(self, agent: str | None = None) -> None:
        self.about = TranscriptInfo(CLIENT)
        self._agent = agent
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._spent: dict[str, int] = {}

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        """Yield the pieces of one line; none for a type that says nothing."""
        kind = record.get("type")
        if not isinstance(kind, str) or kind not in TYPES:
            return
        self._learn(record)
        agent = self._agent
        if agent is None and record.get("isSidechain") is True:
            agent = as_text(record.get("agentId")) or "sidechain"
        at, skill = parse_moment(record.get("timestamp")), as_text(record.get("attributionSkill"))
        base = RawPiece("system", Origin.MEMORY, "", at, skill=skill, agent=agent)
        if kind == "assistant":
            yield from self._assistant(record, base)
        elif kind == "user":
            yield from self._user(record, base)
        elif kind == "attachment":
            yield from self._attachment(as_mapping(record.get("attachment")), base)

    def _learn(self, record: Mapping[str, Any]) -> None:
        about = self.about
        about.known += 1
        about.session_id = about.session_id or as_text(record.get("sessionId")) or ""
        about.project = about.project or as_text(record.get("cwd"))
        about.started = about.started or parse_moment(record.get("timestamp"))

    def _assistant(self, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        message = as_mapping(record.get("message"))
        model = as_text(message.get("model"))
        if model == "<synthetic>":
            # The client's own words, such as that a limit is reached.
            yield replace(base, text=text_of(message.get("content")))
            return
        self.about.model = model or self.about.model
        self._count(message)
        at, agent, its = base.at, base.agent, base.skill
        content = message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content):
            block = as_mapping(block)
            if block.get("type") == "text" and as_text(block.get("text")):
                yield RawPiece("assistant", Origin.ASSISTANT, block["text"], at, model=model, skill=its, agent=agent)
            elif block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use") and as_text(block.get("name")):
                tool, given = block["name"], as_mapping(block.get("input"))
                call = as_text(block.get("id"))
                if call:
                    self._calls[call] = (tool, given)
                skill = result_origin(tool, given, None)[1] if tool == "Skill" else its
                known = (False, model, given, skill, agent)
                yield RawPiece("assistant", Origin.ASSISTANT, "", at, tool, call, *known)
            elif str(block.get("type")).endswith("_tool_result"):
                yield self._result(block, record, replace(base, model=model))

    def _user(self, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        message = as_mapping(record.get("message"))
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
        # A message is one, of however many blocks it is made.
        opens = True
        for block in blocks:
            block = as_mapping(block)
            if block.get("type") == "tool_result":
                yield from self._answered(self._result(block, record, base), record, base)
            elif block.get("type") == "text" and as_text(block.get("text")):
                for piece in self._said(block["text"], record, base):
                    yield replace(piece, typed=piece.typed and opens)
                    opens = opens and not piece.typed

    def _said(self, text: str, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        """Yield what stands in the user's name: what was typed, what a subagent was told, and what was put in."""
        if record.get("isMeta") is True:
            called = self._calls.get(str(record.get("sourceToolUseID")))
            name = (called and result_origin(*called, None)[1]) or skill_name(text)
            skilful = called is not None and called[0] == "Skill" or text.startswith("Base directory for this skill:")
            yield replace(
                base, text=text, origin=Origin.SKILL if skilful else Origin.MEMORY, skill=name if skilful else None
            )
        elif record.get("isCompactSummary") is True or base.agent is not None:
            yield replace(base, text=text, origin=Origin.ASSISTANT)
        elif not _from_person(record):
            yield replace(base, text=text, origin=Origin.MEMORY)
        else:
            yield from split_typed(text, base)

    def _result(self, block: Mapping[str, Any], record: Mapping[str, Any], base: RawPiece) -> RawPiece:
        call = as_text(block.get("tool_use_id"))
        tool, given = self._calls.get(call or "", (None, {}))
        project = as_text(record.get("cwd")) or self.about.project
        origin, skill = result_origin(tool, given, self.about.project or project)
        if origin is Origin.COMMAND and tool in ("BashOutput", "TaskOutput", "Monitor"):
            origin = self._background(given)
        failed, model = block.get("is_error") is True, base.model
        return RawPiece(
            "tool", origin, text_of(block.get("content")), base.at, tool, call, failed, model, None, skill, base.agent
        )

    def _answered(self, result: RawPiece, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        """Yield a result; of a call that a person refused, apart from it what they typed instead.

        The client says who refused it beside the text, where no tool can write.
        """
        about, said, words = result.text.partition(_SAID)
        if words and result.is_error and record.get("toolDenialKind") == "user-rejected" and base.agent is None:
            yield replace(result, text=about + said)
            yield from split_typed(words, base)
        else:
            yield result

    def _background(self, given: Mapping[str, Any]) -> Origin:
        """Return the origin of what a background command printed: of third parties if any such command fetched it."""
        origins = (
            result_origin(tool, said, None)[0] for tool, said in self._calls.values() if said.get("run_in_background")
        )
        return Origin.WEB if Origin.WEB in origins else Origin.COMMAND

    def _attachment(self, said: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        kind = said.get("type")
        if kind == "queued_command":
            # What a person types while the model works is noted here and nowhere else.
            text = text_of(said.get("prompt"))
            if said.get("isMeta") is not True and said.get("commandMode", "prompt") == "prompt" and _from_person(said):
                yield from split_typed(text, base)
            else:
                yield replace(base, text=text)
        elif kind == "hook_additional_context":
            yield replace(base, text=text_of(said.get("content")))
        elif kind in ("nested_memory", "file"):
            inner = as_mapping(said.get("content"))
            text = text_of(inner.get("content")) or text_of(as_mapping(inner.get("file")).get("content"))
            origin = Origin.MEMORY
            if kind == "file":
                origin = result_origin("Read", {"file_path": said.get("filename")}, self.about.project)[0]
            yield replace(base, text=text, origin=origin)

    def _count(self, message: Mapping[str, Any]) -> None:
        """Count a message's tokens once: every line of it repeats them, and the last is right."""
        usage = as_mapping(message.get("usage"))
        keys = ("input_tokens", "cache_creation_input_tokens", "output_tokens")
        spent = sum(said for key in keys if type(said := usage.get(key)) is int)
        identity = as_text(message.get("id"))
        if usage and identity:
            before = self._spent.get(identity, 0)
            self._spent[identity] = spent
            self.about.tokens = (self.about.tokens or 0) + spent - before


def split_typed(text: str, base: RawPiece) -> Iterator[RawPiece]:
    """Yield the parts of a message in a person's name; what was typed has role user and begins a turn once."""
    opens = True
    for part in split_message(text):
        if part.origin is Origin.USER:
            yield replace(base, role="user", origin=Origin.USER, text=part.text.strip("\n"), skill=None, typed=opens)
            opens = False
        else:
            yield replace(base, origin=part.origin, text=part.text, skill=part.skill)


def _from_person(record: Mapping[str, Any]) -> bool:
    """Return whether a line that stands in the user's name does not say that something else sent it."""
    said = record.get("origin")
    kind = as_mapping(said).get("kind") if isinstance(said, dict) else said
    return kind is None or kind in _PERSONS


_MESSAGES_CLIENT = "messages"
_ORIGINS = {origin.value: origin for origin in Origin}


class MessageListFormat:
    """Reads messages one by one. A message may say its own origin, which can only make it less believed."""

    def __init__(self) -> None:
        self.about = TranscriptInfo(_MESSAGES_CLIENT)
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        """Yield the pieces of one message; none for what is no message."""
        role = record.get("role")
        content = record.get("content", record.get("text"))
        if role not in ("user", "assistant", "system", "developer", "tool", "function"):
            return
        about = self.about
        about.known += 1
        at = parse_moment(record.get("timestamp") or record.get("at"))
        about.started = about.started or at
        about.session_id = about.session_id or as_text(record.get("session_id")) or ""
        about.project = about.project or as_text(record.get("cwd"))
        base = RawPiece("system", Origin.MEMORY, "", at)
        if role == "assistant":
            about.model = as_text(record.get("model")) or about.model
            yield from self._assistant(
                record, content, replace(base, role="assistant", origin=Origin.ASSISTANT, model=about.model)
            )
        elif role in ("tool", "function"):
            yield self._result(as_text(record.get("tool_call_id")), content, record, base)
        elif role == "user":
            yield from self._user(record, content, base)
        else:
            yield replace(base, text=text_of(content))

    def _assistant(self, record: Mapping[str, Any], content: object, base: RawPiece) -> Iterator[RawPiece]:
        for block in content if isinstance(content, list) else [content]:
            said = as_mapping(block)
            if said.get("type") == "tool_use":
                yield self._call(as_text(said.get("id")), as_text(said.get("name")), said.get("input"), base)
            elif text := text_of(block):
                yield replace(base, text=text)
        for call in as_list(record.get("tool_calls")):
            function = as_mapping(as_mapping(call).get("function"))
            yield self._call(
                as_text(as_mapping(call).get("id")), as_text(function.get("name")), function.get("arguments"), base
            )

    def _user(self, record: Mapping[str, Any], content: object, base: RawPiece) -> Iterator[RawPiece]:
        claimed = _ORIGINS.get(str(record.get("origin")), Origin.USER)
        opens = True
        for block in content if isinstance(content, list) else [content]:
            said = as_mapping(block)
            if said.get("type") == "tool_result":
                yield self._result(as_text(said.get("tool_use_id")), said.get("content"), said, base)
            elif claimed is not Origin.USER:
                yield replace(base, origin=claimed, text=text_of(block))
            else:
                for piece in split_typed(text_of(block), base):
                    yield replace(piece, typed=piece.typed and opens)
                    opens = opens and not piece.typed

    def _call(self, call: str | None, name: str | None, given: object, base: RawPiece) -> RawPiece:
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except (ValueError, RecursionError):
                given = {"arguments": given}
        tool, said = name or "unknown", as_mapping(given)
        if call:
            self._calls[call] = (tool, said)
        return replace(base, tool=tool, call_id=call, input=said)

    def _result(self, call: str | None, content: object, said: Mapping[str, Any], base: RawPiece) -> RawPiece:
        tool, given = self._calls.get(call or "", (as_text(said.get("name")), {}))
        origin, skill = result_origin(tool, given, self.about.project)
        failed = said.get("is_error") is True
        return replace(
            base,
            role="tool",
            origin=origin,
            text=text_of(content),
            tool=tool,
            call_id=call,
            is_error=failed,
            skill=skill,
        )
