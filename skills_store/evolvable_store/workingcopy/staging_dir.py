"""The hidden folder beside a watched root in which folders are built and replaced ones wait.

The staging folder lies in a work tree, so its content is hostile input: a repository can bring any
entry. Which entries are ours, and which folder each of them belongs to, is decided only by recovery
notes in the library's home. An entry without a note is left alone and reported by
`unknown_entries`.

A swap has a stem `<name>.<process>-<random>`, a note `<stem>.json` in the home, and these entries,
each optional:
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
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_store.errors import Refused
from evolvable_store.workingcopy.openat import (
    BY_DESCRIPTOR,
    Directory,
    PathAt,
    open_real,
    rename,
    write_all,
)

# The errors of file systems that cannot sync a directory.
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM}
# A swap takes milliseconds; the longer time is for a process that was stopped in the middle and
# lives.
_UNKNOWN_SECONDS, _ALIVE_SECONDS = 60.0, 600.0
"""Seconds after which a swap counts as abandoned: of an unknown process, and of one that lives."""

_INSIDE = ".evolvable"
_OF_PATHS = ("path", "tree")  # fields of the notes that are about one path of a directory
_OPTIONAL_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_BINARY"))
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPTIONAL_FLAGS


@dataclass(frozen=True, slots=True)
class StagingDirectory:
    """The staging folder of one watched root, and the folder of its recovery notes.

    path: the staging folder. notes: lies in the library's home. inode: of the root when it was
    opened, 0 for any.
    """

    root: Path
    path: Path
    notes: Path
    inode: int = 0

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def is_usable(self) -> bool:
        """Return whether the root is the same, and the staging folder this account's alone."""
        try:
            root, status = os.lstat(self.root), os.lstat(self.path)
        except OSError:
            return False
        # Others could otherwise exchange what was built here.
        is_own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
        are_there = stat.S_ISDIR(status.st_mode) and os.path.isdir(self.notes)
        return root.st_ino == self.inode and are_there and is_own and not status.st_mode & 0o022

    def name_of(self, target: Path) -> str:
        """Return the name of a directory below the root, as a note records it.

        Raise Refused when it is not below.
        """
        with suppress(ValueError):
            name = Path(os.path.abspath(target)).relative_to(os.path.abspath(self.root)).as_posix()
            if is_inside(name):
                return name
        raise Refused(
            f"{target} is not below {self.root}; it is not written.",
            "Name a directory of this folder.",
        )


@dataclass(frozen=True, slots=True)
class OpenStagingDirectory:
    """A watched root and its staging folder, both open.

    These two are written, whatever their paths lead to meanwhile.
    """

    staging: StagingDirectory
    root: Directory
    directory: Directory

    def target(self, name: str) -> PathAt:
        """Return the path of a directory below the root.

        Raise Refused when the name leaves the root.
        """
        if not is_inside(name):
            raise Refused(
                f"{name[:80]!r} is not a directory below {self.staging.root}.",
                "Nothing was written.",
            )
        return self.root / name


@contextmanager
def open_root(root: Path) -> Iterator[Directory]:
    """Open a watched root. Raise Refused when it is a symbolic link or lies below one; OSError."""
    with _refuse_links(root), open_real(root) as directory:
        yield directory


@contextmanager
def open_staging(staging: StagingDirectory) -> Iterator[OpenStagingDirectory]:
    """Open a watched root and its staging folder.

    Raise Refused when one of them is a symbolic link or lies below one, or when another directory
    has the root's path by now; OSError when they cannot be opened.
    """
    with ExitStack() as stack:
        root = stack.enter_context(open_root(staging.root))
        with _refuse_links(staging.root):
            inside = staging.path.parent == staging.root
            parent = root if inside else stack.enter_context(open_real(staging.path.parent))
            directory = stack.enter_context((parent / staging.path.name).open_directory())
        # The root was renamed away, and another directory lies in its place.
        if staging.inode not in (0, root.status().st_ino):
            raise Refused(
                f"{staging.root} was replaced by another directory just now; nothing was written.",
                "Nothing to do: the next sync looks at it again.",
            )
        yield OpenStagingDirectory(staging, root, directory)


