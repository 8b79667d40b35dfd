"""Read and write the configuration files of other programs.

A file is written whole, with a backup, and only where it can be read. Of a TOML text single keys
are changed, and every other line stays as it is. For JSON see `json_edit`.
"""

import contextlib
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_server.clients.json_edit import (
    EMPTY,
    JsonError,
    edit_json,
    line_and_column,
    parse_jsonc,
)
from evolvable_store import read_regular
from evolvable_store.errors import Conflict, EvolvableError, Invalid
from evolvable_store.workingcopy import link_out_of_repository

# tomlkit is imported in functions: every command loads this module, and few edit TOML.


def edit_toml(text: str, path: tuple[str, str], value: dict[str, Any] | None) -> str:
    """Return the text with the table `value` at `path`; None removes the table.

    Of an existing table only the keys that differ are changed. A new table comes last. Raise
    ValueError for a text that is no TOML. Raise it too when the result would not hold exactly the
    expected values, or would lack a comment.
    """
    before = tomllib.loads(text)
    expected = _set_table(before, path, value)
    # Before tomlkit is imported: most calls change nothing.
    if expected == before:
        return text
    document = _parse_document(text)
    outer, name = path
    comments = text
    try:
        if value is None:
            # By lines first: tomlkit counts the comments after a table as its own.
            after = comments = _remove_lines(text, outer, name)
            # A table without a header is still there: it is on one line, or has dotted keys.
            if name in tomllib.loads(after).get(outer, {}):
                document = _parse_document(after)
                del document[outer][name]
                after = document.as_string()
        elif name in before.get(outer, {}):
            # A table without a header of its own gets new tables inline: a header would belong to
            # the table above.
            header = _compile_header(outer, name)
            has_header = any(map(header.match, text.splitlines()))
            _update_table(document[outer][name], value, inline=not has_header)
            after = document.as_string()
        else:
            after = _append_table(text, document, outer, name, value)
    except (TypeError, AttributeError, KeyError) as error:
        # A value stands where a table should be.
        raise ValueError(f"{outer}.{name} is no table") from error
    after = _restore_newlines(text, after)
    # An edit that went wrong is refused, not written.
    _verify(comments, after, expected)
    return after


def _parse_document(text: str) -> Any:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ValueError(f"it cannot be edited: {error}") from error


def _set_table(
    before: dict[str, Any], path: tuple[str, str], value: dict[str, Any] | None
) -> dict[str, Any]:
    outer, name = path
    tables = dict(before.get(outer, {}))
    if value is None:
        if name not in tables:
            return before
        del tables[name]
        # A parent without further tables goes with the last one.
        rest = {key: table for key, table in before.items() if key != outer}
        return {**rest, outer: tables} if tables else rest
    return {**before, outer: {**tables, name: value}}


def _append_table(text: str, document: Any, outer: str, name: str, value: dict[str, Any]) -> str:
    """Return the text with a new table at its end.

    Where the tables are written on one line, it is added inside that line.
    """
    import tomlkit
    from tomlkit.items import InlineTable

    if isinstance(document.get(outer), InlineTable):
        document[outer][name] = value
        return str(document.as_string())
    between = "" if not text.strip() else "\n" if text.endswith("\n") else "\n\n"
    return f"{text}{between}{tomlkit.dumps({outer: {name: value}})}"


