"""The directory of a run: its ledger, the texts that records name by hash, and files from other processes.

The ledger survives a kill at any instant. A line is `{"length":N,"sha256":"...","record":{...}}`. N is the record's
length in bytes. The hash covers the hash of the line before and the record, so that a changed, missing or moved line is
found.
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
from evolvable_store.errors import EvolvableError, InvalidArgument, LibraryCorrupt, NotFound, TryAgain
from evolvable_store.workingcopy import sync_folder

LedgerRecord = Mapping[str, Any]
"""One record: its `type`, `at` (when it was written, UTC, ISO 8601), and the fields of its type."""

_HEAD = re.compile(rb'\{"length":(\d{1,15}),"sha256":"([0-9a-f]{64})","record":')
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
_START = b"0" * 64  # what the first line's hash goes on from


class LedgerError(EvolvableError):
    """The ledger cannot be read or written. Nothing that was appended before is lost."""


class LedgerBusy(LedgerError, TryAgain):
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
            hint = "Wait until that run has stopped, or stop it, and try again."
            raise LedgerBusy(f"Another process writes {path}.", hint) from None
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._lock.release)
            new = not path.exists()
            self._descriptor = os.open(path, _FLAGS, 0o600)
            on_error.callback(os.close, self._descriptor)
            self.records, self._last, self._end = _parse_lines(path, path.read_bytes())
            if os.fstat(self._descriptor).st_size > self._end:
                os.ftruncate(self._descriptor, self._end)
                self._sync()
            os.lseek(self._descriptor, self._end, os.SEEK_SET)
            if new and durable:
                sync_folder(path.parent)
            on_error.pop_all()

    @classmethod
    def open(cls, path: Path, *, clock: Callable[[], datetime] | None = None, durable: bool = True) -> Self:
        """Return the ledger at `path`, made when it is not there; its folder must exist.

        A last line that was not written whole is dropped. durable: whether every record waits for the disk; without
        it a record survives a kill, but not a power cut. Raises LedgerBusy and LedgerDamaged.
        """
        return cls(path, clock or functools.partial(datetime.now, UTC), durable)

    def append(self, type: str, fields: Mapping[str, Any] | None = None) -> LedgerRecord:
        """Write one record and return it. Raises LedgerError when it could not be kept, TypeError for no JSON."""
        return self.append_all([(type, fields or {})])[0]

    def append_all(self, records: Iterable[tuple[str, Mapping[str, Any]]]) -> list[LedgerRecord]:
        """Write records with one wait for the disk. A kill meanwhile may keep some of them, from the first on."""
        at = self._clock().isoformat(timespec="milliseconds")
        made: list[LedgerRecord] = []
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
            hint = "Make room or repair the disk, and continue the run; all that was written before is kept."
            raise LedgerError(f"{self.path} could not be written: {error.strerror}.", hint) from error

    def _sync(self) -> None:
        if self._durable:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Let others write. The ledger cannot be appended to any more."""
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
    """Return how many records a ledger has, and the hash of its last line, which covers all of them.

    Raises LedgerDamaged.
    """
    records, last, _ = _parse_lines(path, path.read_bytes())
    return len(records), last.decode("ascii")


def _parse_lines(path: Path, data: bytes) -> tuple[list[LedgerRecord], bytes, int]:
    """Return the records, the last hash, and where the last whole record ends."""
    records: list[LedgerRecord] = []
    last, end = _START, 0
    lines = data.split(b"\n")[:-1]  # what follows the last line break is no line
    for number, line in enumerate(lines):
        found = _parse_line(line, last)
        if found is None:
            heads = ((_HEAD.match(before), after) for before, after in pairwise(lines[number:]))
            if any(_parse_line(after, head[2] if head else b"") for head, after in heads):
                text = f"Line {number + 1} of {path} is damaged, and there are good lines after it."
                raise LedgerDamaged(text, f"Restore the file from a backup, or keep only its first {number} lines.")
            break
        record, last = found
        records.append(record)
        end += len(line) + 1
    return records, last, end


def _parse_line(line: bytes, last: bytes) -> tuple[LedgerRecord, bytes] | None:
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


P = ParamSpec("P")
T = TypeVar("T")

