"""A command run for its output beside others, within a time and a size, leaving nobody behind."""

import asyncio
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from evolvable_tools.providers.child import MAX_OUTPUT, Children, Ran

PYTHON = "{python}"
"""Stands for the running interpreter in an argument list."""

_AGAIN = 0.05  # seconds between two tries to stop a command that is just being started


async def run_command(
    command: Sequence[str],
    given: bytes = b"",
    *,
    timeout: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    most: int = MAX_OUTPUT,
) -> Ran:
    """Runs an argument list with `given` as its input and returns how it ended; `{python}` is this interpreter.

    At the timeout (seconds; the code is None then), and when the caller is cancelled, its whole process group is
    killed. folder: where it runs. environment: all of it, by default ours. most: bytes of its output, at which it is
    stopped. Raises OSError when it cannot be started.
    """
    children = Children()
    command = [sys.executable if part == PYTHON else part for part in command]
    ended: Future[Ran] = Future()

    def run() -> None:
        try:
            ended.set_result(children.run(command, given, timeout, folder=folder, environment=environment, most=most))
        except BaseException as error:  # whoever waits gets it
            ended.set_exception(error)

    # A thread for each, so that commands never wait for one another.
    threading.Thread(target=run, daemon=True).start()
    waiting = asyncio.ensure_future(asyncio.wrap_future(ended))
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        while not waiting.done():
            children.stop()
            await asyncio.wait([waiting], timeout=_AGAIN)
        if not waiting.cancelled():
            waiting.exception()  # looked at, so that nobody is told of it
        raise
