"""Authority: whether what a text names is in force, such as the agent that a skill delegates to.

It follows the field that grants it: a value is in force where it is that of the base, or where a person approved the
version. What anybody or anything else changed is out of force until a person approves it.
"""

from collections.abc import Callable
from typing import Any

from evolvable_store.errors import EvolvableError
from evolvable_store.frontmatter import Document, parse_document
from evolvable_store.operation import Head
from evolvable_store.validation import main_path
from evolvable_tools.authors import version_base
from evolvable_tools.library import Library

Field = Callable[[Document], Any]
"""Returns the value of a field of a main file."""


def in_force(library: Library, head: Head, version: int, value: Field) -> bool:
    """Return whether the value of a field of a version is in force."""
    base = version_base(library, head, version)
    if base is None:
        return False
    if base == version:
        return True
    now, then = (_document(library, head, number) for number in (version, base))
    return now is not None and then is not None and value(now) == value(then)


def out_of_force(ref: str, field: str) -> str:
    """Return the line on a field that is out of force."""
    return f"{field} changed, and no person approved it: evolvable approve {ref}"


def _document(library: Library, head: Head, version: int) -> Document | None:
    try:
        path = main_path(head.kind, head.name, library.store.manifest(head, version))
        return parse_document(library.store.file(head, path, version).data) if path else None
    except EvolvableError:
        return None
