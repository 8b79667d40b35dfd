"""Write the manifests and hooks of the plugin, for every client from one source: python
plugins/manifests.py [--check].

`evolvable` is the plugin of Claude Code and Codex, `agent-plugin` that of clients which read Agent
Plugins 1.0, such as Copilot CLI. They have the same server and skills. They are two folders because
Codex leaves out the hooks where it finds a manifest of Agent Plugins. Claude Code and Codex call
the server for a hook; the others run commands.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evolvable_store import __version__

HERE = Path(__file__).parent
SKILLS = HERE / "evolvable/skills"
SCHEMA = "https://agent-plugins.org/schemas/1.0.0"

ABOUT: Mapping[str, Any] = {
    "name": "evolvable",
    "version": __version__,
    "description": "One versioned library of skills for every session: finds the one that fits, "
    "remembers what was used, takes any change back.",
    "author": {"name": "The Evolvable authors"},
    "license": "Apache-2.0",
    "keywords": ["skills", "mcp", "memory", "version control"],
}

START: Mapping[str, Any] = {"command": "evolvable", "args": ["serve"]}
CODEX_START = {
    "required": True,
    "startup_timeout_sec": 20,
    "tool_timeout_sec": 120,
    "env_vars": ["EVOLVABLE_HOME", "EVOLVABLE_HOOKS", "EVOLVABLE_SCOPE", "EVOLVABLE_EMBEDDER"],
}

INTERFACE = {
    "displayName": "Evolvable",
    "shortDescription": "A versioned library of skills",
    "longDescription": (
        "Finds the skill that fits a task, remembers what was used and how it went, and takes any "
        "change back."
    ),
    "developerName": "The Evolvable authors",
    "category": "Productivity",
    "capabilities": ["Read", "Write"],
}

HOOKS_DO = (
    "Offers the skill that fits a prompt, notes which skills were opened and which agents were "
    "started, queues the session for review. EVOLVABLE_HOOKS=off switches all of it off."
)

SERVERS = {"claude-code": "plugin:evolvable:evolvable", "codex": "evolvable"}
"""What a client calls the plugin's server in a hook."""

TOOL = ("tool_name",)
CLAUDE_TOOLS = {
    "Skill": "skill",
    "Agent|Task": "subagent_type",
    "Read": "file_path",
    "Write|Edit|MultiEdit": "file_path",
}
"""Tools after which a hook runs -> what it passes on of their input."""

COPILOT_EVENTS = ("userPromptSubmitted", "postToolUse", "agentStop", "sessionEnd")


def call(client: str, event: str, field: str = "", *more: str) -> dict[str, Any]:
    """Return a hook that calls the server. field: of a tool's input."""
    fields = ("session_id", "transcript_path", "cwd", *more)
    given = {
        "hook_event_name": event,
        "client": client,
        **{name: f"${{{name}}}" for name in fields},
    }
    if field:
        given[field] = f"${{tool_input.{field}}}"
    return {
        "type": "mcp_tool",
        "server": SERVERS[client],
        "tool": "hook_event",
        "input": given,
        "timeout": 5,
    }


def run(client: str, event: str) -> dict[str, Any]:
    """Return a hook that runs the command."""
    return {"type": "command", "command": f"evolvable-hook {event} {client}", "timeout": 3}


def claude_hooks() -> dict[str, Any]:
    """Return the hooks of Claude Code."""
    used = [
        {"matcher": tools, "hooks": [call("claude-code", "PostToolUse", field, *TOOL)]}
        for tools, field in CLAUDE_TOOLS.items()
    ]
    next(one for one in used if one["matcher"] == "Read")["hooks"][0]["if"] = "Read(**/SKILL.md)"
    prompt, stop = (
        call("claude-code", "UserPromptSubmit", "", "prompt"),
        call("claude-code", "Stop"),
    )
    events = {
        "UserPromptSubmit": [{"hooks": [prompt]}],
        "PostToolUse": used,
        "Stop": [{"hooks": [stop]}],
    }
    return {
        "description": HOOKS_DO,
        "hooks": {**events, "SessionEnd": [{"hooks": [run("claude-code", "SessionEnd")]}]},
    }


