"""A client as `connect` knows it: its configuration file, and the entry that starts our server."""

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
    """The start of our server by a client: a program, its arguments, its environment variables."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]

    def entry(self) -> dict[str, Any]:
        """Return the keys of an entry that most clients have for it."""
        entry: dict[str, Any] = {"command": self.command, "args": list(self.args)}
        if self.env:
            entry["env"] = dict(self.env)
        return entry


def usual_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the keys that most clients have: `command`, `args` and `env`.

    OpenCode has all words in `command`, and the variables in `environment`.
    """
    words = entry.get("command")
    # Only OpenCode has the command as a list.
    if not isinstance(words, list):
        return dict(entry)
    usual: dict[str, Any] = {}
    for key, value in entry.items():
        if key == "command":
            usual["command"] = str(words[0]) if words else ""
            usual["args"] = [str(word) for word in words[1:]]
        else:
            usual["env" if key == "environment" else key] = value
    return usual


def _make_listed_entry(usual: Mapping[str, Any]) -> dict[str, Any]:
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
    which it has its servers. first, usual: keys that an entry needs, before and after those of
    Start. strict: it reads no comments. listed: its entry has the form that `usual_entry` reads.
    called: the beginnings of the names by which it introduces itself to a server.

    checks: how a person sees that it works, in a scope, else in the user's. notes: texts for the
    person, in a scope. folders: returns the folders of resources that it reads in a scope, which
    `checkout` writes; None: it reads none.

    environment: variables of a new entry where the start names none. They are the group of tools,
    for a client that sends all tools with each request, and the prefix, for one that adds none. A
    person's later changes of them stay. trusting: keys of an entry that let all tools of it run
    unasked, which only the person asks for; empty where there are none.

    program: its command, '' for none. plugin: the arguments of it that add a marketplace, and those
    that install a plugin of one.
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
        """Return how a person sees that the entry of this name works."""
        texts = self.checks.get(scope, self.checks[USER])
        return [text.format(name=name) for text in texts]

    def merge_entry(
        self, current: Mapping[str, Any] | None, start: Start, ours: frozenset[str]
    ) -> dict[str, Any]:
        """Return the entry that starts our server so; the person's other settings stay.

        ours: variables that are taken out of its environment when the start does not name them.
        """
        usual = usual_entry(current) if current is not None else None
        entry = self._merge_usual(usual, start, ours)
        return _make_listed_entry(entry) if self.listed else entry

    def _merge_usual(
        self, current: Mapping[str, Any] | None, start: Start, ours: frozenset[str]
    ) -> dict[str, Any]:
        if current is None:
            new_start = replace(start, env={**self.environment, **start.env})
            return {**self.first, **new_start.entry(), **self.usual}
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
        # Keys that the client needs and the person's entry does not have.
        for key, value in {**self.first, **self.usual}.items():
            entry.setdefault(key, value)
        return entry
