"""The hidden folder beside a watched root where folders are built, and where replaced ones wait before deletion.

The staging folder lies in a work tree, so its content is hostile input: a repository can bring any entry. Which
entries are ours, and which folder each of them belongs to, is decided only by recovery notes in the library's home.
An entry without a note is left alone and reported by `unknown_entries`.

A swap has a stem `<name>.<process>-<random>`, a note `<stem>.json` in the home, and these entries, each optional:
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
from evolvable_store.folder import is_link

_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM}
_UNKNOWN_SECONDS, _ALIVE_SECONDS = 60.0, 600.0


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging folder of one watched root, and the folder in the library's home that holds its recovery notes."""

    root: Path
    path: Path
    notes: Path

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def target(self, name: str) -> Path:
        """Return the path of a directory below the root.

        Raise Refused when the name leaves the root, or a symbolic link is on the way.
        """
        if not is_inside(name):
            raise Refused(f"{name[:80]!r} is not a directory below {self.root}.", "Nothing was written.")
        if os.path.realpath(self.root) != os.fspath(self.root):
            raise Refused(
                f"{self.root} is now a symbolic link, or lies below one; it is not written through.",
                "Run `evolvable init` on the folder that it leads to, or put the directory back.",
            )
        target = self.root
        for part in name.split("/"):
            if target != self.root and os.path.lexists(target) and is_link(os.lstat(target)):
                raise Refused(f"{target} is a symbolic link; nothing is written below it.", "Remove the link.")
            target = target / part
        return target

    def name_of(self, target: Path) -> str:
        """Return the name of a directory below the root, as a note records it. Raise Refused when it is not below."""
        with suppress(ValueError):
            name = Path(os.path.abspath(target)).relative_to(os.path.abspath(self.root)).as_posix()
            if is_inside(name):
                return name
        raise Refused(f"{target} is not below {self.root}; it is not written.", "Name a directory of this folder.")


def is_inside(name: str) -> bool:
    """Return whether a relative path with `/` names something below its folder, on every system."""
    parts = name.split("/")
    return (
        all(part not in ("", ".", "..") for part in parts)
        and not any(char in name for char in "\\\0")
        and not (os.name == "nt" and ":" in name)
    )


def staging_for(root: Path, notes: Path) -> Staging:
    """Return the staging folder of a watched root; make it with mode 0700 when it does not exist.

    It is `.<name>.evolvable` beside the root, so that a watcher of the root sees nothing of it; where that is not
    possible (the parent is not ours to write, or on another file system) `.evolvable` inside. A rename from it into
    the root is atomic. notes: the folder for recovery notes, in the library's home; made when it does not exist.
    Raise Refused when the staging folder can be made in neither place.
    """
    root = root.resolve()
    for path in _places(root):
        if _usable(path, root):
            notes.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Staging(root, path, notes)
    raise Refused(
        f"Nothing can be written into {root} or beside it.",
        "Make room, or give yourself the right to write; until then its resources are served from the library alone.",
    )


