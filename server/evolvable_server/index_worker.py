"""Index a library in a second process while this one fills it.

The memory that thousands of texts take is free when that process ends: a server goes on for days.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store.errors import EvolvableError, LibraryBusy, TryAgain

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from evolvable_store.search import Analyze, AnalyzedText, SourceText

# Start time: processes of the pool import this module, and need nothing of the library.

WORTHWHILE = 1_000
"""Resources to import, or changes, for which another process is worth its start."""

BURST = 200
"""Files saved at once for which it is; this process imports the first ones meanwhile."""

ONCE = "once"
"""On the command line: index what is missing for a process that waits, and that holds the lock of
the backlog.
"""

BESIDE = "beside"
"""On the command line: other processes search and save meanwhile, so the index is locked for a
tenth of a second at a time.
"""

_PIECE = 1 << 19
"""Bytes that are settled at once with BESIDE."""

_PAUSE_SECONDS = 0.05
"""How long between two looks for changes."""

_AT_ONCE = 25
"""Texts of one list for a process of the pool."""

_AHEAD = 80
"""Lists that wait for the pool at most, which is a large batch of texts."""


class IndexWorker:
    """The process that keeps the index in sync while this one fills the library.

    process: None where it is not worthwhile.
    """

    def __init__(self, process: "subprocess.Popen[bytes] | None") -> None:
        self._process = process

    @contextlib.contextmanager
    def indexing(self) -> Iterator[Callable[[], None]]:
        """Have the process index what the body imports; the library is open.

        Yield a function to call after the last import. The end of the body calls it too, and waits
        until all is indexed.
        """
        if self._process is None or self._process.stdin is None:
            yield lambda: None
            return
        _begin(self._process)
        yield self._process.stdin.close
        # The body may not have closed it; a second close does nothing.
        self._process.stdin.close()
        self._process.wait()


@contextlib.contextmanager
def start_index_worker(home: Path, expected: int) -> Iterator[IndexWorker]:
    """Start the process if it is worthwhile for `expected` resources.

    It loads its modules while the body opens the library. If it fails, the next search indexes the
    rest.
    """
    if expected < WORTHWHILE:
        yield IndexWorker(None)
        return
    with _start_worker(home) as process:
        try:
            yield IndexWorker(process)
        except BaseException:
            # After a failure there is nothing to index.
            process.terminate()
            raise


class BurstIndexer:
    """Another process that indexes in pieces while this one imports many saved files.

    If it fails, the next search indexes the rest.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, expected: int) -> None:
        """Start the process where none runs and `expected` files are worth it."""
        if self._process is None and expected >= BURST:
            with contextlib.suppress(OSError):
                self._process = _start_worker(self._home, BESIDE)
                _begin(self._process)

    def end(self) -> None:
        """Let the process index the rest and end; return at once.

        Called again after its end, it lets `begin` start another one.
        """
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            if self._process.poll() is not None:
                self._process = None

    def stop(self) -> None:
        """End the process at once."""
        self.end()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


def index_elsewhere(home: Path, missing: int, alive: Callable[[], object]) -> None:
    """Have another process index `missing` changes, and wait for it; do nothing for a few.

    If that process fails, the caller indexes the rest. alive: called several times a second.
    """
    if missing < WORTHWHILE:
        return
    with contextlib.suppress(OSError), _start_worker(home, ONCE) as process:
        _begin(process)
        try:
            while process.poll() is None:
                alive()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_PAUSE_SECONDS)
        except BaseException:
            process.terminate()
            raise


def _start_worker(home: Path, *mode: str) -> "subprocess.Popen[bytes]":
    command = (sys.executable, "-P", "-m", __name__, str(home), *mode)
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)


