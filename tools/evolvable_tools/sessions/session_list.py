"""The sessions that clients have stored on this machine, the newest first."""

import os
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evolvable_store.errors import InvalidArgument
from evolvable_store.storage import IngestedSession
from evolvable_tools.sessions.gemini_format import is_subagent_of_gemini
from evolvable_tools.sessions.kimi_format import is_subagent_file, session_name
from evolvable_tools.sessions.opencode import split_database_path, stored_sessions, stored_state
from evolvable_tools.sessions.parser import Outline, outline
from evolvable_tools.sessions.session import NoTranscript, TranscriptNotRead
from evolvable_tools.sessions.session_documents import is_document_name

DEPTH = 5
"""Levels of folders below a place that are walked: Codex has one for each year, month and day.

It bounds the walk where a place is a whole disk.
"""

MAX_LIMIT = 1_000
_NO_SESSIONS = ("subagents", "memory", "tool-results")


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session with what is known of it.

    at: when it began, ISO 8601 in UTC, or when its file was written last. turns: messages of a
    person, without those that it has from another session. taken: yes, no, grown (ingested, and
    continued since), or skipped (a review of its own).
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
    """Sessions, the newest first. more: how many others there are."""

    sessions: list[ListedSession]
    more: int


def list_sessions(
    places: Iterable[Path],
    find_ingested: Callable[[str], IngestedSession | None],
    limit: int = 20,
    project: str | None = None,
    foreign: Callable[[str, Collection[int]], Collection[int]] = lambda session, keys: (),
) -> SessionPage:
    """Return the sessions below these folders, the newest first.

    find_ingested: returns what the library has of a session. project: only those that worked in
    this folder or below it; then `more` counts those that were not looked at. foreign: returns
    which of these keys another session owns. A message in several of the listed sessions that
    nobody owns yet counts for the file that was written first. Raises InvalidArgument for a limit
    out of range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(f"limit is {limit}.", f"It is between 1 and {MAX_LIMIT}.")
    listed: list[tuple[float, Path, Outline]] = []
    more = 0
    for modified, path in transcript_files(places):
        if len(listed) == limit:
            more += 1
            continue
        with suppress(NoTranscript, TranscriptNotRead, OSError):
            heading = outline(path)
            is_wanted = project is None or _works_in(heading.project, project)
            if heading.client != "messages" and is_wanted:
                listed.append((modified, path, heading))
    rows: list[ListedSession] = []
    owners: dict[int, str] = {}
    # The oldest first, so that a copied message counts for the file that had it first.
    for modified, path, heading in reversed(listed):
        turns = _count_own_turns(heading, foreign, owners)
        with suppress(OSError):
            ingested = find_ingested(heading.session_id)
            rows.append(_describe_session(path, modified, heading, turns, ingested))
    return SessionPage(rows[::-1], more)


def _count_own_turns(
    heading: Outline,
    foreign: Callable[[str, Collection[int]], Collection[int]],
    owners: dict[int, str],
) -> int:
    """Return how many messages of a session no other one owns.

    owners: of those that were listed before.
    """
    keys = [key for key in heading.typed if key is not None]
    others = set(foreign(heading.session_id, keys)) if keys else set()
    own = [
        key
        for key in keys
        if key not in others and owners.setdefault(key, heading.session_id) == heading.session_id
    ]
    return heading.typed.count(None) + len(own)


def _works_in(folder: str | None, project: str) -> bool:
    if folder is None:
        return False
    base = os.path.abspath(os.path.expanduser(project))
    return folder == base or folder.startswith(base.rstrip(os.sep) + os.sep)


def _describe_session(
    path: Path, modified: float, heading: Outline, turns: int, ingested: IngestedSession | None
) -> ListedSession:
    state = "no"
    if ingested is not None:
        state = "yes" if ingested.digest == heading.digest else "grown"
    stored = stored_state(path)
    size = path.stat().st_size if stored is None else stored.size
    at = heading.started or datetime.fromtimestamp(modified, UTC)
    about = (heading.client, heading.session_id, heading.project, at.isoformat(), turns, size)
    return ListedSession(*about, "skipped" if heading.reviewing else state, str(path))


def transcript_files(places: Iterable[Path]) -> list[tuple[float, Path]]:
    """Return (when it was written last, path) of the files that may be sessions, the newest first.
    Reads none.

    A session in the database of OpenCode has the path `opencode.db/ID`.
    """
    files: dict[str, tuple[float, Path]] = {}
    for place in places:
        files |= {str(path): (changed, path) for changed, path in stored_sessions(place)}
        for folder, below, names in os.walk(place):
            deep = len(Path(folder).relative_to(place).parts) >= DEPTH
            # Changing the list in place keeps os.walk out of these folders.
            below[:] = [] if deep else [name for name in below if name not in _NO_SESSIONS]
            candidates = (
                name for name in names if name.endswith(".jsonl") or is_document_name(name)
            )
            for path in (Path(folder, name) for name in candidates):
                with suppress(OSError):
                    if not _is_of_subagent(path):
                        # Two places may overlap, or be links to one folder.
                        files.setdefault(os.path.realpath(path), (path.stat().st_mtime, path))
    return sorted(files.values(), key=lambda item: (-item[0], str(item[1])))


def _is_of_subagent(path: Path) -> bool:
    """Return whether a file is read with the session that it belongs to."""
    return path.name.startswith("agent-") or is_subagent_file(path) or is_subagent_of_gemini(path)


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{5,100}")


def find_transcript(places: Iterable[Path], session: str) -> Path | None:
    """Return the newest transcript of a session, None without one: clients name the file after it,
    or its folder.
    """
    if not _ID.fullmatch(session):
        return None
    paths = (path for _, path in transcript_files(places))
    return next((path for path in paths if _is_of(path, session)), None)


def _is_of(path: Path, session: str) -> bool:
    """Return whether a file is named after a session; Gemini CLI has the first 8 characters of the
    id in the name.
    """
    # 36 characters: a UUID. A shorter name could begin like another session's id.
    is_gemini_name = path.name.startswith("session-") and len(session) >= 36
    if is_gemini_name and path.stem.endswith(f"-{session[:8]}"):
        return True
    return path.stem.endswith(session) or session in (path.parent.name, session_name(path))


def is_transcript_path(path: Path) -> bool:
    """Return whether a path names a file as clients write transcripts, or a session in the database
    of OpenCode.
    """
    return path.suffix in (".json", ".jsonl") or split_database_path(path) is not None
