"""Uninstall: which entries, files and settings are removed with a library, or with the account, and
their removal.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_server.clients import (
    ConfigurationEntry,
    all_clients,
    configuration_entry,
    disable_copies,
    disable_project_files,
    disconnect,
    entry_home,
    is_of_other_client,
    project_memory_files,
    read_enabled_copies,
    take_out,
    take_out_of_client,
)
from evolvable_server.clients.client import SCOPES
from evolvable_server.config import Config, read_machine
from evolvable_server.config_edits import forget_library, own_entries, shared_entries, shared_files
from evolvable_server.person_config import config_path, registered_homes
from evolvable_server.second_config import own_path
from evolvable_store import (
    CARRIED_PLACES,
    CHANGE_MARK,
    EMBEDDED_FOLDER,
    FOLDER_NAMES,
    GIT_POSITIONS,
    HELD_POWERS,
    INSTALLED_SKILLS,
    LIBRARY_FILE,
    NEAR_DUPLICATES,
    PLACES_FILE,
    UNWRITTEN,
    USED_DAYS_FILE,
    Signer,
    Store,
    holds_library,
)
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.storage import ListingChoice, WatchedFolder
from evolvable_store.workingcopy import PROJECTS_FILE, possible_staging
from evolvable_tools import count, some
from evolvable_tools.care import REPLACED, check_closed, replaced_libraries, watched_folders

# A list and not the whole folder: a home may hold files of others, which stay.
_OURS = (
    *(f"{name}*" for name in REPLACED),
    "ags",
    "approved-tools.jsonl",
    "built-tools",
    "callers",
    "copies.jsonl",
    "embedder*",
    "evolve",
    FOLDER_NAMES,
    GIT_POSITIONS,
    HELD_POWERS,
    "histories",
    "hooks",
    INSTALLED_SKILLS,
    "learning.*",
    "locks",
    "memory-copies.json",
    f"{NEAR_DUPLICATES}*",
    PROJECTS_FILE,
    CHANGE_MARK,
    EMBEDDED_FOLDER,
    CARRIED_PLACES,
    f"{PLACES_FILE}*",
    "recovery",
    "redact.txt",
    "remotes",
    "reviews",
    "rounds",
    "setup.json",
    "state.key",
    "tokens.*",
    "trash",
    UNWRITTEN,
    USED_DAYS_FILE,
)
"""What the product writes into a library's home."""


@dataclass(frozen=True, slots=True)
class Uninstalled:
    """Lines about a removal.

    removed: what was removed, or would be. left: what stays, and how to remove it.
    """

    removed: list[str]
    left: list[str]


@dataclass(frozen=True, slots=True)
class Removal:
    """A planned removal of a library.

    connected: the entries of clients. copies: the clients that read its memories. watched: its
    folders. gone: files and folders that are deleted. settings: the entries of the configuration,
    in words.
    """

    home: Path
    connected: Sequence[ConfigurationEntry]
    copies: Sequence[str]
    watched: Sequence[WatchedFolder]
    gone: Sequence[Path]
    settings: Sequence[str]
    report: Uninstalled

    def carry_out(self, signer: Callable[[], Signer | None]) -> None:
        """Remove the library.

        signer: returns the signer of the configuration. Raise Refused while the library is open.
        """
        # First: a server that still runs would write its files again.
        if self.gone:
            check_closed(self.home)
        # Before the clients: a signature that is refused leaves everything as it was.
        if self.settings:
            forget_library(self.home, signer())
        # Before the files: no client may start a server over a library that is being deleted.
        for entry in self.connected:
            disconnect(entry)
        disable_copies(self.home, list(self.copies))
        disable_project_files(self.home, None)
        # The client's settings before the note: after a kill between the two, the note still leads
        # to them.
        for choice in _read_choices(self.home):
            remove = take_out_of_client if is_of_other_client(choice) else take_out
            remove(choice)
            with Store.open(self.home) as store:
                store.backend.collections.forget(choice.settings)
        if self.watched:
            with Store.open(self.home) as store:
                for folder in store.backend.bindings.folders():
                    store.backend.bindings.drop_folder(folder)
        # Last: the steps above read the library.
        for path in self.gone:
            _delete(path)
        with contextlib.suppress(OSError):
            if self.gone:
                self.home.rmdir()  # what is not ours in it stays, and so does the folder


