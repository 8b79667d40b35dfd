"""The registry of verbs: what each does, who may run it, and under which names MCP and the command
line offer it.

The annotations of MCP tools, the permissions of tokens, the effects of commands, the sections of
the help and the tables of the manual come from it. `registry.json` holds its rows. A server reads
it before its first answer, so it imports no SDK and no use case: functions are named as
`module:name`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any


class Effect(StrEnum):
    """What a verb does, from the least to the most."""

    READS = "reads"
    """Changes no content. It may log what it showed, or count the caller's own use."""

    WRITES = "writes"
    """Adds to the library, or writes files beside it. What it replaces stays in the history."""

    REMOVES = "removes"
    """Removes, reverts or replaces what others made."""

    RUNS = "runs"
    """Executes commands."""

    SPENDS = "spends"
    """Executes commands, calls models and may spend money."""


class Authority(StrEnum):
    """Who may run a verb: the permission that a token needs, or a person alone."""

    READ = "read"
    """Anyone: it reads the library, or what is around it."""

    REPORT = "report"
    """Anyone: it reports an outcome, or submits an answer that was requested."""

    WRITE = "write"
    """Anyone. The policy decides which changes of an agent or a script apply at once and which
    wait.
    """

    APPROVE = "approve"
    """A person, or a script whose token may approve."""

    PERSON = "person"
    """A person alone: it names commands, connects clients or makes tokens, so it decides who may do
    what.
    """


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing that can be done with a library.

    name: the command's, with its action, such as `evolve start`. function: `module:name` of the use
    case, empty where only the command line has it. command: the command that does the same, by
    default the name, empty where there is none. section: of the help.
    """

    name: str
    effect: Effect
    authority: Authority
    summary: str
    function: str = ""
    command: str | None = None
    section: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """An MCP tool over one verb, or over several between which its argument `action` chooses.

    toolset: the tools that a server adds together. permission: what a token needs over HTTP, by
    default the verb's.
    """

    name: str
    title: str
    toolset: str
    names: tuple[str, ...]
    permission: Authority | None = None

    @property
    def effect(self) -> Effect:
        """The strongest effect of its verbs."""
        return max((VERBS[name].effect for name in self.names), key=list(Effect).index)

    @property
    def command(self) -> str:
        """The command that does the same, without an action; empty where there is none."""
        verb = VERBS[self.names[0]]
        command = verb.name if verb.command is None else verb.command
        return command if len(self.names) == 1 else command.partition(" ")[0]

    def needs(self, action: object = None) -> Authority:
        """Return the permission that a call with this action needs; without a known action, that of
        the first verb.
        """
        chosen = next(
            (name for name in self.names if name.rpartition(" ")[2] == action), self.names[0]
        )
        return self.permission or VERBS[chosen].authority


_TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("registry.json").read_text("utf-8"))
# `evolve drive` is for writers: its process has no terminal, and continues only what a person
# started, no stopped run. `quickstart` makes a library of copies and changes no folder. `init`
# without a terminal gives the trust `local`. `serve` reads: what a client may do is decided at each
# call. `import` without a person leaves proposals in the inbox.


def _read_verbs(table: Mapping[str, Any]) -> dict[str, Verb]:
    return {
        name: replace(Verb(name, Effect(effect), Authority(authority), *more), section=section)
        for section, rows in table["verbs"].items()
        for name, effect, authority, *more in rows
    }


def _read_tools(table: Mapping[str, Any]) -> dict[str, Tool]:
    return {
        name: Tool(name, title, toolset, tuple(names), *map(Authority, permission))
        for name, title, toolset, names, *permission in table.get("tools", ())
    }


_VERBS = _read_verbs(_TABLE)
_TOOLS = _read_tools(_TABLE)

VERBS: Mapping[str, Verb] = _VERBS
"""Name -> verb, in the order of the help.

A row of the table: name, effect, authority, summary, function, command.
"""

ALIASES: Mapping[str, str] = _TABLE["aliases"]
"""Another name of a command -> the command."""

HINTS: Mapping[str, str] = _TABLE["hints"]
"""Name that other programs use -> what it is here."""

GROUPS: Mapping[str, str] = _TABLE["groups"]
"""Command with several actions, or word that commands are grouped below -> summary."""

PLACES: Mapping[str, str] = _TABLE["places"]
"""Command -> the words that call it, where those are not its name, such as `judge` -> `role judge`.

The name alone calls it too: scripts of before the groups go on.
"""

EXAMPLES: Mapping[str, str] = _TABLE["examples"]
"""Verb, command or group -> a command line that uses it. The program itself is ''."""

FIRST: tuple[str, ...] = tuple(_TABLE["first"])
"""The commands that the help shows before all others.

One that this installation lacks is left out.
"""

TOOLS: Mapping[str, Tool] = _TOOLS
"""Name -> MCP tool, in the order in which a client lists them.

A row: name, title, toolset, verbs, permission.
"""


def add_table(path: Path) -> None:
    """Add the verbs and tools of a part of the program. What is there already stays as it is.

    Raise OSError, ValueError.
    """
    table: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    for name, verb in _read_verbs(table).items():
        # A part of the program adds verbs and cannot change the authority that another one needs.
        _VERBS.setdefault(name, verb)
    for name, tool in _read_tools(table).items():
        _TOOLS.setdefault(name, tool)
    for key in ("groups", "places", "examples", "reasons"):
        _TABLE[key] |= {
            name: text for name, text in table.get(key, {}).items() if name not in _TABLE[key]
        }


def place_of(name: str) -> str:
    """Return the words that call a verb: `role judge add` of `judge add`."""
    command, _, action = name.partition(" ")
    return " ".join(filter(None, (PLACES.get(command, command), action)))


def verb_at(words: str) -> str:
    """Return the name of the verb that words of the command line call: `judge add` of `role judge
    add`.
    """
    for command, place in PLACES.items():
        if words == place or words.startswith(f"{place} "):
            return command + words.removeprefix(place)
    return words


def refusal_reason(name: str) -> str:
    """Return why only a person may run a command, named with or without its action."""
    reasons: Mapping[str, str] = _TABLE["reasons"]
    return reasons.get(name) or reasons.get(name.partition(" ")[0]) or reasons[""]
