"""Hold tests to the marker `process`: a test without it fails when it starts a process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

STARTS = frozenset(
    {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.spawn"}
)
SENTENCE = (
    "This test starts a process ({event}) and is not marked: put @pytest.mark.process on it, or "
    "`pytestmark = pytest.mark.process` into a module whose tests mostly do. "
    "CONTRIBUTING.md says why."
)


class ProcessGuard:
    """Watch this process for others that it starts.

    An audit hook cannot be taken out again, so make one only.
    """

    def __init__(self) -> None:
        self._watching = False
        self._refused = ""
        sys.addaudithook(self._audit)

    @contextmanager
    def watching(self, marked: bool) -> Iterator[None]:
        """Refuse to start processes meanwhile, unless the test is marked."""
        self._watching, self._refused = not marked, ""
        try:
            yield
        finally:
            self._watching = False

    def check(self) -> None:
        """Fail the test that tried, also when its code caught the refusal or ran in a thread."""
        if self._refused:
            pytest.fail(self._refused, pytrace=False)

    def _audit(self, event: str, _: object) -> None:
        if self._watching and event in STARTS:
            self._refused = SENTENCE.format(event=event)
            pytest.fail(self._refused, pytrace=False)
