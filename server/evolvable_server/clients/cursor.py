"""Cursor: mcp.json in ~/.cursor, or in .cursor of a project."""

from pathlib import Path

from evolvable_server.clients.client import PROJECT, Client
from evolvable_server.config import Machine


def _file(machine: Machine, scope: str) -> Path:
    return (machine.project if scope == PROJECT else machine.user) / ".cursor/mcp.json"


def _check(_: str, name: str) -> list[str]:
    return [f"Cursor's settings list {name} under its MCP servers; switch it on there, or restart Cursor"]


CLIENT = Client(
    name="cursor",
    title="Cursor",
    file=_file,
    table="mcpServers",
    strict=False,
    called=("cursor",),
    check=_check,
    notes={PROJECT: ("The paths in it are those of this machine; others who share it run this command too.",)},
)
