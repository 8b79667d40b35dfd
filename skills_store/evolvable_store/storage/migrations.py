"""Open the library file, and bring its schema up to date in numbered steps, each atomic."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evolvable_store.errors import (
    RESTART,
    LibraryBusy,
    LibraryCorrupt,
    LibraryReadOnly,
    LibraryTooNew,
)
from evolvable_store.storage import connection as driver
from evolvable_store.storage.connection import Connection

APPLICATION_ID = 0x45564C56
"""'EVLV', written into the file's header."""


def _step(name: str) -> Callable[[Any], object]:
    """Return the step whose statements `schema/NAME.sql` holds.

    sqlite-utils records a step by the function's name.
    """

    def run(db: Any) -> None:
        driver.run_script(db.conn, driver.read_script(f"{name}.sql"))

    run.__name__ = name
    return run


# A name is recorded in each library, so none of these ever changes.
_LISTED = """
m001_library m002_working_copies m003_evidence m004_proposals m005_channel
m006_reviews m007_sightings m008_findings m009_times m010_principals
m011_signatures m012_earned m013_secrets m014_trust m015_trusted_folders
m016_learned m017_remotes m018_rounds m019_executions m020_audit
m021_labels m022_collections m023_project_marks m024_shown m025_transcript_rows
m026_provenance m027_arrival m028_years m029_transcripts
"""
NAMES = tuple(_LISTED.split())
"""The steps of the schema, in order."""

STEPS = tuple(map(_step, NAMES))
"""In order; a step is never changed after a release, only followed by another."""

LATEST = len(STEPS)

WHOLE = "library.sql"
"""The schema that the steps of NAMES make, with their record, in one script, which is faster.

A test writes and checks it.
"""


def migrate(connection: Connection, path: Path) -> None:
    """Bring the file to LATEST; safe when many processes start at once.

    Raises LibraryTooNew when a newer program wrote it, LibraryCorrupt when it belongs to something
    else.
    """
    # The usual case takes no lock.
    if schema_version(connection, path) == LATEST:
        return
    # sqlite-utils begins its transactions deferred, and two processes that both find a step pending
    # would both run it. Taking the write lock first makes its own transactions savepoints of ours.
    with driver.ImmediateTransaction(connection, path):
        # Again under the lock: another process may have done it.
        if schema_version(connection, path) < LATEST:
            if len(NAMES) == LATEST and _is_empty(connection):
                driver.run_script(connection, driver.read_script(WHOLE))
            else:
                driver.apply_steps(connection, "evolvable", STEPS)
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={LATEST}")


def schema_version(connection: Connection, path: Path) -> int:
    """Return how many steps the file has had, 0 for an empty one; write nothing.

    Raises as `migrate`.
    """
    with driver.translate_errors(path):
        # In this order: a process that makes the library meanwhile adds tables and our id in one
        # commit. In the other order, tables could be seen without our id.
        empty = _is_empty(connection)
        application = int(connection.execute("PRAGMA application_id").fetchone()[0])
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    # An empty file without an id is one that is about to become a library.
    if application != APPLICATION_ID and not (empty and application == 0):
        raise LibraryCorrupt(
            f"{path} belongs to another program.", "Name another folder for the library."
        )
    if version > LATEST:
        raise LibraryTooNew(
            f"{path} was written by a newer Evolvable (schema {version}, this one knows {LATEST}).",
            "Update this program: git pull and pip install . in your clone. Nothing was touched.",
        )
    return version


def _is_empty(connection: Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0)


def check_version(version: int, where: str) -> None:
    """Raise LibraryTooNew for a library that was migrated beyond LATEST while it was open."""
    if version > LATEST:
        raise LibraryTooNew(
            f"{where} was brought up to date by a newer Evolvable (schema {version}, this one "
            f"knows {LATEST}), so this one no longer writes to it. Nothing was changed; "
            "reading goes on.",
            RESTART,
        )


# Takes effect only before the first table is made.
PAGE_SIZE = 2048
"""Bytes of a page in a new library.

Half of SQLite's default made a commit 5 % faster and the file a fifth smaller (20 November 2026).
"""

JOURNAL_SECONDS = 2.0
"""How long opening tries to set the preferred journal mode, before it accepts the present one."""


def open_library(path: Path) -> tuple[Connection, driver.Access, str]:
    """Open the library file, or create it, and migrate it.

    Return the connection, its access and the journal mode, '' where the file cannot be written.
    """
    if not path.exists() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return _open_writable(path)
    try:
        return _open_as(path, "read")
    except LibraryReadOnly:
        # Reading a log needs shared memory, which cannot be made here; a cleanly closed library has
        # no log.
        for log in (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-journal")):
            if log.exists() and log.stat().st_size:
                raise LibraryReadOnly(
                    f"{path} cannot be written, and its newest changes are still in {log.name}.",
                    "Copy the whole folder to where it can be written, and open it there.",
                ) from None
        # Without locks: nobody can write the file, so nothing can change under a reader.
        return _open_as(path, "immutable")


def _open_writable(path: Path) -> tuple[Connection, driver.Access, str]:
    with _opening_lock(path):
        # Longer waits than for a write: leaving WAL mode needs that no other connection is open.
        for _ in driver.retry(JOURNAL_SECONDS, longest=0.02):
            opened = _open_as(path, "create")
            if opened[2] == driver.preferred_journal(path):
                return opened
            # An open connection, even an idle one, keeps others from leaving WAL mode too.
            opened[0].close()
        return _open_as(path, "create")


def _open_as(path: Path, access: driver.Access) -> tuple[Connection, driver.Access, str]:
    connection, journal = driver.connect(path, durable=True, access=access), ""
    with contextlib.ExitStack() as unless_ready:
        unless_ready.callback(connection.close)
        # The file of another program is refused before anything is written.
        schema_version(connection, path)
        if access == "create":
            connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
            journal = driver.set_journal(connection, path)
        migrate(connection, path)
        unless_ready.pop_all()
    return connection, "write" if access == "create" else access, journal


@contextlib.contextmanager
def _opening_lock(path: Path) -> Iterator[None]:
    """Let one process at a time open the file where it may have to leave WAL mode."""
    if driver.wal_is_safe():
        yield
        return
    lock = driver.file_lock(path.with_name("opening.lock"), poll_interval=0.005)
    try:
        lock.acquire()
    except TimeoutError as error:
        raise LibraryBusy(
            "Other processes are opening the library.", "Try again in a moment."
        ) from error
    try:
        yield
    finally:
        lock.release()
