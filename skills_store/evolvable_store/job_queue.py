"""Puts a session into the queue of reviews, while its client waits: standard library only, and as little of it as can
be. What is done with the queue later is `review_queue`."""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress

KEYS = ("session_id", "transcript_path", "cwd", "client", "event", "time")
"""What an entry of the queue says, all texts."""

MAX_WAITING = 500
"""Entries that wait; when another session comes the oldest gives way."""

MAX_TEXT = 4_096
"""Characters of one text of an entry."""


def enqueue(home: str, event: Mapping[str, object]) -> bool:
    """Queues the session of an event for review; returns False when it names none, or there is no library.

    One file for each session, `home/reviews/queue/NAME.json`, which is replaced whole: a reader sees the old entry or
    the new one. A later event updates the entry; what it does not say is kept. Raises OSError.
    """
    session = event.get("session_id")
    if not isinstance(session, str) or not session or not os.path.isdir(home):
        return False
    folder = os.path.join(home, "reviews", "queue")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    place = os.path.join(folder, f"{file_name(session)}.json")
    before = read_entry(place)
    if before is None:
        _make_room(folder)
    said = {key: value[:MAX_TEXT] for key in KEYS if isinstance(value := event.get(key), str) and value}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    _replace(place, json.dumps({**(before or {}), **said, "time": now}))
    return True


def file_name(session: str) -> str:
    """Returns a name for the files of a session: itself where that is safe on every system, else its hash."""
    plain = len(session) <= 100 and session.isascii() and session.replace("-", "").replace("_", "").isalnum()
    if plain and not (len(session) <= 4 and _is_device(session)):
        return session
    import hashlib

    return "h" + hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()


def _is_device(session: str) -> bool:
    from evolvable_store.paths import RESERVED_NAMES

    return session.lower() in RESERVED_NAMES


def read_entry(place: str) -> dict[str, str] | None:
    """Returns the entry in a file, None when there is none or it is broken. Raises nothing."""
    try:
        with open(place, encoding="utf-8") as file:
            entry = json.loads(file.read(64 * MAX_TEXT))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("session_id"), str):
        return None
    return {key: value for key in KEYS if isinstance(value := entry.get(key), str)}


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _replace(place: str, text: str) -> None:
    draft = f"{place}.{os.getpid()}-{time.time_ns():x}.new"
    try:
        with open(draft, "x", encoding="utf-8", opener=_open_private) as file:
            file.write(text)
        os.replace(draft, place)
    except OSError:
        with suppress(OSError):
            os.unlink(draft)
        raise


def _make_room(folder: str) -> None:
    entries = [entry for entry in os.scandir(folder) if entry.name.endswith(".json")]
    ages = {}
    for entry in entries if len(entries) >= MAX_WAITING else ():
        with suppress(OSError):
            ages[entry.path] = entry.stat().st_mtime_ns
    for path in sorted(ages, key=ages.__getitem__)[: max(0, len(entries) - MAX_WAITING + 1)]:
        with suppress(OSError):
            os.unlink(path)
