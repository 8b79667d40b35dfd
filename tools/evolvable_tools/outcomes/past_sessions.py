"""Learn from the transcripts that clients have written: each file once, again where it has grown.

The oldest is read first, so that a fork repeats what the session that it began in taught. What a
killed run has read is stored with its end of each file, and the next run goes on there.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_store import regular_file
from evolvable_store.errors import LibraryReadOnly
from evolvable_tools.library import Library
from evolvable_tools.outcomes.ingest import session_name, taught_by_prompts
from evolvable_tools.redaction import Redactor
from evolvable_tools.sessions import (
    NoTranscript,
    TranscriptNotRead,
    read_session,
    stored_state,
    transcript_files,
)

# Bounds the memory: a transcript is read whole.
MAX_BYTES = 256 * 1024 * 1024
"""Bytes of a transcript that is read; a larger one is left out."""

_PART = 1 << 20  # bytes read at once while signs are looked for

# A search for bytes costs far less than reading a session, and most sessions opened no skill.
_SIGNS = (b'"Skill"', b"SKILL.md", b"load_skill", b"skills", b"attributionSkill")
"""One of these stands in every transcript that opens a skill, beside the names of the watched
folders.
"""


@dataclass(frozen=True, slots=True)
class PastSessions:
    """The result of a run over transcripts.

    found: transcripts that clients have written. read: those of them that were new or had grown.
    opened: of these, those whose prompts teach a skill. learned: tasks that are new. unreadable:
    files that are no transcript, are links, or are too large.
    """

    found: int
    read: int
    opened: int
    learned: int
    unreadable: int


def count_transcripts(places: Iterable[Path]) -> int:
    """Return how many transcripts clients have written below these folders. No file is opened."""
    return len(transcript_files(places))


def learn_from_past(
    library: Library,
    places: Iterable[Path],
    *,
    redactor: Redactor,
    home: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    stop: Callable[[], bool] = lambda: False,
) -> PastSessions:
    """Store what the transcripts below these folders teach, and return the counts.

    home: what `~` means in a session's commands. progress: is given how many files are done, and of
    how many. stop: is asked before each file. Raises LibraryReadOnly, and LibraryBusy while another
    process writes; what was stored by then stays, and the next call goes on behind it.
    """
    if library.store.read_only:
        raise LibraryReadOnly(
            "The library cannot be written, so nothing was read.", "Open it where it can be."
        )
    learned = library.store.backend.learned
    files = [path for _, path in reversed(transcript_files(places))]
    folders = library.folders()
    signs = (*_SIGNS, *{os.fsencode(folder.path.name) for folder in folders})
    # Another folder brings skills that the files may name: they are read again.
    watched = _hash("\n".join(sorted(f"{folder.scope} {folder.path}" for folder in folders)))[:16]
    read = opened = new = unreadable = 0
    for number, path in enumerate(files):
        if stop():
            break
        progress(number, len(files))
        # A hash, since a path may hold the name of a person or a project.
        name = _hash(os.path.abspath(path))
        try:
            status = _read_status(path)
            if status is None:
                unreadable += 1
                continue
            status = f"{status} {watched}"
            # Read before, with the same size, time and watched folders.
            if learned.is_read(name, status):
                continue
            session = read_session(path, redactor=redactor) if _may_open(path, signs) else None
        except (NoTranscript, TranscriptNotRead, OSError):
            unreadable += 1
            continue
        # A list of messages names its own origins: no client wrote it.
        of_client = session if session is not None and session.client != "messages" else None
        tasks = taught_by_prompts(library, of_client, home=home) if of_client is not None else []
        identity = session_name(of_client) if of_client is not None else ""
        # One transaction for each file: a killed run goes on behind the last one.
        new += learned.take_transcript(name, status, identity, tasks)
        read, opened = read + 1, opened + bool(tasks)
    progress(len(files), len(files))
    return PastSessions(len(files), read, opened, new, unreadable)


def _hash(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()


def _read_status(path: Path) -> str | None:
    """Return a text that changes when a transcript does.

    None for a link, for what is no file, and for what is too large.

    Raises OSError, and NoTranscript and TranscriptNotRead for a session in a database.
    """
    if (stored := stored_state(path)) is not None:
        return f"{stored.size} {stored.changed}" if stored.size <= MAX_BYTES else None
    # `lstat`: a link is no transcript, wherever it leads.
    main, *others = map(os.lstat, _list_files(path))
    size = main.st_size + sum(file_status.st_size for file_status in others)
    if not stat.S_ISREG(main.st_mode) or size > MAX_BYTES:
        return None
    return f"{size} {max(file_status.st_mtime_ns for file_status in (main, *others))}"


def _list_files(path: Path) -> list[Path]:
    """Return the files of a session: its own, and one for each of its subagents."""
    return [path, *sorted((path.with_suffix("") / "subagents").rglob("agent-*.jsonl"))]


def _may_open(path: Path, signs: Sequence[bytes]) -> bool:
    """Return whether a session may have opened a skill; one in a database is read to know.

    Raises OSError.
    """
    return stored_state(path) is not None or any(
        _has_sign(file, signs) for file in _list_files(path)
    )


def _has_sign(path: Path, signs: Sequence[bytes]) -> bool:
    """Return whether one of these texts stands in a file. Raises OSError."""
    longest, before = max(map(len, signs)), b""
    with open(path, "rb", opener=regular_file) as file:
        while part := file.read(_PART):
            text = before + part
            if any(sign in text for sign in signs):
                return True
            # A sign may lie across two parts.
            before = text[-longest:]
    return False
