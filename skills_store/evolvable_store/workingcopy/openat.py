"""Paths below an open directory, on which no operation follows a symbolic link, not even one
planted meanwhile.

A path is checked at one moment and used at a later one. In a work tree somebody can put a link
there in between, so every operation here looks each component up in the directory that was opened
before it (openat(2), O_NOFOLLOW). Windows has no such calls: there each component is looked at just
before the operation, and that race remains.

Renames between names in open directories, also two that the standard library lacks: exchange, and
never replace.
"""

import errno
import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_NEEDED = {os.open, os.mkdir, os.rename, os.unlink, os.stat}
BY_DESCRIPTOR = os.name == "posix" and os.supports_dir_fd >= _NEEDED
"""Whether this system can look a name up in an open directory."""

_FLAGS = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_CLOEXEC"))
_DIRECTORY = os.O_RDONLY | _FLAGS | getattr(os, "O_DIRECTORY", 0)
# A directory on the way need not be readable, only searchable.
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | _FLAGS | getattr(os, "O_DIRECTORY", 0)
_FILE = _FLAGS | getattr(os, "O_BINARY", 0)

# What the systems answer for a link that O_NOFOLLOW meets: Linux ENOTDIR or ELOOP, FreeBSD EMLINK.
_NOT_ENTERED = (errno.ENOTDIR, errno.ELOOP, errno.EMLINK)


def is_link(status: os.stat_result) -> bool:
    """Return whether this status, of lstat, is that of a link."""
    # On Windows junctions are links too: reparse points with the name surrogate bit.
    return stat.S_ISLNK(status.st_mode) or bool(getattr(status, "st_reparse_tag", 0) & 0x20000000)


def link_error(path: Path) -> OSError:
    """Return the error for a symbolic link where none may be."""
    return OSError(
        errno.ELOOP, "a symbolic link is in the way, and none is followed", os.fspath(path)
    )


def first_link(path: Path) -> Path | None:
    """Return the first part of an absolute path that is a symbolic link, None without links."""
    # From the root down: the first link decides where all below it leads.
    for above in (*reversed(path.parents), path):
        try:
            if is_link(os.lstat(above)):
                return above
        except (OSError, ValueError):
            return None
    return None


def link_out_of_repository(path: Path) -> tuple[Path, Path] | None:
    """Return the first link in the path that leads out of its repository, and the repository.

    None when no link does. One that leads into the repository's `.git` counts too. Such a link came
    with the repository, so it is not followed. A person's own link, outside of repositories, is.
    """
    path = Path(os.path.abspath(path))
    target = Path(os.path.realpath(path))
    for above in (*reversed(path.parents), path):
        if not above.is_symlink():
            continue
        repository = next(
            (folder for folder in above.parents if os.path.lexists(folder / ".git")), None
        )
        if repository is not None:
            real = Path(os.path.realpath(repository))
            if not target.is_relative_to(real) or ".git" in target.relative_to(real).parts:
                return above, repository
    return None


@dataclass(frozen=True, slots=True)
class Directory:
    """An open directory. fd: None where the system cannot look names up in one."""

    path: Path
    fd: int | None

    def __truediv__(self, name: str) -> "PathAt":
        return PathAt(self, name)

    def status(self) -> os.stat_result:
        """Return the status of the directory itself."""
        return os.lstat(self.path) if self.fd is None else os.fstat(self.fd)