DAMAGE_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What reading a value of another type, or none, ends with."""


def translate_damage(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, which raises LedgerDamaged where a value of a run is missing or of another type.

    The hashes of a ledger show what was changed by accident; a process that writes in the home can compute them again.
    """

    @functools.wraps(function)
    def read(*args: P.args, **named: P.kwargs) -> T:
        try:
            return function(*args, **named)
        except DAMAGE_ERRORS as error:
            text = f"The run's folder holds what no run writes ({type(error).__name__}: {ascii(str(error)[:80])})."
            raise LedgerDamaged(text, "Restore the folder from a backup, or start a new run.") from error

    return read


AGS_DIR = "ags"
"""The folder of all runs of agents, in that of the library."""

EVOLVE_DIR = "evolve"
"""The folder of all runs, in that of the library."""

_RUN = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
_QUESTION = re.compile(r"[a-z0-9-]{1,64}")
_START_GRACE = 30.0  # seconds that a driver may take until it drives, where its process is not known
_LONGEST_START = 3_600.0  # later another process may have the id
_ASK_TIMEOUT = 5.0  # seconds that one who asks whether a run is driven waits for others who ask


def _runs(process: bytes) -> bool:
    """Return whether the process with this id is there."""
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


class NoSuchRun(NotFound):
    """No run has this id."""