def codex_hooks() -> dict[str, Any]:
    """Return the hooks of Codex."""
    used = [
        {"matcher": tool, "hooks": [call("codex", "PostToolUse", "command", *TOOL)]}
        for tool in ("Bash", "apply_patch")
    ]
    events = {
        "UserPromptSubmit": [{"hooks": [call("codex", "UserPromptSubmit", "", "prompt")]}],
        "PostToolUse": used,
    }
    ends = {event: [{"hooks": [run("codex", event)]}] for event in ("Stop", "SessionEnd")}
    return {"hooks": {**events, **ends}}


def copilot_hooks() -> dict[str, Any]:
    """Return the hooks of Copilot CLI, which refuses a whole file for one that calls a server."""
    events = {}
    for event in COPILOT_EVENTS:
        command = f"evolvable-hook {event} copilot"
        events[event] = [
            {"type": "command", "bash": command, "powershell": command, "timeoutSec": 10}
        ]
    return {"version": 1, "hooks": events}


def marketplace(folder: str) -> dict[str, Any]:
    """Return the marketplace of this repository, in the form of Claude Code, whose one plugin is in
    this folder.
    """
    said = "Evolvable: a versioned library of skills for coding agents."
    plugin = {"name": ABOUT["name"], "source": f"./plugins/{folder}", "version": __version__}
    plugin |= {
        "description": "One versioned library of skills for every session.",
        "category": "productivity",
    }
    about = {"name": ABOUT["name"], "owner": ABOUT["author"]}
    return {**about, "metadata": {"description": said, "version": __version__}, "plugins": [plugin]}


def files() -> Iterator[tuple[str, str]]:
    """Yield each file that is written, by its path beside this one, with its text."""
    for name, values in manifests():
        yield name, json.dumps(values, indent=2, ensure_ascii=False) + "\n"
    for path in sorted(SKILLS.rglob("*.md")):
        yield (
            f"agent-plugin/skills/{path.relative_to(SKILLS).as_posix()}",
            path.read_text(encoding="utf-8"),
        )


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each file of JSON."""
    places = {"skills": "./skills/", "mcpServers": "./.mcp.json", "hooks": "./hooks/codex.json"}
    yield (
        "evolvable/.claude-plugin/plugin.json",
        {"name": ABOUT["name"], "displayName": "Evolvable", **ABOUT},
    )
    yield "evolvable/.codex-plugin/plugin.json", {**ABOUT, **places, "interface": INTERFACE}
    yield "evolvable/.mcp.json", {"mcpServers": {"evolvable": {**START, **CODEX_START}}}
    yield "agent-plugin/plugin.json", {"$schema": f"{SCHEMA}/plugin.schema.json", **ABOUT}
    server = {"type": "stdio", **START}
    yield (
        "agent-plugin/mcp.json",
        {"$schema": f"{SCHEMA}/mcp.schema.json", "mcpServers": {"evolvable": server}},
    )
    yield "evolvable/hooks/hooks.json", claude_hooks()
    yield "evolvable/hooks/codex.json", codex_hooks()
    yield "../.claude-plugin/marketplace.json", marketplace("evolvable")
    # Copilot CLI looks here first.
    yield "../.github/plugin/marketplace.json", marketplace("agent-plugin")
    # The only place in a plugin of this specification from which Copilot CLI reads hooks.
    yield "agent-plugin/com.github.copilot/hooks/hooks.json", copilot_hooks()


def main() -> None:
    """Write the files; with --check, end with 1 where one is not as it should be."""
    stale = []
    for name, text in files():
        path = HERE / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print(f"{len(stale)} files differ: {', '.join(stale)}" if stale else "every file is up to date")
    sys.exit("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    main()
