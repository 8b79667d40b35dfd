"""A plain list of messages: {role, content} in the forms of the Anthropic and OpenAI APIs, or {role, text}."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from evolvable_tools.sessions.claude_code import typed
from evolvable_tools.sessions.pieces import About, Piece, listed, mapping, moment, string, text_of
from evolvable_tools.sessions.session import Origin
from evolvable_tools.sessions.tool_origins import result_origin

CLIENT = "messages"
_ORIGINS = {origin.value: origin for origin in Origin}


class Messages:
    """Reads messages one by one. A message may say its own origin, which can only make it less believed."""

    def __init__(self) -> None:
        self.about = About(CLIENT)
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def read(self, record: Mapping[str, Any]) -> Iterator[Piece]:
        """Yields the pieces of one message; none for what is no message."""
        role = record.get("role")
        content = record.get("content", record.get("text"))
        if role not in ("user", "assistant", "system", "developer", "tool", "function"):
            return
        about = self.about
        about.known += 1
        at = moment(record.get("timestamp") or record.get("at"))
        about.started = about.started or at
        about.session_id = about.session_id or string(record.get("session_id")) or ""
        about.project = about.project or string(record.get("cwd"))
        base = Piece("system", Origin.MEMORY, "", at)
        if role == "assistant":
            about.model = string(record.get("model")) or about.model
            yield from self._assistant(
                record, content, replace(base, role="assistant", origin=Origin.ASSISTANT, model=about.model)
            )
        elif role in ("tool", "function"):
            yield self._result(string(record.get("tool_call_id")), content, record, base)
        elif role == "user":
            yield from self._user(record, content, base)
        else:
            yield replace(base, text=text_of(content))

    def _assistant(self, record: Mapping[str, Any], content: object, base: Piece) -> Iterator[Piece]:
        for block in content if isinstance(content, list) else [content]:
            said = mapping(block)
            if said.get("type") == "tool_use":
                yield self._call(string(said.get("id")), string(said.get("name")), said.get("input"), base)
            elif text := text_of(block):
                yield replace(base, text=text)
        for call in listed(record.get("tool_calls")):
            function = mapping(mapping(call).get("function"))
            yield self._call(
                string(mapping(call).get("id")), string(function.get("name")), function.get("arguments"), base
            )

    def _user(self, record: Mapping[str, Any], content: object, base: Piece) -> Iterator[Piece]:
        claimed = _ORIGINS.get(str(record.get("origin")), Origin.USER)
        opens = True
        for block in content if isinstance(content, list) else [content]:
            said = mapping(block)
            if said.get("type") == "tool_result":
                yield self._result(string(said.get("tool_use_id")), said.get("content"), said, base)
            elif claimed is not Origin.USER:
                yield replace(base, origin=claimed, text=text_of(block))
            else:
                for piece in typed(text_of(block), base):
                    yield replace(piece, typed=piece.typed and opens)
                    opens = opens and not piece.typed

    def _call(self, call: str | None, name: str | None, given: object, base: Piece) -> Piece:
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except (ValueError, RecursionError):
                given = {"arguments": given}
        tool, said = name or "unknown", mapping(given)
        if call:
            self._calls[call] = (tool, said)
        return replace(base, tool=tool, call_id=call, input=said)

    def _result(self, call: str | None, content: object, said: Mapping[str, Any], base: Piece) -> Piece:
        tool, given = self._calls.get(call or "", (string(said.get("name")), {}))
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
