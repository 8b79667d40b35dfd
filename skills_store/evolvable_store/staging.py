"""The hidden place beside a watched root where folders are built, and where replaced ones wait before they are deleted.

A swap has a stem `<name>.<process>-<random>` and these entries, each optional:
  .json   the note: what is being replaced, by whom, and what it was believed to hold
  .new    being built; never of use after a crash
  .ready  built; until an exchange it is ours, after it the replaced folder
  .old    the replaced folder
  .gone   being deleted
"""

import errno
import json
import os
import re
import secrets
import shutil
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from evolvable_store.errors import Refused

_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM}
_UNKNOWN_SECONDS, _ALIVE_SECONDS = 60.0, 600.0
_STATES = ("json", "part", "new", "ready", "old", "gone")


def staging_for(root: Path) -> Path:
    """Returns the staging folder of a watched root, made with mode 0700 when it is not there.

    It is `.<name>.evolvable` beside the root, so that a watcher of the root sees nothing of it; where that cannot be
    (the parent is not ours to write, or on another file system) `.evolvable` inside. A rename from it into the root
    is one step. Raises Refused when neither can be.
    """
    beside, inside = root.parent / f".{root.name}.evolvable", root / ".evolvable"
    for staging in (beside, inside):
        if _usable(staging, root):
            return staging
    raise Refused(
        f"Nothing can be written into {root} or beside it.",
        "Make room, or give yourself the right to write; until then its resources are served from the library alone.",
    )


@dataclass(frozen=True, slots=True)
class Note:
    """What a swap is about, kept beside it for whoever sweeps after a crash.

    target: relative to the staging folder, so that both can be moved together. at: seconds. host, process: who does
    it. inode: of the folder that was built, 0 for a removal. believed, written: the trees of the replaced and of the
    new folder. drop: None, or (where files are replaced one by one) the paths to take away.
    """

    target: str
    at: float
    host: str
    process: int
    inode: int
    believed: str
    written: str
    drop: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """The entries of one swap."""

    staging: Path
    stem: str

    @classmethod
    def fresh(cls, staging: Path, name: str) -> "Slot":
        """Returns an unused slot for a folder of this name."""
        shown = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
        return cls(staging, f"{shown}.{os.getpid()}-{secrets.token_hex(6)}")

    @classmethod
    def of(cls, old: Path) -> "Slot":
        """Returns the slot that one of its entries belongs to."""
        return cls(old.parent, old.stem)

    @property
    def new(self) -> Path:
        return self.staging / f"{self.stem}.new"

    @property
    def ready(self) -> Path:
        return self.staging / f"{self.stem}.ready"

    @property
    def old(self) -> Path:
        return self.staging / f"{self.stem}.old"

    @property
    def gone(self) -> Path:
        return self.staging / f"{self.stem}.gone"

    @property
    def note(self) -> Path:
        return self.staging / f"{self.stem}.json"

    @property
    def part(self) -> Path:
        return self.staging / f"{self.stem}.part"

    def target(self, note: Note) -> Path:
        """Returns the folder that the swap is about."""
        return Path(os.path.normpath(self.staging / note.target))

    def write_note(self, note: Note) -> None:
        """Writes the note, so that it is whole or not there."""
        with open(self.part, "x", encoding="utf-8") as stream:
            json.dump(asdict(note), stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(self.part, self.note)

    def read_note(self) -> Note | None:
        """Returns the note, or None when there is none that can be read."""
        try:
            return Note(**json.loads(self.note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def delete(self, folder: Path) -> None:
        """Deletes a folder of this slot; under another name first, so that nobody takes half of it for a whole."""
        if folder != self.gone:
            _erase(self.gone)
            try:
                os.rename(folder, self.gone)
            except OSError:
                return
        _erase(self.gone)

    def clear(self) -> None:
        """Deletes all of the slot; the note stays as long as a folder could not be deleted."""
        for folder in (self.new, self.ready, self.old, self.gone):
            self.delete(folder)
        if not any(map(os.path.lexists, (self.new, self.ready, self.old))):
            self.part.unlink(missing_ok=True)
            self.note.unlink(missing_ok=True)


def new_note(slot: Slot, target: Path, *, now: float, inode: int, believed: str, written: str) -> Note:
    """Returns the note of a swap that this process makes."""
    where = os.path.relpath(os.path.abspath(target), os.path.abspath(slot.staging))
    return Note(where, now, _host(), os.getpid(), inode, believed, written)


def slots(staging: Path) -> list[Slot]:
    """Returns every slot of the staging folder that has an entry, by name."""
    try:
        names = os.listdir(staging)
    except FileNotFoundError:
        return []
    stems = {name.rpartition(".")[0] for name in names if name.rpartition(".")[2] in _STATES}
    return [Slot(staging, stem) for stem in sorted(stems) if stem]


def abandoned(note: Note, now: float) -> bool:
    """Returns whether nobody works on this swap any more.

    The process is dead, or (on another host, or where one cannot ask) enough time has passed; a clock that was set
    back counts as passed time.
    """
    age = abs(now - note.at)
    if os.name != "posix" or note.host != _host():
        return age > _UNKNOWN_SECONDS
    return age > _ALIVE_SECONDS or not _alive(note.process)


def unfinished(slot: Slot, now: float) -> bool:
    """Returns whether nobody will finish what is being built in a slot without a note; the file system says its age."""
    process = slot.stem.rpartition(".")[2].partition("-")[0]
    for path in (slot.new, slot.part):
        with suppress(FileNotFoundError):
            age = abs(now - path.stat().st_mtime)
            alive = os.name == "posix" and process.isdecimal() and _alive(int(process))
            return age > (_ALIVE_SECONDS if alive else _UNKNOWN_SECONDS)
    return False


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable, where the system can."""
    if os.name != "posix":
        return
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else ""


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _erase(path: Path) -> None:
    with suppress(OSError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def _usable(staging: Path, root: Path) -> bool:
    try:
        if not _reaches(staging.parent, root):
            return False
        if not os.path.lexists(staging):
            staging.mkdir(mode=0o700)
            (staging / ".gitignore").write_text("*\n", encoding="utf-8")
        status = os.lstat(staging)
    except OSError:
        return False
    ours = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return stat.S_ISDIR(status.st_mode) and ours and os.access(staging, os.W_OK | os.X_OK)


def _reaches(parent: Path, root: Path) -> bool:
    """Returns whether a rename from one to the other is possible; bind mounts of one device refuse it too."""
    if os.stat(parent).st_dev != os.stat(root).st_dev:
        return False
    name = f".probe.{secrets.token_hex(6)}"
    try:
        os.rename(parent / name, root / name)
    except OSError as error:
        return error.errno != errno.EXDEV
    return True
