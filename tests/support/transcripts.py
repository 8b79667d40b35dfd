"""Transcripts as Claude Code and Codex write them, made from a list of what happened in a session.

    events = [User("Fix the test"), Run("pytest -q", "1 failed", code=1), Says("Fixed.")]
    path = write_claude_code(home, events)

The same events make a transcript of either client, each with the lines of other types that real
ones have between.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

START = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
PROJECT = "/home/dev/project"
REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it "
    "was a file edit, the new_string was NOT written to the file). To tell you how to proceed, "
    "the user said:\n"
)
"""How Claude Code begins the result of a call that the person refused with words."""
MODELS = {"claude-code": "claude-opus-5-5", "codex": "gpt-5.5"}


@dataclass(frozen=True)
class User:
    """A person typed this.

    queued: while the agent was at work (Claude Code notes that elsewhere).
    """

    text: str
    queued: bool = False


@dataclass(frozen=True)
class Says:
    """The agent said this. skill: that the client says it worked by."""

    text: str
    skill: str | None = None


@dataclass(frozen=True)
class Run:
    """A command and what it printed."""

    command: str
    output: str = ""
    code: int = 0
    skill: str | None = None


@dataclass(frozen=True)
class ReadFile:
    """A file that was read. Codex reads by a command."""

    path: str
    text: str


@dataclass(frozen=True)
class EditFile:
    """A replacement in a file. Codex makes it by a patch."""

    path: str
    old: str
    new: str
    failed: str = ""


@dataclass(frozen=True)
class Fetch:
    """A web page."""

    url: str
    text: str


@dataclass(frozen=True)
class Mcp:
    """A call of an MCP server's tool."""

    server: str
    tool: str
    given: Mapping[str, Any]
    text: str
    failed: bool = False


@dataclass(frozen=True)
class LoadSkill:
    """A skill that the client itself loaded: by Claude Code's tool, in Codex by reading
    its file.
    """

    name: str
    body: str


@dataclass(frozen=True)
class Hook:
    """What a hook put into the context."""

    text: str


@dataclass(frozen=True)
class Reminder:
    """What the client put into the context, as if the user had said it."""

    text: str


@dataclass(frozen=True)
class Subagent:
    """A subagent with what happened in it, and its report. Codex has none here: it makes the report
    alone.

    name: its type. system: the system prompt that Claude Code notes; noted: whether it notes the
    type beside its file. skill: which starts it, in a fork: by a call, or where it is typed by the
    person. Its text is the prompt then.
    """

    prompt: str
    events: Sequence["Event"]
    report: str
    agent: str = "a1b2c3d4"
    name: str = "general-purpose"
    system: str = ""
    noted: bool = False
    skill: str = ""
    typed: bool = False


@dataclass(frozen=True)
class Raw:
    """A line as it is, bytes that need be no JSON.

    of: the client whose transcript gets it, None for both.
    """

    line: bytes
    of: str | None = None


@dataclass(frozen=True)
class Rejected:
    """A call that the person refused, with what they typed instead.

    Codex asks elsewhere: it notes the words alone.
    """

    call: "Run | EditFile"
    text: str


@dataclass(frozen=True)
class Wait:
    """Nothing happens for so many seconds."""

    seconds: float


Event = (
    User
    | Says
    | Run
    | ReadFile
    | EditFile
    | Fetch
    | Mcp
    | LoadSkill
    | Hook
    | Reminder
    | Subagent
    | Raw
    | Rejected
    | Wait
)


@dataclass
class _Clock:
    now: datetime
    step: float = 20.0

    def tick(self) -> str:
        self.now += timedelta(seconds=self.step)
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class _Lines:
    """Lines of one file, with ids that are the same each time."""

    session: str
    project: str
    clock: _Clock
    lines: list[bytes] = field(default_factory=list)
    calls: int = 0
    last: str | None = None

    def add(self, record: Mapping[str, Any]) -> None:
        self.lines.append(
            json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode(
                "utf-8", "surrogatepass"
            )
        )

    def identity(self, kind: str) -> str:
        self.calls += 1
        return f"{kind}_{uuid5(UUID(self.session), f'{kind}{self.calls}').hex[:20]}"

    def write(self, path: Path, *, cut: int = 0) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = b"".join(line + b"\n" for line in self.lines)
        path.write_bytes(data[: len(data) - cut] if cut else data)
        return path


