"""What every backend is: it is given jobs, and hands back what came of them."""

from collections.abc import Collection, Sequence
from typing import Protocol

from evolvable_tools.evolve.attempt import Attempt, Job

Done = tuple[str, Attempt]
"""The ticket of a job and what came of it."""


class Backend(Protocol):
    """Runs jobs beside each other. It runs each at most once: whether one is tried again is decided by whoever gave
    it. Used from one event loop.
    """

    def submit(self, job: Job) -> str:
        """Starts a job and returns its ticket. How many run at once is up to the caller."""
        ...

    async def poll(self, timeout: float | None = None) -> Sequence[Done]:
        """Waits until a job is done, at most `timeout` seconds, and returns all that are; each is returned once.

        A job whose worker died has an infrastructure error. Returns nothing when there are no jobs.
        """
        ...

    async def cancel(self, tickets: Collection[str]) -> None:
        """Stops these jobs; `poll` returns nothing of them any more. Unknown tickets are passed over."""
        ...

    async def close(self) -> None:
        """Stops all jobs and gives back what was taken. Nothing can be submitted any more."""
        ...
