"""Open SQLite, retry, translate errors, run statements, and avoid the bugs of SQLite's versions."""

import contextlib
import functools
import os
import random
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evolvable_store.errors import (
    DamagedFile,
    EvolvableError,
    InvalidArgument,
    LibraryBusy,
    LibraryCorrupt,
    LibraryError,
    LibraryFull,
    LibraryReadOnly,
    LibraryUnreachable,
)
from evolvable_store.storage.network_disk import on_network

if TYPE_CHECKING:
    from filelock import BaseFileLock

Connection = sqlite3.Connection
"""For annotations: a connection of pysqlite3 has the same methods."""

SAFE_VERSION = (3, 51, 3)
"""From here on SQLite has the fix of the WAL-reset bug, which can corrupt a file that several
processes write.
"""

# Trades a write that fails under load against a client that waits without an answer.
GIVE_UP_SECONDS = 10.0
"""How long a write waits for other writers before LibraryBusy."""

# More readers than this at once are rare; a new connection takes a fraction of a millisecond.
MAX_IDLE = 4
"""Connections to one file that are kept open while nobody uses them: each keeps its pages in
memory.
"""


def _choose() -> Any:
    try:
        from pysqlite3 import dbapi2 as bundled
    except ImportError:
        return sqlite3
    # Of two SQLites in one process only one may open a file: closing the other would drop its
    # locks.
    return bundled if bundled.sqlite_version_info >= sqlite3.sqlite_version_info else sqlite3


dbapi: Any = _choose()
"""The DB-API module in use: pysqlite3 where it is installed and newer, else the
standard library's.
"""


Errors = (sqlite3.Error, dbapi.Error, UnicodeDecodeError)
"""The errors of SQLite, from either module. UnicodeDecodeError comes from a message that quotes
damaged bytes.
"""


def wal_is_safe() -> bool:
    """Return whether this SQLite may use a write-ahead log with several processes."""
    return bool(dbapi.sqlite_version_info >= SAFE_VERSION)


Access = Literal["create", "write", "read", "immutable"]
"""How a file is opened.

`create` makes it when it is missing, `write` needs it to exist, `read` never writes it, and
`immutable` is for a file that nobody writes.
"""

_QUERY = {
    "create": "mode=rwc",
    "write": "mode=rw",
    "read": "mode=ro",
    "immutable": "mode=ro&immutable=1",
}


CACHE_KB, READER_CACHE_KB = 500, 250
"""Kilobytes of pages that a connection keeps, and that of a reader. SQLite's default is 2,000, but
a process keeps several connections to each file open, and all share the system's cache.
"""


def connect(
    path: Path, *, durable: bool, access: Access = "create", cache_kb: int = CACHE_KB
) -> Connection:
    """Return a connection in autocommit mode with our pragmas; transactions are begun by hand.

    durable: `synchronous=FULL`, with which a commit survives a power cut; otherwise NORMAL, for
    files that can be rebuilt. access: "immutable" is for a disk that cannot be written; the
    write-ahead log is not read then.
    """
    if access == "create":
        _create_private(path)
    with translate_errors(path), contextlib.ExitStack() as unless_ready:
        connection: Connection = dbapi.connect(
            f"{path.absolute().as_uri()}?{_QUERY[access]}",
            uri=True,
            # None: the module begins no transactions by itself.
            isolation_level=None,
            check_same_thread=False,
            # More than Python's 128, so that frequent statements stay compiled.
            cached_statements=256,
            # With a rollback journal our own retry takes the place of SQLite's busy handler.
            timeout=GIVE_UP_SECONDS if wal_is_safe() else 0,
            factory=dbapi.Connection if wal_is_safe() else _RetryingConnection,
        )
        unless_ready.callback(connection.close)
        connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        # A schema from elsewhere must not call functions with side effects.
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA foreign_keys=ON")
        # A checkpoint every 4,000 pages of the log instead of 1,000 writes a page that changed many
        # times less often into the file: twice the commits a second (20 November 2026).
        connection.execute("PRAGMA wal_autocheckpoint=4000")
        connection.execute(f"PRAGMA cache_size=-{cache_kb}")
        if sys.platform == "darwin":
            # macOS: a plain fsync leaves the bytes in the drive's cache.
            connection.execute("PRAGMA fullfsync=ON")
        unless_ready.pop_all()
    return connection


def _create_private(path: Path) -> None:
    """Make a missing file that only its owner may read, whatever the umask.

    SQLite gives its logs the same mode.
    """
    with contextlib.suppress(OSError):  # it exists, or SQLite says what is wrong
        # Before SQLite makes it, which would use the umask alone.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with contextlib.suppress(AttributeError, OSError):  # Windows before 3.13
            os.fchmod(descriptor, 0o600)
        os.close(descriptor)


def preferred_journal(path: Path) -> str:
    """Return the journal mode that a library here should have: 'wal' where that is safe, else
    'delete'.
    """
    return "wal" if wal_is_safe() and not on_network(path.parent) else "delete"


