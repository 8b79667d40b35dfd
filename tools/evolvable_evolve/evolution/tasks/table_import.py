"""Make a task set of a table, a CSV file or lines of JSON, with a question and an answer a row."""

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.executors import parse_strict_json
from evolvable_evolve.evolution.tasks.reader import (
    ENVIRONMENT_FILE,
    LINES,
    read_taskset,
    split_lines,
)
from evolvable_store import read_regular
from evolvable_store.errors import InvalidArgument, quote_text
from evolvable_store.resource import Kind, Ref, slugify

MAX_TABLE = 16 * 2**20
"""The most bytes of a table that is read."""

MAX_ROWS = 10_000  # of a table; a run on a larger one would cost too much
_MAX_FIELD = 2**20  # characters of one cell
_ABOUT = """---
name: {name}
description: Questions and answers of the table {table}.
---

Made by `evolvable evolve taskset import`.
"""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table by their use.

    category, id: '' without a column for it. scorer: of every task.
    """

    question: str
    answer: str
    category: str = ""
    id: str = ""
    scorer: str = "numeric_strict"


@dataclass(frozen=True)
class ImportedTable:
    """A task set made of a table.

    skipped: rows that are empty, or repeat question and answer of an earlier row.
    """

    ref: str
    tasks: int
    skipped: int
    version: int | None = None
    proposal: int | None = None


def read_table(
    path: Path, columns: TableColumns, name: str = ""
) -> tuple[Ref, dict[str, bytes], ImportedTable]:
    """Return the environment of a table: its ref, its files, and the numbers of its rows.

    Raises InvalidArgument for a table that cannot be read, InvalidTaskSet with every row that is no
    task.
    """
    name = name or slugify(path.stem) or "tasks"
    if slugify(name) != name:
        raise InvalidArgument(
            f"{quote_text(name)} is no name of an environment.", f"Such as {slugify(name)}."
        )
    records, skipped = list[dict[str, Any]](), 0
    earlier = set[tuple[str, str]]()
    for row in table_rows(path):
        _check_columns(row, columns)
        question = _format_cell(row.get(columns.question))
        answer = _format_cell(row.get(columns.answer))
        if not question or not answer or (question, answer) in earlier:
            skipped += 1
            continue
        earlier.add((question, answer))
        records.append(_make_record(row, question, answer, columns))
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    about = _ABOUT.format(name=name, table=json.dumps(path.name)[1:-1])
    files = {ENVIRONMENT_FILE: about.encode(), LINES: lines.encode("utf-8", "replace")}
    # Read once, so that every row that is no task is reported now.
    read_taskset(name, files)
    ref = Ref(Kind.ENVIRONMENT, name)
    return ref, files, ImportedTable(str(ref), len(records), skipped)


def table_header(path: Path) -> list[str]:
    """Return the names of a table's columns.

    Raises InvalidArgument for a table that cannot be read.
    """
    return list(next(iter(_iter_rows(path, _read_text(path))), {}))


def table_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table by the names of its columns.

    Raises InvalidArgument for one that cannot be read.
    """
    for number, row in enumerate(_iter_rows(path, _read_text(path)), 1):
        if number > MAX_ROWS:
            raise InvalidArgument(f"{path} has more than {MAX_ROWS:,} rows.", "Divide it.")
        yield row


def _read_text(path: Path) -> str:
    try:
        size = path.stat().st_size
        # By its size first, so that a huge file is never read.
        if size > MAX_TABLE:
            raise InvalidArgument(f"{path} has {size:,} bytes.", f"At most {MAX_TABLE:,} are read.")
        text = read_regular(path, MAX_TABLE).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        hint = "It is a CSV file or lines of JSON, in UTF-8."
        raise InvalidArgument(f"{path} cannot be read: {error}.", hint) from None
    return text


def _iter_rows(path: Path, text: str) -> Iterator[Mapping[str, Any]]:
    if path.suffix.casefold() in (".jsonl", ".ndjson"):
        for number, line in enumerate(split_lines(text), 1):
            if line.strip():
                yield _parse_line(line, number)
        return
    # The limit is the whole process's, so it is set back.
    limit = csv.field_size_limit(_MAX_FIELD)
    try:
        delimiter = "\t" if path.suffix.casefold() == ".tsv" else ","
        yield from _iter_cells(io.StringIO(text, newline=""), delimiter)
    except csv.Error as error:
        raise InvalidArgument(
            f"{path} is no CSV file: {error}.", "Lines of JSON end in .jsonl."
        ) from None
    finally:
        csv.field_size_limit(limit)


def _iter_cells(text: io.StringIO, delimiter: str) -> Iterator[Mapping[str, Any]]:
    """Yield each row by the names of the header.

    Raises csv.Error for a quote that nothing closes, for a row with more cells than the header, and
    for two columns of one name: the following cells would be read as something else.
    """
    rows = csv.reader(text, delimiter=delimiter, strict=True)
    names = next(rows, [])
    if twice := next((name for name in names if name and names.count(name) > 1), ""):
        raise csv.Error(f"the header names the column {ascii(twice[:60])} twice")
    for cells in rows:
        if len(cells) > len(names):
            raise csv.Error(
                f"line {rows.line_num} has {len(cells)} cells, and the header {len(names)}"
            )
        if cells:
            yield dict(zip_longest(names, cells, fillvalue=""))


def _format_cell(value: Any) -> str:
    """Return the text of a cell, '' for None, JSON for any other value."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.strip()


def _parse_line(line: str, number: int) -> Mapping[str, Any]:
    try:
        row = parse_strict_json(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"Line {number} is no JSON: {error}.", "Each line is one object."
        ) from None
    if not isinstance(row, dict):
        raise InvalidArgument(f"Line {number} is no JSON object.", "Each line is one object.")
    return row


def _check_columns(row: Mapping[str, Any], columns: TableColumns) -> None:
    for column in filter(None, (columns.question, columns.answer, columns.category, columns.id)):
        if column not in row:
            names = ", ".join(str(name)[:40] for name in list(row)[:20] if name is not None)
            raise InvalidArgument(
                f"There is no column {ascii(column[:60])}.", f"The columns: {names}."
            )


def _make_record(
    row: Mapping[str, Any], question: str, answer: str, columns: TableColumns
) -> dict[str, Any]:
    if columns.id:
        id_ = _format_cell(row[columns.id])
    else:
        # From its content, so that the same row has the same id in the next import.
        content = f"{question}\n{answer}".encode("utf-8", "replace")
        id_ = f"row-{hashlib.sha256(content).hexdigest()[:12]}"
    record: dict[str, Any] = {"id": id_, "prompt": question}
    record |= {"expected": answer, "scorer": columns.scorer}
    if columns.category and (category := _format_cell(row[columns.category])):
        record["category"] = category[:100]
    return record
