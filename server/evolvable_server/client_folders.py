"""Which folders of skills, commands and plugins the installed clients read here.

The variables CLAUDE_CONFIG_DIR and CODEX_HOME say where a client keeps what is the person's own.
Any program can set a variable, so they count only in a command of a person at a terminal. Without
one, the account's configuration counts.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_server.config import Config, is_person
from evolvable_store import work_tree
from evolvable_store.resource import Kind
from evolvable_store.workingcopy import (
    COMMANDS,
    link_out_of_repository,
    plugin_skills,
    skill_folders,
    surroundings_of,
)

VARIABLES = {"claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}
"""Client in `[clients]` of the account's configuration -> the variable with the same meaning."""


@dataclass(frozen=True, slots=True)
class ClientFolder:
    """A folder of an installed client. project: the folder of the project, None for the user's own.

    is_plugin: whether it belongs to a plugin, which is read and never written.
    """

    path: Path
    project: Path | None = None
    kind: Kind = Kind.SKILL
    is_plugin: bool = False


@dataclass(frozen=True, slots=True)
class ClientHomes:
    """Where Claude Code and Codex keep the person's own. user: the home folder.

    remarks: why a variable does not count.
    """

    user: Path
    claude: Path
    codex: Path
    remarks: tuple[str, ...] = ()


def read_client_homes(config: Config, *, unasked: bool = False) -> ClientHomes:
    """Return where the clients keep the person's own, for a command.

    unasked: whether the folders are taken without a question. Then a variable that names a folder
    in a git work tree does not count.
    """
    user, person = Path.home(), is_person()
    folders, remarks = dict[str, Path](), list[str]()
    for client, variable in VARIABLES.items():
        usual = config.person.clients.get(client) or user / f".{client}"
        value = os.environ.get(variable)
        place = Path(value).expanduser().absolute() if value else usual
        folders[client] = usual
        if place == usual:
            continue
        tree = work_tree(Path(os.path.realpath(place)))
        if not person:
            remarks.append(
                f"{variable} does not count without a person at a terminal; {usual} is looked at."
            )
        elif tree is not None and unasked:
            remarks.append(
                f"{variable} names {place} in the git work tree {tree}, which is not taken "
                "without a question."
            )
        else:
            folders[client] = place
    return ClientHomes(user, folders["claude"], folders["codex"], tuple(remarks))


def own_folders(homes: ClientHomes) -> list[ClientFolder]:
    """Return where the clients have the person's own skills and commands, there or not."""
    # A variable may move a client's folder out of the home folder.
    moved = {homes.user / ".claude": homes.claude, homes.user / ".codex": homes.codex}
    # `.opencode` is the folder of OpenCode in a project.
    moved[homes.user / ".opencode"] = homes.user / ".config/opencode"
    skills = [moved.get(path.parent, path.parent) / path.name for path in skill_folders(homes.user)]
    return [*map(ClientFolder, skills), ClientFolder(homes.claude / COMMANDS, kind=Kind.PROMPT)]


def client_folders(homes: ClientHomes, project: Path) -> list[ClientFolder]:
    """Return the existing folders of the installed clients, the user's before the projects'.

    Claude Code reads skills and commands in ~/.claude and in .claude of the project. Codex reads
    ~/.codex/skills and ~/.agents/skills and, in the project, .agents/skills and .codex/skills.
    Cursor reads ~/.cursor/skills and .cursor/skills. Plugins have a folder of skills each. In a
    work tree of git, those of the projects around it follow; for a linked work tree, the folders
    are those of the main one. A folder of a project is left out when a link in a repository leads
    to it and it lies outside of that repository.
    """
    own = own_folders(homes)
    plugins = dict.fromkeys(
        path for home in (homes.claude, homes.codex) for path in plugin_skills(home)
    )
    own_paths = {folder.path for folder in own}
    # In a home folder that is a project itself, these are the user's own.
    in_projects = [
        folder
        for folder in project_folders(homes.user, project)
        if folder.path not in own_paths and folder.path.is_dir()
    ]
    return [
        *(folder for folder in own if folder.path.is_dir()),
        *(ClientFolder(path, is_plugin=True) for path in plugins),
        *(folder for folder in in_projects if link_out_of_repository(folder.path) is None),
    ]


def project_folders(home: Path, directory: Path) -> list[ClientFolder]:
    """Return where the clients have folders in the projects of a directory, the nearest first,
    there or not.
    """
    around = surroundings_of(directory, Path(os.path.realpath(home)))
    projects = [_list_project_folders(place) for place in around.places]
    existing = [
        folders for folders in projects if any(os.path.lexists(folder.path) for folder in folders)
    ]
    if not around.nested:
        # Outside of a git work tree, the nearest project alone counts.
        existing = existing[:1]
    return [folder for folders in existing for folder in folders]


def _list_project_folders(place: Path) -> Sequence[ClientFolder]:
    skills = [ClientFolder(path, place) for path in skill_folders(place)]
    return [*skills, ClientFolder(place / ".claude" / COMMANDS, place, Kind.PROMPT)]
