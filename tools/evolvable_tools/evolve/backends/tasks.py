"""Attempts as tasks of this process's event loop: for executors that wait for commands and networks."""

import asyncio
from collections.abc import Collection, Sequence

from evolvable_tools.evolve.attempt import Job, perform, trouble
from evolvable_tools.evolve.backends.backend import Done


class TaskBackend:
    """The default. An executor that computes without awaiting holds up all others; give those processes."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[Done]] = {}
        self._numbers = 0

    def submit(self, job: Job) -> str:
        """Starts a job and returns its ticket."""
        self._numbers += 1
        ticket = str(self._numbers)
        self._running[ticket] = asyncio.create_task(_done(ticket, job))
        return ticket

    async def poll(self, timeout: float | None = None) -> Sequence[Done]:
        """Waits until a job is done and returns all that are."""
        if not self._running:
            return []
        await asyncio.wait(self._running.values(), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        ended = [ticket for ticket, task in self._running.items() if task.done()]
        return [self._running.pop(ticket).result() for ticket in ended]

    async def cancel(self, tickets: Collection[str]) -> None:
        """Stops these jobs and waits until their workspaces are gone."""
        tasks = [self._running.pop(ticket) for ticket in tickets if ticket in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stops all jobs."""
        await self.cancel(list(self._running))


async def _done(ticket: str, job: Job) -> Done:
    try:
        return ticket, await perform(job)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
        return ticket, trouble("the executor cancelled itself", lost=True)
