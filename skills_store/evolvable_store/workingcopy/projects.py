"""The projects of a library on this machine: the scope of each, and the scopes that are read from a
directory.

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
    """The projects of one library, as they were when they were first looked at.

    user: the home folder, which is no project.
    """

    def __init__(self, store: Store, user: Path | None = None) -> None:
        self._store = store
        self._user = Path(os.path.realpath(user)) if user is not None else None

    @property
    def are_separated(self) -> bool:
        """Whether no two projects have one scope because an earlier version knew them by the names
        of their folders.
        """
        if self._store.read_only or self._map.separated:
            return True
        return all(folder.scope == USER_SCOPE or folder.is_plugins for folder in self._folders)

    def strangers_at(self, directory: Path) -> list[Path]:
        """Return the folders around a directory that may be projects which moved there, the
        outermost first.
        """
        # Nothing can have moved here while every project is in its place.
        if self._store.read_only or all(
            os.path.lexists(project.folder) for project in self._map.projects
        ):
            return []
        places, by_place = surroundings_of(directory, self._user).places, self._by_place
        return [
            place
            for place in reversed(places)
            if place not in by_place and any(map(os.path.isdir, skill_folders(place)))
        ]

    def scopes_at(self, directory: Path) -> tuple[str, ...]:
        """Return the scopes of the projects that are read from a directory, the nearest first.

        None for none.
        """
        around = surroundings_of(directory, self._user)
        return _scopes_along(around.places, around.nested, self._by_place)

    def scopes_of(self, scope: str) -> tuple[str, ...]:
        """Return a scope, and those of the projects around its folder that are read after it."""
        by_place = self._by_place
        for place in (place for place, scopes in by_place.items() if scope in scopes):
            around = surroundings_of(place, self._user)
            return tuple(
                dict.fromkeys((scope, *_scopes_along(around.places, around.nested, by_place)))
            )
        return (scope,)

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
        return _scopes_by_place(self._folders, self._map)


def scopes_by_map(project_map: ProjectMap, directory: Path, user: Path) -> tuple[str, ...]:
    """Return the scopes that a map alone has for a directory, the nearest first.

    user: as for Projects.
    """
    around = surroundings_of(directory, Path(os.path.realpath(user)))
    return _scopes_along(around.places, around.nested, _scopes_by_place((), project_map))


def _scopes_by_place(
    folders: Iterable[WatchedFolder], project_map: ProjectMap
) -> Mapping[Path, Sequence[str]]:
    """Return the scopes of each project: of its watched folders, then as the map has it."""
    found: dict[Path, list[str]] = defaultdict(list)
    for folder in folders:
        for place in (
            _places_of(folder.path) if folder.scope != USER_SCOPE and not folder.is_plugins else ()
        ):
            found[place].append(folder.scope)
    for project in project_map.projects:
        found[project.folder].append(project.scope)
    return dict(found)


def _places_of(path: Path) -> Collection[Path]:
    """Return the folders whose project a watched folder belongs to: any client's lies two levels
    below its project.
    """
    return (path.parent.parent,) if path.parent.name.startswith(".") else (path, path.parent)


def _scopes_along(
    places: Sequence[Path], nested: bool, by_place: Mapping[Path, Sequence[str]]
) -> tuple[str, ...]:
    found = [by_place.get(place, ()) for place in places]
    # Outside of git there is no root that says where a project ends.
    read = found if nested else [scopes for scopes in found if scopes][:1]
    return tuple(dict.fromkeys(scope for scopes in read for scope in scopes))