@contextmanager
def open_real(path: Path, *, readable: bool = False) -> Iterator[Directory]:
    """Open the directory at an absolute path, none of whose components may be a symbolic link.

    readable: whether its entries can be listed; otherwise the right to search it is enough.
    Raise OSError: ELOOP for a link.
    """
    # Windows: the race that the module's docstring names remains.
    if not BY_DESCRIPTOR:
        link = first_link(path)
        if link is not None:
            raise link_error(link)
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        yield Directory(path, None)
        return
    # From the root, one component at a time, each relative to the one before.
    top = os.open(path.anchor, _PASS)
    try:
        fd = _descend(top, path.parts[1:], path.anchor, _DIRECTORY if readable else _PASS)
    finally:
        os.close(top)
    try:
        yield Directory(path, fd)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class PathAt:
    """A relative path below an open directory.

    Messages name it by the path that the directory was opened with.
    """

    base: Directory
    name: str

    def __truediv__(self, name: str) -> "PathAt":
        return PathAt(self.base, f"{self.name}/{name}")

    def __fspath__(self) -> str:
        return os.path.join(self.base.path, self.name)

    def __str__(self) -> str:
        return os.fspath(self)

    @property
    def path(self) -> Path:
        """The path for messages and for later use; only operations of this class are safe from
        links.
        """
        return Path(os.fspath(self))

    @property
    def parents(self) -> "list[PathAt]":
        """The paths between the open directory and this one, the nearest first."""
        parts = self.name.split("/")
        depths = range(len(parts) - 1, 0, -1)
        return [PathAt(self.base, "/".join(parts[:depth])) for depth in depths]

    def locate(self) -> "_Located":
        """Return a context that opens the directory which holds the last name.

        It yields that name and `dir_fd`, as functions of `os` take them.
        """
        return _Located(self)

    def lstat(self) -> os.stat_result:
        """Return the status of this path; of a link, its own."""
        with self.locate() as (name, fd):
            return os.stat(name, dir_fd=fd, follow_symlinks=False)

    def exists(self) -> bool:
        """Return whether something is there, a dangling link included."""
        if self.base.fd is None:
            return os.path.lexists(self)
        try:
            self.lstat()
        except (OSError, ValueError):
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether a directory is there, and no link to one."""
        with suppress(OSError, ValueError):
            return stat.S_ISDIR(self.lstat().st_mode)
        return False

    def is_file(self) -> bool:
        """Return whether a regular file is there, and no link to one."""
        with suppress(OSError, ValueError):
            return stat.S_ISREG(self.lstat().st_mode)
        return False

    @contextmanager
    def open_directory(self) -> Iterator[Directory]:
        """Open the directory that is there, for its names to be listed and looked up."""
        with self.locate() as (name, fd):
            if fd is None:
                if is_link(os.lstat(name)):
                    raise link_error(self.path)
                yield Directory(self.path, None)
                return
            inner = _enter(fd, name, self, _DIRECTORY)
        try:
            yield Directory(self.path, inner)
        finally:
            os.close(inner)

    def names(self) -> list[str]:
        """Return the names of the entries of a directory, sorted."""
        with self.open_directory() as directory:
            return sorted(os.listdir(directory.path if directory.fd is None else directory.fd))

    def open(self, flags: int, mode: int = 0o666) -> int:
        """Open a file that is no link; return its descriptor."""
        with self.locate() as (name, fd):
            return os.open(name, flags | _FILE, mode, dir_fd=fd)

    def mkdir(self, mode: int = 0o777, *, exist_ok: bool = False) -> None:
        """Make the directory; its parent must exist."""
        try:
            with self.locate() as (name, fd):
                os.mkdir(name, mode, dir_fd=fd)
        except FileExistsError:
            if not (exist_ok and self.is_dir()):
                raise

    def make_parents(self) -> None:
        """Make the directories between the open one and this path that do not exist."""
        for parent in reversed(self.parents):
            parent.mkdir(exist_ok=True)

    def unlink(self) -> None:
        """Remove a file or a link."""
        with self.locate() as (name, fd):
            os.unlink(name, dir_fd=fd)

    def rmdir(self) -> None:
        """Remove an empty directory."""
        with self.locate() as (name, fd):
            os.rmdir(name, dir_fd=fd)

    def remove_tree(self) -> None:
        """Remove what is there as far as the system lets us; of a link, the link."""
        with suppress(OSError):
            if not stat.S_ISDIR(self.lstat().st_mode):
                self.unlink()
            with self.locate() as (name, fd):
                # With dir_fd rmtree itself follows no link.
                shutil.rmtree(name, ignore_errors=True, dir_fd=fd)

    def link_to(self, other: "PathAt") -> None:
        """Give the file that is here a second name."""
        with self.locate() as (name, fd), other.locate() as (new, new_fd):
            # The link itself is linked, not what it leads to.
            os.link(name, new, src_dir_fd=fd, dst_dir_fd=new_fd, follow_symlinks=False)

    def read_link(self) -> str:
        """Return the target text of a link."""
        with self.locate() as (name, fd):
            return os.readlink(name, dir_fd=fd)

    def make_link(self, says: str) -> None:
        """Make a symbolic link."""
        with self.locate() as (name, fd):
            os.symlink(says, name, dir_fd=fd)

    def chmod_directory(self, mode: int) -> None:
        """Set the permissions of the directory that is there."""
        with self.open_directory() as directory:
            os.chmod(directory.path if directory.fd is None else directory.fd, mode)

    def chown(self, user: int, group: int) -> None:
        """Set owner and group; -1 leaves one as it is."""
        with self.locate() as (name, fd):
            os.chown(name, user, group, dir_fd=fd, follow_symlinks=False)


class _Located:
    """The open directory that holds the last name of a path, for a `with` block.

    A class and no generator: an update enters some sixty of them.
    """

    __slots__ = ("_at", "_fd")

    def __init__(self, at: PathAt) -> None:
        self._at, self._fd = at, -1

    def __enter__(self) -> tuple[str, int | None]:
        base, path = self._at.base, self._at.name
        *above, name = path.split("/")
        # ".." would leave the open directory.
        if name in ("", ".", "..") or any(part in ("", ".", "..") for part in above):
            raise OSError(errno.EINVAL, "not a path below its directory", str(self._at))
        if base.fd is None:
            for parent in self._at.parents:
                if parent.exists() and is_link(os.lstat(parent)):
                    raise link_error(parent.path)
            return os.fspath(self._at), None
        if not above:
            return name, base.fd
        self._fd = _descend(base.fd, above, base.path, _PASS)
        return name, self._fd

    def __exit__(self, *exception: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def _descend(top: int, names: Sequence[str], path: str | Path, last: int) -> int:
    """Return a descriptor of the directory that these names lead to; `top` stays open.

    last: the flags for it.
    """
    fd, end = top, len(names)
    for number, name in enumerate(names, 1):
        try:
            inner = os.open(name, last if number == end else _PASS, dir_fd=fd)
        except OSError as error:
            raise _make_entry_error(error, fd, name, Path(path, *names[:number])) from None
        finally:
            # Each descriptor on the way is closed as soon as the next one is open.
            if fd != top:
                os.close(fd)
        fd = inner
    # The caller closes what it gets; `top` belongs to somebody else.
    return fd if fd != top else os.dup(top)


def _enter(fd: int, name: str, at: PathAt, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=fd)
    except OSError as error:
        raise _make_entry_error(error, fd, name, at.path) from None


def _make_entry_error(error: OSError, fd: int, name: str, path: Path) -> OSError:
    """Return the error that says why a directory could not be opened."""
    if error.errno in _NOT_ENTERED and _is_link_at(fd, name):
        return link_error(path)
    return OSError(error.errno, error.strerror, os.fspath(path))


def _is_link_at(fd: int, name: str) -> bool:
    with suppress(OSError):
        return is_link(os.stat(name, dir_fd=fd, follow_symlinks=False))
    return False


UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""Errors of a system or a file system that lacks an operation."""

