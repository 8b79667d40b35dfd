"""Changes single keys of a TOML text, and leaves every other line as it is."""

import re
import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Table


class TomlError(Exception):
    """The text is no TOML. line, column: where that shows, from 1; 0 when it is not known."""

    def __init__(self, what: str, line: int, column: int) -> None:
        super().__init__(what)
        self.line, self.column = line, column


def read(text: str) -> dict[str, Any]:
    """Returns what a text holds. Raises TomlError."""
    _parsed(text)
    return tomllib.loads(text)


def changed(text: str, path: tuple[str, str], value: dict[str, Any] | None) -> str:
    """Returns the text with the table `value` at `path`; None takes the table out.

    Of a table that is there only the keys that differ are touched; a new one comes last. Raises TomlError, and
    ValueError when the result would not hold exactly what it should, or lack a comment.
    """
    document = _parsed(text)
    before = tomllib.loads(text)
    expected = _with(before, path, value)
    if expected == before:
        return text
    outer, name = path
    tables, comments = before.get(outer, {}), text
    try:
        if value is None:
            after = comments = _without_lines(text, outer, name)
            if name in tomllib.loads(after).get(outer, {}):  # on one line, or with dots
                document = _parsed(after)
                del _below(document, outer)[name]
                after = document.as_string()
        elif name in tables:
            dotted = not any(map(_header(outer, name).match, text.splitlines()))
            _update(_below(document, outer)[name], value, dotted=dotted)
            after = document.as_string()
        else:
            after = _appended(text, document, outer, name, value)
    except (TypeError, AttributeError, KeyError) as error:  # a value where a table should be
        raise ValueError(f"{outer}.{name} is no table") from error
    after = _with_newlines_of(text, after)
    _verify(comments, after, expected)
    return after


def _parsed(text: str) -> "TOMLDocument":
    import tomlkit
    from tomlkit.exceptions import ParseError, TOMLKitError

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, column = 0, 0
        try:
            tomlkit.parse(text)
        except ParseError as places:
            line, column = places.line, places.col + 1
        except TOMLKitError:
            pass
        raise TomlError(str(error).partition(" (at ")[0].lower(), *_place(error, line, column)) from None
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ValueError(f"it cannot be edited: {error}") from error


def _place(error: tomllib.TOMLDecodeError, line: int, column: int) -> tuple[int, int]:
    """Returns line and column of an error: as tomllib tells them in its message, else those that are given."""
    told = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    return (int(told[1]), int(told[2])) if told else (line, column)


def _with(before: dict[str, Any], path: tuple[str, str], value: dict[str, Any] | None) -> dict[str, Any]:
    outer, name = path
    tables = dict(before.get(outer, {}))
    if value is None:
        if name not in tables:
            return before
        del tables[name]
        rest = {key: table for key, table in before.items() if key != outer}
        return {**rest, outer: tables} if tables else rest
    return {**before, outer: {**tables, name: value}}


def _below(document: "TOMLDocument", outer: str) -> Any:
    return document[outer]


def _appended(text: str, document: "TOMLDocument", outer: str, name: str, value: dict[str, Any]) -> str:
    """Returns the text with a new table at its end; inside, when the tables are written on one line."""
    import tomlkit
    from tomlkit.items import InlineTable

    tables = document.get(outer)
    if isinstance(tables, InlineTable):
        tables[name] = _inline(value)
        return document.as_string()
    new = tomlkit.document()
    new[outer] = tomlkit.table(is_super_table=True)
    _below(new, outer)[name] = _table(value)
    between = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{between}{new.as_string()}"


def _inline(value: dict[str, Any]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    for key, item in value.items():
        table[key] = _inline(item) if isinstance(item, dict) else item
    return table


def _table(value: dict[str, Any]) -> "Table":
    import tomlkit

    table = tomlkit.table()
    for key, item in value.items():
        table[key] = _table(item) if isinstance(item, dict) else item
    return table


def _update(table: Any, value: dict[str, Any], *, dotted: bool) -> None:
    """Changes a table in place. dotted: it has no header, so a new table in it would belong to the one above."""
    from tomlkit.items import InlineTable

    made = _inline if dotted or isinstance(table, InlineTable) else _table
    for key in [key for key in table if key not in value]:
        del table[key]
    for key, item in value.items():
        if key not in table:
            table[key] = made(item) if isinstance(item, dict) else item
        elif isinstance(item, dict) and isinstance(table[key], dict):
            _update(table[key], item, dotted=dotted)
        elif table[key] != item:
            table[key] = item


def _header(outer: str, name: str) -> re.Pattern[str]:
    """Returns what finds the headers of a table and of those in it."""
    return re.compile(rf"""\s*\[\s*["']?{outer}["']?\s*\.\s*["']?{re.escape(name)}["']?\s*[].]""")


def _without_lines(text: str, outer: str, name: str) -> str:
    """Returns the text without a table, the same text when it has no header of its own.

    Comments between its keys go with them; those after its last key stay, they belong to what follows.
    """
    header = _header(outer, name)
    lines = text.splitlines(keepends=True)
    starts = [at for at, line in enumerate(lines) if header.match(line)]
    if not starts:
        return text
    for start in reversed(starts):
        end = next((at for at in range(start + 1, len(lines)) if lines[at].lstrip().startswith("[")), len(lines))
        while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
            end -= 1
        while end < len(lines) and not lines[end].strip():
            end += 1
        del lines[start:end]
    if starts[-1] >= len(lines):  # it was the last: the blank lines before it go as well
        while lines and not lines[-1].strip():
            lines.pop()
    return "".join(lines)


def _with_newlines_of(before: str, after: str) -> str:
    if "\r\n" in before and "\n" not in before.replace("\r\n", ""):
        return after.replace("\r\n", "\n").replace("\n", "\r\n")
    return after


def _verify(comments: str, after: str, expected: dict[str, Any]) -> None:
    """Raises ValueError unless the text holds what it should, and every comment line of `comments`."""
    try:
        found = tomllib.loads(after)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"the edited text would be broken: {error}") from error
    if {key: value for key, value in found.items() if value or key in expected} != expected:
        raise ValueError("the edited text does not hold what it should")
    lines = iter(after.splitlines())
    if not all(line in lines for line in comments.splitlines() if line.startswith("#")):
        raise ValueError("a comment would be lost")
