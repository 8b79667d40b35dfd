"""Turns of the processes that run the suite together: a test marked `alone` runs while no other
test does.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock


class Turns:
    """The turns of one process among `workers`, called gw0, gw1 and so on, by locks in a folder
    that they share.
    """

    def __init__(self, folder: Path, worker: str, workers: int) -> None:
        self.number, self.workers = int(worker.removeprefix("gw")), workers
        self._door = FileLock(folder / "door")
        self._rooms = {f"gw{number}": FileLock(folder / f"gw{number}") for number in range(workers)}
        self._own = self._rooms[worker]

    @contextmanager
    def taken(self, alone: bool) -> Iterator[None]:
        """Wait for a test's turn and keep it.

        Who waits to be alone holds the door, so that nobody else begins.
        """
        with ExitStack() as held:
            with self._door:
                for room in self._rooms.values() if alone else [self._own]:
                    held.enter_context(room)
            yield
