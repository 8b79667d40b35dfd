"""What a process of its own does: one attempt after another, until it is told to stop or nobody is there to tell."""

import asyncio
import os
import signal
import threading
from multiprocessing.connection import Connection
from typing import Final

from evolvable_tools.evolve.attempt import Job, perform, trouble

CANCEL: Final = "cancel"
"""What tells a worker to stop what it does, and to end."""

GRACE = 5.0
"""Seconds that it has to end what it has started."""


def serve(connection: Connection) -> None:
    """Takes jobs from the connection and answers each with its attempt; ends when it is told to or the other end is
    gone.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for whoever started us, and they tell us
    asyncio.run(_serve(connection))


async def _serve(connection: Connection) -> None:
    loop = asyncio.get_running_loop()
    jobs: asyncio.Queue[Job | None] = asyncio.Queue()
    working = asyncio.current_task()
    assert working is not None

    def read() -> None:
        while True:
            try:
                given = connection.recv()
            except (EOFError, OSError):
                break
            except Exception as error:  # something in the job is not to be found here
                connection.send(trouble(f"the worker could not read the job: {error}"))
                continue
            if given == CANCEL:
                break
            loop.call_soon_threadsafe(jobs.put_nowait, given)
        loop.call_soon_threadsafe(working.cancel)
        last = threading.Timer(GRACE, os._exit, [1])  # for an executor that does not let go
        last.daemon = True
        last.start()

    threading.Thread(target=read, daemon=True).start()
    try:
        while job := await jobs.get():
            connection.send(await perform(job))
    except (asyncio.CancelledError, OSError):
        pass
    os._exit(0)  # the timer and what else may still be there need not be waited for
