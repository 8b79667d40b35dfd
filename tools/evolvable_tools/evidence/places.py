"""Which skill of the library a name or a path in a session means, by the folders that mirror the library."""

import os
from pathlib import Path

from evolvable_store.resource import USER_SCOPE, Kind
from evolvable_store.storage.bindings import Binding, WatchedFolder
from evolvable_tools.library import Library


class Places:
    """The skills of one library's folders, as a client that works in `cwd` sees them.

    home: what `~` stands for; without it, paths that begin so mean nothing.
    """

    def __init__(self, library: Library, cwd: str | None, home: Path | None = None) -> None:
        folders = [folder for folder in library.working_copies.folders() if folder.kind is Kind.SKILL]
        self._bindings = {folder.path: library.working_copies.bindings.of_folder(folder) for folder in folders}
        self._cwd, self._home = cwd or "", home
        self._named = _seen_by_claude(folders, self._cwd)
        self._folders_at: dict[str, str] = {}

    def by_name(self, name: str) -> Binding | None:
        """Returns what Claude Code's skill of this name is; None for a plugin's (with a colon) or another's."""
        if ":" in name:
            return None
        found = (self._bindings[folder.path].get(name) for folder in self._named)
        return next((binding for binding in found if binding is not None), None)

    def by_path(self, path: str) -> tuple[Binding, str] | None:
        """Returns the skill that a file lies in, and the file's path below it; None when it lies in none."""
        if path == "~" or path.startswith(("~/", "$HOME/")):
            if self._home is None:
                return None
            path = f"{self._home}/{path.partition('/')[2]}"
        if not path or "\0" in path or len(path) > 4096 or not (os.path.isabs(path) or self._cwd):
            return None
        if not self._bindings:
            return None
        real = Path(self._real(os.path.join(self._cwd, path)))
        for folder, bindings in self._bindings.items():
            if not real.is_relative_to(folder):
                continue
            parts = real.relative_to(folder).parts
            for length in range(1, len(parts)):
                binding = bindings.get("/".join(parts[:length]))
                if binding is not None:
                    return binding, "/".join(parts[length:])
        return None

    def _real(self, path: str) -> str:
        """Returns os.path.realpath; a folder that many files lie in is looked at once."""
        folder, name = os.path.split(path)
        if name in ("", ".", "..") or os.path.islink(path):
            return os.path.realpath(path)
        if folder not in self._folders_at:
            self._folders_at[folder] = os.path.realpath(folder)
        return os.path.join(self._folders_at[folder], name)


def _seen_by_claude(folders: list[WatchedFolder], cwd: str) -> list[WatchedFolder]:
    """Returns the folders whose skills Claude Code knows by name: those of the project before the user's."""
    native = [folder for folder in folders if folder.path.parts[-2:] == (".claude", "skills")]
    here = Path(os.path.realpath(cwd)) if cwd else None
    around = [folder for folder in native if here is not None and here.is_relative_to(folder.path.parent.parent)]
    users = [folder for folder in native if folder.scope == USER_SCOPE and folder not in around]
    # The deepest of those that hold the working directory is the project's own.
    return sorted(around, key=lambda folder: -len(folder.path.parts)) + users