def plan_removal(config: Config, data: bool, warn: Callable[[str], None]) -> Removal:
    """Return the removal of the library of this process.

    data: whether its files are deleted too. warn: called with each line on what cannot be read.
    """
    home = config.home
    entries, copies = list(_find_connected_entries(config, warn)), read_enabled_copies(home)
    watched = watched_folders(home, warn)
    connected = [entry for entry, place in entries if place == os.path.realpath(home)]
    settings = own_entries(config.person, home) if data else []
    gone = list(_find_data_paths(home, watched)) if data else []
    lines = [f"{entry.client.title}: the entry {entry.name} in {entry.path}" for entry in connected]
    lines += [f"the memories in {path}" for path, _ in copies.values()]
    lines += [f"the memory of the project in {file.path}" for file in project_memory_files(home)]
    lines += [
        f"the collection {choice.collection} in {choice.settings}" for choice in _read_choices(home)
    ]
    lines += [f"watching {folder.path}; its files stay" for folder in watched]
    lines += [f"{path}, for good" for path in gone]
    lines += [f"{entry} in {config.person.editable.path}" for entry in settings]
    others = [
        _describe_other_entry(entry, place) for entry, place in entries if entry not in connected
    ]
    left = [
        *others,
        *_describe_left(home, gone, data),
        *(_describe_left_settings(config) if data else ()),
    ]
    return Removal(home, connected, list(copies), watched, gone, settings, Uninstalled(lines, left))


@dataclass(frozen=True, slots=True)
class AccountRemoval:
    """The settings of the account, or the second file that EVOLVABLE_CONFIG names.

    gone: their files.
    """

    path: Path | None
    gone: Sequence[Path]
    report: Uninstalled

    def carry_out(self) -> None:
        """Delete the files."""
        for file in self.gone:
            _delete(file)
        with contextlib.suppress(OSError):
            # Only the account's own folder: a second file lies among files of others.
            if self.path is not None and self.path == config_path():
                self.path.parent.rmdir()  # what is not ours in it stays, and so does the folder


def plan_account_removal(config: Config) -> AccountRemoval:
    """Return the removal of the settings that the libraries of the account share."""
    path = own_path()
    gone = shared_files(path) if path is not None else []
    lines = [f"{file}, for good" for file in gone]
    if gone:
        lines += shared_entries(config.person.editable)
    users = [str(home) for home in registered_homes() if holds_library(home)]
    left = [f"the library in {home}, without these settings from then on" for home in users]
    return AccountRemoval(path, gone, Uninstalled(lines, left))


def _find_connected_entries(
    config: Config, warn: Callable[[str], None]
) -> Iterator[tuple[ConfigurationEntry, str]]:
    """Yield the entries of our server in the clients, each with the library that it opens."""
    machine = read_machine(config.project)
    for client in all_clients().values():
        paths = set[Path]()  # in the home folder, the file of the project is that of the user
        for scope in SCOPES:
            try:
                entry = configuration_entry(machine, client, scope)
                if entry.path in paths:
                    continue
                paths.add(entry.path)
                # A trial run tells whether the entry is ours.
                if disconnect(entry, dry_run=True).done == "disconnected":
                    yield entry, os.path.realpath(entry_home(entry))
            except InvalidArgument:
                continue  # the client has no such scope
            except EvolvableError as error:
                warn(f"{client.title}: {error.text}")


def _read_choices(home: Path) -> list[ListingChoice]:
    """Return the collections that clients list; none where the library cannot be read."""
    if not (home / LIBRARY_FILE).exists():
        return []
    with contextlib.suppress(EvolvableError), Store.open(home) as store:
        return store.backend.collections.choices()
    return []


def _find_data_paths(home: Path, watched: Sequence[WatchedFolder]) -> Iterator[Path]:
    yield from (path for name in _OURS for path in sorted(home.glob(name)))
    yield from replaced_libraries(home)
    places = (place for folder in watched for place in possible_staging(folder.path))
    # Never a link: it leads to a folder of somebody else.
    yield from (place for place in places if place.is_dir() and not place.is_symlink())


def _describe_left(home: Path, gone: Sequence[Path], data: bool) -> Iterator[str]:
    if not data:
        yield f"the library in {home}; `evolvable uninstall --data` deletes it"
        if before := list(replaced_libraries(home)):
            yield (
                f"{count(len(before), 'library')} that `recover` replaced: "
                f"{some([str(path) for path in before], 5)}"
            )
    elif home.is_dir():
        others = sorted(path.name for path in set(home.iterdir()) - set(gone))
        if others:
            yield f"what Evolvable did not write in {home}: {some(others, 10)}"
    yield "copies of client configurations from before each change: *.backup-* beside the file"
    yield (
        "the plugin: claude plugin uninstall evolvable@evolvable; codex plugin remove "
        "evolvable@evolvable"
    )
    yield "the program: pip uninstall evolvable, or delete its virtual environment"


def _describe_other_entry(entry: ConfigurationEntry, place: str) -> str:
    return (
        f"{entry.client.title}: the entry {entry.name} in {entry.path}, which is of the library "
        f"in {place}"
    )


def _describe_left_settings(config: Config) -> Iterator[str]:
    """Yield what the libraries of the account share, and how it is deleted."""
    path = own_path()
    if path is None or not shared_files(path):
        return
    names = shared_entries(config.person.editable, config.home)
    suffix = f" ({'; '.join(names)})" if names else ""
    yield (
        f"what all libraries of the account share{suffix}: {path}; `evolvable uninstall "
        "--account` deletes it"
    )


def _delete(path: Path) -> None:
    # Of a link only the link is removed, never the folder behind it.
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
