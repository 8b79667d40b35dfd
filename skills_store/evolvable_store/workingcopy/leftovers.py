"""The copies under another name that synchronisers leave beside resources."""

import re
from pathlib import Path

from evolvable_store.frontmatter import parse_document, summarize
from evolvable_store.objects import Files
from evolvable_store.resource import Kind, main_file
from evolvable_store.validation import main_path
from evolvable_store.workingcopy.discovery import SINGLE_SUFFIX, is_single
from evolvable_store.workingcopy.tree_reader import read_single

_COPY_NAMES = tuple(
    re.compile(f"(?P<original>.+?){ending}", re.IGNORECASE if "onfl" in ending else re.NOFLAG)
    for ending in (
        r" [1-9]\d?",  # iCloud
        r" ?\([1-9]\d?\)",  # Google Drive, OneDrive
        r" \([^()]*[ck]onfli[ck]?t[^()]*\)",  # Dropbox and Nextcloud, in several languages
        r"_conflict-\d{8}-\d{6}",  # ownCloud
        r"\.sync-conflict-\d{8}-\d{6}(?:-[A-Z0-9]{7})?",  # Syncthing
        # OneDrive: the name of a machine, as Windows makes them.
        r"-(?:DESKTOP|LAPTOP|WIN|PC|SURFACE)-[A-Z0-9]{3,15}",
    )
)
"""The names that synchronisers give to the second of two versions.

The group `original` is the name of the first.
"""


def copied_from(place: Path, kind: Kind, files: Files) -> str:
    """Return why a directory or single file is a synchroniser's copy, '' where it is none.

    It is a copy where its name is one that a synchroniser makes of another, the other lies beside
    it, and both heads give the same name. A person who makes a second resource of a copy gives it a
    name of its own.

    Args:
        place: Where it lies.
        files: What it holds.
    """
    single = is_single(kind, place.name)
    suffix = SINGLE_SUFFIX if single else ""
    head_name = _read_head_name(files[main].data) if (main := main_path(kind, "", files)) else ""
    if not head_name:
        return ""
    for pattern in _COPY_NAMES:
        match = pattern.fullmatch(place.name.removesuffix(suffix))
        original = (match["original"] if match else "") + suffix
        # Name, neighbour and head together: a name alone, such as "report 2", may be the person's
        # choice.
        if match and _read_name_on_disk(place.parent, original, kind, single) == head_name:
            return (
                f"it is a copy that a synchroniser made of {original}: keep one, or give it "
                "another name in its head"
            )
    return ""


def _read_name_on_disk(folder: Path, directory: str, kind: Kind, single: bool) -> str:
    """Return the name in the head of the resource in this directory or file, '' for none."""
    main = main_file(kind, "")
    place = folder / directory if single else folder / directory / main
    try:
        reading = read_single(place, main, real=True)
    except OSError:
        return ""
    return _read_head_name(reading.files[main].data) if main in reading.files else ""


def _read_head_name(data: bytes) -> str:
    return summarize(parse_document(data)).name
