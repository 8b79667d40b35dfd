"""Index a library in a second process while this one fills it.

The memory that thousands of texts take goes with that process: a server lives on for days.
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
"""Saved files, seen at once, for which it is; the ones that came first are imported meanwhile."""

ONCE = "once"
"""On the command line: to index what is missing for a process that waits for it, and holds the lock
of the backlog.
"""

BESIDE = "beside"
"""On the command line: others search and save meanwhile, so the index is locked for a tenth of a
second at a time.
"""

_PIECE = 1 << 19  # bytes that are settled then at once
_PAUSE = 0.05  # seconds between two looks at what is new
# Texts that another process analyzes at once; such lists before it: those of a large batch.
_AT_ONCE, _AHEAD = 25, 80


class IndexWorker:
    """The process that keeps the index in sync while this one fills the library.

    None where that is not worthwhile.
    """

    def __init__(self, process: "subprocess.Popen[bytes] | None") -> None:
        self._process = process

    @contextlib.contextmanager
    def indexing(self) -> Iterator[Callable[[], None]]:
        """Have it index, from now on, what the body imports; the library is open.

        Yield a function that says that this was all; the end of the body says so too, and waits for
        the rest.
        """
        if self._process is None or self._process.stdin is None:
            yield lambda: None
            return
        _begin(self._process)
        yield self._process.stdin.close
        # The body may not have said that this was all; a second close does nothing.
        self._process.stdin.close()
        self._process.wait()


@contextlib.contextmanager
def start_index_worker(home: Path, expected: int) -> Iterator[IndexWorker]:
    """Start the process if `expected` resources are worthwhile: it loads its modules while the body
    opens the library.

    If that process fails, the next search indexes the rest.
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
    """Another process that indexes beside this one while many saved files are imported, piece by
    piece.

    If it fails, the next search indexes the rest.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, expected: int) -> None:
        """Start the process where none runs and so many resources are worth it."""
        if self._process is None and expected >= BURST:
            with contextlib.suppress(OSError):
                self._process = _start_worker(self._home, BESIDE)
                _begin(self._process)

    def end(self) -> None:
        """Let it index what is there, and end.

        Returns at once; called again, it takes note of the end.
        """
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            if self._process.poll() is not None:
                self._process = None

    def stop(self) -> None:
        """End it at once."""
        self.end()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None


def index_elsewhere(home: Path, missing: int, alive: Callable[[], object]) -> None:
    """Have another process index what is missing, and wait for it; return at once where that is not
    worthwhile.

    If that process fails, the caller indexes what is left. missing: changes. alive: called several
    times a second.
    """
    if missing < WORTHWHILE:
        return
    with contextlib.suppress(OSError), _start_worker(home, ONCE) as process:
        _begin(process)
        try:
            while process.poll() is None:
                alive()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_PAUSE)
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
            # Not through its buffer, which is written again at its end.
            os.write(process.stdin.fileno(), b"\n")


def main() -> None:
    """Index the library in the folder that the command line names: until stdin ends, or once what
    is missing now.

    Begins when stdin has a first byte.
    """
    home, modes = Path(sys.argv[1]), sys.argv[2:]
    with _analyzing() as analyze:
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
    # gone.
    threading.Thread(
        target=_wait, args=(partial(os._exit, 1) if once else ended.set,), daemon=True
    ).start()
    with (
        # The process that started this one has opened the library.
        Store.open(home, registered=lambda: [home]) as store,
        Index.open(store, analyze) as index,
        contextlib.ExitStack() as holding,
    ):
        locked = once
        while not (once or ended.wait(_PAUSE)):
            if not locked:
                with contextlib.suppress(LibraryBusy):
                    holding.enter_context(index.backlog())
                    locked = True
            # The next round does it; the last one, or a search, what is left.
            with contextlib.suppress(TryAgain):
                index.catch_up(more=lambda: not ended.is_set(), locked=locked, batch=batch)
        # The last round: all that was written before the end is there now.
        index.catch_up(locked=locked, batch=batch)
        index.settle(0, locked=locked, at_once=at_once)


@contextlib.contextmanager
def _analyzing() -> "Iterator[Analyze | None]":
    """Yield what analyzes texts in other processes; None where there is one core."""
    cores = os.cpu_count() or 1
    if cores < 2:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # Two cores stay free: for this process and for the one that imports.
    helpers = max(1, cores - 2)
    # A fork would copy threads and open databases.
    started = ProcessPoolExecutor(
        helpers, mp_context=get_context("spawn"), initializer=_end_with_parent
    )
    with started as pool:
        pool.submit(_analyze, ())  # which starts the process, and loads its modules
        yield partial(_share, pool)


def _share(pool: "Executor", sources: "Iterable[SourceText]") -> "Iterator[AnalyzedText]":
    """Yield the analysis of each source, in order.

    The pool has up to _AHEAD lists of sources before it, and goes on while the caller writes. This
    process analyzes lists that the pool has not begun where it would wait otherwise.
    """
    waiting: deque[Future[list[AnalyzedText]]] = deque()
    sources_by_future: dict[Future[list[AnalyzedText]], list[SourceText]] = {}
    here: dict[Future[list[AnalyzedText]], list[AnalyzedText]] = {}
    remaining = iter(sources)
    some = list(islice(remaining, _AT_ONCE))
    while some or waiting:
        if some and len(waiting) < _AHEAD:
            waiting.append(pool.submit(_analyze, some))
            sources_by_future[waiting[-1]] = some
            some = list(islice(remaining, _AT_ONCE))
            continue
        first = waiting[0]
        # `cancel` succeeds only for a list that the pool has not begun.
        mine = (
            None
            if first.done()
            else next(
                (future for future in waiting if future not in here and future.cancel()), None
            )
        )
        if mine is not None:
            here[mine] = _analyze(sources_by_future[mine])
        else:
            del sources_by_future[waiting.popleft()]
            yield from here.pop(first) if first in here else first.result()


def _analyze(sources: "Sequence[SourceText]") -> "list[AnalyzedText]":
    from evolvable_store.search import analyze_source

    return list(map(analyze_source, sources))


def _end_with_parent() -> None:
    """Have a process of the pool end when this one does, however that ends: the pool's own would
    wait without limit.
    """
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _wait(then: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        # Not sys.stdin: the interpreter cannot end while a thread holds its lock.
        while os.read(0, 1024):
            pass
    then()


if __name__ == "__main__":
    main()
