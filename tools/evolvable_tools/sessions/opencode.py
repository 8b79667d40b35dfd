"""The sessions of OpenCode, which lie in one SQLite database of another program: it is read, and
never written.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_store.storage import (
    ForeignDatabaseBusy,
    ForeignDatabaseInvalid,
    ReadLimits,
    foreign_database,
)
from evolvable_tools.sessions.session import (
    NoTranscript,
    Origin,
    RawPiece,
    TranscriptNotRead,
    as_mapping,
    as_text,
    moment_of,
    parse_json,
)
from evolvable_tools.sessions.taint import TABLES
from evolvable_tools.sessions.transcript_formats import TranscriptFormat, split_typed, typed_once

DATABASE = "opencode.db"
"""The name of OpenCode's database."""

LIMITS = ReadLimits(rows=100_000, bytes=128 * 1024 * 1024, seconds=10.0)
"""What the read of one session may cost."""

MAX_LISTED = 1_000
"""Sessions of one database that are listed, those that changed last."""

_TYPES = frozenset(TABLES["types"]["opencode"].split())
"""Types of parts that are known. Others are counted and skipped."""

_QUERIES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_ROWS, _STATE = (_QUERIES["family"] + _QUERIES[name] for name in ("rows", "state"))
_LATEST, _LISTED = _QUERIES["latest"], _QUERIES["listed"]


@dataclass(frozen=True, slots=True)
class StoredState:
    """The size of a session in a database, and when it changed.

    size: characters of its parts. changed: milliseconds since 1970.
    """

    size: int
    changed: int


def split_database_path(path: Path) -> tuple[Path, str | None] | None:
    """Return (database, session) for a path that names one, None for another.

    `opencode.db` is the session of OpenCode that changed last, `opencode.db/ID` the one of this id.
    """
    if DATABASE not in (path.name, path.parent.name):
        return None
    database, session = (path, None) if path.name == DATABASE else (path.parent, path.name)
    return (database, session) if database.is_file() else None


def stored_state(path: Path) -> StoredState | None:
    """Return the state of the session that a path names in a database, None for another path.

    Raises NoTranscript, TranscriptNotRead.
    """
    location = split_database_path(path)
    if location is None:
        return None
    rows = _read_rows(location[0], location[1], _STATE)
    changed, size = rows[0][1:]
    if not isinstance(changed, int):
        raise NoTranscript(
            f"{ascii(location[0].name)} has no such session.", "`evolvable sessions` lists them."
        )
    return StoredState(size if isinstance(size, int) else 0, changed)


def stored_sessions(folder: Path) -> list[tuple[float, Path]]:
    """Return (when it changed, path) of the sessions in the database of a folder, [] without one
    that can be read.
    """
    database = folder / DATABASE
    if not database.is_file():
        return []
    try:
        with foreign_database(database, LIMITS) as opened:
            rows = list(opened.rows(_LISTED, MAX_LISTED))
    except (ForeignDatabaseInvalid, ForeignDatabaseBusy):
        return []
    valid_rows = [
        (name, at) for name, at in rows if isinstance(name, str) and name and os.sep not in name
    ]
    # A time that is no date, which another program can write, is the oldest and stops no list.
    times = ((name, moment_of(at)) for name, at in valid_rows)
    return [(at.timestamp() if at is not None else 0.0, database / name) for name, at in times]


def read_opencode(database: Path, session: str | None, hasher: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a session and of its subagents in order; None: of the session that changed
    last.

    Raises NoTranscript for no such session or another database, TranscriptNotRead for one that is
    locked.
    """
    rows = _read_rows(database, session, _ROWS)
    if not rows:
        raise NoTranscript(
            f"{ascii(database.name)} has no such session.", "`evolvable sessions` lists them."
        )
    for top, owner, directory, message, of_message, part, data, at in rows:
        # The digest is over the parts and not the file: the database changes with other sessions.
        hasher.update(f"{part} {data}\n".encode("utf-8", "replace"))
        yield {
            "session": top,
            "agent": owner if owner != top else None,
            "cwd": directory,
            "message_id": message,
            "message": parse_json(str(of_message)),
            "id": part,
            "part": parse_json(str(data)),
            "at": at,
        }


def _read_rows(database: Path, session: str | None, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of one read transaction within the limits, the id of the session
    before each.
    """
    try:
        with foreign_database(database, LIMITS) as opened:
            chosen = session or next((row[0] for row in opened.rows(_LATEST)), None)
            return [(chosen, *row) for row in opened.rows(query, chosen)] if chosen else []
    except ForeignDatabaseInvalid as error:
        raise NoTranscript(str(error), "Name opencode.db, or a shorter session of it.") from None
    except ForeignDatabaseBusy as error:
        raise TranscriptNotRead(str(error), error.hint) from None


class OpenCodeFormat(TranscriptFormat):
    """Reads the parts of one session of OpenCode."""

    client = "opencode"

    def __init__(self) -> None:
        super().__init__()
        self._opened: set[str] = set()

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        part, message = as_mapping(record.get("part")), as_mapping(record.get("message"))
        agent, kind = as_text(record.get("agent")), part.get("type")
        if kind not in _TYPES:
            return
        base = RawPiece("system", Origin.MEMORY, "", moment_of(record.get("at")), agent=agent)
        self._learn_session({"session_id": record.get("session"), "cwd": record.get("cwd")}, base)
        if agent is not None:
            self.about.learn_subagent(
                agent, name=as_text(message.get("agent")) or as_text(message.get("mode")) or ""
            )
        if kind == "tool":
            yield from self._read_tool(part, base)
        elif kind == "text" and (text := as_text(part.get("text"))):
            yield from self._read_text(text, part, message, str(record.get("message_id")), base)

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        part = as_mapping(record.get("part"))
        if part.get("type") != "text":
            return None
        return {"role": as_mapping(record.get("message")).get("role"), "content": part.get("text")}

    def row_of(self, record: Mapping[str, Any]) -> str | None:
        return as_text(record.get("id"))

    def _read_text(
        self,
        text: str,
        part: Mapping[str, Any],
        message: Mapping[str, Any],
        identity: str,
        base: RawPiece,
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
            for piece in typed_once(split_typed(_unquote(text), base)):
                # A message has several text parts; only the first one opens a turn.
                piece.typed = piece.typed and identity not in self._opened
                self._opened.add(identity)
                yield piece

    def _read_tool(self, part: Mapping[str, Any], base: RawPiece) -> Iterator[RawPiece]:
        state, call = as_mapping(part.get("state")), as_text(part.get("callID"))
        yield self._make_call(
            call, as_text(part.get("tool")) or "unknown", as_mapping(state.get("input")), base
        )
        if state.get("status") in ("completed", "error"):
            failed = state["status"] == "error"
            yield self._make_result(
                call, str(state.get("error" if failed else "output") or ""), failed, base
            )


_WORD_OF_A_SHELL = re.compile(r'\A"((?:[^"\\]|\\.)*)"(?=\n|\Z)', re.DOTALL)


def _unquote(text: str) -> str:
    """Return a prompt as the person wrote it: `opencode run` puts one with blanks into quotation
    marks.
    """
    quoted = _WORD_OF_A_SHELL.match(text)
    return quoted[1].replace('\\"', '"') + text[quoted.end() :] if quoted else text
