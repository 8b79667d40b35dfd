"""What each repository is built from: connections that a library lends, and statements whose errors are ours."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from evolvable_store.operation import Operation
from evolvable_store.paths import TrustedFolders
from evolvable_store.storage.connection import Connection, read_script

_T = TypeVar("_T")


class Lender(Protocol):
    """What lends connections to a database."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Lend a connection for a few statements."""

    def writing(self) -> AbstractContextManager[Connection]:
        """Lend the writing connection inside a transaction that holds the only write lock."""


class Database(Lender, Protocol):
    """What the repositories of a library use of it."""

    path: Path
    """The library file, or the file with the address of the library."""

    trusted_folders: TrustedFolders
    """Returns the folders that the person trusts now."""

    def operation(self, identity: int) -> Operation | None:
        """Return the operation with this id, or None."""


class SqliteRepository:
    """Some tables of one library. SQLite's errors, and values that no row of ours has, come out as our errors."""

    def __init__(self, backend: Database, lender: Lender | None = None) -> None:
        """lender: of the connections to the tables, by default the library."""
        self._backend, self._lender = backend, lender or backend

    def _all(self, make: Callable[..., _T], query: str, *values: Any) -> list[_T]:
        """Return what `make` makes of the columns of each row. What it cannot take is damage, and reported as such."""
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
        """Yield (which, what) for each row that a query of a script finds; the comment before it says both."""
        for which, what, query in re.findall(r"^-- (.+?): (.+)\n((?:(?!--).*\n)+)", read_script(script), re.MULTILINE):
            with self._lender.reading() as db:
                rows = db.execute(query, values).fetchall()
            yield from ((which.format(*row), what.format(*row)) for row in rows)

    def _do(self, statement: str, *values: Any) -> int:
        """Run one statement as a transaction; return how many rows it changed."""
        with self._lender.writing() as db:
            return int(db.execute(statement, values).rowcount)
