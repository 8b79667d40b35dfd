"""The trash in the library's home: directories of watched folders that can be restored.

An entry is kept for the files that belong to no version: ignored names, files over a limit, links.
"""

import json
import os
import re
import secrets
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from evolvable_store.errors import InvalidArgument, NotFound
from evolvable_store.regular_files import write_private
from evolvable_store.used_days import count_day
from evolvable_store.workingcopy.openat import PathAt, move, open_real
from evolvable_store.workingcopy.staging_dir import is_inside
from evolvable_store.workingcopy.tree_reader import untracked_paths

RETENTION_DAYS = 30
"""Days of use, see `count_day`, for which an entry is kept."""

# Two GiB of a person's disk for what no version holds, such as models and caches beside a skill.
MAX_BYTES = 2 * 2**30
"""Bytes of all entries together; the oldest go first, the newest stays whatever its size."""

_DAY = "day"
"""The file of an entry with the day of use on which it came.

It is no field of entry.json: older programs refuse a field that they do not know.
"""

_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class TrashEntry:
    """One directory that was removed from a watched folder.

    folder: the watched folder. directory: its name below that, with `/`. at: seconds. files: how
    many. size: bytes.
    """

    id: str
    folder: str
    directory: str
    at: float
    files: int
    size: int


class Trash:
    """The trash of one library's home. Several processes may use it at once."""

    def __init__(self, home: Path) -> None:
        self._home, self._place = home, home / "trash"

    def put(self, old: PathAt, folder: Path, directory: str, now: float) -> TrashEntry | None:
        """Move a directory that was removed into the trash; return the entry.

        None when versions have all of it. Raise OSError when it cannot be moved; then it is where
        it was.
        """
        if not old.is_dir() or not untracked_paths(old):
            return None
        self._place.mkdir(mode=0o700, exist_ok=True)
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        entry = self._place / f"{stamp}-{secrets.token_hex(4)}"
        entry.mkdir(mode=0o700)
        files, size = _measure(old)
        trash_entry = TrashEntry(entry.name, os.fspath(folder), directory, now, files, size)
        try:
            # Both files before the content: an entry without them could not be shown or expire.
            (entry / _DAY).write_text(str(count_day(self._home, now)), encoding="utf-8")
            (entry / "entry.json").write_text(json.dumps(asdict(trash_entry)), encoding="utf-8")
            with open_real(entry.resolve()) as place:
                move(old, place / "content")
        except OSError:
            # The move failed as a whole: nothing of the person's is in the entry.
            if old.exists():
                shutil.rmtree(entry, ignore_errors=True)
            raise
        self.expire(now)
        return trash_entry

    def entries(self) -> list[TrashEntry]:
        """Return the entries, newest first, without those that cannot be read."""
        with suppress(OSError):
            names = sorted(os.listdir(self._place), reverse=True)
            return [entry for name in names if (entry := self._read(name)) is not None]
        return []

    def newest_of(self, folder: Path, directory: str) -> TrashEntry | None:
        """Return the newest entry of a directory of a watched folder, None when there is none."""
        place = (os.fspath(folder), directory)
        return next(
            (entry for entry in self.entries() if (entry.folder, entry.directory) == place), None
        )

    def put_back(self, identity: str, target: PathAt, *, all_files: bool = True) -> list[str]:
        """Move the files of an entry to `target`, replacing nothing; return the paths that had to
        stay.

        target: made when it does not exist. all_files: also those that versions hold. The entry
        goes when nothing is left in it. Raise NotFound, OSError.
        """
        entry = self._read(identity)
        if entry is None:
            raise NotFound(
                f"There is nothing {identity!r} in the trash.",
                "`evolvable care trash` lists what is in it.",
            )
        with open_real((self._place / identity).resolve()) as place:
            content = place / "content"
            target.make_parents()
            target.mkdir(exist_ok=True)
            paths = content.names() if all_files else untracked_paths(content)
            stuck = [path for path in paths if not _put_back(content / path, target / path)]
            empty = all_files and not stuck or not untracked_paths(content)
        if empty:
            self.delete(identity)
        return stuck

    def delete(self, identity: str) -> None:
        """Delete an entry. Raise InvalidArgument for a text that is no entry's name."""
        if not _ID.fullmatch(identity):
            raise InvalidArgument(
                f"{identity[:40]!r} is not the name of an entry.",
                "`evolvable care trash` lists them.",
            )
        shutil.rmtree(self._place / identity, ignore_errors=True)

    def expire(self, now: float) -> None:
        """Delete entries over the retention, and the oldest while all together are over the limit.

        now: seconds of the clock. They make one more day of use at most: a clock that jumps deletes
        no entry.
        """
        total_bytes, today = 0, count_day(self._home, now)
        for position, entry in enumerate(self.entries()):
            total_bytes += entry.size
            is_old = today - self._read_day(entry.id, today) >= RETENTION_DAYS
            # The newest stays, whatever its size.
            if is_old or (position and total_bytes > MAX_BYTES):
                self.delete(entry.id)

    def _read_day(self, identity: str, today: int) -> int:
        """Return the day of use on which an entry came; today for one without such a day.

        Older programs note no day.
        """
        place = self._place / identity / _DAY
        try:
            return int(place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            with suppress(OSError):
                write_private(place, str(today), durable=False)
            return today

    def _read(self, name: str) -> TrashEntry | None:
        if not _ID.fullmatch(name):
            return None
        try:
            fields = json.loads((self._place / name / "entry.json").read_text(encoding="utf-8"))
            # The id is the folder's name, whatever the file says.
            entry = TrashEntry(**{**fields, "id": name})
        except (OSError, ValueError, TypeError, RecursionError):
            return None
        are_texts = isinstance(entry.folder, str) and isinstance(entry.directory, str)
        numbers = (entry.at, entry.files, entry.size)
        if not are_texts or not all(isinstance(value, (int, float)) for value in numbers):
            return None
        is_whole = is_inside(entry.directory) and (self._place / name / "content").is_dir()
        return entry if is_whole else None


def _put_back(source: PathAt, target: PathAt) -> bool:
    """Move a file or directory to a place that does not exist; merge directories.

    Return whether all of it went.
    """
    with suppress(OSError):
        target.make_parents()
        if not target.exists():
            move(source, target)
        elif source.is_dir() and target.is_dir():
            moved = [_put_back(source / name, target / name) for name in source.names()]
            return all(moved)
        return not source.exists()
    return False


def _measure(folder: PathAt) -> tuple[int, int]:
    """Return how many files lie below a folder, and their bytes.

    Links are counted, never followed.
    """
    files = size = 0
    with suppress(OSError):
        for name in folder.names():
            status = (folder / name).lstat()
            if stat.S_ISDIR(status.st_mode):
                files_below, size_below = _measure(folder / name)
                files, size = files + files_below, size + size_below
            else:
                files += 1
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return files, size
