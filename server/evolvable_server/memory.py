"""Keeps the memory of a process with many threads from growing by what its threads have freed."""

import contextlib
import ctypes
import sys

_M_ARENA_MAX = -8
"""mallopt's name for the most arenas (malloc.h of glibc)."""

ARENAS = 2


def share_arenas() -> None:
    """Makes all threads share a few arenas of the C library's allocator; does nothing where that is not glibc's.

    glibc gives nearly every new thread an arena of its own, and what is freed in one is of no use to the others.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)