def _make_inline(value: dict[str, Any]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    for key, item in value.items():
        table[key] = _make_inline(item) if isinstance(item, dict) else item
    return table


def _update_table(table: Any, value: dict[str, Any], *, inline: bool) -> None:
    """Change the keys of a table that differ; its comments and their order stay."""
    for key in [key for key in table if key not in value]:
        del table[key]
    for key, item in value.items():
        if isinstance(item, dict) and isinstance(table.get(key), dict):
            _update_table(table[key], item, inline=inline)
        elif table.get(key) != item:
            table[key] = _make_inline(item) if inline and isinstance(item, dict) else item


def _compile_header(outer: str, name: str) -> re.Pattern[str]:
    """Return the pattern of the headers of a table and of the tables in it."""
    # `[outer.name]` and `[outer.name.below]`, with the spaces and quotes that TOML allows.
    return re.compile(rf"""\s*\[\s*["']?{outer}["']?\s*\.\s*["']?{re.escape(name)}["']?\s*[].]""")


def _remove_lines(text: str, outer: str, name: str) -> str:
    """Return the text without a table, the same text when the table has no header of its own.

    Comments between its keys go with them. Those after its last key stay: they belong to the next
    table.
    """
    header = _compile_header(outer, name)
    lines = text.splitlines(keepends=True)
    starts = [at for at, line in enumerate(lines) if header.match(line)]
    if not starts:
        return text
    # From the end, so that the numbers of earlier lines stay right.
    for start in reversed(starts):
        end = start + 1
        while end < len(lines) and not lines[end].lstrip().startswith("["):
            end += 1
        # Blank lines and comments before the next header belong to that one.
        while end > start + 1 and lines[end - 1].strip()[:1] in ("", "#"):
            end -= 1
        while end < len(lines) and not lines[end].strip():
            end += 1
        del lines[start:end]
    # After the last table, the blank lines before it go as well.
    if starts[-1] >= len(lines):
        while lines and not lines[-1].strip():
            lines.pop()
    return "".join(lines)


def _restore_newlines(before: str, after: str) -> str:
    # A file with the line ends of Windows keeps them.
    if "\r\n" in before and "\n" not in before.replace("\r\n", ""):
        return after.replace("\r\n", "\n").replace("\n", "\r\n")
    return after


def _verify(comments: str, after: str, expected: dict[str, Any]) -> None:
    """Raise ValueError unless the text has the expected values and every comment of `comments`."""
    try:
        values = tomllib.loads(after)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"the edited text would be broken: {error}") from error
    # An empty table that is left over counts as none.
    if {key: value for key, value in values.items() if value or key in expected} != expected:
        raise ValueError("the edited text does not hold what it should")
    lines = iter(after.splitlines())
    # `in` moves the iterator on, so the order of the comments is checked too.
    if not all(line in lines for line in comments.splitlines() if line.startswith("#")):
        raise ValueError("a comment would be lost")


MAX_BYTES = 64 * 1024 * 1024
"""Bytes of a configuration file; ~/.claude.json grows to megabytes."""


class ConfigurationBroken(Invalid):
    """A configuration file does not have the form that it should have.

    line, column: counted from 1; 0: not known.
    """

    def __init__(self, path: Path, what: str, line: int = 0, column: int = 0) -> None:
        where = f" at line {line}, column {column}" if line else ""
        super().__init__(
            f"{path} is broken{where}: {what}.",
            "It was left as it is. Fix it in an editor, or move it away, and try again.",
        )
        self.path, self.line, self.column = path, line, column


class ConfigurationNotWritten(EvolvableError):
    """A configuration file cannot be read or written; it is as it was."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration file as it was read.

    text: '' when it is absent. loose: the first thing that strict JSON does not have, its line and
    its column.
    """

    path: Path
    data: bytes | None
    text: str
    values: dict[str, object]
    loose: tuple[str, int, int] | None


def read_configuration(path: Path) -> Configuration:
    """Return a file as it is; TOML by its name, else JSON, with comments or without.

    An absent file is empty. Raise ConfigurationBroken, and ConfigurationNotWritten when it cannot
    be read.
    """
    data = _read_data(path)
    if data is None:
        return Configuration(path, None, "", {}, None)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        line, column = line_and_column(before, len(before))
        raise ConfigurationBroken(path, "it is not UTF-8", line, column) from None
    # A file with nothing but a byte order mark is empty.
    if not text.strip("\ufeff \t\r\n"):
        return Configuration(path, data, text, {}, None)
    values, loose = _parse_toml(path, text) if path.suffix == ".toml" else _parse_json(path, text)
    return Configuration(path, data, text, values, loose)


def parse_configuration(path: Path, text: str) -> Configuration:
    """Return a file as it would be with this text. Raise ConfigurationBroken."""
    if not text.strip("\ufeff \t\r\n"):
        return Configuration(path, None, text, {}, None)
    values, loose = _parse_toml(path, text) if path.suffix == ".toml" else _parse_json(path, text)
    return Configuration(path, None, text, values, loose)


def read_raw_configuration(path: Path) -> Configuration:
    """Return the bytes of a file; its text and values are empty. Raise ConfigurationNotWritten."""
    return Configuration(path, _read_data(path), "", {}, None)


