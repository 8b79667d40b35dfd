"""Keeps memory from growing by what threads have freed, with glibc; and the collector from what stays for ever."""

import gc
import sys
import threading

_M_ARENA_MAX = -8
"""mallopt's name for the most arenas (malloc.h of glibc)."""

ARENAS = 2

GIVE_BACK_SECONDS = 30.0
"""How often what is free goes back to the system; that takes one to four milliseconds."""


def share_arenas() -> None:
    """Makes all threads share a few arenas of the C library's allocator.

    glibc gives nearly every new thread an arena of its own, and what is freed in one is of no use to the others. Call
    it before the first thread starts: arenas that are there stay in use, and every one grows for thousands of calls.
    """
    _call("mallopt", _M_ARENA_MAX, ARENAS)


def give_back(stop: threading.Event, every: float = GIVE_BACK_SECONDS) -> None:
    """Gives free memory back to the system again and again until `stop`: glibc by itself keeps what lies in between.

    First it keeps Python's collector from what is there now and after the first while: modules, for the most part. To
    look all of them through takes it a twentieth of a second, in the middle of some call.
    """
    gc.freeze()
    if not stop.wait(every):
        gc.freeze()
        _call("malloc_trim", 0)
    while not stop.wait(every) and _call("malloc_trim", 0):
        pass


def _call(name: str, *arguments: int) -> bool:
    """Calls a function of glibc; returns whether there is one."""
    if sys.platform != "linux":
        return False
    try:
        # What ctypes itself is made of: a client waits for this import, and that of ctypes takes four times as long.
        from _ctypes import call_function, dlopen, dlsym

        call_function(dlsym(dlopen("libc.so.6", 0), name), arguments)
    except (ImportError, AttributeError, OSError):
        return False
    return True
