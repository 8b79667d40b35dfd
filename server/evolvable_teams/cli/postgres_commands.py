"""The command move: copy the library between a folder and PostgreSQL."""

from dataclasses import dataclass
from pathlib import Path

import click

from evolvable_server import open_address, plugins, registered_homes
from evolvable_server.cli import CommandContext, Output, command
from evolvable_server.cli.terminal import count, progress, say
from evolvable_store import Store, check_library, holds_library, is_address
from evolvable_store.errors import AlreadyExists, InvalidArgument, LibraryCorrupt
from evolvable_store.storage import Address, carry_places
from evolvable_store.workingcopy import add_projects
from evolvable_teams.postgres import import_postgres


@dataclass(frozen=True, slots=True)
class Moved:
    """A library that was copied.

    source: where the source is. home: the value for EVOLVABLE_HOME. digest: of the rows. folders:
    those that the source watches.
    """

    source: str
    home: str
    rows: int
    digest: str
    folders: list[str]


@command("move")
@click.option(
    "--to", "target", required=True, metavar="URL|FOLDER", help="An empty project, or a new folder."
)
def move_command(state: CommandContext, target: str) -> Output[Moved]:
    """Copy the whole library into PostgreSQL, or back into a folder.

    Everything of the library is copied in one transaction, and compared row by row; both libraries
    are checked as `fsck` does. Looks at sealed tests go along. The source stays as it is. Tokens
    and runs stay with it. The new library watches the same folders after `evolvable folders
    confirm` there; first end that here with `evolvable folders drop`.
    """
    home = open_address(target) if is_address(target) else Path(target).expanduser().absolute()
    if not is_address(target) and holds_library(home):
        raise AlreadyExists(f"{home} holds a library.", "Name a new folder.")
    state.unlock()
    with state.library() as (library, _), progress("Copying"):
        source = library.store
        if is_address(target) == (source.backend.journal == "postgresql"):
            raise InvalidArgument(
                "Source and target are of one kind.", "--to takes a URL for a library in a folder."
            )
        _check_library(source)
        with Store.open(home, create=True, registered=registered_homes) as target_store:
            copied = import_postgres("transfer").transfer(source.backend, target_store.backend)
            for part in plugins.archive_parts():
                part.merge_backup(target_store.home, source.home)
            # Folders and projects are stored in the home and not in the database, so they are
            # copied by themselves.
            add_projects(target_store.home, source.home)
            carry_places(source.backend.bindings, target_store.home)
            _check_library(target_store)
        folders = [str(folder.path) for folder in source.backend.bindings.folders()]
        new_home = target if is_address(target) else str(home)
    result = Moved(source.backend.where, new_home, copied.rows, copied.digest, folders)
    return Output(result, _show)


def _check_library(store: Store) -> None:
    """Raise LibraryCorrupt for a library with a fault."""
    if faults := check_library(store).faults:
        raise LibraryCorrupt(
            f"{store.backend.where} is damaged: {faults[0]}",
            "`evolvable care fsck` lists everything.",
        )


def _show(result: Moved) -> None:
    say(
        f"{count(result.rows, 'row')} copied and compared; the library in {result.source} "
        "stays as it is."
    )
    say(f"To use the new one: EVOLVABLE_HOME={_without_password(result.home)}")
    for folder in result.folders:
        say(f"Not watched there until `evolvable folders confirm`: {folder}")


def _without_password(home: str) -> str:
    return str(Address.parse(home).name) if is_address(home) else home
