"""The parser of transcripts: reads JSON lines one by one, redacts them first, and gives each piece
its origin.

It skips a line that is no JSON object. It recognises sessions that are reviews or observe another
session.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from evolvable_store import read_regular
from evolvable_store.errors import may_pass
from evolvable_tools.redaction import Redactor, StreamRedactor
from evolvable_tools.sessions.copies import MAX_ROW, MIN_UNIQUE, row_key
from evolvable_tools.sessions.json_lines import read_records
from evolvable_tools.sessions.kimi_format import session_name
from evolvable_tools.sessions.message_list import MessageListFormat
from evolvable_tools.sessions.opencode import OpenCodeFormat, read_opencode, split_database_path
from evolvable_tools.sessions.readable import HINT, check_readable, count_message
from evolvable_tools.sessions.readers import reader_of
from evolvable_tools.sessions.session import (
    NoTranscript,
    Origin,
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
from evolvable_tools.sessions.session_documents import read_document
from evolvable_tools.sessions.taint import TABLES, QuoteTracker
from evolvable_tools.sessions.transcript_formats import TranscriptFormat
from evolvable_tools.untrusted_text import REVIEWING_MARK

READ = 4_000
"""Characters of a session's first messages that are looked at."""

_PROMPTS = re.compile(
    "|".join((rf"(?:<|\b){REVIEWING_MARK}\b", *TABLES["reviewing"]["first_words"])), re.IGNORECASE
)
_FOLDERS = re.compile(r"[/\\]\.claude-mem(?:[/\\]|$)|[/\\]observer-sessions(?:[/\\]|$)")


def is_reviewing(first_words: str, project: str | None) -> bool:
    """Return whether a session is a reviewing one, by the first words it was given and the folder
    it worked in.
    """
    folder = _FOLDERS.search(project) if project is not None else None
    return (folder or _PROMPTS.search(first_words[:READ])) is not None


MAX_TEXT = 200_000
"""Characters that are kept of one span: of a longer one the beginning and the end, after it was
redacted.
"""

MAX_NOTED = 64 * 1024
"""Bytes of the note that lies beside a subagent's file."""

FIRST = 50
"""Lines in which a file shows whose it is."""

# What may stand in the id of a session: it becomes part of file names and commands.
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")
_NAMES = _SAFE | frozenset("@/+")


@dataclass(frozen=True, slots=True)
class Outline(SessionHeading):
    """A session without its texts. typed: the keys of a person's messages."""

    typed: tuple[int | None, ...]


def read_session(
    source: Path | str | Iterable[Mapping[str, Any]], *, redactor: Redactor | None = None
) -> Session:
    """Return the session in a transcript: a path to a client's file, or a list of messages {role,
    content}.

    The work of a subagent in its own file comes at the place of its start. Broken, unknown and half
    written lines are left out. Raises NoTranscript for what is no transcript or is not there, and
    TranscriptNotRead for what cannot be read now. Raises UnreadableMessages, and OSError when the
    disk fails in the middle.
    """
    digest = hashlib.sha256()
    if isinstance(source, Path | str):
        path = Path(source)
        name, stem = ascii(path.name), _find_stem(path)
        reader, pieces = _open_transcript(path, digest)
        pieces = _insert_subagents(path, pieces, digest, reader)
    else:
        name, stem = "The list of messages", ""
        reader = MessageListFormat()
        pieces = _read_pieces(reader, _hash_messages(source, digest))
    stream = StreamRedactor(redactor or Redactor())
    redacted = [_redact(piece, stream) for piece in pieces]
    check_readable(reader.about, name)
    return _make_session(
        reader.about,
        tuple(_make_spans(_redact_again(redacted, stream))),
        stream,
        digest.hexdigest(),
        stem,
    )


def outline(path: Path) -> Outline:
    """Return what the session in a file is, without redacting or keeping its texts.

    Raises as `read_session`.
    """
    digest = hashlib.sha256()
    reader, pieces = _open_transcript(path, digest)
    typed: list[int | None] = []
    first = ""
    for piece in _insert_subagents(path, pieces, digest, reader):
        if piece.typed:
            # None for a message without a key: it still counts as a turn of this session.
            typed.append(piece.key)
        if not first and piece.role == "user":
            first = piece.text[:READ]
    check_readable(reader.about, ascii(path.name))
    about, identity = reader.about, _choose_session_id(reader.about, _find_stem(path))
    reviewing = about.reviewing or is_reviewing(first, about.project)
    return Outline(
        about.client,
        identity,
        about.project,
        about.started,
        digest.hexdigest(),
        reviewing,
        tuple(typed),
    )


