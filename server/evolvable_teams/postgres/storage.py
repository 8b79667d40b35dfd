"""The storage over PostgreSQL: one project of a database, which several machines share."""

import contextlib
import functools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import psycopg

from evolvable_store import ADDRESS_FILE, CHANGE_MARK, Registered, check_home, no_homes
from evolvable_store.errors import EvolvableError, LibraryError, LibraryReadOnly, NoLibrary
from evolvable_store.storage import (
    LATEST,
    HomePlaces,
    SqlStorage,
    WaitingPlaces,
    check_version,
    read_home,
)
from evolvable_store.storage.connection import Connection, retry
from evolvable_teams.postgres.administration import PostgresMaintenance, PostgresPurges
from evolvable_teams.postgres.connection import (
    PostgresConnection,
    as_library_error,
    library_error,
    prepare,
    translate_errors,
)
from evolvable_teams.postgres.shared_places import SharedPlaces
from evolvable_teams.postgres.shared_vectors import PostgresVectors, open_shared_vectors

MAX_IDLE = 2
"""Connections that are kept open while nobody uses them: each is a process of the server."""

POLL_SECONDS = 1.0
"""How often the number of commits is read when no announcement comes."""

SETTLE_SECONDS = 10.0
"""How long to ask for the outcome of a commit during which the connection broke."""

_log = logging.getLogger(__name__)

_LOOK = b"""SELECT visible_project(), writable_project(), pg_is_in_recovery(),
    (SELECT value FROM counter WHERE name = 'channel')"""
_CHANNEL = b"INSERT INTO counter (name, value) VALUES ('channel', $1) ON CONFLICT DO NOTHING"
"""Stores the channel's name, a random number that only members can read, so that others cannot
listen.
"""

_ROW_ERRORS = (psycopg.Error, ValueError, TypeError, OverflowError)


