"""Change the person's configuration: one change at a time, whole or not at all, comments kept,
signed under a lock.

The file is the account's, or the second one that EVOLVABLE_CONFIG names. Commands of a person at a
terminal call this.
"""

import contextlib
import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from filelock import FileLock, Timeout
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError

from evolvable_server.config_file import PRIVATE, read_config_text
from evolvable_server.person_config import (
    ROLES,
    Command,
    PersonConfig,
    config_path,
    parse_person_config,
    read_config_file,
    signed_settings,
)
from evolvable_server.second_config import read_library_config, second_path
from evolvable_store import Signer, write_private
from evolvable_store.errors import InvalidArgument, LibraryBusy, NotFound, Refused
from evolvable_tools.llm import ModelEndpoint

# A command that waits for a passphrase holds the lock for longer; the other one then ends with
# LibraryBusy.
_LOCK_SECONDS = 10.0
"""How long a command waits for another one that changes the same file."""

_UNSET = "Unset EVOLVABLE_CONFIG to change the account's configuration. Nothing was changed."


def edit_config(
    change: Callable[[TOMLDocument], None], home: Path, signer: Signer | None = None
) -> PersonConfig:
    """Change the person's configuration, and return the settings of the new file.

    change: edits the parsed document in place. home: the library that the change is for. signer:
    signs the settings, where approvals are locked; its `unlock` is called here.

    Raise Refused when the account has no home directory, the settings need a signature, or a second
    file would not count for this library. Raise InvalidArgument when the file is not valid TOML.
    """
    path = edited_path(home)
    # From the reading to the writing: of two changes at once none is lost.
    with _lock_file(path):
        try:
            document = tomlkit.parse(read_config_text(path) or "")
        except TOMLKitError as error:
            raise InvalidArgument(
                f"{path} is not valid: {error}.", "Correct the file first."
            ) from None
        before = read_config_file(path)
        change(document)
        # After the change, so that `unlock`, which takes the table out, can go on.
        if before.unsigned and "approvals" in document:
            raise Refused(
                f"{path} was changed without the person's signature.",
                "Look at it; `evolvable care approvals unlock` and `lock` sign what it says now.",
            )
        approvals: Any = document.get("approvals")
        if approvals and approvals.get("public_key"):
            if signer is None:
                raise Refused(
                    "The settings need the person's signature: approvals are locked.",
                    "Nothing was changed.",
                )
            signer.unlock()
            # The text that is written, parsed: the same settings are signed that a reader checks.
            settings = tomllib.loads(tomlkit.dumps(document))
            approvals["signature"] = signer.sign(signed_settings(settings)).hex()
        text = tomlkit.dumps(document)
        config = parse_person_config(path, text)  # what could not be read again is not written
        write_private(path, text)
    return config


def edited_path(home: Path) -> Path:
    """Return the file to change for a library.

    Raise Refused where there is none, or where it would not count.
    """
    if second_path() is not None:
        person = read_library_config(home)
        if person.ignored:
            raise Refused(
                f"{person.editable.path} names nothing for {home}: {person.ignored}.",
                _UNSET,
            )
    path = second_path() or config_path()
    if path is None:
        raise Refused(
            "This account has no home directory, so it has no configuration.",
            "Use an account that has one.",
        )
    return path


def check_account_file(what: str) -> None:
    """Check that commands change the account's file.

    what: the setting that only this file can have. Raise Refused.
    """
    if (path := second_path()) is not None:
        raise Refused(f"{what} in {path} does not count: only {config_path()} says that.", _UNSET)


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    # Only the account's folder is made private; a second file lies where the person put it.
    _make_own_folder(path.parent, private=path == config_path())
    try:
        with FileLock(path.with_name(f".{path.stem}.lock"), timeout=_LOCK_SECONDS, mode=PRIVATE):
            yield
    except Timeout:
        raise LibraryBusy(f"Another command is changing {path}.", "Try again.") from None


def _make_own_folder(folder: Path, *, private: bool) -> None:
    """Make the folder with mode 0700.

    private: also give an existing folder of this account that mode, and raise Refused for another
    account's.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.name != "posix" or not private:
        return
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise Refused(
            f"{folder} belongs to user {status.st_uid}, not to this account.",
            "Remove it, or take it over.",
        )
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)


def set_trusted(
    folder: Path,
    home: Path,
    signer: Signer | None = None,
    *,
    is_trusted: bool = True,
    follow: bool = False,
) -> None:
    """Add a folder to those that the person trusts in the library of `home`, or take it out.

    An entry of the folder for every library stays with `is_trusted`, and goes without. follow:
    whether the scan alone decides on what a pull brings there; an entry that has it keeps it. Raise
    as `edit_config`.
    """

    def change(document: Any) -> None:
        entries = document.pop("trusted", [])
        # Entries for another folder or another library stay.
        remaining = [
            entry
            for entry in entries
            if entry.get("folder") != str(folder) or entry.get("home", str(home)) != str(home)
        ]
        if is_trusted:
            former = [entry for entry in entries if entry not in remaining]
            for_all = [entry for entry in former if "home" not in entry]
            own: dict[str, Any] = {"folder": str(folder), "home": str(home)}
            if follow or any(entry.get("follow") for entry in former):
                own["follow"] = True
            remaining += for_all
            if follow or not for_all:
                remaining.append(own)
        if remaining:
            document["trusted"] = remaining

    edit_config(change, home, signer)


class NoSuchCommand(NotFound):
    """The person's configuration has no command of this role and name."""