_NOREPLACE, _EXCHANGE = 1, 2
_SWAP, _EXCL = 2, 4
_HERE = -2 if sys.platform == "darwin" else -100  # AT_FDCWD
_NAME = "renameatx_np" if sys.platform == "darwin" else "renameat2"
# Numbers of renameat2, for C libraries without the function, such as glibc before 2.28.
_SYSCALL = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}


def rename(source: PathAt | Path, target: PathAt | Path) -> None:
    """Rename `source` to `target`, replacing a file that is there. Raise OSError."""
    with _locate(source) as (name, fd), _locate(target) as (new, new_fd):
        os.replace(name, new, src_dir_fd=fd, dst_dir_fd=new_fd)


def exchange(first: PathAt | Path, second: PathAt | Path) -> None:
    """Let two existing names change places in one step.

    Raises OSError: FileNotFoundError when either is missing, an errno of UNSUPPORTED where it
    cannot be done.
    """
    _call_rename(first, second, _SWAP if sys.platform == "darwin" else _EXCHANGE)


def rename_new(source: PathAt | Path, target: PathAt | Path) -> None:
    """Rename `source` to `target`, which must not exist.

    Raises FileExistsError when it does, or another OSError. Where the system has no such call, a
    target that is made between the look and the rename may be replaced.
    """
    try:
        _call_rename(source, target, _EXCL if sys.platform == "darwin" else _NOREPLACE)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        if target.exists() if isinstance(target, PathAt) else os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        rename(source, target)


