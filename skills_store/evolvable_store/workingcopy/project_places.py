"""Find the folders that are projects, and those whose skills are read from a directory.

A project is the folder that holds a client's folder of skills. Git is not run: what a `.git` says
is hostile input, and counts only where the repository that it names says the same of it.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.paths import work_tree
from evolvable_store.workingcopy.discovery import COMMANDS
from evolvable_store.workingcopy.git_objects import GitDamaged, read_bounded

CLIENT_FOLDERS = (
    *(".claude", ".agents", ".codex", ".cursor", ".copilot", ".github", ".qwen", ".factory"),
    *(".opencode", ".gemini", ".kimi-code", ".cline", ".continue"),
)
"""The folders that clients have in a project or at home, each with a folder of skills in it."""

_KINDS = ("skills", "agents", COMMANDS)
_SMALL = 8192
"""Bytes of a file of git with one path that are read."""


def skill_folders(place: Path) -> list[Path]:
    """Return where the clients have their skills in a project or a home directory."""
    return [place / name / "skills" for name in CLIENT_FOLDERS]


def project_of(folder: Path) -> Path | None:
    """Return the project of a client's folder of skills, agents or commands; None for any other."""
    is_clients = folder.parent.name in CLIENT_FOLDERS and folder.name in _KINDS
    return folder.parent.parent if is_clients else None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The folders that may be projects of a directory, the nearest first.

    nested: every project among them is read, as in a work tree of git; else the nearest alone.
    linked: the root of the linked work tree that the directory lies in; the folders are then those
    of the main work tree.
    """

    places: tuple[Path, ...]
    nested: bool
    linked: Path | None = None


def surroundings_of(directory: Path, user: Path | None = None) -> Surroundings:
    """Return the folders around a directory that may be projects: up to the root of its work tree.

    user: the home folder, which is no project, and above which nothing is looked at; symbolic links
    resolved.
    """
    real = Path(os.path.realpath(directory))
    root = work_tree(real)
    main = main_work_tree(root) if root is not None else None
    linked = root if main is not None else None
    if root is not None and main is not None:
        real, root = main / real.relative_to(root), main
    return Surroundings(tuple(_walk_up(real, root, user)), root is not None, linked)


def _walk_up(real: Path, root: Path | None, user: Path | None) -> Iterator[Path]:
    for place in (real, *real.parents):
        # The home folder's skills are the user's, not a project's.
        if place in (user, Path(place.anchor)):
            return
        yield place
        if place == root:
            return


def main_work_tree(root: Path) -> Path | None:
    """Return the main work tree of a linked one, None for any other folder.

    The folder that `.git` names has to lie in the repository that it names, among its work trees,
    and has to name this `.git`: a repository that brings such a file becomes no part of another. A
    bare repository has no main work tree.
    """
    git = os.path.join(root, ".git")
    try:
        if not stat.S_ISREG(os.lstat(git).st_mode):
            return None
        own = _read_named_path(root, git, b"gitdir:")
        common = _read_named_path(own, os.path.join(own, "commondir"))
        back = _read_named_path(own, os.path.join(own, "gitdir"))
        # Both ends have to name each other, else a repository could declare itself a part of
        # another.
        is_listed = os.path.dirname(own) == os.path.join(common, "worktrees")
        main, name = os.path.split(common)
        if not is_listed or back != os.path.realpath(git) or name != ".git" or main == str(root):
            return None
        return Path(main) if os.path.isdir(common) else None
    except (GitDamaged, OSError, ValueError):
        return None


def _read_named_path(beside: "str | Path", file: str, begins: bytes = b"") -> str:
    """Return the path that a file of git holds, absolute and without links.

    beside: the folder that the path is relative to. begins: the text before it. Raise GitDamaged.
    """
    text = read_bounded(Path(file), _SMALL) or b""
    if not text.startswith(begins) or b"\0" in text or not text.strip():
        raise GitDamaged(f"{file} names no folder")
    path = os.fsdecode(text[len(begins) :].strip())
    return os.path.realpath(os.path.join(beside, path))
