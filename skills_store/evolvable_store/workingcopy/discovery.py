"""Finds the directories below a folder that hold resources, and the single files that are one.

An agent is a single file NAME.md, as Claude Code keeps it, or a directory with an AGENT.md like any
other resource. So is a prompt: Claude Code's custom commands are such files. Never raises for what
lies there.
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
"""The folder whose every file NAME.md is a command to Claude Code, with or without frontmatter."""

EMPTY_FILE = "it is empty"
"""The reason for leaving out an empty single file: its text does not tell whether it was a
resource.
"""

# An editor or a crash that empties a file seldom leaves more; a larger file is no small agent.
_EMPTIED = 65_536
"""Bytes of the largest file that is read to see whether it holds nothing but NUL bytes."""

# Bounds the walk that each sync makes of a folder; clients look one or two levels deep.
MAX_DEPTH = 4
"""How deep below the folder resources are looked for."""

_LINK = "a symbolic link"

LOOKS = 20
"""Entries that a count looks at for each resource that it wants: other trees are large too."""


@dataclass(slots=True)
class DiscoveredResources:
    """Directories with a resource, relative to the folder with `/`; and those left out, each with
    the reason.

    A single file that is a resource counts as a directory. links: symbolic links to resources, to
    directories that hold some, and to nothing.
    """

    directories: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def discover(folder: str, kind: Kind, prefix: str = "") -> DiscoveredResources:
    """Return the resources below `folder`, or below `prefix` in it (which ends with `/`).

    A directory that holds a resource is not searched further. Hidden and ignored names are passed
    over; no symbolic link is followed.
    """
    found = DiscoveredResources()
    for directory, why in _search(folder, kind, prefix):
        if why == "":
            found.directories.append(directory)
        elif why == _LINK:
            found.links.append(directory)
        elif why:
            found.left_out[directory] = why
    return found


def count_resources(folder: Path, kind: Kind, most: int) -> int:
    """Return how many resources `discover` finds, at most so many, after LOOKS times as many
    entries at the latest.
    """
    looked = islice(_search(os.fspath(folder), kind, ""), LOOKS * most)
    return sum(1 for _ in islice((directory for directory, why in looked if why == ""), most))


def is_single(kind: Kind, directory: str) -> bool:
    """Return whether the resource at this path is a single file and no directory, by its name."""
    return kind in SINGLE_KINDS and directory.endswith(SINGLE_SUFFIX)


def single_name(kind: Kind, name: str, folder: Path) -> str:
    """Return the name of a new resource's directory in a folder; of an agent and a command, of its
    file.
    """
    single = kind is Kind.AGENT or kind is Kind.PROMPT and COMMANDS in folder.parts
    return f"{name}{SINGLE_SUFFIX}" if single else name


def holds_main(place: str, kind: Kind) -> bool:
    """Return whether a directory has the main file of a resource of this kind, in any case of its
    letters.

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
    """Return whether a single file holds nothing, so that its text does not tell whether it was a
    resource.
    """
    try:
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _EMPTIED:
            return False
        with open(entry.path, "rb", opener=regular_file) as stream:
            return is_blank(stream.read(_EMPTIED))
    except OSError:
        return False


def _search(folder: str, kind: Kind, prefix: str) -> Iterator[tuple[str, str | None]]:
    """Yield each entry with the reason to leave it out: '' for a resource, None where there is none
    to leave out.
    """
    for entry in _entries(os.path.join(folder, prefix), kind):
        directory = f"{prefix}{entry.name}"
        # Before the test for frontmatter: an emptied agent must not look deleted.
        if is_single(kind, entry.name) and is_emptied(entry):
            yield (directory if _is_text(entry.name) else ascii(directory)), EMPTY_FILE
            continue
        if entry.is_symlink():
            yield directory, _LINK if _is_linked_resource(entry, kind) else None
        elif holds_main(entry.path, kind):
            yield (
                (directory, "")
                if _is_text(entry.name)
                else (ascii(directory), "its name is not Unicode")
            )
        else:
            yield directory, None
            if (
                directory.count("/") + 1 < MAX_DEPTH
                and _is_text(entry.name)
                and not is_single(kind, entry.name)
            ):
                yield from _search(folder, kind, f"{directory}/")


def _is_linked_resource(entry: "os.DirEntry[str]", kind: Kind) -> bool:
    """Return whether a link may be meant as a resource or as a folder of some.

    A dangling link once was one.
    """
    # A link to nothing, such as one into a folder that is not mounted now.
    if not os.path.exists(entry.path):
        return is_single(kind, entry.name) or "." not in entry.name
    return holds_main(entry.path, kind) or bool(
        count_resources(
            Path(entry.path),
            kind,
            1,
        )
    )


def _entries(place: str, kind: Kind) -> Iterator["os.DirEntry[str]"]:
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if is_hidden(entry.name):
            continue
        # Files without the suffix are no resource; links to nothing are reported.
        if (
            is_single(kind, entry.name)
            or os.path.isdir(entry.path)
            or not os.path.exists(entry.path)
        ):
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