def _read_data(path: Path) -> bytes | None:
    """Return the content of a file, None when it is absent. Raise ConfigurationNotWritten."""
    try:
        return read_regular(path, MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationNotWritten(
            f"{path} cannot be read: {error.strerror}.",
            "Check that it is a file, and its permissions.",
        ) from error


def _parse_toml(path: Path, text: str) -> tuple[dict[str, object], None]:
    try:
        return tomllib.loads(text), None
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        # tomllib puts the place at the end of its message.
        match = re.fullmatch(r"line (\d+), column (\d+)\)", place)
        if match:
            line, column = int(match[1]), int(match[2])
        else:
            line, column = line_and_column(text, len(text))
        raise ConfigurationBroken(path, what.lower(), line, column) from None


def _parse_json(path: Path, text: str) -> tuple[dict[str, object], tuple[str, int, int] | None]:
    with report_edit_errors(path, text):
        document = parse_jsonc(text)
    if not isinstance(document.root.value, dict):
        raise ConfigurationBroken(
            path, "it should be an object in braces", *line_and_column(text, document.root.start)
        )
    if document.loose is None:
        return document.root.value, None
    what, at = document.loose
    return document.root.value, (what, *line_and_column(text, at))


def edit_configuration(
    configuration: Configuration, path: tuple[str, ...], value: dict[str, object] | None
) -> str:
    """Return the text of a file with an entry in it, or without it; everything else as it is.

    Raise ConfigurationBroken where an edit would change something else.
    """
    with report_edit_errors(configuration.path, configuration.text):
        if configuration.path.suffix == ".toml":
            outer, name = path
            return edit_toml(configuration.text, (outer, name), value)
        empty = not configuration.text.strip("\ufeff \t\r\n")
        return edit_json(EMPTY if empty else configuration.text, path, value)


@contextlib.contextmanager
def report_edit_errors(path: Path, text: str) -> Iterator[None]:
    """Turn the errors of parsing and editing a text in the body into ConfigurationBroken."""
    try:
        yield
    except JsonError as error:
        raise ConfigurationBroken(path, str(error), *line_and_column(text, error.at)) from None
    except ValueError as error:
        raise ConfigurationBroken(path, str(error)) from None


def write_configuration(
    configuration: Configuration,
    text: str | bytes,
    *,
    private: bool,
    stamp: str,
    backup: bool = True,
) -> Path | None:
    """Replace a file by `text`, at once and with its mode.

    Return the backup beside it, None for a new file. Where the path is a link, its target is
    replaced. private: a new file is for its owner alone. backup: whether one is made. Raise
    ConfigurationNotWritten, and Conflict when another program wrote the file since it was read.
    """
    target = _resolve_target(configuration.path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # The copy first: it is on disk before the file changes.
        copy = (
            _back_up(configuration, target, stamp)
            if configuration.data is not None and backup
            else None
        )
        data = text if isinstance(text, bytes) else text.encode("utf-8")
        _replace_file(configuration, target, data, 0o600 if private else None)
    except OSError as error:
        raise ConfigurationNotWritten(
            f"{configuration.path} cannot be written: {error.strerror}.",
            "Check the permissions of its folder; nothing changed.",
        ) from error
    return copy


def _resolve_target(path: Path) -> Path:
    """Return the file that a path leads to.

    A person's own link, as into a folder of dotfiles, is followed. Raise ConfigurationNotWritten
    for a link in a repository that leads out of it: anybody may have committed it.
    """
    if leaving := link_out_of_repository(path):
        link, repository = leaving
        raise ConfigurationNotWritten(
            f"{link} is a symbolic link that leads out of the repository {repository}; it is not "
            "written through.",
            "Remove the link, or name another scope.",
        )
    return Path(os.path.realpath(path))


def back_up_configuration(configuration: Configuration, stamp: str) -> Path | None:
    """Return a copy of a file beside it, None when it is absent. Raise ConfigurationNotWritten."""
    if configuration.data is None:
        return None
    try:
        return _back_up(configuration, _resolve_target(configuration.path), stamp)
    except OSError as error:
        raise ConfigurationNotWritten(
            f"{configuration.path} cannot be backed up: {error.strerror}.",
            "Check the permissions of its folder.",
        ) from error


def _back_up(configuration: Configuration, target: Path, stamp: str) -> Path:
    assert configuration.data is not None
    # A number after the time, for several changes within a second.
    for number in range(1, 1000):
        suffix = f"-{number}" if number > 1 else ""
        copy = target.with_name(f"{target.name}.backup-{stamp}{suffix}")
        with contextlib.suppress(FileExistsError):
            _write_new(copy, configuration.data, stat.S_IMODE(target.stat().st_mode))
            return copy
    raise FileExistsError(17, "there are too many backups", str(target))


def _replace_file(
    configuration: Configuration, target: Path, data: bytes, mode: int | None
) -> None:
    # In the same folder, so that the exchange is one rename.
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    with contextlib.suppress(FileNotFoundError):
        # A file that is there keeps its mode.
        mode = stat.S_IMODE(target.stat().st_mode)
    try:
        _write_new(beside, data, mode)
        # As late as possible: what another program wrote meanwhile must not be lost.
        if _read_data(target) != configuration.data:
            raise Conflict(
                f"{configuration.path} was written by another program just now.",
                "Nothing changed; try again.",
            )
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _write_new(path: Path, data: bytes, mode: int | None) -> None:
    # O_BINARY: without it, Windows changes line ends.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, mode or 0o666)
    with open(descriptor, "wb") as file:
        # The umask took bits away when the file was created.
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        # Before the rename: after a power cut the file is the old or the new one, never an empty
        # one.
        os.fsync(descriptor)
