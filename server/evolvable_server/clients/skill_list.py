"""Write Claude Code's setting `skillOverrides` from a collection: which skills it lists by itself.

The skills stay in their folders, and a person can still call each by its name. A person's own
values of the setting stay.
"""

import contextlib
import difflib
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from evolvable_server.clients import config_files
from evolvable_server.clients.config_files import Configuration
from evolvable_server.config import Machine
from evolvable_store import MAX_FILE, parse_document, read_regular, summarize
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import USER_SCOPE, Kind, main_file
from evolvable_store.storage import ListingChoice, WatchedFolder
from evolvable_store.workingcopy import discover, exclusive
from evolvable_tools import Caller, Library, check_may_decide
from evolvable_tools.verbs import (
    ListedSkill,
    Shown,
    SkillListing,
    describe_listing,
    find_collection,
    measure_listing,
    plan_overrides,
    read_skills,
)

KEY = "skillOverrides"
"""Claude Code's setting: skill -> how it is listed. Claude Code has it since 2.1.129."""

SHORTEN = "evolvable setup --take shorten"
"""The command that makes a collection of the skills that keep their description.

It also has Claude Code list that collection.
"""

# Seconds to wait for the lock: longer than a choice takes, and an end where a command hangs.
_LOCK_SECONDS = 10


@dataclass(frozen=True, slots=True)
class ClientList:
    """One list of skills of Claude Code. project: '' for the list that it has in every project.

    settings: the person's own file that decides about the list. below: files that count less, the
    weakest first. folders: the watched folders whose skills the list holds.
    """

    project: str
    settings: Path
    below: tuple[Path, ...]
    folders: tuple[WatchedFolder, ...]

    @property
    def title(self) -> str:
        """The projects that have it, in words.

        A project is named by the scope of its skills, else by its folder.
        """
        if not self.project:
            return "in every project"
        scopes = (folder.scope for folder in self.folders if folder.scope != USER_SCOPE)
        return f"in the project {next(scopes, self.project)}"


@dataclass(frozen=True, slots=True)
class ListChange:
    """The change of a client's settings by a choice.

    collection: '' when every skill is listed again. listed, hidden: the names of the skills. kept:
    those about which the person's own setting decides. diff: of the file. backup: the copy of the
    file, None for a new one. written: whether the file changed.
    """

    settings: str
    collection: str
    listed: list[str]
    hidden: list[str]
    kept: list[str]
    diff: str
    backup: str | None = None
    written: bool = False


def client_lists(folders: Sequence[WatchedFolder], machine: Machine) -> list[ClientList]:
    """Return Claude Code's lists with skills of watched folders, that of every project first."""
    home = _find_claude_folder(machine)
    skills = [folder for folder in folders if folder.kind is Kind.SKILL]
    # A watched folder is noted without links; a person's ~/.claude may be one.
    own = tuple(
        folder
        for folder in skills
        if folder.path == (home / "skills").resolve() and folder.scope == USER_SCOPE
    )
    lists = [ClientList("", home / "settings.json", (), own)] if own else []
    for folder in skills:
        if folder not in own and folder.path.parts[-2:] == (".claude", "skills"):
            lists.append(_make_project_list(folder.path.parent.parent, home, own, folder))
    return lists


def _find_claude_folder(machine: Machine) -> Path:
    return (machine.claude or machine.user / ".claude").absolute()


def project_list(folders: Sequence[WatchedFolder], machine: Machine) -> ClientList:
    """Return the list of the open project, which may have no skills of its own.

    Raise InvalidArgument where no folder of Claude Code is watched.
    """
    lists, project = client_lists(folders, machine), machine.project.resolve()
    for client_list in lists:
        if client_list.project and client_list.settings.parent.parent == project:
            return client_list
    own = next((client_list.folders for client_list in lists if not client_list.project), ())
    if not own:
        hint = "`evolvable init ~/.claude/skills` watches yours."
        raise InvalidArgument("No folder of skills that Claude Code reads is watched.", hint)
    # There, the settings of the project would be those of the user.
    if project == machine.user.resolve():
        raise InvalidArgument(
            f"{project} is your home folder, and no project.", "Leave out --project."
        )
    return _make_project_list(project, _find_claude_folder(machine), own)


def chosen_lists(
    library: Library, machine: Machine
) -> list[tuple[ClientList, ListingChoice | None]]:
    """Return the lists of Claude Code, each with the choice for it, None without one.

    The list of the open project is among them where it has a choice.
    """
    choices = {choice.settings: choice for choice in library.store.backend.collections.choices()}
    lists = client_lists(library.folders(), machine)
    with suppress(InvalidArgument):
        opened = project_list(library.folders(), machine)
        if opened.settings in choices and opened not in lists:
            lists.append(opened)
    return [(client_list, choices.get(client_list.settings)) for client_list in lists]


