"""The formats of transcripts that clients write: Claude Code's, and Codex's rollouts."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from evolvable_tools.sessions.session import (
    SKILL_TOOL,
    SUBAGENT_TOOLS,
    Origin,
    RawPiece,
    TranscriptInfo,
    as_list,
    as_mapping,
    as_text,
    parse_json,
    parse_moment,
    text_of,
)
from evolvable_tools.sessions.taint import (
    COMMANDS,
    CONTINUES,
    TABLES,
    command_line,
    result_origin,
    skill_name,
    split_message,
)

CLAUDE_CODE_TYPES, CODEX_TYPES, _CALLS, _RESULTS = (
    frozenset(TABLES["types"][name].split())
    for name in ("claude_code", "codex", "codex_calls", "codex_results")
)
"""Types of lines by which a file of Claude Code or of Codex is known, and of Codex's calls and
their results.
"""

# Claude Code's words in a refused call, before what the person typed instead.
_SAID = "To tell you how to proceed, the user said:\n"
_PERSONS = frozenset(("human", "user"))
_TOOL_BLOCKS = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))
_OUTPUT = "Output:\n"
_PROVENANCES = {
    "user": Origin.USER,
    "skills": Origin.SKILL,
    "harness": Origin.MEMORY,
    "memory": Origin.MEMORY,
}


class TranscriptFormat:
    """What the formats have in common: facts of the session, and its calls, which say where their
    results are from.
    """

    client: str

    def __init__(self, agent: str | None = None) -> None:
        self.about = TranscriptInfo(self.client)
        self._agent = agent
        self._calls: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        """Yield the pieces of one line, or of one message; none for one that says nothing."""
        raise NotImplementedError

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the message of a user or a model in a line, None for a line of another kind."""
        raise NotImplementedError

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        """Return what names a line in every file that has a copy of it, None where nothing does.

        Called once for each line, in order, before it is read.
        """
        return None

    def learn_from_notes(self, path: Path) -> None:
        """Read what the client noted elsewhere about the session in this file.

        Called before its lines are read.
        """

    def subagent_folder(self, path: Path) -> Path | None:
        """Return the folder with the files of the subagents of a session, None where the client
        keeps none so.
        """
        return None

    def subagent_files(self, path: Path) -> Iterator[tuple[str, Path]]:
        """Yield (subagent, file) for the files of the subagents of a session."""
        folder = self.subagent_folder(path)
        if folder is None or not folder.is_dir():
            return
        for file in sorted(folder.rglob("agent-*.jsonl")):
            yield file.stem.removeprefix("agent-")[:80], file

    def whole(self, lines: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
        """Return the lines to read, where the client may write a message in several."""
        return lines

    def _learn_session(
        self, record: Mapping[str, Any], base: RawPiece, session: str = "session_id"
    ) -> None:
        """Read what a line says of the session. session: the key of its id."""
        about = self.about
        about.known_lines += 1
        name = as_text(record.get(session)) or ""
        about.session_id = about.session_id or name
        about.names.add(name)
        about.project = about.project or as_text(record.get("cwd"))
        about.started = about.started or base.at

    def _make_call(
        self, call: str | None, tool: str, arguments: Mapping[str, Any], base: RawPiece
    ) -> RawPiece:
        if call:
            # A result names only its call, so the tool and its arguments are kept until it comes.
            self._calls[call] = (tool, arguments)
        return base.copy(
            role="assistant", origin=Origin.ASSISTANT, tool=tool, call_id=call, input=arguments
        )

    def _make_result(
        self,
        call: str | None,
        text: str,
        failed: bool,
        base: RawPiece,
        *,
        unknown: str | None = None,
    ) -> RawPiece:
        """Return the result of a call. unknown: the tool where nothing is known of the call."""
        tool, arguments = self._calls.get(call or "", (unknown, {}))
        origin, skill = result_origin(tool, arguments, self.about.project)
        # Such as a tool that reads more output of a shell that runs in the background.
        if origin is Origin.COMMAND and tool in CONTINUES:
            # Nobody says which command it is, so it is a third party's text if any of them fetches.
            running = (
                result_origin(*earlier_call, None)[0]
                for earlier_call in self._calls.values()
                if self._runs_on(earlier_call[1])
            )
            origin = Origin.WEB if Origin.WEB in running else Origin.COMMAND
        return base.copy(
            role="tool",
            origin=origin,
            text=text,
            tool=tool,
            call_id=call,
            is_error=failed,
            skill=skill,
        )

    def _runs_on(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call starts a command whose output a later call may show."""
        return bool(arguments.get("run_in_background"))


class ClaudeCodeFormat(TranscriptFormat):
    """Reads the lines of one file of Claude Code. agent: the subagent whose file it is."""

    client = "claude-code"

    def __init__(self, agent: str | None = None) -> None:
        super().__init__(agent)
        self._spent: dict[str, int] = {}

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        kind = record.get("type")
        if not isinstance(kind, str) or kind not in CLAUDE_CODE_TYPES:
            return
        agent = self._agent
        if agent is None and record.get("isSidechain") is True:
            agent = as_text(record.get("agentId")) or "sidechain"
        at, skill = parse_moment(record.get("timestamp")), as_text(record.get("attributionSkill"))
        base = RawPiece("system", Origin.MEMORY, "", at, skill=skill, agent=agent)
        self._learn_session(record, base, "sessionId")
        if kind == "assistant":
            if agent is not None and (name := as_text(record.get("attributionAgent"))):
                self.about.learn_subagent(agent, name=name)
            yield from self._read_assistant(as_mapping(record.get("message")), base)
        elif kind == "user":
            self._learn_started(record)
            yield from typed_once(self._read_user(record, base))
        elif kind == "attachment":
            yield from self._read_attachment(as_mapping(record.get("attachment")), base)

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if record.get("type") not in ("user", "assistant"):
            return None
        return as_mapping(record.get("message"))

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        return as_text(record.get("uuid"))

    def subagent_folder(self, path: Path) -> Path | None:
        return path.with_suffix("") / "subagents"

    def _read_assistant(self, message: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        model = as_text(message.get("model"))
        if model == "<synthetic>":
            # The client's own words, such as that a limit is reached.
            yield base.copy(text=text_of(message.get("content")))
            return
        self.about.model = model or self.about.model
        self._count_tokens(message)
        base.model = model
        for block in _list_blocks(message):
            if block.get("type") == "text" and as_text(block.get("text")):
                yield base.copy(role="assistant", origin=Origin.ASSISTANT, text=block["text"])
            elif block.get("type") in _TOOL_BLOCKS and as_text(block.get("name")):
                tool, arguments = block["name"], as_mapping(block.get("input"))
                called = self._make_call(as_text(block.get("id")), tool, arguments, base)
                # The call itself names the skill: its result may be missing.
                if tool == SKILL_TOOL:
                    called.skill = result_origin(tool, arguments, None)[1]
                yield called
            elif str(block.get("type")).endswith("_tool_result"):
                yield self._read_block_result(block, base)

    def _read_user(self, record: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        for block in _list_blocks(as_mapping(record.get("message"))):
            if block.get("type") == "tool_result":
                yield from self._split_refused_result(
                    self._read_block_result(block, base), record, base
                )
            elif block.get("type") == "text" and as_text(block.get("text")):
                yield from self._read_user_text(block["text"], record, base)

    def _read_user_text(
        self, text: str, record: Mapping[str, Any], base: RawPiece
    ) -> Iterator[RawPiece]:
        """Yield the texts under the user's name: typed texts, prompts of subagents, and injected
        texts.
        """
        if record.get("isMeta") is True:
            called = self._calls.get(str(record.get("sourceToolUseID")))
            name = (called and result_origin(*called, None)[1]) or skill_name(text)
            is_called = called is not None and called[0] == SKILL_TOOL
            is_skill = is_called or text.startswith("Base directory for this skill:")
            origin = Origin.SKILL if is_skill else Origin.MEMORY
            yield base.copy(text=text, origin=origin, skill=name if is_skill else None)
        elif record.get("isCompactSummary") is True or base.agent is not None:
            yield base.copy(text=text, origin=Origin.ASSISTANT)
        elif not _is_from_person(record):
            yield base.copy(text=text, origin=Origin.MEMORY)
        else:
            yield from split_typed(text, base)

    def _learn_started(self, record: Mapping[str, Any]) -> None:
        """Read from the result of a call which subagent it started: by its type, or by a skill that
        is forked.
        """
        agent = as_text(as_mapping(record.get("toolUseResult")).get("agentId"))
        for block in _list_blocks(as_mapping(record.get("message"))) if agent else ():
            call = as_text(block.get("tool_use_id"))
            tool, arguments = self._calls.get(call or "", ("", {}))
            if agent and call and tool in (*SUBAGENT_TOOLS, SKILL_TOOL):
                name = as_text(arguments.get("subagent_type")) if tool != SKILL_TOOL else None
                self.about.learn_subagent(agent, name=name or "", call_id=call)

    def _read_block_result(self, block: Mapping[str, Any], base: RawPiece) -> RawPiece:
        call, text = as_text(block.get("tool_use_id")), text_of(block.get("content"))
        return self._make_result(call, text, block.get("is_error") is True, base)

    def _split_refused_result(
        self, result: RawPiece, record: Mapping[str, Any], base: RawPiece
    ) -> Iterator[RawPiece]:
        """Yield a result; of a call that a person refused, apart from it what they typed instead.

        The client says who refused it beside the text, where no tool can write.
        """
        about, separator, words = result.text.partition(_SAID)
        is_refused = result.is_error and record.get("toolDenialKind") == "user-rejected"
        if words and is_refused and base.agent is None:
            yield result.copy(text=about + separator)
            yield from split_typed(words, base)
        else:
            yield result

    def _read_attachment(self, attachment: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        kind = attachment.get("type")
        if kind == "queued_command":
            # What a person types while the model works is noted here and nowhere else.
            text = text_of(attachment.get("prompt"))
            is_prompt = attachment.get("commandMode", "prompt") == "prompt"
            if is_prompt and attachment.get("isMeta") is not True and _is_from_person(attachment):
                yield from typed_once(split_typed(text, base))
            else:
                yield base.copy(text=text)
        elif kind == "prompt_snapshot" and base.agent is not None:
            prompt = as_text(next(iter(as_list(attachment.get("systemPrompt"))), None))
            self.about.learn_subagent(base.agent, prompt=prompt or "")
        elif kind == "hook_additional_context":
            yield base.copy(text=text_of(attachment.get("content")))
        elif kind in ("nested_memory", "file"):
            inner = as_mapping(attachment.get("content"))
            file = as_mapping(inner.get("file"))
            text = text_of(inner.get("content")) or text_of(file.get("content"))
            origin = Origin.MEMORY
            if kind == "file":
                arguments = {"file_path": attachment.get("filename")}
                origin, _ = result_origin("Read", arguments, self.about.project)
            yield base.copy(text=text, origin=origin)

    def _count_tokens(self, message: Mapping[str, Any]) -> None:
        """Count a message's tokens once: every line of it repeats them, and the last is right."""
        usage = as_mapping(message.get("usage"))
        keys = ("input_tokens", "cache_creation_input_tokens", "output_tokens")
        spent = sum(count for key in keys if type(count := usage.get(key)) is int)
        identity = as_text(message.get("id"))
        if usage and identity:
            before = self._spent.get(identity, 0)
            self._spent[identity] = spent
            # A message is written in several lines with a growing count; only the difference is
            # added.
            self.about.tokens = (self.about.tokens or 0) + spent - before


def _list_blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [as_mapping(block) for block in as_list(content)]


def _is_from_person(record: Mapping[str, Any]) -> bool:
    """Return whether a line under the user's name has no other sender."""
    origin = record.get("origin")
    kind = as_mapping(origin).get("kind") if isinstance(origin, dict) else origin
    return kind is None or kind in _PERSONS


def split_typed(text: str, base: RawPiece) -> Iterator[RawPiece]:
    """Yield the parts of a message in a person's name.

    What was typed has role user.
    """
    for part in split_message(text):
        if part.origin is Origin.USER:
            yield base.copy(
                role="user", origin=Origin.USER, text=part.text.strip("\n"), skill=None, typed=True
            )
        else:
            yield base.copy(origin=part.origin, text=part.text, skill=part.skill)


def typed_once(pieces: Iterable[RawPiece]) -> Iterator[RawPiece]:
    """Yield the pieces of one message, whatever its parts: only the first that was typed begins a
    turn.
    """
    opens = True
    for piece in pieces:
        opens, piece.typed = opens and not piece.typed, opens and piece.typed
        yield piece


class CodexFormat(TranscriptFormat):
    """Reads the lines of one rollout of Codex, which states itself where each part of a message
    came from.
    """

    client = "codex"

    def __init__(self) -> None:
        super().__init__()
        self._failed: set[str] = set()
        self._from = self._chain = ""

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        kind, payload = record.get("type"), as_mapping(record.get("payload"))
        if not isinstance(kind, str) or kind not in CODEX_TYPES:
            return
        base = RawPiece(
            "system", Origin.MEMORY, "", parse_moment(record.get("timestamp")), agent=self._agent
        )
        self._learn_session({}, base)
        if kind == "session_meta":
            self._read_metadata(payload)
        elif kind == "turn_context":
            self.about.model = as_text(payload.get("model")) or self.about.model
            self.about.project = self.about.project or as_text(payload.get("cwd"))
        elif kind == "token_usage_record":
            self._count_tokens(as_mapping(payload.get("thread_token_usage")))
        elif kind == "event_msg":
            self._read_event(payload)
        elif kind == "compacted":
            yield base.copy(origin=Origin.ASSISTANT, text=text_of(payload.get("message")))
        elif kind == "response_item":
            base.model = self.about.model
            yield from self._read_item(payload, base)

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        payload = as_mapping(record.get("payload"))
        is_item = record.get("type") == "response_item"
        return payload if is_item and payload.get("type") == "message" else None

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        payload = as_mapping(record.get("payload"))
        if record.get("type") == "session_meta":
            self._begin_chain(as_text(payload.get("id")) or "")
        if record.get("type") != "response_item":
            return None
        row = as_text(payload.get("id")) or as_text(payload.get("call_id"))
        if row is None and payload.get("type") == "message":
            # Older rollouts number no messages. One is known by all that came before it in the
            # session it began in.
            text = f"{self._chain} {payload.get('role')} {text_of(payload.get('content'))}"
            row = self._chain = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
        return row and f"{payload.get('type')} {row}"

    def _begin_chain(self, session: str) -> None:
        """Begin with the session that the next lines come from: a fork names itself, and then what
        it copied from.
        """
        if session and session != self._from:
            self._from = self._chain = session

    def _read_metadata(self, payload: Mapping[str, Any]) -> None:
        """Read the metadata of the session.

        A resumed or forked rollout says it again. The first time counts.
        """
        about = self.about
        if about.session_id:
            return
        about.session_id = as_text(payload.get("id")) or as_text(payload.get("session_id")) or ""
        about.project = as_text(payload.get("cwd"))
        commit = str(as_mapping(payload.get("git")).get("commit_hash") or "")
        # SHA-1 or SHA-256, and nothing else: a transcript is hostile input.
        about.commit = commit if re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", commit) else ""
        about.started = parse_moment(payload.get("timestamp")) or about.started
        source = payload.get("source")
        if isinstance(source, dict) and "subagent" in source:
            about.reviewing = source["subagent"] == "review"
            self._agent = "subagent"
            spawn = as_mapping(as_mapping(source["subagent"]).get("thread_spawn"))
            about.learn_subagent(self._agent, name=as_text(spawn.get("agent_role")) or "")
        elif payload.get("thread_source") == "subagent":
            self._agent = "subagent"

    def _read_event(self, event: Mapping[str, Any]) -> None:
        item = as_mapping(event.get("item"))
        if event.get("type") == "item_completed":
            code = item.get("exit_code")
            if item.get("status") == "failed" or (isinstance(code, int) and code):
                self._failed.add(str(item.get("id")))
        elif event.get("type") in ("mcp_tool_call_end", "exec_command_end", "patch_apply_end"):
            has_failed = event.get("exit_code") or event.get("success") is False
            if has_failed or "Err" in as_mapping(event.get("result")):
                self._failed.add(str(event.get("call_id")))
        elif event.get("type") == "token_count":
            self._count_tokens(as_mapping(as_mapping(event.get("info")).get("total_token_usage")))

    def _count_tokens(self, usage: Mapping[str, Any]) -> None:
        total, cached = usage.get("total_tokens"), usage.get("cached_input_tokens")
        if isinstance(total, int):
            spent = total - (cached if isinstance(cached, int) else 0)
            # Codex reports running totals, and a resumed rollout repeats older ones.
            self.about.tokens = max(self.about.tokens or 0, spent)

    def _read_item(self, item: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        kind = item.get("type")
        if kind == "message":
            yield from typed_once(self._read_message(item, base))
        elif kind in _CALLS:
            call = as_text(item.get("call_id")) or as_text(item.get("id"))
            keys = ("arguments", "input", "action")
            key = next((key for key in keys if isinstance(item.get(key), dict | str)), "")
            arguments = parse_arguments(key, item.get(key))
            yield self._make_call(call, _name_tool(str(kind), item), arguments, base)
        elif kind in _RESULTS:
            yield self._read_item_result(item, base.copy(model=None))

    def _read_message(self, message: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            yield base.copy(role="assistant", origin=Origin.ASSISTANT, text=text_of(content))
            return
        base = base.copy(model=None)
        passed = as_mapping(message.get("internal_chat_message_metadata_passthrough"))
        kinds = as_list(passed.get("content_item_kinds"))
        facts = as_list(passed.get("content_item_metadata"))
        for place, block in enumerate(content if isinstance(content, list) else [content]):
            text = text_of(block)
            origin = _find_provenance(place, kinds, facts)
            if not text.strip():
                continue
            if role != "user" or (origin is not None and origin is not Origin.USER):
                skill = skill_name(text) if origin is Origin.SKILL else None
                yield base.copy(origin=origin or Origin.MEMORY, text=text, skill=skill)
            elif self._agent is not None:
                yield base.copy(origin=Origin.ASSISTANT, text=text)
            else:
                yield from split_typed(text, base)

    def _read_item_result(self, item: Mapping[str, Any], base: RawPiece) -> RawPiece:
        call = as_text(item.get("call_id"))
        output, failed = _read_output(item.get("output", item.get("tools")))
        result = self._make_result(call, output, failed or (call or "") in self._failed, base)
        head = output[:400]
        body = head.find(_OUTPUT) + len(_OUTPUT) if _OUTPUT in head else 0
        if result.tool in COMMANDS and not failed:
            code = head[:body].rpartition("exited with code ")[2].split("\n")[0].strip()
            failed = code.isdigit() and code != "0"
        return result.copy(is_error=result.is_error or failed, follows=body)

    def _runs_on(self, arguments: Mapping[str, Any]) -> bool:
        return bool(command_line(arguments))


def _name_tool(kind: str, item: Mapping[str, Any]) -> str:
    calls = {"local_shell_call": "local_shell", "web_search_call": "web_search"}
    name = as_text(item.get("name")) or calls.get(kind, kind)
    space = as_text(item.get("namespace"))
    return f"{space}__{name}" if space and not name.startswith(space) else name


def _find_provenance(place: int, kinds: list[Any], facts: list[Any]) -> Origin | None:
    """Return where a part of a message came from as Codex says it, None where it says nothing."""
    fact = as_mapping(as_mapping(facts[place]).get("provenance")) if place < len(facts) else {}
    kind = str(kinds[place]) if place < len(kinds) else ""
    if fact.get("type") == "tool":
        space = str(fact.get("namespace", ""))
        is_others = space.startswith("mcp__") and "evolvable" not in space
        return Origin.MCP if is_others else Origin.MEMORY
    origin = _PROVENANCES.get(str(fact.get("type")))
    if origin is not None or kind in ("", "unknown"):
        return origin
    return Origin.USER if kind.startswith("user.") else Origin.MEMORY


def parse_arguments(key: str, value: object) -> Mapping[str, Any]:
    """Return what a call was given: an object, or a text that is JSON or free."""
    arguments = parse_json(value) if isinstance(value, str) else value
    if isinstance(arguments, dict):
        return arguments
    return {key: value} if isinstance(value, str) else {}


def _read_output(value: object) -> tuple[str, bool]:
    """Return a result's text, and whether it says that it failed.

    Older rollouts have JSON in it.
    """
    if isinstance(value, str) and value.startswith('{"output":'):
        inner = parse_json(value)
        if isinstance(inner, dict):
            code = as_mapping(inner.get("metadata")).get("exit_code")
            return text_of(inner.get("output")), bool(code)
    if isinstance(value, dict):
        failed = value.get("success") is False or value.get("isError") is True
        return text_of(value.get("content", value.get("output"))), failed
    return text_of(value), False