@dataclass(frozen=True, slots=True)
class Note:
    """What a swap is about, kept in the library's home for recovery after a crash.

    target: relative to the watched root, with `/`. at: seconds. host, process: who does
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

    staging: Staging
    stem: str

    @classmethod
    def fresh(cls, staging: Staging, name: str) -> "Slot":
        """Returns an unused slot for a folder of this name."""
        shown = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
        return cls(staging, f"{shown}.{os.getpid()}-{secrets.token_hex(6)}")

    @classmethod
    def of(cls, old: Path, staging: Staging) -> "Slot":
        """Return the slot that one of its entries belongs to."""
        return cls(staging, old.stem)

    @property
    def new(self) -> Path:
        return self.staging.path / f"{self.stem}.new"

    @property
    def ready(self) -> Path:
        return self.staging.path / f"{self.stem}.ready"

    @property
    def old(self) -> Path:
        return self.staging.path / f"{self.stem}.old"

    @property
    def gone(self) -> Path:
        return self.staging.path / f"{self.stem}.gone"

    @property
    def note(self) -> Path:
        return self.staging.notes / f"{self.stem}.json"

    @property
    def part(self) -> Path:
        return self.staging.notes / f"{self.stem}.part"

    def target(self, note: Note) -> Path:
        """Return the folder that the swap is about. Raise Refused as `Staging.target`."""
        return self.staging.target(note.target)

    def write_note(self, note: Note, *, durable: bool = True) -> None:
        """Write the note, whole or not at all; when `durable`, it survives a power failure."""
        with open(self.part, "x", encoding="utf-8") as stream:
            json.dump(asdict(note), stream)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.replace(self.part, self.note)
        if durable:
            sync_folder(self.staging.notes)

    def read_note(self) -> Note | None:
        """Return the note, or None when there is none that can be read."""
        try:
            return _as_note(json.loads(self.note.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
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
    return Note(slot.staging.name_of(target), now, _host(), os.getpid(), inode, believed, written)


def slots(staging: Staging) -> list[Slot]:
    """Return every slot that has a recovery note in the home, finished or being written, by name."""
    try:
        names = os.listdir(staging.notes)
    except FileNotFoundError:
        return []
    stems = {name.rpartition(".")[0] for name in names if name.rpartition(".")[2] in ("json", "part")}
    return [Slot(staging, stem) for stem in sorted(stems) if stem]


def unknown_entries(root: Path, notes: Path) -> list[Path]:
    """Return the entries of the staging folders of a root that no recovery note of this library explains, sorted.

    They come from another library, an older version, or a repository. They are never read, moved or deleted.
    """
    found = []
    for folder in _places(root):
        known = {slot.stem for slot in slots(Staging(root, folder, notes))}
        with suppress(OSError):
            names = os.listdir(folder) if not is_link(os.lstat(folder)) else []
            found += [folder / name for name in names if name != ".gitignore" and Path(name).stem not in known]
    return sorted(found)


def _places(root: Path) -> tuple[Path, Path]:
    return root.parent / f".{root.name}.evolvable", root / ".evolvable"


def _as_note(fields: object) -> Note:
    """Return the note that these JSON fields are. Raise ValueError for anything else."""
    if not isinstance(fields, dict) or set(fields) != {*Note.__dataclass_fields__}:
        raise ValueError("not the fields of a note")
    texts = all(type(fields[key]) is str for key in ("target", "host", "believed", "written"))
    numbers = type(fields["at"]) in (int, float) and all(type(fields[key]) is int for key in ("process", "inode"))
    drop = fields["drop"]
    paths = drop is None or isinstance(drop, list) and all(type(path) is str and is_inside(path) for path in drop)
    if not (texts and numbers and paths and is_inside(fields["target"])):
        raise ValueError("a field of the note has a wrong value")
    return Note(**fields)


def abandoned(note: Note, now: float) -> bool:
    """Returns whether nobody works on this swap any more.

    The process is dead, or (on another host, or where one cannot ask) enough time has passed; a clock that was set
    back counts as passed time.
    """
    age = abs(now - note.at)
    if os.name != "posix" or note.host != _host():
        return age > _UNKNOWN_SECONDS
    return age > _ALIVE_SECONDS or not _alive(note.process)


def clear_part(slot: Slot, now: float) -> None:
    """Delete a note that was never finished, once its writer has had time to; nothing else of the slot exists."""
    process = slot.stem.rpartition(".")[2].partition("-")[0]
    alive = os.name == "posix" and process.isdecimal() and _alive(int(process))
    with suppress(FileNotFoundError):
        if abs(now - slot.part.stat().st_mtime) > (_ALIVE_SECONDS if alive else _UNKNOWN_SECONDS):
            slot.part.unlink(missing_ok=True)


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
    if process <= 0:
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
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
