"""Events of the file system: what changed below some directories. A thread waits without waking up
meanwhile.

Linux has inotify, called here directly: watchfiles would poll 50 times a second. Other systems use
watchfiles. Events only say where to look, and no caller assumes that they are complete. Any system
can refuse them, for a limit of the account or a permission: an `EventSource` then waits without
events, and asks again.
"""

import contextlib
import errno
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from evolvable_store import CHANGE_MARK, LIBRARY_FILES, PLACES_FILES, is_ignored

STEP, LONGEST = 0.02, 0.1
"""Seconds: events that come this close together, and all of them within the longest time, are one
batch.
"""

# The values of <sys/inotify.h>, which are the same on all architectures.
_MODIFY, _ATTRIB, _CLOSE_WRITE = 2, 4, 8
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _OVERFLOW, _IGNORED, _DIRECTORY = 0x400, 0x800, 0x4000, 0x8000, 0x40000000
_ONLY_DIRECTORY, _NO_LINK, _EXCLUDE_UNLINKED = 0x01000000, 0x02000000, 0x04000000
_NAMES = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
_TREE = _MODIFY | _ATTRIB | _CLOSE_WRITE | _NAMES | _ONLY_DIRECTORY | _NO_LINK | _EXCLUDE_UNLINKED
_FILE = _MODIFY | _CLOSE_WRITE
_NEW_FILES = _CREATE | _MOVED_TO | _ONLY_DIRECTORY
_HEADER = struct.Struct("iIII")
# About 2,000 events with short names. A longer queue takes several reads.
_BUFFER = 65_536
"""Bytes of one read."""
# The errors of a limit of the account or of memory.
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM)
# The errors of a path that has gone, or is a link.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class FileEvents(Protocol):
    """Events that one thread waits for, and any thread can wake.

    lost: whether events were dropped since the caller last cleared it. failure: why a directory
    gives no events, None where all do.
    """

    lost: bool
    failure: OSError | None

    def wait(self, seconds: float) -> set[str]:
        """Return the paths that changed; none when the time is over or a thread called `wake`.

        Raise OSError.
        """

    def wake(self) -> None:
        """End the wait of the other thread, or its next one."""

    def close(self) -> None:
        """Stop watching."""


def tree_events(folders: Iterable[Path]) -> FileEvents:
    """Watch these directories and all that lie below them.

    Raise OSError where the system allows no more.
    """
    if not has_inotify():
        return _WatchfilesEvents(folders)
    events = InotifyEvents()
    with _close_on_error(events):
        for folder in folders:
            events.watch_tree(os.fspath(folder))
    return events


def library_events(home: Path, locks: Path) -> "InotifyEvents | None":
    """Watch the files of a library, and the end of the process that holds a lock; None without
    inotify.

    The kernel closes the files of a process that ends, which is an event like any other. Raise
    OSError where the system allows no more.
    """
    if not has_inotify():
        return None
    events = InotifyEvents(batch=False)
    with _close_on_error(events):
        events.watch_files(home, (*LIBRARY_FILES, *PLACES_FILES, CHANGE_MARK))
        events.watch_closing(locks)
    return events


@contextlib.contextmanager
def _close_on_error(events: FileEvents) -> Iterator[None]:
    try:
        yield
    except BaseException:
        events.close()
        raise


@cache
def has_inotify() -> bool:
    """Return whether this system has inotify, also where no instance of it is left now."""
    if sys.platform != "linux" or not hasattr(os, "eventfd"):
        return False
    try:
        os.close(_call("inotify_init1", os.O_CLOEXEC))
    # A C library without inotify.
    except AttributeError:
        return False
    except OSError as error:
        return error.errno in _LIMITS
    return True


