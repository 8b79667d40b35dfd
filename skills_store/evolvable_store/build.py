"""Writes files into a new folder, durably, with the owner and the permissions of the folder that it will replace."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from evolvable_store.objects import EXECUTABLE, File, Files
from evolvable_store.staging import sync_folder

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_BINARY"))


def build_folder(folder: Path, files: Files, like: Path) -> None:
    """Makes `folder`, which must not exist, with exactly these files; returns when all is on the disk.

    A path that `like` has as well gets its owner and permissions, except that the mode of the file decides whether it
    can be executed; a path that it does not have gets the owner of `like` and what the process's umask leaves.
    Raises OSError.
    """
    above = {parent for path in files for parent in Path(path).parents}
    folders = sorted(above | {Path()}, key=lambda path: len(path.parts))
    for path in folders:
        (folder / path).mkdir()
    for name, file in files.items():
        _write(folder / name, file, like, name)
    for path in reversed(folders):
        _adopt_folder(folder / path, like, like / path)
        sync_folder(folder / path)


def build_single(path: Path, file: File, like: Path) -> None:
    """Makes the file `path`, as `build_folder` does one of a folder; `like` is the file that it will replace."""
    _write(path, file, like.parent, like.name)


def _write(path: Path, file: File, like: Path, name: str) -> None:
    fd = os.open(path, _WRITE, file.mode)
    with open(fd, "wb") as stream:
        stream.write(file.data)
        stream.flush()
        same = _status(like / name, stat.S_ISREG)
        _own(path, os.fstat(fd), same or _status(like, stat.S_ISDIR))
        if same:
            readable = stat.S_IMODE(same.st_mode) & 0o666 | stat.S_IRUSR
            os.chmod(path, readable | (readable & 0o444) >> 2 if file.mode == EXECUTABLE else readable)
        os.fsync(fd)


def _adopt_folder(path: Path, like: Path, same_path: Path) -> None:
    same = _status(same_path, stat.S_ISDIR)
    _own(path, os.lstat(path), same or _status(like, stat.S_ISDIR))
    if same:
        os.chmod(path, stat.S_IMODE(same.st_mode) & 0o2777 | stat.S_IRWXU)


def _own(path: Path, status: os.stat_result, like: os.stat_result | None) -> None:
    """Gives the path the owner and group of `like`, as far as this process may."""
    if like and hasattr(os, "chown") and (status.st_uid, status.st_gid) != (like.st_uid, like.st_gid):
        with suppress(OSError):
            os.chown(path, -1, like.st_gid)
            os.chown(path, like.st_uid, -1)


def _status(path: Path, wanted: Callable[[int], bool]) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if wanted(status.st_mode) else None
