"""Claude Code: ~/.claude.json, or .mcp.json of a project. Its own command adds a server where the form allows it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from evolvable_server.clients.client import PROJECT, USER, Client
from evolvable_server.clients.files import Configuration
from evolvable_server.config import Machine

PATIENCE_SECONDS = 60
"""How long its own command may take."""


def _file(machine: Machine, scope: str) -> Path:
    return machine.project / ".mcp.json" if scope == PROJECT else (machine.claude or machine.user) / ".claude.json"


def _check(scope: str, name: str) -> list[str]:
    if scope == PROJECT:
        return [f"start `claude` in the project and approve {name} when it asks", "`claude mcp list` then shows it"]
    return [f"`claude mcp list` shows {name} as connected", "windows that are open see it after `/mcp` or a restart"]


CLIENT = Client(
    name="claude-code",
    title="Claude Code",
    file=_file,
    table="mcpServers",
    strict=True,
    called=("claude-code",),
    check=_check,
    first={"type": "stdio"},
    notes={
        USER: ("To run its tools without a question each time, allow `mcp__{name}` in /permissions.",),
        PROJECT: ("The paths in .mcp.json are those of this machine; others who share it run this command too.",),
    },
)


def own_command(machine: Machine) -> str | None:
    """Returns the path of the `claude` program, None when it is not installed."""
    return shutil.which("claude", path=machine.programs)


def writes_alike(found: Configuration) -> bool:
    """Returns whether Claude Code, which writes its files anew, would leave the form of this one as it is."""
    if found.data is None:
        return True
    written = json.dumps(found.values, indent=2, ensure_ascii=False)
    return found.loose is None and found.text.rstrip("\n") == written


def arguments(program: str, scope: str, name: str, entry: dict[str, Any] | None) -> list[str]:
    """Returns the command that adds an entry, or without one takes it out."""
    if entry is None:
        return [program, "mcp", "remove", name, "-s", scope]
    return [program, "mcp", "add-json", name, json.dumps(entry), "-s", scope]


def run(machine: Machine, command: list[str]) -> str | None:
    """Runs its own command; returns None, or what it said when it failed."""
    try:
        done = subprocess.run(
            command,
            cwd=machine.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (
        None if done.returncode == 0 else (done.stderr or done.stdout).strip()[:300] or f"exit code {done.returncode}"
    )
