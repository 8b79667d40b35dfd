"""What a server does so that it stays small however long it runs."""

import gc
import platform
import re
import subprocess
import sys
import threading

import psutil
import pytest
from processes import poll

from evolvable_server.serving import return_free_memory
from evolvable_store.paths import path_problem

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")

PIECE, PIECES, KEPT = 4_000, 10_000, 100
"""Bytes of a piece, so many that the interpreter asks the C library for each; every so manyth one
is kept.
"""

THREADS = """
import ctypes, threading
from evolvable_server.serving import tune_malloc

tune_malloc()
together = threading.Barrier(8)
def work():
    pieces = [bytes(4_000) for _ in range(100)]  # too long for the interpreter's own allocator
    together.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

# Nearly all with pages of their own, outside of the heaps.
large = [bytes(100_000) for _ in range(100)]

libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = (ctypes.c_int, ctypes.c_void_p)
libc.fflush.argtypes = (ctypes.c_void_p,)
out = libc.fdopen(1, b"w")
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.process
def test_threads_share_the_arena_that_memory_is_taken_from():
    done = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("<heap nr=") == 1
    assert int(re.search(r'<total type="mmap" count="(\d+)"', done.stdout)[1]) >= 50


def test_what_is_free_between_what_is_kept_goes_back_to_the_system():
    stop, process = threading.Event(), psutil.Process()
    pieces = [bytes(PIECE) for _ in range(PIECES)]
    kept, full = pieces[::KEPT], process.memory_info().rss
    del pieces
    giving = threading.Thread(target=return_free_memory, args=(stop, 0.01))

    giving.start()
    try:
        poll(
            lambda: process.memory_info().rss < full - PIECE * PIECES // 2, "half of it to go back"
        )
    finally:
        stop.set()
        giving.join()

    assert kept


def test_words_of_texts_that_were_looked_at_are_forgotten_after_a_while():
    stop = threading.Event()
    giving = threading.Thread(target=return_free_memory, args=(stop, 0.01))
    path_problem("references/api.md")
    giving.start()
    try:
        poll(lambda: path_problem.cache_info().currsize == 0, "what was remembered to go")
    finally:
        stop.set()
        giving.join()


def test_what_is_there_when_serving_begins_is_no_more_looked_through_for_cycles():
    stop = threading.Event()
    giving = threading.Thread(target=return_free_memory, args=(stop, 0.01))
    gc.disable()
    giving.start()
    try:
        poll(
            lambda: gc.get_freeze_count() > 10_000 and gc.isenabled(), "the collector to run again"
        )
    finally:
        stop.set()
        giving.join()
        gc.enable()
        gc.unfreeze()


def test_a_server_that_ends_at_once_leaves_the_collector_running():
    stop = threading.Event()
    stop.set()
    gc.disable()

    return_free_memory(stop)

    assert gc.isenabled()