def _begin(process: "subprocess.Popen[bytes]") -> None:
    """Tell a process that was started that the library is open."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):  # it has failed
            # Past the buffer of the stream, which would be written once more at its close.
            os.write(process.stdin.fileno(), b"\n")


def main() -> None:
    """Index the library in the folder that the command line names, until stdin ends.

    With ONCE, index only the changes until now. Begin at the first byte on stdin.
    """
    home, modes = Path(sys.argv[1]), sys.argv[2:]
    with _start_analysis() as analyze:
        # Nothing comes if the first process ended before it opened the library.
        if os.read(0, 1):
            with contextlib.suppress(EvolvableError):
                _index(home, modes, analyze)


def _index(home: Path, modes: Sequence[str], analyze: "Analyze | None") -> None:
    from evolvable_store import Store
    from evolvable_store.search import BACKLOG_BATCH, BATCH, SETTLED_AT_ONCE, Index

    once = ONCE in modes
    batch, at_once = (BATCH, _PIECE) if BESIDE in modes else (BACKLOG_BATCH, SETTLED_AT_ONCE)
    ended = threading.Event()
    # With ONCE, the process that started this one holds the lock. The end of stdin means that it is
    # gone, so nothing may be written any more.
    at_end = partial(os._exit, 1) if once else ended.set
    threading.Thread(target=_call_at_end, args=(at_end,), daemon=True).start()
    with (
        # The process that started this one has opened the library.
        Store.open(home, registered=lambda: [home]) as store,
        Index.open(store, analyze) as index,
        contextlib.ExitStack() as holding,
    ):
        locked = once
        while not (once or ended.wait(_PAUSE_SECONDS)):
            if not locked:
                with contextlib.suppress(LibraryBusy):
                    holding.enter_context(index.backlog())
                    locked = True
            # TryAgain: the next round, the last one or a search indexes the rest.
            with contextlib.suppress(TryAgain):
                index.catch_up(more=lambda: not ended.is_set(), locked=locked, batch=batch)
        # The last round, for the changes that were written before the end of stdin.
        index.catch_up(locked=locked, batch=batch)
        index.settle(0, locked=locked, at_once=at_once)


@contextlib.contextmanager
def _start_analysis() -> "Iterator[Analyze | None]":
    """Yield a function that analyzes texts in other processes, None where there is one core."""
    cores = os.cpu_count() or 1
    if cores < 2:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Two cores stay free: for this process and for the one that imports.
    helpers = max(1, cores - 2)
    # A fork would copy threads and open databases.
    spawn = get_context("spawn")
    with ProcessPoolExecutor(helpers, mp_context=spawn, initializer=_end_with_parent) as pool:
        # An empty list, so that a process starts and loads its modules.
        pool.submit(_analyze, ())
        yield partial(_share, pool)


def _share(pool: "Executor", sources: "Iterable[SourceText]") -> "Iterator[AnalyzedText]":
    """Yield the analysis of each source, in order.

    Up to _AHEAD lists of sources wait for the pool, which goes on while the caller writes. Where
    this process would wait for the pool, it analyzes a list that the pool has not begun.
    """
    waiting: deque[Future[list[AnalyzedText]]] = deque()
    sources_by_future: dict[Future[list[AnalyzedText]], list[SourceText]] = {}
    own_results: dict[Future[list[AnalyzedText]], list[AnalyzedText]] = {}
    remaining = iter(sources)
    batch = list(islice(remaining, _AT_ONCE))
    while batch or waiting:
        if batch and len(waiting) < _AHEAD:
            waiting.append(pool.submit(_analyze, batch))
            sources_by_future[waiting[-1]] = batch
            batch = list(islice(remaining, _AT_ONCE))
            continue
        first = waiting[0]
        cancelled = None
        if not first.done():
            # `cancel` succeeds only for a list that the pool has not begun.
            unresolved = (future for future in waiting if future not in own_results)
            cancelled = next((future for future in unresolved if future.cancel()), None)
        if cancelled is not None:
            own_results[cancelled] = _analyze(sources_by_future[cancelled])
        else:
            del sources_by_future[waiting.popleft()]
            yield from own_results.pop(first) if first in own_results else first.result()


def _analyze(sources: "Sequence[SourceText]") -> "list[AnalyzedText]":
    from evolvable_store.search import analyze_source

    return list(map(analyze_source, sources))


def _end_with_parent() -> None:
    """Let a process of the pool end with this one, also after a kill: else it would wait."""
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call_at_end(then: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        # Not sys.stdin: the interpreter cannot end while a thread holds its lock.
        while os.read(0, 1024):
            pass
    then()


if __name__ == "__main__":
    main()
