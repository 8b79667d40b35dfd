"""The ledger: what happened in a run, record by record, in a file that survives a kill at any instant.

A line is `{"length":N,"sha256":"...","record":{...}}`. N is the record's length in bytes; the hash is over the hash of
the line before and the record, so that no line can be changed, left out or moved without being noticed.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from evolvable_store.errors import EvolvableError

Record = Mapping[str, Any]
"""One record: its `type`, `at` (when it was written, UTC, ISO 8601), and the fields of its type."""

_HEAD = re.compile(rb'\{"length":(\d{1,15}),"sha256":"([0-9a-f]{64})","record":')
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_START = b"0" * 64  # what the first line's hash goes on from


class LedgerError(EvolvableError):
    """The ledger cannot be read or written. Nothing that was appended before is lost."""


class LedgerBusy(LedgerError):
    """Another process writes this ledger."""


class LedgerDamaged(LedgerError):
    """A line in the middle of the ledger is not what was written there."""


class Ledger:
    """The one writer of a ledger. `records` is all of it; what `append` has returned from is on the disk."""

    def __init__(self, path: Path, clock: Callable[[], datetime], durable: bool) -> None:
        self.path = path
        self._clock, self._durable = clock, durable
        self._lock = FileLock(f"{path}.lock", timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise LedgerBusy(
                f"Another process writes {path}.", "Wait until that run has stopped, or stop it, and try again."
            ) from None
        try:
            new = not path.exists()
            self._descriptor = os.open(path, _FLAGS, 0o600)
        except BaseException:
            self._lock.release()
            raise
        try:
            self.records, self._last, self._end = _parsed(path, path.read_bytes())
            if os.fstat(self._descriptor).st_size > self._end:
                os.ftruncate(self._descriptor, self._end)
                self._sync()
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
            if new and durable:
                _sync_folder(path.parent)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: Path, *, clock: Callable[[], datetime] | None = None, durable: bool = True) -> Self:
        """Returns the ledger at `path`, made when it is not there; its folder must exist.

        A last line that was not written whole is dropped. durable: whether every record waits for the disk; without
        it a record survives a kill, but not a power cut. Raises LedgerBusy and LedgerDamaged.
        """
        return cls(path, clock or _now, durable)

    def append(self, type: str, fields: Mapping[str, Any] | None = None) -> Record:
        """Writes one record and returns it. Raises LedgerError when it could not be kept, TypeError for no JSON."""
        return self.append_all([(type, fields or {})])[0]

    def append_all(self, records: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Record]:
        """Writes records with one wait for the disk. A kill meanwhile may keep some of them, from the first on."""
        at = self._clock().isoformat(timespec="milliseconds")
        made: list[Record] = []
        lines, last = bytearray(), self._last
        for type, fields in records:
            # ASCII, so that text which is no valid Unicode is kept as it is.
            data = json.dumps({"type": type, "at": at, **fields}, allow_nan=False, separators=(",", ":")).encode()
            last = hashlib.sha256(last + data).hexdigest().encode()
            lines += b'{"length":%d,"sha256":"%b","record":%b}\n' % (len(data), last, data)
            made.append(json.loads(data))
        self._write(bytes(lines))
        self._last = last
        self._end += len(lines)
        self.records.extend(made)
        return made

    def _write(self, data: bytes) -> None:
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            self._sync()
        except OSError as error:
            # Half a line must not stay where the next one begins.
            os.ftruncate(self._descriptor, self._end)
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
            raise LedgerError(
                f"{self.path} could not be written: {error.strerror}.",
                "Make room or mend the disk, and continue the run; all that was written before is kept.",
            ) from error

    def _sync(self) -> None:
        if self._durable:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Lets others write. The ledger cannot be appended to any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: Path) -> list[Record]:
    """Returns the records of a ledger, also while somebody writes it; none where there is no file.

    Raises LedgerDamaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return _parsed(path, data)[0]


def _parsed(path: Path, data: bytes) -> tuple[list[Record], bytes, int]:
    """Returns the records, the last hash, and where the last whole record ends."""
    records: list[Record] = []
    last, end = _START, 0
    lines = data.split(b"\n")
    whole = len(lines) - 1  # what follows the last line break is no line
    for number in range(whole):
        line = lines[number]
        found = _record(line, last)
        if found is None:
            if any(_record(after, _hash_of(before)) for before, after in _pairs(lines[number:whole])):
                raise LedgerDamaged(
                    f"Line {number + 1} of {path} is damaged, and there are good lines after it.",
                    f"Restore the file from a backup, or keep only its first {number} lines.",
                )
            break
        record, last = found
        records.append(record)
        end += len(line) + 1
    return records, last, end


def _record(line: bytes, last: bytes) -> tuple[Record, bytes] | None:
    head = _HEAD.match(line)
    if head is None or not line.endswith(b"}"):
        return None
    data = line[head.end() : -1]
    if len(data) != int(head[1]) or hashlib.sha256(last + data).hexdigest().encode() != head[2]:
        return None
    try:
        record = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    known = isinstance(record, dict) and all(isinstance(record.get(key), str) for key in ("type", "at"))
    return (record, head[2]) if known else None


def _hash_of(line: bytes) -> bytes:
    head = _HEAD.match(line)
    return head[2] if head else b""


def _pairs(lines: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(lines, lines[1:], strict=False)


def _now() -> datetime:
    return datetime.now(UTC)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
