"""Choose the folders that `init` and `checkout` watch, and the project that each belongs to."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_server.cli.terminal import ask_yes, remark
from evolvable_server.config import ClientFolder, is_person, project_folders, read_machine
from evolvable_store.errors import Refused
from evolvable_store.resource import USER_SCOPE, Kind
from evolvable_store.storage.bindings import WatchedFolder
from evolvable_store.store import Store
from evolvable_store.workingcopy.openat import link_out_of_repository
from evolvable_store.workingcopy.project_changes import (
    enter_project,
    is_shared,
    likely_scopes,
    main_folder,
    move_project,
    next_scope,
    rename_project,
    scope_name,
)
from evolvable_store.workingcopy.project_map import Project, read_projects
from evolvable_store.workingcopy.project_places import project_of, skill_folders
from evolvable_store.workingcopy.projects import Projects


@dataclass(frozen=True, slots=True)
class FolderChoice:
    """A folder that is to be watched, as resources of one kind in one scope. project: its folder, None for the user."""

    path: Path
    scope: str
    kind: Kind
    project: Path | None = None


def check_links(paths: Sequence[Path], known: Sequence[ClientFolder], *, named: bool) -> None:
    """Refuse a folder to which a link of a repository leads from inside; say so of one that nobody named."""
    own = {one.path for one in known if one.project is None}
    for path in paths:
        leaving = link_out_of_repository(path) if path.absolute() not in own and path.is_dir() else None
        if leaving is None:
            continue
        why = f"{leaving[0]} is a symbolic link that leads out of the repository {leaving[1]}"
        hint = f"If the folder is yours, name it: evolvable init {path.resolve()}"
        if named:
            raise Refused(f"{why}; nothing was imported.", hint)
        remark(f"Not imported: {why}.", hint)


def open_project(directory: Path) -> Path:
    """Return the project of a directory: the nearest that has a client's folder of skills, else the directory.

    Raise Refused in a linked work tree.
    """
    real = directory.resolve()
    main = main_folder(real)
    if main is not None:
        why = f"{real} lies in a linked work tree of git, which reads the skills of the main one; nothing was written."
        raise Refused(why, f"Write into that: cd {main}")
    return main_project(real)


def main_project(directory: Path) -> Path:
    """Return the nearest project of a directory, of the main work tree for one of a linked one; else the directory."""
    found = (one.project for one in project_folders(Path.home(), directory))
    return next((one for one in found if one is not None), main_folder(directory) or directory.resolve())


class FolderChooser:
    """The scopes of the folders that one command imports. store: None where the library is still to be made."""

    def __init__(self, store: Store | None, home: Path) -> None:
        self._store, self._known = store, read_projects(home)
        self._watched = store.backend.bindings.folders() if store is not None else []

    def choose(self, path: Path, kind: Kind, scope: str | None) -> FolderChoice:
        """Return what becomes of a folder. scope: as the person says it, None for the one that it has or gets.

        Raise Refused for a folder of a linked work tree.
        """
        real = path.resolve()
        place = None if real in _own_folders() else _project_at(path)
        check_work_tree(real, self._watched)
        there = next((one for one in self._watched if one.path == real), None)
        if there is not None and (scope is None or there.scope == USER_SCOPE):
            scope = scope or there.scope
        elif scope is None:
            scope = self.scope_of(place) if place is not None else USER_SCOPE
        return FolderChoice(path, scope, kind, place if scope != USER_SCOPE else None)

    def scope_of(self, place: Path) -> str:
        """Return the scope that a project has, or gets with this command."""
        scope = self._known.scope_of(place)
        if scope is None and self._store is not None:
            move_project(self._store, place)
            scope = Projects(self._store).scope_of(place)
        if scope is None:
            scope = self._same_elsewhere(place) or next_scope(self._store, place, self._known)
        self._known = self._known.having(Project(place, scope))
        return scope

    def _same_elsewhere(self, place: Path) -> str | None:
        """Return the project of a shared library that this one is on another machine, if the person says so."""
        store = self._store
        if store is None or not is_shared(store):
            return None
        here, name = {one.scope for one in self._known.projects}, scope_name(place)
        likely = [scope for scope in likely_scopes(store, place) if scope not in here]
        if likely and is_person() and ask_yes(f"{place}: is it the project {likely[0]} of this library?", default=True):
            return likely[0]
        known = likely[0] if likely else name
        if known not in here and store.heads(scope=known):
            remark(f"This library has a project {known}; {place} becomes another one.")
            remark(f"If it is the same: evolvable init --scope {known} {skill_folders(place)[0]}")
        return None


def _own_folders() -> Iterator[Path]:
    """Yield the clients' folders of the person at this machine, wherever their settings lie."""
    machine = read_machine(Path.cwd())
    for folder in skill_folders(machine.user):
        yield folder.resolve()
        yield folder.with_name("agents").resolve()
    for base in (machine.claude or machine.user / ".claude", machine.codex):
        yield from ((base / name).resolve() for name in ("skills", "agents"))


def _project_at(path: Path) -> Path | None:
    """Return the project of a folder, also of one to which a link in the project leads."""
    named = Path(os.path.realpath(path.absolute().parent)) / path.name
    return project_of(named) or project_of(path.resolve())


def check_work_tree(real: Path, watched: Sequence[WatchedFolder]) -> None:
    """Refuse a folder that a linked work tree has beside the main one, where it is a project's, or is watched there."""
    main = main_folder(real)
    if main is not None and (_project_at(real) is not None or any(one.path == main for one in watched)):
        raise Refused(
            f"{real} lies in a linked work tree of git, which reads the skills of the main one; nothing was changed.",
            f"Import those: evolvable init {main}",
        )


def settle_projects(store: Store, choices: Sequence[FolderChoice]) -> None:
    """Note the projects of these folders; one that the person gives another scope takes what it holds along."""
    for place, scope in {one.project: one.scope for one in choices if one.project is not None}.items():
        held = store.heads(scope=scope)
        folders = [one for one in store.backend.bindings.folders() if project_of(one.path) == place]
        if not held:
            rename_project(store, place, scope)
        else:
            for folder in folders:
                if folder.scope not in (scope, USER_SCOPE):  # it joins another project, and is imported there
                    store.backend.bindings.drop_folder(folder)
        enter_project(store, place, scope)
