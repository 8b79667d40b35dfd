"""Choose the folders that `init` and `checkout` watch, and the project that each belongs to."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_server.cli.terminal import ask_yes, remark
from evolvable_server.client_folders import ClientFolder, ClientHomes, own_folders, project_folders
from evolvable_server.config import is_person
from evolvable_store import Store
from evolvable_store.errors import Refused
from evolvable_store.resource import USER_SCOPE, Kind, is_plugins
from evolvable_store.storage import WatchedFolder
from evolvable_store.workingcopy import (
    COMMANDS,
    PluginPlace,
    Project,
    Projects,
    count_resources,
    enter_project,
    is_shared,
    likely_scopes,
    link_out_of_repository,
    main_folder,
    move_project,
    next_scope,
    plugin_place,
    plugin_scope,
    project_of,
    read_projects,
    rename_project,
    scope_name,
    skill_folders,
)


@dataclass(frozen=True, slots=True)
class FolderChoice:
    """A folder that is to be watched, as resources of one kind in one scope.

    project: its folder, None for the user.
    """

    path: Path
    scope: str
    kind: Kind
    project: Path | None = None

    @property
    def is_plugins(self) -> bool:
        """Whether it is a plugin's, which is read and never written."""
        return is_plugins(self.scope)


def check_links(paths: Sequence[Path], folders: Sequence[ClientFolder], *, is_named: bool) -> None:
    """Refuse a folder to which a symbolic link leads out of a repository.

    folders: those of the clients. is_named: whether the person named the paths; if not, such a
    folder is only reported.
    """
    own_paths = {folder.path for folder in folders if folder.project is None}
    for path in paths:
        # A client's own folder may be a link: people keep such folders in a repository of settings.
        if path.absolute() in own_paths or not path.is_dir():
            continue
        leaving = link_out_of_repository(path)
        if leaving is None:
            continue
        why = f"{leaving[0]} is a symbolic link that leads out of the repository {leaving[1]}"
        hint = f"If the folder is yours, name it: evolvable init {path.resolve()}"
        if is_named:
            raise Refused(f"{why}; nothing was imported.", hint)
        remark(f"Not imported: {why}.", hint)


def open_project(directory: Path) -> Path:
    """Return the project of a directory: the nearest that has a client's folder of skills, else the
    directory.

    Raise Refused in a linked work tree.
    """
    real = directory.resolve()
    main = main_folder(real)
    if main is not None:
        why = (
            f"{real} lies in a linked work tree of git, which reads the skills of the main one; "
            "nothing was written."
        )
        raise Refused(why, f"Write into that: cd {main}")
    return main_project(real)


def main_project(directory: Path) -> Path:
    """Return the nearest project of a directory, of the main work tree for one of a linked one;
    else the directory.
    """
    projects = (folder.project for folder in project_folders(Path.home(), directory))
    return next(
        (project for project in projects if project is not None),
        main_folder(directory) or directory.resolve(),
    )


