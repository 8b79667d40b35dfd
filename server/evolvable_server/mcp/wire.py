"""The process's stdin and stdout as the wire of a protocol: nothing else in the process may touch it."""

import os
import select
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass

if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True, slots=True)
class Wire:
    """Two descriptors that only the transport knows: where frames come from and where replies go."""

    source: int
    sink: int

    def release(self) -> None:
        """Gives stdin and stdout their descriptors back."""
        if sys.stdout is not None:
            sys.stdout.flush()  # what was printed while serving belongs to stderr
        _point(0, self.source)
        _point(1, self.sink)


def claim() -> Wire:
    """Returns the wire; from then on the process's stdin is empty and its stdout is stderr.

    A handler, a library or a child that prints does not tear a frame. A stream that was closed when the process
    started counts as empty.
    """
    wire = Wire(_copy(0, sys.__stdin__ is not None), _copy(1, sys.__stdout__ is not None))
    nothing = os.open(os.devnull, os.O_RDWR)
    _point(0, nothing)
    _point(1, 2 if sys.__stderr__ is not None else nothing)
    os.close(nothing)
    return wire


def write_whole(sink: int, data: bytes) -> None:
    """Writes all of `data`, however long the reader takes. Raises OSError when the reader is gone."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(sink, rest) :]


def can_be_polled(fd: int) -> bool:
    """Returns whether the system tells when the descriptor is ready, as it does for pipes and sockets."""
    mode = os.fstat(fd).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def write_without_waiting(sink: int, data: bytes) -> int:
    """Writes as much of `data` as there is room for; returns how many bytes. The sink can be polled.

    Raises OSError when the reader is gone.
    """
    if sys.platform == "win32":
        return 0
    room, written = select.poll(), 0
    room.register(sink, select.POLLOUT)
    # Where there is any room at all, there is room for this much (POSIX, poll and write).
    while written < len(data) and room.poll(0):
        written += os.write(sink, data[written : written + select.PIPE_BUF])
    return written


def _copy(fd: int, is_open: bool) -> int:
    if not is_open:
        return os.open(os.devnull, os.O_RDWR)
    if sys.platform != "win32":
        # Above the standard three: a copy that lands on a closed stderr would be written to by every warning.
        copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        os.set_blocking(copy, True)
        return copy
    return os.dup(fd)


def _point(fd: int, target: int) -> None:
    with suppress(OSError):
        os.dup2(target, fd)
    if sys.platform == "win32":
        from mcp.os.win32.utilities import rebind_std_handle_to_fd

        with suppress(OSError):
            rebind_std_handle_to_fd(fd)
