"""The folder of one run: its ledger, the texts that its records name by hash, and what other processes leave for it."""

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from evolvable_store.errors import InvalidArgument, LibraryCorrupt, NotFound
from evolvable_tools.evolve import programs
from evolvable_tools.evolve.program import Program

EVOLVE = "evolve"
"""The folder of all runs, in that of the library."""

_RUN = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
_PACKET = re.compile(r"[a-z0-9-]{1,64}")
_SETTING_OUT = 30.0  # seconds that a driver may take until it drives


class NoSuchRun(NotFound):
    """No run has this id."""


class RunFolder:
    """Files of one run. Everything but the ledger is written to a temporary name first and then renamed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.ledger = path / "ledger.jsonl"
        self.workspaces = path / "workspaces"
        self.log = path / "driver.log"

    def keep(self, data: bytes | str) -> str:
        """Keeps a text and returns its sha256, by which a record names it."""
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        name = hashlib.sha256(raw).hexdigest()
        place = self.path / "artifacts" / name
        if not place.exists():
            _write(place, raw)
        return name

    def kept(self, name: str) -> bytes:
        """Returns what `keep` kept. Raises NotFound, or LibraryCorrupt when its bytes are not those of its name."""
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
        try:
            notes = [json.loads(line) for line in lines]
            return any((one["file"], one["after"]) == (file, hashlib.sha256(data).hexdigest()) for one in notes)
        except (ValueError, TypeError, LookupError, RecursionError):
            raise LibraryCorrupt(f"purged.jsonl of run {self.id} was changed.", "Start a new run.") from None

    def keep_json(self, value: Any) -> str:
        """Keeps a value as JSON."""
        return self.keep(json.dumps(value, sort_keys=True, ensure_ascii=False))

    def kept_json(self, name: str) -> Any:
        """Returns a value that `keep_json` kept. Raises as `kept`."""
        return json.loads(self.kept(name))

    def keep_program(self, program: Program) -> None:
        """Keeps a program under its digest."""
        place = self.path / "programs" / f"{program.digest}.json"
        if not place.exists():
            _write(place, programs.to_json(program))

    def program(self, digest: str) -> Program:
        """Returns a program that was kept. Raises NotFound, LibraryCorrupt."""
        try:
            data = (self.path / "programs" / f"{digest}.json").read_bytes()
        except OSError:
            raise NotFound(f"Run {self.id} has no program {digest[:12]}.", "`evolvable evolve report`") from None
        if self._is_purged(f"programs/{digest}.json", data):
            raise NotFound(f"Program {digest[:12]} of run {self.id} held what a person purged.", "Start a new run.")
        program = programs.from_json(data)
        if program.digest != digest:
            raise LibraryCorrupt(f"Program {digest[:12]} of run {self.id} was changed.", "Start a new run.")
        return program

    def leave_answer(self, packet: str, answer: Any) -> None:
        """Leaves an answer for the driver, who takes it into the ledger."""
        if not _PACKET.fullmatch(packet):
            raise InvalidArgument(f"{ascii(packet[:80])} is no packet.", "evolve_pending names those that wait.")
        _write(self.path / "answers" / f"{packet}.json", json.dumps(answer).encode("ascii"))

    def leave(self, path: str, data: bytes) -> None:
        """Write a file of the run, below its folder."""
        _write(self.path / path, data)

    def answer(self, packet: str) -> Any:
        """Returns the answer that was left, None when there is none yet."""
        try:
            return json.loads((self.path / "answers" / f"{packet}.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return None

    @property
    def stop_wanted(self) -> bool:
        """Whether somebody asked the driver to stop."""
        return (self.path / "stop").exists()

    def want_stop(self, wanted: bool) -> None:
        """Asks the driver to stop at the next record, or takes that back."""
        if wanted:
            _write(self.path / "stop", b"")
        else:
            (self.path / "stop").unlink(missing_ok=True)

    def expect_driver(self, expected: bool) -> None:
        """Notes that a driver was started which does not drive yet, or that it does now, or never will."""
        if expected:
            _write(self.path / "starting", b"")
        else:
            (self.path / "starting").unlink(missing_ok=True)

    @property
    def driver_expected(self) -> bool:
        """Whether a driver was started a moment ago. Without this a run that was just begun would look given up."""
        try:
            return time.time() - (self.path / "starting").stat().st_mtime < _SETTING_OUT
        except OSError:
            return False


def _write(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.parent.is_symlink():
        raise LibraryCorrupt(f"{place.parent} is a symbolic link.", "Replace it by a folder of its own.")
    draft = place.with_name(f".{place.name}.{os.getpid()}.{secrets.token_hex(3)}")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, place)


def new_run(home: Path, now: datetime) -> RunFolder:
    """Makes the folder of a new run; its id begins with the time."""
    while True:
        path = home / EVOLVE / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        try:
            path.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            continue
        return RunFolder(path)


def the_run(home: Path, run: str | None) -> RunFolder:
    """Returns the run of this id or of an unambiguous beginning of it; without one the newest. Raises NoSuchRun."""
    ids = [folder.id for folder in runs(home)]
    found = [one for one in ids if one.startswith(run)] if run else ids[:1]
    if len(found) != 1:
        what = f"{ascii(run[:40])} is no run" if run else "There is no run yet"
        listed = f"The newest are {', '.join(ids[:3])}." if ids else "evolve_start makes one."
        raise NoSuchRun(f"{what}.", listed)
    return RunFolder(home / EVOLVE / found[0])


def runs(home: Path) -> Iterator[RunFolder]:
    """Yields every run that was begun, the newest first."""
    folder = home / EVOLVE
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    yield from (RunFolder(folder / name) for name in sorted(names, reverse=True) if _begun(folder / name))


def _begun(path: Path) -> bool:
    """Returns whether a run was begun here: its first record is whole. Its folder is made before that."""
    if not _RUN.fullmatch(path.name) or path.is_symlink():
        return False
    try:
        with (path / "ledger.jsonl").open("rb") as file:
            return file.readline().startswith(b'{"length":')
    except OSError:
        return False