def set_journal(connection: Connection, path: Path) -> str:
    """Set the preferred journal mode, unless another process prevents that; return the present one.

    Every open connection of another process, even an idle one, keeps a file in WAL mode. So a
    process that failed closes its own connection before it tries again.
    """
    with translate_errors(path):
        try:
            return str(
                _execute(connection, f"PRAGMA journal_mode={preferred_journal(path)}").fetchone()[0]
            )
        except dbapi.OperationalError as error:
            # Another process uses the file in the other mode; the caller decides whether to wait.
            if not _is_busy(error):
                raise
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def retry(seconds: float | None = None, longest: float = 0.0012) -> Iterator[None]:
    """Yield once for each try, for so many seconds, with a random wait between two tries.

    seconds: by default GIVE_UP_SECONDS. longest: seconds of the longest wait. SQLite's own busy
    handler backs off in steps, and lets some processes starve for seconds. Random waits of 0.2 to
    1.2 ms are fair and shorter (measured on 20 November 2026).
    """
    deadline = time.monotonic() + (GIVE_UP_SECONDS if seconds is None else seconds)
    yield
    while time.monotonic() < deadline:
        time.sleep(random.uniform(0.0002, longest))
        yield


class ImmediateTransaction:
    """Holds the write lock for the body and commits it; any exception rolls back.

    Raises LibraryBusy when the lock cannot be had in time, LibraryFull, LibraryReadOnly or
    LibraryCorrupt.
    """

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    def __enter__(self) -> None:
        try:
            _execute_with_retry(self._connection, "BEGIN IMMEDIATE")
            # Checked under the lock: another process may have changed the mode since the file was
            # opened.
            if not wal_is_safe():
                _refuse_log(self._connection)
        except Errors as error:
            raise library_error(error, self._path) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                # With a rollback journal a commit waits for readers; in WAL mode the first try
                # succeeds.
                _execute_with_retry(self._connection, "COMMIT")
        except Errors as failure:
            error = failure
        finally:
            if self._connection.in_transaction:
                with contextlib.suppress(*Errors):  # what went wrong first is what is reported
                    self._connection.execute("ROLLBACK")
        if isinstance(error, Errors):
            raise library_error(error, self._path) from error


# The method of the base class: _RetryingConnection replaces it, and the retry must not retry
# itself.
_execute: Any = dbapi.Connection.execute


def _execute_with_retry(connection: Connection, statement: str, *values: Any) -> Any:
    for _ in retry():
        try:
            return _execute(connection, statement, *values)
        except dbapi.OperationalError as error:
            if not _is_busy(error):
                raise
    raise LibraryBusy(
        f"Other processes kept the library busy for {GIVE_UP_SECONDS:.0f} seconds.",
        "Nothing was changed; try again. `evolvable doctor` shows who has it open.",
    )


_RetryingConnection: Any = type("_Patient", (dbapi.Connection,), {"execute": _execute_with_retry})
"""For a rollback journal, where readers wait too: every statement waits as fairly as a
write does.
"""


def _refuse_log(connection: Connection) -> None:
    """Raise LibraryBusy when a newer SQLite has put the file in WAL mode, which this one may not
    write.
    """
    if _execute(connection, "PRAGMA journal_mode").fetchone()[0] == "wal":
        connection.execute("ROLLBACK")
        raise LibraryBusy(
            f"Another program has the library open in a mode that SQLite {dbapi.sqlite_version} "
            "cannot write safely.",
            "Reading goes on. Install pysqlite3 for this Python, or let one installation serve "
            "all clients.",
        )


def _is_busy(error: Exception) -> bool:
    # Extended codes have the primary one in the low byte. A module without codes is judged by its
    # text.
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED
    return "locked" in str(error) or "busy" in str(error)


RESTORE = "`evolvable backup restore FOLDER` restores the last `evolvable backup create`."
_RESTORE = f"Run `evolvable care fsck`. {RESTORE}"

