"""Codex: config.toml in ~/.codex, or in .codex of a project that it trusts."""

from pathlib import Path

from evolvable_server.clients.client import PROJECT, Client
from evolvable_server.config import Machine

WAITS_SECONDS = 1.0
"""How long Codex waits for a server that is not required before the first turn goes without it."""

USUAL = {"required": True, "startup_timeout_sec": 20, "tool_timeout_sec": 120}


def _file(machine: Machine, scope: str) -> Path:
    return (machine.project / ".codex" if scope == PROJECT else machine.codex) / "config.toml"


def _check(scope: str, name: str) -> list[str]:
    if scope == PROJECT:
        return [f"`codex mcp list` in the project shows {name}, once Codex trusts the project"]
    return [f"`codex mcp list` shows {name} as enabled", "windows that are open see it after a restart"]


CLIENT = Client(
    name="codex",
    title="Codex",
    file=_file,
    table="mcp_servers",
    strict=False,
    called=("codex",),
    check=_check,
    usual=USUAL,
    notes={
        PROJECT: (
            "Codex reads .codex/config.toml only in a project that it trusts.",
            "The paths in it are those of this machine; others who share it run this command too.",
        )
    },
)
