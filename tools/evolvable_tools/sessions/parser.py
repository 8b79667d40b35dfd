"""The parser of transcripts: reads JSON lines one by one, redacts them first, and gives each piece its origin.

It skips a line that is no JSON object. It recognises sessions that are reviews or observe another session, and lists
the sessions that clients have stored on this machine.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from evolvable_store import read_regular
from evolvable_store.errors import InvalidArgument, may_pass
from evolvable_store.storage import IngestedSession
from evolvable_tools.redaction import Redactor, StreamRedactor
from evolvable_tools.sessions.copies import MAX_ROW, MIN_UNIQUE, row_key
from evolvable_tools.sessions.json_lines import read_records
from evolvable_tools.sessions.kimi_format import is_subagent_file, session_name
from evolvable_tools.sessions.message_list import MessageListFormat
from evolvable_tools.sessions.opencode import (
    OpenCodeFormat,
    read_opencode,
    split_database_path,
    stored_sessions,
    stored_state,
)
from evolvable_tools.sessions.readable import HINT, check_readable, count_message
from evolvable_tools.sessions.readers import reader_of
from evolvable_tools.sessions.session import (
    NoTranscript,
    RawPiece,
    Session,
    SessionHeading,
    Span,
    SubagentRun,
    TranscriptInfo,
    TranscriptNotRead,
    as_text,
    parse_json,
)
from evolvable_tools.sessions.session_documents import is_document_name, read_document
from evolvable_tools.sessions.taint import TABLES, QuoteTracker
from evolvable_tools.sessions.transcript_formats import TranscriptFormat
from evolvable_tools.untrusted_text import REVIEWING_MARK

READ = 4_000
"""Characters of a session's first messages that are looked at."""

_PROMPTS = re.compile("|".join((rf"(?:<|\b){REVIEWING_MARK}\b", *TABLES["reviewing"]["first_words"])), re.IGNORECASE)
_FOLDERS = re.compile(r"[/\\]\.claude-mem(?:[/\\]|$)|[/\\]observer-sessions(?:[/\\]|$)")


def is_reviewing(first_words: str, project: str | None) -> bool:
    """Return whether a session is a reviewing one, by the first words it was given and the folder it worked in."""
    folder = _FOLDERS.search(project) if project is not None else None
    return (folder or _PROMPTS.search(first_words[:READ])) is not None


MAX_TEXT = 200_000
"""Characters that are kept of one span: of a longer one the beginning and the end, after it was redacted."""

MAX_NOTED = 64 * 1024
"""Bytes of the note that lies beside a subagent's file."""

FIRST = 50
"""Lines in which a file shows whose it is."""

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
_NAMES = _SAFE | frozenset("@/+")


@dataclass(frozen=True, slots=True)
class Outline(SessionHeading):
    """A session without its texts. typed: the keys of a person's messages."""

    typed: tuple[int | None, ...]


def read_session(source: Path | str | Iterable[Mapping[str, Any]], *, redactor: Redactor | None = None) -> Session:
    """Return the session in a transcript: a path to a client's file, or a list of messages {role, content}.

    The work of a subagent in its own file comes at the place of its start. Broken, unknown and half written lines are
    left out. Raises NoTranscript for what is no transcript or is not there, TranscriptNotRead for what cannot be read
    now, UnreadableMessages, and OSError when the disk fails in the middle.
    """
    digest = hashlib.sha256()
    if isinstance(source, Path | str):
        path = Path(source)
        name, stem = ascii(path.name), _stem(path)
        reader, pieces = _opened(path, digest)
        pieces = _with_subagents(path, pieces, digest, reader)
    else:
        name, stem = "The list of messages", ""
        reader = MessageListFormat()
        pieces = _read(reader, _noted(source, digest))
    stream = StreamRedactor(redactor or Redactor())
    redacted = [_redact(piece, stream) for piece in pieces]
    check_readable(reader.about, name)
    return _session(reader.about, tuple(_spans(_redacted_again(redacted, stream))), stream, digest.hexdigest(), stem)


def outline(path: Path) -> Outline:
    """Return what the session in a file is, without redacting or keeping its texts. Raises as `read_session`."""
    digest = hashlib.sha256()
    reader, pieces = _opened(path, digest)
    typed: list[int | None] = []
    first = ""
    for piece in _with_subagents(path, pieces, digest, reader):
        if piece.typed:
            typed.append(piece.key)
        if not first and piece.role == "user":
            first = piece.text[:READ]
    check_readable(reader.about, ascii(path.name))
    about, identity = reader.about, _named(reader.about, _stem(path))
    reviewing = about.reviewing or is_reviewing(first, about.project)
    return Outline(about.client, identity, about.project, about.started, digest.hexdigest(), reviewing, tuple(typed))


