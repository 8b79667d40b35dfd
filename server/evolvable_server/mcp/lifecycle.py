"""Ends the server's process when its client is gone: politely if that works, within a second always."""

import logging
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import NoReturn

GRACE = 0.6
"""Seconds from the first reason to end until the process ends, whatever still runs."""

CLEANUP = 0.25
"""Seconds that all cleanup callbacks get together."""

PARENT_WATCH = 2.0
"""Seconds between two looks at the parent."""

STALL = 0.2
"""Seconds without progress after which a closed stdin counts as read to its end."""

START = 5.0
"""The same before any progress: the server may still be starting."""

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
_RING = b"\0"

_log = logging.getLogger(__name__)


class Lifecycle:
    """When serving is over, and how the process ends.

    Exit codes: 0 when the client closed stdin or died, 128 + n after signal n, 1 when serving failed.
    `cleanup` is read when the end comes, so it may grow until then. The callbacks run once, in order, on a thread of
    their own; one that raises does not stop the next.
    """

    def __init__(self, cleanup: Sequence[Callable[[], None]] = ()) -> None:
        self.begun = threading.Event()
        self.deadline = math.inf
        self.progress = 0
        self.on_begin: Callable[[], object] = lambda: None
        self._cleanup = cleanup
        self._code = 0
        self._beginning = threading.Lock()
        self._finishing = threading.Lock()

    def begin(self, code: int = 0, grace: float = GRACE) -> None:
        """Says that serving is over, from any thread; only the first call counts."""
        with self._beginning:
            if self.begun.is_set():
                return
            self._code = code
            self.deadline = time.monotonic() + grace
            self.begun.set()
        self.on_begin()

    def signalled(self, number: int) -> None:
        """Begins the end; a second signal does not wait for replies any more."""
        if self.begun.is_set():
            self.finish()
        self.begin(128 + number)

    def finish(self) -> NoReturn:
        """Runs the callbacks, flushes, and ends the process with every thread that still runs."""
        self._finishing.acquire()  # never released: a second caller waits here for the end
        try:
            cleaner = threading.Thread(target=self._clean_up, daemon=True)
            cleaner.start()
            cleaner.join(CLEANUP)
        finally:
            os._exit(self._code)

    def _clean_up(self) -> None:
        for callback in tuple(self._cleanup):
            try:
                callback()
            except Exception:
                _log.exception("a cleanup callback failed")
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()


def guard(lifecycle: Lifecycle, source: int) -> None:
    """Watches signals, the parent and the other end of `source`, and keeps the lifecycle's deadline.

    Call it once, on the main thread. A SIGHUP that was ignored at the start (nohup) stays ignored. Windows has no sign
    of a lost client but the end of stdin.
    """
    if sys.platform == "win32":
        watch = partial(_keep_deadline, lifecycle)

        def handler(number: int, frame: FrameType | None) -> None:
            threading.Thread(target=lifecycle.signalled, args=(number,), daemon=True).start()

    else:
        watch = _Watch(lifecycle, source).run

        def handler(number: int, frame: FrameType | None) -> None:
            """The watch hears of the signal through its bell, even while this thread is inside C."""

    for number in _SIGNALS:
        if number in (signal.SIGTERM, signal.SIGINT) or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
    threading.Thread(target=watch, name="lifecycle", daemon=True).start()


def _keep_deadline(lifecycle: Lifecycle) -> None:
    lifecycle.begun.wait()
    time.sleep(GRACE)
    lifecycle.finish()


if sys.platform != "win32":
    _HUNG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)

    class _Watch:
        """One thread that sleeps until something happens to the process, whatever its event loop does meanwhile."""

        def __init__(self, lifecycle: Lifecycle, source: int) -> None:
            self._lifecycle = lifecycle
            self._parent = os.getppid()
            self._hung_up = False
            self._seen, self._seen_at = 0, 0.0
            self._bell, ringer = os.pipe()
            os.set_blocking(ringer, False)
            signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
            lifecycle.on_begin = lambda: os.write(ringer, _RING)
            self._poll = select.poll()
            self._poll.register(self._bell, select.POLLIN)
            self._poll.register(source, _HUNG_UP)

        def run(self) -> None:
            """Never returns; ends the process."""
            while True:
                for fd, event in self._poll.poll(self._pause() * 1000):
                    if fd == self._bell:
                        self._answer(os.read(fd, 64))
                    else:
                        self._poll.unregister(fd)
                        self._hung_up = bool(event & _HUNG_UP)
                if time.monotonic() >= self._lifecycle.deadline:
                    self._lifecycle.finish()
                if os.getppid() != self._parent:
                    self._lifecycle.begin()
                if self._hung_up and self._is_stuck():
                    self._lifecycle.begin(grace=GRACE / 2)  # part of it went by

        def _answer(self, rings: bytes) -> None:
            for number in rings:
                if number in _SIGNALS:  # a signal that somebody else handles rings too
                    self._lifecycle.signalled(number)

        def _pause(self) -> float:
            until_deadline = max(0.0, self._lifecycle.deadline - time.monotonic())
            return min(until_deadline, STALL / 2 if self._hung_up else PARENT_WATCH)

        def _is_stuck(self) -> bool:
            """A client that closed stdin and reads no replies: the transport cannot get to the end of stdin."""
            now, progress = time.monotonic(), self._lifecycle.progress
            if progress != self._seen or not self._seen_at:
                self._seen, self._seen_at = progress, now
            return now - self._seen_at > (STALL if progress else START)