def _open_transcript(path: Path, digest: Any) -> tuple[TranscriptFormat, Iterator[RawPiece]]:
    """Return the reader of a file, or of a session in a database, and its pieces.

    Raises NoTranscript, TranscriptNotRead.
    """
    if (location := split_database_path(path)) is not None:
        opencode = OpenCodeFormat()
        return opencode, _read_pieces(opencode, read_opencode(*location, digest))
    try:
        document = read_document(path, digest) if path.suffix == ".json" else None
        if document is not None:
            return document[0], _read_pieces(*document)
        # The first lines decide on the format and are then read again through `chain`, not from the
        # disk.
        lines = read_records(path, digest)
        first = list(islice(lines, FIRST))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is no path"
        # Only a lasting error strikes a session off the queue.
        kind, hint = (TranscriptNotRead, "Try again.") if may_pass(error) else (NoTranscript, HINT)
        raise kind(f"{ascii(path.name)} cannot be read: {why}.", hint) from None
    reader = reader_of(first)
    reader.learn_from_notes(path)
    return reader, _read_pieces(reader, chain(first, lines))


def _read_pieces(
    reader: TranscriptFormat, lines: Iterable[Mapping[str, Any]]
) -> Iterator[RawPiece]:
    """Yield the pieces of lines, each line once: clients write earlier ones again when they compact
    or resume.
    """
    about, seen = reader.about, set[str]()
    last: RawPiece | None = None
    for record in reader.whole(lines):
        row = reader.row_of(record)
        if row is not None and row in seen:
            continue
        if row is not None and len(row) <= MAX_ROW:
            seen.add(row)
        spent, known_before = about.tokens or 0, about.known_lines
        pieces = [piece for piece in reader.read(record) if not _is_replay(piece, seen)]
        # A format counts each line that it knows; a line after which the count is the same is
        # unknown.
        about.skipped += about.known_lines == known_before
        count_message(reader.about, reader.message_of(record), pieces)
        for piece in pieces:
            piece.key = row_key(piece, row)
        payer = pieces[0] if pieces else last
        if payer is not None:
            # A line that gives no piece, such as a count of tokens, is paid by the piece before it.
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


def _hash_messages(
    messages: Iterable[Mapping[str, Any]], digest: Any
) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        if isinstance(message, Mapping):
            digest.update(
                json.dumps(message, sort_keys=True, default=str).encode("utf-8", "replace") + b"\n"
            )
            yield message


def _insert_subagents(
    path: Path, pieces: Iterator[RawPiece], digest: Any, reader: TranscriptFormat
) -> Iterator[RawPiece]:
    """Yield a file's pieces, and what each subagent noted in a file of its own, whole, where it was
    begun.
    """
    waiting = sorted(_read_subagents(path, digest, reader), key=lambda found: found[0])
    for piece in pieces:
        while waiting and piece.at is not None and waiting[0][0] < piece.at.isoformat():
            yield from waiting.pop(0)[1]
        yield piece
    for _, rest in waiting:
        yield from rest


def _read_subagents(
    path: Path, digest: Any, session: TranscriptFormat
) -> Iterator[tuple[str, list[RawPiece]]]:
    about = session.about
    for agent, file in session.subagent_files(path):
        reader = type(session)(agent)
        try:
            pieces = list(_read_pieces(reader, read_records(file, digest)))
        except OSError as error:
            if may_pass(error):
                raise TranscriptNotRead(
                    f"{ascii(file.name)} cannot be read: {error.strerror}.", "Try again."
                ) from None
            continue
        _learn_launch(file, about)
        for run in reader.about.subagents.values():
            about.learn_subagent(
                run.agent, name=run.name, call_id=run.call_id or "", prompt=run.prompt
            )
        if pieces:
            begun = next((piece.at.isoformat() for piece in pieces if piece.at), "")
            # No person typed what a subagent was given, and its tokens are in the session's total.
            yield begun, [replace(piece, typed=False, tokens=0) for piece in pieces]