def session_id(name: str) -> str:
    """Return a session's id, the same for the same name."""
    return str(uuid5(NAMESPACE_URL, name))


def write_claude_code(
    home: Path,
    events: Iterable[Event],
    *,
    session: str = "session",
    project: str = PROJECT,
    start: datetime = START,
    noise: bool = True,
    cut: int = 0,
) -> Path:
    """Write a transcript below home/.claude/projects and return its path.

    session: a name, of which its id is made. noise: with the lines of other types. cut: bytes that
    its end lacks.
    """
    lines = _Lines(session_id(session), project, _Clock(start))
    path = home / ".claude/projects" / project.replace("/", "-") / f"{lines.session}.jsonl"
    if noise:
        lines.add(
            {
                "type": "queue-operation",
                "operation": "enqueue",
                "timestamp": lines.clock.tick(),
                "sessionId": lines.session,
                "content": "…",
            }
        )
    for event in events:
        _claude_event(lines, event, path, noise=noise)
    if noise:
        lines.add(
            {
                "type": "last-prompt",
                "lastPrompt": "…",
                "leafUuid": lines.last,
                "sessionId": lines.session,
            }
        )
        lines.add(
            {
                "type": "cost-state",
                "sessionId": lines.session,
                "totalCostUSD": 0.01,
                "modelUsage": {},
            }
        )
    return lines.write(path, cut=cut)


def write_codex(
    home: Path,
    events: Iterable[Event],
    *,
    session: str = "session",
    project: str = PROJECT,
    start: datetime = START,
    noise: bool = True,
    cut: int = 0,
) -> Path:
    """Write a rollout below home/.codex/sessions and return its path; arguments as of
    write_claude_code.
    """
    lines = _Lines(session_id(session), project, _Clock(start))
    stamp = start.strftime("%Y-%m-%dT%H-%M-%S")
    path = (
        home
        / ".codex/sessions"
        / start.strftime("%Y/%m/%d")
        / f"rollout-{stamp}-{lines.session}.jsonl"
    )
    _codex_start(lines, noise=noise)
    for event in events:
        _codex_event(lines, event, noise=noise)
    return lines.write(path, cut=cut)


