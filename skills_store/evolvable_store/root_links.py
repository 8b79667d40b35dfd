"""The one symbolic link in a watched folder that is followed: from one folder of the person's own into another.

People keep one copy of a skill and link it into the folders of several clients. Such a link is the other folder's
resource: its edits are seen there, and it is written there, so nothing is ever written through the link itself.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from evolvable_store.bindings import Folder
from evolvable_store.discovery import LINK, is_single
from evolvable_store.openat import is_link
from evolvable_store.resource import USER_SCOPE


def link_problem(folder: Folder, directory: str, folders: Sequence[Folder]) -> str:
    """Return why a symbolic link in a watched folder is not followed; '' when it is another folder's resource.

    It is when both folders are of the user's scope and of one kind, neither lies in a repository, and link and target
    are direct children of them. folders: all that are watched.
    """
    if "/" in directory or not _is_own(folder):
        return LINK
    target = _target(folder.path / directory)
    if target is None or target.parent == folder.path:
        return LINK
    other = next((other for other in folders if other.path == target.parent), None)
    if other is None:
        return f"it is a symbolic link to {target}, which is not watched; `evolvable init {target.parent}` takes it in"
    single = is_single(folder.kind, target.name)
    right = other.kind is folder.kind and _is_own(other) and single == is_single(folder.kind, directory)
    return "" if right and _is_plain(target, single) else LINK


def _is_own(folder: Folder) -> bool:
    """Return whether a person took the folder in for every project, and no repository brings its content."""
    above = (folder.path, *folder.path.parents)
    return folder.scope == USER_SCOPE and not any(os.path.lexists(place / ".git") for place in above)


def _target(link: Path) -> Path | None:
    """Return where a link leads, its own last step excepted; None where that cannot be told."""
    try:
        led = link.parent / os.readlink(link)
        return Path(os.path.realpath(led.parent)) / led.name if led.name not in ("", ".", "..") else None
    except (OSError, ValueError):
        return None


def _is_plain(target: Path, single: bool) -> bool:
    try:
        status = os.lstat(target)
    except OSError:
        return False
    return not is_link(status) and (stat.S_ISREG if single else stat.S_ISDIR)(status.st_mode)
