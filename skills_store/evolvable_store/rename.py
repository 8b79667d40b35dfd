"""Renames between names in open directories, also two that the standard library lacks: exchange, and never replace."""

import errno
import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from evolvable_store.openat import BY_DESCRIPTOR, PathAt

REFUSED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What a system or a file system answers that cannot do it."""

_NOREPLACE, _EXCHANGE = 1, 2
_SWAP, _EXCL = 2, 4
_HERE = -2 if sys.platform == "darwin" else -100  # AT_FDCWD
_NAME = "renameatx_np" if sys.platform == "darwin" else "renameat2"
_SYSCALL = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}


def rename(source: PathAt | Path, target: PathAt | Path) -> None:
    """Rename `source` to `target`, replacing a file that is there. Raise OSError."""
    with _located(source) as (name, fd), _located(target) as (new, new_fd):
        os.replace(name, new, src_dir_fd=fd, dst_dir_fd=new_fd)


def exchange(one: PathAt | Path, other: PathAt | Path) -> None:
    """Lets two existing names change places in one step.

    Raises OSError: FileNotFoundError when either is missing, an errno of REFUSED where it cannot be done.
    """
    _call(one, other, _SWAP if sys.platform == "darwin" else _EXCHANGE)


def rename_new(source: PathAt | Path, target: PathAt | Path) -> None:
    """Renames `source` to `target`, which must not exist. Raises FileExistsError when it does, or another OSError.

    Where the system has no such call, a target made in the instant between look and rename may be replaced.
    """
    try:
        _call(source, target, _EXCL if sys.platform == "darwin" else _NOREPLACE)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        if target.exists() if isinstance(target, PathAt) else os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        rename(source, target)


def move(source: PathAt, target: PathAt) -> None:
    """Move a file, a link or a directory to a place that does not exist, also to another file system.

    Raise OSError; then `source` is still there, and what was copied of it stays at `target`.
    """
    try:
        rename_new(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_tree(source, target)
        source.remove_tree()


def copy_file(source: PathAt, target: PathAt) -> None:
    """Copy a regular file with its times and permissions, replacing one that is there. Raise OSError."""
    # Should somebody put a pipe there now, opening it must not wait for its other end.
    read, write = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0), os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(source.open(read), "rb") as stream, open(target.open(write, 0o600), "wb") as copy:
        shutil.copyfileobj(stream, copy)
        copy.flush()
        status = os.fstat(stream.fileno())
        if BY_DESCRIPTOR:
            os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode) & 0o777)
        where = copy.fileno() if os.utime in os.supports_fd else os.fspath(target)
        os.utime(where, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_tree(source: PathAt, target: PathAt) -> None:
    """Copy what versions of a folder leave out too; pipes, sockets and devices are not copied."""
    status = source.lstat()
    if stat.S_ISLNK(status.st_mode):
        target.make_link(source.read_link())
    elif stat.S_ISREG(status.st_mode):
        copy_file(source, target)
    elif stat.S_ISDIR(status.st_mode):
        target.mkdir(0o700)
        for name in source.names():
            _copy_tree(source / name, target / name)
        target.chmod_directory(stat.S_IMODE(status.st_mode) & 0o777 | stat.S_IRWXU)


@contextmanager
def _located(path: PathAt | Path) -> Iterator[tuple[str, int | None]]:
    if isinstance(path, PathAt):
        with path.located() as found:
            yield found
    else:
        yield os.fspath(path), None


def _call(source: PathAt | Path, target: PathAt | Path, flags: int) -> None:
    call = _system_call()
    with _located(source) as (name, fd), _located(target) as (new, new_fd):
        here, there = (_HERE if at is None else at for at in (fd, new_fd))
        sys.audit("os.rename", source, target, here, there)
        code = call(here, os.fsencode(name), there, os.fsencode(new), flags) if call else errno.ENOSYS
    if code:
        raise OSError(code, os.strerror(code), str(source), None, str(target))


Call = Callable[[int, bytes, int, bytes, int], int]


@cache
def _system_call() -> Call | None:
    """Returns a function that gives 0 or an errno; None where there is no such call."""
    if sys.platform not in ("linux", "darwin"):
        return None
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)

    def by_name(here: int, source: bytes, there: int, target: bytes, flags: int) -> int:
        function = getattr(library, _NAME)
        failed = function(ctypes.c_int(here), source, ctypes.c_int(there), target, ctypes.c_uint(flags))
        return ctypes.get_errno() if failed else 0

    def by_number(here: int, source: bytes, there: int, target: bytes, flags: int) -> int:
        number, one, other = (ctypes.c_long(value) for value in (_SYSCALL[platform.machine()], here, there))
        failed = library.syscall(number, one, source, other, target, ctypes.c_ulong(flags))
        return ctypes.get_errno() if failed else 0

    if hasattr(library, _NAME):
        return by_name
    return by_number if sys.platform == "linux" and platform.machine() in _SYSCALL and sys.maxsize > 2**32 else None
