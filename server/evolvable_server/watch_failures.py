"""Why no events of the file system come, and what a person does about it.

The owner of the folders notes it beside its sign of life; `status` and `doctor` read it there.
Where no server runs, they find out whether one could watch the folders now.
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
    """What gives no events, and why; and what to do about it. Both are whole sentences."""

    what: str
    remedy: str

    @property
    def text(self) -> str:
        """Both as one text."""
        return f"{self.what} {self.remedy}"


def explain_failure(what: str, error: OSError, seconds: float) -> WatchFailure:
    """Explain why the system gives no events.

    what: `folders` or `library`. seconds: between two scans of the folders.
    """
    if what == "library":
        return _make_failure("The server cannot watch the library's log, and polls it", error)
    if error.errno in _UNREADABLE and error.filename:
        return _make_failure(
            f"{os.fsdecode(error.filename)} is not watched, and only scanned", error, seconds
        )
    return _make_failure("The folders are not watched, and only scanned", error, seconds)


def _make_failure(effect: str, error: OSError, seconds: float = 0) -> WatchFailure:
    why, remedy = _reason(error)
    interval = f" every {seconds:g} seconds" if seconds else ""
    return WatchFailure(
        f"{effect}{interval}: {why}.", f"{remedy} The server tries again by itself."
    )


def _reason(error: OSError) -> tuple[str, str]:
    """Return why, without a full stop, and what to do."""
    # EMFILE stands for two limits: open files, and the inotify instances of the account.
    if error.errno == errno.EMFILE and not _is_file_limit():
        return _limit("instances", "no inotify instance is left for this account")
    if error.errno == errno.ENOSPC:
        return _limit("watches", "no inotify watch is left for this account")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "no more files can be opened", "Raise the limit of open files (`ulimit -n`)."
    if error.errno in _UNREADABLE and error.filename:
        return error.strerror or str(
            error
        ), f"Let this account read it: chmod u+rx {os.fsdecode(error.filename)}."
    return error.strerror or str(
        error
    ), "Programs that watch many files, and network disks, are frequent causes."


def _limit(kind: str, why: str) -> tuple[str, str]:
    name, narrower = f"fs.inotify.max_user_{kind}", f"user.max_inotify_{kind}"
    limit, within = _setting(name), _setting(narrower)
    # Four times the limit, because other programs of the account watch files too.
    remedy = (
        "Close programs that watch files, or raise the limit: sudo sysctl "
        f"{name}={max(512, 4 * (limit or 0))}."
    )
    if within is not None and limit is not None and within < limit:
        container = f"Raise {narrower} of the container as well."
        return f"{why} ({narrower} is {within} in this container)", f"{remedy} {container}"
    return f"{why} ({name} is {'unknown' if limit is None else limit})", remedy


def _setting(name: str) -> int | None:
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
    """Return what the server that owns the folders cannot watch.

    Where no server runs, return what one could not watch now.
    """
    note = FolderOwner(home).owner_note()
    if note is None:
        return list(_failures_now([folder for folder in folders if os.path.isdir(folder)]))
    with suppress(ValueError, TypeError):
        return [WatchFailure(str(what), str(remedy)) for what, remedy in json.loads(note or "[]")]
    # '' is the note of an owner that can watch everything.
    return []


def _failures_now(folders: Sequence[Path]) -> Iterator[WatchFailure]:
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
