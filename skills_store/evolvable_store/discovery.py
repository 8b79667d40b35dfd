"""Finds the directories below a folder that hold resources, and the single files that are one.

An agent is a single file NAME.md, as Claude Code keeps it, or a directory with an AGENT.md like any other resource.
Never raises for what lies there.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from evolvable_store.folder import is_ignored
from evolvable_store.resource import Kind, main_file

SINGLE_SUFFIX = ".md"

MAX_DEPTH = 4
"""How deep below the folder resources are looked for."""


LINK = "it is a symbolic link, and those are not followed; watch the folder that it points into"
"""Why a symbolic link to a resource is left out."""


@dataclass(slots=True)
class Discovered:
    """Directories with a resource, relative to the folder with `/`; and those left out, each with the reason.

    A single file that is a resource counts as a directory.
    """

    directories: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def discover(folder: str, kind: Kind, prefix: str = "") -> Discovered:
    """Returns what is found below `folder`, or below `prefix` in it (which ends with `/`).

    A directory that holds a resource is not searched further. Hidden and ignored names are passed over; a symbolic
    link is not followed, and left out when it leads to a resource.
    """
    found = Discovered()
    _search(folder, kind, prefix, found)
    return found


def is_single(kind: Kind, directory: str) -> bool:
    """Returns whether the resource at this path is a single file and no directory, by its name."""
    return kind is Kind.AGENT and directory.endswith(SINGLE_SUFFIX)


def single_name(kind: Kind, name: str) -> str:
    """Returns what a new resource's directory is called; of an agent, its file."""
    return f"{name}{SINGLE_SUFFIX}" if kind is Kind.AGENT else name


def holds_main(place: str, kind: Kind) -> bool:
    """Returns whether a directory has the main file of a resource of this kind, in any case of its letters.

    A single file has to begin with frontmatter: beside agents there may be a README.md.
    """
    if is_single(kind, place):
        return _has_frontmatter(place)
    main = main_file(kind, os.path.basename(place))
    if os.path.exists(os.path.join(place, main)):
        return True
    try:
        return any(name.casefold() == main.casefold() for name in os.listdir(place))
    except OSError:
        return False


def _search(folder: str, kind: Kind, prefix: str, found: Discovered) -> None:
    for entry in _entries(os.path.join(folder, prefix), kind):
        directory = f"{prefix}{entry.name}"
        if entry.is_symlink():
            if holds_main(entry.path, kind):
                found.left_out[directory] = LINK
        elif holds_main(entry.path, kind):
            if _is_text(entry.name):
                found.directories.append(directory)
            else:
                found.left_out[ascii(directory)] = "its name is not Unicode"
        elif directory.count("/") + 1 < MAX_DEPTH and _is_text(entry.name) and not is_single(kind, entry.name):
            _search(folder, kind, f"{directory}/", found)


def _entries(place: str, kind: Kind) -> Iterator["os.DirEntry[str]"]:
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        hidden = entry.name.startswith(".") or is_ignored(entry.name)
        if not hidden and (is_single(kind, entry.name) or os.path.isdir(entry.path)):
            yield entry


def _has_frontmatter(path: str) -> bool:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False  # nobody may wait here for the other end of a pipe
        with open(path, "rb") as stream:
            return stream.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"---")
    except OSError:
        return False


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
