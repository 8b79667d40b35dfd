"""Locks between the processes of one library, freed by the kernel when a process ends.

`exclusive` serialises work on one folder. `FolderOwner` elects the one process that watches and
synchronises all folders; the others only follow the library. Every election has a number, which is
the name of the lock file, and the highest number counts. A process that was stopped and continues
finds a higher number, and is no owner any more.
"""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from evolvable_store.errors import LibraryBusy

# Several times the interval of signs of life; a shorter one would depose an owner on a busy
# machine.
STALE_SECONDS = 8.0
"""How long an owner that holds its lock may show no sign of life before another takes over."""

_OPTIONAL_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_BINARY"))
_FLAGS = os.O_RDWR | os.O_CREAT | _OPTIONAL_FLAGS
# The errors of the systems for a lock that another process holds.
_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK)
# Eight digits of the counter, a blank and ten of the process number, as `_beat` writes them.
_BYTES = 19
MAX_NOTE = 2_000
"""Bytes of a note of the owner."""


@contextlib.contextmanager
def exclusive(path: Path, seconds: float, what: str) -> Iterator[None]:
    """Hold the lock of a file for the body.

    Raise LibraryBusy, which names `what`, after `seconds`. Processes get the lock nearly in the
    order in which they ask: all but one wait for a second lock, the place next in line. Other
    versions of this program use the same file with `filelock`.
    """
    try:
        release = _take(path, seconds)
    except TimeoutError:  # that of filelock is one too
        raise LibraryBusy(
            f"Another process has worked on {what} for {seconds:.0f} seconds.",
            "Try again; `evolvable doctor` shows who has the library open.",
        ) from None
    try:
        yield
    finally:
        release()


def _take(path: Path, seconds: float) -> Callable[[], object]:
    """Take the lock; return a function that gives it back. Raise TimeoutError, OSError."""
    if os.name != "posix":
        from filelock import FileLock  # start time

        lock = FileLock(path, timeout=seconds, poll_interval=0.005, mode=0o600)
        lock.acquire()
        return lock.release
    deadline = time.monotonic() + seconds
    # All but one wait here, so that the lock itself has one waiter at most; see `exclusive`.
    next_in_line = _acquire(path.with_suffix(".queue"), deadline)
    try:
        return partial(os.close, _acquire(path, deadline))
    finally:
        os.close(next_in_line)


def _acquire(path: Path, deadline: float) -> int:
    """Return the open file that holds the lock; closing it gives the lock back."""
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        if try_lock(descriptor):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    return _Waiting(descriptor).result(deadline)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file, and return whether that was possible at once. Raise OSError.

    shared: several may hold it so; Windows knows no such lock, and takes the usual one.
    """
    try:
        if os.name == "posix":
            import fcntl

            # flock and not lockf: it belongs to the open file, so closing another descriptor does
            # not release it.
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        else:
            import msvcrt

            # A byte behind the content, which others have to be able to read.
            os.lseek(descriptor, 1 << 30, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def is_held(path: Path) -> bool:
    """Return whether somebody holds the lock of a file now."""
    try:
        # Asking must not make the file.
        descriptor = os.open(path, _FLAGS & ~os.O_CREAT)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


class _Waiting:
    """A thread that waits for a lock: flock(2) itself takes no time limit."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Guards `_done` and `_given_up`: exactly one of the two threads closes the file.
        self._state = threading.Lock()
        self._error: OSError | None = None
        self._given_up = False
        self._done = threading.Event()
        # A daemon: a process that ends does not wait for the lock.
        threading.Thread(target=self._wait, name="evolvable-lock", daemon=True).start()

    def _wait(self) -> None:
        import fcntl

        try:
            # Blocks without polling; the kernel wakes it as soon as the lock is free.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            self._error = error
        with self._state:
            self._done.set()
            if self._given_up:
                os.close(self._descriptor)

    def result(self, deadline: float) -> int:
        """Return the open file once it is locked. Raise TimeoutError, OSError."""
        self._done.wait(max(0.0, deadline - time.monotonic()))
        with self._state:
            if not self._done.is_set():
                self._given_up = True
                raise TimeoutError("the lock of another process")
        if self._error is not None:
            os.close(self._descriptor)
            raise self._error
        return self._descriptor