def as_messages(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the events as a plain list of messages."""
    found: list[dict[str, Any]] = []
    for number, event in enumerate(events):
        if isinstance(event, User):
            found.append({"role": "user", "content": event.text})
        elif isinstance(event, Says):
            found.append({"role": "assistant", "content": event.text})
        elif (call := _as_call(event)) is not None:
            tool, given, output, failed = call
            found.append(
                {
                    "role": "assistant",
                    "content": [
                        {"type": "tool_use", "id": f"call{number}", "name": tool, "input": given}
                    ],
                }
            )
            result = {
                "type": "tool_result",
                "tool_use_id": f"call{number}",
                "content": output,
                "is_error": failed,
            }
            found.append({"role": "user", "content": [result]})
    return found


WRITERS: Mapping[str, Callable[..., Path]] = {
    "claude-code": write_claude_code,
    "codex": write_codex,
}


def _as_call(event: Event) -> tuple[str, dict[str, Any], str, bool] | None:
    """Return (tool, input, output, whether it failed) of an event as Claude Code notes it, None for
    no call.
    """
    if isinstance(event, Run):
        failed = event.code != 0
        return (
            "Bash",
            {"command": event.command, "description": "…"},
            (f"Exit code {event.code}\n" if failed else "") + event.output,
            failed,
        )
    if isinstance(event, ReadFile):
        numbered = "\n".join(
            f"{number}\t{line}" for number, line in enumerate(event.text.split("\n"), 1)
        )
        return "Read", {"file_path": event.path}, numbered, False
    if isinstance(event, EditFile):
        given = {"file_path": event.path, "old_string": event.old, "new_string": event.new}
        return (
            "Edit",
            given,
            event.failed or f"The file {event.path} has been updated successfully.",
            bool(event.failed),
        )
    if isinstance(event, Fetch):
        return "WebFetch", {"url": event.url, "prompt": "What does it say?"}, event.text, False
    if isinstance(event, Mcp):
        return f"mcp__{event.server}__{event.tool}", dict(event.given), event.text, event.failed
    return None


def _claude_event(lines: _Lines, event: Event, path: Path, *, noise: bool) -> None:
    if isinstance(event, User) and not event.queued:
        _claude_user(lines, event.text)
    elif isinstance(event, User):
        attachment = {
            "type": "queued_command",
            "prompt": event.text,
            "commandMode": "prompt",
            "origin": {"kind": "human"},
        }
        lines.add(_claude_line(lines, "attachment", attachment=attachment))
    elif isinstance(event, Says):
        _claude_assistant(lines, {"type": "text", "text": event.text}, event.skill, noise=noise)
    elif isinstance(event, LoadSkill):
        call = _claude_call(lines, "Skill", {"skill": event.name}, None, noise=noise)
        _claude_result(
            lines,
            call,
            f"Launching skill: {event.name}",
            failed=False,
            raw={"success": True, "commandName": event.name},
        )
        text = (
            f"Base directory for this skill: /home/dev/.claude/skills/{event.name}\n\n"
            f"{event.body}\n"
        )
        said = {"role": "user", "content": [{"type": "text", "text": text}]}
        lines.add(
            _claude_line(
                lines, "user", message=said, isMeta=True, turnCompanion=True, sourceToolUseID=call
            )
        )
    elif isinstance(event, Hook):
        said = {
            "type": "hook_additional_context",
            "content": [event.text],
            "hookName": "UserPromptSubmit",
            "hookEvent": "UserPromptSubmit",
        }
        lines.add(_claude_line(lines, "attachment", attachment=said, renderedRole="system"))
    elif isinstance(event, Reminder):
        _claude_user(lines, f"<system-reminder>\n{event.text}\n</system-reminder>", isMeta=True)
    elif isinstance(event, Subagent):
        _claude_subagent(lines, event, path, noise=noise)
    elif isinstance(event, Rejected):
        called = _as_call(event.call)
        assert called is not None
        call = _claude_call(lines, called[0], called[1], None, noise=noise)
        _claude_result(
            lines, call, REJECTED + event.text, failed=True, toolDenialKind="user-rejected"
        )
    elif isinstance(event, Raw):
        lines.lines += [event.line] if event.of in (None, "claude-code") else []
    elif isinstance(event, Wait):
        lines.clock.now += timedelta(seconds=event.seconds)
    else:
        called = _as_call(event)
        assert called is not None
        tool, given, output, failed = called
        call = _claude_call(lines, tool, given, getattr(event, "skill", None), noise=noise)
        _claude_result(lines, call, output, failed=failed)


def _claude_line(lines: _Lines, kind: str, **said: Any) -> dict[str, Any]:
    record = {"parentUuid": lines.last, "isSidechain": False, **said, "type": kind}
    lines.last = str(uuid5(UUID(lines.session), f"line{len(lines.lines)}"))
    record |= {
        "uuid": lines.last,
        "timestamp": lines.clock.tick(),
        "userType": "external",
        "entrypoint": "cli",
    }
    return record | {
        "cwd": lines.project,
        "sessionId": lines.session,
        "version": "2.1.328",
        "gitBranch": "main",
    }


def _claude_user(lines: _Lines, text: str, **more: Any) -> None:
    lines.add(
        _claude_line(
            lines, "user", message={"role": "user", "content": text}, promptSource="typed", **more
        )
    )


def _claude_assistant(
    lines: _Lines, block: Mapping[str, Any], skill: str | None, *, noise: bool
) -> None:
    identity = lines.identity("msg")
    if noise:
        _claude_noise(lines)
    usage = {
        "input_tokens": 100,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 50,
    }
    message = {
        "id": identity,
        "type": "message",
        "role": "assistant",
        "model": MODELS["claude-code"],
        "content": [block],
        "usage": usage,
    }
    more = {"attributionSkill": skill} if skill else {}
    lines.add(
        _claude_line(lines, "assistant", message=message, requestId=f"req_{identity[4:16]}", **more)
    )


def _claude_noise(lines: _Lines) -> None:
    """Add lines that hold a whole request: they have a `message` too, and are no part of the
    conversation.
    """
    blob = {
        "role": "user",
        "content": [{"type": "text", "text": "a request that repeats the conversation"}],
    }
    lines.add(
        {"type": "api-request-blob", "sessionId": lines.session, "hash": "0" * 64, "message": blob}
    )
    lines.add(
        {
            "type": "api-request",
            "sessionId": lines.session,
            "timestamp": lines.clock.tick(),
            "params": {"model": MODELS["claude-code"]},
        }
    )


def _claude_call(
    lines: _Lines, tool: str, given: Mapping[str, Any], skill: str | None, *, noise: bool
) -> str:
    call = lines.identity("toolu")
    _claude_assistant(
        lines, {"type": "tool_use", "id": call, "name": tool, "input": given}, skill, noise=noise
    )
    return call


def _claude_result(
    lines: _Lines, call: str, output: str, *, failed: bool, raw: Any = None, **more: Any
) -> None:
    result = {"type": "tool_result", "tool_use_id": call, "content": output, "is_error": failed}
    told = (
        raw
        if raw is not None
        else f"Error: {output}"
        if failed
        else {"stdout": output, "stderr": "", "interrupted": False}
    )
    lines.add(
        _claude_line(
            lines, "user", message={"role": "user", "content": [result]}, toolUseResult=told, **more
        )
    )


def _claude_subagent(lines: _Lines, event: Subagent, path: Path, *, noise: bool) -> None:
    tool, given = "Agent", {"description": "…", "prompt": event.prompt, "subagent_type": event.name}
    if event.skill:
        tool, given = "Skill", {"skill": event.skill}
    call = "" if event.typed else _claude_call(lines, tool, given, None, noise=noise)
    own = _Lines(lines.session, lines.project, lines.clock, calls=1000)
    if event.skill:
        text = f"Base directory for this skill: /x/.claude/skills/{event.skill}\n\n{event.prompt}"
        own.add(_claude_line(own, "user", message={"role": "user", "content": text}, isMeta=True))
    else:
        _claude_user(own, event.prompt)
    if event.system:
        snapshot = {"type": "prompt_snapshot", "systemPrompt": [event.system, "Notes:"]}
        own.add(_claude_line(own, "attachment", attachment=snapshot))
    for each in event.events:
        _claude_event(own, each, path, noise=False)
    own.lines = [
        json.dumps(
            json.loads(line) | {"isSidechain": True, "agentId": event.agent}, ensure_ascii=False
        ).encode()
        for line in own.lines
    ]
    file = own.write(path.with_suffix("") / "subagents" / f"agent-{event.agent}.jsonl")
    if event.noted:
        noted = {"agentType": event.name} | ({} if event.skill else {"toolUseId": call})
        file.with_suffix(".meta.json").write_text(json.dumps(noted))
    if not event.typed:
        started = {"status": "forked" if event.skill else "completed", "agentId": event.agent}
        _claude_result(lines, call, event.report, failed=False, raw=started)


def _codex_start(lines: _Lines, *, noise: bool) -> None:
    meta = {
        "session_id": lines.session,
        "id": lines.session,
        "timestamp": lines.clock.tick(),
        "cwd": lines.project,
    }
    meta |= {
        "originator": "codex_exec",
        "cli_version": "0.169.0",
        "source": "cli",
        "thread_source": "user",
        "model_provider": "openai",
    }
    _codex_line(lines, "session_meta", meta)
    context = (
        f"<environment_context>\n  <cwd>{lines.project}</cwd>\n  <shell>bash</shell>\n"
        "</environment_context>"
    )
    _codex_message(
        lines, "developer", "…", "permissions.instructions", {"type": "harness", "hook": False}
    )
    _codex_message(
        lines,
        "user",
        context,
        "environments.environment_context",
        {"type": "harness", "hook": False},
    )
    _codex_line(
        lines,
        "turn_context",
        {"cwd": lines.project, "model": MODELS["codex"], "approval_policy": "never"},
    )
    if noise:
        _codex_line(
            lines,
            "world_state",
            {"full": True, "state": {"message": {"role": "user", "content": "no part of it"}}},
        )


def _codex_event(lines: _Lines, event: Event, *, noise: bool) -> None:
    if isinstance(event, User | Rejected):
        _codex_message(lines, "user", event.text, "user.text", {"type": "user"})
        if noise:
            item = {
                "type": "UserMessage",
                "id": lines.identity("item"),
                "content": [{"type": "text", "text": event.text}],
            }
            _codex_line(lines, "event_msg", {"type": "item_completed", "item": item})
    elif isinstance(event, Says):
        said = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": event.text, "annotations": []}],
        }
        _codex_line(lines, "response_item", said | {"id": lines.identity("msg")})
    elif isinstance(event, LoadSkill):
        _codex_command(lines, f"cat /home/dev/.codex/skills/{event.name}/SKILL.md", event.body, 0)
    elif isinstance(event, Hook):
        _codex_message(
            lines,
            "developer",
            event.text,
            "hooks.additional_context",
            {"type": "harness", "hook": True},
        )
    elif isinstance(event, Reminder):
        _codex_message(
            lines,
            "user",
            f"# AGENTS.md instructions for {lines.project}\n\n<INSTRUCTIONS>\n{event.text}\n"
            "</INSTRUCTIONS>",
            None,
            None,
        )
    elif isinstance(event, Subagent):
        _codex_call(lines, "spawn_agent", {"message": event.prompt}, event.report, failed=False)
    elif isinstance(event, Raw):
        lines.lines += [event.line] if event.of in (None, "codex") else []
    elif isinstance(event, Wait):
        lines.clock.now += timedelta(seconds=event.seconds)
    elif isinstance(event, Run):
        _codex_command(lines, event.command, event.output, event.code)
    elif isinstance(event, ReadFile):
        _codex_command(lines, f"cat {event.path}", event.text, 0)
    else:
        _codex_tool(lines, event)
    if noise and not isinstance(event, Raw | Wait):
        usage = {
            "input_tokens": 100,
            "cached_input_tokens": 0,
            "output_tokens": 20,
            "total_tokens": 120 * len(lines.lines),
        }
        _codex_line(
            lines,
            "token_usage_record",
            {"session_id": lines.session, "usage": usage, "thread_token_usage": usage},
        )


def _codex_tool(lines: _Lines, event: Event) -> None:
    if isinstance(event, EditFile):
        old, new = (
            "\n".join(f"{sign}{line}" for line in text.split("\n"))
            for sign, text in (("-", event.old), ("+", event.new))
        )
        patch = f"*** Begin Patch\n*** Update File: {event.path}\n@@\n{old}\n{new}\n*** End Patch\n"
        call = lines.identity("call")
        _codex_line(
            lines,
            "response_item",
            {"type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": call},
        )
        output = (
            event.failed
            or "Exit code: 0\nWall time: 0.0 seconds\nOutput:\n"
            "Success. Updated the following files:\n"
        )
        _codex_line(
            lines,
            "response_item",
            {"type": "custom_tool_call_output", "call_id": call, "output": output},
        )
    elif isinstance(event, Fetch):
        _codex_call(lines, "web_fetch", {"url": event.url}, event.text, failed=False)
    elif isinstance(event, Mcp):
        _codex_call(
            lines,
            event.tool,
            event.given,
            event.text,
            failed=event.failed,
            space=f"mcp__{event.server}",
        )


def _codex_line(lines: _Lines, kind: str, payload: Mapping[str, Any]) -> None:
    lines.add(
        {
            "timestamp": lines.clock.tick(),
            "ordinal": len(lines.lines),
            "type": kind,
            "payload": payload,
        }
    )


def _codex_message(
    lines: _Lines, role: str, text: str, kind: str | None, provenance: Mapping[str, Any] | None
) -> None:
    said: dict[str, Any] = {
        "type": "message",
        "id": lines.identity("msg"),
        "role": role,
        "content": [{"type": "input_text", "text": text}],
    }
    if kind is not None:
        told = {"content_item_kinds": [kind], "content_item_metadata": [{"provenance": provenance}]}
        said["internal_chat_message_metadata_passthrough"] = told
    _codex_line(lines, "response_item", said)


def _codex_command(lines: _Lines, command: str, output: str, code: int) -> None:
    head = (
        f"Chunk ID: 1a2b3c\nWall time: 0.1000 seconds\nProcess exited with code {code}\n"
        "Original token count: 9\n"
    )
    told = f"{head}Output:\n{output}"
    _codex_call(lines, "exec_command", {"cmd": command}, told, failed=False)


def _codex_call(
    lines: _Lines,
    tool: str,
    given: Mapping[str, Any],
    output: str,
    *,
    failed: bool,
    space: str | None = None,
) -> None:
    call = lines.identity("call")
    said = {"type": "function_call", "name": tool, "arguments": json.dumps(given), "call_id": call}
    _codex_line(lines, "response_item", said | ({"namespace": space} if space else {}))
    if space:
        item = {
            "type": "McpToolCall",
            "id": call,
            "server": space[5:],
            "tool": tool,
            "status": "failed" if failed else "completed",
        }
        _codex_line(lines, "event_msg", {"type": "item_completed", "item": item})
        output = f"Wall time: 0.0041 seconds\nOutput:\n{output}"
    _codex_line(
        lines, "response_item", {"type": "function_call_output", "call_id": call, "output": output}
    )
