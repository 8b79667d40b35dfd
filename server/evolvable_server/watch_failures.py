"""Explain why no events of the file system come, and what a person can do about it.

The owner of the folders writes this beside its sign of life, where `status` and `doctor` read it.
Where no server runs, they test whether one could watch the folders now.
"""

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from evolvable_server.file_events import InotifyEvents, has_inotify
from evolvable_store.workingcopy import FolderOwner

RESCAN_SECONDS = 30.0
"""The least time between two scans of every folder, events or not."""

_UNREADABLE = (errno.EACCES, errno.EPERM)


@dataclass(frozen=True, slots=True)
class WatchFailure:
    """A failure to get events, in whole sentences.

    what: the folder or library without events, and the reason. remedy: what to do about it.
    """

    what: str
    remedy: str

    @property
    def text(self) -> str:
        """Both as one text."""
        return f"{self.what} {self.remedy}"


def explain_failure(what: str, error: OSError, seconds: float) -> WatchFailure:
    """Explain why the system gives no events.

    what: `folders` or `library`. seconds: the time between two scans of the folders.
    """
    if what == "library":
        return _make_failure("The server cannot watch the library's log, and polls it", error)
    if error.errno in _UNREADABLE and error.filename:
        return _make_failure(
            f"{os.fsdecode(error.filename)} is not watched, and only scanned", error, seconds
        )
    return _make_failure("The folders are not watched, and only scanned", error, seconds)


def _make_failure(effect: str, error: OSError, seconds: float = 0) -> WatchFailure:
    why, remedy = _find_reason(error)
    interval = f" every {seconds:g} seconds" if seconds else ""
    what = f"{effect}{interval}: {why}."
    return WatchFailure(what, f"{remedy} The server tries again by itself.")


def _find_reason(error: OSError) -> tuple[str, str]:
    """Return the reason, without a full stop, and the remedy."""
    # EMFILE stands for two limits: open files, and the inotify instances of the account.
    if error.errno == errno.EMFILE and not _is_file_limit():
        return _explain_limit("instances", "no inotify instance is left for this account")
    if error.errno == errno.ENOSPC:
        return _explain_limit("watches", "no inotify watch is left for this account")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "no more files can be opened", "Raise the limit of open files (`ulimit -n`)."
    why = error.strerror or str(error)
    if error.errno in _UNREADABLE and error.filename:
        return why, f"Let this account read it: chmod u+rx {os.fsdecode(error.filename)}."
    return why, "Programs that watch many files, and network disks, are frequent causes."


def _explain_limit(kind: str, why: str) -> tuple[str, str]:
    name, container_name = f"fs.inotify.max_user_{kind}", f"user.max_inotify_{kind}"
    limit, container_limit = _read_limit(name), _read_limit(container_name)
    # Four times the limit, because other programs of the account watch files too.
    enough = max(512, 4 * (limit or 0))
    remedy = f"Close programs that watch files, or raise the limit: sudo sysctl {name}={enough}."
    if container_limit is not None and limit is not None and container_limit < limit:
        return (
            f"{why} ({container_name} is {container_limit} in this container)",
            f"{remedy} Raise {container_name} of the container as well.",
        )
    return f"{why} ({name} is {'unknown' if limit is None else limit})", remedy


def _read_limit(name: str) -> int | None:
    with suppress(OSError, ValueError):
        return int(Path("/proc/sys", *name.split(".")).read_text(encoding="ascii"))
    return None


def _is_file_limit() -> bool:
    """Return whether this process can open no file at all."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return True
    return False


def format_failures(failures: Iterable[WatchFailure]) -> str:
    """Return failures as a note for other processes, '' for none."""
    rows = [astuple(failure) for failure in failures]
    return json.dumps(rows) if rows else ""


def watch_failures(home: Path, folders: Iterable[Path]) -> list[WatchFailure]:
    """Return the failures of the server that owns the folders.

    Where no server runs, return those that one would have now.
    """
    note = FolderOwner(home).owner_note()
    if note is None:
        return list(_find_failures([folder for folder in folders if os.path.isdir(folder)]))
    with suppress(ValueError, TypeError):
        return [WatchFailure(str(what), str(remedy)) for what, remedy in json.loads(note or "[]")]
    # '' is the note of an owner that can watch everything.
    return []


def _find_failures(folders: Sequence[Path]) -> Iterator[WatchFailure]:
    if not folders or not has_inotify():
        return
    effect = "A server could not watch the folders now, and would only scan them"
    try:
        with closing(InotifyEvents()) as events:
            for folder in folders:
                # The folders alone: watching all that lies below them takes too long for a check.
                events.watch_closing(folder)
    except OSError as error:
        yield _make_failure(effect, error, RESCAN_SECONDS)
