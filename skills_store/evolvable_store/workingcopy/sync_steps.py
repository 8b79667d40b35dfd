"""The step that a sync takes with one directory: by what lies there, what the library has, and what is known."""

from collections.abc import Callable
from enum import Enum

from evolvable_store.operation import Head
from evolvable_store.storage.bindings import Binding


class SyncStep(Enum):
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


def decide_step(
    binding: Binding | None, head: Head | None, tree: str | None, tree_of: Callable[[int], str], taken: bool
) -> SyncStep:
    """Return the step for one directory.

    head: of the bound resource, or of the one that has the directory's name. tree: of the files in the directory,
    None when it is gone. tree_of: the tree of a version of that resource. taken: whether another directory of the
    scope is bound to it.
    """
    living = head is not None and head.version is not None
    known = binding.version if binding else None
    if tree is None:
        return _without_directory(binding, known, living)
    if head is None:
        return SyncStep.SNAPSHOT
    if not living:
        untouched = known is not None and tree == tree_of(known)
        return SyncStep.REMOVE_DIRECTORY if untouched else SyncStep.SNAPSHOT
    if tree == head.tree:
        return SyncStep.BIND
    if known is None:
        return SyncStep.RENAME if taken else SyncStep.SNAPSHOT
    if known == head.version:
        return SyncStep.SNAPSHOT
    # A version after the known one that lies here was written by us, and a crash kept us from noting it.
    assert head.version is not None
    ours = any(tree == tree_of(number) for number in range(head.version - 1, known - 1, -1))
    return SyncStep.CHECKOUT if ours else SyncStep.MERGE


def read_alone(step: SyncStep, binding: Binding | None, tree: str | None, tree_of: Callable[[int], str]) -> SyncStep:
    """Return the step for a directory that is never written: what the plugin brings is the next version as it is."""
    if step is SyncStep.MERGE:
        assert binding is not None and binding.version is not None
        return SyncStep.NOTHING if tree == tree_of(binding.version) else SyncStep.SNAPSHOT
    return SyncStep.NOTHING if step in (SyncStep.CHECKOUT, SyncStep.REMOVE_DIRECTORY) else step


def _without_directory(binding: Binding | None, known: int | None, living: bool) -> SyncStep:
    if binding is None:
        return SyncStep.NOTHING
    if known is None:
        return SyncStep.CHECKOUT if living else SyncStep.NOTHING
    return SyncStep.TOMBSTONE if living else SyncStep.FORGET
