"""The sessions that clients have stored on this machine."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evolvable_store.errors import InvalidArgument
from evolvable_store.storage.observations import IngestedSession
from evolvable_tools.sessions import NoTranscript, codex_rollout, message_formats
from evolvable_tools.sessions.parser import Outline, first_words, outline

DEPTH = 5
"""Folders below a place in which sessions lie: Codex has one for each year, month and day."""

MAX_LIMIT = 1_000


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session as its file shows it. reviewing: nothing is learned from it."""

    path: Path
    client: str
    session_id: str
    modified: datetime
    size: int
    reviewing: bool


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session with what is known of it. at: when it began, ISO 8601 in UTC, or when its file was written last.

    taken: yes, no, grown (ingested, and continued since), or skipped (a review of its own).
    """

    client: str
    session: str
    project: str | None
    at: str
    turns: int
    size: int
    taken: str
    path: str


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, the newest first. more: how many there are besides."""

    sessions: list[ListedSession]
    more: int


def find_sessions(places: Iterable[Path]) -> Iterator[FoundSession]:
    """Yield the sessions below these folders, the one that was written last first, each once.

    Files that are no transcripts, cannot be read or belong to a subagent are left out.
    """
    for modified, path in _files(places):
        found = _found(path, modified)
        if found is not None:
            yield found


def list_sessions(
    places: Iterable[Path], taken: Callable[[str], IngestedSession | None], limit: int = 20, project: str | None = None
) -> SessionPage:
    """Return the sessions below these folders, the newest first. taken: what the library has of a session.

    project: only those that worked in this folder or below it; then `more` counts those that were not looked at.

    Raises InvalidArgument for a limit out of range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(f"limit is {limit}.", f"It is between 1 and {MAX_LIMIT}.")
    rows: list[ListedSession] = []
    more = 0
    for modified, path in _files(places):
        if len(rows) == limit:
            more += 1
            continue
        with suppress(NoTranscript, OSError):
            known = outline(path)
            if known.client != "messages" and (project is None or _works_in(known.project, project)):
                rows.append(_listed(path, modified, known, taken(known.session_id)))
    return SessionPage(rows, more)


def _works_in(folder: str | None, project: str) -> bool:
    base = os.path.abspath(os.path.expanduser(project))
    return folder is not None and (folder == base or folder.startswith(base.rstrip(os.sep) + os.sep))


def _listed(path: Path, modified: float, known: Outline, taken: IngestedSession | None) -> ListedSession:
    state = (
        "skipped" if known.reviewing else "no" if taken is None else "yes" if taken.digest == known.digest else "grown"
    )
    at = known.started or datetime.fromtimestamp(modified, UTC).isoformat()
    return ListedSession(
        known.client, known.session_id, known.project, at, known.turns, path.stat().st_size, state, str(path)
    )


def _found(path: Path, modified: float) -> FoundSession | None:
    try:
        known = first_words(path)
        size = path.stat().st_size
    except (NoTranscript, OSError):
        return None
    if known.client not in (message_formats.CLIENT, codex_rollout.CLIENT):
        return None
    return FoundSession(
        path, known.client, known.session_id, datetime.fromtimestamp(modified, UTC), size, known.reviewing
    )


def _files(places: Iterable[Path]) -> list[tuple[float, Path]]:
    """Return (when it was written last, path) of the files that may be sessions, the newest first."""
    found: dict[str, tuple[float, Path]] = {}
    for place in places:
        for folder, _, names in _walk(place):
            for name in names:
                path = Path(folder, name)
                with suppress(OSError):
                    if name.endswith(".jsonl") and not name.startswith("agent-"):
                        found.setdefault(os.path.realpath(path), (path.stat().st_mtime, path))
    return sorted(found.values(), key=lambda one: (-one[0], str(one[1])))


def _walk(place: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    base = str(place)
    for folder, below, names in os.walk(base):
        depth = len(Path(folder).relative_to(base).parts)
        below[:] = (
            [] if depth >= DEPTH else [name for name in below if name not in ("subagents", "memory", "tool-results")]
        )
        yield folder, below, names
