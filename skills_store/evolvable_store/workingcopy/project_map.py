"""The projects of this machine: which scope each folder has, kept in the library's home.

A scope is a name for show; a project is known by its folder's real path. The file leaves the home
in a backup only.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from evolvable_store.errors import InvalidRef
from evolvable_store.paths import work_tree
from evolvable_store.regular_files import write_private
from evolvable_store.resource import MAX_NAME, USER_SCOPE, check_scope
from evolvable_store.workingcopy.folder_lock import exclusive
from evolvable_store.workingcopy.git_objects import GitDamaged, read_bounded
from evolvable_store.workingcopy.project_places import skill_folders

PROJECTS_FILE = "projects.json"
# Room for some ten thousand projects.
_LIMIT = 4 * 2**20
"""Bytes of the file that are read."""

# A change is a read and a write of one small file; longer means that a process hangs.
_LOCK_SECONDS = 10
"""How long a change waits for that of another process."""


@dataclass(frozen=True, slots=True)
class FolderMarks:
    """The marks by which a project's folder is recognised after it moved.

    They are '' or () where they are not known. inode: of the folder, with its device. skills: the
    inodes of its folders of skills. commit: the first one of its repository, with the path of the
    folder in it.
    """

    inode: str = ""
    skills: tuple[str, ...] = ()
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """A project of this machine."""

    folder: Path
    scope: str
    marks: FolderMarks = FolderMarks()


@dataclass(frozen=True, slots=True)
class ProjectMap:
    """The projects of one home.

    separated: whether its folders were searched for projects that share a scope. notices: texts
    about changes to them, for the person.
    """

    projects: tuple[Project, ...] = ()
    separated: bool = False
    notices: tuple[str, ...] = ()

    def scope_of(self, folder: Path) -> str | None:
        """Return the scope of a project, None for a folder that is none."""
        return next((project.scope for project in self.projects if project.folder == folder), None)

    def with_projects(self, *changed: Project) -> "ProjectMap":
        """Return the map with these projects, each in place of the one that its folder had."""
        folders = {project.folder for project in changed}
        remaining = [project for project in self.projects if project.folder not in folders]
        return replace(self, projects=(*remaining, *changed))

    def find_moved(self, place: Path, holds: Callable[[str], bool]) -> Project | None:
        """Return the project that moved into this folder, None for a folder that is new.

        holds: tells whether the repository around the place has a commit.
        """
        gone = [
            project
            for project in self.projects
            if project.folder != place and not os.path.lexists(project.folder)
        ]
        here = inode_marks(place) if gone else FolderMarks()
        candidates = [project for project in gone if _is_same(project, place, here, holds)]
        # Of two candidates nobody can say which one it is.
        return candidates[0] if len(candidates) == 1 else None


def _is_same(gone: Project, place: Path, here: FolderMarks, holds: Callable[[str], bool]) -> bool:
    """Return whether a project whose folder is gone lies in a place with these marks.

    A file system gives the inode of a deleted folder to the next one, so one inode alone is no
    proof. Where the folders above the project are gone too, its disk may not be mounted, and
    another copy of the repository is not the project.
    """
    was = gone.marks
    commit, _, inside = was.commit.partition(":")
    one_commit = bool(commit) and was.commit == commit_mark(place, commit) and holds(commit)
    # It lies in another repository than the project did.
    if commit and not one_commit and work_tree(place) is not None:
        return False
    if was.inode and was.inode == here.inode:
        return one_commit or bool(set(was.skills) & set(here.skills))
    # The folder that held the repository is there, so a disk that is not mounted is not the reason.
    above = gone.folder.parents[len(Path(inside).parts) :]
    return one_commit and bool(above) and above[0].is_dir()


def free_scope(name: str, taken_scopes: Iterable[str]) -> str:
    """Return the name as a scope; with the first free number, from 2 on, where it is taken."""
    used = {*taken_scopes, USER_SCOPE}
    if name not in used:
        return name
    numbered = (
        f"{name[: MAX_NAME - len(end)].rstrip('-')}{end}" for end in (f"-{n}" for n in count(2))
    )
    return next(candidate for candidate in numbered if candidate not in used)


def inode_marks(place: Path) -> FolderMarks:
    """Return the marks that the file system gives a folder: inodes."""
    numbers = [_read_inode(folder) for folder in skill_folders(place)]
    return FolderMarks(_read_inode(place), tuple(number for number in numbers if number))


def commit_mark(place: Path, first_commit: str) -> str:
    """Return the mark of a folder by a first commit, with its path in the work tree.

    '' without a commit or a work tree.
    """
    root = work_tree(place)
    if root is None or not first_commit:
        return ""
    return f"{first_commit}:{place.relative_to(root).as_posix()}"


def _read_inode(place: Path) -> str:
    try:
        status = os.lstat(place)
    except OSError:
        return ""
    return f"{status.st_dev}-{status.st_ino}" if status.st_ino else ""


def read_projects(home: Path) -> ProjectMap:
    """Return the projects of a home, without damaged entries."""
    try:
        data = json.loads(read_bounded(home / PROJECTS_FILE, _LIMIT) or b"{}")
    except (GitDamaged, ValueError, RecursionError):
        return ProjectMap()
    if not isinstance(data, dict):
        return ProjectMap()
    return ProjectMap(
        tuple(_parse_projects(data.get("projects"))),
        data.get("separated") is True,
        _read_texts(data.get("notices")),
    )


def _parse_projects(rows: object) -> Iterator[Project]:
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict):
            continue
        folder, scope, commit = (row.get(key) for key in ("folder", "scope", "commit"))
        if not isinstance(folder, str) or not isinstance(scope, str):
            continue
        if "\0" in folder or not os.path.isabs(folder):
            continue
        with contextlib.suppress(InvalidRef):
            inode = row.get("inode")
            marks = FolderMarks(
                inode if isinstance(inode, str) else "",
                _read_texts(row.get("skills")),
                commit if isinstance(commit, str) else "",
            )
            yield Project(Path(folder), check_scope(scope), marks)


def _read_texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list):
        return ()
    return tuple(value for value in values if isinstance(value, str))


def change_projects(home: Path, change: Callable[[ProjectMap], ProjectMap]) -> ProjectMap:
    """Replace the projects of a home by the result of a function, and return them.

    Raise LibraryBusy, OSError.
    """
    locks = home / "locks"
    locks.mkdir(mode=0o700, exist_ok=True)
    # Guards read, change and write together: two processes would otherwise lose one of the changes.
    with exclusive(locks / "projects.lock", _LOCK_SECONDS, "the projects"):
        before = read_projects(home)
        after = change(before)
        if after != before:
            _write(home / PROJECTS_FILE, after)
    return after


def copy_projects(source: Path, target: Path) -> None:
    """Write the projects of one home into another folder that has none, as for a backup.

    Raise OSError.
    """
    project_map = read_projects(source)
    if project_map.projects:
        _write(target / PROJECTS_FILE, replace(project_map, notices=()))


def add_projects(home: Path, source: Path) -> None:
    """Add those projects of another home whose folders are not known in this one.

    Raise LibraryBusy, OSError.
    """
    theirs = read_projects(source)

    def add(project_map: ProjectMap) -> ProjectMap:
        # Those of this home replace theirs of the same folder.
        both = theirs.with_projects(*project_map.projects)
        return replace(both, notices=project_map.notices)

    if theirs.projects:
        change_projects(home, add)


def _write(path: Path, projects: ProjectMap) -> None:
    data: dict[str, Any] = {
        "projects": [_format_project(project) for project in projects.projects],
        "separated": projects.separated,
        "notices": list(projects.notices),
    }
    write_private(path, json.dumps(data, indent=1) + "\n")


def _format_project(project: Project) -> dict[str, Any]:
    marks = {
        "inode": project.marks.inode,
        "skills": list(project.marks.skills),
        "commit": project.marks.commit,
    }
    return {
        "folder": str(project.folder),
        "scope": project.scope,
        **{key: value for key, value in marks.items() if value},
    }


def take_notices(home: Path) -> Sequence[str]:
    """Return the notices about projects for the person, and delete them."""
    notices = read_projects(home).notices
    # Two processes can both read them; then the person sees them twice, and never not at all.
    if notices:
        change_projects(home, lambda projects: replace(projects, notices=()))
    return notices
