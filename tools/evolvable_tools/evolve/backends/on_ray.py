"""Attempts on the machines of a Ray cluster. Needs the extra `ray`."""

import asyncio
import contextlib
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.attempt import Attempt, Job, perform, trouble
from evolvable_tools.evolve.backends.backend import Done
from evolvable_tools.evolve.executor import Executor
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.task import Task

SLOT = "agent_slot"
"""The custom resource that one attempt holds: a node gives as many as it can run agents at once."""

_WAKE = 0.2  # seconds between two looks at whether an attempt was cancelled
_GRACE = 5.0  # seconds for a cancelled attempt to end what it has started


class NoRay(EvolvableError):
    """Ray is not installed."""


class RayBackend:
    """Runs each job as a stateless Ray task that Ray never runs twice: a repeat is decided, and billed, by the ledger.

    What many jobs share (executor, program, files) is put into the object store once, as bytes and never as a path.
    Workspaces are made in the temporary folder of the node. Results are handed back; no worker writes anything down.
    """

    def __init__(
        self, address: str | None = None, *, slots: int = 16, options: Mapping[str, Any] | None = None
    ) -> None:
        """Connects to the cluster at `address`; None joins this process's, or starts one here with so many `slots`.

        options: further arguments of `ray.init`. Raises NoRay, and what `ray.init` raises.
        """
        try:
            import ray
        except ImportError:
            raise NoRay("Ray is not installed.", "pip install 'evolvable[ray]'") from None
        self._ray = ray
        self._started = not ray.is_initialized()
        if self._started:
            here = {} if address else {"resources": {SLOT: slots}, "include_dashboard": False}
            ray.init(address=address, log_to_driver=False, **here, **(options or {}))
        self._attempt = ray.remote(max_retries=0, num_cpus=0, resources={SLOT: 1})(_attempt)
        self._shared: dict[str, Any] = {}
        self._running: dict[str, Any] = {}
        self._waiting: dict[str, asyncio.Future[Attempt]] = {}
        self._numbers = 0

    def submit(self, job: Job) -> str:
        """Starts a job and returns its ticket."""
        self._numbers += 1
        ticket = str(self._numbers)
        files = "\n".join(f"{path} {hashlib.sha256(data).hexdigest()}" for path, data in sorted(job.files.items()))
        reference = self._attempt.remote(
            self._put(f"judging {id(job.executor)} {id(job.scoring)}", (job.executor, job.scoring)),
            self._put(f"program {job.program.digest}", job.program),
            self._put(f"files {files}", dict(job.files)),
            job.task,
            job.repeat,
            job.environment,
            job.patience,
        )
        self._running[ticket] = reference
        self._waiting[ticket] = asyncio.wrap_future(reference.future())
        return ticket

    def _put(self, name: str, value: object) -> Any:
        """Returns a reference to a value in the object store; each is put there once."""
        if name not in self._shared:
            self._shared[name] = self._ray.put(value), value  # kept, so that no other gets its id
        return self._shared[name][0]

    async def poll(self, timeout: float | None = None) -> Sequence[Done]:
        """Waits until a job is done and returns all that are."""
        if not self._waiting:
            return []
        await asyncio.wait(self._waiting.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        ended = [ticket for ticket, future in self._waiting.items() if future.done()]
        return [(ticket, self._result(ticket)) for ticket in ended]

    def _result(self, ticket: str) -> Attempt:
        del self._running[ticket]
        try:
            return self._waiting.pop(ticket).result()
        except Exception as error:  # whatever Ray says, it says nothing about the program
            said = str(error).strip().splitlines() or [""]
            return trouble(f"the worker died ({type(error).__name__}: {said[0]})", lost=True)

    async def cancel(self, tickets: Collection[str]) -> None:
        """Stops these jobs: they are asked to end what they have started, then they are killed."""
        known = [ticket for ticket in tickets if ticket in self._running]
        for force in (False, True):
            futures = [self._waiting[ticket] for ticket in known if not self._waiting[ticket].done()]
            for ticket in known:
                if not self._waiting[ticket].done():
                    with contextlib.suppress(Exception):  # it may have ended this moment
                        self._ray.cancel(self._running[ticket], force=force)
            if futures:
                await asyncio.wait(futures, timeout=_GRACE)
        for ticket in known:
            del self._running[ticket]
            future = self._waiting.pop(ticket)
            if future.done() and not future.cancelled():
                future.exception()  # looked at, so that nobody is told of it

    async def close(self) -> None:
        """Stops all jobs, and the cluster if it was started here."""
        await self.cancel(list(self._running))
        self._shared.clear()
        if self._started:
            self._ray.shutdown()


def _attempt(
    judging: tuple[Executor, Any],
    program: Program,
    files: Mapping[str, bytes],
    task: Task,
    repeat: int,
    environment: Mapping[str, str] | None,
    patience: float,
) -> Attempt:
    """Runs on a node: one attempt, in a workspace there."""
    executor, scoring = judging
    job = Job(executor, scoring, task, program, repeat, files, environment=environment, patience=patience)
    return asyncio.run(_interruptible(job))


async def _interruptible(job: Job) -> Attempt:
    """Performs a job and wakes up now and then: Ray interrupts a task in a way that only running code notices."""

    async def wake() -> None:
        while True:
            await asyncio.sleep(_WAKE)

    waking = asyncio.create_task(wake())
    try:
        return await perform(job)
    finally:
        waking.cancel()
