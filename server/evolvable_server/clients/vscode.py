"""VS Code: mcp.json in the user's default profile, or in .vscode of a project."""

from pathlib import Path

from evolvable_server.clients.client import PROJECT, Client
from evolvable_server.config import Machine

EDITIONS = ("Code", "Code - Insiders", "VSCodium")
"""Folders of settings; the first that is there is meant."""


def _file(machine: Machine, scope: str) -> Path:
    if scope == PROJECT:
        return machine.project / ".vscode/mcp.json"
    if machine.system == "darwin":
        settings = machine.user / "Library/Application Support"
    else:
        settings = machine.roaming if machine.system == "win32" else machine.settings
    there = [settings / edition for edition in EDITIONS if (settings / edition).is_dir()]
    return (there[0] if there else settings / EDITIONS[0]) / "User/mcp.json"


def _check(_: str, name: str) -> list[str]:
    return [f"the command `MCP: List Servers` in VS Code shows {name}; start it there and trust it when it asks"]


CLIENT = Client(
    name="vscode",
    title="VS Code",
    file=_file,
    table="servers",
    strict=False,
    called=("visual studio code", "vscodium", "code - oss", "code-server"),
    check=_check,
    first={"type": "stdio"},
    notes={PROJECT: ("The paths in it are those of this machine; others who share it run this command too.",)},
)
