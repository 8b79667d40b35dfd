"""Takes copies of a person's skills without watching their folders: nothing is ever written there."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evolvable_server.cli.terminal import Progress
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import USER_SCOPE, Kind, Ref, slugify
from evolvable_store.store import Store
from evolvable_store.validation import blocking_problems, find_problems, main_path, unread_main
from evolvable_store.workingcopy.tree_reader import is_ignored, read_folder
from evolvable_tools.trust import OWN

MAX_DEPTH = 4
"""How deep below a folder skills are looked for."""


BATCH = 200
"""Skills that become one operation."""


@dataclass(slots=True)
class Copied:
    """What became of the skills in one folder. known: names that the library has or had, left as they are there."""

    path: str
    added: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    refused: list[tuple[str, list[str]]] = field(default_factory=list)


def copy_in(store: Store, folder: Path, reason: str, progress: Progress) -> Copied:
    """Returns what became of each skill in `folder`: those new here become version 1.

    As with a person's own folder, what breaks the specification is taken in where that is safe.
    """
    copied, new = Copied(str(folder)), dict[Ref, dict[str, File]]()
    places = list(_skills(folder, MAX_DEPTH))
    for done, place in enumerate(places, 1):
        ref = Ref(Kind.SKILL, slugify(place.name), USER_SCOPE)
        if ref.name and (ref in new or store.head_or_none(ref) is not None):
            copied.known.append(str(ref))
        elif files := _fit(place, copied):
            new[ref] = files
        if len(new) == BATCH or done == len(places):
            _put(store, new, reason, copied)
            new = {}
        progress(done, len(places))
    return copied


def _put(store: Store, new: dict[Ref, dict[str, File]], reason: str, copied: Copied) -> None:
    with store.transaction(Actor.IMPORT, reason, identity=Identity(Principal.IMPORT, OWN)) as tx:
        for ref, files in new.items():
            tx.put(ref, files, expected_version=0)
    copied.added += [str(ref) for ref in new]


def _skills(place: Path, depth: int) -> Iterator[Path]:
    """Yields the outermost folders that hold a SKILL.md; links are not followed."""
    try:
        with os.scandir(place) as entries:
            inside = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    if main_path(Kind.SKILL, place.name, [entry.name for entry in inside]):
        yield place
        return
    for entry in inside:
        hidden = entry.name.startswith(".") or is_ignored(entry.name)
        if depth and not hidden and entry.is_dir(follow_symlinks=False):
            yield from _skills(Path(entry.path), depth - 1)


def _fit(place: Path, copied: Copied) -> dict[str, File] | None:
    """Returns the skill's files, or None after a note of every reason against it."""
    try:
        reading = read_folder(place)
    except OSError as error:
        copied.refused.append((place.name, [f"cannot be read: {error.strerror or error}"]))
        return None
    why = unread_main(Kind.SKILL, place.name, reading) or reading.cut_short
    found = (
        [why]
        if why
        else list(map(str, blocking_problems(find_problems(Kind.SKILL, place.name, reading.files), strict=False)))
    )
    if not slugify(place.name):
        found.append(f"no name can be made of {ascii(place.name)}")
    if found:
        copied.refused.append((place.name, found))
        return None
    return reading.files
