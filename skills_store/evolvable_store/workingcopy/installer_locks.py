"""Tell whether an installer of skills replaced a skill: its hash in the lock file changed.

`npx skills` writes two lock files. `skills-lock.json` lies in a project: `{"version": 1, "skills":
{NAME: {"source", "sourceType", "computedHash"}}}`. `.skill-lock.json` lies in `~/.agents`, or in
`skills` below `XDG_STATE_HOME`: `{"version": 3, "skills": {NAME: {"source", ...,
"skillFolderHash"}}}`. The hash is of the source, not of the files on disk, so it is compared only
with the hash that was noted before. A lock file may come from anybody.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from evolvable_store.paths import INSTALLED_SKILLS
from evolvable_store.regular_files import read_regular, write_private
from evolvable_store.storage import WatchedFolder

MAX_LOCK = 4 * 2**20
"""Bytes of a lock file that is read; a larger one counts as none."""

_HASHES = ("computedHash", "skillFolderHash")
# Hexadecimal, base64 or with a prefix such as sha256-; nothing else is stored.
_HASH = re.compile(r"[0-9a-fA-F:+/=a-z-]{1,200}")


def lock_files(folder: Path) -> list[Path]:
    """Return where the lock files of a folder of skills may lie.

    folder: such as PROJECT/.claude/skills or ~/.agents/skills.
    """
    above = [folder.parent, folder.parent.parent]
    state = ".local/state/skills/.skill-lock.json"
    own_names = (".skill-lock.json", ".agents/.skill-lock.json", state)
    of_project = [place / "skills-lock.json" for place in above]
    return of_project + [place / name for place in above for name in own_names]


def read_lock(path: Path) -> dict[str, str]:
    """Return the hash of each skill by the name of its directory; {} for no such lock file."""
    try:
        content = json.loads(read_regular(path, MAX_LOCK))
    except (OSError, ValueError, RecursionError):
        return {}
    skills = content.get("skills") if isinstance(content, dict) else None
    if not isinstance(skills, dict):
        return {}
    return {
        directory_name(name): entry[key]
        for name, entry in skills.items()
        if isinstance(entry, dict)
        for key in _HASHES
        if isinstance(entry.get(key), str) and _HASH.fullmatch(entry[key])
    }


def directory_name(name: str) -> str:
    """Return the name of the directory that the installer gives a skill."""
    # As `npx skills` makes it, so that a name in the lock file leads to the directory.
    return re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip(".-")[:255]


class InstalledSkills:
    """The hashes in the lock files around one watched folder, now and as they were noted before."""

    def __init__(self, home: Path, folder: WatchedFolder) -> None:
        self._file, self._folder = home / INSTALLED_SKILLS, folder.path
        hashes = _read_noted(self._file).get(str(self._folder))
        self._is_new = not isinstance(hashes, dict)
        self._before: dict[str, str] = {}
        if isinstance(hashes, dict):
            self._before = {name: str(value) for name, value in hashes.items()}
        self._now: dict[str, str] | None = None

    def changed_directories(self) -> set[str]:
        """Return the directories whose hash changed, or that are named for the first time."""
        # Nothing of the folder was noted yet.
        if self._is_new:
            return set()
        return {
            name for name, found in self._read_hashes().items() if self._before.get(name) != found
        }

    def is_replaced(self, directory: str) -> bool:
        """Return whether the installer replaced a directory since its hash was noted."""
        return directory_name(directory) in self.changed_directories()

    def note(self, directories: Iterable[str] | None = None) -> None:
        """Note the present hashes of these directories, by default of all. Raise OSError."""
        now, before = self._read_hashes(), self._before
        every_name = directories is None or self._is_new
        names = {*now, *before} if every_name else set(map(directory_name, directories or ()))
        updated = {name: value for name, value in before.items() if name not in names and value}
        updated |= {name: value for name, value in now.items() if name in names and value}
        if updated != before or self._is_new:
            # Read again: another process may have noted other folders since.
            every = _read_noted(self._file)
            every[str(self._folder)] = updated
            write_private(self._file, json.dumps(every), durable=False)
            self._before, self._is_new = updated, False

    def _read_hashes(self) -> dict[str, str]:
        if self._now is None:
            self._now = {}
            # The first file of the list comes last and wins.
            for path in reversed(lock_files(self._folder)):
                self._now |= read_lock(path)
        return self._now


def _read_noted(file: Path) -> dict[str, object]:
    try:
        content = json.loads(read_regular(file, MAX_LOCK))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