class RunDirectory:
    """Files of one run. Everything but the ledger is written to a temporary name first and then renamed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.ledger = path / "ledger.jsonl"
        self.test_ledger = path / "test.jsonl"
        self.workspaces = path / "workspaces"
        self.log = path / "driver.log"

    def keep(self, data: bytes | str) -> str:
        """Keep a text and return its sha256, by which a record names it."""
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        name = hashlib.sha256(raw).hexdigest()
        place = self.path / "artifacts" / name
        if not place.exists():
            _write_durably(place, raw)
        return name

    def kept(self, name: str) -> bytes:
        """Return what `keep` kept. Raises NotFound, or LibraryCorrupt when its bytes are not those of its name."""
        try:
            data = (self.path / "artifacts" / name).read_bytes()
        except OSError:
            raise NotFound(f"Run {self.id} has no artefact {name[:12]}.", "Was its folder changed by hand?") from None
        if hashlib.sha256(data).hexdigest() != name and not self._is_purged(f"artifacts/{name}", data):
            raise LibraryCorrupt(f"Artefact {name[:12]} of run {self.id} was changed.", "Start a new run.")
        return data

    def _is_purged(self, file: str, data: bytes) -> bool:
        """Return whether these are the bytes that a purge left of a file."""
        try:
            lines = (self.path / "purged.jsonl").read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return False
        wanted = (file, hashlib.sha256(data).hexdigest())
        try:
            return any((one["file"], one["after"]) == wanted for one in [json.loads(line) for line in lines])
        except (ValueError, TypeError, LookupError, RecursionError):
            raise LibraryCorrupt(f"purged.jsonl of run {self.id} was changed.", "Start a new run.") from None

    def keep_json(self, value: Any) -> str:
        """Keep a value as JSON."""
        return self.keep(json.dumps(value, sort_keys=True, ensure_ascii=False))

    def kept_json(self, name: str) -> Any:
        """Return a value that `keep_json` kept. Raises as `kept`."""
        return json.loads(self.kept(name))

    def keep_program(self, program: Program) -> None:
        """Keep a program under its digest."""
        place = self.path / "programs" / f"{program.digest}.json"
        if not place.exists():
            _write_durably(place, program_to_json(program))

    def program(self, digest: str) -> Program:
        """Return a program that was kept. Raises NotFound, LibraryCorrupt."""
        try:
            data = (self.path / "programs" / f"{digest}.json").read_bytes()
        except OSError:
            raise NotFound(f"Run {self.id} has no program {digest[:12]}.", "`evolvable evolve report`") from None
        if self._is_purged(f"programs/{digest}.json", data):
            raise NotFound(f"Program {digest[:12]} of run {self.id} held what a person purged.", "Start a new run.")
        program = program_from_json(data)
        if program.digest != digest:
            raise LibraryCorrupt(f"Program {digest[:12]} of run {self.id} was changed.", "Start a new run.")
        return program

    def leave_answer(self, question: str, answer: Any) -> None:
        """Leave an answer for the driver, who takes it into the ledger."""
        if not _QUESTION.fullmatch(question):
            text = f"{ascii(question[:80])} is no id of a question."
            raise InvalidArgument(text, "evolve_pending names those that wait.")
        self.leave(f"answers/{question}.json", json.dumps(answer).encode("ascii"))

    def leave(self, path: str, data: bytes) -> None:
        """Write a file of the run, below its folder."""
        _write_durably(self.path / path, data)

    def answer(self, question: str) -> dict[str, Any] | None:
        """Return the answer that was left, None without one or when it is no object."""
        try:
            answer = json.loads((self.path / "answers" / f"{question}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None

    @property
    def is_stop_requested(self) -> bool:
        """Whether somebody asked the driver to stop."""
        return (self.path / "stop").exists()

    def request_stop(self, wanted: bool) -> None:
        """Ask the driver to stop at the next record, or take that back."""
        self._set_flag("stop", wanted)

    def mark_driver_starting(self, expected: bool, process: int = 0) -> None:
        """Note that a driver was started which does not drive yet, or that it does now, or never will.

        process: its id, once it is known.
        """
        if expected:
            self.leave("starting", str(process or "").encode())
        else:
            self._set_flag("starting", False)

    def _set_flag(self, name: str, on: bool) -> None:
        if on:
            self.leave(name, b"")
        else:
            (self.path / name).unlink(missing_ok=True)

    def driver_lock(self) -> FileLock:
        """Return the lock that the process which drives the run holds."""
        return FileLock(self.path / "driver.lock", thread_local=False)

    @property
    def is_driven(self) -> bool:
        """Whether a process drives the run now."""
        # Asking takes the lock for a moment, also in the process that has just driven. One asks at a time, so that
        # nobody takes another who asks for a driver.
        with contextlib.ExitStack() as held:
            with contextlib.suppress(Timeout):  # one who asks was stopped in the middle
                held.enter_context(FileLock(self.path / "driver.ask.lock", timeout=_ASK_TIMEOUT, thread_local=False))
            try:
                held.enter_context(self.driver_lock().acquire(timeout=0))
            except Timeout:
                return True
            return False

    @property
    def is_driver_starting(self) -> bool:
        """Whether a driver was started and does not drive yet. Without this a run just begun would look given up.

        On a busy machine that takes long: while the process is there, it is waited for.
        """
        try:
            flag = self.path / "starting"
            age, process = time.time() - flag.stat().st_mtime, flag.read_bytes()
        except OSError:
            return False
        if process.isdigit() and os.name != "nt":  # on Windows asking would end it
            return age < _LONGEST_START and _runs(process)
        return age < _START_GRACE


def _write_durably(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.parent.is_symlink():
        raise LibraryCorrupt(f"{place.parent} is a symbolic link.", "Replace it by a folder of its own.")
    draft = place.with_name(f".{place.name}.{os.getpid()}.{secrets.token_hex(3)}")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, place)


def create_run(home: Path, now: datetime, kind: str = EVOLVE_DIR) -> RunDirectory:
    """Make the folder of a new run; its id begins with the time. kind: the folder of all runs of its kind."""
    while True:
        path = home / kind / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        try:
            path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            continue
        return RunDirectory(path)


def find_run(home: Path, run: str | None, kind: str = EVOLVE_DIR) -> RunDirectory:
    """Return the run of this id or of an unambiguous beginning of it; without one the newest. Raises NoSuchRun."""
    ids = [folder.id for folder in iter_runs(home, kind)]
    found = [one for one in ids if one.startswith(run)] if run else ids[:1]
    if len(found) != 1:
        what = f"{ascii(run[:40])} is no run." if run else "There is no run yet."
        raise NoSuchRun(what, f"The newest are {', '.join(ids[:3])}." if ids else f"{kind}_start makes one.")
    return RunDirectory(home / kind / found[0])


def iter_runs(home: Path, kind: str = EVOLVE_DIR) -> Iterator[RunDirectory]:
    """Yield every run that was begun, the newest first."""
    folder = home / kind
    paths = sorted(folder.iterdir(), reverse=True) if folder.is_dir() else []
    yield from (RunDirectory(path) for path in paths if _has_begun(path))


def _has_begun(path: Path) -> bool:
    """Return whether a run was begun here: its first record is whole. Its folder is made before that."""
    if not _RUN.fullmatch(path.name) or path.is_symlink():
        return False
    try:
        with (path / "ledger.jsonl").open("rb") as file:
            return file.readline().startswith(b'{"length":')
    except OSError:
        return False
