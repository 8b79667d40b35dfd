"""One SQLite file that many processes read and write: connections, transactions, repositories.

A repository has the methods for some tables. It uses connections that a library lends, and raises
our errors.
"""

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from evolvable_store.errors import (
    DamagedFile,
    EvolvableError,
    LibraryCorrupt,
    LibraryError,
    LibraryReadOnly,
    LibraryUnreachable,
)
from evolvable_store.operation import Operation
from evolvable_store.storage import connection as driver
from evolvable_store.storage import migrations
from evolvable_store.storage.connection import Access, Connection, read_script

_T = TypeVar("_T")


TrustedFolders = Callable[[], "frozenset[str] | None"]
"""Returns the folders that a person trusts, as absolute paths; None: every decision counts."""


FollowedFolders = Callable[[], frozenset[str]]
"""Returns the folders where the scan alone decides on pulled content."""


def every_folder() -> None:
    """Return None, which means that every decision on a folder counts."""


class Lender(Protocol):
    """A lender of connections to a database."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Lend a connection for a few statements."""

    def writing(self) -> AbstractContextManager[Connection]:
        """Lend the writing connection inside a transaction that holds the only write lock."""


class Database(Lender, Protocol):
    """The part of a library that its repositories use."""

    path: Path
    """The library file, or the file with the address of the library."""

    trusted_folders: TrustedFolders
    """Returns the folders that the person trusts now."""

    def operation(self, identity: int) -> Operation | None:
        """Return the operation with this id, or None."""


class SqliteRepository:
    """Some tables of one library.

    SQLite's errors, and values that our rows never have, raise our errors.
    """

    def __init__(self, backend: Database, lender: Lender | None = None) -> None:
        """lender: of the connections to the tables, by default the library."""
        self._backend, self._lender = backend, lender or backend

    def _all(self, make: Callable[..., _T], query: str, *values: Any) -> list[_T]:
        """Return `make(*columns)` of each row. An error of `make` counts as damage of the file."""
        with self._lender.reading() as db:
            return [make(*row) for row in db.execute(query, values).fetchall()]

    def _rows(self, query: str, *values: Any) -> list[Any]:
        """Return all rows."""
        with self._lender.reading() as db:
            return db.execute(query, values).fetchall()

    def _one(self, query: str, *values: Any) -> Any:
        """Return the first row, None where there is none."""
        with self._lender.reading() as db:
            return db.execute(query, values).fetchone()

    def _check(self, script: str, **values: str) -> Iterator[tuple[str, str]]:
        """Yield (place, fault) for each row that a query of a script finds.

        Above each query stands a comment "place: fault" with placeholders for its columns.
        """
        for which, what, query in re.findall(
            r"^-- (.+?): (.+)\n((?:(?!--).*\n)+)", read_script(script), re.MULTILINE
        ):
            with self._lender.reading() as db:
                rows = db.execute(query, values).fetchall()
            yield from ((which.format(*row), what.format(*row)) for row in rows)

    def _do(self, statement: str, *values: Any) -> int:
        """Run one statement as a transaction; return how many rows it changed."""
        with self._lender.writing() as db:
            return int(db.execute(statement, values).rowcount)


