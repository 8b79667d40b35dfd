"""Writes files into a new folder, durably, with the owner and the permissions of the folder that it will replace."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePosixPath

from evolvable_store.objects import EXECUTABLE, File, Files
from evolvable_store.openat import BY_DESCRIPTOR, PathAt
from evolvable_store.staging import sync_folder

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def build_folder(folder: PathAt, files: Files, like: PathAt) -> None:
    """Makes `folder`, which must not exist, with exactly these files; returns when all is on the disk.

    A path that `like` has as well gets its owner and permissions, except that the mode of the file decides whether it
    can be executed; a path that it does not have gets the owner of `like` and what the process's umask leaves.
    Raises OSError.
    """
    above = {str(parent) for path in files for parent in PurePosixPath(path).parents} - {"."}
    folders = sorted(above, key=lambda path: path.count("/"))
    folder.mkdir()
    for path in folders:
        (folder / path).mkdir()
    for name, file in files.items():
        _write(folder / name, file, like / name, like)
    for path in reversed(folders):
        _adopt_folder(folder / path, like, like / path)
        sync_folder(folder / path)
    _adopt_folder(folder, like, like)
    sync_folder(folder)


def build_single(path: PathAt, file: File, like: PathAt) -> None:
    """Makes the file `path`, as `build_folder` does one of a folder; `like` is the file that it will replace."""
    parents = like.parents
    _write(path, file, like, parents[0] if parents else None)


def _write(path: PathAt, file: File, same_path: PathAt, like: PathAt | None) -> None:
    """like: the folder that is replaced, None for the root itself."""
    fd = path.open(_WRITE, file.mode)
    with open(fd, "wb") as stream:
        stream.write(file.data)
        stream.flush()
        same = _status(same_path, stat.S_ISREG)
        above = same_path.base.status() if like is None else _status(like, stat.S_ISDIR)
        _own(path, os.fstat(fd), same or above)
        if same:
            readable = stat.S_IMODE(same.st_mode) & 0o666 | stat.S_IRUSR
            mode = readable | (readable & 0o444) >> 2 if file.mode == EXECUTABLE else readable
            os.chmod(fd if BY_DESCRIPTOR else os.fspath(path), mode)
        os.fsync(fd)


def _adopt_folder(path: PathAt, like: PathAt, same_path: PathAt) -> None:
    same = _status(same_path, stat.S_ISDIR)
    _own(path, path.lstat(), same or _status(like, stat.S_ISDIR))
    if same:
        path.chmod_directory(stat.S_IMODE(same.st_mode) & 0o2777 | stat.S_IRWXU)


def _own(path: PathAt, status: os.stat_result, like: os.stat_result | None) -> None:
    """Gives the path the owner and group of `like`, as far as this process may."""
    if like and hasattr(os, "chown") and (status.st_uid, status.st_gid) != (like.st_uid, like.st_gid):
        with suppress(OSError):
            path.chown(-1, like.st_gid)
            path.chown(like.st_uid, -1)


def _status(path: PathAt, wanted: Callable[[int], bool]) -> os.stat_result | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status if wanted(status.st_mode) else None
