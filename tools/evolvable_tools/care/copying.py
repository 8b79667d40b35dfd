"""Copy skills from folders into a library: those that are new there become version 1."""

from dataclasses import dataclass, field
from pathlib import Path

from evolvable_store import QUICKSTART, Actor, File, Store
from evolvable_store.bundle import find_folders
from evolvable_store.errors import quote_text
from evolvable_store.resource import USER_SCOPE, Kind, Ref, slugify
from evolvable_store.workingcopy import copied_from, read_folder, reasons_against
from evolvable_tools.reporting import Progress

MAX_DEPTH = 4
"""Levels of folders below a folder in which skills are looked for."""

BATCH = 200
"""Skills of one operation: a kill loses one batch at most, and other writers get their turns in
between.
"""


@dataclass(slots=True)
class Copied:
    """The result for one folder.

    known: names that the library has or had, whose skills stay as they are.
    """

    path: str
    added: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    refused: list[tuple[str, list[str]]] = field(default_factory=list)


def copy_skills(store: Store, folder: Path, reason: str, progress: Progress) -> Copied:
    """Copy the skills in `folder` that are new here, as version 1, and return the result for each
    skill.

    As with a person's own folder, what breaks the specification is imported where that is safe.
    """
    copied, new = Copied(str(folder)), dict[Ref, dict[str, File]]()
    places = [
        path
        for path in find_folders(folder, Kind.SKILL, MAX_DEPTH)
        if not _is_hidden(path.relative_to(folder))
    ]
    for done, place in enumerate(places, 1):
        ref = Ref(Kind.SKILL, slugify(place.name), USER_SCOPE)
        if ref.name and (ref in new or store.head_or_none(ref) is not None):
            copied.known.append(str(ref))
        elif files := _read_skill(place, copied):
            new[ref] = files
        if len(new) == BATCH or done == len(places):
            _store_skills(store, new, reason, copied)
            new = {}
        progress(done, len(places))
    return copied


def _store_skills(
    store: Store, new: dict[Ref, dict[str, File]], reason: str, copied: Copied
) -> None:
    with store.transaction(Actor.IMPORT, reason, identity=QUICKSTART) as tx:
        for ref, files in new.items():
            # Version 0: refused if another process has added the name meanwhile.
            tx.put(ref, files, expected_version=0)
    copied.added += [str(ref) for ref in new]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _read_skill(place: Path, copied: Copied) -> dict[str, File] | None:
    """Return the skill's files, or note every reason against it and return None."""
    try:
        reading = read_folder(place)
    except OSError as error:
        copied.refused.append((place.name, [f"cannot be read: {error.strerror or error}"]))
        return None
    why = copied_from(place, Kind.SKILL, reading.files)
    reasons = [why] if why else reasons_against(Kind.SKILL, place.name, reading)
    if not slugify(place.name):
        reasons.append(f"no name can be made of {quote_text(place.name)}")
    if reasons:
        copied.refused.append((place.name, reasons))
        return None
    return reading.files