def _opened(path: Path, digest: Any) -> tuple[TranscriptFormat, Iterator[RawPiece]]:
    """Return the reader of a file, or of a session in a database, and its pieces.

    Raises NoTranscript, TranscriptNotRead.
    """
    if (named := split_database_path(path)) is not None:
        opencode = OpenCodeFormat()
        return opencode, _read(opencode, read_opencode(*named, digest))
    try:
        document = read_document(path, digest) if path.suffix == ".json" else None
        if document is not None:
            return document[0], _read(*document)
        lines = read_records(path, digest)
        first = list(islice(lines, FIRST))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is no path"
        kind, hint = (TranscriptNotRead, "Try again.") if may_pass(error) else (NoTranscript, HINT)
        raise kind(f"{ascii(path.name)} cannot be read: {why}.", hint) from None
    reader = reader_of(first)
    return reader, _read(reader, chain(first, lines))


def _read(reader: TranscriptFormat, lines: Iterable[Mapping[str, Any]]) -> Iterator[RawPiece]:
    """Yield the pieces of lines, each line once: clients write earlier ones again when they compact or resume."""
    about, seen = reader.about, set[str]()
    last: RawPiece | None = None
    for record in reader.whole(lines):
        row = reader.row_of(record)
        if row is not None and row in seen:
            continue
        if row is not None and len(row) <= MAX_ROW:
            seen.add(row)
        spent, known = about.tokens or 0, about.known
        pieces = [piece for piece in reader.read(record) if not _is_replay(piece, seen)]
        about.skipped += about.known == known
        count_message(reader.about, reader.message_of(record), pieces)
        for piece in pieces:
            piece.key = row_key(piece, row)
        payer = pieces[0] if pieces else last
        if payer is not None:
            payer.tokens += (about.tokens or 0) - spent
        last = pieces[-1] if pieces else last
        yield from pieces


def _is_replay(piece: RawPiece, seen: set[str]) -> bool:
    """Return whether a piece is a call that an earlier line had, and note it."""
    if piece.input is None or not piece.call_id or not MIN_UNIQUE <= len(piece.call_id) <= MAX_ROW:
        return False
    call = f"call {piece.call_id}"
    if call in seen:
        return True
    seen.add(call)
    return False


def _noted(messages: Iterable[Mapping[str, Any]], digest: Any) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        if isinstance(message, Mapping):
            digest.update(json.dumps(message, sort_keys=True, default=str).encode("utf-8", "replace") + b"\n")
            yield message


def _with_subagents(
    path: Path, pieces: Iterator[RawPiece], digest: Any, reader: TranscriptFormat
) -> Iterator[RawPiece]:
    """Yield a file's pieces, and what each subagent noted in a file of its own, whole, where it was begun."""
    waiting = sorted(_subagents(path, digest, reader), key=lambda found: found[0])
    for piece in pieces:
        while waiting and piece.at is not None and waiting[0][0] < piece.at.isoformat():
            yield from waiting.pop(0)[1]
        yield piece
    for _, rest in waiting:
        yield from rest


def _subagents(path: Path, digest: Any, session: TranscriptFormat) -> Iterator[tuple[str, list[RawPiece]]]:
    about = session.about
    for agent, file in session.subagent_files(path):
        reader = type(session)(agent)
        try:
            pieces = list(_read(reader, read_records(file, digest)))
        except OSError as error:
            if may_pass(error):
                raise TranscriptNotRead(f"{ascii(file.name)} cannot be read: {error.strerror}.", "Try again.") from None
            continue
        _learn_launch(file, about)
        for run in reader.about.subagents.values():
            about.learn_subagent(run.agent, name=run.name, call_id=run.call_id or "", prompt=run.prompt)
        if pieces:
            begun = next((piece.at.isoformat() for piece in pieces if piece.at), "")
            yield begun, [replace(piece, typed=False, tokens=0) for piece in pieces]


