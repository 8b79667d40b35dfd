"""Symbolic links directly in a watched folder: which are followed, and why another one is not.

People, and installers of skills, keep one copy of a skill and link it into the folders of several
clients. A link that leads to a resource of a watched folder is that resource: its edits are seen
there, and it is written there. So nothing is ever read or written through the link itself, even in
a repository.
"""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from evolvable_store.paths import work_tree
from evolvable_store.resource import USER_SCOPE
from evolvable_store.storage import WatchedFolder
from evolvable_store.workingcopy.discovery import MAX_DEPTH, holds_main, is_hidden, is_single
from evolvable_store.workingcopy.openat import open_real

LINK = "it is a symbolic link"
"""How each reason begins for which a link is not followed."""

_INSTEAD = "put the directory itself there instead"


def link_problem(folder: WatchedFolder, directory: str, folders: Sequence[WatchedFolder]) -> str:
    """Return why a symbolic link in a watched folder is not followed, '' when it is.

    It is followed when it lies directly in its folder and leads to a resource of a watched folder.
    That folder has the same kind, and the same scope or the user's. Other links may lie on the way.
    folders: all that are watched.
    """
    link = folder.path / directory
    target = target_of(link)
    if target is None:
        return _describe_dangling_link(link, folders)
    # Discovery follows no link deeper down.
    if "/" in directory:
        return (
            f"{LINK} to {target} below a directory of the folder; only a link directly in the "
            "folder is followed"
        )
    single = is_single(folder.kind, directory)
    # Watched folders never lie in one another, so there is one at most.
    other = next((watched for watched in folders if target.is_relative_to(watched.path)), None)
    is_resource = holds_main(str(target), folder.kind)
    # A link to a folder around watched folders adds nothing: its resources are seen there.
    if other is None:
        holds_watched = any(watched.path.is_relative_to(target) for watched in folders)
        if holds_watched and not is_resource:
            return ""
        return _describe_unwatched_target(folder, link, target, folders)
    if other.kind is not folder.kind or other.scope not in (folder.scope, USER_SCOPE):
        return (
            f"{LINK} to {target}, in the folder of {other.kind}s of the scope {other.scope}; "
            f"{_INSTEAD}"
        )
    # A directory of resources, each of which belongs to that folder.
    if not is_resource:
        return ""
    has_form = target != other.path and single == is_single(folder.kind, target.name)
    if not has_form or not _is_resource_of(other, target) or not _leads_to(link, target, single):
        return f"{LINK} to {target}, which is no {folder.kind} of {other.path}; {_INSTEAD}"
    return ""


def target_of(link: Path) -> Path | None:
    """Return the real path that a link leads to; None where it leads nowhere."""
    try:
        return Path(os.path.realpath(link, strict=True))
    except (OSError, ValueError):
        return None


def _describe_dangling_link(link: Path, folders: Sequence[WatchedFolder]) -> str:
    """Return why a link that leads to nothing is not followed, '' when it is.

    It is followed when it leads below a watched folder, which may have had the resource once.
    """
    place = link
    try:
        place = Path(os.path.realpath(link))
        os.stat(link)
    except FileNotFoundError:
        if any(place != folder.path and place.is_relative_to(folder.path) for folder in folders):
            return ""
        return f"{LINK} to {place}, where nothing is; remove it, or put the directory there"
    except (OSError, ValueError) as error:
        is_circle = getattr(error, "errno", 0) == errno.ELOOP
        why = "in a circle" if is_circle else "to a place that cannot be read"
        return f"{LINK} that leads {why}; {_INSTEAD}"
    return f"{LINK} that changes just now; it is looked at again"


def _describe_unwatched_target(
    folder: WatchedFolder, link: Path, target: Path, folders: Sequence[WatchedFolder]
) -> str:
    """Return why a link out of all watched folders is not followed, and the next step."""
    is_resource = holds_main(str(target), folder.kind)
    place = target.parent if is_resource else target
    tree = work_tree(folder.path)
    leaves = tree is not None and not target.is_relative_to(tree)
    where = f"{LINK} to {target}"
    if leaves:
        where = f"{LINK} that leads out of the repository {tree}, to {target}"
    if not place.is_dir():  # a command without frontmatter, which is one by its folder alone
        return f"{where}, which is not watched; put the file itself there instead"
    if not _can_be_taken_in(place, folder, folders):
        return f"{where}, which is not watched; {_INSTEAD}"
    kind = "" if folder.kind == "skill" else f" --kind {folder.kind}"
    names_scope = work_tree(place) or folder.scope != USER_SCOPE
    scope = f" --scope {USER_SCOPE if leaves else folder.scope}" if names_scope else ""
    condition = "if that folder is yours, " if leaves else ""
    return (
        f"{where}, which is not watched; {condition}`evolvable init{kind}{scope} {place}` "
        "takes it in"
    )


def _can_be_taken_in(place: Path, folder: WatchedFolder, folders: Sequence[WatchedFolder]) -> bool:
    """Return whether `evolvable init` accepts this place."""
    overlaps = any(
        place.is_relative_to(watched.path) or watched.path.is_relative_to(place)
        for watched in folders
    )
    is_excluded = ".git" in place.parts or place == Path(place.anchor)
    return not overlaps and not is_excluded and not holds_main(str(place), folder.kind)


def _is_resource_of(folder: WatchedFolder, place: Path) -> bool:
    """Return whether `discover` finds a resource at this place below the folder."""
    *groups, last = place.relative_to(folder.path).parts
    if len(groups) >= MAX_DEPTH or any(is_hidden(name) for name in (*groups, last)):
        return False
    if not holds_main(str(place), folder.kind):
        return False
    above = [folder.path.joinpath(*groups[:depth]) for depth in range(1, len(groups) + 1)]
    return not any(holds_main(str(group), folder.kind) for group in above)


def _leads_to(link: Path, target: Path, single: bool) -> bool:
    """Return whether the link leads to the file or directory at `target`.

    single: whether that is a file.
    """
    try:
        with open_real(target.parent) as parent:
            own = (parent / target.name).lstat()
        through_link = os.stat(link)
    except (OSError, ValueError):
        return False
    # Opened without links on the way, and the same inode as through the link.
    has_type = stat.S_ISREG if single else stat.S_ISDIR
    return has_type(own.st_mode) and os.path.samestat(own, through_link)
