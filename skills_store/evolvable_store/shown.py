"""What was shown to agents as fitting their task: noted behind their back, so that no search waits for a writer."""

import logging
import queue
import threading
from dataclasses import astuple, dataclass

from evolvable_store.errors import EvolvableError
from evolvable_store.sqlite import SqliteBackend

TOGETHER_SECONDS = 0.2
"""How long rows are collected, so that they are written in one commit."""

_END_SECONDS = 5.0

MAX_KNOWN = 10_000
"""Sessions that are remembered as written."""

_SHOWN = "search, resource, version, at, session"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """One version that a search showed. at: ISO 8601 in UTC."""

    search: str
    resource: int
    version: int
    at: str
    session: str | None = None


@dataclass(frozen=True, slots=True)
class ClientSession:
    """A client's session that the server saw. connection: as of a use."""

    session: str
    connection: str
    at: str


class ShownLog:
    """Notes what was shown. Safe from any thread; what a killed process had not written yet is lost."""

    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend
        self._waiting: queue.SimpleQueue[Shown | ClientSession] = queue.SimpleQueue()
        self._known: set[tuple[str, str]] = set()
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
        """Writes what is waiting. Raises LibraryBusy and the like."""
        with self._writing:
            rows: list[Shown] = []
            sessions: list[ClientSession] = []
            while not self._waiting.empty():
                row = self._waiting.get()
                if isinstance(row, Shown):
                    rows.append(row)
                else:
                    sessions.append(row)
            sessions = self._unknown(sessions)
            if rows or sessions:
                values = [(row.search, row.resource, row.version, row.at, row.session) for row in rows]
                with self._backend.writing() as db:
                    db.executemany("INSERT OR IGNORE INTO client_session VALUES (?, ?, ?)", map(astuple, sessions))
                    db.executemany(f"INSERT OR IGNORE INTO shown ({_SHOWN}) VALUES (?, ?, ?, ?, ?)", values)

    def _unknown(self, sessions: list["ClientSession"]) -> list["ClientSession"]:
        # A hook's process is new each time, so most of these are written already, and no writer need wait for it.
        query = "SELECT 1 FROM client_session WHERE session = ? AND connection = ?"
        with self._backend.reading() as db:
            return [one for one in sessions if not db.execute(query, (one.session, one.connection)).fetchone()]

    def _start(self) -> None:
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_on, name="shown", daemon=True)
                self._writer.start()

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
