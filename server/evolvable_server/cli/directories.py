"""Which directories on disk go because of a change, so that a command can say so."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_server.cli.terminal import say

if TYPE_CHECKING:
    from evolvable_store.resource import Ref
    from evolvable_tools.library import Library


def directories_of(library: "Library", refs: Iterable["Ref"]) -> list[Path]:
    """Returns the directories in watched folders that hold these resources now, sorted."""
    resources = [head.id for ref in refs if (head := library.store.head_or_none(ref)) is not None]
    copies = library.working_copies
    folders = {folder.id: folder.path for folder in copies.folders()}
    bound = (folders[b.folder] / b.directory for b in copies.bindings.of_resources(resources) if b.folder in folders)
    return sorted(path for path in bound if path.is_dir())


def say_gone(before: Iterable[Path]) -> None:
    """Writes which of the directories that were there are gone."""
    for path in before:
        if not path.exists():
            say(f"removed from disk: {path}")
