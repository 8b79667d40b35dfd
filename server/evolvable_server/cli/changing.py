"""The commands that take changes back: restore, remove, undo."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evolvable_server.cli.directories import directories_of, say_gone
from evolvable_server.cli.operations import SEARCHED, whole_session
from evolvable_server.cli.state import REF, State, command, expect_option, reason_option
from evolvable_server.cli.terminal import count, remark, say, warn
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools.verbs import edit, proposal_inbox, versions

if TYPE_CHECKING:
    from evolvable_store.operation import Change
    from evolvable_tools.library import Library

MAX_SHOWN = 20
"""Directories that the question before an undo names."""

CONFLICTS = 1
"""The exit code of `undo` when it had to leave something alone."""


def show_updated(updated: edit.Updated) -> None:
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
        updated = edit.restore_resource(library, caller, ref.at(None), wanted, reason, expected_version=expect)
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
        there = directories_of(library, [library.store.head(ref.at(None), caller.scopes).ref])
        updated = edit.remove_resource(library, caller, ref.at(None), reason, expected_version=expect)
    state.show(updated, lambda: _show_removed(updated, there))


def _show_removed(updated: edit.Updated, there: list[Path]) -> None:
    show_updated(updated)
    say_gone(there)


@command("undo")
@click.argument("operation", type=click.IntRange(min=1), required=False)
@click.option("--session", metavar="ID", help="Instead: take back all that this session did.")
@click.option("--yes", is_flag=True, help="Do not ask before directories go from the disk.")
@reason_option("undone on the command line")
@click.pass_context
def undo_command(
    ctx: click.Context, state: State, operation: int | None, session: str | None, yes: bool, reason: str
) -> None:
    """Take an operation back.

    OPERATION, or all that a session changed, is taken back in one new operation. What somebody changed since is
    left alone and listed; the exit code is then 1. `evolvable log` shows operations. What they created goes from the
    watched folders too; at a terminal that is asked first.
    """
    if (operation is None) == (session is None):
        raise click.UsageError("Name an operation, or a session with --session. `evolvable log` shows both.")
    with state.library() as (library, caller):
        session = whole_session(library.store, session) if session else session
        changes = _changes(library, operation, session)
        if not yes and sys.stdin.isatty():
            _ask(directories_of(library, {change.ref for change in changes if change.before is None}))
        there = directories_of(library, {change.ref for change in changes})
        undone = proposal_inbox.revert_or_propose(library, caller, reason, operation=operation, session=session)
    state.show(undone, lambda: _show_undone(undone, there))
    if undone.conflicts:
        ctx.exit(CONFLICTS)


def _changes(library: "Library", operation: int | None, session: str | None) -> "list[Change]":
    made = [o.id for o in library.store.operations(SEARCHED, session)] if session is not None else [operation or 0]
    return library.store.backend.changes_of(made)


def _ask(going: list[Path]) -> None:
    """Asks before directories of a person go. Raises InvalidArgument when they shall stay."""
    if not going:
        return
    remark("These directories hold what was created, and go from the disk if nobody changed it since:")
    for path in going[:MAX_SHOWN]:
        remark(f"  {path}")
    if len(going) > MAX_SHOWN:
        remark(f"  and {len(going) - MAX_SHOWN:,} more")
    if not click.confirm("Take it back?", default=False, err=True):
        raise InvalidArgument("Nothing was taken back.")


def _show_undone(undone: versions.Undone, there: list[Path]) -> None:
    for text in undone.warnings:
        warn(text)
    if undone.operation is None and not undone.conflicts:
        say("Nothing had to be changed: it was taken back already.")
    for restored in undone.restored:
        say(f"back: {restored}")
    for conflict in undone.conflicts:
        say(f"left alone: {conflict.ref}: {conflict.reason}")
    say_gone(there)
    if undone.operation is not None:
        say(f"This is operation {undone.operation}; it took back {count(len(undone.undid), 'operation')}.")
