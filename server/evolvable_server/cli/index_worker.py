"""Index a library in a second process while this one fills it."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store.errors import EvolvableError
from evolvable_store.search.analyzer import weigh_packed

if TYPE_CHECKING:
    from evolvable_store.search.index import Weigh

# Start time: processes of the pool import this module, and need nothing of the library.

WORTHWHILE = 1_000
"""Resources to import for which another process is worth its start."""

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
    command = (sys.executable, "-P", "-m", __name__, str(home))
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet) as process:
        try:
            yield
        except BaseException:
            process.terminate()
            raise
        # Leaving the block closes the pipe, which says that this was all, and waits.


def main() -> None:
    """Follow the library in the folder that the command line names, until stdin ends."""
    from evolvable_store.search.index import Index
    from evolvable_store.store import Store

    ended = threading.Event()
    threading.Thread(target=_wait, args=(ended,), daemon=True).start()
    home = Path(sys.argv[1])
    with (
        _weighing() as weigh,
        contextlib.suppress(EvolvableError),
        # The process that started this one has opened the library.
        Store.open(home, registered=lambda: [home]) as store,
        Index.open(store, weigh) as index,
    ):
        while not ended.wait(_PAUSE):
            index.catch_up(more=True)
        index.catch_up()
        index.settle(0)


@contextlib.contextmanager
def _weighing() -> "Iterator[Weigh | None]":
    """Yield what weighs texts in other processes; None where only the importing process and this one have a core."""
    spare = (os.cpu_count() or 1) - 2
    if spare < 1:
        yield None
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    started = ProcessPoolExecutor(spare, mp_context=get_context("spawn"), initializer=_end_with_parent)
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


def _wait(ended: threading.Event) -> None:
    with contextlib.suppress(OSError):
        sys.stdin.buffer.read()
    ended.set()


if __name__ == "__main__":
    main()
