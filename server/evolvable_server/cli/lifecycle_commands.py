"""The commands recover, which replaces the library by a backup, and uninstall, which undoes what was set up."""

import contextlib
import glob
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.folder_choice import FolderChoice
from evolvable_server.cli.folder_commands import SyncResult, add_folders, show_sync
from evolvable_server.cli.terminal import confirm, count, remark, say, some, warn
from evolvable_server.clients import memory_files
from evolvable_server.clients.registration import ConfigurationEntry, configuration_entry, disconnect, entry_home
from evolvable_server.clients.registry import CLIENTS, SCOPES
from evolvable_server.clients.skill_list import take_out
from evolvable_server.config import read_machine
from evolvable_server.config_edits import forget_library, own_entries, shared_entries, shared_files
from evolvable_server.person_config import config_path, registered_homes
from evolvable_server.second_config import own_path
from evolvable_store import used_days
from evolvable_store.errors import EvolvableError, InvalidArgument, LibraryCorrupt, LibraryError, Refused
from evolvable_store.operation import Principal
from evolvable_store.paths import (
    ADDRESS_FILE,
    CARRIED_PLACES,
    CHANGE_MARK,
    EMBEDDED_FOLDER,
    FOLDER_NAMES,
    GIT_POSITIONS,
    HELD_POWERS,
    INSTALLED_SKILLS,
    LIBRARY_FILE,
    PLACES_FILE,
    UNWRITTEN,
    check_home,
    holds_library,
    open_elsewhere,
    running_postgres,
)
from evolvable_store.search import index_file, vector_store
from evolvable_store.storage.collection_store import ListingChoice
from evolvable_store.store import Store
from evolvable_store.workingcopy import project_map
from evolvable_store.workingcopy.folder_names import FolderNames
from evolvable_store.workingcopy.staging_dir import possible_staging
from evolvable_tools.evolve.tasks.look_transfer import merge_backup

_REPLACED = (LIBRARY_FILE, index_file.FILE, *index_file.EARLIER, vector_store.FILE)
"""Files of a library that a backup replaces, or that are derived from the one it replaces; with their journals."""

_OURS = (
    *(f"{name}*" for name in _REPLACED),
    *(
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
        project_map.FILE,
        CHANGE_MARK,
        EMBEDDED_FOLDER,
        CARRIED_PLACES,
        f"{PLACES_FILE}*",
        "recovery",
        "redact.txt",
        "remotes",
        "reviews",
        "rounds",
        "state.key",
        "tokens.*",
        "trash",
        UNWRITTEN,
        used_days.FILE,
    ),
)
"""What the product writes into a library's home."""

_STAMP = re.compile(r"\.before-\d{8}T\d{12}")
"""How the folder with the files of a library that `recover` replaced is called, after the home's name."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A library that was replaced by a backup. before: the folder with the files as they were, None without any."""

    home: str
    source: str
    resources: int
    before: str | None
    folders: list[SyncResult]


@command("recover")
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
def recover_command(state: CommandContext, source: Path, yes: bool) -> Output[Recovered]:
    """Replace the library by a backup.

    SOURCE is a folder that `evolvable backup` made; it stays as it is. The library as it was is moved beside its
    folder. Folders that were watched are watched again: a file that differs from the backup becomes the next version.
    Where none was, `evolvable folders confirm` asks about those of the backup.
    Tokens, trash and runs of evolution stay, and looks at sealed tests are those of both. End the clients first.
    """
    home = state.config().home
    check_home(home, registered_homes)
    if (home / ADDRESS_FILE).exists():
        raise Refused("A library in PostgreSQL is not replaced by a backup.", "`evolvable move` copies one into it.")
    if not (source / LIBRARY_FILE).is_file():
        raise InvalidArgument(f"{source} holds no {LIBRARY_FILE}.", "Name a folder that `evolvable backup` made.")
    if home.exists() and source.samefile(home):
        raise InvalidArgument(f"{source} is the library itself.", "Name a folder that `evolvable backup` made.")
    _check_closed(home)
    watched = _watched(home)
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{home.name}.", suffix=".part", dir=home.parent))
    try:
        resources = _copy_checked(source, draft)
        remark(f"{source} holds {count(resources, 'resource')}.")
        confirm(f"Replace the library in {home} by it?", yes=yes, refused="Nothing was changed.")
        state.unlock()
        _check_closed(home)
        merge_backup(home, source)
        project_map.add_projects(home, source)
        before = _exchange(home, draft)
        if not watched and (source / CARRIED_PLACES).is_file():
            shutil.copy(source / CARRIED_PLACES, home / CARRIED_PLACES)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    with state.library() as (library, _):
        there = [one for one in watched if one.path.is_dir()]
        person = state.identity if state.identity.principal is Principal.PERSON else None
        folders = add_folders(library, there, dict.fromkeys((one.path for one in there), person))
    done = Recovered(str(home), str(source), resources, str(before) if before else None, folders)
    return Output(done, _show_recovered)