class EventSource:
    """Events for one thread, as long as the system gives them; without any, a wait ends after its
    time.

    Any thread may call `wake`.
    """

    def __init__(
        self,
        attempt: Callable[[], FileEvents | None],
        report: Callable[[OSError | None], None],
        stop: threading.Event,
    ) -> None:
        """Ask the system for events.

        attempt: makes the events, or raises OSError. report: called with the failure, None where
        there is none. stop: ends a wait without events.
        """
        self._attempt, self._report, self._stop = attempt, report, stop
        self._events: FileEvents | None = None
        self._open()

    @property
    def gives_events(self) -> bool:
        """Whether a wait ends at an event."""
        return self._events is not None

    def lost_events(self) -> bool:
        """Return whether events were dropped since the last call."""
        lost = self._events is not None and self._events.lost
        if self._events is not None:
            self._events.lost = False
        return lost

    def wait(self, seconds: float) -> set[str]:
        """Return the paths that changed.

        None of them when the time is over, a thread called `wake`, or no events come.
        """
        if self._events is None:
            self._stop.wait(seconds)
            return set()
        try:
            return self._events.wait(seconds)
        except OSError as error:
            self.close()
            self._report(error)
            return set()

    def retry(self) -> None:
        """Ask the system again, where it refused something."""
        if self._events is None or self._events.failure is not None:
            self.close()
            self._open()

    def wake(self) -> None:
        """End the wait of the other thread, or its next one."""
        # A local, because another thread may close them meanwhile.
        if (events := self._events) is not None:
            events.wake()

    def close(self) -> None:
        """Stop watching."""
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def _open(self) -> None:
        try:
            self._events = self._attempt()
        except OSError as error:
            self._report(error)
        else:
            self._report(None if self._events is None else self._events.failure)


