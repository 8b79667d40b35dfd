"""Symbolic links inside a resource's directory: whose bytes belong to the version.

People keep one file for several skills of a repository, and link to it. The bytes of such a file belong to the version
where it lies in the same work tree, or outside of repositories in the same watched folder. The link decides nothing
more: it is read without following a link on the way, is never written through, and leads to nothing private.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.paths import work_tree

SYMLINK = "a symlink"
"""How each reason begins for which a link is left out."""

_SHOWN = frozenset({".agents", ".claude", ".codex", ".github"})
"""Hidden names that a link may lead through: others hold what programs keep for themselves, keys among it."""


@dataclass(frozen=True, slots=True)
class LinkBoundary:
    """The folder within which links are followed, and the hidden names on the way to the watched folder."""

    root: Path
    shown: frozenset[str]

    def target(self, link: str) -> Path | str:
        """Return the real path of the regular file that a link leads to, or why it is not read."""
        try:
            real = Path(os.path.realpath(link, strict=True))
            regular = stat.S_ISREG(os.lstat(real).st_mode)
        except (OSError, ValueError):
            return f"{SYMLINK} that leads nowhere"
        if not regular:
            return SYMLINK
        if not real.is_relative_to(self.root):
            return f"{SYMLINK} out of {self.root}"
        hidden = [name for name in real.relative_to(self.root).parts if name.startswith(".")]
        return f"{SYMLINK} to what is hidden" if set(hidden) - _SHOWN - self.shown else real


def boundary_of(folder: Path, directory: str, home: Path) -> LinkBoundary:
    """Return the boundary for a directory of a watched folder: its work tree, else the folder.

    A work tree that the library's home lies in is a home folder with private files, and does not count.
    """
    tree = work_tree(folder / directory)
    root = folder if tree is None or Path(os.path.realpath(home)).is_relative_to(tree) else tree
    way = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    return LinkBoundary(root, frozenset(name for name in way if name.startswith(".") and name != ".git"))
