"""The paths by which a person named the watched folders, and the obstacles to their use.

A client's folder may be a link that a manager of dotfiles changes to another target. The library
watches the folder to which the link led when it was named. The names are kept in the library's
home, on this machine alone, so that a later change of the link is noticed.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.paths import FOLDER_NAMES
from evolvable_store.regular_files import write_private
from evolvable_store.storage import WatchedFolder
from evolvable_store.workingcopy.openat import first_link

_MAX_BYTES = 2**20
"""Bytes of the file with the names that are read."""


@dataclass(frozen=True, slots=True)
class FolderObstacle:
    """The reason why a watched folder is not read or written, and the step that ends it."""

    what: str
    next: str

    def __str__(self) -> str:
        return f"{self.what}. {self.next}"


def is_read_only(place: Path) -> bool:
    """Return whether nothing may be written into a directory, such as one in a store of packages.

    A directory whose mode gives nobody the right to write is read-only for root too.
    """
    try:
        status = os.stat(place)
    except OSError:
        return False
    # os.access is true for root even where the mode gives nobody the right.
    return not os.access(place, os.W_OK) or (os.name == "posix" and not status.st_mode & 0o222)


class FolderNames:
    """The names of the watched folders of one library."""

    def __init__(self, home: Path) -> None:
        self._file = home / FOLDER_NAMES

    def of(self, folder: WatchedFolder) -> list[Path]:
        """Return the paths by which a person named the folder, the first one first.

        Empty where none is known.
        """
        return [Path(name) for name in self._read().get(str(folder.path), ())]

    def remember(self, name: Path, folder: WatchedFolder) -> None:
        """Store a path by which a person named the folder.

        Names of the folder that lead elsewhere now are deleted.
        """
        names_by_folder, absolute = self._read(), os.path.abspath(name)
        here = [
            other_name
            for other_name in names_by_folder.get(str(folder.path), ())
            if _leads_to(other_name, folder)
        ]
        others = {
            path: [other_name for other_name in names if other_name != absolute]
            for path, names in names_by_folder.items()
        }
        # A name belongs to one folder: the newest naming wins.
        updated = {
            **others,
            str(folder.path): list(dict.fromkeys([*here, absolute])),
        }
        updated = {path: names for path, names in updated.items() if names}
        if updated != names_by_folder:
            self._write(updated)

    def find_turned(self, name: Path, folders: Iterable[WatchedFolder]) -> WatchedFolder | None:
        """Return the folder that this path led to when it was last named.

        None unless this path and all other names of the folder lead elsewhere now.
        """
        absolute = os.path.abspath(name)
        for folder in folders:
            names = self._read().get(str(folder.path), ())
            # If any other name still leads there, the folder is where it was.
            if absolute in names and not any(_leads_to(other_name, folder) for other_name in names):
                return folder
        return None

    def obstacle(self, folder: WatchedFolder) -> FolderObstacle | None:
        """Return why the folder is not read or written, None for no reason.

        The reasons are a link in its path, and names that all lead elsewhere.
        """
        # The watched path was real when it was added, so a link in it came later.
        link = first_link(folder.path)
        if link is not None:
            # The author of the link decides where it leads, so nothing is read or removed there.
            return FolderObstacle(
                f"{link} is a symbolic link now; the watched folder there is neither read "
                "nor written",
                "Put the directory back, or run `evolvable init` on the folder that the "
                "link leads to.",
            )
        names = self._read().get(str(folder.path), ())
        if names and not any(_leads_to(name, folder) for name in names):
            name = names[0]
            place = _resolve(name)
            leads = f"leads to {place} now" if os.path.lexists(place) else "leads nowhere now"
            return FolderObstacle(
                f"{name} {leads}, not to {folder.path}, which is neither read nor written any more",
                f"`evolvable init {name}` goes on with what it leads to.",
            )
        return None

    def _read(self) -> dict[str, list[str]]:
        try:
            with open(self._file, "rb") as stream:
                data = json.loads(stream.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        pairs = data.items() if isinstance(data, dict) else ()
        # The file may be damaged; only absolute paths are used.
        return {
            path: [name for name in names if _is_path(name)]
            for path, names in pairs
            if isinstance(names, list)
        }

    def _write(self, names: dict[str, list[str]]) -> None:
        write_private(self._file, json.dumps(names, indent=1), durable=False)


def _is_path(name: object) -> bool:
    return isinstance(name, str) and "\0" not in name and os.path.isabs(name)


def _leads_to(name: str, folder: WatchedFolder) -> bool:
    return _resolve(name) == str(folder.path)


def _resolve(name: str) -> str:
    try:
        return os.path.realpath(name)
    except (OSError, ValueError):
        return name  # a link was replaced by something else just now
