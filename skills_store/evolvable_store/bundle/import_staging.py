"""Reads one large JSON object piece by piece: its values, and the elements of its lists one at a time.

Holds a history that is being imported in a temporary database of its own, until all of it has been checked.
"""

import base64
import binascii
import codecs
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import NoneType, TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from evolvable_store.bundle.export import FORMAT, FORMAT_VERSION, SHAPES, Stream, is_valid_record
from evolvable_store.errors import InvalidArchive, InvalidRef, TooLarge
from evolvable_store.objects import (
    ABSENT,
    MAX_FILE,
    MAX_FILES,
    Manifest,
    Tombstone,
    TreeEntry,
    blob_hash,
    pack,
    pack_tombstone,
    unpack,
)
from evolvable_store.operation import Actor, Intent, Principal
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage import connection
from evolvable_store.storage.protocol import ChannelState, MoveNote, ReleasePolicy
from evolvable_store.transaction import Packed, ReplayStep

if TYPE_CHECKING:
    from evolvable_store.storage.connection import Connection


MAX_PIECE = 48 * 2**20
"""Characters of one value or element: the largest file, every character of it escaped, and some room."""

_CHUNK = 2**18
_BLANK = " \t\r\n"
_decode = json.JSONDecoder().raw_decode


def iterate_members(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Yields (key, value) of the object in `stream`; for a list, (key, element) for each of its elements.

    Raises InvalidArchive where the text is not UTF-8, not JSON or not one object, TooLarge for an endless piece.
    """
    text = _JsonReader(stream)
    text.expect("{")
    if text.skip() == "}":
        text.expect("}")
    else:
        while True:
            key = text.value()
            if not isinstance(key, str):
                raise _not_json()
            text.expect(":")
            if text.skip() == "[":
                yield from ((key, element) for element in _elements(text))
            else:
                yield key, text.value()
            if text.expect(",}") == "}":
                break
    if text.skip():
        raise _not_json()


def _elements(text: "_JsonReader") -> Iterator[Any]:
    text.expect("[")
    if text.skip() == "]":
        text.expect("]")
        return
    while True:
        yield text.value()
        if text.expect(",]") == "]":
            return


class _JsonReader:
    """A window over the text of a stream, that grows to hold one piece."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder("utf-8-sig")()
        self._window, self._at, self._ended = "", 0, False

    def skip(self) -> str:
        """Returns the next character that is not blank, without taking it; '' at the end."""
        while True:
            while self._at < len(self._window):
                if self._window[self._at] not in _BLANK:
                    return self._window[self._at]
                self._at += 1
            if not self._more():
                return ""

    def expect(self, wanted: str) -> str:
        """Takes and returns the next character, which is one of `wanted`."""
        character = self.skip()
        if not character or character not in wanted:
            raise _not_json()
        self._at += 1
        return character

    def value(self) -> Any:
        """Takes and returns the next value."""
        self.skip()
        while True:
            try:
                value, end = _decode(self._window, self._at)
                # A number at the end of the window may go on behind it ('' is in every text).
                if self._window[end : end + 1] not in ".eE" or not self._more():
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if not self._more():
                    raise _not_json() from error
            except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets without end
                raise _not_json() from error

    def _more(self) -> bool:
        """Reads on, as much again as there is, so that a long piece is not parsed over and over."""
        if self._ended:
            return False
        rest = self._window[self._at :]
        if len(rest) > MAX_PIECE:
            raise TooLarge("A part of the archive is too large.", f"The limit is {MAX_PIECE:,} characters.")
        data = self._stream.read(max(_CHUNK, len(rest)))
        self._ended = not data
        try:
            self._window, self._at = rest + self._decoder.decode(data, final=self._ended), 0
        except UnicodeDecodeError as error:
            raise _not_json() from error
        return not self._ended


def _not_json() -> InvalidArchive:
    return InvalidArchive(
        "The archive is cut off or is not JSON as `evolvable export` writes it.", "Nothing was taken in; export again."
    )


_TABLES = """
    CREATE TABLE operation (id INTEGER PRIMARY KEY, fields TEXT NOT NULL) STRICT;
    CREATE TABLE change (
        position INTEGER PRIMARY KEY, operation INTEGER NOT NULL, ref TEXT NOT NULL, after INTEGER, hash TEXT,
        files TEXT, latest INTEGER, frozen INTEGER, blobs TEXT, missing INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX change_ref ON change (ref, position);
    CREATE TABLE move (position INTEGER PRIMARY KEY, fields TEXT NOT NULL) STRICT;
    CREATE TABLE evidence (position INTEGER PRIMARY KEY, fields TEXT NOT NULL) STRICT;
    CREATE TABLE blob (sha256 TEXT PRIMARY KEY, size INTEGER NOT NULL, data BLOB NOT NULL, codec TEXT NOT NULL) STRICT;
"""
_MAX_INTEGER = 2**53
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OPERATION = {
    "id": (int,),
    "at": (str,),
    "actor": (str,),
    "reason": (str,),
    "session": (str, NoneType),
    "evidence": (list,),
    "undoes": (list,),
}
_MOVE = {
    "at": (str,),
    "actor": (str,),
    "reason": (str,),
    "session": (str, NoneType),
    "policy": (str, NoneType),
    "placed": (list,),
}
_CHANGE = {"operation": (int,), "ref": (str,), "after": (int, NoneType)}


@dataclass(frozen=True, slots=True)
class StagedChange:
    """One change of the archive. `hash` and `manifest` are there when it made the version `after`."""

    position: int
    operation: int
    after: int | None
    hash: str
    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class CheckedState:
    """What checking a change found: the state of its resource after it, and the blobs that its parent has not."""

    latest: int
    hash: str
    frozen: bool
    blobs: tuple[str, ...] = ()


class ImportStaging:
    """A context that ends with everything in it forgotten. Raises InvalidArchive or TooLarge for bad records."""

    def __init__(self, beside: Path) -> None:
        """beside: the folder on whose disk there is room for the whole archive."""
        # Not SQLite's own temporary database: pysqlite3 keeps that in memory, however large it grows.
        self._folder = tempfile.TemporaryDirectory(prefix=".import.", dir=beside, ignore_cleanup_errors=True)
        self._db: Connection = connection.dbapi.connect(
            str(Path(self._folder.name) / "staging.db"), isolation_level=None
        )
        if os.name == "posix":
            self._folder.cleanup()  # the open file stays, and nothing is left behind by a process that is killed
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.executescript(_TABLES)

    def __enter__(self) -> Self:
        self._db.execute("BEGIN")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()
        self._folder.cleanup()

    def load(self, stream: Stream) -> None:
        """Reads the whole archive."""
        add = {
            "operations": self._add_operation,
            "changes": self._add_change,
            "blobs": self._add_blob,
            "channel": self._add_move,
            "evidence": self._add_evidence,
        }
        header: dict[str, Any] = {}
        for key, value in iterate_members(stream):
            if key not in add:
                header[key] = value
                continue
            _check_header(header)
            if not isinstance(value, dict):
                raise _invalid(key, "one is not an object")
            try:
                add[key](value)
            # KeyError and TypeError: a member is missing, or an object stands where a text belongs.
            except (KeyError, TypeError, UnicodeEncodeError, OverflowError, *connection.Errors) as error:
                raise _invalid(key, f"{ascii(value)[:80]} cannot be kept ({error})") from error
        _check_header(header)

    def _add_operation(self, record: dict[str, Any]) -> None:
        _check_shape("operations", record, _OPERATION)
        texts, numbers = record["evidence"], record["undoes"]
        if record["actor"] not in set(Actor) or not _is_timestamp(record["at"]) or not record["reason"].strip():
            raise _invalid("operations", f"{record['id']} has no actor, time or reason")
        if {*map(type, texts)} - {str} or {*map(type, numbers)} - {int}:
            raise _invalid("operations", f"{record['id']} has other evidence than texts")
        principal, via = record.get("principal"), record.get("via") or ""
        if principal not in {None, *Principal} or type(via) is not str:
            raise _invalid("operations", f"{record['id']} has an unknown principal")
        fields = [*(record[key] for key in _OPERATION if key != "id"), principal, via]
        self._db.execute("INSERT INTO operation VALUES (?, ?)", (record["id"], json.dumps(fields, ensure_ascii=False)))

    def _add_change(self, record: dict[str, Any]) -> None:
        _check_shape("changes", record, _CHANGE)
        try:
            ref = Ref.parse(record["ref"]).at(None)
        except InvalidRef as error:
            raise _invalid("changes", error.text) from error
        chained, files = record.get("hash"), record.get("files")
        if (chained is None) != (files is None) or type(chained) not in (str, NoneType):
            raise _invalid("changes", f"one of {ref} has no hash or no files")
        if files is not None:
            _check_files(ref, files)
            files = json.dumps(files, ensure_ascii=False)
        self._db.execute(
            "INSERT INTO change (operation, ref, after, hash, files) VALUES (?, ?, ?, ?, ?)",
            (record["operation"], str(ref), record["after"], chained, files),
        )

    def _add_blob(self, record: dict[str, Any]) -> None:
        text, encoded, name = record.get("text"), record.get("base64"), record.get("sha256")
        try:
            data = text.encode("utf-8") if isinstance(text, str) else base64.b64decode(str(encoded), validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise _invalid("blobs", f"{ascii(name)[:80]} cannot be read") from error
        if len(data) > MAX_FILE:
            raise TooLarge(f"A file of the archive has {len(data):,} bytes.", f"The limit for one is {MAX_FILE:,}.")
        if "purged" in record:
            self._add_tombstone(str(name), record["purged"], data)
            return
        if name != blob_hash(data):
            return  # nobody finds it under a name that is not its own
        row = (name, len(data), *pack(data))
        self._db.execute("INSERT OR IGNORE INTO blob VALUES (?, ?, ?, ?)", row)

    def _add_tombstone(self, name: str, said: Any, data: bytes) -> None:
        """Keeps what stands for purged bytes. Where the library has the bytes, or gets them, they are not replaced."""
        if not isinstance(said, dict) or not _SHA256.fullmatch(name) or not _is_timestamp(str(said.get("at"))):
            raise _invalid("blobs", f"{ascii(name)[:80]} says of its purge {ascii(said)[:80]}")
        size = said.get("size")
        if type(size) is not int or not 0 <= size <= MAX_FILE:
            raise _invalid("blobs", f"{ascii(name)[:80]} was purged of {ascii(size)[:20]} bytes")
        at, actor, reason, kind = (str(said.get(key))[:1_000] for key in ("at", "actor", "reason", "kind"))
        row = (name, size, pack_tombstone(Tombstone(at, actor, reason, kind, data)), ABSENT)
        self._db.execute("INSERT OR IGNORE INTO blob VALUES (?, ?, ?, ?)", row)

    def _add_move(self, record: dict[str, Any]) -> None:
        _check_shape("moves of the channel", record, _MOVE)
        known = (
            record["actor"] in set(Actor) and record["policy"] in {None, *ReleasePolicy} and _is_timestamp(record["at"])
        )
        if not known or not all(map(_is_placement, record["placed"])):
            raise _invalid("moves of the channel", f"{ascii(record)[:80]} cannot be read")
        fields = [record[key] for key in _MOVE]
        self._db.execute("INSERT INTO move (fields) VALUES (?)", (json.dumps(fields, ensure_ascii=False),))

    def _add_evidence(self, record: dict[str, Any]) -> None:
        shape = SHAPES.get(str(record.get("type")))
        if shape is None:
            return  # of a newer program
        for key, types in shape.items():
            if type(record.get(key)) not in types or (types == (int,) and not 0 <= record[key] < _MAX_INTEGER):
                raise _invalid("evidence", f"{key} is {ascii(record.get(key))[:80]}")
        if not is_valid_record(record) or not _is_timestamp(record["at"]):
            raise _invalid("evidence", f"{ascii(record)[:80]} cannot be read")
        fields = {"type": record["type"], **{key: record[key] for key in shape}}
        self._db.execute("INSERT INTO evidence (fields) VALUES (?)", (json.dumps(fields, ensure_ascii=False),))

    def evidence(self) -> Iterator[dict[str, Any]]:
        """Yields the records of evidence in order."""
        for (fields,) in self._db.execute("SELECT fields FROM evidence ORDER BY position"):
            yield json.loads(fields)

    def moves(self) -> Iterator[tuple[MoveNote, list[tuple[Ref, ChannelState]]]]:
        """Yields the moves of the channel in order, each with what it placed."""
        for (fields,) in self._db.execute("SELECT fields FROM move ORDER BY position"):
            at, actor, reason, session, policy, placed = json.loads(fields)
            note = MoveNote(at, Actor(actor), reason, session, 0, ReleasePolicy(policy) if policy else None)
            yield note, [(_ref(text), ChannelState(version, withdrawn)) for text, version, withdrawn in placed]

    def refs(self) -> list[Ref]:
        """Returns every resource of the archive, in the order of the log."""
        rows = self._db.execute("SELECT ref FROM change GROUP BY ref ORDER BY min(position)").fetchall()
        return [_ref(text) for (text,) in rows]

    def changes(self, ref: Ref) -> Iterator[StagedChange]:
        """Yields the changes of one resource, in order."""
        query = "SELECT position, operation, after, hash, files FROM change WHERE ref = ? ORDER BY position"
        for position, operation, after, chained, files in self._db.execute(query, (str(ref),)):
            yield StagedChange(position, operation, after, chained or "", _manifest(files))

    def intent(self, operation: int) -> Intent | None:
        """Returns what an operation says of itself."""
        row = self._db.execute("SELECT fields FROM operation WHERE id = ?", (operation,)).fetchone()
        if row is None:
            return None
        at, actor, reason, session, evidence, undoes, principal, via = json.loads(row[0])
        known = Principal(principal) if principal is not None else None
        return Intent(at, Actor(actor), reason, session, tuple(evidence), tuple(undoes), known, via)

    def size(self, sha256: str) -> int | None:
        """Returns how many bytes a blob has, None when it is missing."""
        row = self._db.execute("SELECT size FROM blob WHERE sha256 = ?", (sha256,)).fetchone()
        return row and int(row[0])

    def blob(self, sha256: str) -> bytes:
        """Returns the bytes of a blob that is there."""
        return unpack(*self._db.execute("SELECT data, codec FROM blob WHERE sha256 = ?", (sha256,)).fetchone())

    def packed(self, sha256: str) -> Packed:
        """Returns a blob that is there as the library keeps it."""
        query = "SELECT sha256, size, data, codec FROM blob WHERE sha256 = ?"
        sha256, size, data, codec = self._db.execute(query, (sha256,)).fetchone()
        return sha256, size, data, codec

    def judge(self, change: StagedChange, verdict: CheckedState) -> None:
        """Notes what checking a change found."""
        self._db.execute(
            "UPDATE change SET latest = ?, hash = ?, frozen = ?, blobs = ? WHERE position = ?",
            (verdict.latest, verdict.hash, verdict.frozen, json.dumps(verdict.blobs), change.position),
        )

    def latest(self, ref: Ref) -> int:
        """Returns the highest version of a checked resource."""
        return int(self._db.execute("SELECT max(latest) FROM change WHERE ref = ?", (str(ref),)).fetchone()[0])

    def steps_at(self, ref: Ref, latest: int) -> list[tuple[int, int | None, str, int]]:
        """Returns (operation, after, hash, position) of the changes at whose end `latest` was the newest version."""
        query = "SELECT operation, after, hash, position FROM change WHERE ref = ? AND latest = ? ORDER BY position"
        return self._db.execute(query, (str(ref), latest)).fetchall()

    def clear_wanted(self) -> None:
        """Forgets what was noted as missing."""
        self._db.execute("UPDATE change SET missing = 0 WHERE missing")

    def want(self, ref: Ref, behind: int) -> None:
        """Notes that the changes of a resource behind this position are missing in the library."""
        self._db.execute("UPDATE change SET missing = 1 WHERE ref = ? AND position > ?", (str(ref), behind))

    def wanted_blobs(self) -> Iterator[tuple[str, int]]:
        """Yields the blobs that missing changes bring, each once, with its size as packed."""
        query = """SELECT sha256, length(data) FROM blob
            WHERE sha256 IN (SELECT value FROM change, json_each(change.blobs) WHERE missing)"""
        yield from self._db.execute(query)

    def wanted(self) -> Iterator[tuple[int, ReplayStep]]:
        """Yields the missing changes in the order of the log, each with its operation."""
        query = """SELECT operation, ref, after, latest, hash, frozen, files, blobs FROM change
            WHERE missing ORDER BY position"""
        for operation, ref, after, latest, chained, frozen, files, blobs in self._db.execute(query):
            packed = tuple(map(self.packed, json.loads(blobs)))
            yield operation, ReplayStep(_ref(ref), after, latest, chained, frozen == 1, _manifest(files), packed)


def _check_header(header: dict[str, Any]) -> None:
    if header.get("format") != FORMAT:
        raise InvalidArchive("This JSON is no archive of a library.", "`evolvable export` writes one.")
    if header.get("version") != FORMAT_VERSION:
        raise InvalidArchive(
            f"The archive has the version {ascii(header.get('version'))[:20]}, this program reads {FORMAT_VERSION}.",
            "Update this program: pip install -U evolvable.",
        )


def _check_shape(where: str, record: dict[str, Any], shape: dict[str, tuple[type, ...]]) -> None:
    for key, types in shape.items():
        value = record.get(key)
        if type(value) not in types or (isinstance(value, int) and not 0 < value < _MAX_INTEGER):
            raise _invalid(where, f"{key} is {ascii(value)[:80]}")


def _check_files(ref: Ref, files: Any) -> None:
    """Raises InvalidArchive unless this is {path: [sha256, size, mode]}."""
    if not isinstance(files, dict) or len(files) > MAX_FILES:
        raise _invalid("changes", f"one of {ref} has too many files or none")
    for path, entry in files.items():
        if not isinstance(entry, list) or [*map(type, entry)] != [str, int, int] or not _SHA256.fullmatch(entry[0]):
            raise _invalid("changes", f"the file {ascii(path)[:80]} of {ref} is {ascii(entry)[:80]}")


def _is_placement(value: Any) -> bool:
    """Returns whether this is [ref of a skill, version or None, withdrawn]."""
    if not isinstance(value, list) or len(value) != 3 or type(value[2]) is not bool:
        return False
    ref, version, _ = value
    if version is not None and (type(version) is not int or not 0 < version < _MAX_INTEGER):
        return False
    try:
        return isinstance(ref, str) and Ref.parse(ref).kind is Kind.SKILL
    except InvalidRef:
        return False


def _is_timestamp(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return len(text) <= 40


def _ref(text: str) -> Ref:
    ref = Ref.parse(text)
    return ref if ref.scope else ref.within(USER_SCOPE)


def _manifest(files: str | None) -> Manifest | None:
    return None if files is None else Manifest({path: TreeEntry(*entry) for path, entry in json.loads(files).items()})


def _invalid(where: str, why: str) -> InvalidArchive:
    return InvalidArchive(f"Among the {where} of the archive: {why}.", "Nothing was taken in; export again.")
