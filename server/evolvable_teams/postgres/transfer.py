"""Copy a whole library between SQLite and PostgreSQL, and compare the two row by row."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from evolvable_store.errors import AlreadyExists, LibraryCorrupt
from evolvable_store.storage import SqlStorage, Storage, TaskSource
from evolvable_teams.postgres.schema import TableShape, declared_tables
from evolvable_teams.postgres.storage import PostgresStorage

# A row with a blob may have megabytes, so a batch bounds the memory.
_BATCH = 200  # rows

NOT_COPIED = frozenset(("folder", "binding", "held", "listing", "learned_transcript"))
"""Tables that are not copied. Two libraries must not write into one watched folder, or into the
settings of one client; and which transcripts were read is a fact of one machine.
"""

_SHARED_ROWS = {"learned": f"source <> '{TaskSource.TRANSCRIPT}'"}
"""By table, the condition of the rows that go into PostgreSQL: the prompts of transcripts stay on
this machine.
"""


@dataclass(frozen=True, slots=True)
class Transferred:
    """What was copied. digest: SHA-256 of every row, equal in both libraries."""

    rows: int
    digest: str


def transfer(
    source: Storage, target: Storage, progress: Callable[[int], None] = lambda rows: None
) -> Transferred:
    """Copy the rows of a library into an empty one, in one transaction, and verify the copy.

    The source is read in its state at the beginning, while others go on writing. The tasks of
    clients' transcripts do not go into PostgreSQL: the person's yes was for this machine.

    Raises:
        AlreadyExists: The target holds something.
        LibraryCorrupt: The copy differs from the source; nothing was copied.
    """
    from_storage, to_storage = cast(SqlStorage, source), cast(SqlStorage, target)
    tables = [table for table in declared_tables() if table.name not in NOT_COPIED]
    rules = _SHARED_ROWS if isinstance(to_storage, PostgresStorage) else {}
    with _snapshot(from_storage) as reader, to_storage.writing() as writer:
        for table in tables:
            if writer.execute(f"SELECT 1 FROM {table.name} LIMIT 1").fetchone() is not None:
                raise AlreadyExists(
                    f"{to_storage.where} holds a library.",
                    "Name a project or a folder that has none.",
                )
        rows = 0
        read, written = hashlib.sha256(), hashlib.sha256()
        for table in tables:
            names = ", ".join(f'"{column[0]}"' for column in table.columns)
            places = ", ".join("?" * len(table.columns))
            insert = f"INSERT INTO {table.name} ({names}) VALUES ({places})"
            for batch in _batches(reader, table, rules.get(table.name, "")):
                writer.executemany(insert, batch)
                _update_digest(read, table, batch)
                rows += len(batch)
                progress(rows)
            for batch in _batches(writer, table):
                _update_digest(written, table, batch)
            # The numbers were copied and not drawn, so the counter has to go on after them.
            if table.numbered == "counter" and isinstance(to_storage, PostgresStorage):
                key = table.primary[0]
                highest = f"SELECT ?, max({key}) FROM {table.name} HAVING max({key}) IS NOT NULL"
                writer.execute(f"INSERT INTO counter (name, value) {highest}", (table.name,))
        # Before the commit, so that nothing is copied where the rows differ.
        if read.digest() != written.digest():
            raise LibraryCorrupt(
                "The copy differs from the library.",
                "Nothing was copied; run `evolvable care fsck`.",
            )
    return Transferred(rows, read.hexdigest())


@contextlib.contextmanager
def _snapshot(storage: SqlStorage) -> Iterator[Any]:
    """Lend a connection that sees the library as it is now."""
    if isinstance(storage, PostgresStorage):
        with storage.snapshot() as db:
            yield db
        return
    with storage.reading() as db:
        db.execute("BEGIN")
        try:
            yield db
        finally:
            db.execute("ROLLBACK")


def _batches(db: Any, table: TableShape, rule: str = "") -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a table in the order of its key, some at a time.

    rule: the condition in SQL of the rows that are wanted, '' for all.
    """
    names = [column[0] for column in table.columns]
    columns = ", ".join(f'"{name}"' for name in names)
    key = ", ".join(f'"{name}"' for name in table.primary)
    places = [names.index(name) for name in table.primary]
    beyond = f"({key}) > ({', '.join('?' * len(places))})"
    last: tuple[Any, ...] = ()
    while True:
        condition = " AND ".join(filter(None, (rule, beyond if last else "")))
        where = f"WHERE {condition}" if condition else ""
        query = f"SELECT {columns} FROM {table.name} {where} ORDER BY {key} LIMIT {_BATCH}"
        rows = [tuple(row) for row in db.execute(query, last).fetchall()]
        if not rows:
            return
        yield rows
        last = tuple(rows[-1][place] for place in places)


def _update_digest(digest: Any, table: TableShape, rows: list[tuple[Any, ...]]) -> None:
    for row in rows:
        # The two drivers return blobs as different types, which repr would show.
        plain = [bytes(value) if isinstance(value, bytes | memoryview) else value for value in row]
        digest.update(repr((table.name, plain)).encode("utf-8", "surrogatepass"))
