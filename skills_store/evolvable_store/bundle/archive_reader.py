"""Read and check a JSON archive: one large object, piece by piece."""

import base64
import binascii
import codecs
import json
import re
from collections.abc import Iterator
from datetime import datetime
from types import NoneType
from typing import IO, Any

from evolvable_store.bundle.export import (
    FORMAT,
    FORMAT_VERSION,
    SHAPES,
    Stream,
    is_valid_record,
    shape,
)
from evolvable_store.errors import InvalidArchive, InvalidRef, TooLarge
from evolvable_store.objects import (
    ABSENT,
    MAX_FILE,
    MAX_FILES,
    Tombstone,
    blob_hash,
    pack,
    pack_tombstone,
)
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import Errors, ImportStaging, ReleasePolicy

MAX_PIECE = 48 * 2**20
"""Characters of one value or element.

The largest file fits with every character escaped.
"""

MAX_LOOKS = 64 * 2**20
"""Bytes of all records of looks."""

# Some hundred records for each read of the disk.
_CHUNK = 2**18
"""Bytes that are read at once."""

_BLANK = " \t\r\n"
_decode = json.JSONDecoder().raw_decode


def iterate_members(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of the object in `stream`; of a list, (key, element) for each element.

    Raises InvalidArchive where the text is not UTF-8, not JSON or not one object, TooLarge for an
    endless piece.
    """
    text = _JsonReader(stream)
    for _ in text.items("{", "}"):
        key = text.value()
        # JSON allows only texts as keys; the decoder is called at any place here.
        if not isinstance(key, str):
            raise _make_json_error()
        text.expect(":")
        if text.skip() == "[":
            yield from ((key, text.value()) for _ in text.items("[", "]"))
        else:
            yield key, text.value()
    if text.skip():
        raise _make_json_error()


class _JsonReader:
    """A window over the text of a stream, that grows to hold one piece."""

    def __init__(self, stream: IO[bytes]) -> None:
        # "utf-8-sig" drops a byte order mark, which some editors add.
        self._stream, self._decoder = stream, codecs.getincrementaldecoder("utf-8-sig")()
        self._window, self._at, self._ended = "", 0, False

    def skip(self) -> str:
        """Return the next character that is not blank, without taking it; '' at the end."""
        while True:
            while self._at < len(self._window):
                if self._window[self._at] not in _BLANK:
                    return self._window[self._at]
                self._at += 1
            if not self._read_more():
                return ""

    def expect(self, allowed: str) -> str:
        """Take and return the next character, which is one of `allowed`."""
        character = self.skip()
        if not character or character not in allowed:
            raise _make_json_error()
        self._at += 1
        return character

    def items(self, opening: str, closing: str) -> Iterator[None]:
        """Yield before each item between two brackets.

        The caller takes it, and this the commas and brackets.
        """
        self.expect(opening)
        if self.skip() == closing:
            self.expect(closing)
            return
        yield
        while self.expect(f",{closing}") == ",":
            yield

    def value(self) -> Any:
        """Take and return the next value."""
        self.skip()
        while True:
            try:
                value, end = _decode(self._window, self._at)
                # A number at the end of the window may go on behind it ('' is in every text).
                # 12 may be the beginning of 12.5e3.
                if self._window[end : end + 1] not in ".eE" or not self._read_more():
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if not self._read_more():
                    raise _make_json_error() from error
            # Numbers of thousands of digits, brackets without end.
            except (ValueError, RecursionError) as error:
                raise _make_json_error() from error

    def _read_more(self) -> bool:
        """Read more text; return whether there was any.

        The amount doubles each time, so that a long piece is not parsed again for each chunk.
        """
        if self._ended:
            return False
        # Text that was taken is dropped, so that memory holds one piece and not the archive.
        rest = self._window[self._at :]
        if len(rest) > MAX_PIECE:
            raise TooLarge(
                "A part of the archive is too large.", f"The limit is {MAX_PIECE:,} characters."
            )
        data = self._stream.read(max(_CHUNK, len(rest)))
        # `final` makes the decoder refuse a cut-off character at the end.
        self._ended = not data
        try:
            self._window, self._at = rest + self._decoder.decode(data, final=self._ended), 0
        except UnicodeDecodeError as error:
            raise _make_json_error() from error
        return not self._ended


def _make_json_error() -> InvalidArchive:
    return InvalidArchive(
        "The archive is cut off or is not JSON as `evolvable export` writes it.",
        "Nothing was imported; export again.",
    )


# The largest that JSON readers with doubles keep exact; it fits SQLite's 64 bits.
_MAX_INTEGER = 2**53
_SHA256 = re.compile(r"[0-9a-f]{64}")
_OPERATION = shape("at actor reason", "session", "id", "evidence undoes")
_MOVE = shape("at actor reason", "session policy", lists="placed")
_CHANGE = {"operation": (int,), "ref": (str,), "after": (int, NoneType)}


class ArchiveReader:
    """Reads a JSON archive into the staging database."""

    def __init__(self, staging: ImportStaging) -> None:
        self._staging, self._looks_size = staging, 0
        self.looks: list[bytes] = []

    def read(self, stream: Stream) -> None:
        """Check the records of a whole archive and stage them.

        Raises InvalidArchive or TooLarge.
        """
        add = {
            "operations": self._add_operation,
            "changes": self._add_change,
            "blobs": self._add_blob,
            "channel": self._add_move,
            "evidence": self._add_evidence,
            "looks": self._add_look,
        }
        header: dict[str, Any] = {}
        for key, value in iterate_members(stream):
            # Keys of a newer program are kept in the header and ignored.
            if key not in add:
                header[key] = value
                continue
            # The format and its version come first, so that a foreign file is refused before
            # anything is staged.
            _check_header(header)
            if not isinstance(value, dict):
                raise _make_record_error(key, "one is not an object")
            try:
                add[key](value)
            # KeyError and TypeError: a member is missing, or an object stands where a text belongs.
            except (KeyError, TypeError, UnicodeEncodeError, OverflowError, *Errors) as error:
                why = f"{ascii(value)[:80]} cannot be kept ({error})"
                raise _make_record_error(key, why) from error
        _check_header(header)

    def _add_operation(self, record: dict[str, Any]) -> None:
        _check_shape("operations", record, _OPERATION)
        texts, numbers = record["evidence"], record["undoes"]
        is_actor = record["actor"] in set(Actor)
        if not is_actor or not _is_timestamp(record["at"]) or not record["reason"].strip():
            raise _make_record_error("operations", f"{record['id']} has no actor, time or reason")
        # type(), not isinstance(): True is an int for Python, and no number in an archive.
        if {*map(type, texts)} - {str} or {*map(type, numbers)} - {int}:
            raise _make_record_error("operations", f"{record['id']} has other evidence than texts")
        principal, via = record.get("principal"), record.get("via") or ""
        if principal not in {None, *Principal} or type(via) is not str:
            raise _make_record_error("operations", f"{record['id']} has an unknown principal")
        fields = [*(record[key] for key in _OPERATION if key != "id"), principal, via]
        self._staging.add_operation(record["id"], fields)

    def _add_change(self, record: dict[str, Any]) -> None:
        _check_shape("changes", record, _CHANGE)
        try:
            ref = Ref.parse(record["ref"]).at(None)
        except InvalidRef as error:
            raise _make_record_error("changes", error.text) from error
        chained, files = record.get("hash"), record.get("files")
        if (chained is None) != (files is None) or type(chained) not in (str, NoneType):
            raise _make_record_error("changes", f"one of {ref} has no hash or no files")
        if files is not None:
            _check_files(ref, files)
        self._staging.add_change(record["operation"], ref, record["after"], chained, files)

    def _add_blob(self, record: dict[str, Any]) -> None:
        text, encoded, name = record.get("text"), record.get("base64"), record.get("sha256")
        try:
            if isinstance(text, str):
                data = text.encode("utf-8")
            else:
                data = base64.b64decode(str(encoded), validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise _make_record_error("blobs", f"{ascii(name)[:80]} cannot be read") from error
        if len(data) > MAX_FILE:
            raise TooLarge(
                f"A file of the archive has {len(data):,} bytes.",
                f"The limit for one is {MAX_FILE:,}.",
            )
        if "purged" in record:
            self._add_tombstone(str(name), record["purged"], data)
            return
        # Under a wrong name nobody finds it. That is no error here: a version that needs the real
        # bytes is refused.
        if name != blob_hash(data):
            return
        self._staging.add_blob(name, len(data), *pack(data))

    def _add_tombstone(self, name: str, purge: Any, data: bytes) -> None:
        """Stage the tombstone of a purged blob.

        It never replaces bytes that the library has or gets.
        """
        is_record = isinstance(purge, dict) and _is_timestamp(str(purge.get("at")))
        if not is_record or not _SHA256.fullmatch(name):
            why = f"{ascii(name)[:80]} says of its purge {ascii(purge)[:80]}"
            raise _make_record_error("blobs", why)
        size = purge.get("size")
        if type(size) is not int or not 0 <= size <= MAX_FILE:
            why = f"{ascii(name)[:80]} was purged of {ascii(size)[:20]} bytes"
            raise _make_record_error("blobs", why)
        # Cut, since an archive's author decides on their length.
        at, actor, reason, kind = (
            str(purge.get(key))[:1_000] for key in ("at", "actor", "reason", "kind")
        )
        self._staging.add_blob(
            name, size, pack_tombstone(Tombstone(at, actor, reason, kind, data)), ABSENT
        )

    def _add_move(self, record: dict[str, Any]) -> None:
        _check_shape("moves of the channel", record, _MOVE)
        has_words = record["actor"] in set(Actor) and record["policy"] in {None, *ReleasePolicy}
        are_placements = all(map(_is_placement, record["placed"]))
        if not has_words or not _is_timestamp(record["at"]) or not are_placements:
            why = f"{ascii(record)[:80]} cannot be read"
            raise _make_record_error("moves of the channel", why)
        self._staging.add_move([record[key] for key in _MOVE])

    def _add_look(self, record: dict[str, Any]) -> None:
        self.looks.append(json.dumps(record).encode())
        self._looks_size += len(self.looks[-1])
        if self._looks_size > MAX_LOOKS:
            raise TooLarge(
                "The archive has too many looks at sealed tests.",
                f"The limit is {MAX_LOOKS:,} bytes.",
            )

    def _add_evidence(self, record: dict[str, Any]) -> None:
        checked = check_evidence(record)
        if checked is not None:
            self._staging.add_evidence(checked)


def check_evidence(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the known fields of a record of evidence, None for one of a newer program.

    Raises InvalidArchive.
    """
    fields = SHAPES.get(str(record.get("type")))
    # A record of a newer program is left out; the rest of the archive is still good.
    if fields is None:
        return None
    _check_shape("evidence", record, fields, least=0)
    if not is_valid_record(record) or not _is_timestamp(record["at"]):
        raise _make_record_error("evidence", f"{ascii(record)[:80]} cannot be read")
    return {"type": record["type"], **{key: record[key] for key in fields}}


def _check_header(header: dict[str, Any]) -> None:
    if header.get("format") != FORMAT:
        raise InvalidArchive(
            "This JSON is no archive of a library.", "`evolvable export` writes one."
        )
    if header.get("version") != FORMAT_VERSION:
        raise InvalidArchive(
            f"The archive has the version {ascii(header.get('version'))[:20]}, this program reads "
            f"{FORMAT_VERSION}.",
            "Update this program: git pull and pip install . in your clone.",
        )


def _check_shape(
    where: str, record: dict[str, Any], fields: dict[str, tuple[type, ...]], least: int = 1
) -> None:
    for key, types in fields.items():
        value = record.get(key)
        # type() again: a bool must not pass for a number.
        has_type = type(value) in types
        if not has_type or (isinstance(value, int) and not least <= value < _MAX_INTEGER):
            raise _make_record_error(where, f"{key} is {ascii(value)[:80]}")


def _check_files(ref: Ref, files: Any) -> None:
    """Raise InvalidArchive unless this is {path: [sha256, size, mode]}."""
    if not isinstance(files, dict) or len(files) > MAX_FILES:
        raise _make_record_error("changes", f"one of {ref} has too many files or none")
    for path, entry in files.items():
        has_types = isinstance(entry, list) and [*map(type, entry)] == [str, int, int]
        if not has_types or not _SHA256.fullmatch(entry[0]):
            why = f"the file {ascii(path)[:80]} of {ref} is {ascii(entry)[:80]}"
            raise _make_record_error("changes", why)


def _is_placement(value: Any) -> bool:
    """Return whether this is [ref of a skill, version or None, withdrawn]."""
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
    # fromisoformat accepts long fractions of a second; no program here writes more than 32
    # characters.
    return len(text) <= 40


def _make_record_error(where: str, why: str) -> InvalidArchive:
    return InvalidArchive(
        f"Among the {where} of the archive: {why}.", "Nothing was imported; export again."
    )
