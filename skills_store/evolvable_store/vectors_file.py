"""Opening the file of vectors: made when it is missing, told from files of others, damage told from bad luck."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_store import driver
from evolvable_store.errors import LibraryCorrupt, LibraryError

if TYPE_CHECKING:
    from evolvable_store.driver import Connection

FILE = "vectors.db"

APPLICATION_ID = 0x45564C56
"""'EVLV', written into the file's header."""

SCHEMA = 2
"""Counts up whenever a table, or what stands in one, gets another meaning; the file is then made anew."""

_TABLES = (
    "CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE model (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, spec TEXT NOT NULL) STRICT",
    """CREATE TABLE resource (
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE said (
        role TEXT NOT NULL, resource INTEGER NOT NULL, hash BLOB NOT NULL, size INTEGER NOT NULL,
        PRIMARY KEY (role, resource)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX said_resource ON said (resource)",
    "CREATE INDEX said_hash ON said (hash)",
    # Rows are long, so they stay out of the tree that is searched.
    """CREATE TABLE vector (
        id INTEGER PRIMARY KEY, model INTEGER NOT NULL, hash BLOB NOT NULL, data BLOB NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX vector_text ON vector (model, hash)",
)


class Damaged(Exception):
    """The file cannot be used as it is: broken, of another version, or from another program."""


def set_aside(home: Path) -> None:
    """Moves the file away, for whoever wants to know what was wrong; keeps the last one only."""
    for log in ("-wal", "-shm", "-journal"):
        (home / f"{FILE}{log}").unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        (home / FILE).replace(home / f"{FILE}.damaged")


def opened(home: Path) -> "Connection":
    """Returns the file of the library in `home`, made when there is none; a damaged one is set aside.

    Raises LibraryError.
    """
    try:
        return _opened(home / FILE)
    except Damaged:
        set_aside(home)
        return _opened(home / FILE)


def _opened(path: Path) -> "Connection":
    with damage(path), contextlib.ExitStack() as unless_ready:
        connection = driver.connect(path, durable=False)
        unless_ready.callback(connection.close)
        current = _is_current(connection)
        driver.set_journal(connection, path)
        if not current:
            with driver.immediate(connection, path):
                for table in _TABLES:
                    connection.execute(table)
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={SCHEMA}")
        unless_ready.pop_all()
    return connection


def _is_current(connection: "Connection") -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    schema = connection.execute("PRAGMA user_version").fetchone()[0]
    if (application, schema) == (APPLICATION_ID, SCHEMA):
        return True
    if tables or application or schema:
        raise Damaged(f"application {application:#x}, schema {schema}")
    return False


@contextlib.contextmanager
def damage(path: Path) -> Iterator[None]:
    """Turns what SQLite says of a bad file into Damaged, and its other errors into ours."""
    try:
        with driver.translated(path):
            yield
    except LibraryError as error:
        if type(error) in (LibraryError, LibraryCorrupt):
            raise Damaged(str(error)) from error
        raise
