"""Reads and writes the configuration files of other programs: whole, with a backup, never over what it cannot read."""

import contextlib
import errno
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from evolvable_server.clients import json_edit, jsonc, toml_edit
from evolvable_store.errors import Conflict, EvolvableError, Invalid
from evolvable_store.workingcopy.openat import first_link

MAX_BYTES = 64 * 1024 * 1024
"""What a configuration file may hold; ~/.claude.json can have grown to megabytes."""


class ConfigurationBroken(Invalid):
    """A configuration file cannot be read as what it should be. line and column count from 1; 0: not known."""

    def __init__(self, path: Path, what: str, line: int = 0, column: int = 0) -> None:
        where = f" at line {line}, column {column}" if line else ""
        super().__init__(
            f"{path} is broken{where}: {what}.",
            "It was left as it is. Mend it in an editor, or move it away, and try again.",
        )
        self.path, self.line, self.column = path, line, column


class ConfigurationNotWritten(EvolvableError):
    """A configuration file cannot be read or written; it is as it was."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration file as it was read. text is '' when it is absent. loose: what a strict reader stumbles over."""

    path: Path
    data: bytes | None
    text: str
    values: dict[str, object]
    loose: tuple[str, int, int] | None


def read(path: Path) -> Configuration:
    """Returns a file as it is; TOML by its name, else JSON, with comments or without. An absent or empty one is empty.

    Raises ConfigurationBroken, ConfigurationNotWritten when it cannot be read.
    """
    data = _data(path)
    if data is None:
        return Configuration(path, None, "", {}, None)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = jsonc.position(data[: error.start].decode("utf-8"), error.start)
        raise ConfigurationBroken(path, "it is not UTF-8", line, column) from None
    if not text.strip("\ufeff \t\r\n"):
        return Configuration(path, data, text, {}, None)
    values, loose = _toml(path, text) if path.suffix == ".toml" else _json(path, text)
    return Configuration(path, data, text, values, loose)


def raw(path: Path) -> Configuration:
    """Returns a file whose bytes alone matter; its text and values are empty. Raises ConfigurationNotWritten."""
    return Configuration(path, _data(path), "", {}, None)


def _data(path: Path) -> bytes | None:
    """Returns the content of a file, None when it is absent. Raises ConfigurationNotWritten."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
            raise OSError(errno.EINVAL, "it is not a file")
        if status.st_size > MAX_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MAX_BYTES:,} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationNotWritten(
            f"{path} cannot be read: {error.strerror}.", "Check that it is a file, and its permissions."
        ) from error


def _toml(path: Path, text: str) -> tuple[dict[str, object], None]:
    try:
        return toml_edit.read(text), None
    except toml_edit.TomlError as error:
        raise ConfigurationBroken(path, str(error), error.line, error.column) from None
    except ValueError as error:
        raise ConfigurationBroken(path, str(error)) from None


def _json(path: Path, text: str) -> tuple[dict[str, object], tuple[str, int, int] | None]:
    try:
        document = jsonc.read(text)
    except jsonc.JsonError as error:
        raise ConfigurationBroken(path, str(error), *jsonc.position(text, error.at)) from None
    if not isinstance(document.root.value, dict):
        raise ConfigurationBroken(path, "it should be an object in braces", *jsonc.position(text, document.root.start))
    loose = (document.loose[0], *jsonc.position(text, document.loose[1])) if document.loose else None
    return document.root.value, loose


def changed(found: Configuration, path: tuple[str, str], value: dict[str, object] | None) -> str:
    """Returns the text of a file with an entry in it, or without it; everything else as it is.

    Raises ConfigurationBroken when there is no way to do that without touching anything else.
    """
    try:
        if found.path.suffix == ".toml":
            return toml_edit.changed(found.text, path, value)
        empty = not found.text.strip("\ufeff \t\r\n")
        return json_edit.changed(json_edit.EMPTY if empty else found.text, path, value)
    except jsonc.JsonError as error:
        raise ConfigurationBroken(found.path, str(error), *jsonc.position(found.text, error.at)) from None
    except ValueError as error:
        raise ConfigurationBroken(found.path, str(error)) from None


def write(found: Configuration, text: str | bytes, *, private: bool, stamp: str, backup: bool = True) -> Path | None:
    """Puts `text` in the place of a file, at once and with its mode; returns the backup beside it, None for a new file.

    Where the path is a link, what it points to is replaced. private: a new file is for its owner alone. backup: whether
    one is made. Raises Conflict when another program wrote the file since it was read, ConfigurationNotWritten.
    """
    target = _target(found.path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = _back_up(found, target, stamp) if found.data is not None and backup else None
        _replace(found, target, text if isinstance(text, bytes) else text.encode("utf-8"), 0o600 if private else None)
    except OSError as error:
        raise ConfigurationNotWritten(
            f"{found.path} cannot be written: {error.strerror}.",
            "Check the permissions of its folder; nothing changed.",
        ) from error
    return copy


def _target(path: Path) -> Path:
    """Return the file that a path leads to. Raise ConfigurationNotWritten for a link that leads out of a repository.

    A person's own link, as into a folder of dotfiles, is followed; one that a repository brings decides nothing.
    """
    target = Path(os.path.realpath(path))
    link = first_link(Path(os.path.abspath(path)))
    repository = next((above for above in link.parents if (above / ".git").exists()), None) if link else None
    if repository is not None and not target.is_relative_to(os.path.realpath(repository)):
        raise ConfigurationNotWritten(
            f"{link} is a symbolic link that leads out of the repository {repository}; it is not written through.",
            "Remove the link, or name another scope.",
        )
    return target


def back_up(found: Configuration, stamp: str) -> Path | None:
    """Returns a copy of a file beside it, None when it is absent. Raises ConfigurationNotWritten."""
    if found.data is None:
        return None
    try:
        return _back_up(found, _target(found.path), stamp)
    except OSError as error:
        raise ConfigurationNotWritten(
            f"{found.path} cannot be backed up: {error.strerror}.", "Check the permissions of its folder."
        ) from error


def _back_up(found: Configuration, target: Path, stamp: str) -> Path:
    assert found.data is not None
    for number in range(1, 1000):
        copy = target.with_name(f"{target.name}.backup-{stamp}{f'-{number}' if number > 1 else ''}")
        with contextlib.suppress(FileExistsError):
            _write_new(copy, found.data, stat.S_IMODE(target.stat().st_mode))
            return copy
    raise FileExistsError(17, "there are too many backups", str(target))


def _replace(found: Configuration, target: Path, data: bytes, mode: int | None) -> None:
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(target.stat().st_mode)
    try:
        _write_new(beside, data, mode)
        if _content(target) != found.data:
            raise Conflict(f"{found.path} was written by another program just now.", "Nothing changed; try again.")
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write_new(path: Path, data: bytes, mode: int | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode or 0o666)
    with open(descriptor, "wb") as file:
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
