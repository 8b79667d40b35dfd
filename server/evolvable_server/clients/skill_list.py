"""Which skills Claude Code lists by itself: its setting `skillOverrides`, written from a collection
of the library.

The skills stay in their folders, and a person can still call each by its name. What a person set
there by hand stays.
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
"""Claude Code's setting: skill -> how it is listed. It knows the setting since 2.1.129."""

SHORTEN = "evolvable setup --take shorten"
"""What makes a collection of the skills that keep their description, and has Claude
Code list it.
"""

# Longer than a choice takes; a command does not wait for one that hangs.
_LOCK_SECONDS = 10


@dataclass(frozen=True, slots=True)
class ClientList:
    """One list of skills of Claude Code. project: '' for the list that it has in every project.

    settings: the person's own file that decides about it. below: files that count less, the weakest
    first. folders: the watched folders whose skills it holds.
    """

    project: str
    settings: Path
    below: tuple[Path, ...]
    folders: tuple[WatchedFolder, ...]

    @property
    def title(self) -> str:
        """Where it counts, in words: by the scope of the project's skills, or by its folder where
        it has none.
        """
        scope = next(
            (folder.scope for folder in self.folders if folder.scope != USER_SCOPE), self.project
        )
        return f"in the project {scope}" if self.project else "in every project"


@dataclass(frozen=True, slots=True)
class ListChange:
    """What a choice did to a client's settings. collection: '' when every skill is listed again.

    listed, hidden: the skills, by name. kept: those about which the person's own setting decides.
    diff: of the file. backup: the file as it was, None for a new one. written: whether the file
    changed.
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
    """Return the lists of Claude Code that watched folders are part of: that of every project
    first.
    """
    home = (machine.claude or machine.user / ".claude").absolute()
    skills = [folder for folder in folders if folder.kind is Kind.SKILL]
    # A watched folder is noted without links; a person's ~/.claude may be one.
    own = tuple(
        folder
        for folder in skills
        if folder.path == (home / "skills").resolve() and folder.scope == USER_SCOPE
    )
    found = [ClientList("", home / "settings.json", (), own)] if own else []
    for folder in skills:
        if folder not in own and folder.path.parts[-2:] == (".claude", "skills"):
            found.append(_of_project(folder.path.parent.parent, home, own, folder))
    return found


def project_list(folders: Sequence[WatchedFolder], machine: Machine) -> ClientList:
    """Return the list of the open project, which may have no skills of its own.

    Raise InvalidArgument without any.
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
    return _of_project(project, (machine.claude or machine.user / ".claude").absolute(), own)


def chosen_lists(
    library: Library, machine: Machine
) -> list[tuple[ClientList, ListingChoice | None]]:
    """Return the lists of Claude Code, each with what was chosen for it; that of the open project
    where it has one.
    """
    choices = {choice.settings: choice for choice in library.store.backend.collections.choices()}
    found = client_lists(library.folders(), machine)
    with suppress(InvalidArgument):
        opened = project_list(library.folders(), machine)
        if opened.settings in choices and opened not in found:
            found.append(opened)
    return [(client_list, choices.get(client_list.settings)) for client_list in found]


