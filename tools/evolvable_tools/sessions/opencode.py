"""The sessions of OpenCode, which lie in one SQLite database of another program: it is read, and never written."""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from evolvable_tools.sessions.session import (
    NoTranscript,
    Origin,
    RawPiece,
    TranscriptNotRead,
    as_mapping,
    as_text,
    parse_json,
    parse_moment,
)
from evolvable_tools.sessions.transcript_formats import TranscriptFormat, split_typed, typed_once

MAX_ROWS, MAX_BYTES, MAX_SECONDS = 100_000, 32 * 1024 * 1024, 10.0
"""Parts of a session, bytes of one value, and seconds of the read that are allowed."""

_SESSIONS = """WITH RECURSIVE family(id) AS (SELECT ?1 UNION SELECT s.id FROM session s JOIN family f
 ON s.parent_id = f.id LIMIT 1000)"""
_ROWS = f"""{_SESSIONS} SELECT p.session_id, s.directory, p.message_id, m.data, p.id, p.data, p.time_created
 FROM part p JOIN message m ON m.id = p.message_id JOIN session s ON s.id = p.session_id
 WHERE p.session_id IN family ORDER BY p.time_created, p.id LIMIT ?2"""
_LATEST = "SELECT id FROM session WHERE parent_id IS NULL ORDER BY time_updated DESC LIMIT 1"


def read_opencode(database: Path, session: str | None, hasher: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a session and of its subagents in order; None: of the session that changed last.

    Raises NoTranscript for no such session or another database, TranscriptNotRead for one that is locked or too long.
    """
    try:
        rows = _rows(database, session)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.startswith("SQLITE_ERROR"):
            raise NoTranscript(f"{ascii(database.name)} is no database of OpenCode.", "Name opencode.db.") from None
        raise TranscriptNotRead(f"{ascii(database.name)} cannot be read now: {error}.", "Try again.") from None
    except sqlite3.DatabaseError as error:
        raise NoTranscript(f"{ascii(database.name)} is broken: {error}.", "Name opencode.db.") from None
    for owner, top, directory, message, of_message, part, data, at in rows:
        hasher.update(f"{part} {data}\n".encode("utf-8", "replace"))
        yield {
            "session": top, "agent": owner if owner != top else None, "cwd": directory, "message_id": message,
            "message": as_mapping(parse_json(str(of_message))), "id": part, "part": parse_json(str(data)), "at": at,
        }  # fmt: skip


def _rows(database: Path, session: str | None) -> list[tuple[Any, ...]]:
    """Return the rows of one read transaction within the limits."""
    end = time.monotonic() + MAX_SECONDS
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=2)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
        connection.set_progress_handler(lambda: time.monotonic() > end, 1000)
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        found = (session,) if session else connection.execute(_LATEST).fetchone()
        rows = connection.execute(_ROWS, (found[0], MAX_ROWS + 1)).fetchall() if found else []
    if not rows:
        raise NoTranscript(f"{ascii(database.name)} has no such session.", "`opencode session list` names them.")
    if len(rows) > MAX_ROWS:
        raise NoTranscript(f"The session has more than {MAX_ROWS} parts.", "Name a shorter one.")
    return [(row[0], found[0], *row[1:]) for row in rows]


class OpenCodeFormat(TranscriptFormat):
    """Reads the parts of one session of OpenCode."""

    def __init__(self) -> None:
        super().__init__("opencode")
        self._opened: set[str] = set()

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        part, message = as_mapping(record.get("part")), as_mapping(record.get("message"))
        agent, kind = as_text(record.get("agent")), part.get("type")
        at = record.get("at")
        base = RawPiece("system", Origin.MEMORY, "", parse_moment(at / 1000 if type(at) is int else None), agent=agent)
        self._learn({"session_id": record.get("session"), "cwd": record.get("cwd")}, base)
        if kind == "tool":
            yield from self._tool(part, base)
        elif kind == "text" and (text := as_text(part.get("text"))):
            yield from self._text(text, part, message, str(record.get("message_id")), base)

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        part = as_mapping(record.get("part"))
        return {"role": as_mapping(record.get("message")).get("role"), "content": part.get("text")} if (
            part.get("type") == "text"
        ) else None  # fmt: skip

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        return as_text(record.get("id"))

    def _text(
        self, text: str, part: Mapping[str, Any], message: Mapping[str, Any], identity: str, base: RawPiece
    ) -> Iterator[RawPiece]:
        if message.get("role") == "assistant":
            self.about.model = as_text(message.get("modelID")) or self.about.model
            role = "system" if message.get("summary") is True else "assistant"
            yield base.copy(role=role, origin=Origin.ASSISTANT, text=text, model=self.about.model)
        elif base.agent is not None:
            yield base.copy(origin=Origin.ASSISTANT, text=text)
        elif part.get("synthetic") is True or message.get("role") != "user":
            yield base.copy(text=text)
        else:
            for piece in typed_once(split_typed(text, base)):
                piece.typed = piece.typed and identity not in self._opened
                self._opened.add(identity)
                yield piece

    def _tool(self, part: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        state, call = as_mapping(part.get("state")), as_text(part.get("callID"))
        yield self._call(call, as_text(part.get("tool")) or "unknown", as_mapping(state.get("input")), base)
        if state.get("status") in ("completed", "error"):
            failed = state["status"] == "error"
            yield self._result(call, str(state.get("error" if failed else "output") or ""), failed, base)
