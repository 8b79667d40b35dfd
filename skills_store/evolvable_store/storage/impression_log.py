"""Writes what searches showed, and which sessions the server saw, a moment later and many in one commit."""

import logging
import queue
import threading

from evolvable_store.storage.observations import ClientSession, Impression
from evolvable_store.storage.protocol import Storage

COLLECT_SECONDS, LONGEST_SECONDS = 0.2, 30.0
"""How long rows are collected, so that they are written in one commit; and how long it takes at most until a library
that refused them is asked again."""

_END_SECONDS = 5.0

MAX_KNOWN = 10_000
"""Sessions that are remembered as noted, and rows that wait at most; the oldest of them give way."""

_log = logging.getLogger(__name__)


class ImpressionLog:
    """Notes what was shown. Safe from any thread; what a killed process had not written yet is lost.

    What the library refuses, such as a busy or a full one, waits and is written later.
    """

    def __init__(self, backend: Storage) -> None:
        self._backend = backend
        self._waiting: queue.SimpleQueue[Impression | ClientSession] = queue.SimpleQueue()
        self._rows: list[Impression] = []
        self._sessions: list[ClientSession] = []
        self._known: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self._closing = threading.Event()
        self._writing = threading.Lock()

    def note(self, rows: list[Impression]) -> None:
        """Has the rows written soon, each search and resource once. A library that cannot be written notes nothing."""
        if self._backend.read_only or not rows:
            return
        for row in rows:
            self._waiting.put(row)
        self._start()

    def note_session(self, session: str, connection: str, at: str) -> None:
        """Have it written soon that the server saw a session over this connection; each pair is written once."""
        if self._backend.read_only or (session, connection) in self._known:
            return
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known.add((session, connection))
        self._waiting.put(ClientSession(session, connection, at))
        self._start()

    def flush(self) -> None:
        """Write what is waiting. Raises LibraryBusy and the like; what was not written waits on."""
        with self._writing:
            self._collect()
            if self._sessions:
                # A hook is a new process each time: most of its sessions are stored, and that needs no write lock.
                self._sessions = self._backend.observations.unknown_sessions(self._sessions)
            if self._rows or self._sessions:
                self._backend.observations.add_impressions(self._rows, self._sessions)
            self._rows, self._sessions = [], []

    def _collect(self) -> None:
        while not self._waiting.empty():
            row = self._waiting.get()
            if isinstance(row, Impression):
                self._rows.append(row)
            else:
                self._sessions.append(row)
        del self._rows[:-MAX_KNOWN], self._sessions[:-MAX_KNOWN]

    def _start(self) -> None:
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_on, name="shown", daemon=True)
                self._writer.start()

    def close(self) -> None:
        """Write what is waiting, as far as that is possible."""
        self._closing.set()
        if self._writer is not None:
            self._writer.join(_END_SECONDS)

    def _write_on(self) -> None:
        """Write what comes until nothing is left; `note` starts another thread when something comes again."""
        pause = COLLECT_SECONDS
        while True:
            last = self._closing.wait(pause)
            try:
                self.flush()
            except Exception as error:  # whatever it is, what comes later has to be written
                _log.debug("what was shown was not written: %s", error)
                refused, pause = True, min(2 * pause, LONGEST_SECONDS)
            else:
                refused, pause = False, COLLECT_SECONDS
            with self._lock:
                if last or (not refused and self._waiting.empty()):
                    self._writer = None
                    return
