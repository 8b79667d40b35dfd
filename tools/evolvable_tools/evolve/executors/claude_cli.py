"""Claude Code without its terminal, in a configuration of its own that holds the program and nothing else."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from evolvable_store.resource import Kind
from evolvable_tools.evolve.candidates.programs import Program
from evolvable_tools.evolve.executors.agent_cli import (
    ClientCall,
    ClientDirs,
    ClientSettings,
    InstalledProgram,
    InstallLayout,
    find_missing_tools,
    find_shadowing_skills,
    install_program,
    refuse_program,
    run_client,
)
from evolvable_tools.evolve.executors.base import Trajectory, iter_events
from evolvable_tools.evolve.run_config import HostContext
from evolvable_tools.evolve.task import Rollout, Task
from evolvable_tools.sandbox import MODEL_PORT, ModelAccess

TOOLS = ("Bash", "Edit", "Glob", "Grep", "Read", "Skill", "Write")
"""What the model may use unless told otherwise: the workspace and commands in it, and the program's skills."""

FLAGS = (
    *("-p", "--output-format", "stream-json", "--verbose", "--no-session-persistence", "--strict-mcp-config"),
    # Only the private configuration: no settings, hooks, skills or CLAUDE.md of the folder it works in.
    *("--setting-sources", "user", "--permission-mode", "acceptEdits"),
)
_QUIET_ENVIRONMENT = dict.fromkeys(
    (
        *("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY"),
        *("CLAUDE_CODE_DISABLE_BUNDLED_SKILLS", "CLAUDE_CODE_DISABLE_AUTO_MEMORY"),
        *("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "CLAUDE_CODE_DISABLE_WORKFLOWS"),
    ),
    "1",
) | {"CLAUDE_CODE_MAX_RETRIES": "2"}  # who counts the trials waits and tries again
_BUILT_IN = ("agents-md", "privacy", "plugin-authoring")
"""Plugins that come with the client; one of them has a skill, and a program without skills has none."""

_ADDRESS = "https://api.anthropic.com"
_PATHS = frozenset(("/v1/messages", "/v1/messages/count_tokens", "/v1/models"))

HELD_KEY = "sk-ant-held-outside-of-the-sandbox"
"""What stands inside for a key that the relay holds."""

_MANAGED = (Path("/etc/claude-code/.claude/skills"), Path("/Library/Application Support/ClaudeCode/.claude/skills"))
"""Where an administrator's skills lie, which no configuration of ours leaves out."""


class ClaudeExecutor:
    """Runs tasks with Claude Code. Every run has a fresh home and a fresh configuration with only the program in it."""

    def __init__(self, settings: ClientSettings) -> None:
        """settings.tools: by default TOOLS. What it costs is told by the client itself."""
        self._settings = settings if settings.tools else replace(settings, tools=TOOLS)
        self.fingerprint = self._settings.fingerprint("claude-code", (*FLAGS, *_QUIET_ENVIRONMENT))
        self.label = self._settings.label

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], host: HostContext, **_: object) -> Self:
        """Return the executor that a run's settings name. Raises InvalidArgument, ClientError."""
        return cls(ClientSettings.from_spec("claude", spec, host))

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return what came of one task; see Executor. Refused where the program's means or names are not its own."""
        if why := self._unfit(program, workspace):
            return refuse_program(why)
        return await run_client(self._settings, task, workspace, lambda place: self._prepare(program, place))

    def _unfit(self, program: Program, workspace: Path) -> str:
        if missing := find_missing_tools(program, self._settings.tools):
            return f"{'; '.join(missing)}, which the model may not use here"
        if any(part.kind is Kind.SKILL for part in program.parts) and "Skill" not in self._settings.tools:
            return "the program has skills, and the model may not use Skill here"
        there = find_shadowing_skills(program, [*_MANAGED, workspace / ".claude" / "skills"])
        return f"another skill has the name of a part: {', '.join(there)}" if there else ""

    def _prepare(self, program: Program, place: ClientDirs) -> ClientCall | Rollout:
        shelf = InstallLayout(place.config / "skills", place.config / "agents", place.config / "CLAUDE.md")
        installed = install_program(program, shelf)
        if installed.unfit:
            return refuse_program(f"Claude Code cannot be given {', '.join(installed.unfit)} as part of a program")
        if self._settings.credentials is not None:
            (place.config / ".credentials.json").symlink_to(self._settings.credentials)
        plugins = {f"cc-plugin-{name}@builtin": False for name in _BUILT_IN}
        (place.config / "settings.json").write_text(json.dumps({"enabledPlugins": plugins}), encoding="utf-8")
        tools = ",".join(self._settings.tools)
        command = [self._settings.binary, *FLAGS, "--model", self._settings.model, "--tools", tools]
        command += ["--allowedTools", tools, *self._settings.arguments]
        if installed.prompt:
            (place.root / "prompt.md").write_text(installed.prompt, encoding="utf-8")
            command += ["--append-system-prompt-file", str(place.root / "prompt.md")]
        environment = {**_QUIET_ENVIRONMENT, "CLAUDE_CONFIG_DIR": str(place.config)}
        model = None
        if self._settings.sandbox is not None:
            model, more = claude_access(self._settings.environment)
            environment |= more
        return ClientCall(tuple(command), environment, lambda out: read_claude_events(out, installed), model)


