"""Show on a terminal that a command is still at work: what it does, how much of it is done, and for
how long.

One line on stderr, after DELAY_SECONDS, and only where stderr is a terminal. It is erased before
anything else is written, before a question and at the end. This module draws it itself, because
progress bars of libraries replace `sys.stdout`, which a command may have replaced too.
"""

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

from evolvable_tools import Progress

# A line that shows for less than a second only flickers.
DELAY_SECONDS = 1.0
"""How long a command works before it says so."""

# Five times a second looks like steady progress and costs next to nothing.
_REDRAW_SECONDS = 0.2

_LINE_SECONDS = 10.0
"""How often a terminal that cannot erase a line gets a new one."""

_ERASE = "\r\x1b[2K"


class Meter:
    """The line of one command, drawn by a thread: work that reports nothing is shown too."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._begun = time.monotonic()
        self._paused_at: float | None = None
        self.begin("")
        # Guards the terminal: the thread that draws and the command never write at once. Reentrant,
        # because a signal handler may write in the middle of a write.
        self._lock = threading.RLock()
        self._drawn, self._line_is_open = False, False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, label: str) -> None:
        """Begin a step, of which nothing is done."""
        self.label, self.done, self.total = label, 0, 0
        # How much was done at the first call of `set`: the rate does not count it.
        self.first = 0
        self.since = time.monotonic()

    def set(self, done: int, total: int) -> None:
        """Set how much of the step is done. The rate counts what was done after the first call."""
        if not self.total:
            self.first, self.since = done, time.monotonic()
        self.done, self.total = done, total

    def resume(self) -> None:
        """Begin to draw, DELAY_SECONDS from now.

        The time of a pause does not count: a person took it to answer.
        """
        if self._paused_at is not None:
            paused = time.monotonic() - self._paused_at
            self._begun += paused
            self.since += paused
            self._paused_at = None
        # An event for each thread: one that is just ending must not react to the next pause.
        self._ended, self._line_is_open = threading.Event(), False
        self._thread = threading.Thread(
            target=self._draw_until, args=(self._ended,), name="progress", daemon=True
        )
        self._thread.start()

    def pause(self) -> None:
        """Erase the line. Draw nothing more until `resume`."""
        self._ended.set()
        if self._thread is not None:
            # From here on no line can appear over a question.
            self._thread.join()
        self._paused_at = time.monotonic()
        with self._lock:
            self._erase()

    def write(self, stream: TextIO, text: str) -> int:
        """Write a text of the command where the line was."""
        with self._lock:
            self._erase()
            if text:
                self._line_is_open = not text.endswith("\n")
            return stream.write(text)

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            with contextlib.suppress(OSError, ValueError):  # the terminal is gone
                self._terminal.write(_ERASE)
                self._terminal.flush()

    def _draw_until(self, ended: threading.Event) -> None:
        plain = os.environ.get("TERM") in ("dumb", "unknown")
        wait = DELAY_SECONDS
        while not ended.wait(wait):
            wait = _LINE_SECONDS if plain else _REDRAW_SECONDS
            with contextlib.suppress(OSError, ValueError), self._lock:
                # Again under the lock: `pause` may have come during the wait. A line that the
                # command began stays as it is.
                if not self._line_is_open and not ended.is_set():
                    self._terminal.write(
                        f"{self._format_line()}\n" if plain else _ERASE + self._format_line()
                    )
                    self._terminal.flush()
                    self._drawn = not plain

    def _format_line(self) -> str:
        from evolvable_server.cli.tables import cut_end  # late: most commands draw nothing

        parts = [f"{min(self.done, self.total):,} of {self.total:,}"] * bool(self.total)
        parts += rate_and_rest(
            self.done - self.first, self.total - self.done, time.monotonic() - self.since
        )
        parts.append(_format_clock(time.monotonic() - self._begun))
        rest = "  " + "  ".join(parts)
        # One cell less: some terminals break a line that fills the last cell.
        room = max(shutil.get_terminal_size().columns - 1 - len(rest), 8)
        return cut_end(self.label, room) + rest


_RATED_SECONDS = 2.0
"""How long a step goes on before its rate says anything."""


def rate_and_rest(done: int, left: int, seconds: float) -> list[str]:
    """Return the rate and the time that the rest takes, nothing before they can be estimated."""
    if done <= 0 or left <= 0 or seconds < _RATED_SECONDS:
        return []
    rate = done / seconds
    if rate >= 10:
        speed = f"{rate:,.0f}/s"
    else:
        speed = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
    return [speed, f"{_format_clock(left / rate)} left"]


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


class _Stream:
    """A stream of the command that shares the terminal with the line."""

    def __init__(self, meter: Meter, stream: TextIO) -> None:
        self._meter, self._stream = meter, stream

    def write(self, text: str) -> int:
        return self._meter.write(self._stream, text)

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# One for the process, which has one terminal.
_current: Meter | None = None


@contextlib.contextmanager
def show_progress(label: str) -> Iterator[Progress]:
    """Yield a function that sets how much is done, while a line with this label is shown.

    Inside of another one the line goes on with this label, and gets its own label back at the end.
    """
    global _current
    if (meter := _current) is not None:
        before = meter.label, meter.done, meter.total, meter.first, meter.since
        meter.begin(label)
        try:
            yield _set_done
        finally:
            meter.label, meter.done, meter.total, meter.first, meter.since = before
        return
    if not _is_wanted():
        yield _set_done
        return
    _current = meter = Meter(sys.stderr)
    meter.begin(label)
    with contextlib.ExitStack() as streams:
        streams.enter_context(contextlib.redirect_stderr(_Stream(meter, sys.stderr)))
        # A stdout that goes to a file shares no terminal with the line.
        if sys.stdout.isatty():
            streams.enter_context(contextlib.redirect_stdout(_Stream(meter, sys.stdout)))
        meter.resume()
        try:
            yield _set_done
        finally:
            _current = None
            meter.pause()


def _set_done(done: int, total: int) -> None:
    if _current is not None:
        _current.set(done, total)


def set_label(text: str) -> None:
    """Change what the line says of the step that goes on, such as what it cost so far."""
    if _current is not None:
        _current.label = text


@contextlib.contextmanager
def paused_progress() -> Iterator[None]:
    """Show no line while something else needs the terminal: a question, an editor, a pager, another
    program.
    """
    meter = _current
    if meter is None:
        yield
        return
    meter.pause()
    try:
        yield
    finally:
        meter.resume()


def announced_progress(label: str) -> contextlib.AbstractContextManager[None]:
    """Write the label once, and show no line meanwhile: another program may ask on this
    terminal.
    """
    if _current is not None:
        print(f"{label} ...", file=sys.stderr, flush=True)
    return paused_progress()


def _is_wanted() -> bool:
    if "_EVOLVABLE_COMPLETE" in os.environ:
        return False
    with contextlib.suppress(ValueError, AttributeError):  # it is closed, or there is none
        return sys.stderr.isatty()
    return False
