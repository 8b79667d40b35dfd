"""Tune the memory of a process that serves for long: freed memory goes back to the system.

The collector of Python skips the objects that stay as long as the process.
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

# By itself glibc raises both up to 32 MB, and freed blocks stay between blocks in use.
LARGE_BYTES = 1 << 16
"""Bytes from which a block has pages of its own, which go back to the system when it is freed."""

TRIM_BYTES = 1 << 17
"""Free bytes at the end of the heap that go back to the system."""

# Once takes one to four milliseconds.
GIVE_BACK_SECONDS = 10.0
"""How often free memory goes back to the system."""

# An idle server has no memory to give back.
GIVE_BACK_AFTER = 0.02
"""Seconds of processor time since the last time for which memory is given back."""

TEXT_CACHE = 512
"""Values from which a cache of a function counts as one of texts; smaller ones hold settings."""

# A client's first calls come at once, and must not wait for the collector.
COLLECT_SECONDS = 2.0
"""How long after the start the collector first runs."""


def tune_malloc() -> None:
    """Make all threads share one arena of the C library's allocator, and free large blocks at once.

    glibc gives nearly every new thread an arena of its own, and memory freed in one is of no use to
    the others. Call this before the first thread starts: existing arenas stay in use, and every one
    grows for thousands of calls. The threads hold the interpreter's lock for most of their
    allocations, so they do not wait for the lock of the arena.
    """
    _call("mallopt", _M_ARENA_MAX, ARENAS)
    _call("mallopt", _M_MMAP_THRESHOLD, LARGE_BYTES)
    _call("mallopt", _M_TRIM_THRESHOLD, TRIM_BYTES)


def return_free_memory(stop: threading.Event, every: float = GIVE_BACK_SECONDS) -> None:
    """Give free memory back to the system every `every` seconds until `stop`.

    The caches of texts are emptied too: every new word would stay in them. First, this enables
    Python's collector, which `serve` disabled for the start. The objects that exist then, most of
    them modules, are frozen: a collection of all takes a twentieth of a second, in the middle of a
    call.
    """
    if stop.wait(min(every, COLLECT_SECONDS)):
        gc.enable()
        return
    _freeze()
    gc.enable()
    # By then most of the objects that stay as long as the process exist.
    if not stop.wait(3 * every):
        _freeze()
        _call("malloc_trim", 0)
    last_time = 0.0
    while not stop.wait(every):
        if time.process_time() - last_time > GIVE_BACK_AFTER:
            _forget_texts()
            _call("malloc_trim", 0)
            last_time = time.process_time()


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
    """Clear the larger caches of functions in our modules, which compute the values again."""
    # Copies: other threads may import modules meanwhile.
    ours = (module for name, module in list(sys.modules.items()) if name.startswith("evolvable_"))
    for value in (value for module in ours for value in list(vars(module).values())):
        if not isinstance(value, _lru_cache_wrapper):
            continue
        if (value.cache_parameters()["maxsize"] or 0) >= TEXT_CACHE:
            value.cache_clear()
    if analyzer := sys.modules.get("evolvable_store.search.analyzer"):  # no search, no terms
        analyzer.forget_terms()


def _freeze() -> None:
    """Keep the present objects from the collector."""
    # Garbage goes first, as nothing would remove it later.
    gc.collect()
    gc.freeze()
    # A full collection waits until the new objects are a quarter of those that the last one saw,
    # which are none now. Without this call it would wait for a quarter of all modules, which is
    # megabytes of closed connections.
    gc.collect()


def _call(name: str, *arguments: int) -> bool:
    """Call a function of glibc; return whether there is one."""
    # The C libraries of other systems have other functions.
    if sys.platform != "linux":
        return False
    try:
        # The extension module of ctypes: a client waits for this import, and that of ctypes takes
        # four times as long.
        from _ctypes import call_function, dlopen, dlsym

        call_function(dlsym(dlopen("libc.so.6", 0), name), arguments)
    except (ImportError, AttributeError, OSError):
        return False
    return True
