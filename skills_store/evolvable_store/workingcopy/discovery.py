"""Find the directories below a folder that hold resources, and the single files that are one.

An agent is a single file NAME.md, as Claude Code keeps it, or a directory with an AGENT.md like any
other resource. So is a prompt: Claude Code's custom commands are such files. No content of a folder
raises an error.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from evolvable_store.paths import is_ignored
from evolvable_store.regular_files import regular_file
from evolvable_store.resource import Kind, main_file
from evolvable_store.validation import is_blank

SINGLE_SUFFIX = ".md"

SINGLE_KINDS = (Kind.AGENT, Kind.PROMPT)
"""The kinds that clients keep in single files."""

COMMANDS = "commands"
"""The folder whose files NAME.md are commands to Claude Code, with or without frontmatter."""

EMPTY_FILE = "it is empty"
"""Why an empty single file is left out: its text does not tell whether it was a resource."""

# An editor or a crash that empties a file seldom leaves more; a larger file is no small agent.
_EMPTIED = 65_536
"""Bytes of the largest file that is read to find out whether it has only NUL bytes."""

# Bounds the walk that each sync makes of a folder; clients look one or two levels deep.
MAX_DEPTH = 4
"""How deep below the folder resources are looked for."""

_LINK = "a symbolic link"

LOOKS = 20
"""Entries that a count looks at for each resource that it wants: other trees are large too."""


@dataclass(slots=True)
class DiscoveredResources:
    """The directories with a resource below a folder, relative to it with `/`.

    A single file that is a resource counts as a directory. links: symbolic links to resources, to
    directories that hold some, and to nothing. left_out: other entries, each with the reason.
    """

    directories: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def discover(folder: str, kind: Kind, prefix: str = "") -> DiscoveredResources:
    """Return the resources below `folder`, or below `prefix` in it (which ends with `/`).

    A directory that holds a resource is not searched further. Hidden and ignored names are passed
    over; no symbolic link is followed.
    """
    resources = DiscoveredResources()
    for directory, why in _search(folder, kind, prefix):
        if why == "":
            resources.directories.append(directory)
        elif why == _LINK:
            resources.links.append(directory)
        elif why:
            resources.left_out[directory] = why
    return resources


def count_resources(folder: Path, kind: Kind, most: int) -> int:
    """Return how many resources `discover` finds, at most `most`.

    The search ends after LOOKS times as many entries.
    """
    entries = islice(_search(os.fspath(folder), kind, ""), LOOKS * most)
    resources = (directory for directory, why in entries if why == "")
    return sum(1 for _ in islice(resources, most))


def is_single(kind: Kind, directory: str) -> bool:
    """Return whether the resource at this path is a single file and no directory, by its name."""
    return kind in SINGLE_KINDS and directory.endswith(SINGLE_SUFFIX)


def single_name(kind: Kind, name: str, folder: Path) -> str:
    """Return the name of a new resource's directory, or of its file for an agent or command."""
    single = kind is Kind.AGENT or kind is Kind.PROMPT and COMMANDS in folder.parts
    return f"{name}{SINGLE_SUFFIX}" if single else name


def holds_main(place: str, kind: Kind) -> bool:
    """Return whether a directory has the main file of a resource, in upper or lower case.

    A single file has to begin with frontmatter: beside agents there may be a README.md. A command
    may do without.
    """
    if is_single(kind, place):
        if kind is Kind.PROMPT and COMMANDS in Path(place).parts:
            return os.path.isfile(place)
        return _has_frontmatter(place)
    # First the exact name, which costs one call; a wrong case is looked for afterwards, and
    # reported.
    main = main_file(kind, os.path.basename(place))
    if os.path.exists(os.path.join(place, main)):
        return True
    try:
        return any(name.casefold() == main.casefold() for name in os.listdir(place))
    except OSError:
        return False


def is_emptied(entry: "os.DirEntry[str]") -> bool:
    """Return whether a single file is empty, or has only white space and NUL bytes."""
    try:
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _EMPTIED:
            return False
        with open(entry.path, "rb", opener=regular_file) as stream:
            return is_blank(stream.read(_EMPTIED))
    except OSError:
        return False


def _search(folder: str, kind: Kind, prefix: str) -> Iterator[tuple[str, str | None]]:
    """Yield each entry, and why it is left out: '' for a resource, None for no resource."""
    for entry in _list_entries(os.path.join(folder, prefix), kind):
        directory, is_text = f"{prefix}{entry.name}", _is_text(entry.name)
        # Before the test for frontmatter: an emptied agent must not look deleted.
        if is_single(kind, entry.name) and is_emptied(entry):
            yield (directory if is_text else ascii(directory)), EMPTY_FILE
            continue
        if entry.is_symlink():
            yield directory, _LINK if _is_linked_resource(entry, kind) else None
        elif holds_main(entry.path, kind):
            yield (directory, "") if is_text else (ascii(directory), "its name is not Unicode")
        else:
            yield directory, None
            is_searched = is_text and not is_single(kind, entry.name)
            if is_searched and directory.count("/") + 1 < MAX_DEPTH:
                yield from _search(folder, kind, f"{directory}/")


def _is_linked_resource(entry: "os.DirEntry[str]", kind: Kind) -> bool:
    """Return whether a link may be meant as a resource or as a folder of some.

    A dangling link once was one.
    """
    # A link to nothing, such as one into a folder that is not mounted now.
    if not os.path.exists(entry.path):
        return is_single(kind, entry.name) or "." not in entry.name
    return holds_main(entry.path, kind) or count_resources(Path(entry.path), kind, 1) > 0


def _list_entries(place: str, kind: Kind) -> Iterator["os.DirEntry[str]"]:
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if is_hidden(entry.name):
            continue
        # Files without the suffix are no resource; links to nothing are reported.
        is_other_file = os.path.exists(entry.path) and not os.path.isdir(entry.path)
        if is_single(kind, entry.name) or not is_other_file:
            yield entry


def is_hidden(name: str) -> bool:
    """Return whether an entry of this name is passed over."""
    return name.startswith(".") or is_ignored(name)


def _has_frontmatter(path: str) -> bool:
    try:
        with open(path, "rb", opener=regular_file) as stream:
            # Enough for a byte order mark and some blank lines.
            return stream.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"---")
    except OSError:
        return False


def _is_text(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
