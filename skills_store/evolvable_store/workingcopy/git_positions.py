"""How far HEAD's log of each repository went when a watched folder was imported.

What a log said before is the word of those who brought the repository: an archive may bring one. The positions
are kept in the library's home, on this machine alone.
"""

import contextlib
import json
from pathlib import Path

from evolvable_store.paths import GIT_POSITIONS
from evolvable_store.private_files import write_private
from evolvable_store.storage import WatchedFolder
from evolvable_store.workingcopy.git_repository import DAMAGE, LogPosition, Repository

_MAX_BYTES = 2**22


class GitPositions:
    """The positions for one watched folder of a library."""

    def __init__(self, home: Path, folder: WatchedFolder) -> None:
        self._file, self._folder = home / GIT_POSITIONS, str(folder.path)
        self._known: dict[str, LogPosition] | None = None

    @property
    def is_new(self) -> bool:
        """Whether the folder is just imported: nothing is known of its repositories."""
        return self._load() is None

    def of(self, repository: Repository) -> LogPosition | None:
        """Return from where on the log of a repository counts; None where it counts nothing.

        A repository that was made in a folder since counts from its beginning.
        """
        known = self._load()
        return None if known is None else known.get(repository.git, LogPosition())

    def forget(self) -> None:
        """Forget what was noted of the folder: it is imported again."""
        every = _read(self._file)
        if every.pop(self._folder, None) is not None:
            write_private(self._file, json.dumps(every), durable=False)
        self._known = None

    def remember_new(self, repositories: list[Repository]) -> None:
        """Note where the logs end of those repositories that nothing is noted of."""
        known = self._load() or {}
        unknown = [one for one in repositories if one.git not in known]
        if unknown:
            self.remember(unknown)

    def remember(self, repositories: list[Repository]) -> None:
        """Note where the logs of these repositories end now."""
        with contextlib.suppress(*DAMAGE):
            ends = {repository.git: repository.log_end() for repository in repositories}
            known = {**(self._load() or {}), **ends}
            every = _read(self._file)
            every[self._folder] = {git: [end.offset, end.digest] for git, end in known.items()}
            write_private(self._file, json.dumps(every), durable=False)
            self._known = known

    def _load(self) -> dict[str, LogPosition] | None:
        if self._known is None:
            rows = _read(self._file).get(self._folder)
            if isinstance(rows, dict):
                self._known = {git: _position(row) for git, row in rows.items()}
        return self._known


def _position(row: object) -> LogPosition:
    if isinstance(row, list) and len(row) == 2 and isinstance(row[0], int) and isinstance(row[1], str):
        return LogPosition(max(0, row[0]), row[1])
    return LogPosition(0, "unreadable")  # which no log has: nothing counts


def _read(file: Path) -> dict[str, object]:
    try:
        with open(file, "rb") as stream:
            found = json.loads(stream.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
