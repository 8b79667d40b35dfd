"""The table with the vectors of texts, in a database that has pgvector.

The role that owns the schema makes it.
"""

from typing import Any

from psycopg import Connection, sql

from evolvable_teams.postgres.schema import protect

TABLE = "embedding"

# Guards the making of the table: one process at a time. The letters "EVLW".
_LOCK = 0x45564C57

_FIND = """SELECT (SELECT n.nspname FROM pg_extension e JOIN pg_namespace n
    ON n.oid = e.extnamespace
        WHERE e.extname = 'vector'),
    EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = 'evolvable' AND tablename = 'embedding')"""

# The values have no fixed number of dimensions: a project may have vectors of several models.
_MAKE = """CREATE TABLE evolvable.embedding (
    model text COLLATE "C" NOT NULL, hash bytea NOT NULL, value {vector} NOT NULL, tokens bytea,
    project bigint NOT NULL DEFAULT evolvable.visible_project(), PRIMARY KEY (project, model,
    hash))"""


def make_table(raw: Connection[Any]) -> None:
    """Make the table where the database has pgvector and no table. The role owns the schema."""
    namespace, exists = look_for_table(raw)
    if namespace is None or exists:
        return
    with raw.transaction():
        raw.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        if look_for_table(raw)[1]:
            return
        raw.execute(with_type(_MAKE, namespace))
        raw.execute("SET LOCAL search_path = evolvable")
        for statement in protect(TABLE):
            raw.execute(statement.encode())
        raw.execute(f"SELECT grant_table('{TABLE}')")


def look_for_table(raw: Connection[Any]) -> tuple[str | None, bool]:
    """Return the schema of the extension, None without it, and whether the table exists."""
    row = raw.execute(_FIND).fetchone()
    assert row is not None
    return row[0], bool(row[1])


def with_type(statement: str, namespace: str) -> bytes:
    """Return a statement with the names of pgvector's type and function in this schema."""
    names = {
        "vector": sql.Identifier(namespace, "vector"),
        "send": sql.Identifier(namespace, "vector_send"),
    }
    used = {name: value for name, value in names.items() if f"{{{name}}}" in statement}
    return sql.SQL(statement).format(**used).as_bytes(None)