def move(source: PathAt, target: PathAt) -> None:
    """Move a file, a link or a directory to a free place, also on another file system.

    Raise OSError; then `source` is still there, and what was copied of it stays at `target`.
    """
    try:
        rename_new(source, target)
    except OSError as error:
        # Only another file system is a reason to copy.
        if error.errno != errno.EXDEV:
            raise
        _copy_tree(source, target)
        # After the whole copy: a crash leaves one of the two whole.
        source.remove_tree()


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data to an open file. Raise OSError."""
    rest = memoryview(data)
    while rest:
        # write() may take a part, as on a disk that is nearly full.
        rest = rest[os.write(fd, rest) :]


def copy_file(source: PathAt, target: PathAt) -> None:
    """Copy a regular file with its times and permissions, replacing one that is there.

    Raise OSError.
    """
    # Should somebody put a pipe there now, opening it must not wait for its other end.
    read, write = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0), os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with (
        open(source.open(read), "rb") as stream,
        open(target.open(write, 0o600), "wb") as copy,
    ):
        shutil.copyfileobj(stream, copy)
        copy.flush()
        status = os.fstat(stream.fileno())
        if BY_DESCRIPTOR:
            os.fchmod(copy.fileno(), stat.S_IMODE(status.st_mode) & 0o777)
        where = copy.fileno() if os.utime in os.supports_fd else os.fspath(target)
        os.utime(where, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_tree(source: PathAt, target: PathAt) -> None:
    """Copy a tree with the files that versions leave out.

    Pipes, sockets and devices are not copied.
    """
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


def _locate(path: PathAt | Path) -> AbstractContextManager[tuple[str, int | None]]:
    return path.locate() if isinstance(path, PathAt) else nullcontext((os.fspath(path), None))


def _call_rename(source: PathAt | Path, target: PathAt | Path, flags: int) -> None:
    call = _system_call()
    with _locate(source) as (name, fd), _locate(target) as (new, new_fd):
        source_fd, target_fd = (_HERE if at is None else at for at in (fd, new_fd))
        # As os.rename does, so that audit hooks see these calls too.
        sys.audit("os.rename", source, target, source_fd, target_fd)
        code = errno.ENOSYS
        if call:
            code = call(source_fd, os.fsencode(name), target_fd, os.fsencode(new), flags)
    if code:
        raise OSError(code, os.strerror(code), str(source), None, str(target))


RenameCall = Callable[[int, bytes, int, bytes, int], int]


@cache
def _system_call() -> RenameCall | None:
    """Return a function that returns 0 or an errno; None where the system lacks the call."""
    if sys.platform not in ("linux", "darwin"):
        return None
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)

    def by_name(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int) -> int:
        function = getattr(library, _NAME)
        failed = function(
            ctypes.c_int(source_fd), source, ctypes.c_int(target_fd), target, ctypes.c_uint(flags)
        )
        return ctypes.get_errno() if failed else 0

    def by_number(source_fd: int, source: bytes, target_fd: int, target: bytes, flags: int) -> int:
        number, source_arg, target_arg = (
            ctypes.c_long(value) for value in (_SYSCALL[platform.machine()], source_fd, target_fd)
        )
        failed = library.syscall(
            number, source_arg, source, target_arg, target, ctypes.c_ulong(flags)
        )
        return ctypes.get_errno() if failed else 0

    if hasattr(library, _NAME):
        return by_name
    # A 32-bit program on a 64-bit system has other numbers.
    has_number = platform.machine() in _SYSCALL and sys.maxsize > 2**32
    return by_number if sys.platform == "linux" and has_number else None
