"""The projects of a library on this machine, and the scopes that are read from a directory.

A project is known by its folder. Its scope is the name of the folder, or the next one that is free.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from evolvable_store.resource import USER_SCOPE
from evolvable_store.storage import WatchedFolder
from evolvable_store.store import Store
from evolvable_store.workingcopy.project_map import ProjectMap, read_projects
from evolvable_store.workingcopy.project_places import skill_folders, surroundings_of


class Projects:
    """The projects of one library, as they were when they were first read.

    user: the home folder, which is no project.
    """

    def __init__(self, store: Store, user: Path | None = None) -> None:
        self._store = store
        self._user = Path(os.path.realpath(user)) if user is not None else None

    @property
    def are_separated(self) -> bool:
        """Whether `separate_projects` has nothing to do.

        Earlier versions knew projects by the names of their folders, so two may share a scope.
        """
        if self._store.read_only or self._map.separated:
            return True
        return all(folder.scope == USER_SCOPE or folder.is_plugins for folder in self._folders)

    def strangers_at(self, directory: Path) -> list[Path]:
        """Return the folders around a directory that may be moved projects, the outermost first."""
        # Nothing can have moved here while every project is in its place.
        if self._store.read_only:
            return []
        if all(os.path.lexists(project.folder) for project in self._map.projects):
            return []
        places, by_place = surroundings_of(directory, self._user).places, self._by_place
        return [
            place
            for place in reversed(places)
            if place not in by_place and any(map(os.path.isdir, skill_folders(place)))
        ]

    def scopes_at(self, directory: Path) -> tuple[str, ...]:
        """Return the scopes of the projects that are read from a directory, the nearest first."""
        around = surroundings_of(directory, self._user)
        return _list_scopes(around.places, around.nested, self._by_place)

    def scopes_of(self, scope: str) -> tuple[str, ...]:
        """Return a scope, and those of the projects around its folder that are read after it."""
        by_place = self._by_place
        place = next((place for place, scopes in by_place.items() if scope in scopes), None)
        if place is None:
            return (scope,)
        around = surroundings_of(place, self._user)
        scopes = _list_scopes(around.places, around.nested, by_place)
        return tuple(dict.fromkeys((scope, *scopes)))

    def scope_of(self, place: Path) -> str | None:
        """Return the scope of a project, None for a folder that is none."""
        return next(iter(self._by_place.get(place, ())), None)

    @cached_property
    def _folders(self) -> list[WatchedFolder]:
        return self._store.backend.bindings.folders()

    @cached_property
    def _map(self) -> ProjectMap:
        return read_projects(self._store.home)

    @cached_property
    def _by_place(self) -> Mapping[Path, Sequence[str]]:
        return _group_scopes(self._folders, self._map)


def scopes_by_map(project_map: ProjectMap, directory: Path, user: Path) -> tuple[str, ...]:
    """Return the scopes that a map alone has for a directory, the nearest first.

    user: as for Projects.
    """
    around = surroundings_of(directory, Path(os.path.realpath(user)))
    return _list_scopes(around.places, around.nested, _group_scopes((), project_map))


def _group_scopes(
    folders: Iterable[WatchedFolder], project_map: ProjectMap
) -> Mapping[Path, Sequence[str]]:
    """Return the scopes of each project: of its watched folders, then as the map has it."""
    by_place: dict[Path, list[str]] = defaultdict(list)
    for folder in folders:
        if folder.scope == USER_SCOPE or folder.is_plugins:
            continue
        for place in _list_places(folder.path):
            by_place[place].append(folder.scope)
    for project in project_map.projects:
        by_place[project.folder].append(project.scope)
    return dict(by_place)


def _list_places(path: Path) -> Collection[Path]:
    """Return the folders that may be the project of a watched folder."""
    # A client's folder of skills lies two levels below its project.
    return (path.parent.parent,) if path.parent.name.startswith(".") else (path, path.parent)


def _list_scopes(
    places: Sequence[Path], nested: bool, by_place: Mapping[Path, Sequence[str]]
) -> tuple[str, ...]:
    every = [by_place.get(place, ()) for place in places]
    # Outside of git there is no root that says where a project ends.
    read = every if nested else [scopes for scopes in every if scopes][:1]
    return tuple(dict.fromkeys(scope for scopes in read for scope in scopes))
