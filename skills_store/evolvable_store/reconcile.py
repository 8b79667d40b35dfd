"""Decides, from what a directory holds and what the library says, the one next step that brings them together."""

from collections.abc import Callable
from enum import Enum

from evolvable_store.bindings import Binding
from evolvable_store.operation import Head


class Step(Enum):
    """What has to happen with one directory."""

    NOTHING = "nothing"
    BIND = "the directory holds the head"
    SNAPSHOT = "a person's edit becomes a version"
    MERGE = "both sides changed"
    CHECKOUT = "the head is written out"
    REMOVE_DIRECTORY = "the resource was removed from the library"
    TOMBSTONE = "the person deleted the directory"
    FORGET = "resource and directory are both gone"
    RENAME = "another resource of the scope has the name"


def decide(
    binding: Binding | None, head: Head | None, tree: str | None, tree_of: Callable[[int], str], taken: bool
) -> Step:
    """Returns the step for one directory.

    head: of the bound resource, or of the one that has the directory's name. tree: of the files in the directory,
    None when it is gone. tree_of: the tree of a version of that resource. taken: whether another directory of the
    scope is bound to it.
    """
    living = head is not None and head.version is not None
    known = binding.version if binding else None
    if tree is None:
        return _without_directory(binding, known, living)
    if head is None:
        return Step.SNAPSHOT
    if not living:
        untouched = known is not None and tree == tree_of(known)
        return Step.REMOVE_DIRECTORY if untouched else Step.SNAPSHOT
    if tree == head.tree:
        return Step.BIND
    if known is None:
        return Step.RENAME if taken else Step.SNAPSHOT
    if known == head.version:
        return Step.SNAPSHOT
    # A version after the known one that lies here was written by us, and a crash kept us from noting it.
    assert head.version is not None
    ours = any(tree == tree_of(number) for number in range(head.version - 1, known - 1, -1))
    return Step.CHECKOUT if ours else Step.MERGE


def _without_directory(binding: Binding | None, known: int | None, living: bool) -> Step:
    if binding is None:
        return Step.NOTHING
    if known is None:
        return Step.CHECKOUT if living else Step.NOTHING
    return Step.TOMBSTONE if living else Step.FORGET
