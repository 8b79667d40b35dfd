"""The entry of our server to paste, for a client that `connect` does not know or whose file it does
not edit.
"""

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
    """A client whose configuration is YAML with a person's comments, so that the person pastes the
    entry.

    file: its configuration below the home folder. environment: variables of the entry where none
    are named.
    """

    title: str
    file: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def path(self, machine: Machine) -> Path:
        return machine.user / self.file

    def entry(self, name: str, start: Start) -> str:
        """Return the entry of this name, below its key."""
        return _yaml(name, replace(start, env={**self.environment, **start.env}))


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
    """Return the entry of this name in each form, with a line above it that says which clients have
    it so.
    """
    return "\n\n".join(f"{about}\n\n{_entry(form, name, start)}" for about, form in _FORMS)


def _entry(form: str, name: str, start: Start) -> str:
    if form == "yaml":
        return _yaml(name, start)
    entry: dict[str, Any] = start.entry()
    # OpenCode's form: the command is a list.
    if form == "mcp":
        environment = {"environment": dict(start.env)} if start.env else {}
        entry = {
            "type": "local",
            "command": [start.command, *start.args],
            **environment,
            "enabled": True,
        }
    return json.dumps({form: {name: entry}}, indent=2, ensure_ascii=False)


def _yaml(name: str, start: Start) -> str:
    """Return the entry as YAML.

    A value of JSON is one of YAML too, and needs no rules for quotes.
    """
    values = {"name": name, "type": "stdio", **start.entry()}
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join(
        [
            "mcpServers:",
            f"  - {lines[0]}",
            *(f"    {line}" for line in lines[1:]),
        ]
    )
