"""Translate the statements of the repositories, which are SQLite's, to PostgreSQL's.

The repositories keep to statements that both databases know. What remains differs in spelling only:
placeholders, `IS` between values, and SQLite's `INSERT OR`. Functions that PostgreSQL lacks, such
as `json_each` of a text, are made in the schema (`schema.py`).
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

_KEYS = {
    "held": ("folder, directory", "tree, proposal, at"),
    "baseline": ("key", "operation, digest, signature"),
    "looked": ("sha256", "rules, found"),
    "accepted": ("id", "at, actor, reason"),
    "remote": ("name, url", "library, tip, seen, sequence, at"),
    "taken": (
        "session",
        "client, digest, spans, at, model, outcome, signals, witnessed, origin, task_type",
    ),
    "learned_change": ("resource", ""),
}
"""Of the tables that are written with INSERT OR REPLACE: the key, and the other columns."""

LOCAL_TABLES = frozenset(("folder", "binding", "held", "vouched", "baseline", "listing"))
"""Tables whose rows belong to one home, that of a person on a machine.

They hold its folders, what the person trusts, and what the clients there list.
"""

# A quoted text is matched first, so that a `?` or `:name` inside it is left alone.
_TOKEN = re.compile(r"'(?:[^']|'')*'|\?(\d*)|(?<![:\w]):([a-z_]\w*)")
_REPLACE = re.compile(r"^\s*INSERT OR REPLACE INTO (\w+)(.*)$", re.DOTALL)
_IGNORE = re.compile(r"^\s*INSERT OR IGNORE INTO (.*)$", re.DOTALL)
_CONFLICT = re.compile(r"ON CONFLICT \(")
_SPELLINGS = (
    (re.compile(r"\bIS NOT (?!NULL\b|DISTINCT\b)"), "IS DISTINCT FROM "),
    (re.compile(r"\bIS (?!NULL\b|NOT\b|DISTINCT\b)"), "IS NOT DISTINCT FROM "),
    (re.compile(r"(?<![\w.])counts(?= (?:AND|OR)\b)"), "counts = 1"),
    (re.compile(r"\+r\."), "r."),
    (re.compile(r"\bCAST\(value AS INTEGER\)"), "CAST(value AS bigint)"),
    (re.compile(r"\bLIKE\b"), "ILIKE"),
    (re.compile(r"""(?<!")\bplacing\b"""), '"placing"'),
)


def is_pragma(statement: str) -> bool:
    """Return whether a statement sets something of SQLite's file. PostgreSQL has no such file."""
    return statement.startswith("PRAGMA ")


def bind(
    values: Sequence[Any] | Mapping[str, Any],
) -> tuple[tuple[str, ...] | int, tuple[Any, ...]]:
    """Return the names of the parameters, or how many there are, and their values in order.

    A bool becomes a number, as in SQLite, and a text of an enumeration a plain text.
    """
    if isinstance(values, Mapping):
        return tuple(values), tuple(map(_to_plain, values.values()))
    return len(values), tuple(map(_to_plain, values))


def _to_plain(value: Any) -> Any:
    # The columns are bigint, and PostgreSQL has no implicit cast from boolean.
    if isinstance(value, bool):
        return int(value)
    # The driver would look for a dumper of the enumeration's class.
    return str(value) if isinstance(value, str) else value


@lru_cache(maxsize=2048)
def translate(
    statement: str, names: tuple[str, ...] | int, nulls: int
) -> tuple[bytes, tuple[int, ...]]:
    """Return a statement in PostgreSQL's spelling, and which values it takes, by position.

    names: of the parameters, or how many positions there are. nulls: a bit for each value that is
    None; these stand in the statement: PostgreSQL cannot infer the type of a NULL parameter.
    """
    text = _translate_upsert(statement)
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    order: list[int] = []
    last = 0

    def place(match: re.Match[str]) -> str:
        nonlocal last
        if match[0].startswith("'"):
            return match[0]
        if match[2] is not None:
            if not isinstance(names, tuple):
                raise ValueError(f"the parameter {match[2]} has no value")
            position = names.index(match[2])
        else:
            position = int(match[1]) - 1 if match[1] else last
            last = max(last, position + 1)
        if nulls >> position & 1:
            return "NULL"
        if position not in order:
            order.append(position)
        return f"${order.index(position) + 1}"

    return _TOKEN.sub(place, text).encode(), tuple(order)


def _translate_upsert(statement: str) -> str:
    """Return a statement with INSERT OR and ON CONFLICT as PostgreSQL has them."""
    if match := _IGNORE.match(statement):
        return f"INSERT INTO {match[1]} ON CONFLICT DO NOTHING"
    if match := _REPLACE.match(statement):
        key, others = _KEYS[match[1]]
        columns = [column for column in others.split(", ") if column]
        changes = ", ".join(f"{column} = excluded.{column}" for column in columns)
        target = f"{_scope_of(match[1])}, {key}"
        # A row of learned_change that replaces another one takes the next number, as in SQLite.
        return (
            f"INSERT INTO {match[1]}{match[2]} ON CONFLICT ({target}) DO UPDATE "
            f"SET {changes or 'sequence = DEFAULT'}"
        )
    if "ON CONFLICT (" in statement:
        return _CONFLICT.sub("ON CONFLICT (project, ", statement)
    return statement


def _scope_of(table: str) -> str:
    return "project, home" if table in LOCAL_TABLES else "project"
