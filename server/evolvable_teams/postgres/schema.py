"""Make the tables of PostgreSQL, and bring them up to date.

SQLite's migrations are the one declaration of the tables. They run on a database in memory, and
this module makes the same tables and indexes, each with the columns that separate projects. A new
step adds its tables and columns in the same way; one that changes rows needs a statement in
`_ROWS`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from evolvable_store.errors import LibraryCorrupt, LibraryTooNew
from evolvable_store.storage import LATEST, NAMES
from evolvable_store.storage import connection as driver
from evolvable_teams.postgres.dialect import LOCAL_TABLES

_TYPES = {
    "INTEGER": "bigint",
    "TEXT": 'text COLLATE "C"',
    "BLOB": "bytea",
    "REAL": "double precision",
}

_ROWS: dict[int, str] = {
    NAMES.index(step) + 1: driver.read_script(script)
    for step, script in (("m020_audit", "m020_postgres.sql"), ("m024_shown", "m024_postgres.sql"))
}
"""By step of SQLite's migrations: its changes of existing rows, in PostgreSQL's spelling."""

FIRST = 19
"""The step at which this storage began: no database of PostgreSQL has rows of an earlier one."""

BASE = driver.read_script("postgres_base.sql")
"""The statements that make the schema `evolvable`: its functions, projects and members."""

# The letters "EVLV", so that it is unlikely to be the number of another program's lock.
MIGRATION_LOCK = 0x45564C56
"""An advisory lock of the database: a migration takes it alone, and transactions that write share
it.
"""


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as SQLite has it.

    columns: name, type, whether it is NOT NULL, default. primary: the columns of the primary key.
    keys: the columns of each unique key. numbered: how PostgreSQL numbers the rows: `counter` never
    gives a number twice, `next` is one more than the highest; '' for no numbers.
    """

    name: str
    columns: tuple[tuple[str, str, bool, str | None], ...]
    primary: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]
    numbered: str

    @property
    def scope(self) -> str:
        """The columns that stand before those of every key."""
        return "project, home" if self.name in LOCAL_TABLES else "project"