class FolderOwner:
    """This process as a candidate for the ownership of a library's folders.

    One thread uses it; any may read `owns`.
    """

    def __init__(self, home: Path) -> None:
        self.place = home / "locks" / "owner"
        self._descriptor: int | None = None
        self._number, self._beats = 0, 0
        self._last_beat, self._since = b"", time.monotonic()
        self._elected = False
        self._note = ""

    @property
    def owns(self) -> bool:
        """Whether this process is the owner, and nobody has been elected since."""
        # A file of the next number means that somebody took over while this process was stopped.
        return self._elected and not os.path.lexists(self._locate_file(self._number + 1))

    def claim(self, note: str = "") -> bool:
        """Become the owner when there is none, or when the present one shows no sign of life.

        Return whether this process is the owner. Call it at intervals, also as the owner: each call
        is a sign of life. note: a text about the owner for other processes, see `owner_note`. Raise
        OSError.
        """
        self._note = note
        if self._elected:
            if self.owns:
                self._beat()
                return True
            self.release()
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        newest = self._find_newest()
        # Another election took place since.
        if self._descriptor is None or newest != self._number:
            self._open(newest, os.O_CREAT)
        assert self._descriptor is not None
        if try_lock(self._descriptor):
            return self._win()
        beat, now = self._read(), time.monotonic()
        # The counter moved, so the owner lives, whatever the clocks of the two processes say.
        if beat != self._last_beat:
            self._last_beat, self._since = beat, now
        elif now - self._since > STALE_SECONDS:
            # The owner was stopped, or its computer is gone from a shared disk. It keeps its lock,
            # not its number.
            with contextlib.suppress(FileExistsError):
                # O_EXCL: of several that want to take over, one makes the file.
                self._open(self._number + 1, os.O_CREAT | os.O_EXCL)
                return try_lock(self._descriptor) and self._win()
        return False

    def release(self) -> None:
        """Give the ownership back; another process can have it at once."""
        self._elected = False
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _win(self) -> bool:
        self._elected = True
        if not self.owns:  # somebody took the next number while this one was free
            self.release()
            return False
        self._beat()
        # Older lock files are of no use once a higher number is owned.
        for number in self._list_numbers():
            if number < self._number:
                with contextlib.suppress(OSError):
                    os.unlink(self._locate_file(number))
        return True

    def _beat(self) -> None:
        assert self._descriptor is not None
        self._beats += 1
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        # Of fixed width, so that a reader never sees a part of an older, longer number.
        beat = f"{self._beats % 10**8:08} {os.getpid():10}"
        os.write(self._descriptor, beat.encode("ascii"))
        note = self._note.encode("utf-8", "replace")[:MAX_NOTE]
        with contextlib.suppress(OSError):  # such as a full disk: the sign of life counts
            if note:
                os.write(self._descriptor, b"\n" + note)
            os.ftruncate(self._descriptor, os.lseek(self._descriptor, 0, os.SEEK_CUR))

    def _read(self) -> bytes:
        assert self._descriptor is not None
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return os.read(self._descriptor, _BYTES)

    def _open(self, number: int, flags: int) -> None:
        descriptor = os.open(self._locate_file(number), _FLAGS | flags, 0o600)
        self.release()
        self._descriptor, self._number = descriptor, number
        self._last_beat, self._since = b"", time.monotonic()

    def owner(self) -> int:
        """Return the number of the process that was the owner last, 0 when there never was one."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(Path(self._locate_file(self._find_newest())).read_bytes().split()[1])
        return 0

    def owner_note(self) -> str | None:
        """Return the note of the owner, '' for none; None where no process is the owner now."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._locate_file(self._find_newest()), _FLAGS & ~os.O_CREAT)
            try:
                if not try_lock(descriptor):
                    os.lseek(descriptor, _BYTES, os.SEEK_SET)
                    return os.read(descriptor, MAX_NOTE + 1).decode("utf-8", "replace").strip()
            finally:
                os.close(descriptor)
        return None

    def _locate_file(self, number: int) -> str:
        return os.path.join(self.place, f"{number}.lock")

    def _find_newest(self) -> int:
        return max(self._list_numbers(), default=1)

    def _list_numbers(self) -> list[int]:
        names = (
            name.removesuffix(".lock") for name in os.listdir(self.place) if name.endswith(".lock")
        )
        # Anything may lie in the folder.
        return [int(name) for name in names if name.isdecimal() and len(name) < 10]
