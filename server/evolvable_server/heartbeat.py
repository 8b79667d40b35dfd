"""Give the sign of life of the process that owns a library's folders, by a thread of its own.

During an import of thousands of skills, or a wait for a lock, no other process must take the
folders over. Where a loop hangs for good one must: the thread gives the ownership back until that
loop goes on.
"""

import threading
import time
from collections.abc import Callable

from evolvable_store.workingcopy import FolderOwner

BEAT_SECONDS = 1.0
"""How often the owner gives a sign of life, and the others ask whether there is an owner."""

# Longer than any step of a loop, such as one large transaction.
HUNG_SECONDS = 300.0
"""How long a loop that is at work may make no step before another process may own the folders."""


class Heartbeat:
    """A thread that claims the ownership every BEAT_SECONDS, while the loops of the process make
    steps.

    Only this thread claims and releases. It reads and writes the lock files alone, so no database
    keeps it waiting.
    """

    def __init__(
        self,
        owner: FolderOwner,
        claim: Callable[[], bool],
        changed: Callable[[bool], None],
        failed: Callable[[Exception | None], None],
    ) -> None:
        """claim: claims or releases the ownership, and returns whether this process has it.

        changed: called with that after each claim. failed: called with the error of a claim, or
        None. Both are called on this thread.
        """
        self._owner, self._claim, self._changed, self._failed = owner, claim, changed, failed
        # Several threads write it without a lock: setting and removing one key is atomic in
        # CPython.
        self._steps: dict[str, float] = {}
        self._ended, self._woken = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._beat, name="evolvable-heartbeat", daemon=True)

    def step(self, loop: str) -> None:
        """Note that a loop made a step, or begins to work."""
        self._steps[loop] = time.monotonic()

    def rest(self, loop: str) -> None:
        """Note that a loop waits for work, however long that takes."""
        self._steps.pop(loop, None)

    def wake(self) -> None:
        """Claim at once: the owner may have ended."""
        self._woken.set()

    def stop(self) -> None:
        """Give the ownership back and end; the thread does so at once."""
        self._ended.set()
        self._woken.set()

    def _beat(self) -> None:
        while not self._ended.is_set():
            error = None
            try:
                if self._is_hung():
                    self._owner.release()
                    self._changed(False)
                else:
                    self._changed(self._claim())
            except Exception as raised:  # such as a disk that is read-only for a while
                error = raised
            self._failed(error)
            self._woken.wait(BEAT_SECONDS)
            self._woken.clear()
        self._owner.release()

    def _is_hung(self) -> bool:
        now = time.monotonic()
        # A copy, because other threads change it meanwhile.
        return any(now - at > HUNG_SECONDS for at in list(self._steps.values()))