def _check_closed(home: Path) -> None:
    if running_postgres(home / EMBEDDED_FOLDER / "data") is not None:
        raise Refused(f"PostgreSQL runs in {home / EMBEDDED_FOLDER}.", "End the server that started it.")
    if found := list(open_elsewhere(home / LIBRARY_FILE)):
        raise Refused(
            f"Other processes have the library open: {'; '.join(found)[:500]}",
            "End the clients and servers, then run the command again.",
        )


def _watched(home: Path) -> list[FolderChoice]:
    """Return the folders that the present library watches; none where it cannot be read."""
    if not (home / LIBRARY_FILE).exists():
        return []
    try:
        with Store.open(home) as store:
            names = FolderNames(home)
            folders = store.backend.bindings.folders()
            return [FolderChoice((names.of(one) or [one.path])[0], one.scope, one.kind) for one in folders]
    except EvolvableError as error:
        warn(f"The folders that it watched are not known ({error.text}); `evolvable init FOLDER` watches one.")
        return []


def _choices(home: Path) -> list[ListingChoice]:
    """Return the collections that clients list; none where the library cannot be read."""
    if not (home / LIBRARY_FILE).exists():
        return []
    with contextlib.suppress(EvolvableError), Store.open(home) as store:
        return store.backend.collections.choices()
    return []


def _copy_checked(source: Path, draft: Path) -> int:
    """Copy a backup into `draft` and return its number of resources. Raise LibraryCorrupt, LibraryError."""
    for path in source.glob(f"{LIBRARY_FILE}*"):
        shutil.copyfile(path, draft / path.name)
    try:
        with Store.open(draft) as store:
            if faults := store.backend.maintenance.file_faults():
                raise LibraryCorrupt(f"{draft} is damaged: {'; '.join(faults[:3])}.")
            return len(store.heads())
    except LibraryError as error:  # it names the copy, which is gone when the person reads this
        raise LibraryCorrupt(str(error).replace(str(draft), str(source)), "Name another backup.") from error


def _exchange(home: Path, draft: Path) -> Path | None:
    """Put the library of the draft in the place of the present one; return where its files are now.

    The home has a library at every moment, so that a kill leaves the old one or the new one.
    """
    home.mkdir(mode=0o700, exist_ok=True)
    library, there = home / LIBRARY_FILE, [path for name in _REPLACED for path in home.glob(f"{name}*")]
    before = None
    if there:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        before = home.with_name(f"{home.name}.before-{stamp}")
        before.mkdir(mode=0o700)
        for path in there:
            if path == library:
                shutil.copy2(path, before / path.name)
            else:  # the index is derived, and a journal belongs to the old library alone
                os.rename(path, before / path.name)
    os.replace(draft / LIBRARY_FILE, library)
    return before


def _show_recovered(done: Recovered) -> None:
    say(f"{done.home} is the backup {done.source} now, with {count(done.resources, 'resource')}.")
    if done.before:
        say(f"The library as it was: {done.before}")
    if done.folders:
        show_sync(done.folders, False)


@dataclass(frozen=True, slots=True)
class Uninstalled:
    """What was removed, or would be; each as a line. left: what stays, and how to remove it."""

    removed: list[str]
    left: list[str]


