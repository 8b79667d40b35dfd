"""Read a SQLite database of another program in one transaction within limits; never write it."""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_store.errors import Invalid, TryAgain

_WAL = "-wal"

_MAX_REASON = 200
"""Characters of SQLite's message in an error."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits of one read: rows, bytes of all their values, and seconds.

    copied: bytes of a copy.
    """

    rows: int
    bytes: int
    seconds: float
    # A GiB of the temporary folder, which may lie in memory.
    copied: int = 1 << 30


class ForeignDatabaseInvalid(Invalid):
    """A file is not the expected database, or a read of it exceeds a limit."""


class ForeignDatabaseBusy(TryAgain):
    """The database of another program cannot be read now: it is locked, or took too long."""


class ForeignDatabase:
    """A database of another program in one read transaction."""

    def __init__(self, connection: sqlite3.Connection, name: str, limits: ReadLimits) -> None:
        self._connection, self._name = connection, name
        self._limits = limits
        self._rows = self._bytes = 0

    def rows(self, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query. Raises ForeignDatabaseInvalid beyond the limits."""
        limits = self._limits
        for row in self._connection.execute(query, values):
            self._rows += 1
            # Numbers are small enough not to be counted.
            self._bytes += sum(len(value) for value in row if isinstance(value, str | bytes))
            has_too_many = self._rows > limits.rows
            if has_too_many or self._bytes > limits.bytes:
                what = f"{limits.rows} rows" if has_too_many else f"{limits.bytes >> 20} MiB"
                raise ForeignDatabaseInvalid(
                    f"A read of {self._name} has more than {what}.", "It was left out."
                )
            yield row


@contextmanager
def foreign_database(path: Path, limits: ReadLimits) -> Iterator[ForeignDatabase]:
    """Open the database of another program, which may write it meanwhile, for one read transaction.

    A copy is read only where SQLite refuses to read the file itself, as in a folder that cannot be
    written. Raises ForeignDatabaseInvalid, ForeignDatabaseBusy.
    """
    name = ascii(path.name)
    with ExitStack() as stack:
        try:
            try:
                connection = _open_connection(path, limits, stack)
            except sqlite3.OperationalError as error:
                # Reading a log needs shared memory beside the file, so the folder must be writable.
                if not _code_name(error).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
                    raise
                connection = _open_connection(_copy(path, limits, stack), limits, stack)
            yield ForeignDatabase(connection, name, limits)
        except sqlite3.DatabaseError as error:
            # The message can quote names and values of the hostile file.
            why = ascii(str(error)).strip("'\"")[:_MAX_REASON]
            # SQLITE_ERROR is a wrong statement, such as a missing table: the file is not that
            # program's.
            is_wrong = _code_name(error) in ("", "SQLITE_ERROR")
            if isinstance(error, sqlite3.OperationalError) and not is_wrong:
                raise ForeignDatabaseBusy(
                    f"{name} cannot be read now: {why}.", "Try again."
                ) from None
            raise ForeignDatabaseInvalid(
                f"{name} is not such a database: {why}.", "Name another file."
            ) from None
        except OSError as error:
            raise ForeignDatabaseBusy(
                f"{name} cannot be read now: {error.strerror}.", "Try again."
            ) from None


def _code_name(error: sqlite3.Error) -> str:
    """Return the name of SQLite's code, '' where Python refused a value, such as invalid UTF-8."""
    return getattr(error, "sqlite_errorname", "")


def _open_connection(path: Path, limits: ReadLimits, stack: ExitStack) -> sqlite3.Connection:
    """Return a connection that has begun to read. Nothing in the hostile file is executed."""
    deadline = time.monotonic() + limits.seconds
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = stack.enter_context(
        closing(sqlite3.connect(address, uri=True, timeout=2, isolation_level=None))
    )
    # One value alone could otherwise fill the memory before `rows` counts it.
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limits.bytes, 2**31 - 1))
    # Called every 1,000 steps of SQLite's machine; true ends a statement that takes too long.
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 1000)
    connection.execute("PRAGMA trusted_schema = OFF")
    # mode=ro protects the file; this also refuses temporary tables of a hostile view.
    connection.execute("PRAGMA query_only = ON")
    connection.execute("BEGIN")
    # BEGIN alone takes no snapshot: the first read does.
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return connection


def _copy(path: Path, limits: ReadLimits, stack: ExitStack) -> Path:
    """Return a copy of a database with its log. Raises ForeignDatabaseBusy, OSError."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evolvable-")))
    parts = [part for part in (path, path.with_name(path.name + _WAL)) if part.is_file()]
    # Compared afterwards: copies of a file and its log at different moments are no database.
    before = [(part.stat().st_size, part.stat().st_mtime_ns) for part in parts]
    if sum(size for size, _ in before) > limits.copied:
        raise ForeignDatabaseInvalid(
            f"{ascii(path.name)} is too large for a copy.", "Make its folder writable."
        )
    for part in parts:
        shutil.copyfile(part, folder / part.name)
        os.chmod(folder / part.name, 0o600)
    if before != [(part.stat().st_size, part.stat().st_mtime_ns) for part in parts]:
        raise ForeignDatabaseBusy(
            f"{ascii(path.name)} was written while it was copied.", "Try again."
        )
    return folder / path.name
