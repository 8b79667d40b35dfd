"""Change the person's configuration: one change at a time, whole or not at all, comments kept, signed under a lock.

The file is the account's, or the second one that EVOLVABLE_CONFIG names. Commands of a person at a terminal call this.
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

# A command that waits for a passphrase holds the lock for longer; the other one is told to try again.
_LOCK_SECONDS = 10.0


def edit_config(change: Callable[[TOMLDocument], None], home: Path, signer: Signer | None = None) -> PersonConfig:
    """Change the person's configuration and return what the file says then.

    change: edits the parsed document in place. home: the library that the change is for. signer: signs the settings,
    where approvals are locked; its `unlock` is called here. Raise Refused when the account has no home directory, the
    settings need a signature, or a second file would not count for this library; InvalidArgument when the file is not
    valid TOML.
    """
    path = edited_path(home)
    # From the reading to the writing: of two changes at once none is lost.
    with _locked(path):
        try:
            document = tomlkit.parse(read_config_text(path) or "")
        except TOMLKitError as error:
            raise InvalidArgument(f"{path} is not valid: {error}.", "Correct the file first.") from None
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
                raise Refused("The settings need the person's signature: approvals are locked.", "Nothing was changed.")
            signer.unlock()
            # The text that is written, parsed: the same settings are signed that a reader checks.
            settings = tomllib.loads(tomlkit.dumps(document))
            approvals["signature"] = signer.sign(signed_settings(settings)).hex()
        text = tomlkit.dumps(document)
        config = parse_person_config(path, text)  # what could not be read again is not written
        write_private(path, text)
    return config


def edited_path(home: Path) -> Path:
    """Return the file to change for a library. Raise Refused where there is none, or where it would not count."""
    if second_path() is not None:
        person = read_library_config(home)
        if person.ignored:
            hint = "Unset EVOLVABLE_CONFIG to change the account's configuration. Nothing was changed."
            raise Refused(f"{person.edited.path} names nothing for {home}: {person.ignored}.", hint)
    path = second_path() or config_path()
    if path is None:
        raise Refused("This account has no home directory, so it has no configuration.", "Use an account that has one.")
    return path


def check_account_file(what: str) -> None:
    """Check that commands change the account's file. what: that file alone names it. Raise Refused."""
    if (path := second_path()) is not None:
        hint = "Unset EVOLVABLE_CONFIG to change the account's configuration. Nothing was changed."
        raise Refused(f"{what} in {path} does not count: only {config_path()} says that.", hint)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    # Only the account's folder is made private; a second file lies where the person put it.
    _own_folder(path.parent, private=path == config_path())
    try:
        with FileLock(path.with_name(f".{path.stem}.lock"), timeout=_LOCK_SECONDS, mode=PRIVATE):
            yield
    except Timeout:
        raise LibraryBusy(f"Another command is changing {path}.", "Try again.") from None


def _own_folder(folder: Path, *, private: bool) -> None:
    """Make the folder with mode 0700. private: give one of this account that mode, and raise Refused for another's."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.name != "posix" or not private:
        return
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise Refused(f"{folder} belongs to user {status.st_uid}, not to this account.", "Remove it, or take it over.")
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)


def set_trusted(
    folder: Path, home: Path, signer: Signer | None = None, *, wanted: bool = True, follow: bool = False
) -> None:
    """Add a folder to those that the person trusts in the library of `home`, or take it out. Raise as `edit_config`.

    An entry for every library stays where the folder is wanted, and goes where it is not. follow: the scan alone
    decides on what a pull brings there; an entry that says so stays so.
    """
    entry: dict[str, Any] = {"folder": str(folder), "home": str(home)}

    def change(document: Any) -> None:
        known = document.pop("trusted", [])
        # Entries for another folder or another library stay.
        kept = [one for one in known if one.get("folder") != str(folder) or one.get("home", str(home)) != str(home)]
        if wanted:
            here = [one for one in known if one not in kept]
            every = [one for one in here if "home" not in one]
            own = entry | ({"follow": True} if follow or any(one.get("follow") for one in here) else {})
            kept = [*kept, *every, *([own] if follow or not every else [])]
        if kept:
            document["trusted"] = kept

    edit_config(change, home, signer)


class NoSuchCommand(NotFound):
    """The person's configuration has no command of this role and name."""


def add_command(role: str, one: Command, home: Path, signer: Signer | None = None) -> PersonConfig:
    """Name a command, or name another one by this name; return what the file says then.

    Raise as `edit_config`; nothing changed then.
    """

    def change(document: Any) -> None:
        # Without a header of its own: each entry has one.
        table = document.setdefault(role, tomlkit.table(is_super_table=True))
        entry = {"command": list(one.argv)} | ({"folder": one.folder} if one.folder else {})
        table[one.name] = entry | ({"agents": True} if one.agents else {})

    return edit_config(change, home, signer)