def _read_declaration() -> tuple[list[TableShape], list[tuple[str, str, str, str]]]:
    """Return the tables of SQLite's migrations, and their indexes.

    Each index is UNIQUE or '', its name, its table, and the rest of its statement.
    """
    memory = driver.dbapi.connect(":memory:", isolation_level=None)
    try:
        for name in NAMES:
            driver.run_script(memory, driver.read_script(f"{name}.sql"))
        query = (
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' "
            "AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        )
        tables = [_read_table(memory, name, sql) for name, sql in memory.execute(query).fetchall()]
        query = (
            "SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY rowid"
        )
        indexes = [
            (match[1] or "", match[2], match[3], match[4])
            for (sql,) in memory.execute(query).fetchall()
            if (match := re.match(r"CREATE (UNIQUE )?INDEX (\w+) ON (\w+) \((.*)$", sql, re.DOTALL))
        ]
    finally:
        memory.close()
    return tables, indexes


def declared_tables() -> list[TableShape]:
    """Return the tables of a library."""
    return _read_declaration()[0]


def _read_table(memory: Any, name: str, sql: str) -> TableShape:
    """Return the shape of a table. sql: the statement that made it."""
    # Rows of table_info: position, name, type, NOT NULL, default, place in the primary key.
    rows = memory.execute(f"PRAGMA table_info({name})").fetchall()
    keys = []
    for _, index, unique, origin, *_ in memory.execute(f"PRAGMA index_list({name})").fetchall():
        if unique and origin == "u":
            key = memory.execute(f"PRAGMA index_info({index})").fetchall()
            keys.append(tuple(row[2] for row in key))
    key_rows = sorted((row for row in rows if row[5]), key=lambda row: row[5])
    primary = tuple(row[1] for row in key_rows)
    numbered = ""
    if [row[2] for row in key_rows] == ["INTEGER"]:
        numbered = "counter" if "AUTOINCREMENT" in sql else "next"
    columns = tuple((row[1], row[2], bool(row[3] or row[5]), row[4]) for row in rows)
    return TableShape(name, columns, primary, tuple(keys), numbered)


def _statements(table: TableShape) -> Iterator[str]:
    """Yield the statements that make a table, which refuses rows of other projects and homes."""
    name, number = table.name, f"next_{table.name}"
    if table.numbered == "counter":
        body = f"SELECT next_number('{name}')"
        yield f"CREATE FUNCTION {number}() RETURNS bigint LANGUAGE sql VOLATILE AS $$ {body} $$"
    columns = [_column(*column) for column in table.columns]
    columns.append("project bigint NOT NULL DEFAULT visible_project()")
    if name in LOCAL_TABLES:
        columns.append("home text COLLATE \"C\" NOT NULL DEFAULT current_setting('evolvable.home')")
    keys = [f"PRIMARY KEY ({table.scope}, {', '.join(table.primary)})"]
    keys += [f"UNIQUE ({table.scope}, {', '.join(key)})" for key in table.keys]
    yield f'CREATE TABLE "{name}" ({", ".join([*columns, *keys])})'
    if table.numbered == "next":
        body = f'SELECT coalesce(max({table.primary[0]}), 0) + 1 FROM evolvable."{name}"'
        yield f"CREATE FUNCTION {number}() RETURNS bigint LANGUAGE sql VOLATILE AS $$ {body} $$"
    if table.numbered:
        yield f'ALTER TABLE "{name}" ALTER {table.primary[0]} SET DEFAULT {number}()'
    yield from protect(name)


def protect(name: str) -> Iterator[str]:
    """Yield the statements that limit a table to rows of the chosen project, for its owner too."""
    yield f'ALTER TABLE "{name}" ENABLE ROW LEVEL SECURITY'
    yield f'ALTER TABLE "{name}" FORCE ROW LEVEL SECURITY'
    yield from _policies(name)


def _policies(name: str) -> Iterator[str]:
    """Yield the policies of a table, one for each kind of statement.

    PostgreSQL joins two policies for SELECT by OR, and then does not read an index in its order: to
    find the newest change it would read every change.
    """
    # As a subquery it is evaluated once for a statement and not for each row.
    home = " AND home = (SELECT current_setting('evolvable.home'))" if name in LOCAL_TABLES else ""
    visible, writable = (
        f"project = (SELECT {right}_project()){home}" for right in ("visible", "writable")
    )
    yield f'CREATE POLICY reading ON "{name}" FOR SELECT USING ({visible})'
    yield f'CREATE POLICY inserting ON "{name}" FOR INSERT WITH CHECK ({writable})'
    yield f'CREATE POLICY updating ON "{name}" FOR UPDATE USING ({writable})'
    yield f'CREATE POLICY deleting ON "{name}" FOR DELETE USING ({writable})'


def _column(name: str, kind: str, filled: bool, default: str | None) -> str:
    rest = (" NOT NULL" if filled else "") + (f" DEFAULT {default}" if default is not None else "")
    return f'"{name}" {_TYPES[kind]}{rest}'


def _index(unique: str, name: str, table: str, rest: str) -> str:
    scope = "project, home" if table in LOCAL_TABLES else "project"
    # PostgreSQL has no number as a condition.
    rest = rest.replace("WHERE counts", "WHERE counts = 1")
    return f'CREATE {unique}INDEX {name} ON "{table}" ({scope}, {rest}'


def schema_version(connection: Any) -> int:
    """Return how many of SQLite's steps the tables of a database have, 0 where there are none."""
    query = """SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = 'evolvable'
        AND tablename = 'schema_version'),
        EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'evolvable')"""
    has_tables, has_schema = connection.execute(query).fetchone()
    if not has_tables:
        if has_schema:
            raise LibraryCorrupt(
                "The database has a schema `evolvable` that belongs to another program.",
                "Name another database.",
            )
        return 0
    return int(
        connection.execute("SELECT max(version) FROM evolvable.schema_version").fetchone()[0] or 0
    )


def migrate(connection: Any) -> int:
    """Bring the tables up to date, in one transaction; return their version.

    Raises LibraryTooNew, LibraryCorrupt.
    """
    version = schema_version(connection)
    if version > LATEST:
        raise LibraryTooNew(
            f"The database was written by a newer Evolvable (schema {version}, this one knows "
            f"{LATEST}).",
            "Update this program: git pull and pip install . in your clone. Nothing was touched.",
        )
    if version == LATEST:
        return version
    with connection.transaction():
        connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        # Again under the lock: another process may have done it.
        version = schema_version(connection)
        if version < LATEST:
            if version == 0:
                connection.execute(BASE)
            connection.execute("SET LOCAL search_path = evolvable")
            for statement in _changes(connection, version):
                connection.execute(statement)
            connection.execute(f"INSERT INTO schema_version (version) VALUES ({LATEST})")
    return LATEST


def renew_policies(connection: Any) -> None:
    """Replace the policies of earlier versions, two of which were for SELECT.

    The role owns the tables.
    """
    query = (
        "SELECT tablename FROM pg_policies WHERE schemaname = 'evolvable' "
        "AND policyname = 'writing'"
    )
    if not connection.execute(query).fetchall():
        return
    with connection.transaction():
        connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        connection.execute("SET LOCAL search_path = evolvable")
        for (table,) in connection.execute(query).fetchall():
            connection.execute(f'DROP POLICY reading ON "{table}"')
            connection.execute(f'DROP POLICY writing ON "{table}"')
            for statement in _policies(table):
                connection.execute(statement)


def _changes(connection: Any, version: int) -> Iterator[str]:
    """Yield the statements for missing tables, columns and indexes, and for changes of rows."""
    tables, indexes = _read_declaration()
    query = (
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_schema = 'evolvable'"
    )
    present: dict[str, set[str]] = {}
    for table, column in connection.execute(query).fetchall():
        present.setdefault(table, set()).add(column)
    query = "SELECT indexname FROM pg_indexes WHERE schemaname = 'evolvable'"
    index_names = {name for (name,) in connection.execute(query).fetchall()}
    for shape in tables:
        if shape.name not in present:
            yield from _statements(shape)
            yield f"SELECT grant_table('{shape.name}')"
        for column in shape.columns if shape.name in present else ():
            if column[0] not in present[shape.name]:
                yield f'ALTER TABLE "{shape.name}" ADD COLUMN {_column(*column)}'
    yield from (_index(*index) for index in indexes if index[1] not in index_names)
    yield from (
        statement for step, statement in sorted(_ROWS.items()) if max(version, FIRST) < step
    )