def _make_project_list(
    project: Path, home: Path, own: tuple[WatchedFolder, ...], folder: WatchedFolder | None = None
) -> ClientList:
    # In the order in which Claude Code applies them: the user's, the project's, then the local
    # ones.
    below = (home / "settings.json", project / ".claude/settings.json")
    folders = (*own, *([folder] if folder is not None else []))
    return ClientList(str(project), project / ".claude/settings.local.json", below, folders)


def listed_skills(library: Library, where: ClientList) -> list[ListedSkill]:
    """Return the skills of the folders of a list."""
    return [skill for folder in where.folders for skill in read_skills(library, folder)]


def measure_list(where: ClientList, skills: Iterable[ListedSkill]) -> SkillListing:
    """Return the content of a list with these skills, by the client's settings."""
    return measure_listing(skills, read_overrides(*where.below, where.settings))


@dataclass(frozen=True, slots=True)
class MeasuredList:
    """A list of Claude Code with its skills and its content."""

    where: ClientList
    skills: Sequence[ListedSkill]
    listing: SkillListing

    @property
    def text(self) -> str:
        """The line that says how full the list is."""
        place = f" {self.where.title}" if self.where.project else ""
        hidden = len(self.listing.hidden)
        rest = f"; it does not list {hidden:,} more" if hidden else ""
        return f"{describe_listing(self.listing)} in Claude Code{place}{rest}"


def crowded_list(library: Library, machine: Machine) -> MeasuredList | None:
    """Return the list in which skills lose their description, None where none does.

    The list of every project is looked at before that of the open project.
    """
    project = str(machine.project.resolve())
    for where in client_lists(library.folders(), machine):
        if where.project in ("", project):
            skills = listed_skills(library, where)
            if (listing := measure_list(where, skills)).bare:
                return MeasuredList(where, skills, listing)
    return None


def room_of_projects(library: Library, machine: Machine) -> int:
    """Return the characters that the fullest project's own skills add to the list."""
    sizes = [0]
    for where in client_lists(library.folders(), machine):
        overrides = read_overrides(*where.below, where.settings)
        own = [folder for folder in where.folders if where.project and folder.scope != USER_SCOPE]
        skills = [skill for folder in own for skill in read_skills(library, folder)]
        whole = [skill for skill in skills if overrides.get(skill.name, Shown.WHOLE) is Shown.WHOLE]
        # One more for the line end between two entries.
        sizes.append(sum(skill.size + 1 for skill in whole))
    return max(sizes)


def list_on_disk(machine: Machine) -> MeasuredList:
    """Return the list of every project by the folder on disk, which need not be watched."""
    home = _find_claude_folder(machine)
    where = ClientList("", home / "settings.json", (), ())
    skills = list[ListedSkill]()
    for number, name in enumerate(discover(str(home / "skills"), Kind.SKILL).directories):
        with suppress(OSError, EvolvableError):
            data = read_regular(home / "skills" / name / main_file(Kind.SKILL, name), MAX_FILE)
            description = summarize(parse_document(data)).description
            skills.append(ListedSkill(number, name, name, len(description), 0))
    return MeasuredList(where, skills, measure_list(where, skills))


def read_overrides(*files: Path) -> dict[str, Shown]:
    """Return how the skills are listed by these files; a later file counts more.

    A broken file is left out.
    """
    overrides: dict[str, Shown] = {}
    for path in files:
        try:
            values = _read_values(config_files.read_configuration(path))
        except EvolvableError:
            continue
        for name, value in values.items():
            if value in list(Shown):
                overrides[name] = Shown(str(value))
    return overrides


def _read_values(configuration: Configuration) -> dict[str, object]:
    values = configuration.values.get(KEY)
    return dict(values) if isinstance(values, dict) else {}


def choose_collection(
    library: Library, caller: Caller, where: ClientList, name: str, *, dry_run: bool = False
) -> ListChange:
    """Have a client list the skills of one collection alone; '' has it list every skill again.

    A copy of the old settings is kept beside them. Raise Refused for anybody but a person, NotFound
    for the collection, ConfigurationBroken, ConfigurationNotWritten, Conflict, LibraryBusy. Then
    the settings are as they were.
    """
    check_may_decide(caller, "decide what a client lists")
    # A trial run makes no lock file.
    with contextlib.nullcontext() if dry_run else lock_lists(library):
        return _choose(library, caller, where, name, dry_run=dry_run)


