"""The directory of a run: its ledger, the texts that records name by hash, and the files by which
processes reach its driver.

The ledger survives a kill at any instant. A line is `{"length":N,"sha256":"...","record":{...}}`. N
is the record's length in bytes. The hash covers the hash of the line before and the record, so that
a changed, missing or moved line is found.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from filelock import FileLock, Timeout

from evolvable_evolve.evolution.candidates import Program, program_from_json, program_to_json
from evolvable_store.errors import (
    EvolvableError,
    InvalidArgument,
    LibraryCorrupt,
    NotFound,
    TryAgain,
)
from evolvable_store.workingcopy import sync_folder

LedgerRecord = Mapping[str, Any]
"""One record: its `type`, `at` (when it was written, UTC, ISO 8601), and the fields of its type."""

# Exactly the bytes that `append_all` writes: another spelling of the same JSON is damage.
_HEAD = re.compile(rb'\{"length":(\d{1,15}),"sha256":"([0-9a-f]{64})","record":')
# O_NOFOLLOW: a link in the run's folder must not lead the writer to another file.
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_START = b"0" * 64
"""Takes the place of the hash of a line before the first."""


class LedgerError(EvolvableError):
    """The ledger cannot be read or written. No record that was appended before is lost."""


class LedgerBusy(LedgerError, TryAgain):
    """Another process writes this ledger."""


class LedgerDamaged(LedgerError):
    """A line in the middle of the ledger is not what was written there."""


class Ledger:
    """The one writer of a ledger.

    `records` is all of it. A record that `append` returned is on the disk, where the ledger is
    durable.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime], durable: bool) -> None:
        self.path = path
        self._clock, self._durable = clock, durable
        # Guards the whole file: two writers would chain their hashes to the same line. Held until
        # `close`.
        self._lock = FileLock(f"{path}.lock", timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            hint = "Wait until that run has stopped, or stop it, and try again."
            raise LedgerBusy(f"Another process writes {path}.", hint) from None
        # A failure on the way releases the lock and the file.
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._lock.release)
            new = not path.exists()
            self._descriptor = os.open(path, _FLAGS, 0o600)
            on_error.callback(os.close, self._descriptor)
            self.records, self._last, self._end = _parse_lines(path, path.read_bytes())
            # The half line of a killed writer was never acknowledged. It goes before a record is
            # appended behind it.
            if os.fstat(self._descriptor).st_size > self._end:
                os.ftruncate(self._descriptor, self._end)
                self._sync()
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
            # The entry of the file in its folder must survive a power cut too.
            if new and durable:
                sync_folder(path.parent)
            on_error.pop_all()

    @classmethod
    def open(
        cls, path: Path, *, clock: Callable[[], datetime] | None = None, durable: bool = True
    ) -> Self:
        """Open the ledger at `path`, or make it; its folder must exist.

        A last line that was not written whole is dropped. durable: whether every record waits for
        the disk. Without that a record survives a kill, but not a power cut. Raises LedgerBusy,
        LedgerDamaged.
        """
        return cls(path, clock or functools.partial(datetime.now, UTC), durable)

    def append(self, type: str, fields: Mapping[str, Any] | None = None) -> LedgerRecord:
        """Write one record and return it.

        Raises LedgerError where it could not be written, TypeError for a value that is no JSON.
        """
        return self.append_all([(type, fields or {})])[0]

    def append_all(self, records: Iterable[tuple[str, Mapping[str, Any]]]) -> list[LedgerRecord]:
        """Write records with one wait for the disk, and return them.

        After a kill meanwhile some of them may be there, from the first on.
        """
        at = self._clock().isoformat(timespec="milliseconds")
        written: list[LedgerRecord] = []
        lines, last = bytearray(), self._last
        for type, fields in records:
            # ASCII, so that text with lone surrogates, which is no valid Unicode, is kept as it is.
            record = {"type": type, "at": at, **fields}
            data = json.dumps(record, allow_nan=False, separators=(",", ":")).encode()
            last = hashlib.sha256(last + data).hexdigest().encode()
            lines += b'{"length":%d,"sha256":"%b","record":%b}\n' % (len(data), last, data)
            # Parsed again, so that the record is what a reader of the file gets: lists, not tuples.
            written.append(json.loads(data))
        self._write(bytes(lines))
        # After the write, so that a failed one leaves the chain of hashes at the last good line.
        self._last = last
        self._end += len(lines)
        self.records.extend(written)
        return written

    def _write(self, data: bytes) -> None:
        try:
            # `write` may take a part only.
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
            self._sync()
        except OSError as error:
            # Half a line must not stay where the next one begins.
            os.ftruncate(self._descriptor, self._end)
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
            text = f"{self.path} could not be written: {error.strerror}."
            hint = (
                "Make room or repair the disk, and continue the run; all that was written "
                "before is kept."
            )
            raise LedgerError(text, hint) from error

    def _sync(self) -> None:
        if self._durable:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Release the ledger for other writers. It cannot be appended to any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_ledger(path: Path) -> list[LedgerRecord]:
    """Return the records of a ledger, also while somebody writes it; none where there is no file.

    Raises LedgerDamaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return _parse_lines(path, data)[0]


def ledger_head(path: Path) -> tuple[int, str]:
    """Return how many records a ledger has, and the hash of its last line, which covers all of
    them.

    Raises LedgerDamaged.
    """
    records, last, _ = _parse_lines(path, path.read_bytes())
    return len(records), last.decode("ascii")


def _parse_lines(path: Path, data: bytes) -> tuple[list[LedgerRecord], bytes, int]:
    """Return the records, the last hash, and where the last whole record ends."""
    records: list[LedgerRecord] = []
    last, end = _START, 0
    lines = data.split(b"\n")[:-1]  # after the last line break there is at most half a line
    for number, line in enumerate(lines):
        parsed = _parse_line(line, last)
        if parsed is None:
            # A damaged last line is a crash; a good line after it means that somebody changed the
            # file.
            if _has_good_line(lines[number:]):
                text = f"Line {number + 1} of {path} is damaged, and there are good lines after it."
                hint = f"Restore the file from a backup, or keep only its first {number} lines."
                raise LedgerDamaged(text, hint)
            break
        record, last = parsed
        records.append(record)
        end += len(line) + 1
    return records, last, end


def _has_good_line(lines: list[bytes]) -> bool:
    """Return whether a line fits the hash that the line before it names."""
    for before, line in pairwise(lines):
        head = _HEAD.match(before)
        if _parse_line(line, head[2] if head else b"") is not None:
            return True
    return False


def _parse_line(line: bytes, last: bytes) -> tuple[LedgerRecord, bytes] | None:
    """Return the record of a line and its hash, None for a line that is damaged.

    last: the hash of the line before.
    """
    # A half line fails here or by its length, long before its hash is computed.
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
    if not isinstance(record, dict):
        return None
    has_fields = all(isinstance(record.get(key), str) for key in ("type", "at"))
    return (record, head[2]) if has_fields else None


P = ParamSpec("P")
T = TypeVar("T")

# A record's hash may be right and its fields wrong, when another program wrote it.
DAMAGE_ERRORS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""Errors of reading a value that is missing or of another type."""


