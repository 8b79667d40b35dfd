"""The command upgrade, which replaces the program by another version and keeps a copy of the
library.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import click

from evolvable_server.care import ask_new_program, back_up, plan_upgrade, replace_program
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import found_code
from evolvable_server.cli.terminal import confirm, progress, remark, say
from evolvable_store import LIBRARY_FILE, __version__


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A program that was replaced, or would be.

    before, after: the versions. command: that of the installer. library: why the new version does
    not open the library, None when it opens it.
    """

    before: str
    after: str
    source: str
    command: list[str]
    backup: str | None
    library: str | None


@command("upgrade")
@click.argument("source")
@click.option("--no-backup", is_flag=True, help="Make no copy of the library.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be run.")
def upgrade_command(
    state: CommandContext, source: str, no_backup: bool, yes: bool, dry_run: bool
) -> Output[Upgraded]:
    """Replace the program by another version.

    SOURCE is a wheel of Evolvable, or the folder of a clone. The library is copied first, into a
    folder beside it. Windows of clients that are open go on with the version that they started
    with: restart them. The output says how to go back.
    """
    home = state.config().home
    plan = plan_upgrade(source, home)
    done = Upgraded(__version__, plan.version, source, list(plan.command), None, None)
    if dry_run:
        return Output(
            done, lambda _: say(f"{__version__} -> {plan.version}: {' '.join(plan.command)}")
        )
    confirm(
        f"Replace Evolvable {__version__} by {plan.version}?",
        yes=yes,
        refused="Nothing was changed.",
    )
    # Before the program is replaced: a new version may migrate the library when it opens it.
    backup = None if no_backup else _copy_library(state, Path(home))
    replace_program(plan)
    # In a process of its own: this one has the modules of the old version loaded.
    after, library = ask_new_program(str(home))
    done = Upgraded(
        __version__, after, source, list(plan.command), str(backup) if backup else None, library
    )
    return Output(done, lambda _: _show_upgraded(done, plan.former), found_code(library))


def _copy_library(state: CommandContext, home: Path) -> Path | None:
    """Copy the library beside itself.

    Return the folder, None where there is none, or it lies in a database.
    """
    if not (home / LIBRARY_FILE).is_file():
        remark("There is no library in a folder of this account, so none is copied.")
        return None
    # UTC, so that the names of copies sort by time.
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    with state.library() as (library, _), progress("Copying the library") as show:
        return back_up(
            library.store,
            home.with_name(f"{home.name}.before-upgrade-{stamp}"),
            show,
            replace=False,
        )


def _show_upgraded(done: Upgraded, former: str | None) -> None:
    say(f"Evolvable {done.before} -> {done.after}")
    if done.backup:
        say(f"The library as it was: {done.backup}")
    if done.library:
        say(f"The new version does not open the library: {done.library}")
    say("Windows that are open run the old version until you restart them.")
    origin = f", which came from {former}" if former else ""
    say(f"To go back: `evolvable care upgrade SOURCE` with {done.before}{origin}.")
    if done.backup:
        say(f"If it then refuses the library: `evolvable backup restore {done.backup}`.")