def add_command(
    role: str, command: Command, home: Path, signer: Signer | None = None
) -> PersonConfig:
    """Name a command, in place of a former one of this name; return as `edit_config`.

    Raise as `edit_config`, with nothing changed.
    """

    def change(document: Any) -> None:
        # Without a header of its own: each entry has one.
        table = document.setdefault(role, tomlkit.table(is_super_table=True))
        entry: dict[str, Any] = {"command": list(command.argv)}
        if command.folder:
            entry["folder"] = command.folder
        if command.agents:
            entry["agents"] = True
        table[command.name] = entry

    return edit_config(change, home, signer)


def remove_command(role: str, name: str, home: Path, signer: Signer | None = None) -> PersonConfig:
    """Take a named command out of the configuration. Raise NoSuchCommand, and as `edit_config`."""

    def change(document: Any) -> None:
        table = document.get(role, {})
        if name not in table:
            names = ", ".join(table) or "none"
            raise NoSuchCommand(
                f"No {role.removesuffix('s')} is named {ascii(name[:80])}.",
                f"Those named: {names}.",
            )
        del table[name]

    return edit_config(change, home, signer)


def add_model(endpoint: ModelEndpoint, home: Path, signer: Signer | None = None) -> PersonConfig:
    """Name a model, in place of a former one of this name; return as `edit_config`.

    Raise as `edit_config`, with nothing changed.
    """

    def change(document: Any) -> None:
        table = document.setdefault("models", tomlkit.table(is_super_table=True))
        entry = tomlkit.table()
        entry.update(endpoint.to_table())
        table[endpoint.name] = entry

    return edit_config(change, home, signer)


def remove_model(name: str, home: Path, signer: Signer | None = None) -> PersonConfig:
    """Remove a named model.

    Raise Refused while a role names it, NoSuchCommand, and as `edit_config`.
    """

    def change(document: Any) -> None:
        table = document.get("models", {})
        # Texts in this table are addresses of providers; tables are models.
        model_names = [key for key in table if isinstance(table[key], dict)]
        if name not in model_names:
            listing = ", ".join(model_names) or "none"
            raise NoSuchCommand(
                f"No model is named {ascii(name[:80])}.", f"Those named: {listing}."
            )
        for role, names in document.get("roles", {}).items():
            # One model may stand as a text, several as a list.
            if name in ([names] if isinstance(names, str) else names):
                hint = f"Name others first: evolvable role model role {role} NAME..."
                raise Refused(f"{name} answers as {role}.", hint)
        del table[name]

    return edit_config(change, home, signer)


def set_model_role(
    role: str, names: Sequence[str], home: Path, signer: Signer | None = None
) -> PersonConfig:
    """Set the models that answer in a role, in order; without names the role is as usual.

    Raise as `edit_config`.
    """

    def change(document: Any) -> None:
        table = document.setdefault("roles", tomlkit.table())
        if names:
            table[role] = list(names)
        else:
            table.pop(role, None)

    return edit_config(change, home, signer)


_SHARED = ("approvals.key", "approvers", "joined")
"""Names of files and folders beside a file of settings that belong to it."""


def shared_files(path: Path) -> list[Path]:
    """Return the file of settings at `path` and those that belong to it, as far as they exist."""
    lock = path.with_name(f".{path.stem}.lock")
    files = [path, lock, *(path.with_name(name) for name in _SHARED)]
    return [file for file in files if os.path.lexists(file)]


def own_entries(person: PersonConfig, home: Path) -> list[str]:
    """Return, in words, the entries for the library in `home` alone in the file that commands
    change.
    """
    if person.ignored:
        return []
    settings, place = person.editable, os.path.realpath(home)
    trusted = [entry.folder for entry in settings.trusted if _is_same_home(entry.home, place)]
    remotes = [remote.name for remote in settings.remotes if _is_same_home(remote.home, place)]
    homes = [listed_home for listed_home in settings.homes if _is_same_home(listed_home, place)]
    return [
        *(f"the trusted folder {folder}" for folder in trusted),
        *(f"the remote {name}" for name in remotes),
        *(f"the home {listed_home}" for listed_home in homes),
    ]


def shared_entries(settings: PersonConfig, home: Path | None = None) -> list[str]:
    """Return, in words, the entries of a file of settings, without those for the library in `home`
    alone.
    """
    place = os.path.realpath(home) if home is not None else ""
    remotes = [
        f"{remote.name} of {remote.home}"
        for remote in settings.remotes
        if not _is_same_home(remote.home, place)
    ]
    trusted = [
        str(entry.folder) for entry in settings.trusted if not _is_same_home(entry.home, place)
    ]
    groups = [
        *((role, sorted(settings.commands.get(role, {}))) for role in ROLES),
        ("models", sorted([*settings.endpoints, *settings.models])),
        ("roles", sorted(settings.model_roles)),
        ("remotes", remotes),
        ("trusted folders", trusted),
    ]
    lines = [f"{what}: {', '.join(names)}" for what, names in groups if names]
    if settings.lock_key:
        lines.append(f"the approvals key {settings.lock_key[:16]}")
    return lines


def _is_same_home(home: Path | str | None, place: str) -> bool:
    return home is not None and os.path.realpath(home) == place


def forget_library(home: Path, signer: Signer | None = None) -> None:
    """Remove the entries for the library in `home` alone from the configuration.

    Raise as `edit_config`.
    """
    place = os.path.realpath(home)

    def change(document: Any) -> None:
        for name in ("trusted", "remotes"):
            entries = document.pop(name, [])
            if remaining := [
                entry for entry in entries if not _is_same_home(entry.get("home"), place)
            ]:
                document[name] = remaining
        if homes := [
            entry for entry in document.pop("homes", []) if not _is_same_home(entry, place)
        ]:
            document["homes"] = homes

    edit_config(change, home, signer)
