"""The lists of skills of Codex and Copilot CLI: what each cuts, and which skills of a collection it
lists.

The room was measured with Codex 0.169.0 and Copilot CLI 1.0.102; docs/clients.md says how. What is
written into their settings names skills alone, and goes again byte for byte.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from evolvable_server.clients import config_files
from evolvable_server.clients.config_files import Configuration
from evolvable_server.clients.json_edit import EMPTY, add_json_item, remove_json_items
from evolvable_server.clients.skill_list import (
    ListChange,
    choice_of,
    difference,
    lock_lists,
    write_choice,
)
from evolvable_server.config import Machine
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import USER_SCOPE, Kind
from evolvable_store.storage import ListingChoice, WatchedFolder
from evolvable_tools import Caller, Library, check_may_decide
from evolvable_tools.verbs import ListedSkill, find_collection, read_skills

CODEX_ROOM = 21_760
"""Characters of Codex's list: 2 % of a context of 272,000 tokens, at four characters a token."""

COPILOT_ROOM = 15_000
"""Characters of the entries in Copilot CLI's list that have a description."""

# What each client writes around a name and a description. Codex's line has the name twice.
_CODEX_LINE = len("- :  (file: r0//SKILL.md)\n")
_COPILOT_ENTRY = len(
    "<skill>\n  <name></name>\n  <description></description>\n  <location>user</location>\n"
    "</skill>\n"
)
_OFF = "off"


@dataclass(frozen=True, slots=True)
class CutList:
    """What a client's list holds. size: characters if nothing were cut; cut: the skills that lose
    some or all of their description; hidden: those that it does not list.
    """

    title: str
    skills: int
    size: int
    room: int
    cut: Sequence[ListedSkill]
    how: str
    hidden: Sequence[ListedSkill]

    @property
    def text(self) -> str:
        """How full it is, in a line."""
        loss = f"{len(self.cut):,} {self.how}" if self.cut else "all keep their description"
        rest = f"; it does not list {len(self.hidden):,} more" if self.hidden else ""
        return (
            f"{self.skills:,} skills, {self.size:,} of {self.room:,} characters: {loss} in "
            f"{self.title}{rest}"
        )


@dataclass(frozen=True, slots=True)
class OtherClient:
    """A client whose list is cut by a rule of its own.

    settings: its file; folders: of skills, which it reads.
    """

    name: str
    title: str
    settings: Callable[[Machine], Path]
    folders: Callable[[Machine], Sequence[Path]]
    measure: Callable[[Sequence[ListedSkill]], tuple[int, int, Sequence[ListedSkill], str]]


def _measure_codex(skills: Sequence[ListedSkill]) -> tuple[int, int, Sequence[ListedSkill], str]:
    """Codex keeps every name, and shortens the descriptions to the same length until they fit."""
    fixed = sum(_CODEX_LINE + 2 * len(skill.name) for skill in skills)
    size, room = fixed + sum(skill.description for skill in skills), CODEX_ROOM - fixed
    allowed = 0
    # The shortest first: what they leave of their share goes to the longer ones.
    for number, length in enumerate(sorted(skill.description for skill in skills)):
        allowed = room // (len(skills) - number)
        if length > allowed:
            break
        room -= length
    cut = [skill for skill in skills if skill.description > allowed] if size > CODEX_ROOM else []
    return size, CODEX_ROOM, cut, f"shortened to {max(0, allowed):,} characters"


def _measure_copilot(skills: Sequence[ListedSkill]) -> tuple[int, int, Sequence[ListedSkill], str]:
    """Copilot CLI describes skills in the order of their names while there is room, and names the
    others alone.
    """
    ordered, used = sorted(skills, key=lambda skill: skill.name), 0
    sizes = [_COPILOT_ENTRY + len(skill.name) + skill.description for skill in ordered]
    for number, size in enumerate(sizes):
        used += size
        if used > COPILOT_ROOM:
            return sum(sizes), COPILOT_ROOM, ordered[number:], "listed by their name alone"
    return sum(sizes), COPILOT_ROOM, [], ""


CLIENTS = {
    "codex": OtherClient(
        "codex",
        "Codex",
        lambda machine: machine.codex / "config.toml",
        lambda machine: (machine.codex / "skills", machine.user / ".agents/skills"),
        _measure_codex,
    ),
    "copilot": OtherClient(
        "copilot",
        "Copilot CLI",
        lambda machine: machine.copilot / "settings.json",
        lambda machine: (machine.copilot / "skills", machine.user / ".agents/skills"),
        _measure_copilot,
    ),
}
"""Clients by name. Claude Code's list is that of `skill_list`."""


def cut_lists(library: Library, machine: Machine) -> list[CutList]:
    """Return what the lists hold of the clients that are here and whose folders are watched."""
    found = []
    for client in CLIENTS.values():
        settings = client.settings(machine)
        # Without a folder for its settings the client is not installed.
        skills = _skills_of(library, client, machine) if settings.parent.is_dir() else []
        if skills:
            off = _disabled_in(settings)
            visible = [skill for skill in skills if skill.name not in off]
            size, room, cut, how = client.measure(visible)
            hidden = [skill for skill in skills if skill.name in off]
            found.append(CutList(client.title, len(visible), size, room, cut, how, hidden))
    return found


