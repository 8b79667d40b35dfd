"""A library's home: who owns it, who else may reach it, and whether a repository could have named it.

A home holds what agents are told to do and the tokens that let clients in, so nobody but its owner may write or read
there. What belongs to this account is repaired; what belongs to another one is refused, unless the person registered
the folder as a home. Everything here is about POSIX modes: on Windows a home is guarded by the access lists that it
inherits from the user's profile, and nothing is checked.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from evolvable_store.errors import LibraryReadOnly, UntrustedHome

Registered = Callable[[], Iterable[Path]]
"""Returns the homes that the person registered. Called only where it matters, as it may have to read a file."""

CONFIGURATION = "~/.config/evolvable/config.toml"
"""Where a person registers homes, as messages name it."""

LIBRARY_FILES = tuple(f"library.db{end}" for end in ("", "-wal", "-shm", "-journal"))

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER, _FILE = 0o700, 0o600
_PARENT = 0o755


TrustedFolders = Callable[[], "frozenset[str] | None"]
"""Returns the folders that a person trusts, as absolute paths; None where every decision on a folder counts."""


def every_folder() -> None:
    """Return that every decision on a folder counts."""


def no_homes() -> Iterable[Path]:
    """Return no home at all: what is registered where nobody says otherwise."""
    return ()


def check_home(place: Path | str, registered: Registered = no_homes, *, create: bool = False) -> None:
    """Make sure that a library may be opened in a folder, and that only this account can reach it.

    create: make the folder when it is missing. The rights of others in a home of this account are taken away.
    Raises UntrustedHome for a home that is refused, LibraryReadOnly when the folder cannot be made.
    """
    home = Path(place)
    if os.name != "posix":
        if create:
            _make(home)
        return
    real = Path(os.path.realpath(home))
    known = _Once(real, registered)
    _check_work_tree(home, real, known)
    if create:
        _make(real)
    try:
        status = os.stat(real)
    except OSError:
        return  # there is none, or it cannot be reached, and whoever opens it says so
    _check_parents(home, real, known)
    if status.st_uid != os.geteuid():
        if not known():
            raise _foreign(home, home, status)
        return
    _check_library(home, real, known)
    _repair(real, status)


def exposed(home: Path) -> str:
    """Return what others may do in a home of this account though `check_home` repaired it, '' for nothing.

    That is so where the file system has no modes.
    """
    if os.name != "posix":
        return ""
    try:
        status = os.stat(home)
    except OSError:
        return ""
    if status.st_uid != os.geteuid() or not status.st_mode & _OTHERS:
        return ""
    return "read and change" if status.st_mode & _OTHERS_WRITE else "read"


def private_file(path: str, flags: int) -> int:
    """Open a file that is made with mode 0600, as the `opener` of open()."""
    return os.open(path, flags, _FILE)


def work_tree(folder: Path) -> Path | None:
    """Return the innermost folder at or above this one that has a `.git`, None when there is none."""
    return next((above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), None)


class _Once:
    """Whether a home is registered; asked for at most once."""

    def __init__(self, real: Path, registered: Registered) -> None:
        self._real, self._registered = real, registered
        self._answer: bool | None = None

    def __call__(self) -> bool:
        if self._answer is None:
            self._answer = any(Path(os.path.realpath(one)) == self._real for one in self._registered())
        return self._answer


def _check_work_tree(home: Path, real: Path, known: _Once) -> None:
    tree = work_tree(real)
    if tree is None or known():
        return
    raise UntrustedHome(
        f"{home} lies in the work tree {tree}, so a repository may have named it as the library.",
        f"If it is yours, add {real} to `homes` in {CONFIGURATION}; else unset EVOLVABLE_HOME.",
    )


def _check_parents(home: Path, real: Path, known: _Once) -> None:
    """Take from others the right to replace the home; refuse it where that is not ours to take."""
    for folder in reversed(real.parents):
        try:
            status = os.stat(folder)
        except OSError:
            return
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            if status.st_uid == os.geteuid():
                _restrict(folder, status.st_mode & ~stat.S_IWOTH)
            elif not known():
                raise UntrustedHome(
                    f"{home} lies in {folder}, where every account can replace it ({_described(status)}).",
                    f"Move the library to another folder, or add {real} to `homes` in {CONFIGURATION}.",
                )
        if not status.st_mode & stat.S_IXOTH:
            return  # others do not get any further


def _check_library(home: Path, real: Path, known: _Once) -> None:
    """Refuse a library that another account put into a home of ours."""
    for name in LIBRARY_FILES:
        with contextlib.suppress(OSError):
            status = os.lstat(real / name)
            if status.st_uid != os.geteuid() and not known():
                raise _foreign(home, home / name, status)


def _foreign(home: Path, what: Path, status: os.stat_result) -> UntrustedHome:
    return UntrustedHome(
        f"{what} belongs to another account ({_described(status)}), and this process runs as user {os.geteuid()}.",
        f"If you trust that account, add {home} to `homes` in {CONFIGURATION}; else name a folder of your own.",
    )


def _described(status: os.stat_result) -> str:
    return f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"


def _repair(real: Path, status: os.stat_result) -> None:
    """Take the rights of others away. Below the top they are looked at only when others could get there."""
    was_open = bool(status.st_mode & _OTHERS)
    if was_open:
        _restrict(real, status.st_mode & _FOLDER)
    for path, one in _everything(str(real)) if was_open else _entries(str(real)):
        others = one.st_mode & _OTHERS
        if os.path.basename(path) == "tokens.json" and one.st_mode & _OTHERS_WRITE:
            continue  # what stands in it may be another's; whoever reads it says so
        if others and one.st_uid == os.geteuid():
            _restrict(Path(path), one.st_mode & _FOLDER)


def _entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files and folders in a folder, no links."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISLNK(status.st_mode):
                    yield entry.path, status


def _everything(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    for path, status in _entries(folder):
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _everything(path)


def _restrict(path: Path, mode: int) -> None:
    """Set a mode, where the file system has modes and can be written."""
    with contextlib.suppress(OSError):
        os.chmod(path, stat.S_IMODE(mode))


def _make(home: Path) -> None:
    """Make a home that only this account can reach, whatever the umask; folders above it that others can only read."""
    try:
        for folder in reversed(home.parents):
            if not folder.exists():
                folder.mkdir(mode=_PARENT, exist_ok=True)
        if not home.is_dir():
            home.mkdir(mode=_FOLDER, exist_ok=True)
            home.chmod(_FOLDER)
    except OSError as error:
        raise LibraryReadOnly(f"{home} cannot be made: {error.strerror}.", "Name another folder.") from error
