"""Tune the allocator of a process that serves for long: freed memory goes back to the system.

The collector of Python skips what stays for as long as the process.
"""

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterator
from functools import _lru_cache_wrapper

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""mallopt's names for the parameters below (malloc.h of glibc)."""

ARENAS = 1

LARGE_BYTES, TRIM_BYTES = 1 << 16, 1 << 17
"""What takes so many bytes has pages of its own, which go back when it is freed; and so many free
bytes at the end of the heap go back. By itself glibc raises both up to 32 MB, and what is freed
stays in between what is in use.
"""

GIVE_BACK_SECONDS, GIVE_BACK_AFTER = 10.0, 0.02
"""How often what is free goes back to the system, which takes one to four milliseconds; and after
how many seconds of processor time: an idle server has nothing to give.
"""

TEXT_CACHE = 512
"""A function that remembers at least so many values looks at texts, such as words; a smaller cache
holds settings.
"""

COLLECT_SECONDS = 2.0
"""How long after the start the collector runs first: a client's first calls come at once."""


def tune_malloc() -> None:
    """Make all threads share one arena of the C library's allocator, and large blocks go back at
    once.

    glibc gives nearly every new thread an arena of its own, and what is freed in one is of no use
    to the others. Call it before the first thread starts: arenas that are there stay in use, and
    every one grows for thousands of calls. The threads hold the interpreter's lock for most of
    their allocations, so they do not wait for that of the arena.
    """
    _call("mallopt", _M_ARENA_MAX, ARENAS)
    _call("mallopt", _M_MMAP_THRESHOLD, LARGE_BYTES)
    _call("mallopt", _M_TRIM_THRESHOLD, TRIM_BYTES)


def return_free_memory(stop: threading.Event, every: float = GIVE_BACK_SECONDS) -> None:
    """Give free memory back to the system again and again until `stop`: glibc by itself keeps what
    lies in between.

    What functions remember of texts goes too: every new word would stay.

    First it ends the start: Python's collector, which `serve` stopped, removes what the imports
    left over, and runs again. What is there then and after the first while is kept from it:
    modules, for the most part. To look all of them through takes it a twentieth of a second, in the
    middle of some call.
    """
    if stop.wait(min(every, COLLECT_SECONDS)):
        gc.enable()
        return
    _freeze()
    gc.enable()
    # By then most of what stays as long as the process is there.
    if not stop.wait(3 * every):
        _freeze()
        _call("malloc_trim", 0)
    used = 0.0
    while not stop.wait(every):
        if time.process_time() - used > GIVE_BACK_AFTER:
            _forget_texts()
            _call("malloc_trim", 0)
            used = time.process_time()


@contextlib.contextmanager
def tuned_memory() -> Iterator[None]:
    """Tune the allocator, and give free memory back to the system until the end of the block, by a
    thread.
    """
    tune_malloc()
    ended = threading.Event()
    threading.Thread(
        target=return_free_memory, args=(ended,), name="evolvable-give-back", daemon=True
    ).start()
    try:
        yield
    finally:
        ended.set()


def _forget_texts() -> None:
    """Clear the larger caches of functions in our modules.

    None holds more than what it can find again.
    """
    # Copies: other threads may import modules meanwhile.
    ours = (module for name, module in list(sys.modules.items()) if name.startswith("evolvable_"))
    for value in (value for module in ours for value in list(vars(module).values())):
        if (
            isinstance(value, _lru_cache_wrapper)
            and (value.cache_parameters()["maxsize"] or 0) >= TEXT_CACHE
        ):
            value.cache_clear()
    if analyzer := sys.modules.get("evolvable_store.search.analyzer"):  # no search, no terms
        analyzer.forget_terms()


def _freeze() -> None:
    """Keep what is there from the collector.

    What is garbage now goes first, as nothing would remove it later.
    """
    gc.collect()
    gc.freeze()
    # The collector looks at everything once a quarter has come to what it saw the last time: now
    # nothing. Without this it would wait for a quarter of all modules, which is megabytes of closed
    # connections.
    gc.collect()


def _call(name: str, *arguments: int) -> bool:
    """Call a function of glibc; return whether there is one."""
    # The C libraries of other systems have other functions.
    if sys.platform != "linux":
        return False
    try:
        # What ctypes itself is made of: a client waits for this import, and that of ctypes takes
        # four times as long.
        from _ctypes import call_function, dlopen, dlsym

        call_function(dlsym(dlopen("libc.so.6", 0), name), arguments)
    except (ImportError, AttributeError, OSError):
        return False
    return True
