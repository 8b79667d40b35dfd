"""Attempts in processes of this machine: for executors that compute, and so that one that dies takes nobody along."""

import asyncio
import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from evolvable_tools.evolve.attempt import Attempt, Job, trouble
from evolvable_tools.evolve.backends.backend import Done
from evolvable_tools.evolve.backends.worker import CANCEL, GRACE, serve

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess


_SAFE_PATH = "PYTHONSAFEPATH"
_environment = threading.Lock()


@contextlib.contextmanager
def _safe_path() -> Iterator[bool]:
    """Start Python in the body so that it imports nothing from the current folder; yield whether by a variable.

    multiprocessing hands on this process's own -P and takes no other argument.
    """
    if sys.flags.safe_path:
        yield False
        return
    with _environment:
        os.environ[_SAFE_PATH] = "1"
        try:
            yield True
        finally:
            del os.environ[_SAFE_PATH]


def _serve(connection: Connection, added: bool) -> None:
    """Serve jobs. added: the variable is this module's, and is not for the programs that the jobs start."""
    if added:
        os.environ.pop(_SAFE_PATH, None)
    serve(connection)


class _Worker:
    """One process, with a thread that waits for its answers and tells the loop of them."""

    def __init__(self, backend: "ProcessBackend") -> None:
        # A fresh interpreter: what else this process holds, locks above all, stays here.
        self._grace = backend.grace
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        with _safe_path() as added:
            self._process: SpawnProcess = context.Process(target=_serve, args=(theirs, added), daemon=True)
            self._process.start()
        theirs.close()
        self.ticket = ""
        self.gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(backend,), daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The process's id."""
        return self._process.pid

    def begin(self, ticket: str, job: Job) -> None:
        """Gives it a job. Raises what pickling raises; a process that is dead answers as one that dies."""
        self.ticket = ticket
        try:
            self._connection.send(job)
        except OSError:
            self._process.kill()  # its thread tells of it

    def _read(self, backend: "ProcessBackend") -> None:
        connection: Connection = self._connection
        try:
            while True:
                attempt: Attempt = connection.recv()
                self._loop.call_soon_threadsafe(backend.take_in, self, attempt)
        except (EOFError, OSError):
            pass
        self._process.join()
        connection.close()
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits any more
            self._loop.call_soon_threadsafe(backend.take_leave, self, self._process.exitcode)

    async def stop(self) -> None:
        """Ends it: first it is asked to, so that it ends what it has started; then it is killed."""
        try:
            self._connection.send(CANCEL)
            async with asyncio.timeout(self._grace):
                await self.gone.wait()
        except (OSError, TimeoutError):
            self._process.kill()
            await self.gone.wait()


class ProcessBackend:
    """Runs each job in a process of its own while it lasts. Executors and scorings must be such as can be pickled.

    A process that dies fails its own job alone. When this process is killed the others stop what they have started.
    """

    def __init__(self, grace: float = GRACE) -> None:
        """grace: seconds that a process has to end what it has started, before it is killed."""
        self.grace = grace
        self._busy: dict[str, _Worker] = {}
        self._idle: list[_Worker] = []
        self._done: list[Done] = []
        self._news = asyncio.Event()
        self._numbers = 0

    def submit(self, job: Job) -> str:
        """Starts a job and returns its ticket. Raises what pickling raises."""
        self._numbers += 1
        ticket = str(self._numbers)
        worker = self._idle.pop() if self._idle else _Worker(self)
        try:
            worker.begin(ticket, job)
        except BaseException:
            self._idle.append(worker)
            raise
        self._busy[ticket] = worker
        return ticket

    @property
    def workers(self) -> dict[str, int | None]:
        """The process ids by the tickets of the jobs that they run."""
        return {ticket: worker.pid for ticket, worker in self._busy.items()}

    async def poll(self, timeout: float | None = None) -> Sequence[Done]:
        """Waits until a job is done and returns all that are."""
        if not self._busy and not self._done:
            return []
        if not self._done:
            self._news.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._news.wait()
            except TimeoutError:
                return []
        done, self._done = self._done, []
        return done

    def take_in(self, worker: _Worker, attempt: Attempt) -> None:
        """Is told by a worker what came of its job."""
        if self._busy.pop(worker.ticket, None) is None:
            return  # cancelled meanwhile; it is being stopped
        self._done.append((worker.ticket, attempt))
        self._idle.append(worker)
        self._news.set()

    def take_leave(self, worker: _Worker, code: int | None) -> None:
        """Is told that a worker has ended."""
        worker.gone.set()
        if worker in self._idle:
            self._idle.remove(worker)
        if self._busy.get(worker.ticket) is worker:
            del self._busy[worker.ticket]
            self._done.append((worker.ticket, trouble(f"the worker died (exit code {code})", lost=True)))
            self._news.set()

    async def cancel(self, tickets: Collection[str]) -> None:
        """Stops these jobs, their processes with them."""
        workers = [self._busy.pop(ticket) for ticket in tickets if ticket in self._busy]
        self._done = [done for done in self._done if done[0] not in tickets]
        await asyncio.gather(*(worker.stop() for worker in workers))

    async def close(self) -> None:
        """Stops all processes."""
        await self.cancel(list(self._busy))
        idle, self._idle = self._idle, []
        await asyncio.gather(*(worker.stop() for worker in idle))
