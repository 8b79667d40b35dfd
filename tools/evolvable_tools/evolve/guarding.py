"""Watching over what a run measures with while it is open: the files that it runs, and the library's task set."""

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Ref
from evolvable_tools.library import Caller, Library

EVERY = 2.0
"""Seconds for which the library's task set is taken to be as it was just found."""


class Guard:
    """Says why nothing that is measured now is worth anything, or ''.

    files: those that the executor's command may run, as they are to be; place: where it has those whose path is not
    absolute. ref: the version of the environment. It may be asked as often as something ends.
    """

    def __init__(
        self,
        library: Library,
        caller: Caller,
        ref: Ref,
        files: Mapping[str, bytes],
        place: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._ref, self._clock = library.store, ref, clock
        # Its versions can be read for ever, also when somebody takes it out of the library's present meanwhile.
        self._head = library.store.head(ref.at(None), caller.scopes)
        self._files = {place / path: hashlib.sha256(data).digest() for path, data in files.items()}
        self._seen: dict[Path, tuple[int, ...]] = {}
        self._first, self._looked = self._stored(), clock()

    def __call__(self) -> str:
        """Returns what was changed, in words, or ''."""
        for path, sha256 in self._files.items():
            if self._changed(path, sha256):
                return (
                    f"{path} was changed, which this run measures with. What the run has of the task set is written"
                    " anew when it is continued."
                )
        if self._clock() - self._looked >= EVERY:
            try:
                now = self._stored()
            except (EvolvableError, OSError) as error:
                return f"{self._ref} cannot be read any more: {error}"
            self._looked = self._clock()
            if now != self._first:
                return f"the tasks, splits or scorers of {self._ref} were changed in the library."
        return ""

    def _changed(self, path: Path, sha256: bytes) -> bool:
        try:
            stat = path.stat()
            seen = stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino
            if self._seen.get(path) == seen:
                return False
            if hashlib.sha256(path.read_bytes()).digest() != sha256:
                return True
        except OSError:
            return True
        self._seen[path] = seen
        return False

    def _stored(self) -> dict[str, bytes]:
        files = self._store.files(self._head, self._ref.version)
        return {path: hashlib.sha256(file.data).digest() for path, file in files.items()}
