"""The lists of skills of Codex and Copilot CLI: their limits, and the choice of a collection.

The room was measured with Codex 0.169.0 and Copilot CLI 1.0.102; docs/clients.md says how. The text
that is written into their settings names skills alone, and is taken out byte for byte.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
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
from evolvable_store.storage import ListingChoice
from evolvable_tools import Caller, Library, check_may_decide
from evolvable_tools.verbs import ListedSkill, find_collection, read_skills

CODEX_ROOM = 21_760
"""Characters of Codex's list: 2 % of a context of 272,000 tokens, at four characters a token."""

COPILOT_ROOM = 15_000
"""Characters of the entries in Copilot CLI's list that have a description."""

# Characters that each client writes around a name and a description. Codex's line has the name
# twice.
_CODEX_LINE = len("- :  (file: r0//SKILL.md)\n")
_COPILOT_ENTRY = len(
    "<skill>\n  <name></name>\n  <description></description>\n  <location>user</location>\n"
    "</skill>\n"
)
_OFF = "off"


@dataclass(frozen=True, slots=True)
class CutList:
    """The content of a client's list.

    skills: their number. size: characters if nothing were cut. cut: the skills that lose some or
    all of their description. hidden: the skills that it does not list. how: the loss, in words.
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
        """The line that says how full the list is."""
        loss = f"{len(self.cut):,} {self.how}" if self.cut else "all keep their description"
        rest = f"; it does not list {len(self.hidden):,} more" if self.hidden else ""
        return (
            f"{self.skills:,} skills, {self.size:,} of {self.room:,} characters: {loss} in "
            f"{self.title}{rest}"
        )


@dataclass(frozen=True, slots=True)
class OtherClient:
    """A client whose list is cut by a rule of its own.

    settings: returns its file. folders: returns the folders of skills that it reads. measure:
    returns the size of a list, the room, the skills that are cut, and the loss in words.
    """

    name: str
    title: str
    settings: Callable[[Machine], Path]
    folders: Callable[[Machine], Sequence[Path]]
    measure: Callable[[Sequence[ListedSkill]], tuple[int, int, Sequence[ListedSkill], str]]


def _measure_codex(skills: Sequence[ListedSkill]) -> tuple[int, int, Sequence[ListedSkill], str]:
    """Measure a list of Codex.

    It keeps every name, and shortens the descriptions to the same length until they fit.
    """
    fixed = sum(_CODEX_LINE + 2 * len(skill.name) for skill in skills)
    size, room = fixed + sum(skill.description for skill in skills), CODEX_ROOM - fixed
    allowed = 0
    # The shortest first: the rest of their share goes to the longer ones.
    for number, length in enumerate(sorted(skill.description for skill in skills)):
        allowed = room // (len(skills) - number)
        if length > allowed:
            break
        room -= length
    cut = [skill for skill in skills if skill.description > allowed] if size > CODEX_ROOM else []
    return size, CODEX_ROOM, cut, f"shortened to {max(0, allowed):,} characters"


def _measure_copilot(skills: Sequence[ListedSkill]) -> tuple[int, int, Sequence[ListedSkill], str]:
    """Measure a list of Copilot CLI.

    It describes skills in the order of their names while there is room, and names the others alone.
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
    """Return the lists of the installed clients whose folders are watched."""
    lists = []
    for client in CLIENTS.values():
        settings = client.settings(machine)
        # Without a folder for its settings the client is not installed.
        skills = _read_skills(library, client, machine) if settings.parent.is_dir() else []
        if skills:
            disabled = _read_disabled(settings)
            visible = [skill for skill in skills if skill.name not in disabled]
            size, room, cut, how = client.measure(visible)
            hidden = [skill for skill in skills if skill.name in disabled]
            lists.append(CutList(client.title, len(visible), size, room, cut, how, hidden))
    return lists


def _read_disabled(settings: Path) -> set[str]:
    """Return the names of the skills that settings switch off.

    Settings that cannot be read switch off none.
    """
    with suppress(EvolvableError):
        return _find_disabled(config_files.read_configuration(settings))
    return set()


