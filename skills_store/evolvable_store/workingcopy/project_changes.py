"""Enter, rename and move the projects of a library.

Also separate projects that an earlier version took for one.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evolvable_store.paths import ADDRESS_FILE
from evolvable_store.resource import USER_SCOPE, slugify
from evolvable_store.storage import WatchedFolder
from evolvable_store.store import Store
from evolvable_store.workingcopy.folder_scopes import ScopeChange, change_scope
from evolvable_store.workingcopy.git_history import MAX_COMMITS, first_commit, holds_commit
from evolvable_store.workingcopy.project_map import (
    FolderMarks,
    Project,
    ProjectMap,
    change_projects,
    commit_mark,
    free_scope,
    inode_marks,
    read_projects,
)
from evolvable_store.workingcopy.project_places import project_of, surroundings_of
from evolvable_store.workingcopy.shared_marks import shared_marks


def is_shared(store: Store) -> bool:
    """Return whether other people, or other machines, may have the library too."""
    return (store.home / ADDRESS_FILE).exists()


def scope_name(place: Path) -> str:
    """Return the scope that a project's folder gives: its name as a slug, or 'project' for none."""
    name = slugify(place.name)
    return name if name and name != USER_SCOPE else "project"


def next_scope(store: Store | None, place: Path, project_map: ProjectMap) -> str:
    """Return a scope for a new project: the name of its folder, with a number where it is taken.

    store: None for a library that is still to be made. project_map: the projects of its home.
    """
    taken_scopes = {project.scope for project in project_map.projects}
    if store is not None:
        # Folders that an earlier version watched may have no project in the map.
        taken_scopes |= {folder.scope for folder in store.backend.bindings.folders()}
        if is_shared(store):
            # Another member may have given this name to another project: the person decides
            # whether it is the same.
            taken_scopes |= {head.scope for head in store.heads()}
    return free_scope(scope_name(place), taken_scopes)


def enter_project(store: Store, place: Path, scope: str) -> None:
    """Store the scope of a project and the marks of its folder. Raise LibraryBusy, OSError."""
    project = Project(place, scope, _read_marks(place))
    change_projects(
        store.home, lambda project_map: replace(project_map.with_projects(project), separated=True)
    )
    if is_shared(store):
        store.backend.project_marks.add(scope, shared_marks(place))


def likely_scopes(store: Store, place: Path) -> list[str]:
    """Return the scopes of a shared library that may be this project on another machine.

    The likeliest comes first.
    """
    return store.backend.project_marks.scopes_with(shared_marks(place)) if is_shared(store) else []


def refresh_marks(store: Store, limit: int = MAX_COMMITS) -> None:
    """Update the marks of the projects: a repository or a folder may be new.

    limit: commits of each that are read to find the first one. Raises LibraryBusy, OSError.
    """
    projects = [_refresh(project, limit) for project in read_projects(store.home).projects]
    changed = [project for project in projects if project is not None]
    # The map is written only when a mark changed: this runs at every start.
    if not changed or store.read_only:
        return

    def apply_marks(project_map: ProjectMap) -> ProjectMap:
        # Another process may have removed a project since.
        return project_map.with_projects(
            *(project for project in changed if project_map.scope_of(project.folder))
        )

    change_projects(store.home, apply_marks)
    if is_shared(store):
        for updated in changed:
            store.backend.project_marks.add(updated.scope, shared_marks(updated.folder))


def _refresh(project: Project, limit: int) -> Project | None:
    now = inode_marks(project.folder)
    # The first commit never changes, so it is looked for once.
    commit = project.marks.commit or commit_mark(
        project.folder, first_commit(project.folder, limit)
    )
    marks = replace(now, commit=commit)
    return replace(project, marks=marks) if now.inode and marks != project.marks else None


