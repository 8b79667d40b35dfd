"""What was shown to agents as fitting their task: noted behind their back, so that no search waits for a writer."""

import logging
import queue
import threading
from dataclasses import dataclass

from evolvable_store.errors import EvolvableError
from evolvable_store.sqlite import SqliteBackend

TOGETHER_SECONDS = 0.2
"""How long rows are collected, so that they are written in one commit."""

_END_SECONDS = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """One version that a search showed. at: ISO 8601 in UTC."""

    search: str
    resource: int
    version: int
    at: str
    session: str | None = None


class ShownLog:
    """Notes what was shown. Safe from any thread; what a killed process had not written yet is lost."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend
        self._waiting: queue.SimpleQueue[Shown] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self._closing = threading.Event()
        self._writing = threading.Lock()

    def note(self, rows: list[Shown]) -> None:
        """Has the rows written soon, each search and resource once. A library that cannot be written notes nothing."""
        if self._backend.read_only or not rows:
            return
        for row in rows:
            self._waiting.put(row)
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_on, name="shown", daemon=True)
                self._writer.start()

    def flush(self) -> None:
        """Writes what is waiting. Raises LibraryBusy and the like."""
        with self._writing:
            rows = []
            while not self._waiting.empty():
                rows.append(self._waiting.get())
            if rows:
                values = [(row.search, row.resource, row.version, row.at, row.session) for row in rows]
                with self._backend.writing() as db:
                    db.executemany("INSERT OR IGNORE INTO shown VALUES (?, ?, ?, ?, ?)", values)

    def close(self) -> None:
        """Writes what is waiting, as far as that is possible."""
        self._closing.set()
        if self._writer is not None:
            self._writer.join(_END_SECONDS)

    def _write_on(self) -> None:
        """Writes what comes until nothing is left; `note` starts another thread when something comes again."""
        while True:
            self._closing.wait(TOGETHER_SECONDS)
            try:
                self.flush()
            except EvolvableError as error:
                _log.debug("what was shown was not written: %s", error)
            with self._lock:
                if self._waiting.empty():
                    self._writer = None
                    return
