"""What a client is to us: where its configuration lies, how ours is written into it, and how to see that it works."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_server.config import Machine

USER, PROJECT = "user", "project"
SCOPES = (USER, PROJECT)


@dataclass(frozen=True, slots=True)
class Start:
    """How a client starts our server: a program, its arguments, and what its environment needs."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]

    def entry(self) -> dict[str, Any]:
        """Returns what every client calls it."""
        return {"command": self.command, "args": list(self.args), **({"env": dict(self.env)} if self.env else {})}


@dataclass(frozen=True, slots=True)
class Client:
    """One client.

    file: its configuration file in a scope, None where it has no such scope. table: the key below which it has its
    servers. first, usual: keys of an entry besides those of Start, where they are missing, before and after them.
    strict: it reads no comments. called: how the names begin by which it introduces itself to a server.
    check: what shows that it works, in a scope; notes: what to know, in a scope.
    """

    name: str
    title: str
    file: Callable[[Machine, str], Path | None]
    table: str
    strict: bool
    called: tuple[str, ...]
    check: Callable[[str, str], list[str]]
    first: Mapping[str, Any] = field(default_factory=dict)
    usual: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def merged(self, there: Mapping[str, Any] | None, start: Start, ours: frozenset[str]) -> dict[str, Any]:
        """Returns the entry that starts our server so: what a person set besides stays.

        ours: variables that are taken out of its environment when the start does not name them.
        """
        if there is None:
            return {**self.first, **start.entry(), **self.usual}
        kept = {key: value for key, value in dict(there.get("env") or {}).items() if key not in ours}
        # Keys keep their order; an environment that is there stays, even an empty one.
        old = dict(there.get("env") or {})
        env = {key: start.env.get(key, kept.get(key)) for key in (*old, *start.env) if key in kept or key in start.env}
        entry = {**there, **start.entry()}
        if env or "env" in there:
            entry["env"] = env
        return {**entry, **{k: v for k, v in {**self.first, **self.usual}.items() if k not in entry}}
