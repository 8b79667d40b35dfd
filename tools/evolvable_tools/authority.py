"""Authority: whether what a text names is in force, such as the agent that a skill delegates to.

It follows the field that grants it: a value is in force where it is that of the base, or where a
person approved the version. What anybody or anything else changed is out of force until a person
approves it.
"""

from collections.abc import Callable
from typing import Any

from evolvable_store import (
    Document,
    Head,
    HeldPowers,
    different_powers,
    main_path,
    parse_document,
    power_values,
    written_key,
)
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import USER_SCOPE, Kind
from evolvable_tools.authors import (
    BY_PROGRAM,
    AuthorKind,
    FileAuthor,
    version_authorship,
    version_base,
    version_maker,
)
from evolvable_tools.caller import JudgedLibrary

MAX_SEARCHED = 50
"""Versions since the base among which the one is looked for that brought a value."""

POWER_KINDS = (Kind.SKILL, Kind.AGENT, Kind.PROMPT)
"""Kinds whose main files clients act on."""

Field = Callable[[Document], Any]
"""Reads the value of a field of a main file."""


def in_force(library: JudgedLibrary, head: Head, version: int, value: Field) -> bool:
    """Return whether the value of a field of a version is in force."""
    return field_author(library, head, version, value) is None


def field_author(
    library: JudgedLibrary, head: Head, version: int, value: Field
) -> FileAuthor | None:
    """Return who changed a field of a version, None where it is in force."""
    base = version_base(library, head, version)
    if base == version:
        return None

    def read(number: int) -> Any:
        document = _read_document(library, head, number)
        return None if document is None else value(document)

    now = read(version)
    if base is not None and now is not None and now == read(base):
        return None
    return _find_bringer(library, head, base or 0, version, lambda number: read(number) == now)


def find_powers_out(library: JudgedLibrary, head: Head, version: int) -> HeldPowers | None:
    """Return which powers that a version names are out of force, None for none.

    What a person saved on disk in a folder of theirs is in force: the program that acts on it reads
    the disk too.
    """
    base = version_base(library, head, version) if head.kind in POWER_KINDS else version
    if base == version:
        return None
    now = _read_main(library, head, version)
    before = _read_main(library, head, base) if base else b""
    out_of_force_authors = dict[str, FileAuthor | None]()
    for name in different_powers(now, before):
        value = power_values(now).get(name)

        # The defaults bind the values of this round of the loop.
        def is_same(number: int, name: str = name, value: Any = value) -> bool:
            return bool(power_values(_read_main(library, head, number)).get(name) == value)

        author = _find_bringer(library, head, base or 0, version, is_same)
        if not is_yours(author):
            out_of_force_authors[name] = author
    if not out_of_force_authors:
        return None
    fields = ", ".join(written_key(name, now, before) for name in out_of_force_authors)
    line = out_of_force(short_ref(head), fields, next(iter(out_of_force_authors.values())))
    return HeldPowers(frozenset(out_of_force_authors), base or 0, before, line)


def files_author(library: JudgedLibrary, head: Head, version: int) -> FileAuthor | None:
    """Return who changed the files of a version that are not the main one, None where all are in
    force.

    What a person saved on disk in a folder of theirs is in force.
    """
    base = version_base(library, head, version)
    if base == version:
        return None
    store = library.store
    main = main_path(head.kind, head.name, store.manifest(head, version))
    now = store.manifest(head, version)
    before = store.manifest(head, base) if base else {}
    for path in sorted({*now, *before} - {main}):
        entry = now.get(path)
        if entry == before.get(path):
            continue

        # The defaults bind the values of this round of the loop.
        def is_same(number: int, path: str = path, entry: Any = entry) -> bool:
            return bool(store.manifest(head, number).get(path) == entry)

        author = _find_bringer(library, head, base or 0, version, is_same)
        if not is_yours(author):
            return author
    return None


def is_yours(author: FileAuthor | None) -> bool:
    """Return whether somebody is the reader, who saved it on disk, or this program, which came with
    it.
    """
    return author is None or author.kind is AuthorKind.YOU or author.by == BY_PROGRAM


def out_of_force(ref: str, field: str, author: FileAuthor | None = None) -> str:
    """Return the line on a field that is out of force."""
    return f"{field} {_describe_author(author)}: evolvable approve {ref}"


def short_ref(head: Head) -> str:
    """Return how a command names a resource: a skill by its name."""
    return head.name if head.kind is Kind.SKILL and head.scope == USER_SCOPE else str(head.ref)


def _describe_author(author: FileAuthor | None) -> str:
    unapproved = "changed, and no person approved it"
    if author is None:
        return unapproved
    words = {
        AuthorKind.AGENT: "changed by your agent",
        AuthorKind.IMPORT: "imported from elsewhere",
        AuthorKind.REPOSITORY: "brought by a repository",
        AuthorKind.MEMBER: f"changed by {author.by}",
    }
    return words.get(author.kind, "changed on disk" if author.by == "file" else unapproved)


def _find_bringer(
    library: JudgedLibrary, head: Head, base: int, version: int, is_same: Callable[[int], bool]
) -> FileAuthor | None:
    """Return who brought a value of a version: since the base, or before it if a person only took
    it back.

    This need not be who made the version: an undo, a restore, a merge and a save of another line
    carry a value over.
    """
    # Bounded, because each version costs a read.
    start = max(base + 1, version - MAX_SEARCHED)
    first = next((number for number in range(start, version) if is_same(number)), version)
    if first == start > base + 1:
        # Older than the versions that are searched.
        return version_authorship(library, head, version).main
    maker = version_maker(library, head, first)
    if not is_yours(maker):
        return maker
    # A person made it. If it was there before the base and no person stood for it then, who brought
    # it first counts: to take a change back approves nothing.
    older = [number for number in range(max(1, base - MAX_SEARCHED), base) if is_same(number)]
    if not older or any(version_base(library, head, number) == number for number in older):
        return maker
    return version_maker(library, head, older[0])


def _read_main(library: JudgedLibrary, head: Head, version: int) -> bytes:
    try:
        path = main_path(head.kind, head.name, library.store.manifest(head, version))
        return library.store.file(head, path, version).data if path else b""
    except EvolvableError:
        return b""


def _read_document(library: JudgedLibrary, head: Head, version: int) -> Document | None:
    data = _read_main(library, head, version)
    return parse_document(data) if data else None