def translate_damage(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, which raises LedgerDamaged where a value of a run is missing or of
    another type.

    The hashes of a ledger show accidental changes; a process that writes in the home can compute
    them again.
    """

    @functools.wraps(function)
    def read(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except DAMAGE_ERRORS as error:
            cause = f"{type(error).__name__}: {ascii(str(error)[:80])}"
            text = f"The run's folder holds what no run writes ({cause})."
            hint = "Restore the folder from a backup, or start a new run."
            raise LedgerDamaged(text, hint) from error

    return read


AGS_DIR = "ags"
"""The folder of all runs of agents, in the folder of the library."""

EVOLVE_DIR = "evolve"
"""The folder of all runs of evolution, in the folder of the library."""

_RUN = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
_QUESTION = re.compile(r"[a-z0-9-]{1,64}")

_START_GRACE = 30.0
"""Seconds that a driver may take to start, where the id of its process is unknown."""

# Later another process may have the id.
_LONGEST_START = 3_600.0
"""Seconds that a driver may take to start, where its process is there."""

_ASK_TIMEOUT = 5.0
"""Seconds for which one check whether a run is driven waits for another check."""


def _is_running(process: bytes) -> bool:
    """Return whether a process has this id."""
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    # A process of another account may not be signalled.
    except OSError:
        return True
    return True


class NoSuchRun(NotFound):
    """No run has this id."""


class RunDirectory:
    """Files of one run.

    Every file but the ledgers is written to a temporary name first and then renamed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.ledger = path / "ledger.jsonl"
        self.test_ledger = path / "test.jsonl"
        self.workspaces = path / "workspaces"
        self.log = path / "driver.log"

    def store_artifact(self, data: bytes | str) -> str:
        """Store a text and return its sha256, by which a record names it."""
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        name = hashlib.sha256(raw).hexdigest()
        path = self.path / "artifacts" / name
        # The name is its hash, so a file of this name holds the same text.
        if not path.exists():
            _write_durably(path, raw)
        return name

    def read_artifact(self, name: str) -> bytes:
        """Return the bytes that `store_artifact` stored.

        Raises NotFound, LibraryCorrupt where the bytes do not have this hash.
        """
        try:
            data = (self.path / "artifacts" / name).read_bytes()
        except OSError:
            text = f"Run {self.id} has no artefact {name[:12]}."
            raise NotFound(text, "Was its folder changed by hand?") from None
        is_whole = hashlib.sha256(data).hexdigest() == name
        # A purge rewrites artefacts and lists the new hashes.
        if not is_whole and not self._is_purged(f"artifacts/{name}", data):
            raise LibraryCorrupt(
                f"Artefact {name[:12]} of run {self.id} was changed.", "Start a new run."
            )
        return data

    def _is_purged(self, file: str, data: bytes) -> bool:
        """Return whether these are the bytes that a purge left of this file."""
        try:
            lines = (self.path / "purged.jsonl").read_text(encoding="utf-8").splitlines()
        # Most runs were never purged and have no list.
        except (OSError, UnicodeDecodeError):
            return False
        key = (file, hashlib.sha256(data).hexdigest())
        try:
            records = [json.loads(line) for line in lines]
            return any((record["file"], record["after"]) == key for record in records)
        except (ValueError, TypeError, LookupError, RecursionError):
            text = f"purged.jsonl of run {self.id} was changed."
            raise LibraryCorrupt(text, "Start a new run.") from None

    def store_json(self, value: Any) -> str:
        """Store a value as JSON and return its sha256."""
        return self.store_artifact(json.dumps(value, sort_keys=True, ensure_ascii=False))

    def read_json(self, name: str) -> Any:
        """Return a value that `store_json` stored. Raises as `read_artifact`."""
        return json.loads(self.read_artifact(name))

    def store_program(self, program: Program) -> None:
        """Store a program under its digest."""
        path = self.path / "programs" / f"{program.digest}.json"
        if not path.exists():
            _write_durably(path, program_to_json(program))

    def program(self, digest: str) -> Program:
        """Return a stored program. Raises NotFound, LibraryCorrupt."""
        try:
            data = (self.path / "programs" / f"{digest}.json").read_bytes()
        except OSError:
            text = f"Run {self.id} has no program {digest[:12]}."
            raise NotFound(text, "`evolvable evolve report`") from None
        if self._is_purged(f"programs/{digest}.json", data):
            text = f"Program {digest[:12]} of run {self.id} held what a person purged."
            raise NotFound(text, "Start a new run.")
        program = program_from_json(data)
        if program.digest != digest:
            raise LibraryCorrupt(
                f"Program {digest[:12]} of run {self.id} was changed.", "Start a new run."
            )
        return program

    def write_answer(self, question: str, answer: Any) -> None:
        """Write an answer for the driver, which records it in the ledger."""
        # The id becomes a part of a path.
        if not _QUESTION.fullmatch(question):
            text = f"{ascii(question[:80])} is no id of a question."
            raise InvalidArgument(text, "evolve_pending names those that wait.")
        self.write_file(f"answers/{question}.json", json.dumps(answer).encode("ascii"))

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file of the run. path: below its folder."""
        _write_durably(self.path / path, data)

    def answer(self, question: str) -> dict[str, Any] | None:
        """Return the answer to a question, None without one or where it is no object."""
        try:
            answer = json.loads((self.path / "answers" / f"{question}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None

    @property
    def is_stop_requested(self) -> bool:
        """Whether somebody asked the driver to stop."""
        return (self.path / "stop").exists()

    def request_stop(self, is_wanted: bool) -> None:
        """Ask the driver to stop at the next record, or with `is_wanted` False take that back."""
        self._set_flag("stop", is_wanted)

    def mark_driver_starting(self, expected: bool, process: int = 0) -> None:
        """Record that a driver was started and does not hold its lock yet, or with `expected` False
        that this is over.

        process: the driver's process id, once it is known.
        """
        if expected:
            self.write_file("starting", str(process or "").encode())
        else:
            self._set_flag("starting", False)

    def _set_flag(self, name: str, on: bool) -> None:
        if on:
            self.write_file(name, b"")
        else:
            (self.path / name).unlink(missing_ok=True)

    def driver_lock(self) -> FileLock:
        """Return the lock that the process that drives the run holds as long as it drives."""
        return FileLock(self.path / "driver.lock", thread_local=False)

    @property
    def is_driven(self) -> bool:
        """Whether a process drives the run now."""
        # The check takes the driver's lock for a moment, also in the process that has just driven.
        # One check at a time, so that no check takes another one for a driver.
        ask_lock = FileLock(self.path / "driver.ask.lock", timeout=_ASK_TIMEOUT, thread_local=False)
        with contextlib.ExitStack() as locks:
            # After the timeout the check goes on without the lock: the process of another check was
            # stopped while it held it.
            with contextlib.suppress(Timeout):
                locks.enter_context(ask_lock)
            try:
                locks.enter_context(self.driver_lock().acquire(timeout=0))
            except Timeout:
                return True
            return False

    @property
    def is_driver_starting(self) -> bool:
        """Whether a driver was started and does not drive yet.

        Without it a run that was just begun would look abandoned. On a busy machine a start takes
        long, so it counts as long as the process is there.
        """
        try:
            flag = self.path / "starting"
            age, process = time.time() - flag.stat().st_mtime, flag.read_bytes()
        except OSError:
            return False
        if process.isdigit() and os.name != "nt":  # on Windows `os.kill` with 0 would end it
            return age < _LONGEST_START and _is_running(process)
        return age < _START_GRACE


def _write_durably(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Nothing may be written through a link to a place outside of the run.
    if path.parent.is_symlink():
        raise LibraryCorrupt(
            f"{path.parent} is a symbolic link.", "Replace it by a folder of its own."
        )
    # A name of its own for each writer: two of them may write the same file at once.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        # Before the rename: after a power cut the name must not lead to an empty file.
        os.fsync(file.fileno())
    os.replace(draft, path)


def create_run(home: Path, now: datetime, kind: str = EVOLVE_DIR) -> RunDirectory:
    """Make the folder of a new run; its id begins with the time.

    kind: the folder of all runs of its kind.
    """
    while True:
        path = home / kind / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        try:
            path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            # Another run began in this second and drew the same four digits.
            continue
        return RunDirectory(path)


def find_run(home: Path, run: str | None, kind: str = EVOLVE_DIR) -> RunDirectory:
    """Return the run with this id or an unambiguous beginning of it, with None the newest.

    Raises NoSuchRun.
    """
    ids = [folder.id for folder in iter_runs(home, kind)]
    matches = [id_ for id_ in ids if id_.startswith(run)] if run else ids[:1]
    if len(matches) != 1:
        text = f"{ascii(run[:40])} is no run." if run else "There is no run yet."
        hint = f"The newest are {', '.join(ids[:3])}." if ids else f"{kind}_start makes one."
        raise NoSuchRun(text, hint)
    return RunDirectory(home / kind / matches[0])


def iter_runs(home: Path, kind: str = EVOLVE_DIR) -> Iterator[RunDirectory]:
    """Yield every run that was begun, the newest first."""
    folder = home / kind
    paths = sorted(folder.iterdir(), reverse=True) if folder.is_dir() else []
    yield from (RunDirectory(path) for path in paths if _has_begun(path))


def _has_begun(path: Path) -> bool:
    """Return whether the ledger of a run has its first record.

    The folder of a run is made before that.
    """
    if not _RUN.fullmatch(path.name) or path.is_symlink():
        return False
    try:
        with (path / "ledger.jsonl").open("rb") as file:
            return file.readline().startswith(b'{"length":')
    except OSError:
        return False
