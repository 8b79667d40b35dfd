"""Write the person's configuration: one change at a time, whole or not at all, comments kept, signed when locked."""

import contextlib
import os
import secrets
import stat
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_server.person_config import (
    PRIVATE,
    PersonConfig,
    check_owner,
    config_path,
    parse_person_config,
    read_person_config,
    signed_settings,
)
from evolvable_store.errors import InvalidArgument, LibraryBusy, NotFound, Refused
from evolvable_store.operation import Signer

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

# Start time: every command reads this module, and few edit TOML.

_LOCK_SECONDS = 10.0


class NoSuchCommand(NotFound):
    """The person's configuration has no command of this role and name."""


def edit_config(change: "Callable[[TOMLDocument], None]", signer: Signer | None = None) -> Path:
    """Change the person's configuration and return its path.

    change: edits the parsed document in place. signer: signs the settings, where approvals are locked; its `unlock`
    is called here. Raise Refused when the account has no home directory or the settings need a signature,
    InvalidArgument when the file is not valid TOML.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = config_path()
    if path is None:
        raise Refused("This account has no home directory, so it has no configuration.", "Use an account that has one.")
    with _locked(path):
        text = _text(path)
        try:
            document = tomlkit.parse(text)
        except TOMLKitError as error:
            raise InvalidArgument(f"{path} is not valid: {error}.", "Correct the file first.") from None
        before = read_person_config()
        change(document)
        if before.unsigned and "approvals" in document:
            raise Refused(
                f"{path} was changed without the person's signature.",
                "Look at it; `evolvable approvals unlock` and `lock` sign what it says now.",
            )
        approvals: Any = document.get("approvals")
        if approvals and approvals.get("public_key"):
            if signer is None:
                raise Refused("The settings need the person's signature: approvals are locked.", "Nothing was changed.")
            signer.unlock()
            settings = tomllib.loads(tomlkit.dumps(document))
            approvals["signature"] = signer.sign(signed_settings(settings)).hex()
        parse_person_config(path, tomllib.loads(tomlkit.dumps(document)))  # what could not be read again is not written
        _write(path, tomlkit.dumps(document))
    return path


def add_command(role: str, name: str, argv: Sequence[str], folder: str, signer: Signer | None = None) -> PersonConfig:
    """Name a command, or name another one by this name; return the configuration as it is then.

    Raise as `edit_config`; nothing changed then.
    """

    def change(document: Any) -> None:
        import tomlkit

        table = document.setdefault(role, tomlkit.table(is_super_table=True))
        entry = tomlkit.table()
        entry["command"] = list(argv)
        if folder:
            entry["folder"] = folder
        table[name] = entry

    edit_config(change, signer)
    return read_person_config()


def remove_command(role: str, name: str, signer: Signer | None = None) -> PersonConfig:
    """Take a named command out of the configuration. Raise NoSuchCommand, and as `edit_config`."""

    def change(document: Any) -> None:
        table = document.get(role, {})
        if name not in table:
            known = ", ".join(table) or "none"
            raise NoSuchCommand(f"No {role.removesuffix('s')} is named {ascii(name[:80])}.", f"Those named: {known}.")
        del table[name]

    edit_config(change, signer)
    return read_person_config()


def note_trusted(folder: Path, home: Path, signer: Signer | None = None) -> None:
    """Add a folder to those that the person trusts in the library of `home`. Raise as `edit_config`."""
    _change_trusted(folder, home, signer, wanted=True)


def withdraw_trusted(folder: Path, home: Path, signer: Signer | None = None) -> None:
    """Take a folder out of those that the person trusts in the library of `home`. Raise as `edit_config`."""
    _change_trusted(folder, home, signer, wanted=False)


def _change_trusted(folder: Path, home: Path, signer: Signer | None, *, wanted: bool) -> None:
    entry = {"folder": str(folder), "home": str(home)}

    def change(document: Any) -> None:
        import tomlkit

        known = document.get("trusted", [])
        kept = [one for one in known if one.get("folder") != str(folder) or one.get("home", str(home)) != str(home)]
        document.pop("trusted", None)
        tables = tomlkit.aot()
        for one in [*kept, *([entry] if wanted else [])]:
            table = tomlkit.table()
            table.update(one)
            tables.append(table)
        if tables:
            document.append("trusted", tables)

    edit_config(change, signer)


def _text(path: Path) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            check_owner(path, os.fstat(stream.fileno()))
            return stream.read()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8 text.", "Correct the file first.") from None


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    try:
        with open(fd, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    _own_folder(path.parent)
    try:
        with FileLock(path.with_name(".config.lock"), timeout=_LOCK_SECONDS, mode=PRIVATE):
            yield
    except Timeout:
        raise LibraryBusy(f"Another command is changing {path}.", "Try again.") from None


def _own_folder(folder: Path) -> None:
    """Make the folder with mode 0700, or give a folder of this account that mode. Raise Refused for another's."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.name != "posix":
        return
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise Refused(f"{folder} belongs to user {status.st_uid}, not to this account.", "Remove it, or take it over.")
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)
