"""The commands recover, which replaces the library by a backup, and uninstall, which undoes what
was set up.
"""

from dataclasses import dataclass
from pathlib import Path

import click

from evolvable_server import plugins
from evolvable_server.care import Uninstalled, plan_account_removal, plan_removal
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.folder_choice import FolderChoice
from evolvable_server.cli.folder_commands import show_sync
from evolvable_server.cli.folder_import import SyncResult, add_folders
from evolvable_server.cli.terminal import confirm, count, remark, say, warn
from evolvable_server.person_config import registered_homes
from evolvable_store import Principal, check_home
from evolvable_tools.care import check_backup, checked_copy, watched_folders


@dataclass(frozen=True, slots=True)
class Recovered:
    """A library that was replaced by a backup.

    before: the folder with the files of the former library, None without any.
    """

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

    SOURCE is a folder that `evolvable backup create` made; it stays as it is. The library as it was
    is moved beside its folder. Folders that were watched are watched again: a file that differs
    from the backup becomes the next version. Where none was, `evolvable folders confirm` asks about
    those of the backup. Tokens, trash and runs of evolution stay, and looks at sealed tests are
    those of both. End the clients first.
    """
    home = state.config().home
    check_home(home, registered_homes)
    check_backup(home, source)
    # Before the replacement: these are the folders of the library as it is now.
    watched = [
        FolderChoice(folder.path, folder.scope, folder.kind)
        for folder in watched_folders(home, warn)
    ]
    with checked_copy(home, source) as copy:
        remark(f"{source} holds {count(copy.resources, 'resource')}.")
        confirm(f"Replace the library in {home} by it?", yes=yes, refused="Nothing was changed.")
        state.unlock()
        # Looks at sealed tests are never taken back: those of the backup are added to those here.
        merges = [part.merge_backup for part in plugins.archive_parts()]
        before = copy.replace_library(merges, carry_places=not watched)
    with state.library() as (library, _):
        # A folder may lie on a disk that is not there now.
        existing = [choice for choice in watched if choice.path.is_dir()]
        # A person answers for what the folders hold; otherwise nobody is named.
        person = state.identity if state.identity.principal is Principal.PERSON else None
        folders = add_folders(
            library, existing, dict.fromkeys((choice.path for choice in existing), person)
        )
    done = Recovered(
        str(home), str(source), copy.resources, str(before) if before else None, folders
    )
    return Output(done, _show_recovered)


def _show_recovered(done: Recovered) -> None:
    say(f"{done.home} is the backup {done.source} now, with {count(done.resources, 'resource')}.")
    if done.before:
        say(f"The library as it was: {done.before}")
    if done.folders:
        show_sync(done.folders, False)


@command("uninstall")
@click.option("--data", is_flag=True, help="Delete the library and the staging folders too.")
@click.option(
    "--account",
    is_flag=True,
    help="Delete the settings that all libraries of the account share; only that.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
def uninstall_command(
    state: CommandContext, data: bool, account: bool, yes: bool, dry_run: bool
) -> Output[Uninstalled]:
    """Disconnect all clients and stop watching all folders.

    Takes the server of this library out of every client of this account and of this project,
    removes the memories from the files that clients read, has clients list every skill again, and
    drops the watched folders. Your skills stay as they are. With --data the library with all its
    versions is deleted as well, and what your configuration says of it. Executors, models, the
    approvals key and what else the libraries of the account share go with --account, a step of its
    own.
    """
    if account:
        if data:
            raise click.UsageError("--account is a step of its own: run `uninstall --data` first.")
        return _uninstall_account(state, yes=yes, dry_run=dry_run)
    removal = plan_removal(state.config(), data, warn)
    done = removal.report
    if not dry_run and done.removed:
        if not state.json:
            _show_lines("This is removed:", done.removed)
        confirm("Remove it?", yes=yes, refused="Nothing was removed.")
        # The signer is passed as a function: the passphrase is asked for only if the configuration
        # changes.
        removal.carry_out(state.signer)
    return Output(done, lambda done: _show_uninstalled(done, dry_run))


def _uninstall_account(state: CommandContext, *, yes: bool, dry_run: bool) -> Output[Uninstalled]:
    removal = plan_account_removal(state.config())
    done = removal.report
    if removal.gone and not dry_run:
        if not state.json:
            _show_lines("This is removed:", done.removed)
            _show_lines("This stays:", done.left)
        confirm("Remove it?", yes=yes, refused="Nothing was removed.")
        state.unlock()
        removal.carry_out()
    return Output(done, lambda done: _show_uninstalled(done, dry_run))


def _show_lines(title: str, lines: list[str]) -> None:
    """Show the lines below their title, nothing where there are none."""
    if not lines:
        return
    say(title)
    for line in lines:
        say(f"  {line}")


def _show_uninstalled(done: Uninstalled, dry_run: bool) -> None:
    if dry_run:
        _show_lines(
            "This would be removed:",
            done.removed or ["nothing: no client is connected, no folder is watched"],
        )
    elif not done.removed:
        say("No client is connected and no folder is watched.")
    else:
        say("Removed.")
    _show_lines("This stays:", done.left)
