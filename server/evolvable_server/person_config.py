"""Read the person's own configuration: what no environment variable, project or agent can loosen.

It is one TOML file of the operating system's account, found by the account database and not by HOME, because a
project's configuration of a client can set HOME. Only commands of a person at a terminal write it. It also registers
homes that may belong to another account or lie in a work tree.
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

# Imported in functions: pwd and ctypes, each on its own system; the lock, which few accounts use (start time).

FILE = Path(".config/evolvable/config.toml")
"""Where the file lies below the account's home directory."""

LEVELS = ("off", "guarded", "all")
"""Which changes of an agent wait for a person, from none to every one."""

ROLES = ("executors", "scorers", "judges", "reviewers", "proposers")
"""The tables of commands that a person names."""

MAX_BYTES = 1_000_000

PRIVATE = 0o600
"""The mode of files in the configuration's directory."""

SIGNED = ("approve", "review_policy", "homes", "trusted", "models", "sandbox", "budgets", *ROLES)
"""What the signature of the settings covers, where approvals are locked."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a person named. argv: the argument list. folder: where it runs, '' for the caller's choice."""

    name: str
    argv: tuple[str, ...]
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Trusted:
    """A folder that the person trusts. home: the library whose decisions on it count, None for every library."""

    folder: Path
    home: Path | None = None


@dataclass(frozen=True, slots=True)
class PersonConfig:
    """The settings of the person whose account this is.

    path: the file, None when the account has no home directory. approve: one of LEVELS. homes: libraries that may lie
    in a work tree or belong to another account. commands: by role (see ROLES) and name. trusted: folders
    whose resources the person trusts. models: addresses of models by provider. sandbox, budgets: tables
    as they stand in the file. review_policy: what becomes of proposals by kind, as EVOLVABLE_REVIEW_POLICY says it.
    said: the names that stand in the file. lock_key: the public key of the approvals lock, '' where approvals are not
    locked. unsigned: whether the lock's signature does not cover the settings; then the strictest apply and nothing is
    named.
    """

    path: Path | None
    approve: str = "guarded"
    homes: tuple[Path, ...] = ()
    commands: Mapping[str, Mapping[str, Command]] = field(default_factory=dict)
    trusted: tuple[Trusted, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    budgets: Mapping[str, Any] = field(default_factory=dict)
    review_policy: str = ""
    said: frozenset[str] = frozenset()
    lock_key: str = ""
    unsigned: bool = False

    def command(self, role: str, name: str) -> Command | None:
        """Return the command of this role and name, None when the person named none."""
        return self.commands.get(role, {}).get(name)

    def trusted_folders(self, home: Path) -> frozenset[str]:
        """Return the folders that the person trusts where the library in `home` holds them."""
        place = os.path.realpath(home)
        return frozenset(
            str(one.folder) for one in self.trusted if one.home is None or os.path.realpath(one.home) == place
        )


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
        return parse_person_config(path, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{path} is not valid: {error}.", "Correct the file; no default replaces it.") from None


def parse_person_config(path: Path, table: Mapping[str, Any]) -> PersonConfig:
    """Return the configuration that these settings are. Raise InvalidArgument when one is not valid."""
    try:
        return _config(path, table)
    except _Wrong as error:
        raise InvalidArgument(f"{path} is not valid: {error}.", "Correct the file; no default replaces it.") from None


def stricter(one: str, other: str) -> str:
    """Return the stricter of two levels."""
    return max(one, other, key=LEVELS.index)


class _Wrong(ValueError):
    """A value of the file has the wrong type or is not allowed."""


def _read(path: Path) -> str | None:
    try:
        with open(path, "rb") as stream:
            status = os.fstat(stream.fileno())
            check_owner(path, status)
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


def check_owner(path: Path, status: os.stat_result) -> None:
    """Check that only this account (or root) can write a file. Raise Refused."""
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
    key = _lock_key(table)
    if key and not _is_signed(table, key):
        return PersonConfig(path, LEVELS[-1], lock_key=key, unsigned=True)
    trusted = [_trusted(one) for one in _tables(table, "trusted")]
    return PersonConfig(
        path,
        approve,
        tuple(Path(_text({"home": one}, "home", "homes")) for one in _list(table, "homes")),
        {role: {name: _command(role, name, one) for name, one in _table(table, role).items()} for role in ROLES},
        tuple(trusted),
        {name: _text({"address": one}, "address", "models") for name, one in _table(table, "models").items()},
        _table(table, "sandbox"),
        _table(table, "budgets"),
        _text(table, "review_policy", "the file") if "review_policy" in table else "",
        frozenset(table),
        key,
    )


def signed_settings(table: Mapping[str, Any]) -> bytes:
    """Return what the signature of a configuration covers."""
    from evolvable_tools.approvals_lock import canonical_form

    return canonical_form(["evolvable settings", 1, {key: table[key] for key in SIGNED if key in table}])


def _lock_key(table: Mapping[str, Any]) -> str:
    key = _table(table, "approvals").get("public_key", "")
    if not isinstance(key, str):
        raise _Wrong("approvals.public_key is not a text")
    return key


def _is_signed(table: Mapping[str, Any], key: str) -> bool:
    from evolvable_tools.approvals_lock import ApprovalsLock  # late: most have no lock

    try:
        signature = bytes.fromhex(_table(table, "approvals").get("signature", ""))
        return ApprovalsLock(key).verify(signed_settings(table), signature)
    except (TypeError, ValueError):
        return False


def _trusted(table: Mapping[str, Any]) -> Trusted:
    home = _text(table, "home", "trusted") if "home" in table else None
    if home is not None and "\0" in home:
        raise _Wrong("the home of an entry of trusted is no path")
    return Trusted(Path(_text(table, "folder", "trusted")), Path(home) if home is not None else None)


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


USUAL = ".evolvable"
"""The library's folder in the account's home directory, when nothing names another one."""


def registered_homes() -> tuple[Path, ...]:
    """Return the homes that the person's configuration lists, and the account's usual one, which nobody had to name.

    Raise as `read_person_config`.
    """
    account = account_home()
    usual = (account / USUAL,) if account is not None else ()
    return (*usual, *(home.expanduser() for home in read_person_config().homes))
