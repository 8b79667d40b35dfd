"""A client as `connect` knows it: its configuration file, and the entry of it that starts our
server.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_server.config import Machine
from evolvable_store.resource import Kind

USER, PROJECT = "user", "project"
SCOPES = (USER, PROJECT)


@dataclass(frozen=True, slots=True)
class Start:
    """How a client starts our server: a program, its arguments, and what its environment needs."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]

    def entry(self) -> dict[str, Any]:
        """Return what every client calls it."""
        return {
            "command": self.command,
            "args": list(self.args),
            **({"env": dict(self.env)} if self.env else {}),
        }


def usual_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry in the form that most clients have: a command, its arguments in `args`, its
    variables in `env`.

    OpenCode has all words in `command`, and the variables in `environment`.
    """
    words = entry.get("command")
    if not isinstance(words, list):
        # Only OpenCode has the command as a list.
        return dict(entry)
    usual: dict[str, Any] = {}
    for key, value in entry.items():
        if key == "command":
            usual |= {
                "command": str(words[0]) if words else "",
                "args": [str(word) for word in words[1:]],
            }
        else:
            usual["env" if key == "environment" else key] = value
    return usual


def _listed_entry(usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the usual form as OpenCode has it."""
    entry = {
        "environment" if key == "env" else key: value
        for key, value in usual.items()
        if key != "args"
    }
    return {**entry, "command": [usual["command"], *usual["args"]]}


@dataclass(frozen=True, slots=True)
class Client:
    """One client, as `clients.toml` or a plugin describes it.

    file: its configuration file in a scope, None where it has no such scope. table: the key below
    which it has its servers. first, usual: keys of an entry besides those of Start, where they are
    missing, before and after them. strict: it reads no comments. listed: its entry has the form
    that `usual_entry` reads. called: how the names begin by which it introduces itself to a server.
    checks: what shows that it works, in a scope, else that of a user's; notes: what to know, in a
    scope. folders: returns the folders of resources that it reads in a scope, which `checkout`
    writes; None: it reads none. environment: variables of a new entry where the start names none,
    such as the group of tools for a client that sends all of them with each request, and a prefix
    for one that adds none; what a person changes of them later stays. trusting: what in an entry
    lets all tools of it run unasked, which only the person says; empty where nothing does. program:
    its command, '' for none; plugin: the arguments of it that add a marketplace, and those that
    install a plugin of one.
    """

    name: str
    title: str
    file: Callable[[Machine, str], Path | None]
    table: str
    strict: bool
    called: tuple[str, ...]
    checks: Mapping[str, Sequence[str]]
    first: Mapping[str, Any] = field(default_factory=dict)
    usual: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folders: Callable[[Machine, str], Mapping[Kind, Path]] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    trusting: Mapping[str, Any] = field(default_factory=dict)
    program: str = ""
    plugin: Sequence[Sequence[str]] = ()
    listed: bool = False

    def check(self, scope: str, name: str) -> list[str]:
        """Return what shows that the entry of this name works."""
        return [
            text.format(name=name)
            for text in self.checks.get(
                scope,
                self.checks[USER],
            )
        ]

    def merge_entry(
        self, current: Mapping[str, Any] | None, start: Start, ours: frozenset[str]
    ) -> dict[str, Any]:
        """Return the entry that starts our server so: what a person set besides stays.

        ours: variables that are taken out of its environment when the start does not name them.
        """
        entry = self._merge_usual(
            usual_entry(current) if current is not None else None, start, ours
        )
        return _listed_entry(entry) if self.listed else entry

    def _merge_usual(
        self, current: Mapping[str, Any] | None, start: Start, ours: frozenset[str]
    ) -> dict[str, Any]:
        if current is None:
            begun = replace(start, env={**self.environment, **start.env})
            return {**self.first, **begun.entry(), **self.usual}
        # Keys keep their order; an environment that is there stays, even an empty one.
        old = dict(current.get("env") or {})
        # A variable of ours that the new start does not name belonged to the old one.
        env = {
            key: value
            for key, value in {**old, **start.env}.items()
            if key not in ours or key in start.env
        }
        entry = {**current, **start.entry()}
        if env or "env" in current:
            entry["env"] = env
        # Keys that the client needs, where the person's entry has none of them.
        return {
            **entry,
            **{k: v for k, v in {**self.first, **self.usual}.items() if k not in entry},
        }