_DAMAGED = (LibraryCorrupt, "{path} is damaged.", _RESTORE)
_NOT_WRITABLE = (
    LibraryReadOnly,
    "{path} cannot be written.",
    "Check its permissions; reading goes on.",
)
_BUSY = "Try again; `evolvable doctor` shows who has it open."
_BY_TEXT: dict[str, tuple[type[LibraryError], str, str]] = {
    "disk is full": (
        LibraryFull,
        "The disk that holds {path} is full.",
        "Free some space; nothing of the change was kept.",
    ),
    "readonly": _NOT_WRITABLE,
    "read-only": _NOT_WRITABLE,
    "unable to open": (
        LibraryReadOnly,
        "{path} cannot be opened.",
        "Check that its folder exists and may be read and written.",
    ),
    "decode": _DAMAGED,
    "malformed": _DAMAGED,
    "not a database": (
        LibraryCorrupt,
        "{path} is not a library.",
        f"{RESTORE} Or name another folder.",
    ),
    "disk i/o error": (
        LibraryUnreachable,
        "The disk that holds {path} reports an error.",
        "Check the disk, then `evolvable care fsck`.",
    ),
    "locked": (LibraryBusy, "{path} is locked by another process.", _BUSY),
}
"""By a part of SQLite's text, the first that fits: our error with its message and hint."""


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors inside the body into ours; everything else passes through."""
    try:
        yield
    except Errors as error:
        raise library_error(error, path) from error


def library_error(error: Exception, path: Path) -> LibraryError:
    """Return our error for an error of SQLite about this file."""
    text = str(error).lower()
    if "disk i/o error" in text and _is_full(path):
        # Not said by SQLite when it is the log's shared memory that found no room.
        text = "disk is full"
    for part, (kind, message, hint) in _BY_TEXT.items():
        if part in text:
            return kind(message.format(path=path), hint)
    return LibraryError(f"{path}: SQLite says {error}.", "Run `evolvable doctor`.")


UNUSABLE = (*Errors, ValueError, TypeError, OverflowError)
"""Errors of a statement, or of reading its rows, where the file or an argument is damaged."""


def as_library_error(error: Exception, path: Path) -> EvolvableError:
    """Return our error for an error of SQLite, or for a value of unexpected type in a row."""
    if isinstance(error, Errors):
        return library_error(error, path)
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return InvalidArgument(
            f"An argument cannot be kept: {error}.", "Texts must be Unicode, numbers below 2**63."
        )
    return LibraryCorrupt(f"{path} has a value that Evolvable never writes: {error}.", _RESTORE)


def _is_full(path: Path) -> bool:
    import shutil

    try:
        # Shared memory grows in steps of 32 KiB.
        return shutil.disk_usage(path.parent).free < 64 * 1024
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class DerivedFormat:
    """The marks of a file that can be rebuilt, and the SQL script that makes its tables.

    version: counts up whenever a table or its rows get another meaning; the file is then rebuilt.
    tables: those that a file must have, none where that is not checked. page_size: of a new file,
    in bytes.
    """

    application_id: int
    version: int
    script: Path
    tables: tuple[str, ...] = ()
    page_size: int = 4096

    def prepare(self, connection: Connection, path: Path) -> None:
        """Make the tables of an empty file, and set the journal mode.

        Raises DamagedFile for any other format.
        """
        # Before the journal mode: in WAL mode the size of a page cannot change.
        connection.execute(f"PRAGMA page_size={self.page_size}")  # of a file that is still empty
        current = self._is_current(connection)
        set_journal(connection, path)
        if not current:
            with ImmediateTransaction(connection, path):
                # Again under the lock: another process may have made the tables.
                if not self._is_current(connection):
                    run_script(connection, self.script.read_text(encoding="utf-8"))
                    connection.execute(f"PRAGMA application_id={self.application_id}")
                    connection.execute(f"PRAGMA user_version={self.version}")

    def _is_current(self, connection: Connection) -> bool:
        """Return whether the file has this format, False when it is empty.

        Raises DamagedFile for any other.
        """
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if (application, version) == (self.application_id, self.version):
            for table in self.tables:
                # Fails with "no such table" where a table is missing, which counts as damage.
                connection.execute(f"SELECT 1 FROM {table} LIMIT 0")
            return True
        if tables or application or version:
            raise DamagedFile(f"application {application:#x}, schema {version}")
        return False


def read_script(name: str) -> str:
    """Return the text of a script of SQL."""
    return Path(__file__).with_name("schema").joinpath(name).read_text(encoding="utf-8")


@functools.cache
def read_queries() -> dict[str, str]:
    """Return the queries of `schema/queries.sql` by their names."""
    return dict(
        re.findall(r"^-- name: (\w+)\n((?:(?!--).*\n)+)", read_script("queries.sql"), re.MULTILINE)
    )


def run_script(connection: Connection, script: str) -> None:
    """Run statements one by one, each of which ends with its line.

    SQLite's `executescript` would end the transaction; that of sqlite-utils reads the whole script
    again for each character.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if dbapi.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def set_aside(path: Path) -> None:
    """Move a derived file away for diagnosis; only the last one stays."""
    # The logs first: with them, SQLite would replay them into the new file.
    for log in ("-wal", "-shm", "-journal"):
        path.with_name(f"{path.name}{log}").unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.replace(path.with_name(f"{path.name}.damaged"))


def file_lock(path: Path, **options: Any) -> "BaseFileLock":
    """Return a lock between processes; acquiring it raises TimeoutError after GIVE_UP_SECONDS."""
    from filelock import FileLock  # start time: few processes need a lock

    return FileLock(path, timeout=GIVE_UP_SECONDS, mode=0o600, **options)


def apply_steps(
    connection: Connection, name: str, steps: Iterable[Callable[[Any], object]]
) -> None:
    """Run the steps of a schema that the file lacks, and record them by their functions' names."""
    import sqlite_utils  # start time: a library that is up to date needs none of it
    from sqlite_utils.migrations import Migrations

    migrations = Migrations(name)
    for step in steps:
        migrations()(step)  # type: ignore[type-var]
    migrations.apply(sqlite_utils.Database(connection, execute_plugins=False))