def _learn_launch(file: Path, about: TranscriptInfo) -> None:
    """Read what the client noted beside a subagent's file: the type that it was started as, and by
    which call.
    """
    note_path = file.with_suffix(".meta.json")
    try:
        note = parse_json(read_regular(note_path, MAX_NOTED).decode("utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(note, dict):
        name, call = as_text(note.get("agentType")) or "", as_text(note.get("toolUseId")) or ""
        about.learn_subagent(file.stem.removeprefix("agent-")[:80], name=name, call_id=call)


def _redact(piece: RawPiece, stream: StreamRedactor) -> RawPiece:
    """Take the secrets out of a piece, and return it.

    Only what a tool printed goes on from what it printed before.
    """
    if piece.text:
        # A secret may be cut in two between two outputs of the same command.
        piece.text = stream.redact(piece.text, piece.follows if piece.role == "tool" else None)
    if piece.input is not None:
        piece.input = stream.redact_value(piece.input)
    piece.tool, piece.call_id = _clean_name(piece.tool), _clean_name(piece.call_id)
    piece.model, piece.skill = _clean_name(piece.model), _clean_name(piece.skill)
    piece.agent = _clean_name(piece.agent)
    return piece


def _redact_again(pieces: Iterable[RawPiece], stream: StreamRedactor) -> Iterator[RawPiece]:
    """Yield the pieces without secrets that only a later one showed to be secrets, cut to a length
    worth keeping.
    """
    for piece in pieces:
        piece.text = _shorten(stream.redact_known(piece.text))
        piece.input = stream.redact_known_in_value(piece.input)
        yield piece


_CARRIED = attrgetter(
    "at", "tool", "call_id", "is_error", "model", "input", "skill", "agent", "key", "tokens"
)


def _make_spans(pieces: Iterable[RawPiece]) -> Iterator[Span]:
    """Yield spans: numbered, counted by turns, and divided at what they quote."""
    quotes = QuoteTracker()
    index = turn = unpaid = 0
    for piece in pieces:
        turn += piece.typed
        # Tokens of a piece without any text go to the next span, so that the sum is kept.
        piece.tokens, unpaid = piece.tokens + unpaid, 0
        quotes.note(piece.input)
        parts: list[tuple[str, Origin]] = []
        if piece.text.strip():
            parts = quotes.divide(piece.text, piece.origin, whole=piece.role == "tool")
        if not parts and (piece.input is not None or piece.call_id is not None):
            parts = [(piece.text, piece.origin)]
        if not parts:
            unpaid = piece.tokens
        for text, origin in parts:
            yield Span(index, turn, piece.role, origin, text, *_CARRIED(piece))
            index, piece.tokens = index + 1, 0


def _make_session(
    about: TranscriptInfo, spans: tuple[Span, ...], stream: StreamRedactor, digest: str, stem: str
) -> Session:
    first = next((span.text[:READ] for span in spans if span.role == "user"), "")
    return Session(
        client=about.client,
        session_id=_choose_session_id(about, stem or digest[:16]),
        project=about.project and stream.redact(about.project[:1_000]),
        started=about.started,
        spans=spans,
        digest=digest,
        redactions=dict(sorted(stream.counts.items())),
        tokens=about.tokens,
        model=_clean_name(about.model),
        reviewing=about.reviewing or is_reviewing(first, about.project),
        commit=about.commit,
        skipped=about.skipped,
        subagents=tuple(_redact_run(run, stream) for run in about.subagents.values() if run.name),
    )


def _redact_run(run: SubagentRun, stream: StreamRedactor) -> SubagentRun:
    """Return a run without secrets. The name is the model's choice, so it may hold one too."""
    prompt = stream.redact(run.prompt) if run.prompt else ""
    return SubagentRun(
        _clean_name(run.agent) or "",
        _clean_name(stream.redact(run.name)) or "",
        _clean_name(run.call_id),
        prompt,
    )


def _shorten(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    # As for evidence: the beginning says what it is, the end how it came out.
    head = MAX_TEXT * 2 // 3
    return f"{text[:head]}\n[… {len(text) - MAX_TEXT:,} characters …]\n{text[head - MAX_TEXT :]}"


def _clean_name(value: str | None) -> str | None:
    """Return a name as it may be kept: of plain characters, of a length that names have."""
    if not value or (len(value) <= 200 and _NAMES.issuperset(value)):
        return value
    return "".join(char for char in value[:200] if char in _NAMES)


def _find_stem(path: Path) -> str:
    """Return what a file says of its session by its name, or by its folder."""
    return session_name(path) or path.stem


def _choose_session_id(about: TranscriptInfo, otherwise: str) -> str:
    """Return a session's id: the file's own name where a line says so too, or where no line has a
    plain one.
    """
    # A resumed session's file begins with copied lines that name the session before it.
    identity = otherwise if otherwise in about.names else about.session_id
    if identity and len(identity) <= 128 and _SAFE.issuperset(identity):
        return identity
    return "".join(char for char in otherwise if char in _SAFE)[:128] or "session"