def _disabled_in(settings: Path) -> set[str]:
    """Return the names of the skills that settings switch off.

    What cannot be read switches off none.
    """
    with suppress(EvolvableError):
        return _disabled_skills(config_files.read_configuration(settings))
    return set()


def _skills_of(library: Library, client: OtherClient, machine: Machine) -> list[ListedSkill]:
    places = {path.resolve() for path in client.folders(machine)}
    watched: Iterable[WatchedFolder] = (
        candidate for candidate in library.folders() if candidate.kind is Kind.SKILL
    )
    own = [
        candidate
        for candidate in watched
        if candidate.path in places and candidate.scope == USER_SCOPE
    ]
    return list(
        {skill.name: skill for folder in own for skill in read_skills(library, folder)}.values()
    )


def _disabled_skills(found: Configuration) -> set[str]:
    """Return the names of the skills that settings switch off."""
    if found.path.suffix == ".toml":
        skills = found.values.get("skills")
        entries = skills.get("config") if isinstance(skills, dict) else None
        tables = [table for table in entries or () if isinstance(table, dict)]
        return {str(table.get("name")) for table in tables if table.get("enabled") is False}
    names = found.values.get("disabledSkills")
    return {str(name) for name in names} if isinstance(names, list) else set()


def choose_for_client(
    library: Library,
    caller: Caller,
    machine: Machine,
    client: str,
    name: str,
    *,
    dry_run: bool = False,
) -> ListChange:
    """Have a client list the skills of one collection alone; '' has it list every skill again.

    A copy of the settings as they were is kept beside them. Raise Refused for anybody but a person,
    NotFound for the collection, InvalidArgument where no folder of the client is watched, and what
    reading and writing settings raise.
    """
    check_may_decide(caller, "decide what a client lists")
    with lock_lists(library):
        return _choose(library, caller, machine, CLIENTS[client], name, dry_run=dry_run)


def _choose(
    library: Library,
    caller: Caller,
    machine: Machine,
    client: OtherClient,
    name: str,
    *,
    dry_run: bool,
) -> ListChange:
    chosen = find_collection(library, name).ids if name else frozenset()
    skills, settings = _skills_of(library, client, machine), client.settings(machine)
    if not skills:
        where = " or ".join(map(str, client.folders(machine)))
        raise InvalidArgument(
            f"No skill is watched in {where}, which {client.title} reads.", "`evolvable init` does."
        )
    before = choice_of(library, settings)
    found = config_files.read_configuration(settings)
    # Our earlier entries first: what is left is the person's own.
    text = _remove_written(found.text, found.path, before.written if before else {})
    own = _disabled_skills(config_files.parse_configuration(found.path, text))
    plan = sorted({skill.name for skill in skills if skill.id not in chosen} - own) if name else []
    text = _disable_skills(text, found.path, plan)
    # Such as tables beside an inline one: refused.
    config_files.parse_configuration(found.path, text)
    hidden = sorted({skill.name for skill in skills} & {*own, *plan})
    listed_names = sorted({skill.name for skill in skills} - set(hidden))
    diff = difference(settings, found.text, text)
    change = ListChange(
        str(settings),
        name,
        listed_names,
        hidden,
        sorted(own & {skill.name for skill in skills}),
        diff,
    )
    if dry_run:
        return change
    choice = ListingChoice(settings, name, dict.fromkeys(plan, (_OFF,)), library.store.now())
    backup = write_choice(library, found, text, choice, before, private=True)
    library.record(caller, "choose collection", f"{name or 'none'} in {client.title}")
    return replace(change, backup=backup, written=text != found.text)


def take_out_of_client(choice: ListingChoice) -> None:
    """Take what was written for a collection out of the settings of Codex or Copilot CLI.

    Raise as `take_out`.
    """
    found = config_files.read_configuration(choice.settings)
    text = _remove_written(found.text, found.path, choice.written)
    if text != found.text:
        config_files.write_configuration(
            found, text, private=False, stamp=time.strftime("%Y%m%dT%H%M%S")
        )


def is_of_other_client(choice: ListingChoice) -> bool:
    """Return whether a choice was written into the settings of a client of this module."""
    return any(_OFF in values for values in choice.written.values())


def _disable_skills(text: str, path: Path, names: Sequence[str]) -> str:
    """Return the settings with these skills switched off."""
    if path.suffix == ".toml":
        return "".join([text, *map(_table, names)])
    with config_files.report_edit_errors(path, text):
        for name in names:
            text = add_json_item(text if text.strip() else EMPTY, ("disabledSkills",), name)
    return text


def _remove_written(text: str, path: Path, written: Mapping[str, Sequence[str]]) -> str:
    """Return the settings without what was written; what a person changed of it since stays."""
    if path.suffix == ".toml":
        for name in written:
            # Only the exact text that we wrote: a table that was changed is the person's.
            text = text.replace(_table(name), "", 1)
        return text
    if not text.strip():
        return text
    with config_files.report_edit_errors(path, text):
        return remove_json_items(text, ("disabledSkills",), lambda name: name in written)


def _table(name: str) -> str:
    """Return the table of Codex's settings that switches a skill off."""
    return f"\n[[skills.config]]\nname = {json.dumps(name)}\nenabled = false\n"
