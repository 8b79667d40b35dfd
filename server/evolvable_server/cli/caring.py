"""The commands that check the library and clear what nobody needs: fsck, gc."""

from typing import TYPE_CHECKING

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import count, progress, say, warn
from evolvable_store.errors import LibraryCorrupt

if TYPE_CHECKING:
    from evolvable_store.fsck import FsckReport

RESTORE = "Restore the last `evolvable backup`; `evolvable export` saves what can be read."

FAULTY = 1
"""The exit code of `fsck` when something is wrong."""


@command("fsck")
@click.pass_context
def fsck_command(ctx: click.Context, state: State) -> None:
    """Check every stored byte.

    Every hash, every history, the log and the index are checked, while others may go on working. Exit code 1:
    something is wrong.
    """
    from evolvable_store import fsck
    from evolvable_store.search.index import check_index

    try:
        with state.library() as (library, _), progress("checking") as show:
            report = fsck.check_library(library.store, show, [check_index])
    except LibraryCorrupt as error:
        error.hint = RESTORE if "evolvable fsck" in error.hint else error.hint
        raise
    state.show(report, lambda: _show_report(report))
    if report.faults:
        ctx.exit(FAULTY)


def _show_report(report: "FsckReport") -> None:
    parts = (
        count(report.resources, "resource"),
        count(report.versions, "version"),
        count(report.blobs, "blob"),
        count(report.operations, "operation"),
    )
    say(f"Checked {', '.join(parts)}.")
    for fault in report.faults:
        warn(str(fault))
    say(f"{count(len(report.faults), 'fault')} found." if report.faults else "All is well.")


@command("gc")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--shrink", is_flag=True, help="Give the space back to the disk; writers wait for that long.")
def gc_command(state: State, dry_run: bool, shrink: bool) -> None:
    """Remove bytes that nothing refers to.

    Versions are never removed, nor what they refer to.
    """
    from evolvable_store.gc import collect

    with state.library() as (library, _):
        collected = collect(library.store, dry_run, shrink=shrink)
    done = "would be removed" if dry_run else "removed"
    state.show(collected, lambda: say(f"{count(collected.blobs, 'blob')} {done}, {collected.bytes:,} bytes."))
