"""Sessions that wait for a review. Each entry is taken by one process, once; `queueing` puts them in."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.job_queue import KEYS, read_entry

RECLAIM_SECONDS = 3_600.0
"""Seconds after which an entry that was taken and not finished counts as forgotten: its process is gone."""


@dataclass(frozen=True, slots=True)
class QueuedSession:
    """One session to review: what its client said of it, '' where it said nothing. at: ISO 8601 in UTC."""

    session: str
    transcript: str
    cwd: str
    client: str
    event: str
    at: str
    place: Path


def waiting_sessions(home: Path) -> list[QueuedSession]:
    """Returns the entries that nobody has taken, the oldest first. Broken files are left out."""
    return [entry for path in _by_age(home / "reviews/queue", ".json") if (entry := _read(path)) is not None]


def take_session(home: Path, session: str | None = None) -> QueuedSession | None:
    """Returns the oldest entry, or that of a session, which nobody else gets any more; None when there is none.

    Say `finish` when its review is done, or `give_back`. Raises OSError when the library cannot be written.
    """
    folder = home / "reviews/taken"
    for entry in waiting_sessions(home):
        if session not in (None, entry.session):
            continue
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = folder / f"{entry.place.stem}.{os.getpid()}-{time.time_ns():x}.json"
        # Of several who rename one file one succeeds. A later event may have replaced it since it was read.
        with suppress(FileNotFoundError):
            os.rename(entry.place, target)
            os.utime(target)
            taken = _read(target)
            if taken is not None:
                return taken
            target.unlink()
    return None


def finish_session(entry: QueuedSession) -> None:
    """Forgets an entry that was taken; a session that went on since has a new one."""
    entry.place.unlink(missing_ok=True)


def give_back(home: Path, entry: QueuedSession) -> None:
    """Lets an entry that was taken wait again, unless its session went on and has a newer one."""
    place = home / "reviews/queue" / f"{entry.place.name.partition('.')[0]}.json"
    with suppress(FileNotFoundError):
        if place.exists():
            entry.place.unlink()
        else:
            os.replace(entry.place, place)


def reclaim(home: Path, older: float = RECLAIM_SECONDS) -> int:
    """Gives back what was taken so many seconds ago and never finished, removes forgotten drafts; returns how many.

    older: 0 for who alone takes entries, to whom whatever is taken was left by a process that is gone.
    """
    since = time.time() - RECLAIM_SECONDS
    taken = _by_age(home / "reviews/taken", ".json")
    forgotten = [path for path in taken if older <= 0 or path.stat().st_mtime < time.time() - older]
    for path in forgotten:
        entry = _read(path)
        if entry is not None:
            give_back(home, entry)
        path.unlink(missing_ok=True)
    for draft in _by_age(home / "reviews/queue", ".new"):
        with suppress(OSError):
            if draft.stat().st_mtime < since:
                draft.unlink()
    return len(forgotten)


def _by_age(folder: Path, suffix: str) -> list[Path]:
    found: list[tuple[int, Path]] = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                if entry.name.endswith(suffix):
                    found.append((entry.stat().st_mtime_ns, Path(entry.path)))
    return [path for _, path in sorted(found)]


def _read(place: Path) -> QueuedSession | None:
    said = read_entry(str(place))
    if said is None:
        return None
    session, transcript, cwd, client, event, at = (said.get(key, "") for key in KEYS)
    return QueuedSession(session, transcript, cwd, client, event, at, place)
