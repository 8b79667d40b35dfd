"""Write the person's configuration: one setting at a time, every comment and every other setting as it was."""

import os
import stat
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from evolvable_server.person import PersonConfig, config_path, parse, read_person_config
from evolvable_store.errors import InvalidArgument, LibraryBusy, NotFound, Refused

_PATIENCE = 10.0


class NoSuchCommand(NotFound):
    """The person's configuration has no command of this role and name."""


def add_command(role: str, name: str, argv: Sequence[str], folder: str) -> PersonConfig:
    """Name a command, or name another one by this name; return the configuration as it is then.

    Raise Refused, InvalidArgument or LibraryBusy; nothing changed then.
    """

    def change(document: Any) -> None:
        import tomlkit

        table = document.setdefault(role, tomlkit.table(is_super_table=True))
        entry = tomlkit.table()
        entry["command"] = list(argv)
        if folder:
            entry["folder"] = folder
        table[name] = entry

    return _change(change)


def remove_command(role: str, name: str) -> PersonConfig:
    """Take a named command out of the configuration. Raise NoSuchCommand, and as `add_command`."""

    def change(document: Any) -> None:
        table = document.get(role, {})
        if name not in table:
            known = ", ".join(table) or "none"
            raise NoSuchCommand(f"No {role.removesuffix('s')} is named {ascii(name[:80])}.", f"Those named: {known}.")
        del table[name]

    return _change(change)


def _change(change: Callable[[Any], None]) -> PersonConfig:
    import tomlkit

    path = config_path()
    if path is None:
        raise Refused("This account has no home directory, so it has no configuration.", "Use another account.")
    _own_folder(path.parent)
    try:
        with FileLock(path.with_name(f"{path.name}.lock"), timeout=_PATIENCE, mode=0o600):
            read_person_config()  # what cannot be read, or is not the person's, is not written either
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            document = tomlkit.parse(text)
            change(document)
            written = tomlkit.dumps(document)
            made = parse(path, tomllib.loads(written))
            _write(path, written)
    except Timeout:
        raise LibraryBusy(f"Another process is changing {path}.", "Try again.") from None
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}.", "Check its folder.") from None
    return made


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


def _write(path: Path, text: str) -> None:
    """Replace the file whole, with mode 0600."""
    fd, part = tempfile.mkstemp(dir=path.parent, prefix=".config-")  # made with mode 0600
    try:
        with open(fd, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