@command("uninstall")
@click.option("--data", is_flag=True, help="Delete the library and the staging folders too.")
@click.option("--account", is_flag=True, help="Delete the settings that all libraries of the account share; only that.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
def uninstall_command(
    state: CommandContext, data: bool, account: bool, yes: bool, dry_run: bool
) -> Output[Uninstalled]:
    """Disconnect all clients and stop watching all folders.

    Takes the server of this library out of every client of this account and of this project, removes the memories from
    the files that clients read, has clients list every skill again, and drops the watched folders. Your skills stay as
    they are. With --data the library with all its versions is deleted as well, and what your configuration says of it.
    Executors, models, the approvals key and what else the libraries of the account share go with --account, a step of
    its own.
    """
    if account:
        if data:
            raise click.UsageError("--account is a step of its own: run `uninstall --data` first.")
        return _uninstall_account(state, yes=yes, dry_run=dry_run)
    home = state.config().home
    entries, copies, watched = list(_connected(state)), memory_files.read_enabled_copies(home), _watched(home)
    connected = [one for one, place in entries if place == os.path.realpath(home)]
    settings = own_entries(state.config().person, home) if data else []
    gone = list(_data(home, watched)) if data else []
    lines = [f"{one.client.title}: the entry {one.name} in {one.path}" for one in connected]
    lines += [f"the memories in {path}" for path, _ in copies.values()]
    lines += [f"the collection {one.collection} in {one.settings}" for one in _choices(home)]
    lines += [f"watching {one.path}; its files stay" for one in watched]
    lines += [f"{path}, for good" for path in gone]
    lines += [f"{entry} in {state.config().person.edited.path}" for entry in settings]
    others = [_other_entry(one, place) for one, place in entries if one not in connected]
    done = Uninstalled(lines, [*others, *_left(home, gone, data), *(_left_settings(state) if data else ())])
    if not dry_run and lines:
        if not state.json:
            _show_lines("This is removed:", lines)
        confirm("Remove it?", yes=yes, refused="Nothing was removed.")
        if gone:
            _check_closed(home)
        if settings:
            forget_library(home, state.signer())
        _remove(home, connected, list(copies), watched, gone)
    return Output(done, lambda done: _show_uninstalled(done, dry_run))


def _connected(state: CommandContext) -> Iterator[tuple[ConfigurationEntry, str]]:
    """Yield the entries of our server in the clients, each with the library that it opens."""
    machine = read_machine(state.config().project)
    for client in CLIENTS.values():
        for scope in SCOPES:
            try:
                entry = configuration_entry(machine, client, scope)
                if disconnect(entry, dry_run=True).done == "disconnected":
                    yield entry, os.path.realpath(entry_home(entry))
            except InvalidArgument:
                continue  # the client has no such scope
            except EvolvableError as error:
                warn(f"{client.title}: {error.text}")


def _data(home: Path, watched: list[FolderChoice]) -> Iterator[Path]:
    yield from (path for name in _OURS for path in sorted(home.glob(name)))
    yield from _replaced_libraries(home)
    places = (place for one in watched for place in possible_staging(one.path))
    yield from (place for place in places if place.is_dir() and not place.is_symlink())


def _replaced_libraries(home: Path) -> Iterator[Path]:
    """Yield the folders that `recover` made beside the home and that hold nothing else."""
    for path in sorted(home.parent.glob(f"{glob.escape(home.name)}.before-*")):
        if not _STAMP.fullmatch(path.name.removeprefix(home.name)) or path.is_symlink() or not path.is_dir():
            continue
        if all(any(one.match(f"{name}*") for name in _REPLACED) for one in path.iterdir()):
            yield path


def _left(home: Path, gone: list[Path], data: bool) -> Iterator[str]:
    if not data:
        yield f"the library in {home}; `evolvable uninstall --data` deletes it"
        if before := list(_replaced_libraries(home)):
            yield f"{count(len(before), 'library')} that `recover` replaced: {some([str(one) for one in before], 5)}"
    elif home.is_dir() and (others := sorted(path.name for path in set(home.iterdir()) - set(gone))):
        yield f"what Evolvable did not write in {home}: {some(others, 10)}"
    yield "copies of client configurations from before each change: *.backup-* beside the file"
    yield "the plugin: claude plugin uninstall evolvable@evolvable; codex plugin remove evolvable@evolvable"
    yield "the program: pip uninstall evolvable, or delete its virtual environment"


def _other_entry(entry: ConfigurationEntry, place: str) -> str:
    return f"{entry.client.title}: the entry {entry.name} in {entry.path}, which is of the library in {place}"


def _left_settings(state: CommandContext) -> Iterator[str]:
    """Yield what the libraries of the account share, and how it is deleted."""
    path = own_path()
    if path is None or not shared_files(path):
        return
    names = shared_entries(state.config().person.edited, state.config().home)
    said = f" ({'; '.join(names)})" if names else ""
    yield f"what all libraries of the account share{said}: {path}; `evolvable uninstall --account` deletes it"


def _uninstall_account(state: CommandContext, *, yes: bool, dry_run: bool) -> Output[Uninstalled]:
    """Delete the settings of the account, or the second file that EVOLVABLE_CONFIG names."""
    path = own_path()
    gone = shared_files(path) if path is not None else []
    lines = [f"{one}, for good" for one in gone] + (shared_entries(state.config().person.edited) if gone else [])
    users = [str(one) for one in registered_homes() if holds_library(one)]
    left = [f"the library in {one}, without these settings from then on" for one in users]
    if gone and not dry_run:
        if not state.json:
            _show_lines("This is removed:", lines)
            _show_lines("This stays:", left)
        confirm("Remove it?", yes=yes, refused="Nothing was removed.")
        state.unlock()
        for one in gone:
            _delete(one)
        with contextlib.suppress(OSError):
            if path is not None and path == config_path():
                path.parent.rmdir()  # what is not ours in it stays, and so does the folder
    return Output(Uninstalled(lines, left), lambda done: _show_uninstalled(done, dry_run))


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove(
    home: Path, connected: list[ConfigurationEntry], copies: list[str], watched: list[FolderChoice], gone: list[Path]
) -> None:
    for entry in connected:
        disconnect(entry)
    memory_files.disable_copies(home, copies)
    for choice in _choices(home):
        take_out(choice)
        with Store.open(home) as store:
            store.backend.collections.forget(choice.settings)
    if watched:
        with Store.open(home) as store:
            for folder in store.backend.bindings.folders():
                store.backend.bindings.drop_folder(folder)
    for path in gone:
        _delete(path)
    with contextlib.suppress(OSError):
        if gone:
            home.rmdir()  # what is not ours in it stays, and so does the folder


def _show_lines(title: str, lines: list[str]) -> None:
    say(title)
    for line in lines:
        say(f"  {line}")


def _show_uninstalled(done: Uninstalled, dry_run: bool) -> None:
    if dry_run:
        _show_lines("This would be removed:", done.removed or ["nothing: no client is connected, no folder is watched"])
    elif not done.removed:
        say("No client is connected and no folder is watched.")
    else:
        say("Removed.")
    _show_lines("This stays:", done.left)