def _call(name: str, *arguments: Any) -> int:
    """Call a function of the C library. Raise OSError."""
    import ctypes  # start time: nobody waits for events before the first answer

    result = int(getattr(_load_c_library(), name)(*arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@cache
def _load_c_library() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


class InotifyEvents:
    """inotify: one watch for each directory. New directories are watched as they appear."""

    def __init__(self, *, batch: bool = True) -> None:
        """batch: gather events that come close together, see STEP. Raise OSError."""
        self.lost = False
        self.failure: OSError | None = None
        self._batch = batch
        self._descriptor = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # Beside the events of inotify, so that `wake` ends a wait.
            self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:
            os.close(self._descriptor)
            raise
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        # Directories without those below them -> the names of the files that count, none for all.
        self._flat: dict[str, frozenset[str]] = {}

    def watch_files(self, folder: Path, names: Iterable[str]) -> None:
        """Watch the files of these names in a directory, which may come and go.

        Each is watched by itself: a write into another file beside them is no event. Raise OSError.
        """
        self._flat[os.fspath(folder)] = frozenset(names)
        # The directory first: a file that appears in between is an event.
        self._add(os.fspath(folder), _NEW_FILES)
        for name in self._flat[os.fspath(folder)]:
            self._watch_file(os.path.join(folder, name))

    def watch_closing(self, folder: Path) -> None:
        """Watch for files of a directory that a process closes which could write them.

        Raise OSError.
        """
        self._flat[os.fspath(folder)] = frozenset()
        self._add(os.fspath(folder), _CLOSE_WRITE | _ONLY_DIRECTORY)

    def _watch_file(self, path: str) -> None:
        try:
            self._add(path, _FILE)
        except OSError as error:
            if error.errno not in _GONE:
                raise

    def watch_tree(self, path: str) -> None:
        """Watch a directory and all below it; links and ignored names are passed over.

        A directory that may not be read is the `failure`. Raise OSError where a limit of the system
        is reached.
        """
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            try:
                # Watched before it is read: what appears in between is seen twice, and not missed.
                self._add(folder, _TREE)
                with os.scandir(folder) as entries:
                    inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            except OSError as error:
                if error.errno in _LIMITS:
                    raise
                if error.errno not in _GONE:
                    self.failure = self.failure or error
                continue
            waiting += [child for child in inner if not is_ignored(os.path.basename(child))]

    def wait(self, seconds: float) -> set[str]:
        """As FileEvents.wait."""
        changed: set[str] = set()
        if not self._poll.poll(max(0, round(seconds * 1000))):
            return changed
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._woken)
        moved: set[str] = set()
        deadline = time.monotonic() + LONGEST
        # Goes on while events come close together, for LONGEST at most.
        while self._read(changed, moved) and self._batch and time.monotonic() < deadline:
            self._poll.poll(round(STEP * 1000))
        self._follow(moved)
        return changed

    def fileno(self) -> int:
        """Return the descriptor that the kernel's events come from."""
        return self._descriptor

    def is_ready(self) -> bool:
        """Return whether something happened that a wait would end at."""
        return bool(self._poll.poll(0))

    def wake(self) -> None:
        """As FileEvents.wake."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self._woken, 1)

    def close(self) -> None:
        """As FileEvents.close."""
        os.close(self._descriptor)
        os.close(self._woken)

    def _add(self, path: str, mask: int) -> None:
        try:
            watch = _call("inotify_add_watch", self._descriptor, os.fsencode(path), mask)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        self._paths[watch], self._watches[path] = path, watch

    def _read(self, changed: set[str], moved: set[str]) -> bool:
        """Read the events until now; return whether there were any.

        Add the paths that changed, and those of directories that came or went, to the two sets.
        """
        try:
            data = os.read(self._descriptor, _BUFFER)
        except BlockingIOError:
            return False
        place = 0
        while place < len(data):
            watch, mask, _, size = _HEADER.unpack_from(data, place)
            name = data[place + _HEADER.size : place + _HEADER.size + size].rstrip(b"\0")
            place += _HEADER.size + size
            # The kernel has dropped events; the owner of the folders then looks at all of them.
            self.lost = self.lost or bool(mask & _OVERFLOW)
            folder = self._paths.get(watch)
            # The kernel took the watch back, as for a deleted directory.
            if mask & _IGNORED:
                self._forget(watch)
            elif folder is not None and self._is_wanted(folder, os.fsdecode(name)):
                path = os.path.join(folder, os.fsdecode(name)) if name else folder
                changed.add(path)
                # The file was made or replaced, and its old watch went with the old file.
                if self._flat.get(folder):
                    self._watch_file(path)
                if mask & _DIRECTORY and name and mask & _NAMES and folder not in self._flat:
                    moved.add(path)
        return True

    def _is_wanted(self, folder: str, name: str) -> bool:
        names = self._flat.get(folder)
        if names is None:
            return not is_ignored(name)
        return not names or name in names

    def _follow(self, moved: set[str]) -> None:
        """Watch the directories that came to these paths, and no longer those that were there
        before.
        """
        # A directory comes before those that lie in it.
        for path in sorted(moved):
            self._unwatch_tree(path)
            if not is_ignored(os.path.basename(path)):
                try:
                    self.watch_tree(path)
                except OSError:
                    # A limit is reached: as if events had been dropped, everything is looked at.
                    self.lost = True

    def _unwatch_tree(self, path: str) -> None:
        # A path without a watch has none below it either.
        if path not in self._watches:
            return
        below = [other for other in self._watches if other.startswith(f"{path}/")]
        for other in (path, *below):
            watch = self._watches[other]
            self._forget(watch)
            with contextlib.suppress(OSError):
                _call("inotify_rm_watch", self._descriptor, watch)

    def _forget(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        if path is not None and self._watches.get(path) == watch:
            del self._watches[path]


class _WatchfilesEvents:
    """watchfiles, for systems without inotify."""

    def __init__(self, folders: Iterable[Path]) -> None:
        from watchfiles._rust_notify import RustNotify

        self.lost = False
        self.failure: OSError | None = None
        self._woken = threading.Event()
        paths = [os.fspath(folder) for folder in folders]
        with _raise_os_error():
            # In order: debug, force_polling, poll_delay_ms, recursive and ignore_permission_denied.
            self._notify = RustNotify(paths, False, False, 300, True, True)

    def wait(self, seconds: float) -> set[str]:
        """As FileEvents.wait."""
        with _raise_os_error():
            # 0 would wait without an end.
            changes = self._notify.watch(
                round(LONGEST * 1000),
                round(STEP * 1000),
                max(1, round(seconds * 1000)),
                self._woken,
            )
        self._woken.clear()
        # A text stands for the end of the time, or for a wait that was woken.
        return {path for _, path in changes} if isinstance(changes, set) else set()

    def wake(self) -> None:
        """As FileEvents.wake."""
        self._woken.set()

    def close(self) -> None:
        """As FileEvents.close."""
        self._notify.close()


@contextlib.contextmanager
def _raise_os_error() -> Iterator[None]:
    """Raise a RuntimeError as OSError: watchfiles raises it for every failure it does not know."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(errno.EIO, str(error)) from error
