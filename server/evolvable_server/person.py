"""The person's own configuration: what no environment variable, project or agent can loosen.

It is one TOML file of the operating system's account, found by the account database and not by HOME, because a
project's configuration of a client can set HOME. Nothing but the commands of a person at a terminal writes it.
"""

import os
import stat
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_store.errors import InvalidArgument, Refused

FILE = Path(".config/evolvable/config.toml")
"""Where the file lies below the account's home directory."""

LEVELS = ("off", "guarded", "all")
"""Which changes of an agent wait for a person, from none to every one."""

ROLES = ("executors", "scorers", "judges", "reviewers", "proposers")
"""The tables of commands that a person names."""

MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a person named. argv: the argument list. folder: where it runs, '' for the caller's choice."""

    name: str
    argv: tuple[str, ...]
    folder: str = ""


@dataclass(frozen=True, slots=True)
class PersonConfig:
    """The settings of the person whose account this is.

    path: the file, None when the account has no home directory. approve: one of LEVELS. homes: libraries that may lie
    in a work tree or belong to another account. commands: by role (see ROLES) and name. trusted: folders of
    repositories whose resources the person trusts. models: addresses of models by provider. sandbox, budgets: tables
    as they stand in the file.
    """

    path: Path | None
    approve: str = "guarded"
    homes: tuple[Path, ...] = ()
    commands: Mapping[str, Mapping[str, Command]] = field(default_factory=dict)
    trusted: tuple[Path, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    budgets: Mapping[str, Any] = field(default_factory=dict)

    def command(self, role: str, name: str) -> Command | None:
        """Return the command of this role and name, None when the person named none."""
        return self.commands.get(role, {}).get(name)


def account_home() -> Path | None:
    """Return the home directory of the account that runs this process, None when the account has none."""
    if sys.platform == "win32":
        return _windows_profile()
    import pwd  # not on Windows

    try:
        folder = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return None
    return folder if folder.is_absolute() else None


def config_path() -> Path | None:
    """Return where the person's configuration lies, or would lie; None when the account has no home directory."""
    home = account_home()
    return home / FILE if home is not None else None


def read_person_config() -> PersonConfig:
    """Return the person's configuration; the defaults when there is no file.

    Raise Refused when others can write the file, InvalidArgument when it cannot be read as settings.
    """
    path = config_path()
    text = _read(path) if path is not None else None
    if path is None or text is None:
        return PersonConfig(path)
    try:
        return _config(path, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, _Wrong) as error:
        raise InvalidArgument(f"{path} is not valid: {error}.", "Correct the file; no default replaces it.") from None


def stricter(one: str, other: str) -> str:
    """Return the stricter of two levels."""
    return max(one, other, key=LEVELS.index)


def note_trusted(folder: Path) -> None:
    """Add a folder to those that the person trusts. Raise Refused when the account has no configuration."""
    _change_trusted(folder, wanted=True)


def withdraw_trusted(folder: Path) -> None:
    """Take a folder out of those that the person trusts."""
    _change_trusted(folder, wanted=False)


def _change_trusted(folder: Path, *, wanted: bool) -> None:
    import tomlkit

    path = config_path()
    if path is None:
        raise Refused("This account has no home directory, so it has no configuration.")
    read_person_config()  # refuse what cannot be read, before anything is written
    document = tomlkit.parse(_read(path) or "")
    kept = [one for one in document.get("trusted", []) if one.get("folder") != str(folder)]
    if wanted:
        kept.append({"folder": str(folder)})
    if len(kept) == len(document.get("trusted", [])) and not wanted:
        return
    document.pop("trusted", None)
    if kept:
        tables = tomlkit.aot()
        for one in kept:
            table = tomlkit.table()
            table.update(one)
            tables.append(table)
        document.append("trusted", tables)
    _write(path, tomlkit.dumps(document))


def _write(path: Path, text: str) -> None:
    """Replace the configuration in one step; only its owner can read or write it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


class _Wrong(ValueError):
    """A value of the file has the wrong type or is not allowed."""


def _read(path: Path) -> str | None:
    try:
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            _check_owner(path, status)
            if status.st_size > MAX_BYTES:
                raise InvalidArgument(f"{path} has {status.st_size:,} bytes; the limit is {MAX_BYTES:,}.")
            return stream.read(MAX_BYTES + 1).decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8 text.", "Correct the file; no default replaces it.") from None
    except OSError as error:
        hint = "Give its owner the right to read it; no default replaces it."
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}.", hint) from None


def _check_owner(path: Path, status: os.stat_result) -> None:
    if os.name != "posix":
        return
    if status.st_uid not in (os.geteuid(), 0):
        raise Refused(f"{path} belongs to user {status.st_uid}, not to this account.", "Remove it, or take it over.")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Refused(f"{path} can be written by other accounts.", f"Run: chmod 600 {path}")


def _config(path: Path, table: Mapping[str, Any]) -> PersonConfig:
    approve = table.get("approve", "guarded")
    if approve not in LEVELS:
        raise _Wrong(f"approve is {approve!r}, and must be one of {', '.join(LEVELS)}")
    trusted = [_text(one, "folder", "trusted") for one in _tables(table, "trusted")]
    return PersonConfig(
        path,
        approve,
        tuple(Path(_text({"home": one}, "home", "homes")) for one in _list(table, "homes")),
        {role: {name: _command(role, name, one) for name, one in _table(table, role).items()} for role in ROLES},
        tuple(map(Path, trusted)),
        {name: _text({"address": one}, "address", "models") for name, one in _table(table, "models").items()},
        _table(table, "sandbox"),
        _table(table, "budgets"),
    )


def _command(role: str, name: str, fields: Any) -> Command:
    if not isinstance(fields, dict):
        raise _Wrong(f"{role}.{name} is not a table")
    argv = _list(fields, "command")
    if not argv or not all(isinstance(part, str) for part in argv):
        raise _Wrong(f"{role}.{name}.command is not a list of texts")
    folder = fields.get("folder", "")
    if not isinstance(folder, str):
        raise _Wrong(f"{role}.{name}.folder is not a text")
    return Command(name, tuple(argv), folder)


def _table(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = table.get(key, {})
    if not isinstance(found, dict):
        raise _Wrong(f"{key} is not a table")
    return found


def _tables(table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = _list(table, key)
    if not all(isinstance(one, dict) for one in found):
        raise _Wrong(f"{key} is not a list of tables")
    return found


def _list(table: Mapping[str, Any], key: str) -> list[Any]:
    found = table.get(key, [])
    if not isinstance(found, list):
        raise _Wrong(f"{key} is not a list")
    return found


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    found = table.get(key)
    if not isinstance(found, str) or not found:
        raise _Wrong(f"an entry of {where} has no {key}")
    return found


def _windows_profile() -> Path | None:
    import ctypes

    buffer = ctypes.create_unicode_buffer(260)
    # CSIDL_PROFILE: the folder of the account, whatever USERPROFILE says.
    failed = ctypes.windll.shell32.SHGetFolderPathW(None, 0x28, None, 0, buffer)  # type: ignore[attr-defined,unused-ignore]
    return None if failed or not buffer.value else Path(buffer.value)
