"""A command run for its output, within a time and a size, leaving nobody behind."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

MAX_OUTPUT = 1_000_000
"""Bytes of its output; one that writes more is stopped."""

_TAIL = 2_000  # bytes of what it writes to stderr that are kept
_GRACE = 1.0  # seconds for the output to end after its writer has


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended: its exit code (None: stopped at the timeout), its output, the end of its stderr."""

    code: int | None
    out: bytes
    err: bytes
    too_long: bool


class _Reader(threading.Thread):
    """Takes in one stream to its end: the first `keep` bytes of it and no more, or only the last."""

    def __init__(self, descriptor: int, keep: int, *, last: bool = False) -> None:
        super().__init__(daemon=True)
        self._descriptor, self._keep, self._last = descriptor, keep, last
        self._kept = bytearray()
        self.too_long = False
        self.start()

    @property
    def data(self) -> bytes:
        return bytes(self._kept)

    def run(self) -> None:
        while part := os.read(self._descriptor, 65_536):
            self._kept += part
            if len(self._kept) > self._keep:
                if not self._last:
                    self.too_long = True
                    break
                del self._kept[: -self._keep]
        # Closed here and nowhere else: a writer that goes on is told so, and no number is used twice.
        os.close(self._descriptor)


class Children:
    """Runs commands, from any thread, and knows which are running."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(
        self,
        command: Sequence[str],
        given: bytes,
        timeout: float,
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        most: int = MAX_OUTPUT,
    ) -> Ran:
        """Runs a command with `given` as its input. At the timeout (seconds) its whole process group is killed.

        folder: where it runs, by default here. environment: all of it, by default ours. most: bytes of its output, at
        which it is stopped; what it wrote until then comes back. Raises OSError when it cannot be started. On Windows
        the process is killed without those it has started.
        """
        deadline = monotonic() + timeout
        with tempfile.TemporaryFile() as stdin:
            stdin.write(given)
            stdin.seek(0)
            process, readers = _start(command, stdin.fileno(), folder, environment, most)
        self._running.add(process)
        code: int | None = None
        try:
            code = _waited(process, max(0.0, deadline - monotonic()))
            _ended(readers)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._running.discard(process)
            if code is None or any(reader.is_alive() for reader in readers):
                _kill(process)
        _ended(readers)
        out, err = readers
        return Ran(code, out.data, err.data, out.too_long)

    def stop(self) -> None:
        """Kills what is running, each with its process group; whoever waits for it is told its exit code."""
        for process in list(self._running):
            if process.poll() is None:
                _kill(process)


def _start(
    command: Sequence[str], stdin: int, folder: Path | None, environment: Mapping[str, str] | None, most: int
) -> tuple["subprocess.Popen[bytes]", tuple[_Reader, _Reader]]:
    ends = [*os.pipe(), *os.pipe()]
    out_read, out_write, err_read, err_write = ends
    try:
        process = subprocess.Popen(
            list(command),
            stdin=stdin,
            stdout=out_write,
            stderr=err_write,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    except BaseException:
        for end in ends:
            os.close(end)
        raise
    os.close(out_write)
    os.close(err_write)
    return process, (_Reader(out_read, most), _Reader(err_read, _TAIL, last=True))


def _waited(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    """Return the exit code of a process. Raise TimeoutExpired."""
    # With a timeout, Popen.wait looks again after up to 50 ms; that would be most of a short trial.
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            try:
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                if not ended.poll(seconds * 1000):
                    raise subprocess.TimeoutExpired(process.args, seconds)
                return process.wait()
            finally:
                os.close(descriptor)
    return process.wait(seconds)


def _ended(readers: Sequence[_Reader]) -> None:
    """Waits for the ends of the streams, but not long: somebody else may hold them open."""
    until = monotonic() + _GRACE
    for reader in readers:
        reader.join(max(0.0, until - monotonic()))


def _kill(process: "subprocess.Popen[bytes]") -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
    process.wait()