def remove_command(role: str, name: str, home: Path, signer: Signer | None = None) -> PersonConfig:
    """Take a named command out of the configuration. Raise NoSuchCommand, and as `edit_config`."""

    def change(document: Any) -> None:
        table = document.get(role, {})
        if name not in table:
            known = ", ".join(table) or "none"
            raise NoSuchCommand(f"No {role.removesuffix('s')} is named {ascii(name[:80])}.", f"Those named: {known}.")
        del table[name]

    return edit_config(change, home, signer)


def add_model(endpoint: ModelEndpoint, home: Path, signer: Signer | None = None) -> PersonConfig:
    """Name a model, or name another one by this name; return what the file says then.

    Raise as `edit_config`; nothing changed then.
    """

    def change(document: Any) -> None:
        table = document.setdefault("models", tomlkit.table(is_super_table=True))
        entry = tomlkit.table()
        entry.update(endpoint.to_table())
        table[endpoint.name] = entry

    return edit_config(change, home, signer)


def remove_model(name: str, home: Path, signer: Signer | None = None) -> PersonConfig:
    """Remove a named model. Raise Refused while a role names it, NoSuchCommand, and as `edit_config`."""

    def change(document: Any) -> None:
        table = document.get("models", {})
        # Texts in this table are addresses of providers; tables are models.
        named = [one for one in table if isinstance(table[one], dict)]
        if name not in named:
            known = ", ".join(named) or "none"
            raise NoSuchCommand(f"No model is named {ascii(name[:80])}.", f"Those named: {known}.")
        for role, names in document.get("roles", {}).items():
            if name in ([names] if isinstance(names, str) else names):
                hint = f"Name others first: evolvable role model role {role} NAME..."
                raise Refused(f"{name} answers as {role}.", hint)
        del table[name]

    return edit_config(change, home, signer)


def set_model_role(role: str, names: Sequence[str], home: Path, signer: Signer | None = None) -> PersonConfig:
    """Say which models answer in a role, in order; without names the role is as usual. Raise as `edit_config`."""

    def change(document: Any) -> None:
        table = document.setdefault("roles", tomlkit.table())
        if names:
            table[role] = list(names)
        else:
            table.pop(role, None)

    return edit_config(change, home, signer)


_SHARED = ("approvals.key", "approvers", "joined")
"""What lies beside a file of settings and belongs to it."""


def shared_files(path: Path) -> list[Path]:
    """Return the file of settings at `path` and what belongs to it, as far as it is there."""
    every = (path, path.with_name(f".{path.stem}.lock"), *(path.with_name(name) for name in _SHARED))
    return [one for one in every if os.path.lexists(one)]


def own_entries(person: PersonConfig, home: Path) -> list[str]:
    """Return, in words, what the file that commands change says of the library in `home` alone."""
    if person.ignored:
        return []
    said, place = person.edited, os.path.realpath(home)
    trusted = [f"the trusted folder {one.folder}" for one in said.trusted if _is_of(one.home, place)]
    remotes = [f"the remote {one.name}" for one in said.remotes if _is_of(one.home, place)]
    return trusted + remotes + [f"the home {one}" for one in said.homes if _is_of(one, place)]


def shared_entries(said: PersonConfig, home: Path | None = None) -> list[str]:
    """Return, in words, what a file of settings names, without what is of the library in `home` alone."""
    place = os.path.realpath(home) if home is not None else ""
    named = [(role, sorted(said.commands.get(role, {}))) for role in ROLES]
    named += [("models", sorted([*said.endpoints, *said.models])), ("roles", sorted(said.model_roles))]
    named += [("remotes", [f"{one.name} of {one.home}" for one in said.remotes if not _is_of(one.home, place)])]
    named += [("trusted folders", [str(one.folder) for one in said.trusted if not _is_of(one.home, place)])]
    key = [f"the approvals key {said.lock_key[:16]}"] if said.lock_key else []
    return [f"{what}: {', '.join(names)}" for what, names in named if names] + key


def _is_of(home: Path | str | None, place: str) -> bool:
    return home is not None and os.path.realpath(home) == place


def forget_library(home: Path, signer: Signer | None = None) -> None:
    """Take what is of the library in `home` alone out of the configuration. Raise as `edit_config`."""
    place = os.path.realpath(home)

    def change(document: Any) -> None:
        for name in ("trusted", "remotes"):
            known = document.pop(name, [])
            if kept := [one for one in known if not _is_of(one.get("home"), place)]:
                document[name] = kept
        if homes := [one for one in document.pop("homes", []) if not _is_of(one, place)]:
            document["homes"] = homes

    edit_config(change, home, signer)