def _of_project(
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
    """Return what a list holds with these skills, as the client's settings stand."""
    return measure_listing(skills, read_overrides(*where.below, where.settings))


@dataclass(frozen=True, slots=True)
class MeasuredList:
    """A list of Claude Code with its skills and what it holds of them."""

    where: ClientList
    skills: Sequence[ListedSkill]
    listing: SkillListing

    @property
    def text(self) -> str:
        """How full it is, in a line."""
        place = f" {self.where.title}" if self.where.project else ""
        hidden = len(self.listing.hidden)
        rest = f"; it does not list {hidden:,} more" if hidden else ""
        return f"{describe_listing(self.listing)} in Claude Code{place}{rest}"


def crowded_list(library: Library, machine: Machine) -> MeasuredList | None:
    """Return the list in which skills lose their description: that of every project, else that of
    the open one.
    """
    project = str(machine.project.resolve())
    for where in client_lists(library.folders(), machine):
        if where.project in ("", project):
            skills = listed_skills(library, where)
            if (listing := measure_list(where, skills)).bare:
                return MeasuredList(where, skills, listing)
    return None


def room_of_projects(library: Library, machine: Machine) -> int:
    """Return the characters that a project's own skills add to the list of every project, in the
    fullest project.
    """
    sizes = [0]
    for where in client_lists(library.folders(), machine):
        overrides = read_overrides(*where.below, where.settings)
        own = [folder for folder in where.folders if where.project and folder.scope != USER_SCOPE]
        skills = [skill for folder in own for skill in read_skills(library, folder)]
        # One more for the line end between two entries.
        sizes.append(
            sum(
                listed.size + 1
                for listed in skills
                if overrides.get(listed.name, Shown.WHOLE) is Shown.WHOLE
            )
        )
    return max(sizes)


def list_on_disk(machine: Machine) -> MeasuredList:
    """Return the list of every project as its folder is now, whether the library watches that or
    not.
    """
    home = (machine.claude or machine.user / ".claude").absolute()
    where, skills = (
        ClientList(
            "",
            home / "settings.json",
            (),
            (),
        ),
        list[ListedSkill](),
    )
    for number, name in enumerate(discover(str(home / "skills"), Kind.SKILL).directories):
        with suppress(OSError, EvolvableError):
            data = read_regular(home / "skills" / name / main_file(Kind.SKILL, name), MAX_FILE)
            skills.append(
                ListedSkill(number, name, name, len(summarize(parse_document(data)).description), 0)
            )
    return MeasuredList(where, skills, measure_list(where, skills))


def read_overrides(*files: Path) -> dict[str, Shown]:
    """Return how the files say that skills are listed; a later file counts more.

    A file that is broken says nothing.
    """
    found: dict[str, Shown] = {}
    for path in files:
        try:
            values = _overrides(config_files.read_configuration(path))
        except EvolvableError:
            continue
        found |= {name: Shown(str(value)) for name, value in values.items() if value in list(Shown)}
    return found


def _overrides(found: Configuration) -> dict[str, object]:
    values = found.values.get(KEY)
    return dict(values) if isinstance(values, dict) else {}


def choose_collection(
    library: Library, caller: Caller, where: ClientList, name: str, *, dry_run: bool = False
) -> ListChange:
    """Have a client list the skills of one collection alone; '' has it list every skill again.

    A copy of the settings as they were is kept beside them. Raise Refused for anybody but a person,
    NotFound for the collection, ConfigurationBroken, ConfigurationNotWritten, Conflict,
    LibraryBusy; then the settings are as they were.
    """
    check_may_decide(caller, "decide what a client lists")
    # A trial run makes no lock file.
    with contextlib.nullcontext() if dry_run else lock_lists(library):
        return _choose(library, caller, where, name, dry_run=dry_run)


def lock_lists(library: Library) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of the choices of lists while the body runs."""
    # Of two commands at once one would forget what the other notes, and its settings would count as
    # the person's own.
    place = library.store.home / "locks"
    place.mkdir(mode=0o700, exist_ok=True)
    return exclusive(place / "listing.lock", _LOCK_SECONDS, "what a client lists")


def _choose(
    library: Library, caller: Caller, where: ClientList, name: str, *, dry_run: bool
) -> ListChange:
    chosen = find_collection(library, name).ids if name else frozenset()
    before = choice_of(library, where.settings)
    found = config_files.read_configuration(where.settings)
    own = _own(found, before)
    skills = listed_skills(library, where)
    plan = plan_overrides(skills, chosen, own, read_overrides(*where.below)) if name else {}
    text = _with_overrides(found, {**own, **plan})
    change = _change(where, name, skills, {**read_overrides(*where.below), **own, **plan}, own)
    change = replace(change, diff=difference(where.settings, found.text, text))
    if dry_run:
        return change
    written = {skill: (value,) for skill, value in plan.items()}
    choice = ListingChoice(where.settings, name, written, library.store.now())
    backup = write_choice(library, found, text, choice, before, private=not where.project)
    library.record(caller, "choose collection", f"{name or 'none'} {where.title}")
    return replace(change, backup=backup, written=text != found.text)


def choice_of(library: Library, settings: Path) -> ListingChoice | None:
    """Return what was chosen for the list that a file of settings decides about, None
    for nothing.
    """
    return next(
        (
            choice
            for choice in library.store.backend.collections.choices()
            if choice.settings == settings
        ),
        None,
    )


def write_choice(
    library: Library,
    found: Configuration,
    text: str,
    choice: ListingChoice,
    before: ListingChoice | None,
    *,
    private: bool,
) -> str | None:
    """Write a client's settings and note the choice; return the copy of the file as it was, None
    for a new one.

    before: what was chosen until now. Raise as `choose_collection`; then settings and choice are as
    they were.
    """
    backend = library.store.backend.collections
    if choice.collection:
        # Noted first, with what is there now, so that after a kill at any point the settings can be
        # taken out again.
        backend.choose(
            replace(
                choice, written=_merge_written(before.written if before else {}, choice.written)
            )
        )
    backup = None
    try:
        if text != found.text:
            stamp = time.strftime("%Y%m%dT%H%M%S")
            backup = config_files.write_configuration(found, text, private=private, stamp=stamp)
    except EvolvableError:
        # The file is as it was, so the note of it is too.
        _restore(library, choice.settings, before)
        raise
    if choice.collection:
        backend.choose(choice)
    else:
        backend.forget(choice.settings)
    return str(backup) if backup else None


def _own(found: Configuration, choice: ListingChoice | None) -> dict[str, object]:
    """Return the settings of skills that a person added."""
    overrides = _overrides(found)
    return {
        skill: value
        for skill, value in overrides.items()
        if choice is None or not choice.is_added(skill, value)
    }


def _merge_written(
    before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    return {
        skill: sorted({*before.get(skill, ()), *after.get(skill, ())})
        for skill in before.keys() | after.keys()
    }


def _restore(library: Library, settings: Path, before: ListingChoice | None) -> None:
    backend = library.store.backend.collections
    if before is None:
        backend.forget(settings)
    else:
        backend.choose(before)


def take_out(choice: ListingChoice) -> None:
    """Take what was written for a collection out of a client's settings; a copy of the file is kept
    beside it.

    Raise ConfigurationBroken, ConfigurationNotWritten, Conflict; then the settings are as they
    were.
    """
    found = config_files.read_configuration(choice.settings)
    text = _with_overrides(found, _own(found, choice))
    if text != found.text:
        config_files.write_configuration(
            found, text, private=False, stamp=time.strftime("%Y%m%dT%H%M%S")
        )


def _with_overrides(found: Configuration, overrides: Mapping[str, object]) -> str:
    if not overrides and KEY not in found.values:
        return found.text
    # None takes the whole key out.
    return config_files.edit_configuration(found, (KEY,), dict(overrides) or None)


def _change(
    where: ClientList,
    name: str,
    skills: Sequence[ListedSkill],
    overrides: Mapping[str, object],
    own: Mapping[str, object],
) -> ListChange:
    names = sorted({skill.name for skill in skills})
    hidden = [
        skill_name
        for skill_name in names
        if overrides.get(skill_name) in (Shown.PERSON, Shown.NEVER)
    ]
    listed_names = [skill_name for skill_name in names if skill_name not in set(hidden)]
    return ListChange(
        str(where.settings),
        name,
        listed_names,
        hidden,
        [skill_name for skill_name in names if skill_name in own],
        "",
    )


def difference(path: Path, before: str, after: str) -> str:
    """Return what changes, without the lines around it: settings may hold keys."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(path), str(path), n=0, lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def unlisted_newcomers(library: Library, where: ClientList, choice: ListingChoice) -> list[str]:
    """Return the skills that are listed beside a collection: they came, or left it, after it was
    chosen.
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
    return sorted(
        {
            candidate.name
            for candidate in skills
            if candidate.name not in wanted_names
            and overrides.get(candidate.name) in (None, Shown.WHOLE)
        }
    )