def _read_skills(library: Library, client: OtherClient, machine: Machine) -> list[ListedSkill]:
    paths = {path.resolve() for path in client.folders(machine)}
    skills = dict[str, ListedSkill]()
    for folder in library.folders():
        is_own = folder.kind is Kind.SKILL and folder.scope == USER_SCOPE
        if is_own and folder.path in paths:
            skills |= {skill.name: skill for skill in read_skills(library, folder)}
    return list(skills.values())


def _find_disabled(configuration: Configuration) -> set[str]:
    """Return the names of the skills that settings switch off."""
    if configuration.path.suffix == ".toml":
        skills = configuration.values.get("skills")
        entries = skills.get("config") if isinstance(skills, dict) else None
        tables = [table for table in entries or () if isinstance(table, dict)]
        return {str(table.get("name")) for table in tables if table.get("enabled") is False}
    names = configuration.values.get("disabledSkills")
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

    A copy of the old settings is kept beside them. Raise Refused for anybody but a person, NotFound
    for the collection, InvalidArgument where no folder of the client is watched, and the errors of
    reading and writing settings.
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
    skills, settings = _read_skills(library, client, machine), client.settings(machine)
    if not skills:
        where = " or ".join(map(str, client.folders(machine)))
        raise InvalidArgument(
            f"No skill is watched in {where}, which {client.title} reads.", "`evolvable init` does."
        )
    before = choice_of(library, settings)
    configuration = config_files.read_configuration(settings)
    # Our earlier entries are taken out first: the others are the person's own.
    text = _remove_written(configuration.text, configuration.path, before.written if before else {})
    own = _find_disabled(config_files.parse_configuration(configuration.path, text))
    plan = sorted({skill.name for skill in skills if skill.id not in chosen} - own) if name else []
    text = _disable_skills(text, configuration.path, plan)
    # Raises for a text that is no TOML, such as tables beside an inline one.
    config_files.parse_configuration(configuration.path, text)
    names = {skill.name for skill in skills}
    hidden = sorted(names & {*own, *plan})
    listed, kept = sorted(names - set(hidden)), sorted(names & own)
    diff = difference(settings, configuration.text, text)
    change = ListChange(str(settings), name, listed, hidden, kept, diff)
    if dry_run:
        return change
    choice = ListingChoice(settings, name, dict.fromkeys(plan, (_OFF,)), library.store.now())
    backup = write_choice(library, configuration, text, choice, before, private=True)
    library.record(caller, "choose collection", f"{name or 'none'} in {client.title}")
    return replace(change, backup=backup, written=text != configuration.text)


def take_out_of_client(choice: ListingChoice) -> None:
    """Take the entries of a collection out of the settings of Codex or Copilot CLI.

    Raise as `take_out`.
    """
    configuration = config_files.read_configuration(choice.settings)
    text = _remove_written(configuration.text, configuration.path, choice.written)
    if text != configuration.text:
        stamp = time.strftime("%Y%m%dT%H%M%S")
        config_files.write_configuration(configuration, text, private=False, stamp=stamp)


def is_of_other_client(choice: ListingChoice) -> bool:
    """Return whether a choice was written into the settings of a client of this module."""
    return any(_OFF in values for values in choice.written.values())


def _disable_skills(text: str, path: Path, names: Sequence[str]) -> str:
    """Return the settings with these skills switched off."""
    if path.suffix == ".toml":
        return "".join([text, *map(_format_table, names)])
    with config_files.report_edit_errors(path, text):
        for name in names:
            text = add_json_item(text if text.strip() else EMPTY, ("disabledSkills",), name)
    return text


def _remove_written(text: str, path: Path, written: Mapping[str, Sequence[str]]) -> str:
    """Return the settings without our entries; an entry that a person changed stays."""
    if path.suffix == ".toml":
        for name in written:
            # Only the exact text that we wrote: a table that was changed is the person's.
            text = text.replace(_format_table(name), "", 1)
        return text
    if not text.strip():
        return text
    with config_files.report_edit_errors(path, text):
        return remove_json_items(text, ("disabledSkills",), lambda name: name in written)


def _format_table(name: str) -> str:
    """Return the table of Codex's settings that switches a skill off."""
    return f"\n[[skills.config]]\nname = {json.dumps(name)}\nenabled = false\n"
