"""Write impressions and sessions that the server saw a moment later, many in one commit.

Rows that a library refuses until the process ends are stored in a file beside it, and the next
process writes them.
"""

import json
import logging
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from evolvable_store.regular_files import regular_file, write_private
from evolvable_store.storage.observations import ClientSession, Impression
from evolvable_store.storage.protocol import Storage

# A commit waits for the disk; a fifth of a second joins those of one turn. The pause doubles up to
# half a minute.
COLLECT_SECONDS, LONGEST_SECONDS = 0.2, 30.0
"""How long rows are collected for one commit, and the longest pause before a library that refused
them is tried again.
"""

# A client that closes waits for its server, and kills it if it takes long.
_END_SECONDS = 5.0

# Bounds the memory of a server that a library refuses for days.
MAX_KNOWN = 10_000
"""Sessions that are remembered as noted, and rows that wait; the oldest rows give way."""

_MAX_BYTES = 16_000_000
"""Bytes of a file with rows that are read."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Rows:
    """Impressions and sessions that wait to be written."""

    impressions: list[Impression]
    sessions: list[ClientSession]

    def __bool__(self) -> bool:
        return bool(self.impressions or self.sessions)

    def copy(self) -> "_Rows":
        return _Rows(list(self.impressions), list(self.sessions))

    def add(self, other: "_Rows") -> None:
        self.impressions += other.impressions
        self.sessions += other.sessions
        del self.impressions[:-MAX_KNOWN], self.sessions[:-MAX_KNOWN]

    def remove(self, other: "_Rows") -> None:
        impressions, sessions = set(other.impressions), set(other.sessions)
        self.impressions = [row for row in self.impressions if row not in impressions]
        self.sessions = [row for row in self.sessions if row not in sessions]


class ImpressionLog:
    """A log of impressions. Safe from any thread; a killed process loses rows that it had not
    written yet.

    Rows that a busy or full library refuses wait and are written later, by this process, or from a
    file by the next one. All rows may be written twice, and count once.
    """

    def __init__(self, backend: Storage, place: Path | None = None) -> None:
        """place: the folder of the files; without one, rows unwritten at the end are lost."""
        self._backend, self._place = backend, place
        self._waiting = _Rows([], [])
        self._kept_files: list[Path] = []
        self._noted_sessions: set[tuple[str, str]] = set()
        # Guards `_waiting` and `_writer`; held for moments, never during a write.
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None
        self._closing = threading.Event()
        # One flush at a time: two would write the same rows, and each remove them.
        self._writing = threading.Lock()

    def note(self, rows: list[Impression]) -> None:
        """Queue rows to be written soon, each search and resource once.

        A library that cannot be written drops them.
        """
        if self._backend.read_only or not rows:
            return
        self._add(_Rows(rows, []))

    def note_session(self, session: str, connection: str, at: str) -> None:
        """Queue a note that the server saw a session over this connection.

        Each pair is written once.
        """
        if self._backend.read_only or (session, connection) in self._noted_sessions:
            return
        if len(self._noted_sessions) >= MAX_KNOWN:
            self._noted_sessions.clear()
        self._noted_sessions.add((session, connection))
        self._add(_Rows([], [ClientSession(session, connection, at)]))

    def flush(self) -> None:
        """Write waiting rows, of this process and in files.

        Raises LibraryBusy and the like; rows that were not written wait on.
        """
        with self._writing:
            with self._lock:
                # A copy, and removed only after the commit: rows that come meanwhile, or of a
                # failed write, stay.
                mine = self._waiting.copy()
            every, left = mine.copy(), {} if self._backend.read_only else dict(self._left_rows())
            for rows in left.values():
                every.add(rows)
            if every.sessions:
                # A hook is a new process each time: most of its sessions are stored, and that needs
                # no write lock.
                every.sessions = self._backend.observations.unknown_sessions(every.sessions)
            if every:
                self._backend.observations.add_impressions(every.impressions, every.sessions)
            with self._lock:
                self._waiting.remove(mine)
            # After the commit: a crash before it leaves the files, and writing rows twice counts
            # once.
            _remove(left)

    def _left_rows(self) -> Iterator[tuple[Path, _Rows]]:
        """Yield the files that other processes left, each with its rows."""
        for file in self._place.glob("*.json") if self._place else ():
            with suppress(OSError):
                yield file, _read_rows(file)

    def _add(self, rows: _Rows) -> None:
        with self._lock:
            self._waiting.add(rows)
        if self._closing.is_set():
            self._keep()  # the process may end before they are written
        self._start()

    def _keep(self) -> None:
        """Write waiting rows to a file, so that the end of the process loses nothing."""
        with self._lock:
            rows = self._waiting.copy()
        if self._place is None or not rows:
            return
        text = json.dumps(
            [[astuple(row) for row in rows.impressions], [astuple(row) for row in rows.sessions]]
        )
        try:
            self._place.mkdir(mode=0o700, exist_ok=True)
            file = self._place / f"{secrets.token_hex(8)}.json"
            # A flush to the disk could take longer than the client waits.
            write_private(file, text, durable=False)
            self._kept_files.append(file)
        except OSError as error:
            _log.warning("The last impressions of searches are lost: %s", error)

    def _start(self) -> None:
        with self._lock:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_on, name="shown", daemon=True)
                self._writer.start()

    def close(self) -> None:
        """Write waiting rows; those that the library refuses now stay in a file for the next
        process.
        """
        self._closing.set()
        # First to a file, then to the library: the process may be killed while the library is busy.
        self._keep()
        writer = self._writer
        if writer is not None:
            writer.join(_END_SECONDS)
        if not self._waiting:
            _remove(self._kept_files)

    def _write_on(self) -> None:
        """Write new rows until none are left; `note` starts another thread for later ones."""
        pause = COLLECT_SECONDS
        while True:
            # Returns at once when the log is closed.
            last = self._closing.wait(pause)
            try:
                self.flush()
            except Exception as error:  # of any kind: the thread has to write later rows
                _log.debug("impressions were not written: %s", error)
                refused, pause = True, min(2 * pause, LONGEST_SECONDS)
            else:
                refused, pause = False, COLLECT_SECONDS
            with self._lock:
                # Under the lock, so that `_add` either sees no writer or its rows are seen here.
                if last or (not refused and not self._waiting):
                    self._writer = None
                    return


def _read_rows(file: Path) -> _Rows:
    """Return the rows of a file that a process left; none where it is damaged. Raise OSError."""
    with open(file, "rb", opener=regular_file) as stream:
        data = stream.read(_MAX_BYTES)
    try:
        impressions, sessions = json.loads(data)
        rows = _Rows(
            [Impression(*row) for row in impressions], [ClientSession(*row) for row in sessions]
        )
        return _Rows(list(filter(_fits, rows.impressions)), list(filter(_fits, rows.sessions)))
    except (ValueError, TypeError, RecursionError) as error:
        _log.debug("%s was not read: %s", file, error)
        return _Rows([], [])


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink()


def _fits(row: Impression | ClientSession) -> bool:
    """Return whether every value is of the type that the library stores."""
    if isinstance(row, ClientSession):
        return _are_texts(row.session, row.connection, row.at)
    numbers: Iterable[object] = (row.resource, row.version)
    # The file lies in the home, but another program may have written it.
    whole = all(type(number) is int and 0 <= number < 1 << 62 for number in numbers)
    return whole and _are_texts(row.search, row.at, row.session or "")


def _are_texts(*values: object) -> bool:
    return all(
        isinstance(value, str) and value.isprintable() and len(value) < 1000 for value in values
    )
