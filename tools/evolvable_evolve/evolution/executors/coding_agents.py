"""Claude Code and Codex without their terminals, each in a configuration of its own that holds only
the program.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.executors import agent_cli
from evolvable_evolve.evolution.executors.agent_cli import (
    ClientCall,
    ClientDirs,
    ClientExecutor,
    ClientSettings,
)
from evolvable_evolve.evolution.executors.base import Trajectory, iter_events
from evolvable_evolve.evolution.executors.installation import (
    TOOL_SERVER,
    InstalledProgram,
    InstallLayout,
    find_used_tool,
    iter_skills,
    list_ancestor_dirs,
)
from evolvable_evolve.sandbox import ModelAccess
from evolvable_store.resource import Kind
from evolvable_tools.llm import API_KEY, BEARER, key_header


class ClaudeExecutor(ClientExecutor):
    """Runs tasks with Claude Code, which reports its cost itself."""

    name = "claude"

    def skill_dirs(self, workspace: Path) -> list[Path]:
        """Return the folders of skills that the client reads although they are not part of the
        program.
        """
        return [
            *map(Path, self._client["managed"]),
            *(workspace / path for path in self._client["project"]),
        ]

    def layout(self, config: Path) -> InstallLayout:
        """Return where the client reads the parts of a program, below its configuration."""
        return InstallLayout(
            config / "skills", config / "agents", config / "CLAUDE.md", config.parent / "tools"
        )

    def make_call(
        self, installed: InstalledProgram, place: ClientDirs, workspace: Path
    ) -> ClientCall:
        """Write the settings and the system prompt, and return the command."""
        # Plugins that come with the client would add a skill to a program without skills.
        plugins = {f"cc-plugin-{name}@builtin": False for name in self._client["plugins"]}
        (place.config / "settings.json").write_text(
            json.dumps({"enabledPlugins": plugins}), encoding="utf-8"
        )
        # Without agents in the program no sub-agent is to be started.
        has_agents = any(ref.startswith(f"{Kind.AGENT}:") for ref in installed.places)
        agent_tools = [self._client["agent_tool"]] if has_agents else []
        tools = ",".join((*self._settings.tools, *agent_tools))
        command = [self._settings.binary, *self._client["flags"]]
        command += ["--model", self._settings.model, "--tools", tools]
        own = [f"mcp__{TOOL_SERVER}__{tool['name']}" for tool in installed.tools]
        command += ["--allowedTools", ",".join([tools, *own]), *self._settings.arguments]
        if installed.server:
            server = {"type": "stdio", "command": installed.server[0], "args": installed.server[1:]}
            servers = json.dumps({"mcpServers": {TOOL_SERVER: server}})
            (place.root / "mcp.json").write_text(servers, encoding="utf-8")
            command += ["--mcp-config", str(place.root / "mcp.json")]
        if installed.prompt:
            (place.root / "prompt.md").write_text(installed.prompt, encoding="utf-8")
            command += ["--append-system-prompt-file", str(place.root / "prompt.md")]
        environment = {**self._client["variables"], "CLAUDE_CONFIG_DIR": str(place.config)}
        model = None
        if self._settings.sandbox is not None:
            model, more = claude_access(self._settings.environment)
            environment |= more
        return ClientCall(
            tuple(command), environment, lambda out: read_claude_events(out, installed), model
        )


def claude_access(environment: Mapping[str, str]) -> tuple[ModelAccess, dict[str, str]]:
    """Return the access of the relay for this environment, and the variables that the client gets
    in place of its own.

    The key stays outside. A sign-in of the client's own is read inside, from its file.
    """
    client = agent_cli.CLIENTS["claude"]
    address = environment.get("ANTHROPIC_BASE_URL") or client["address"]
    placeholder_key = client["held_key"]
    inside = {"ANTHROPIC_BASE_URL": agent_cli.relay_address(address)}
    headers: dict[str, str] = {}
    # The client needs some key to start. The relay replaces it by the real one.
    if key := environment.get("ANTHROPIC_API_KEY"):
        headers |= key_header(API_KEY, key)
        inside["ANTHROPIC_API_KEY"] = placeholder_key
    own, signed_in = "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"
    if token := environment.get(own) or environment.get(signed_in):
        headers |= key_header(BEARER, token)
        inside[own if own in environment else signed_in] = placeholder_key
    proxy = environment.get("HTTPS_PROXY")
    return ModelAccess(address, frozenset(client["paths"]), headers, proxy), inside


def read_claude_events(out: bytes, installed: InstalledProgram) -> Trajectory:
    """Return the trajectory in the events of `claude -p --output-format stream-json --verbose`."""
    seen = Trajectory()
    messages: dict[str, Mapping[str, Any]] = {}
    for event in iter_events(out):
        kind = event.get("type")
        if kind == "system" and event.get("subtype") == "api_retry":
            wait = _int_field(event, "retry_delay_ms") / 1000
            seen.trouble = f"{event.get('error_status')} {event.get('error')}, retry in {wait:g} s"
        elif kind in ("assistant", "user"):
            message = event.get("message")
            if isinstance(message, dict):
                _read_content(seen, kind, message, installed)
                if kind == "assistant" and isinstance(message.get("usage"), dict):
                    # By the id of the message: each of its events repeats the usage.
                    messages[str(message.get("id"))] = message["usage"]
        elif kind == "result":
            _read_result(seen, event)
    # Stopped before its end: the sum over its messages is the best figure.
    if not seen.ended:
        seen.calls = len(messages)
        seen.input_tokens = sum(map(_sum_input_tokens, messages.values()))
        seen.output_tokens = sum(_int_field(usage, "output_tokens") for usage in messages.values())
    return seen


def _read_content(
    seen: Trajectory, kind: str, message: Mapping[str, Any], installed: InstalledProgram
) -> None:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for block in blocks:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_use":
            _read_tool_use(seen, block, installed)
        elif block.get("type") == "tool_result":
            speaker = "error" if block.get("is_error") else "result"
            seen.add_step(speaker, _content_text(block.get("content")))
        elif block.get("type") == "text" and block.get("text"):
            # Messages with this name are the client's own, such as a notice of a limit.
            if kind == "assistant" and message.get("model") != "<synthetic>":
                seen.note_progress()
                seen.output = str(block["text"])
            seen.add_step("agent" if kind == "assistant" else "shown", str(block["text"]))


def _read_tool_use(seen: Trajectory, block: Mapping[str, Any], installed: InstalledProgram) -> None:
    name, tool_input = str(block.get("name")), block.get("input")
    values = tool_input if isinstance(tool_input, dict) else {}
    seen.note_progress()
    seen.add_step(f"tool {name}", values)
    refs = [f"{Kind.AGENT}:{values.get('subagent_type')}"]
    if name == "Skill":
        refs.append(f"{Kind.SKILL}:{values.get('skill') or values.get('command')}")
    if name.startswith("mcp__"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
        refs.append(find_used_tool(tool, server, installed.places))
    seen.read |= dict.fromkeys(ref for ref in refs if ref in installed.places)
    # Any text of the input may be a path or a command.
    for value in values.values():
        if isinstance(value, str):
            seen.note_reads(value, installed.places)


def _read_result(seen: Trajectory, event: Mapping[str, Any]) -> None:
    seen.ended = True
    usage = event.get("usage")
    if isinstance(usage, dict):
        seen.input_tokens = _sum_input_tokens(usage)
        seen.output_tokens = _int_field(usage, "output_tokens")
    seen.calls = _int_field(event, "num_turns") or 1
    cost = event.get("total_cost_usd")
    seen.cost = float(cost) if isinstance(cost, int | float) else None
    if isinstance(event.get("result"), str) and not event.get("is_error"):
        seen.output = event["result"]
        seen.note_progress()
    status = event.get("api_error_status")
    seen.status = status if isinstance(status, int) else None
    subtype = str(event.get("subtype"))
    seen.limit = subtype.startswith("error_max")
    # Older clients name no subtype.
    if event.get("is_error") or subtype not in ("success", "None"):
        errors = event.get("errors")
        message = "; ".join(map(str, errors)) if isinstance(errors, list) else ""
        seen.failure = str(event.get("result") or message or subtype)


# Tokens from the cache are input as well.
def _sum_input_tokens(usage: Mapping[str, Any]) -> int:
    kinds = ("", "cache_creation_", "cache_read_")
    return sum(_int_field(usage, f"{kind}input_tokens") for kind in kinds)


def _int_field(values: Mapping[str, Any], name: str) -> int:
    # A bool is an int in Python.
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


class CodexExecutor(ClientExecutor):
    """Runs tasks with Codex. Its sandbox always writes in the workspace alone, without the network.

    The cost follows from the price in the settings, and is unknown without one.
    """

    name = "codex"

    def skill_dirs(self, workspace: Path) -> list[Path]:
        """Return the folders of skills that the client reads although they are not part of the
        program.
        """
        return [
            *map(Path, self._client["managed"]),
            *list_ancestor_dirs(workspace, self._client["project"]),
        ]

    def layout(self, config: Path) -> InstallLayout:
        """Return where the client reads the parts of a program, below its configuration."""
        return InstallLayout(config / "skills", None, config / "AGENTS.md", config.parent / "tools")

    def make_call(
        self, installed: InstalledProgram, place: ClientDirs, workspace: Path
    ) -> ClientCall:
        """Write the configuration and return the command, which turns all other skills off."""
        model, config, more, pointed = None, self._settings.config, dict[str, str](), list[str]()
        if self._settings.sandbox is not None:
            model, config, more, pointed = codex_access(self._settings)
        elif not config and (address := self._settings.environment.get("OPENAI_BASE_URL")):
            # Codex reads no address from the environment.
            pointed = [f"openai_base_url={json.dumps(address)}"]
        if config:
            (place.config / "config.toml").write_text(config, encoding="utf-8")
        may_search = set(self._client["search_tools"]) & set(self._settings.tools)
        searching = "live" if may_search else "disabled"
        overrides = [*self._client["overrides"], f'web_search="{searching}"', *pointed]
        # Codex reads these folders despite its configuration, so each skill is turned off by name.
        if others := sorted({name for name, _ in iter_skills(self.skill_dirs(workspace))}):
            off = ", ".join(f"{{name={json.dumps(name)}, enabled=false}}" for name in others)
            overrides.append(f"skills.config=[{off}]")
        if installed.server:
            overrides.append(f"mcp_servers.{TOOL_SERVER}.command={json.dumps(installed.server[0])}")
            overrides.append(f"mcp_servers.{TOOL_SERVER}.args={json.dumps(installed.server[1:])}")
            # Codex asks its model after a second without the tools of a server that is not
            # required.
            overrides.append(f"mcp_servers.{TOOL_SERVER}.required=true")
        if installed.prompt:
            overrides.append(f"developer_instructions={json.dumps(installed.prompt)}")
        flags = list(self._client["flags"])
        # Codex's own sandbox cannot start inside of ours, which confines more.
        if self._settings.sandbox is not None:
            flags[-1] = self._client["sandboxed"]
        command = [self._settings.binary, *flags]
        command += ["--model", self._settings.model, "--cd", str(workspace)]
        command += [word for override in overrides for word in ("--config", override)]
        command += [*self._settings.arguments, "-"]
        environment = {"CODEX_HOME": str(place.config), **more}
        return ClientCall(
            tuple(command), environment, lambda out: read_codex_events(out, installed), model
        )


def codex_access(settings: ClientSettings) -> tuple[ModelAccess, str, dict[str, str], list[str]]:
    """Return the access of the relay, the configuration with the relay's address, the variables,
    and the overrides.

    The key stays outside. A sign-in of the client's own is read inside, from its file.
    """
    try:
        parsed = tomllib.loads(settings.config)
    # The client itself reports a configuration that it cannot read.
    except ValueError:
        parsed = {}
    provider = parsed.get("model_providers", {}).get(parsed.get("model_provider", ""))
    environment, client = settings.environment, agent_cli.CLIENTS["codex"]
    # A provider of the person's configuration has its own address and name of the key.
    if isinstance(provider, dict) and isinstance(provider.get("base_url"), str):
        address, name = provider["base_url"], str(provider.get("env_key") or "")
        relayed = json.dumps(agent_cli.relay_address(address))
        config = settings.config.replace(json.dumps(address), relayed)
        pointed = []
    else:
        name = "OPENAI_API_KEY"
        signed_in = settings.credentials is not None and not environment.get(name)
        usual = client["signed_in_address" if signed_in else "address"]
        address, config = environment.get("OPENAI_BASE_URL") or usual, settings.config
        pointed = [f"openai_base_url={json.dumps(agent_cli.relay_address(address))}"]
    key = environment.get(name)
    headers = key_header(BEARER, key or "")
    access = ModelAccess(
        address, frozenset(client["paths"]), headers, environment.get("HTTPS_PROXY")
    )
    return access, config, {name: client["held_key"]} if key else {}, pointed


def read_codex_events(out: bytes, installed: InstalledProgram) -> Trajectory:
    """Return the trajectory in the events of `codex exec --json`.

    An `error` event alone ends nothing: Codex tries again, and reports when the turn has failed.
    """
    seen = Trajectory()
    for event in iter_events(out):
        kind, item = event.get("type"), event.get("item")
        if kind in ("item.completed", "item.started") and isinstance(item, dict):
            _read_item(seen, kind, item, installed)
        elif kind == "turn.completed":
            seen.ended = True
            _add_usage(seen, event.get("usage"))
        elif kind == "turn.failed":
            seen.ended = True
            error = event.get("error")
            seen.failure = str(error.get("message") if isinstance(error, dict) else error)
        elif kind == "error":
            seen.trouble = str(event.get("message"))
            seen.add_step("error", seen.trouble)
    # A run that was cut off reports no usage, but has asked its model.
    seen.calls = seen.calls or int(seen.progress)
    return seen


def _read_item(
    seen: Trajectory, kind: str, item: Mapping[str, Any], installed: InstalledProgram
) -> None:
    what = item.get("type")
    if what == "command_execution":
        command = str(item.get("command"))
        seen.note_progress()
        if kind == "item.started":
            seen.add_step("command", command)
        else:
            seen.add_step(f"exit {item.get('exit_code')}", str(item.get("aggregated_output")))
            # Codex reads a skill by a command, and no other event reports that.
            seen.note_reads(command, installed.places)
    elif kind == "item.completed" and what == "agent_message":
        seen.note_progress()
        seen.output = str(item.get("text"))
        seen.add_step("agent", seen.output)
    # Reasoning is no step: it is a summary, and not in every version.
    elif kind == "item.completed" and what != "reasoning":
        if what in ("file_change", "mcp_tool_call", "web_search", "todo_list"):
            seen.note_progress()
        tool, server = str(item.get("tool")), str(item.get("server"))
        if used := find_used_tool(tool, server, installed.places):
            seen.read.setdefault(used)
        fields = {key: value for key, value in item.items() if key not in ("id", "type")}
        seen.add_step(str(what), fields)


def _add_usage(seen: Trajectory, usage: object) -> None:
    if not isinstance(usage, dict):
        return
    numbers = {name: value for name, value in usage.items() if isinstance(value, int)}
    seen.calls += 1
    seen.input_tokens += numbers.get("input_tokens", 0)
    seen.output_tokens += numbers.get("output_tokens", 0)
