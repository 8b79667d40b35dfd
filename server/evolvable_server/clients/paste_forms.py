"""The entry of our server to paste, for a client whose file `connect` does not edit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_server.clients.client import Start
from evolvable_server.config import Machine

_FORMS = (
    ("JSON with `mcpServers`, as most clients have it:", "mcpServers"),
    ("JSON with `mcp` and the command as a list, as OpenCode has it:", "mcp"),
    ("YAML with a list, as Continue has it:", "yaml"),
)


@dataclass(frozen=True, slots=True)
class PastedClient:
    """A client into whose configuration the person pastes the entry: YAML with comments.

    file: its configuration below the home folder. environment: variables of the entry where the
    start names none.
    """

    title: str
    file: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def path(self, machine: Machine) -> Path:
        return machine.user / self.file

    def entry(self, name: str, start: Start) -> str:
        """Return the entry of this name, below its key."""
        return _format_yaml(name, replace(start, env={**self.environment, **start.env}))


PASTED = {
    # Continue CLI sends all tools with each request, and puts nothing before their names.
    "continue": PastedClient(
        "Continue CLI",
        ".continue/config.yaml",
        {"EVOLVABLE_TOOLSETS": "small", "EVOLVABLE_TOOL_PREFIX": "evolvable_"},
    ),
}
"""Clients by their names in `connect`."""


def entry_forms(name: str, start: Start) -> str:
    """Return the entry of this name in each form, each below a line that names its clients."""
    return "\n\n".join(f"{about}\n\n{_format_entry(form, name, start)}" for about, form in _FORMS)


def _format_entry(form: str, name: str, start: Start) -> str:
    if form == "yaml":
        return _format_yaml(name, start)
    entry: dict[str, Any] = start.entry()
    # OpenCode's form: the command is a list.
    if form == "mcp":
        entry = {"type": "local", "command": [start.command, *start.args]}
        if start.env:
            entry["environment"] = dict(start.env)
        entry["enabled"] = True
    return json.dumps({form: {name: entry}}, indent=2, ensure_ascii=False)


def _format_yaml(name: str, start: Start) -> str:
    """Return the entry as YAML.

    Its values are JSON, which is YAML too and needs no rules for quotes.
    """
    values = {"name": name, "type": "stdio", **start.entry()}
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    others = [f"    {line}" for line in lines[1:]]
    return "\n".join(["mcpServers:", f"  - {lines[0]}", *others])