def claude_access(given: Mapping[str, str]) -> tuple[ModelAccess, dict[str, str]]:
    """Return what the relay lets through for this environment, and what the client is told instead of it.

    The key stays outside. A sign-in of the client's own is read inside, from its file.
    """
    address = given.get("ANTHROPIC_BASE_URL") or _ADDRESS
    inside = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{MODEL_PORT}{urlsplit(address).path.rstrip('/')}"}
    headers: dict[str, str] = {}
    if key := given.get("ANTHROPIC_API_KEY"):
        headers["x-api-key"], inside["ANTHROPIC_API_KEY"] = key, HELD_KEY
    if token := given.get("ANTHROPIC_AUTH_TOKEN") or given.get("CLAUDE_CODE_OAUTH_TOKEN"):
        name = "ANTHROPIC_AUTH_TOKEN" if "ANTHROPIC_AUTH_TOKEN" in given else "CLAUDE_CODE_OAUTH_TOKEN"
        headers["authorization"], inside[name] = f"Bearer {token}", HELD_KEY
    return ModelAccess(address, _PATHS, headers), inside


def read_claude_events(out: bytes, installed: InstalledProgram) -> Trajectory:
    """Return what the events of `claude -p --output-format stream-json --verbose` tell."""
    seen = Trajectory()
    skills = {ref.partition(":")[2]: ref for ref in installed.places if ref.startswith(f"{Kind.SKILL}:")}
    agents = {ref.partition(":")[2]: ref for ref in installed.places if ref.startswith(f"{Kind.AGENT}:")}
    messages: dict[str, Mapping[str, Any]] = {}
    for event in iter_events(out):
        kind = event.get("type")
        if kind == "system" and event.get("subtype") == "api_retry":
            wait = _int_field(event, "retry_delay_ms") / 1000
            seen.trouble = f"{event.get('error_status')} {event.get('error')}, retry in {wait:g} s"
        elif kind in ("assistant", "user"):
            message = event.get("message")
            if isinstance(message, dict):
                _read_content(seen, kind, message, installed, skills, agents)
                if kind == "assistant" and isinstance(message.get("usage"), dict):
                    messages[str(message.get("id"))] = message["usage"]
        elif kind == "result":
            _read_result(seen, event)
    if not seen.ended:  # stopped on its way: what its messages say is the best that is known
        seen.calls = len(messages)
        seen.given = sum(map(_input_tokens, messages.values()))
        seen.got = sum(_int_field(usage, "output_tokens") for usage in messages.values())
    return seen


def _read_content(
    seen: Trajectory,
    kind: str,
    message: Mapping[str, Any],
    installed: InstalledProgram,
    skills: Mapping[str, str],
    agents: Mapping[str, str],
) -> None:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for block in blocks:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_use":
            _read_tool_use(seen, block, installed, skills, agents)
        elif block.get("type") == "tool_result":
            seen.step("error" if block.get("is_error") else "result", _content_text(block.get("content")))
        elif block.get("type") == "text" and block.get("text"):
            if kind == "assistant" and message.get("model") != "<synthetic>":
                seen.moves()
                seen.output = str(block["text"])
            seen.step("agent" if kind == "assistant" else "shown", str(block["text"]))


def _read_tool_use(
    seen: Trajectory,
    block: Mapping[str, Any],
    installed: InstalledProgram,
    skills: Mapping[str, str],
    agents: Mapping[str, str],
) -> None:
    name, given = str(block.get("name")), block.get("input")
    values = given if isinstance(given, dict) else {}
    seen.moves()
    seen.step(f"tool {name}", values)
    if name == "Skill" and (ref := skills.get(str(values.get("skill") or values.get("command")))):
        seen.read.setdefault(ref)
    if ref := agents.get(str(values.get("subagent_type"))):
        seen.read.setdefault(ref)
    for value in values.values():
        if isinstance(value, str):
            seen.reads(value, installed.places)


def _read_result(seen: Trajectory, event: Mapping[str, Any]) -> None:
    seen.ended = True
    usage = event.get("usage")
    if isinstance(usage, dict):
        seen.given, seen.got = _input_tokens(usage), _int_field(usage, "output_tokens")
    seen.calls = _int_field(event, "num_turns") or 1
    cost = event.get("total_cost_usd")
    seen.cost = float(cost) if isinstance(cost, int | float) else None
    if isinstance(event.get("result"), str) and not event.get("is_error"):
        seen.output = event["result"]
        seen.moves()
    status = event.get("api_error_status")
    seen.status = status if isinstance(status, int) else None
    subtype = str(event.get("subtype"))
    seen.limit = subtype.startswith("error_max")
    if event.get("is_error") or subtype not in ("success", "None"):
        errors = event.get("errors")
        said = "; ".join(map(str, errors)) if isinstance(errors, list) else ""
        seen.failure = str(event.get("result") or said or subtype)


def _input_tokens(usage: Mapping[str, Any]) -> int:
    return sum(_int_field(usage, f"{kind}input_tokens") for kind in ("", "cache_creation_", "cache_read_"))


def _int_field(values: Mapping[str, Any], name: str) -> int:
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