class PostgresStorage(SqlStorage):
    """A library whose address stands in the folder `home`.

    Safe to share between threads, and across a fork.
    """

    shared = True
    journal = "postgresql"

    notifies: str
    """PostgreSQL's channel on which commits are announced, '' where no writer made one yet."""

    def __init__(
        self, home: Path, *, create: bool = False, registered: Registered = no_homes
    ) -> None:
        """Open the library; with `create`, make its tables and its project when they are missing.

        registered: as `check_home` takes it. Raises UntrustedHome, NoLibrary, LibraryTooNew,
        LibraryError.
        """
        check_home(home, registered, create=create)
        self.home = read_home(home)
        self.places = HomePlaces(home)
        super().__init__(home / ADDRESS_FILE, self.places)
        self._shared_places = SharedPlaces(self)
        self.where = self.home.address.name
        self.maintenance = PostgresMaintenance(self)
        self.purges = PostgresPurges(self)
        self._idle: list[PostgresConnection] = []
        self.notifies = ""
        # Guards writing: the threads of this process take turns here and not at the server.
        self._write_lock = threading.RLock()
        self._outdated = False
        with translate_errors(self.where):
            opened = PostgresConnection(self.home)
            try:
                prepare(opened, self.home, create=create)
                self._read_only = self._find_project(opened)
            except BaseException:
                opened.close()
                raise
        self._idle.append(opened)
        self.follow_forks()

    def _find_project(self, opened: PostgresConnection) -> bool:
        """Return whether the project can only be read; note the channel of its commits.

        Raises NoLibrary when this role does not see it.
        """
        try:
            row = opened.query(_LOOK).fetchone()
        except (psycopg.errors.UndefinedFunction, psycopg.errors.InsufficientPrivilege):
            row = None
        if row is None or row[0] is None:
            raise NoLibrary(
                f"There is no library at {self.where}, or this role is no member of it.",
                "`evolvable init` makes one; the owner adds roles: SELECT "
                "evolvable.add_member(project, role, true).",
            )
        _, writable, is_standby, channel = row
        only_reads = writable is None or bool(is_standby)
        if channel is None and not only_reads:
            opened.query(_CHANNEL, [secrets.randbits(62)])
            # Read again: another process may have stored its number first.
            channel = opened.query(_LOOK).fetchone()[3]
        self.notifies = opened.notifies = f"evolvable_{channel:x}" if channel is not None else ""
        return only_reads

    @property
    def read_only(self) -> bool:
        """Whether the library cannot be written.

        The role may only read, the server is a standby, or a newer program migrated the tables.
        """
        return self._read_only or self._outdated

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection for a few statements, each of which sees one state of the library."""
        connection = self._take_connection()
        try:
            yield cast(Connection, connection)
        except _ROW_ERRORS as error:
            raise as_library_error(error, self.where) from error
        finally:
            self._give_back(connection)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Lend a connection whose statements all see the library as it is now."""
        with self.reading() as db:
            connection = cast(PostgresConnection, db)
            connection.begin(write=False)
            try:
                yield db
            finally:
                connection.rollback()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend a connection inside a transaction that holds the project's write lock.

        Raises LibraryReadOnly, LibraryBusy, LibraryTooNew.
        """
        if self._read_only:
            raise LibraryReadOnly(
                f"{self.where} cannot be written with this role.", "Reading goes on."
            )
        with self._write_lock:
            connection = self._take_connection()
            try:
                connection.begin(write=True)
                yield cast(Connection, connection)
                transaction = connection.transaction()
                self._refuse_newer(connection)
                self._commit(connection, transaction)
            except _ROW_ERRORS as error:
                with contextlib.suppress(psycopg.Error):
                    # LibraryTooNew explains the failure where a newer program changed the tables.
                    self._refuse_newer(connection)
                raise as_library_error(error, self.where) from error
            finally:
                connection.rollback()
                self._give_back(connection)

    def _refuse_newer(self, connection: PostgresConnection) -> None:
        """Raise LibraryTooNew when a newer program has migrated the tables of the transaction."""
        version = connection.schema_version()
        self._outdated = version > LATEST
        check_version(version, self.where)

    def _take_connection(self) -> PostgresConnection:
        """Return an idle connection that is still alive, else a new one."""
        while self._idle:
            try:
                # Without a lock: pop() of a list is atomic. Another thread may be faster.
                connection = self._idle.pop()
            except IndexError:
                break
            if connection.is_alive():
                return connection
            connection.close()
        connection = PostgresConnection(self.home)
        connection.notifies = self.notifies
        return connection

    def _give_back(self, connection: PostgresConnection) -> None:
        if len(self._idle) < MAX_IDLE and connection.is_usable:
            self._idle.append(connection)
        else:
            connection.close()

    def _commit(self, connection: PostgresConnection, transaction: str) -> None:
        """Commit; where the connection breaks meanwhile, ask the server whether it was committed.

        Raises LibraryUnreachable where it was not, LibraryError where nobody knows.
        """
        try:
            connection.commit()
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if not connection.raw.broken and not connection.raw.closed:
                raise
            if not self._was_committed(transaction):
                raise library_error(error, self.where) from error

    def _was_committed(self, transaction: str) -> bool:
        """Return whether a transaction was committed. Raises LibraryError while that is unknown."""
        for _ in retry(SETTLE_SECONDS, longest=0.2):
            try:
                connection = PostgresConnection(self.home)
            except EvolvableError:
                continue
            with contextlib.closing(connection), contextlib.suppress(psycopg.OperationalError):
                row = connection.raw.execute(
                    "SELECT pg_xact_status($1::text::xid8)", [transaction]
                ).fetchone()
                if row and row[0] != "in progress":
                    return bool(row[0] == "committed")
        raise LibraryError(
            f"The connection to {self.where} broke while a change was stored, so it may or may "
            "not have been.",
            "Look at the history before you make the change again.",
        )

    def before_fork(self) -> None:
        """Wait for the write in flight and close idle connections: none must cross a fork."""
        # Held over the fork: otherwise the child could inherit a lock of a thread that it lacks.
        self._write_lock.acquire()
        self.places.before_fork()
        self.close()

    def after_fork(self) -> None:
        """Let writes go on; parent and child open connections of their own."""
        self.places.after_fork()
        self._write_lock.release()

    def close(self) -> None:
        """Close every idle connection."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self.places.close()

    @contextlib.contextmanager
    def watching(self) -> Iterator[Callable[[], int]]:
        """Lend a function whose result changes when anybody has committed."""
        feed = _CommitFeed(self)
        feed.start()
        try:
            with self.places.watching() as changes:
                yield lambda: feed.commits + changes()
        finally:
            feed.stop()

    def _open_places(self, db: Connection, until: contextlib.ExitStack) -> Callable[[], Connection]:
        return functools.cache(lambda: until.enter_context(self.places.writing()))

    def waiting_places(self) -> WaitingPlaces:
        """Return the rows of this home in the database, or else the places that a move carried."""
        return self._shared_places.read() or super().waiting_places()

    def settle_places(self, found: WaitingPlaces) -> None:
        """Delete the rows that the person was asked about."""
        super().settle_places(found)
        self._shared_places.delete(found)

    def shared_vectors(self) -> PostgresVectors | None:
        """Return the vectors that all servers share, where the database has pgvector."""
        return open_shared_vectors(self)

    def count_commits(self, connection: PostgresConnection) -> int:
        """Return how many transactions have written in the project."""
        return int(connection.query(b"SELECT commits()").fetchone()[0] or 0)


class _CommitFeed(threading.Thread):
    """Waits for announcements of commits, and counts the commits every second besides.

    It marks each new commit in a file of the home, which wakes up a server that waits for events of
    files. `commits` is written by this thread alone.
    """

    def __init__(self, storage: PostgresStorage) -> None:
        super().__init__(name="evolvable-commits", daemon=True)
        self._storage, self._ended = storage, threading.Event()
        self.commits = 0

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join(timeout=2 * POLL_SECONDS)

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow_commits()
            except (psycopg.Error, EvolvableError) as error:
                _log.debug("commits cannot be followed: %s", error)
                self._ended.wait(POLL_SECONDS)

    def _follow_commits(self) -> None:
        with contextlib.closing(PostgresConnection(self._storage.home)) as connection:
            if self._storage.notifies:
                connection.raw.execute(f"LISTEN {self._storage.notifies}")
            while not self._ended.is_set():
                # Counted after a wait without an announcement too: one may have been missed.
                count = self._storage.count_commits(connection)
                if count != self.commits:
                    self.commits = count
                    self._write_mark()
                for _ in connection.raw.notifies(timeout=POLL_SECONDS, stop_after=1):
                    pass

    def _write_mark(self) -> None:
        with (
            contextlib.suppress(OSError),
            open(self._storage.path.with_name(CHANGE_MARK), "w") as mark,
        ):
            mark.write(f"{self.commits} {time.time():.3f}\n")