def rename_project(store: Store, place: Path, scope: str) -> ScopeChange | None:
    """Give a project and its resources another scope; return None where it has no folder of another
    scope.

    Raises as change_scope.
    """
    folders = [
        folder for folder in store.backend.bindings.folders() if project_of(folder.path) == place
    ]
    # Folders of the user's scope stay the user's.
    moving = [folder for folder in folders if folder.scope not in (scope, USER_SCOPE)]
    return change_scope(store, moving, scope, keep=is_shared(store)) if moving else None


def move_project(store: Store, place: Path) -> bool:
    """Note that a project moved to this folder, with the projects below it.

    Return whether there was such a project. Raises AlreadyExists, LibraryBusy, OSError.
    """
    projects = read_projects(store.home)
    moved = projects.find_moved(place, lambda commit: holds_commit(place, commit))
    if moved is None:
        return False
    old = moved.folder

    def apply_move(project_map: ProjectMap) -> ProjectMap:
        inside = [project for project in project_map.projects if project.folder.is_relative_to(old)]
        others = tuple(project for project in project_map.projects if project not in inside)
        arrived = [
            _relocate(project, place / project.folder.relative_to(old)) for project in inside
        ]
        return replace(project_map, projects=others).with_projects(*arrived)

    # First the folders, then the map: after a crash the project is still found as moved.
    store.backend.bindings.move_folders(old, place)
    change_projects(store.home, apply_move)
    return True


def _relocate(project: Project, place: Path) -> Project:
    marks = replace(inode_marks(place), commit=project.marks.commit)
    return replace(project, folder=place, marks=marks)


def _read_marks(place: Path) -> FolderMarks:
    return replace(inode_marks(place), commit=commit_mark(place, first_commit(place)))


def main_folder(folder: Path) -> Path | None:
    """Return the folder of the main work tree that corresponds to one of a linked work tree.

    None for a folder in no linked work tree.
    """
    around = surroundings_of(folder)
    return around.places[0] if around.linked is not None and around.places else None


def separate_projects(store: Store) -> None:
    """Make each folder with the scope of another project a project of its own, once for a library.

    Earlier versions knew a project by the name of its folder. The first one keeps the scope.
    Folders of linked work trees are not watched any more. The changes become a notice for the
    person. A library that can only be read is left as it is. Raises LibraryBusy, OSError.
    """

    def separate(project_map: ProjectMap) -> ProjectMap:
        return project_map if project_map.separated else _separate(store, project_map)

    if not store.read_only:
        change_projects(store.home, separate)


def _separate(store: Store, project_map: ProjectMap) -> ProjectMap:
    done, by_place = list[str](), defaultdict[Path, list[WatchedFolder]](list)
    for folder in store.backend.bindings.folders():
        place, main = project_of(folder.path), main_folder(folder.path)
        if place is None or folder.scope == USER_SCOPE:
            continue
        if main is None:
            by_place[place].append(folder)
        else:
            store.backend.bindings.drop_folder(folder)
            done.append(
                f"{folder.path} lies in a linked work tree and is not watched any more, {main} "
                "counts there"
            )
    for place, folders in by_place.items():
        scope = folders[0].scope
        is_taken = any(project.scope == scope for project in project_map.projects)
        if is_taken and scope == scope_name(place):
            new_scope = next_scope(store, place, project_map)
            changed = change_scope(store, folders, new_scope, keep=is_shared(store))
            done.append(
                f"{place} is the project {changed.scope} ({len(changed.names)} of its resources)"
            )
            scope = changed.scope
        project_map = project_map.with_projects(Project(place, scope, _read_marks(place)))
        if is_shared(store):
            store.backend.project_marks.add(scope, shared_marks(place))
    return replace(project_map, separated=True, notices=(*project_map.notices, *_make_notice(done)))


def _make_notice(done: Sequence[str]) -> tuple[str, ...]:
    if not done:
        return ()
    hint = "`evolvable init --scope NAME FOLDER` gives a project another name."
    notice = (
        "A project is known by its folder now, and no longer by the folder's name: "
        f"{'; '.join(done)}. {hint}"
    )
    return (notice,)
