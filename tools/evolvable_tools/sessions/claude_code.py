"""Claude Code's transcripts: of many types of lines three are read; each block of a message is a line."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from evolvable_tools.sessions.pieces import About, Piece, listed, mapping, moment, string, text_of
from evolvable_tools.sessions.session import Origin
from evolvable_tools.sessions.tool_origins import result_origin
from evolvable_tools.sessions.wrappers import parts, skill_name

CLIENT = "claude-code"

TYPES = frozenset(("user", "assistant", "attachment", "system", "summary", "file-history-snapshot", "queue-operation"))
"""Types of lines by which a file of Claude Code is known; others come and go."""

_SAID = "To tell you how to proceed, the user said:\n"
_PERSONS = frozenset(("human", "user"))


class ClaudeCode:
    """Reads the lines of one file. agent: the subagent whose file it is."""

    def __init__(self, agent: str | None = None) -> None:
        self.about = About(CLIENT)
        self._agent = agent
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._spent: dict[str, int] = {}

    def read(self, record: Mapping[str, Any]) -> Iterator[Piece]:
        """Yields the pieces of one line; none for a type that says nothing."""
        kind = record.get("type")
        if not isinstance(kind, str) or kind not in TYPES:
            return
        self._learn(record)
        agent = self._agent
        if agent is None and record.get("isSidechain") is True:
            agent = string(record.get("agentId")) or "sidechain"
        at, skill = moment(record.get("timestamp")), string(record.get("attributionSkill"))
        base = Piece("system", Origin.MEMORY, "", at, skill=skill, agent=agent)
        if kind == "assistant":
            yield from self._assistant(record, base)
        elif kind == "user":
            yield from self._user(record, base)
        elif kind == "attachment":
            yield from self._attachment(mapping(record.get("attachment")), base)

    def _learn(self, record: Mapping[str, Any]) -> None:
        about = self.about
        about.known += 1
        about.session_id = about.session_id or string(record.get("sessionId")) or ""
        about.project = about.project or string(record.get("cwd"))
        about.started = about.started or moment(record.get("timestamp"))

    def _assistant(self, record: Mapping[str, Any], base: Piece) -> Iterator[Piece]:
        message = mapping(record.get("message"))
        model = string(message.get("model"))
        if model == "<synthetic>":
            # The client's own words, such as that a limit is reached.
            yield replace(base, text=text_of(message.get("content")))
            return
        self.about.model = model or self.about.model
        self._count(message)
        at, agent, its = base.at, base.agent, base.skill
        content = message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else listed(content):
            block = mapping(block)
            if block.get("type") == "text" and string(block.get("text")):
                yield Piece("assistant", Origin.ASSISTANT, block["text"], at, model=model, skill=its, agent=agent)
            elif block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use") and string(block.get("name")):
                tool, given = block["name"], mapping(block.get("input"))
                call = string(block.get("id"))
                if call:
                    self._calls[call] = (tool, given)
                skill = result_origin(tool, given, None)[1] if tool == "Skill" else its
                known = (False, model, given, skill, agent)
                yield Piece("assistant", Origin.ASSISTANT, "", at, tool, call, *known)
            elif str(block.get("type")).endswith("_tool_result"):
                yield self._result(block, record, replace(base, model=model))

    def _user(self, record: Mapping[str, Any], base: Piece) -> Iterator[Piece]:
        message = mapping(record.get("message"))
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else listed(content)
        # A message is one, of however many blocks it is made.
        opens = True
        for block in blocks:
            block = mapping(block)
            if block.get("type") == "tool_result":
                yield from self._answered(self._result(block, record, base), record, base)
            elif block.get("type") == "text" and string(block.get("text")):
                for piece in self._said(block["text"], record, base):
                    yield replace(piece, typed=piece.typed and opens)
                    opens = opens and not piece.typed

    def _said(self, text: str, record: Mapping[str, Any], base: Piece) -> Iterator[Piece]:
        """Yields what stands in the user's name: what was typed, what a subagent was told, and what was put in."""
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
            yield from typed(text, base)

    def _result(self, block: Mapping[str, Any], record: Mapping[str, Any], base: Piece) -> Piece:
        call = string(block.get("tool_use_id"))
        tool, given = self._calls.get(call or "", (None, {}))
        project = string(record.get("cwd")) or self.about.project
        origin, skill = result_origin(tool, given, self.about.project or project)
        if origin is Origin.COMMAND and tool in ("BashOutput", "TaskOutput", "Monitor"):
            origin = self._background(given)
        failed, model = block.get("is_error") is True, base.model
        return Piece(
            "tool", origin, text_of(block.get("content")), base.at, tool, call, failed, model, None, skill, base.agent
        )

    def _answered(self, result: Piece, record: Mapping[str, Any], base: Piece) -> Iterator[Piece]:
        """Yields a result; of a call that a person refused, apart from it what they typed instead.

        The client says who refused it beside the text, where no tool can write.
        """
        about, said, words = result.text.partition(_SAID)
        if words and result.is_error and record.get("toolDenialKind") == "user-rejected" and base.agent is None:
            yield replace(result, text=about + said)
            yield from typed(words, base)
        else:
            yield result

    def _background(self, given: Mapping[str, Any]) -> Origin:
        """Returns the origin of what a background command printed: of third parties if any such command fetched it."""
        origins = (
            result_origin(tool, said, None)[0] for tool, said in self._calls.values() if said.get("run_in_background")
        )
        return Origin.WEB if Origin.WEB in origins else Origin.COMMAND

    def _attachment(self, said: Mapping[str, Any], base: Piece) -> Iterator[Piece]:
        kind = said.get("type")
        if kind == "queued_command":
            # What a person types while the model works is noted here and nowhere else.
            text = text_of(said.get("prompt"))
            if said.get("isMeta") is not True and said.get("commandMode", "prompt") == "prompt" and _from_person(said):
                yield from typed(text, base)
            else:
                yield replace(base, text=text)
        elif kind == "hook_additional_context":
            yield replace(base, text=text_of(said.get("content")))
        elif kind in ("nested_memory", "file"):
            inner = mapping(said.get("content"))
            text = text_of(inner.get("content")) or text_of(mapping(inner.get("file")).get("content"))
            origin = Origin.MEMORY
            if kind == "file":
                origin = result_origin("Read", {"file_path": said.get("filename")}, self.about.project)[0]
            yield replace(base, text=text, origin=origin)

    def _count(self, message: Mapping[str, Any]) -> None:
        """Counts a message's tokens once: every line of it repeats them, and the last is right."""
        usage = mapping(message.get("usage"))
        keys = ("input_tokens", "cache_creation_input_tokens", "output_tokens")
        spent = sum(said for key in keys if type(said := usage.get(key)) is int)
        identity = string(message.get("id"))
        if usage and identity:
            before = self._spent.get(identity, 0)
            self._spent[identity] = spent
            self.about.tokens = (self.about.tokens or 0) + spent - before


def typed(text: str, base: Piece) -> Iterator[Piece]:
    """Yields the parts of a message in a person's name; what was typed has role user and begins a turn once."""
    opens = True
    for part in parts(text):
        if part.origin is Origin.USER:
            yield replace(base, role="user", origin=Origin.USER, text=part.text.strip("\n"), skill=None, typed=opens)
            opens = False
        else:
            yield replace(base, origin=part.origin, text=part.text, skill=part.skill)


def _from_person(record: Mapping[str, Any]) -> bool:
    """Returns whether a line that stands in the user's name does not say that something else sent it."""
    said = record.get("origin")
    kind = mapping(said).get("kind") if isinstance(said, dict) else said
    return kind is None or kind in _PERSONS
