"""The session that a hook of a client named last, for the server that the same client process
started.

Some clients, such as OpenCode, name their session to their hooks and not to their servers. Hook and
server find the client process above them by themselves, so no caller can speak for another.
"""

import contextlib
import os
from pathlib import Path

from evolvable_store import file_name, read_regular, write_private

MAX_NAMED = 200
"""Client processes that are remembered."""


def name_session(home: Path, connection: str | None, session: str) -> None:
    """Keep the session that a client process works in.

    Raise nothing: without it, each process has a session of its own.
    """
    if not connection or not session:
        return
    place = _make_path(home, connection)
    with contextlib.suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A client that named a session before replaces its own file.
        if not place.exists():
            _make_room(place.parent)
        write_private(place, session)


def named_session(home: Path, connection: str | None) -> str | None:
    """Return the session that a hook of this client process named last, None where none did."""
    if not connection:
        return None
    try:
        return read_regular(_make_path(home, connection)).decode("utf-8") or None
    except (OSError, ValueError):
        return None


def _make_path(home: Path, connection: str) -> Path:
    return home / "hooks" / "named" / file_name(connection)


def _make_room(folder: Path) -> None:
    places = sorted(folder.iterdir(), key=lambda place: place.stat().st_mtime, reverse=True)
    # The newest come first, so the oldest go.
    for place in places[MAX_NAMED - 1 :]:
        os.unlink(place)
