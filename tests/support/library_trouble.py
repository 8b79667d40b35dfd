"""What keeps a library from being written for as long as a body runs: real where one process can do
that to another.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from evolvable_store.storage.connection import dbapi
from evolvable_store.storage.protocol import Storage

linux_root = pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0,
    reason="needs root on Linux, to mount or to be nobody",
)


@contextmanager
def small_disk(place: Path, size: str = "1m") -> Iterator[Path]:
    """Mounts a disk of this size in memory, or skips the test where that is not allowed."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""

Refusal = Callable[[Storage], AbstractContextManager[None]]


def busy(backend: Storage) -> AbstractContextManager[None]:
    """Another process writes for as long as the body runs."""
    return held(backend.path)


@contextmanager
def held(database: Path) -> Iterator[None]:
    """Another process holds the write lock of a SQLite file for as long as the body runs."""
    command = [sys.executable, "-c", HOLD, str(database)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        try:
            yield
        finally:
            other.communicate()


@contextmanager
def no_room(backend: Storage) -> Iterator[None]:
    """No file of this process may be written to."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


TROUBLE = {
    "busy": "database is locked",
    "full": "database or disk is full",
    "read only": "attempt to write a readonly database",
    "unreachable": "disk I/O error",
}
"""What SQLite says of trouble that passes."""


@contextmanager
def refusing(file: Path, table: str, trouble: str) -> Iterator[None]:
    """SQLite says this of every row that is written to a table of this file, whichever process
    writes.
    """

    def run(*statements: str) -> None:
        with closing(dbapi.connect(str(file), isolation_level=None, timeout=30)) as db:
            for statement in statements:
                db.execute(statement)

    text, kinds = TROUBLE[trouble], ("INSERT", "UPDATE", "DELETE")
    run(
        *(
            f"CREATE TRIGGER no_{k} BEFORE {k} ON {table} BEGIN SELECT RAISE(ABORT, '{text}'); END"
            for k in kinds
        )
    )
    try:
        yield
    finally:
        run(*(f"DROP TRIGGER no_{kind}" for kind in kinds))
