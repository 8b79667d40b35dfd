"""What the command line says of resources that are easily taken for each other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evolvable_server.cli.terminal import say

if TYPE_CHECKING:
    from evolvable_store.resource import Ref
    from evolvable_tools.library import Library


def doubles(library: "Library", refs: "Sequence[Ref]") -> list[str]:
    """Returns a line for each pair; a last one where not all were looked at; nothing where all can be told apart."""
    from evolvable_tools.retrieval.near_duplicates import MOST_AT_ONCE
    from evolvable_tools.verbs import search

    if not refs:
        return []
    found = search.near_duplicates_of(library, refs)
    lines = [pair.said for pair in found.pairs]
    return [*lines, found.said] if lines or len(refs) > MOST_AT_ONCE else []


def show_doubles(lines: Sequence[str]) -> None:
    """Writes them under a title."""
    if lines:
        say("\nEasily taken for each other:")
    for line in lines:
        say(f"  - {line}")