class FolderChooser:
    """The scopes of the folders that one command imports.

    store: None where the library is still to be made.
    """

    def __init__(self, store: Store | None, home: Path, homes: ClientHomes) -> None:
        """Read the projects of the library in `home`.

        homes: the folders in which the clients keep the person's own skills.
        """
        self._store, self._projects, self._homes = store, read_projects(home), homes
        self._watched = store.backend.bindings.folders() if store is not None else []
        self._plugins = dict[str, Path]()

    def choose(self, path: Path, kind: Kind | None, scope: str | None) -> FolderChoice:
        """Return a folder with its kind, scope and project.

        kind, scope: those that the person named, or None. Raise Refused for a folder of a linked
        work tree.
        """
        real = path.resolve()
        watched = next((folder for folder in self._watched if folder.path == real), None)
        kind = kind or (watched.kind if watched is not None else _guess_kind(real))
        # The place tells a plugin, unless the person names a scope.
        if scope is None and (plugin := plugin_place(real)) is not None:
            return FolderChoice(path, self._choose_plugin_scope(plugin), kind)
        # A client's own folder belongs to the user, also where the home folder is a project itself.
        place = None if real in self._list_own_folders() else _find_project(path)
        check_work_tree(real, self._watched)
        if watched is not None and (scope is None or watched.scope == USER_SCOPE):
            scope = scope or watched.scope
        elif scope is None:
            scope = self.scope_of(place) if place is not None else USER_SCOPE
        return FolderChoice(path, scope, kind, place if scope != USER_SCOPE else None)

    def _choose_plugin_scope(self, plugin: PluginPlace) -> str:
        """Return the scope of a plugin, which no other plugin of this command has."""
        scope = plugin_scope(plugin, self._watched, self._plugins)
        self._plugins[scope] = plugin.plugin
        return scope

    def _list_own_folders(self) -> Iterator[Path]:
        """Yield the clients' folders of the person at this machine, wherever their settings lie."""
        for folder in own_folders(self._homes):
            yield folder.path.resolve()
            yield folder.path.with_name("agents").resolve()

    def scope_of(self, place: Path) -> str:
        """Return the scope that a project has, or gets with this command."""
        scope = self._projects.scope_of(place)
        if scope is None and self._store is not None:
            # The project may have moved here: it keeps its scope then.
            move_project(self._store, place)
            scope = Projects(self._store).scope_of(place)
        if scope is None:
            scope = self._find_shared_project(place) or next_scope(
                self._store, place, self._projects
            )
        # The next folder of this project gets the same scope.
        self._projects = self._projects.with_projects(Project(place, scope))
        return scope

    def _find_shared_project(self, place: Path) -> str | None:
        """Return the project of a shared library that this one is on another machine, if the person
        says so.
        """
        store = self._store
        if store is None or not is_shared(store):
            return None
        local_scopes = {project.scope for project in self._projects.projects}
        likely = [scope for scope in likely_scopes(store, place) if scope not in local_scopes]
        if (
            likely
            and is_person()
            and ask_yes(f"{place}: is it the project {likely[0]} of this library?", default=True)
        ):
            return likely[0]
        likely_scope = likely[0] if likely else scope_name(place)
        if likely_scope not in local_scopes and store.heads(scope=likely_scope):
            remark(f"This library has a project {likely_scope}; {place} becomes another one.")
            remark(
                f"If it is the same: evolvable init --scope {likely_scope} "
                f"{skill_folders(place)[0]}"
            )
        return None


_KINDS = {COMMANDS: Kind.PROMPT, "agents": Kind.AGENT}
"""Name of a folder of a client's -> what the client reads it as."""


def _guess_kind(folder: Path) -> Kind:
    """Return the kind of a folder for which nobody named one: as clients read a folder of its name,
    else skills.
    """
    kind = _KINDS.get(folder.name, Kind.SKILL)
    # What lies in a folder counts before its name: one called `agents` may hold skills.
    return Kind.SKILL if count_resources(folder, Kind.SKILL, 1) else kind


def _find_project(path: Path) -> Path | None:
    """Return the project of a folder, also of one to which a link in the project leads."""
    # The parent is resolved and the last part is not, so a link inside a project counts as the
    # project's.
    unresolved = Path(os.path.realpath(path.absolute().parent)) / path.name
    return project_of(unresolved) or project_of(path.resolve())


def check_work_tree(real: Path, watched: Sequence[WatchedFolder]) -> None:
    """Refuse a folder of a linked work tree where it is a project's, or the main one is watched."""
    main = main_folder(real)
    if main is None:
        return
    if _find_project(real) is not None or any(folder.path == main for folder in watched):
        raise Refused(
            f"{real} lies in a linked work tree of git, which reads the skills of the main one; "
            "nothing was changed.",
            f"Import those: evolvable init {main}",
        )


def settle_projects(store: Store, choices: Sequence[FolderChoice]) -> None:
    """Record the projects of these folders.

    A project that the person gives another scope keeps its resources.
    """
    scopes = {choice.project: choice.scope for choice in choices if choice.project is not None}
    for place, scope in scopes.items():
        folders = [
            watched
            for watched in store.backend.bindings.folders()
            if project_of(watched.path) == place
        ]
        # Nothing has the new scope yet, so the project takes all that it holds along.
        if not store.heads(scope=scope):
            rename_project(store, place, scope)
        else:
            # A resource has one scope: the folder leaves its old one before it is imported into the
            # new one.
            for folder in folders:
                if folder.scope not in (scope, USER_SCOPE):
                    store.backend.bindings.drop_folder(folder)
        enter_project(store, place, scope)