class SqliteFile:
    """A file of SQLite that exists.

    Safe to share between threads, and across a fork while no thread reads.
    """

    path: Path

    _migrates = False
    """Whether the file has the steps of the library's schema."""

    def _lend_from(self, access: Access) -> None:
        """Let connections be made. access: how the file is opened, by readers."""
        self._access = access
        self._idle: list[Connection] = []
        self._writer: Connection | None = None
        # Guards the one writing connection. Reentrant: `before_fork` holds it and calls `close`,
        # which takes it too.
        self._write_lock = threading.RLock()
        self._outdated = False

    @property
    def read_only(self) -> bool:
        """Whether the file cannot be written, or a newer program has migrated it."""
        return self._access in ("read", "immutable") or self._outdated

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Lend a connection for a few statements; SQLite's errors raise ours."""
        try:
            # pop() of a list is atomic, so that idle connections need no lock.
            connection = self._idle.pop()
        except IndexError:
            connection = driver.connect(
                self.path, durable=True, access=self._access, cache_kb=driver.READER_CACHE_KB
            )
        try:
            yield connection
        except driver.UNUSABLE as error:
            raise driver.as_library_error(error, self.path) from error
        finally:
            # Further ones are closed: each keeps pages in memory and two files open.
            if len(self._idle) < driver.MAX_IDLE:
                self._idle.append(connection)
            else:
                connection.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Lend the writing connection inside BEGIN IMMEDIATE ... COMMIT.

        Raises LibraryReadOnly, LibraryBusy, LibraryTooNew.
        """
        if self._access in ("read", "immutable"):
            raise LibraryReadOnly(
                f"{self.path} cannot be written.", "Reading goes on; check its permissions."
            )
        # Threads wait here, processes at BEGIN IMMEDIATE.
        with self._write_lock:
            writer = self._writer
            if writer is None:
                writer = self._writer = driver.connect(self.path, durable=True, access="write")
                # Our own retry waits fairly; SQLite's handler would not (see driver.retry).
                writer.execute("PRAGMA busy_timeout=0")
                # With a rollback journal, spilling into the file before the commit would have to
                # wait for readers.
                writer.execute("PRAGMA cache_spill=OFF")
            try:
                with driver.ImmediateTransaction(writer, self.path):
                    if self._migrates:
                        # In each transaction: the file can be migrated while this process has it
                        # open.
                        self._refuse_newer(writer)
                    yield writer
            except driver.UNUSABLE as error:
                raise driver.as_library_error(error, self.path) from error
            finally:
                # After a signal between two statements, or a failed rollback: this connection holds
                # a lock that nobody would release, and the next write opens another.
                if writer.in_transaction:
                    self._writer = None
                    writer.close()

    def _refuse_newer(self, writer: Connection) -> None:
        """Raise LibraryTooNew when a newer program has migrated the file.

        The writer holds the write lock.
        """
        version = int(writer.execute("PRAGMA user_version").fetchone()[0])
        self._outdated = version > migrations.LATEST
        if self._outdated:
            migrations.check_version(version, str(self.path))

    def before_fork(self) -> None:
        """Wait for the write in flight and close idle connections: none must cross a fork."""
        # Held across the fork, so that the child does not inherit a write in the middle.
        self._write_lock.acquire()
        self.close()

    def after_fork(self) -> None:
        """Let writes go on, in the parent and in the child; each opens its own connections."""
        self._write_lock.release()

    def close(self) -> None:
        """Close every connection; the last process to do so folds the log into the file."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        with self._write_lock:
            # A write in flight belongs to another frame of this thread, which ends it.
            if self._writer is not None and not self._writer.in_transaction:
                self._writer.close()
                self._writer = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[Callable[[], int]]:
        """Lend a function whose result changes when anybody has committed since its last call."""
        with self.reading() as db:
            # SQLite's own counter: it changes with commits of other connections.
            yield lambda: int(db.execute("PRAGMA data_version").fetchone()[0])


@contextlib.contextmanager
def translate_damage(path: Path, *, opening: bool = False) -> Iterator[None]:
    """Raise DamagedFile for SQLite's errors about the content of a derived file, else our errors.

    opening: the body uses no other file, so our own error about a damaged file is about this one.
    """
    try:
        yield
    except driver.Errors as error:
        ours = driver.library_error(error, path)
        raise (DamagedFile(str(ours)) if _is_about_content(ours) else ours) from error
    except LibraryError as error:
        if opening and _is_about_content(error):
            raise DamagedFile(str(error)) from error
        raise


def _is_about_content(error: EvolvableError) -> bool:
    # LibraryUnreachable too, which is an error of the disk: the new file is elsewhere on the disk.
    return type(error) in (LibraryError, LibraryCorrupt, LibraryUnreachable)
