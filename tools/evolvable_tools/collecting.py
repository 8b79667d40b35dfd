"""Holds Python's search for cycles of objects back, while very many small ones are made that are in none."""

import contextlib
import gc
import threading
from collections.abc import Iterator

_turn = threading.Lock()
_holding = 0
_was_on = False


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Searches for no cycles while the block runs; what a session's pieces need else is a quarter of the time.

    Several may hold it back at once; the last of them lets it go on, if it was on before.
    """
    global _holding, _was_on
    with _turn:
        if not _holding:
            _was_on = gc.isenabled()
            gc.disable()
        _holding += 1
    try:
        yield
    finally:
        with _turn:
            _holding -= 1
            if not _holding and _was_on:
                gc.enable()
