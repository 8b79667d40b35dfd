"""Text that a new resource of an agent has from a stranger's: the stranger stays its author."""

from evolvable_store.objects import Files
from evolvable_store.operation import Head, Identity, Principal
from evolvable_tools.authors import AuthorKind, Authorship, authorships
from evolvable_tools.library import Caller, Library

SHARED = 0.5
"""The share of a new resource's lines above which it is the stranger's whose lines they are."""

MIN_LINE = 12
"""Characters of a line that counts, without spaces: shorter ones stand in many texts."""

MAX_TEXT = 400_000
"""Bytes of a file whose lines are compared."""

_PRINCIPALS = {AuthorKind.REPOSITORY: Principal.REPOSITORY, AuthorKind.IMPORT: Principal.IMPORT}


def borrowed_from(library: Library, caller: Caller, head: Head | None, files: Files) -> Identity | None:
    """Return who brought the text of a resource that a caller writes and no person stood for; None for the caller.

    head: of the resource, None for a new one.
    """
    if caller.decides:
        return None
    if head is not None and not authorships(library, [head.id], caller)[head.id].is_new:
        return None
    lines = _lines(files)
    if not lines:
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