def lock_lists(library: Library) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of the choices of lists while the body runs."""
    # It guards the settings of clients together with the record of the choices. Of two commands at
    # once one would lose the record of the other, whose values would count as the person's own.
    folder = library.store.home / "locks"
    folder.mkdir(mode=0o700, exist_ok=True)
    return exclusive(folder / "listing.lock", _LOCK_SECONDS, "what a client lists")


def _choose(
    library: Library, caller: Caller, where: ClientList, name: str, *, dry_run: bool
) -> ListChange:
    chosen = find_collection(library, name).ids if name else frozenset()
    before = choice_of(library, where.settings)
    configuration = config_files.read_configuration(where.settings)
    own = _find_own(configuration, before)
    skills = listed_skills(library, where)
    plan = plan_overrides(skills, chosen, own, read_overrides(*where.below)) if name else {}
    text = _set_overrides(configuration, {**own, **plan})
    overrides = {**read_overrides(*where.below), **own, **plan}
    change = _make_change(where, name, skills, overrides, own)
    change = replace(change, diff=difference(where.settings, configuration.text, text))
    if dry_run:
        return change
    written = {skill: (value,) for skill, value in plan.items()}
    choice = ListingChoice(where.settings, name, written, library.store.now())
    backup = write_choice(library, configuration, text, choice, before, private=not where.project)
    library.record(caller, "choose collection", f"{name or 'none'} {where.title}")
    return replace(change, backup=backup, written=text != configuration.text)


def choice_of(library: Library, settings: Path) -> ListingChoice | None:
    """Return the choice for the list that a file of settings decides about, None without one."""
    choices = library.store.backend.collections.choices()
    return next((choice for choice in choices if choice.settings == settings), None)


def write_choice(
    library: Library,
    configuration: Configuration,
    text: str,
    choice: ListingChoice,
    before: ListingChoice | None,
    *,
    private: bool,
) -> str | None:
    """Write a client's settings and record the choice.

    Return the copy of the old file, None for a new file. before: the earlier choice. Raise as
    `choose_collection`. Then settings and choice are as they were.
    """
    backend = library.store.backend.collections
    if choice.collection:
        # Recorded before the file is written, with the values of both choices: after a kill at any
        # point, all of our values in the file can be taken out.
        written = _merge_written(before.written if before else {}, choice.written)
        backend.choose(replace(choice, written=written))
    backup = None
    try:
        if text != configuration.text:
            stamp = time.strftime("%Y%m%dT%H%M%S")
            backup = config_files.write_configuration(
                configuration, text, private=private, stamp=stamp
            )
    except EvolvableError:
        # The file is as it was, so the record has to be too.
        _restore_choice(library, choice.settings, before)
        raise
    if choice.collection:
        backend.choose(choice)
    else:
        backend.forget(choice.settings)
    return str(backup) if backup else None


def _find_own(configuration: Configuration, choice: ListingChoice | None) -> dict[str, object]:
    """Return the values of the setting that a person added."""
    values = _read_values(configuration)
    return {
        skill: value
        for skill, value in values.items()
        if choice is None or not choice.is_added(skill, value)
    }


def _merge_written(
    before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    return {
        skill: sorted({*before.get(skill, ()), *after.get(skill, ())})
        for skill in before.keys() | after.keys()
    }


def _restore_choice(library: Library, settings: Path, before: ListingChoice | None) -> None:
    backend = library.store.backend.collections
    if before is None:
        backend.forget(settings)
    else:
        backend.choose(before)


def take_out(choice: ListingChoice) -> None:
    """Take the values of a collection out of a client's settings; a copy of the file is kept.

    Raise ConfigurationBroken, ConfigurationNotWritten, Conflict. Then the settings are as they
    were.
    """
    configuration = config_files.read_configuration(choice.settings)
    text = _set_overrides(configuration, _find_own(configuration, choice))
    if text != configuration.text:
        stamp = time.strftime("%Y%m%dT%H%M%S")
        config_files.write_configuration(configuration, text, private=False, stamp=stamp)


def _set_overrides(configuration: Configuration, overrides: Mapping[str, object]) -> str:
    if not overrides and KEY not in configuration.values:
        return configuration.text
    # None takes the whole key out.
    return config_files.edit_configuration(configuration, (KEY,), dict(overrides) or None)


def _make_change(
    where: ClientList,
    name: str,
    skills: Sequence[ListedSkill],
    overrides: Mapping[str, object],
    own: Mapping[str, object],
) -> ListChange:
    names = sorted({skill.name for skill in skills})
    hidden = [skill for skill in names if overrides.get(skill) in (Shown.PERSON, Shown.NEVER)]
    listed = [skill for skill in names if skill not in set(hidden)]
    kept = [skill for skill in names if skill in own]
    return ListChange(str(where.settings), name, listed, hidden, kept, "")


def difference(path: Path, before: str, after: str) -> str:
    """Return the difference without the lines around it: settings may hold secret keys."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), n=0, lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def unlisted_newcomers(library: Library, where: ClientList, choice: ListingChoice) -> list[str]:
    """Return the skills that are listed beside a collection.

    They came, or left the collection, after it was chosen.
    """
    members = library.store.backend.collections.members().get(choice.collection, ())
    overrides = read_overrides(*where.below, where.settings)
    own = {
        name
        for name, value in read_overrides(where.settings).items()
        if not choice.is_added(name, value)
    }
    skills = listed_skills(library, where)
    wanted_names = {skill.name for skill in skills if skill.id in set(members)} | own
    other_names = {skill.name for skill in skills} - wanted_names
    return sorted(name for name in other_names if overrides.get(name) in (None, Shown.WHOLE))