@contextmanager
def _refuse_links(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _make_link_error(root, error) from None
        raise


def _make_link_error(root: Path, error: OSError) -> Refused:
    where = f"{error.filename} is" if error.filename else "it is, or lies below,"
    return Refused(
        f"{root} is not written: {where} a symbolic link now.",
        "Put the directory back, or run `evolvable init` on the folder that the link leads to.",
    )


def is_inside(name: str) -> bool:
    """Return whether a relative path with `/` names something below its folder, on every system."""
    parts = name.split("/")
    return (
        all(part not in ("", ".", "..") for part in parts)
        and not any(char in name for char in "\\\0")
        and not (os.name == "nt" and ":" in name)
    )


def staging_for(root: Path, notes: Path) -> StagingDirectory:
    """Return the staging folder of a watched root; make it with mode 0700 when it does not exist.

    It is `.<name>.evolvable` beside the root, so that a watcher of the root sees nothing of it;
    where that is not possible (the parent is not ours to write, or on another file system)
    `.evolvable` inside. A rename from it into the root is atomic. notes: the folder for recovery
    notes, in the library's home; made when it does not exist. Raise Refused when the staging folder
    can be made in neither place, or the root lies below a symbolic link.
    """
    path, inode = None, 0
    with suppress(OSError), open_root(root) as directory:
        inode = directory.status().st_ino
        path = _find_usable(root, directory)
    if path is None:
        raise Refused(
            f"Nothing can be written into {root} or beside it.",
            "Make room, or give yourself the right to write; until then its resources are served "
            "from the library alone.",
        )
    # One by one: a parent that mkdir(parents=True) makes gets the usual mode.
    for folder in (notes.parent, notes):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return StagingDirectory(root, path, notes, inode)


@dataclass(frozen=True, slots=True)
class RecoveryNote:
    """The note of a swap in the library's home, for recovery after a crash.

    target: relative to the watched root, with `/`. at: seconds. host, process: of the process that
    makes the swap. inode: of the folder that was built, 0 for a removal. believed, written: the
    trees of the replaced and of the new folder. drop: the paths to remove where files are replaced
    one by one, None elsewhere.

    path: the part of the target that is replaced, a file or a new folder; '' for the whole target.
    The two trees are then that file's (as `SINGLE`) or that folder's. tree: of the whole target
    before.
    """

    target: str
    at: float
    host: str
    process: int
    inode: int
    believed: str
    written: str
    drop: list[str] | None = None
    path: str = ""
    tree: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """The entries of one swap."""

    place: OpenStagingDirectory
    stem: str

    @classmethod
    def fresh(cls, place: OpenStagingDirectory, name: str) -> "Slot":
        """Return an unused slot for a folder of this name."""
        safe_name = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]
        return cls(place, f"{safe_name}.{os.getpid()}-{secrets.token_hex(6)}")

    @classmethod
    def of(cls, old: Path, place: OpenStagingDirectory) -> "Slot":
        """Return the slot that one of its entries belongs to."""
        return cls(place, old.stem)

    @property
    def new(self) -> PathAt:
        return self.place.directory / f"{self.stem}.new"

    @property
    def ready(self) -> PathAt:
        return self.place.directory / f"{self.stem}.ready"

    @property
    def old(self) -> PathAt:
        return self.place.directory / f"{self.stem}.old"

    @property
    def gone(self) -> PathAt:
        return self.place.directory / f"{self.stem}.gone"

    @property
    def note(self) -> Path:
        return self.place.staging.notes / f"{self.stem}.json"

    @property
    def part(self) -> Path:
        return self.place.staging.notes / f"{self.stem}.part"

    def target(self, note: RecoveryNote) -> PathAt:
        """Return the path that the swap replaces.

        Raise Refused as `OpenStagingDirectory.target`.
        """
        target = self.place.target(note.target)
        return target / note.path if note.path else target

    def write_note(self, note: RecoveryNote, *, durable: bool = True) -> None:
        """Write the note, whole or not at all; when `durable`, it survives a power failure."""
        fields = {name: getattr(note, name) for name in RecoveryNote.__dataclass_fields__}
        # Earlier versions of this program read only notes without these fields, and leave the
        # swaps of other notes alone.
        written = {name: value for name, value in fields.items() if value or name not in _OF_PATHS}
        text = json.dumps(written)
        part = os.fspath(self.part)
        fd = os.open(part, _NEW, 0o666)
        try:
            write_all(fd, text.encode("ascii"))
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        # A reader sees no note or a whole one.
        os.replace(part, self.note)
        if durable:
            sync_folder(self.place.staging.notes)

    def read_note(self) -> RecoveryNote | None:
        """Return the note, or None when there is none that can be read."""
        try:
            return _parse_note(json.loads(self.note.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError):
            return None

    def delete(self, folder: PathAt) -> None:
        """Delete a folder of this slot.

        It is renamed first, so that half of it never counts as a whole.
        """
        if folder != self.gone:
            self.gone.remove_tree()
            try:
                # One step: what is left of an interrupted deletion is called .gone, and no sweep
                # reads it.
                rename(folder, self.gone)
            except OSError:
                return
        self.gone.remove_tree()

    def clear(self) -> None:
        """Delete all of the slot; the note stays as long as a folder could not be deleted."""
        existing = [
            folder for folder in (self.new, self.ready, self.old, self.gone) if folder.exists()
        ]
        for folder in existing:
            self.delete(folder)
        # The note goes last: an entry without a note is a stranger's.
        if not any(folder.exists() for folder in existing if folder != self.gone):
            self.part.unlink(missing_ok=True)
            self.note.unlink(missing_ok=True)


def new_note(
    target: PathAt, *, now: float, inode: int, believed: str, written: str
) -> RecoveryNote:
    """Return the note of a swap that this process makes."""
    return RecoveryNote(target.name, now, _read_host(), os.getpid(), inode, believed, written)


def list_stems(notes: Path) -> list[str]:
    """Return the stem of every swap that has a recovery note in the home, sorted.

    A note that is still being written counts.
    """
    try:
        names = os.listdir(notes)
    except FileNotFoundError:
        return []
    parts = (name.rpartition(".") for name in names)
    return sorted({stem for stem, _, suffix in parts if stem and suffix in ("json", "part")})


def recovery_notes(home: Path, folder: int) -> Path:
    """Return where the recovery notes of a watched folder lie."""
    return home / "recovery" / f"folder-{folder}"


def unknown_entries(root: Path, notes: Path) -> list[Path]:
    """Return the entries of the staging folders of a root without a recovery note here, sorted.

    They come from another library, an older version, or a repository. They are never read, moved or
    deleted.
    """
    known_stems, unknown = set(list_stems(notes)), list[Path]()
    for folder in possible_staging(root):
        with suppress(OSError), open_real(folder, readable=True) as directory:
            names = os.listdir(folder if directory.fd is None else directory.fd)
            unknown += [
                folder / name
                for name in names
                if name != ".gitignore" and Path(name).stem not in known_stems
            ]
    return sorted(unknown)


def possible_staging(root: Path) -> tuple[Path, Path]:
    """Return where the staging folder of a watched root may lie: beside it, or inside."""
    return root.parent / f".{root.name}.evolvable", root / _INSIDE


def is_waiting(root: Path, stem: str, inode: int) -> bool:
    """Return whether the result of a swap still waits in a staging folder of this root.

    inode: of the result.
    """
    for place in possible_staging(root):
        with suppress(OSError):
            if os.lstat(place / f"{stem}.ready").st_ino == inode:
                return True
    return False


def _parse_note(fields: object) -> RecoveryNote:
    """Return the note that these JSON fields are. Raise ValueError for anything else."""
    names = {*RecoveryNote.__dataclass_fields__}
    if not isinstance(fields, dict) or {*fields, *_OF_PATHS} != names:
        raise ValueError("not the fields of a note")
    fields = {**dict.fromkeys(_OF_PATHS, ""), **fields}
    if not (_has_types(fields) and _has_paths(fields)):
        raise ValueError("a field of the note has a wrong value")
    return RecoveryNote(**fields)


def _has_types(fields: dict[str, Any]) -> bool:
    texts = (fields[key] for key in ("target", "host", "believed", "written", *_OF_PATHS))
    # type() and not isinstance(): a bool is no number here.
    are_numbers = type(fields["process"]) is int and type(fields["inode"]) is int
    is_time = type(fields["at"]) in (int, float)
    return all(type(text) is str for text in texts) and are_numbers and is_time


def _has_paths(fields: dict[str, Any]) -> bool:
    """Return whether the paths of a note lie below the root, and those to remove in the target."""
    drop = fields["drop"]
    if drop is not None:
        if not isinstance(drop, list):
            return False
        if not all(type(path) is str and is_inside(path) for path in drop):
            return False
    return is_inside(fields["target"]) and (not fields["path"] or is_inside(fields["path"]))


def is_abandoned(note: RecoveryNote, now: float) -> bool:
    """Return whether nobody works on this swap any more.

    That is so when its process is dead. Of another host, and on Windows, it is so when enough time
    has passed. A clock that was set back counts as passed time.
    """
    age = abs(now - note.at)
    if os.name != "posix" or note.host != _read_host():
        return age > _UNKNOWN_SECONDS
    return age > _ALIVE_SECONDS or not _is_alive(note.process)


def is_in_progress(stem: str) -> bool:
    """Return whether the process in the name of a swap is alive on this host.

    False where that cannot be told.
    """
    process = stem.rpartition(".")[2].partition("-")[0]
    return os.name == "posix" and process.isdecimal() and _is_alive(int(process))


def complete_swaps(notes: Path, stems: Iterable[str]) -> dict[str, float]:
    """Return those swaps whose process lives, each with the time of its note.

    The caller holds the folder's lock, so that nobody makes a swap meanwhile.
    """
    times: dict[str, float] = {}
    for stem in stems:
        with suppress(OSError):
            if is_in_progress(stem):
                times[stem] = (notes / f"{stem}.json").stat().st_mtime
    return times


def clear_part(slot: Slot, now: float) -> None:
    """Delete a note that was never finished, once its writer had time to finish it.

    Nothing else of the slot exists then.
    """
    seconds = _ALIVE_SECONDS if is_in_progress(slot.stem) else _UNKNOWN_SECONDS
    with suppress(FileNotFoundError):
        if abs(now - slot.part.stat().st_mtime) > seconds:
            slot.part.unlink(missing_ok=True)


def sync_folder(folder: Path | PathAt) -> None:
    """Make the names in a folder durable, where the system can."""
    if os.name != "posix":
        return
    if isinstance(folder, PathAt):
        with folder.open_directory() as directory:
            sync_directory(directory)
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_directory(Directory(folder, fd))
    finally:
        os.close(fd)


def sync_directory(directory: Directory) -> None:
    """Make the names in an open directory durable, where the system can. Raise OSError."""
    if directory.fd is None:
        return
    # Opened again: a descriptor that was opened for looking names up (O_PATH) cannot be synced.
    try:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory.fd)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _read_host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else ""