def _learn_launch(file: Path, about: TranscriptInfo) -> None:
    """Read what the client noted beside a subagent's file: the type that it was started as, and by which call."""
    noted = file.with_suffix(".meta.json")
    try:
        said = parse_json(read_regular(noted, MAX_NOTED).decode("utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(said, dict):
        name, call = as_text(said.get("agentType")) or "", as_text(said.get("toolUseId")) or ""
        about.learn_subagent(file.stem.removeprefix("agent-")[:80], name=name, call_id=call)


def _redact(piece: RawPiece, stream: StreamRedactor) -> RawPiece:
    """Take the secrets out of a piece, and return it. Only what a tool printed goes on from what it printed before."""
    if piece.text:
        piece.text = stream.redact(piece.text, piece.follows if piece.role == "tool" else None)
    if piece.input is not None:
        piece.input = stream.redact_value(piece.input)
    piece.tool, piece.call_id = _name(piece.tool), _name(piece.call_id)
    piece.model, piece.skill, piece.agent = _name(piece.model), _name(piece.skill), _name(piece.agent)
    return piece


def _redacted_again(pieces: Iterable[RawPiece], stream: StreamRedactor) -> Iterator[RawPiece]:
    """Yield the pieces without secrets that only a later one showed to be secrets, cut to a length worth keeping."""
    for piece in pieces:
        piece.text, piece.input = _short(stream.again(piece.text)), stream.again_value(piece.input)
        yield piece


_CARRIED = attrgetter("at", "tool", "call_id", "is_error", "model", "input", "skill", "agent", "key", "tokens")


def _spans(pieces: Iterable[RawPiece]) -> Iterator[Span]:
    """Yield spans: numbered, counted by turns, and divided at what they quote."""
    quotes = QuoteTracker()
    index = turn = unpaid = 0
    for piece in pieces:
        turn += piece.typed
        piece.tokens, unpaid = piece.tokens + unpaid, 0
        quotes.note(piece.input)
        parts = quotes.divided(piece.text, piece.origin, whole=piece.role == "tool") if piece.text.strip() else []
        if not parts and (piece.input is not None or piece.call_id is not None):
            parts = [(piece.text, piece.origin)]
        if not parts:
            unpaid = piece.tokens
        for text, origin in parts:
            yield Span(index, turn, piece.role, origin, text, *_CARRIED(piece))
            index, piece.tokens = index + 1, 0


def _session(about: TranscriptInfo, spans: tuple[Span, ...], stream: StreamRedactor, digest: str, stem: str) -> Session:
    first = next((span.text[:READ] for span in spans if span.role == "user"), "")
    return Session(
        client=about.client,
        session_id=_named(about, stem or digest[:16]),
        project=about.project and stream.redact(about.project[:1_000]),
        started=about.started,
        spans=spans,
        digest=digest,
        redactions=dict(sorted(stream.counts.items())),
        tokens=about.tokens,
        model=_name(about.model),
        reviewing=about.reviewing or is_reviewing(first, about.project),
        commit=about.commit,
        skipped=about.skipped,
        subagents=tuple(_redacted_run(run, stream) for run in about.subagents.values() if run.name),
    )


def _redacted_run(run: SubagentRun, stream: StreamRedactor) -> SubagentRun:
    """Return a run without secrets. The name is the model's choice, so it may hold one too."""
    prompt = stream.redact(run.prompt) if run.prompt else ""
    return SubagentRun(_name(run.agent) or "", _name(stream.redact(run.name)) or "", _name(run.call_id), prompt)


def _short(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    head = MAX_TEXT * 2 // 3
    return f"{text[:head]}\n[… {len(text) - MAX_TEXT:,} characters …]\n{text[head - MAX_TEXT :]}"


def _name(value: str | None) -> str | None:
    """Return a name as it may be kept: of plain characters, of a length that names have."""
    if not value or (len(value) <= 200 and _NAMES.issuperset(value)):
        return value
    return "".join(char for char in value[:200] if char in _NAMES)


def _stem(path: Path) -> str:
    """Return what a file says of its session by its name, or by its folder."""
    return session_name(path) or path.stem


def _named(about: TranscriptInfo, otherwise: str) -> str:
    """Return a session's id: the file's own name where a line says so too, or where no line has a plain one."""
    identity = otherwise if otherwise in about.names else about.session_id
    fits = identity and len(identity) <= 128 and _SAFE.issuperset(identity)
    return identity if fits else "".join(char for char in otherwise if char in _SAFE)[:128] or "session"


# Sessions that clients have stored on this machine

DEPTH = 5
"""Folders below a place in which sessions lie: Codex has one for each year, month and day."""

MAX_LIMIT = 1_000
_NO_SESSIONS = ("subagents", "memory", "tool-results")


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session with what is known of it. at: when it began, ISO 8601 in UTC, or when its file was written last.

    turns: messages of a person, without those that it has from another session.

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
    """Sessions, the newest first. more: how many others there are."""

    sessions: list[ListedSession]
    more: int


def list_sessions(
    places: Iterable[Path],
    taken: Callable[[str], IngestedSession | None],
    limit: int = 20,
    project: str | None = None,
    foreign: Callable[[str, Collection[int]], Collection[int]] = lambda session, keys: (),
) -> SessionPage:
    """Return the sessions below these folders, the newest first. taken: what the library has of a session.

    project: only those that worked in this folder or below it; then `more` counts those that were not looked at.
    foreign: which of these keys another session owns than this one. Of a message in several of the listed sessions
    that nobody owns yet, the file that was written first has the turn.

    Raises InvalidArgument for a limit out of range.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(f"limit is {limit}.", f"It is between 1 and {MAX_LIMIT}.")
    found: list[tuple[float, Path, Outline]] = []
    more = 0
    for modified, path in transcript_files(places):
        if len(found) == limit:
            more += 1
            continue
        with suppress(NoTranscript, TranscriptNotRead, OSError):
            known = outline(path)
            if known.client != "messages" and (project is None or _works_in(known.project, project)):
                found.append((modified, path, known))
    rows: list[ListedSession] = []
    owners: dict[int, str] = {}
    for modified, path, known in reversed(found):
        turns = _own_turns(known, foreign, owners)
        with suppress(OSError):
            rows.append(_listed(path, modified, known, turns, taken(known.session_id)))
    return SessionPage(rows[::-1], more)


def _own_turns(
    known: Outline, foreign: Callable[[str, Collection[int]], Collection[int]], owners: dict[int, str]
) -> int:
    """Return how many messages of a session no other one owns. owners: of those that were listed before."""
    keys = [key for key in known.typed if key is not None]
    others = set(foreign(known.session_id, keys)) if keys else set()
    own = [key for key in keys if key not in others and owners.setdefault(key, known.session_id) == known.session_id]
    return known.typed.count(None) + len(own)


def _works_in(folder: str | None, project: str) -> bool:
    base = os.path.abspath(os.path.expanduser(project))
    return folder is not None and (folder == base or folder.startswith(base.rstrip(os.sep) + os.sep))


def _listed(path: Path, modified: float, known: Outline, turns: int, taken: IngestedSession | None) -> ListedSession:
    state = "no" if taken is None else "yes" if taken.digest == known.digest else "grown"
    stored = stored_state(path)
    size = path.stat().st_size if stored is None else stored.size
    at = known.started or datetime.fromtimestamp(modified, UTC)
    about = (known.client, known.session_id, known.project, at.isoformat(), turns, size)
    return ListedSession(*about, "skipped" if known.reviewing else state, str(path))


def transcript_files(places: Iterable[Path]) -> list[tuple[float, Path]]:
    """Return (when it was written last, path) of the files that may be sessions, the newest first. Reads none.

    A session in the database of OpenCode has the path `opencode.db/ID`.
    """
    found: dict[str, tuple[float, Path]] = {}
    for place in places:
        found |= {str(path): (changed, path) for changed, path in stored_sessions(place)}
        for folder, below, names in os.walk(place):
            deep = len(Path(folder).relative_to(place).parts) >= DEPTH
            below[:] = [] if deep else [name for name in below if name not in _NO_SESSIONS]
            named = (name for name in names if name.endswith(".jsonl") or is_document_name(name))
            for path in (Path(folder, name) for name in named):
                with suppress(OSError):
                    if not path.name.startswith("agent-") and not is_subagent_file(path):
                        found.setdefault(os.path.realpath(path), (path.stat().st_mtime, path))
    return sorted(found.values(), key=lambda one: (-one[0], str(one[1])))


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{5,100}")


def find_transcript(places: Iterable[Path], session: str) -> Path | None:
    """Return the newest transcript of a session, None without one: clients name the file after it, or its folder."""
    if not _ID.fullmatch(session):
        return None
    found = (path for _, path in transcript_files(places))
    return next((path for path in found if _is_of(path, session)), None)


def _is_of(path: Path, session: str) -> bool:
    """Return whether a file is named after a session; Gemini CLI has the first 8 characters of the id in the name."""
    begun = path.name.startswith("session-") and len(session) >= 36 and path.stem.endswith(f"-{session[:8]}")
    return begun or path.stem.endswith(session) or session in (path.parent.name, session_name(path))


def is_transcript_path(path: Path) -> bool:
    """Return whether a path names a file as clients write transcripts, or a session in the database of OpenCode."""
    return path.suffix in (".json", ".jsonl") or split_database_path(path) is not None
