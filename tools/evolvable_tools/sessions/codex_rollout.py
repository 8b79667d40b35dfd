"""Codex's rollouts: the items of a conversation, with the client's own statement of where each part came from."""

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
from evolvable_tools.sessions.message_formats import split_typed
from evolvable_tools.sessions.taint import COMMANDS, command_line, result_origin, skill_name

CLIENT = "codex"

TYPES = frozenset(
    ("session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state", "token_usage_record")
)
"""Types of lines by which a file of Codex is known."""

_OUTPUT = "Output:\n"
_CALLS = frozenset(
    ("function_call", "custom_tool_call", "mcp_tool_call", "local_shell_call", "web_search_call", "tool_search_call")
)
_RESULTS = frozenset(("function_call_output", "custom_tool_call_output", "mcp_tool_call_output", "tool_search_output"))
_PROVENANCES = {"user": Origin.USER, "skills": Origin.SKILL, "harness": Origin.MEMORY, "memory": Origin.MEMORY}


class CodexFormat:
    """Reads the lines of one rollout."""

    def __init__(self) -> None:
        self.about = TranscriptInfo(CLIENT)
        self._agent: str | None = None
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._failed: set[str] = set()

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        """Yield the pieces of one line; none for a type that says nothing."""
        kind, said = record.get("type"), as_mapping(record.get("payload"))
        if not isinstance(kind, str) or kind not in TYPES:
            return
        self.about.known += 1
        base = RawPiece("system", Origin.MEMORY, "", parse_moment(record.get("timestamp")), agent=self._agent)
        self.about.started = self.about.started or base.at
        if kind == "session_meta":
            self._begin(said)
        elif kind == "turn_context":
            self.about.model = as_text(said.get("model")) or self.about.model
            self.about.project = self.about.project or as_text(said.get("cwd"))
        elif kind == "token_usage_record":
            self._count(as_mapping(said.get("thread_token_usage")))
        elif kind == "event_msg":
            self._event(said)
        elif kind == "compacted":
            yield replace(base, origin=Origin.ASSISTANT, text=text_of(said.get("message")))
        elif kind == "response_item":
            yield from self._item(said, replace(base, model=self.about.model))

    def _begin(self, said: Mapping[str, Any]) -> None:
        """Read the metadata of the session. A resumed or forked rollout says it again; the first time counts."""
        about = self.about
        if about.session_id:
            return
        about.session_id = as_text(said.get("id")) or as_text(said.get("session_id")) or ""
        about.project = as_text(said.get("cwd"))
        about.started = parse_moment(said.get("timestamp")) or about.started
        source = said.get("source")
        if isinstance(source, dict) and "subagent" in source:
            about.reviewing = source["subagent"] == "review"
            self._agent = "subagent"
        elif said.get("thread_source") == "subagent":
            self._agent = "subagent"

    def _event(self, said: Mapping[str, Any]) -> None:
        item = as_mapping(said.get("item"))
        if said.get("type") == "item_completed":
            if item.get("status") == "failed" or (isinstance(item.get("exit_code"), int) and item["exit_code"]):
                self._failed.add(str(item.get("id")))
        elif said.get("type") in ("mcp_tool_call_end", "exec_command_end", "patch_apply_end"):
            if said.get("exit_code") or said.get("success") is False or "Err" in as_mapping(said.get("result")):
                self._failed.add(str(said.get("call_id")))
        elif said.get("type") == "token_count":
            self._count(as_mapping(as_mapping(said.get("info")).get("total_token_usage")))

    def _count(self, usage: Mapping[str, Any]) -> None:
        total, cached = usage.get("total_tokens"), usage.get("cached_input_tokens")
        if isinstance(total, int):
            self.about.tokens = max(self.about.tokens or 0, total - (cached if isinstance(cached, int) else 0))

    def _item(self, said: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        kind = said.get("type")
        if kind == "message":
            yield from self._message(said, base)
        elif kind in _CALLS:
            yield self._call(str(kind), said, base)
        elif kind in _RESULTS:
            yield self._result(said, replace(base, model=None))

    def _message(self, said: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        role, content = said.get("role"), said.get("content")
        if role == "assistant":
            yield replace(base, role="assistant", origin=Origin.ASSISTANT, text=text_of(content))
            return
        base = replace(base, model=None)
        blocks = as_list(content) if isinstance(content, list) else [content]
        passed = as_mapping(said.get("internal_chat_message_metadata_passthrough"))
        kinds, facts = as_list(passed.get("content_item_kinds")), as_list(passed.get("content_item_metadata"))
        opens = True
        for place, block in enumerate(blocks):
            text = text_of(block)
            origin = _provenance(place, kinds, facts)
            if not text.strip():
                continue
            if role != "user" or (origin is not None and origin is not Origin.USER):
                yield replace(base, origin=origin or Origin.MEMORY, text=text, skill=_skill_of(origin, text))
            elif self._agent is not None:
                yield replace(base, origin=Origin.ASSISTANT, text=text)
            else:
                for piece in split_typed(text, base):
                    yield replace(piece, typed=piece.typed and opens)
                    opens = opens and not piece.typed

    def _call(self, kind: str, said: Mapping[str, Any], base: RawPiece) -> RawPiece:
        name = as_text(said.get("name")) or {"local_shell_call": "local_shell", "web_search_call": "web_search"}.get(
            kind, kind
        )
        space = as_text(said.get("namespace"))
        tool = f"{space}__{name}" if space and not name.startswith(space) else name
        given = _given(said)
        call = as_text(said.get("call_id")) or as_text(said.get("id"))
        if call:
            self._calls[call] = (tool, given)
        return replace(base, role="assistant", origin=Origin.ASSISTANT, tool=tool, call_id=call, input=given)

    def _result(self, said: Mapping[str, Any], base: RawPiece) -> RawPiece:
        call = as_text(said.get("call_id"))
        tool, given = self._calls.get(call or "", (None, {}))
        output, failed = _output(said.get("output", said.get("tools")))
        origin, skill = result_origin(tool, given, self.about.project)
        if tool == "write_stdin":
            origin = self._running(given)
        head = output[:400]
        body = head.find(_OUTPUT) + len(_OUTPUT) if _OUTPUT in head else 0
        if tool in COMMANDS and not failed:
            code = head[:body].rpartition("exited with code ")[2].split("\n")[0].strip()
            failed = code.isdigit() and code != "0"
        failed = failed or (call or "") in self._failed
        return replace(
            base,
            role="tool",
            origin=origin,
            text=output,
            tool=tool,
            call_id=call,
            is_error=failed,
            skill=skill,
            follows=body,
        )

    def _running(self, given: Mapping[str, Any]) -> Origin:
        """Return the origin of what a running command printed on: of third parties if any command fetches."""
        ran = (result_origin(tool, said, None)[0] for tool, said in self._calls.values() if command_line(said))
        return Origin.WEB if Origin.WEB in ran else Origin.COMMAND


def _provenance(place: int, kinds: list[Any], facts: list[Any]) -> Origin | None:
    """Return where a part of a message came from as Codex says it, None where it says nothing."""
    fact = as_mapping(as_mapping(facts[place]).get("provenance")) if place < len(facts) else {}
    kind = str(kinds[place]) if place < len(kinds) else ""
    if fact.get("type") == "tool":
        space = str(fact.get("namespace", ""))
        return Origin.MCP if space.startswith("mcp__") and "evolvable" not in space else Origin.MEMORY
    found = _PROVENANCES.get(str(fact.get("type")))
    if found is None and kind:
        found = Origin.USER if kind.startswith("user.") else None if kind == "unknown" else Origin.MEMORY
    return found


def _skill_of(origin: Origin | None, text: str) -> str | None:
    return skill_name(text) if origin is Origin.SKILL else None


def _given(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a call was given: its arguments are JSON in a text, or free text, or an object."""
    for key in ("arguments", "input", "action"):
        value = said.get(key)
        if isinstance(value, dict):
            return value
        if isinstance(value, str):
            try:
                found = json.loads(value)
            except (ValueError, RecursionError):
                found = None
            return found if isinstance(found, dict) else {key: value}
    return {}


def _output(value: object) -> tuple[str, bool]:
    """Return a result's text, and whether it says that it failed; older rollouts have JSON in it."""
    if isinstance(value, str) and value.startswith('{"output":'):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict):
            return text_of(inner.get("output")), bool(as_mapping(inner.get("metadata")).get("exit_code"))
    if isinstance(value, dict):
        return text_of(value.get("content", value.get("output"))), value.get("success") is False or value.get(
            "isError"
        ) is True
    return text_of(value), False
