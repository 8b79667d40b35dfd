"""Text that a new resource of an agent has from a stranger's: the stranger stays its author."""

from evolvable_store import Files, Head, Identity, Principal
from evolvable_tools.authors import AuthorKind, Authorship, authorships
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library

SHARED = 0.5
"""The share of a new resource's lines above which it is the stranger's whose lines they are."""

MIN_LINE = 12
"""Characters of a line that counts, without spaces: shorter ones stand in many texts."""

MIN_ADDED = 4
"""Lines that a change of what is there already adds before they are compared."""

MAX_TEXT = 400_000
"""Bytes of a file whose lines are compared."""

_PRINCIPALS = {AuthorKind.REPOSITORY: Principal.REPOSITORY, AuthorKind.IMPORT: Principal.IMPORT}


def borrowed_from(library: Library, caller: Caller, head: Head | None, before: Files, files: Files) -> Identity | None:
    """Return who brought the text of a resource that a caller writes and no person stood for; None for the caller.

    head, before: of the resource, None and none for a new one. A change that brings few lines, or less than half of
    them, is not compared: that costs an update nothing.
    """
    lines = set[bytes]() if caller.decides else _lines(files)
    added = lines - _lines(before)
    if len(added) <= SHARED * len(lines) or (head is not None and len(added) < MIN_ADDED):
        return None
    if head is not None and not authorships(library, [head.id], caller)[head.id].is_new:
        return None
    heads = {one.id: one for one in library.store.heads() if head is None or one.id != head.id}
    for resource, whose in authorships(library, heads, caller).items():
        if not whose.is_strangers:
            continue
        shared = lines & _lines(_strangers(library, heads[resource], whose))
        if len(shared) > SHARED * len(lines):
            principal = _PRINCIPALS.get(whose.main.kind, Principal.IMPORT)
            return Identity(principal, f"copy:{whose.main.by or heads[resource].name}")
    return None


def _strangers(library: Library, head: Head, whose: Authorship) -> Files:
    return {path: file for path, file in library.store.files(head).items() if whose.of(path).why}


def _lines(files: Files) -> set[bytes]:
    """Return the lines of the texts, without spaces, that are long enough to say where they are from."""
    return {
        plain
        for file in files.values()
        if len(file.data) <= MAX_TEXT and b"\0" not in file.data
        for line in file.data.splitlines()
        if len(plain := b"".join(line.split())) >= MIN_LINE
    }
