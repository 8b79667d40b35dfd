"""The commands that take changes back: restore, remove, undo."""

import click

from evolvable_server.cli.state import REF, State, command, expect_option, reason_option
from evolvable_server.cli.terminal import count, say, warn
from evolvable_store.resource import Ref
from evolvable_tools import resources, undo

CONFLICTS = 1
"""The exit code of `undo` when it had to leave something alone."""


def show_updated(updated: resources.Updated) -> None:
    """Writes what a change did, and how to take it back."""
    for text in updated.warnings:
        warn(text)
    if updated.proposal_id is not None:
        say(f"Proposal {updated.proposal_id} for {updated.ref}: {', '.join(updated.changed)}")
        say(f"Read it: evolvable inbox show {updated.proposal_id}")
        return
    if updated.operation is None:
        at = f"version {updated.version}" if updated.version else "removed"
        say(f"{updated.ref} is as it was ({at}): nothing had to be changed.")
        return
    if updated.version is None:
        say(f"{updated.ref} is removed; its versions are kept.")
    else:
        was = f", before it was {updated.previous_version}" if updated.previous_version else ""
        files = f": {', '.join(updated.changed)}" if updated.changed else ""
        say(f"{updated.ref} is now version {updated.version}{was}{files}")
    say(f"Take it back: evolvable undo {updated.operation}")


@command("restore")
@click.argument("ref", type=REF)
@click.argument("version", type=click.IntRange(min=1), required=False)
@expect_option
@reason_option("restored on the command line")
def restore_command(state: State, ref: Ref, version: int | None, expect: int | None, reason: str) -> None:
    """Bring an old version back.

    Its content becomes a new version. A removed resource comes back too.
    """
    wanted = version or ref.version
    if wanted is None:
        raise click.UsageError("Name the version: `evolvable history` shows them.")
    with state.library() as (library, caller):
        updated = resources.restore(library, caller, ref.at(None), wanted, reason, expected_version=expect)
    state.show(updated, lambda: show_updated(updated))


@command("remove")
@click.argument("ref", type=REF)
@expect_option
@reason_option("removed on the command line")
def remove_command(state: State, ref: Ref, expect: int | None, reason: str) -> None:
    """Remove a resource; its versions stay.

    It goes from the folders that are watched as well. `evolvable restore` brings it back.
    """
    with state.library() as (library, caller):
        updated = resources.remove(library, caller, ref.at(None), reason, expected_version=expect)
    state.show(updated, lambda: show_updated(updated))


@command("undo")
@click.argument("operation", type=click.IntRange(min=1), required=False)
@click.option("--session", metavar="ID", help="Instead: take back all that this session did.")
@reason_option("undone on the command line")
@click.pass_context
def undo_command(ctx: click.Context, state: State, operation: int | None, session: str | None, reason: str) -> None:
    """Take an operation back.

    OPERATION, or all that a session changed, is taken back in one new operation. What somebody changed since is
    left alone and listed; the exit code is then 1. `evolvable log` shows operations.
    """
    if (operation is None) == (session is None):
        raise click.UsageError("Name an operation, or a session with --session. `evolvable log` shows both.")
    with state.library() as (library, caller):
        undone = undo.undo(library, caller, reason, operation=operation, session=session)
    state.show(undone, lambda: _show_undone(undone))
    if undone.conflicts:
        ctx.exit(CONFLICTS)


def _show_undone(undone: undo.Undone) -> None:
    for text in undone.warnings:
        warn(text)
    if undone.operation is None and not undone.conflicts:
        say("Nothing had to be changed: it was taken back already.")
    for restored in undone.restored:
        say(f"back: {restored}")
    for conflict in undone.conflicts:
        say(f"left alone: {conflict.ref}: {conflict.reason}")
    if undone.operation is not None:
        say(f"This is operation {undone.operation}; it took back {count(len(undone.undid), 'operation')}.")
