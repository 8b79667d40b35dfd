"""Read the files of an earlier commit of a repository, without running git.

The repository is hostile input, as in `git_objects`: every walk is bounded, and a damaged
repository counts as none.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evolvable_store.objects import MAX_FILE
from evolvable_store.paths import path_problem
from evolvable_store.workingcopy.git_objects import GitDamaged, ObjectDatabase, tree_entries
from evolvable_store.workingcopy.git_repository import DAMAGE, Repository, repositories_around

# Each commit is a read and an inflate, so this bounds the time of one look.
MAX_COMMITS = 2_000
"""Commits that are read, by the first parent."""

_MAX_DEPTH = 40  # folders below one another
_DIRECTORY, _LINK = 0o040000, 0o120000
_TYPE = 0o170000  # the part of a mode that says file, folder or link
# Twelve digits of seconds are enough; a year beyond 9999 raises in datetime and counts as damage.
_COMMITTER = re.compile(rb"^committer [^\n]* (\d{1,12}) [+-]\d{4}$", re.MULTILINE)


class TreeTooLarge(Exception):
    """A commit has more files or bytes than were asked for."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: its id in hexadecimal digits, its first parent's, and when it was made."""

    id: str
    parent: str
    at: datetime


def recent_commits(folder: Path, limit: int = MAX_COMMITS) -> Iterator[Commit]:
    """Yield the commits of HEAD and its first parents in the repository around a folder.

    The newest comes first. Ends where there is no repository, where it cannot be read, and after
    `limit` commits.
    """
    try:
        repository, objects, _ = _open(folder)
        now = repository.head_commit()
        for _ in range(limit):
            if now is None:
                return
            # A commit that does not exist, as in a shallow clone, ends the walk as damage.
            data = objects.read(now, "commit")
            # The message may contain lines that look like fields.
            head = data.partition(b"\n\n")[0]
            committer = _COMMITTER.search(head)
            parents = [
                line[7:].decode("ascii")
                for line in head.split(b"\n")
                if line.startswith(b"parent ")
            ]
            at = datetime.fromtimestamp(int(committer[1]) if committer else 0, UTC)
            yield Commit(now.hex(), parents[0] if parents else "", at)
            now = bytes.fromhex(parents[0]) if parents else None
    except DAMAGE:
        return


def first_commit(folder: Path, limit: int = MAX_COMMITS) -> str:
    """Return the commit without a parent that HEAD leads to by first parents.

    '' where it is not among the first `limit` commits.
    """
    return next((commit.id for commit in recent_commits(folder, limit) if not commit.parent), "")


def holds_commit(folder: Path, commit: str) -> bool:
    """Return whether the repository around a folder has a commit."""
    try:
        return bool(_open(folder)[1].read(bytes.fromhex(commit), "commit"))
    except DAMAGE:
        return False


def commit_files(
    folder: Path, commit: str, max_files: int, max_bytes: int
) -> dict[str, bytes] | None:
    """Return the files of a commit by their paths below a folder of its repository.

    None where the commit cannot be read. Links, submodules and files whose paths no resource may
    have are left out. Raises TreeTooLarge.
    """
    try:
        repository, objects, id_size = _open(folder)
        inside = folder.resolve().relative_to(repository.root)
        tree = _find_tree(objects, bytes.fromhex(commit), id_size, inside)
        files: dict[str, bytes] = {}
        _collect(objects, tree, id_size, "", files, [max_files, max_bytes])
        return files
    except DAMAGE:
        return None


def _open(folder: Path) -> tuple[Repository, ObjectDatabase, int]:
    around = repositories_around(folder.resolve())
    if not around:
        raise GitDamaged("no repository")
    return around[0], *around[0].open_objects()


def _find_tree(objects: ObjectDatabase, commit: bytes, id_size: int, place: Path) -> bytes:
    first = objects.read(commit, "commit").partition(b"\n")[0]
    if not first.startswith(b"tree "):
        raise GitDamaged("a commit without a tree")
    tree = bytes.fromhex(first[5:].decode("ascii", "replace"))
    for part in place.parts:
        mode, tree = tree_entries(objects.read(tree, "tree"), id_size).get(
            os.fsencode(part), (0, b"")
        )
        # The folder may be newer than the commit, or a submodule.
        if mode & _TYPE != _DIRECTORY:
            raise GitDamaged("a folder that the commit does not have")
    return tree


def _collect(
    objects: ObjectDatabase,
    tree: bytes,
    id_size: int,
    below: str,
    files: dict[str, bytes],
    left: list[int],
) -> None:
    """Add the files of a tree to `files`.

    below: the path of the tree, '' or with a slash at its end. left: how many more files and bytes
    may be read; a list, since all levels of the recursion share it.
    """
    if below.count("/") > _MAX_DEPTH:
        raise TreeTooLarge
    for name, (mode, identity) in tree_entries(objects.read(tree, "tree"), id_size).items():
        path = below + os.fsdecode(name)
        if mode & _TYPE == _DIRECTORY:
            _collect(objects, identity, id_size, f"{path}/", files, left)
        # 0o160000 is a submodule: a commit of another repository.
        elif mode & _TYPE not in (_LINK, 0o160000) and not path_problem(path):
            data = objects.read(identity, "blob")
            left[0], left[1] = left[0] - 1, left[1] - len(data)
            if min(left) < 0 or len(data) > MAX_FILE:
                raise TreeTooLarge
            files[path] = data
