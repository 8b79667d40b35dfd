"""Index a library in a second process while this one fills it.

The memory that thousands of texts take goes with that process: a server lives on for days.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store.errors import EvolvableError

if TYPE_CHECKING:
    from evolvable_store.search.index import Weigh

# Start time: processes of the pool import this module, and need nothing of the library.

WORTHWHILE = 1_000
"""Resources to import, or changes, for which another process is worth its start."""

ONCE = "once"
"""On the command line: to index what is missing for a process that waits for it, and holds the lock of the backlog."""

_PAUSE = 0.2  # seconds between two looks at what is new
_AT_ONCE = 25  # texts that another process weighs at once


@contextlib.contextmanager
def index_worker(home: Path, expected: int) -> Iterator[None]:
    """Keep the index of a library in sync while the body fills it, where `expected` resources are worthwhile.

    If that process fails, the next search indexes the rest.
    """
    if expected < WORTHWHILE:
        yield
        return
    with _start_worker(home) as process:
        try:
            yield
        except BaseException:
            process.terminate()
            raise
        # Leaving the block closes the pipe, which says that this was all, and waits.


def index_elsewhere(home: Path, missing: int, alive: Callable[[], object]) -> None:
    """Have another process index what is missing, and wait for it; return at once where that is not worthwhile.

    If that process fails, the caller indexes what is left. missing: changes. alive: called several times a second.
    """
    if missing < WORTHWHILE:
        return
    with contextlib.suppress(OSError), _start_worker(home, ONCE) as process:
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


def main() -> None:
    """Index the library in the folder that the command line names: until stdin ends, or once what is missing now."""
    from evolvable_store.search.index import Index
    from evolvable_store.store import Store

    home, once = Path(sys.argv[1]), ONCE in sys.argv[2:]
    ended = threading.Event()
    threading.Thread(target=_wait, args=(partial(os._exit, 1) if once else ended.set,), daemon=True).start()
    with (
        _weighing() as weigh,
        contextlib.suppress(EvolvableError),
        # The process that started this one has opened the library.
        Store.open(home, registered=lambda: [home]) as store,
        Index.open(store, weigh) as index,
    ):
        while not (once or ended.wait(_PAUSE)):
            index.catch_up(more=True)
        index.catch_up(locked=once)
        index.settle(0)


@contextlib.contextmanager
def _weighing() -> "Iterator[Weigh | None]":
    """Yield what weighs texts in other processes; None where there is one core."""
    cores = os.cpu_count() or 1
    if cores < 2:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from evolvable_store.search.analyzer import weigh_packed

    # On two cores it saves a twelfth of the time: the importing process ends first and leaves its core idle.
    started = ProcessPoolExecutor(max(1, cores - 2), mp_context=get_context("spawn"), initializer=_end_with_parent)
    with started as pool:
        yield partial(pool.map, weigh_packed, chunksize=_AT_ONCE)


def _end_with_parent() -> None:
    """Have a process of the pool end when this one does, however that ends: the pool's own would wait without limit."""
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _wait(then: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):  # not sys.stdin: the interpreter cannot end while a thread holds its lock
            pass
    then()


if __name__ == "__main__":
    main()