def _is_alive(process: int) -> bool:
    if process <= 0:
        return False
    try:
        # Signal 0 only tests. An error other than "no such process" means that the process lives
        # and belongs to another account.
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _find_usable(root: Path, directory: Directory) -> Path | None:
    """Return the first place where a staging folder is or can be made, None for none."""
    beside, inside = possible_staging(root)
    with suppress(OSError), open_real(root.parent) as parent:
        if _reaches(parent, directory) and _make_usable(parent / beside.name):
            return beside
    with suppress(OSError):
        if _make_usable(directory / _INSIDE):
            return inside
    return None


def _make_usable(staging: PathAt) -> bool:
    """Make the folder when it does not exist; return whether it is ours.

    Raise OSError, for a link or a file too.
    """
    if not staging.exists():
        staging.mkdir(mode=0o700)
        # git must not offer the staging folder to be committed.
        descriptor = (staging / ".gitignore").open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with open(descriptor, "wb") as stream:
            stream.write(b"*\n")
    with staging.open_directory() as directory:
        status = directory.status()
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            return False
        if BY_DESCRIPTOR and stat.S_IMODE(status.st_mode) & 0o022:
            # Others could put something else in the place of what was built here.
            staging.chmod_directory(0o700)
        where = "." if directory.fd is not None else os.fspath(directory.path)
        return os.access(where, os.W_OK | os.X_OK, dir_fd=directory.fd)


def _reaches(parent: Directory, root: Directory) -> bool:
    """Return whether a rename from one to the other is possible."""
    if parent.status().st_dev != root.status().st_dev:
        return False
    # Two bind mounts of one device refuse it as well, so it is tried with a name that does not
    # exist: ENOENT means that it is possible, EXDEV that it is not.
    name = f".probe.{secrets.token_hex(6)}"
    try:
        rename(parent / name, root / name)
    except OSError as error:
        return error.errno != errno.EXDEV
    return True
