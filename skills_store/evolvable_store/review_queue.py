"""The queue of sessions that wait for a review.

A hook calls `enqueue` while its client waits, so this module imports little of the standard library
and nothing else.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress

EVENT_KEYS = ("session_id", "transcript_path", "cwd", "client", "event", "time")
"""The fields of an event, all texts."""

KEYS = (*EVENT_KEYS, "tries", "why")
"""The fields of a queue entry.

tries: how many reviews of it failed since its last event. why: the reason of the last failure.
"""

# Bounds the folder where no review ever runs.
MAX_WAITING = 500
"""Entries that wait; another one replaces the oldest."""

# The longest path that Linux takes.
MAX_TEXT = 4_096
"""Characters of one text of an entry."""


def enqueue(home: str, event: Mapping[str, object]) -> bool:
    """Queue the session of an event for review; return whether it was queued.

    It is not without a session or a library. One file for each session,
    `home/reviews/queue/NAME.json`, which is replaced whole: a reader sees the old entry or the new
    one. A later event updates the entry; keys that it lacks keep their values. Raises OSError.
    """
    session = event.get("session_id")
    # Without a library the hook must not make a home that nobody asked for.
    if not isinstance(session, str) or not session or not os.path.isdir(home):
        return False
    folder = _locate_folder(home, "queue")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    place = os.path.join(folder, f"{file_name(session)}.json")
    before = read_entry(place)
    updates = {
        key: value[:MAX_TEXT]
        for key in EVENT_KEYS
        if isinstance(value := event.get(key), str) and value
    }
    # Without `tries` and `why`: after a new event the session is reviewed as a new one.
    previous = {key: value for key, value in (before or {}).items() if key in EVENT_KEYS}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    _replace(place, json.dumps({**previous, **updates, "time": now}))
    if before is None:
        # Only now: on a full disk no entry is deleted for one that could not be written.
        _make_room(folder)
    return True


def file_name(session: str) -> str:
    """Return a name for the files of a session.

    It is the session itself where that is safe on every system, else its hash.
    """
    # 100 characters leave room for the process number, the time and the suffixes of drafts.
    is_short = len(session) <= 100 and session.isascii()
    is_plain = is_short and session.replace("-", "").replace("_", "").isalnum()
    if is_plain and not (len(session) <= 4 and _is_device(session)):
        return session
    # Late: nearly every session has a plain UUID, and the client waits for this import.
    import hashlib

    return "h" + hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()


def _is_device(session: str) -> bool:
    from evolvable_store.paths import RESERVED_NAMES

    return session.lower() in RESERVED_NAMES


def read_entry(place: str) -> dict[str, str] | None:
    """Return the entry in a file, None when there is none or it is broken.

    Raises OSError for one that cannot be read now and may be readable later.
    """
    # As for the first event of each session; a client waits, so no more is imported.
    if not os.path.lexists(place):
        return None
    from evolvable_store.errors import may_pass
    from evolvable_store.regular_files import regular_file

    try:
        with open(place, encoding="utf-8", opener=regular_file) as file:
            # More than the eight texts of an entry with every character escaped; a huge file is
            # read no further.
            entry = json.loads(file.read(64 * MAX_TEXT))
    except OSError as error:
        if may_pass(error):
            raise
        return None
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("session_id"), str):
        return None
    return {key: value for key in KEYS if isinstance(value := entry.get(key), str)}


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _replace(place: str, text: str) -> None:
    # The process number and the time keep drafts of several hooks apart; .new keeps them out of the
    # queue.
    draft = f"{place}.{os.getpid()}-{time.time_ns():x}.new"
    try:
        with open(draft, "x", encoding="utf-8", opener=_open_private) as file:
            file.write(text)
        # Not flushed to the disk: a lost event costs one review, a flush would delay every turn of
        # the client.
        os.replace(draft, place)
    except OSError:
        with suppress(OSError):
            os.unlink(draft)
        raise


def _make_room(folder: str) -> None:
    # Without the times of the entries, as nearly always: a client waits.
    if len(os.listdir(folder)) <= MAX_WAITING:
        return
    waiting = _list_by_age(folder, ".json")
    for path in waiting[: max(0, len(waiting) - MAX_WAITING)]:
        with suppress(OSError):
            os.unlink(path)


def _list_by_age(folder: str, suffix: str) -> list[str]:
    """Return the files with this suffix, the oldest first."""
    dated: list[tuple[int, str]] = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                if entry.name.endswith(suffix):
                    dated.append((entry.stat().st_mtime_ns, entry.path))
    return [path for _, path in sorted(dated)]


# After a crash an entry waits so long; a shorter time could let two processes review one session.
RECLAIM_SECONDS = 3_600.0
"""Seconds after which an entry that was taken and not finished counts as abandoned."""


class QueuedSession:
    """One session to review, with the texts of its last event, '' for a missing one.

    at: ISO 8601 in UTC. tries: reviews that failed. why: the reason of the last failure. place: the
    file of the entry.
    """

    __slots__ = ("session", "transcript", "cwd", "client", "event", "at", "tries", "why", "place")

    def __init__(self, entry: Mapping[str, str], place: str) -> None:
        texts = (entry.get(key, "") for key in EVENT_KEYS)
        self.session, self.transcript, self.cwd, self.client, self.event, self.at = texts
        tries = entry.get("tries", "")
        # A file that was edited by hand may hold any text here.
        self.tries = int(tries) if len(tries) == 1 and tries in "123456789" else 0
        self.why, self.place = entry.get("why", ""), place

    def seconds_waiting(self) -> float:
        """Return how many seconds ago the entry was written.

        An event writes it, and a review that fails.
        """
        try:
            return time.time() - os.stat(self.place).st_mtime
        except OSError:
            return 0.0


def waiting_sessions(home: "str | os.PathLike[str]") -> list[QueuedSession]:
    """Return the entries that no process has taken, the oldest first.

    Those that are broken or cannot be read are left out.
    """
    sessions: list[QueuedSession] = []
    for path in _list_by_age(_locate_folder(home, "queue"), ".json"):
        with suppress(OSError):  # it stays, and is read the next time
            if (entry := _read(path)) is not None:
                sessions.append(entry)
    return sessions


def take_session(
    home: "str | os.PathLike[str]", session: str | None = None
) -> QueuedSession | None:
    """Take the oldest entry, or that of a session, so that no other process gets it.

    None when there is none. Call `finish_session` when its review is done, or `give_back`. Raises
    OSError when the library cannot be written.
    """
    folder = _locate_folder(home, "taken")
    for entry in waiting_sessions(home):
        if session not in (None, entry.session):
            continue
        os.makedirs(folder, mode=0o700, exist_ok=True)
        name = os.path.basename(entry.place).removesuffix(".json")
        target = os.path.join(folder, f"{name}.{os.getpid()}-{time.time_ns():x}.json")
        # Of several who rename one file one succeeds. A later event may have replaced it since it
        # was read.
        with suppress(FileNotFoundError):
            os.rename(entry.place, target)
            # The time of taking, from which `reclaim` counts; a rename keeps the old time.
            os.utime(target)
            try:
                queued = _read(target)
            except OSError:
                # It can be read later: back into the queue, where the next call finds it.
                os.replace(target, entry.place)
                raise
            if queued is not None:
                return queued
            # Broken: nobody can review it.
            os.unlink(target)
    return None


def finish_session(entry: QueuedSession) -> None:
    """Delete an entry that was taken; a session that continued since has a new one."""
    _remove(entry.place)


def give_back(home: "str | os.PathLike[str]", entry: QueuedSession, failure: str = "") -> None:
    """Let an entry that was taken wait again, unless its session continued and has a newer one.

    failure: why its review failed, which is noted in the entry and counted; '' where there was no
    try.
    """
    name = os.path.basename(entry.place).partition(".")[0]
    place = os.path.join(_locate_folder(home, "queue"), f"{name}.json")
    if failure and (stored := read_entry(entry.place)) is not None:
        # One digit: a reader takes any other text for no try.
        tries = str(min(9, entry.tries + 1))
        updated = {**stored, "tries": tries, "why": failure[:MAX_TEXT]}
        _replace(entry.place, json.dumps(updated))
    with suppress(FileNotFoundError):
        # The newer event knows more of the session; the entry that was taken is superseded.
        if os.path.exists(place):
            os.unlink(entry.place)
        else:
            os.replace(entry.place, place)


def reclaim(home: "str | os.PathLike[str]", older: float = RECLAIM_SECONDS) -> int:
    """Give back entries that were taken `older` seconds ago and never finished; delete old drafts.

    Return how many entries there were. older: 0 for the only process that takes entries: then every
    taken one was left by a process that ended.
    """
    since = time.time() - RECLAIM_SECONDS
    taken_files = _list_by_age(_locate_folder(home, "taken"), ".json")
    # The time of the file is the time of taking (see `take_session`).
    abandoned = [
        path for path in taken_files if older <= 0 or os.stat(path).st_mtime < time.time() - older
    ]
    for path in abandoned:
        try:
            entry = _read(path)
        except OSError:
            continue  # it stays taken, and is read the next time
        if entry is not None:
            give_back(home, entry)
        _remove(path)
    for draft in _list_by_age(_locate_folder(home, "queue"), ".new"):
        with suppress(OSError):
            if os.stat(draft).st_mtime < since:
                os.unlink(draft)
    return len(abandoned)


def _locate_folder(home: "str | os.PathLike[str]", name: str) -> str:
    return os.path.join(home, "reviews", name)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _read(place: str) -> QueuedSession | None:
    entry = read_entry(place)
    return None if entry is None else QueuedSession(entry, place)
