"""The commands fsck, gc, purge and trash, and the warnings about secrets and near duplicates."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evolvable_server.cli.command_context import CommandContext, command
from evolvable_server.cli.terminal import Row, confirm, count, local_time, progress, remark, say, show_table, warn
from evolvable_store.errors import InvalidArgument, LibraryCorrupt, NotFound
from evolvable_store.resource import Ref
from evolvable_store.workingcopy.file_moves import MAX_BYTES, RETENTION_SECONDS, Trash, TrashEntry
from evolvable_store.workingcopy.staging_dir import open_root

if TYPE_CHECKING:
    from evolvable_store.fsck import FsckReport
    from evolvable_store.resource import Ref
    from evolvable_tools.library import Caller, Library
    from evolvable_tools.secret_leaks import LeakedSecret
    from evolvable_tools.verbs.purge_content import Purged, PurgePlan

# Start time: `--help` and other commands import this module; secret patterns take long to compile.


def near_duplicate_lines(library: "Library", refs: "Sequence[Ref]") -> list[str]:
    """Return a line for each pair; a last one where not all were looked at; nothing where all can be distinguished."""
    from evolvable_tools.retrieval.near_duplicates import MOST_AT_ONCE
    from evolvable_tools.verbs import search

    if not refs:
        return []
    found = search.near_duplicates_of(library, refs)
    lines = [pair.said for pair in found.pairs]
    return [*lines, found.said] if lines or len(refs) > MOST_AT_ONCE else []


def show_near_duplicates(lines: Sequence[str]) -> None:
    """Write them under a title."""
    if lines:
        say("\nSimilar descriptions:")
    for line in lines:
        say(f"  - {line}")


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """Secrets that nobody dealt with."""

    secrets: "list[LeakedSecret]"


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """What was purged, what was accepted."""

    purged: "list[Purged]"
    accepted: list[str] = dataclasses.field(default_factory=list)


def warn_of_secrets(library: "Library") -> None:
    """Warn of each secret in the library that nobody dealt with; the secret itself is not shown."""
    from evolvable_tools import secret_leaks

    lines = secret_leaks.leak_messages(secret_leaks.leaks(library))
    for line in lines:
        warn(f"{line}.")
    if lines:
        remark(f"It stops export, publish and checkout until you decide: {secret_leaks.NEXT}")


@command("purge")
@click.argument("ref", required=False)
@click.argument("path", required=False)
@click.option("--secret", metavar="ID", help="Remove this secret wherever it occurs.")
@click.option("--accept", metavar="ID", help="Keep this finding; it stops nothing any more.")
@click.option("--list", "listing", is_flag=True, help="Show the secrets that nobody dealt with.")
@click.option("--resume", is_flag=True, help="End a purge that was interrupted.")
@click.option("--edit-copies", is_flag=True, help="Edit the files in watched folders too; else they are named.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("-m", "--reason", default="", help="Why, in a sentence; it stands in the tombstone.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge_command(
    state: CommandContext,
    ref: str | None,
    path: str | None,
    secret: str | None,
    accept: str | None,
    listing: bool,
    resume: bool,
    edit_copies: bool,
    dry_run: bool,
    reason: str,
    yes: bool,
) -> None:
    """Remove bytes from every version, permanently.

    REF PATH removes a file from every version, REF@VERSION PATH from that version; the same bytes elsewhere go with it.
    A tombstone says who did it and why. Only a person may. Backups and remotes outside the library are not reached.
    """
    from evolvable_tools import secret_leaks
    from evolvable_tools.verbs import purge_content

    chosen = [bool(ref), bool(secret), bool(accept), listing, resume]
    if sum(chosen) != 1 or bool(ref) != bool(path):
        raise click.UsageError("Name REF and PATH, or one of --secret ID, --accept ID, --list, --resume.")
    with state.library() as (library, caller):
        if listing:
            found = Findings(secret_leaks.leaks(library))
            state.show(found, lambda: _show_findings(found))
            return
        if accept:
            kept = secret_leaks.accept_leak(library, caller, accept, reason or "accepted")
            state.show(Done([], [str(one) for one in kept]), lambda: say(f"Kept: {kept[0]}"))
            return
        if resume:
            done = Done(purge_content.resume_purges(library, caller))
            state.show(done, lambda: _show_done(done))
            return
        plan = _plan(library, caller, ref, path, secret)
        if dry_run:
            planned = Done(
                [purge_content.Purged(plan.kind, plan.versions, files=plan.files, remains=plan.folders, dry_run=True)]
            )
            state.show(planned, lambda: _show_plan(plan))
            return
        secret_leaks.check_may_decide(caller, "purge")
        _confirm_purge(plan, yes)
        done = Done([purge_content.purge(library, caller, plan, reason, edit_copies=edit_copies)])
    state.show(done, lambda: _show_done(done))


def _plan(library: "Library", caller: "Caller", ref: str | None, path: str | None, secret: str | None) -> "PurgePlan":
    from evolvable_tools import secret_leaks
    from evolvable_tools.verbs import purge_content

    secret_leaks.check_may_decide(caller, "purge")
    if secret is None:
        return purge_content.plan_file(library, caller, Ref.parse(ref or ""), path or "")
    files = [one for one in secret_leaks.leaks(library) if one.id == secret and one.kind == secret_leaks.ENV_FILE]
    if files:
        return purge_content.plan_file(library, caller, Ref.parse(files[0].ref), files[0].path)
    return purge_content.plan_secret(library, secret)


def _confirm_purge(plan: "PurgePlan", yes: bool) -> None:
    for line in (*plan.versions, *plan.files):
        remark(f"  {line}")
    for line in plan.folders:
        remark(f"  {line} (a watched folder)")
    confirm(
        "Remove it permanently? It cannot be undone.",
        yes=yes,
        refused="Nothing was removed.",
        hint="`--dry-run` shows what a purge would remove.",
    )


def _show_findings(found: Findings) -> None:
    for leak in found.secrets:
        say(str(leak))
    say(f"{count(len(found.secrets), 'finding')}." if found.secrets else "No open findings.")


def _show_plan(plan: "PurgePlan") -> None:
    for what, lines in (
        ("versions", plan.versions),
        ("files below the library", plan.files),
        ("folders", plan.folders),
    ):
        for line in lines:
            say(f"{what}: {line}")
    say(f"{count(len(plan.versions), 'version')} would change. Nothing was removed.")


def _show_done(done: Done) -> None:
    for one in done.purged:
        for line in one.versions:
            say(f"purged: {line}")
        for line in (*one.files, *one.edited):
            say(f"cleaned: {line}")
        for line in one.remains:
            warn(f"It is still in {line}")
        say(f"{count(len(one.blobs), 'file content')} replaced by a tombstone.")
    if not done.purged:
        say("No purge is waiting to be ended.")
    say("Replace the secret where it was issued; backups, exports and remotes elsewhere may still hold it.")


RESTORE = "Restore the last `evolvable backup`; `evolvable export` saves what can be read."

FAULTY = 1
"""The exit code of `fsck` when something is wrong."""


@command("fsck")
@click.pass_context
def fsck_command(ctx: click.Context, state: CommandContext) -> None:
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
def gc_command(state: CommandContext, dry_run: bool, shrink: bool) -> None:
    """Remove bytes that nothing refers to.

    Versions are never removed, nor what they refer to.
    """
    from evolvable_store.gc import collect

    with state.library() as (library, _):
        collected = collect(library.store, dry_run, shrink=shrink)
    done = "would be removed" if dry_run else "removed"
    state.show(collected, lambda: say(f"{count(collected.blobs, 'blob')} {done}, {collected.bytes:,} bytes."))


@dataclass(frozen=True, slots=True)
class TrashListing:
    """What is in the trash, newest first, and how long and how much of it is kept."""

    entries: list[TrashEntry]
    retention_days: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """What was put back. kept: paths that stayed in the trash, because something else has their place."""

    entry: TrashEntry
    kept: list[str]


@command("trash")
@click.argument("action", type=click.Choice(["list", "restore", "delete"]), default="list")
@click.argument("entry", required=False)
def trash_command(state: CommandContext, action: str, entry: str | None) -> None:
    """List and restore files that no version holds.

    When a removal or an undo takes a directory out of a watched folder, files in it that no version holds
    (node_modules, .venv, .DS_Store and the like) are moved here. They return by themselves when the directory is
    written again; `restore ENTRY` puts back everything that the directory held.
    """
    if (action == "list") != (entry is None):
        raise click.UsageError("`trash list` takes no entry; restore and delete take one.")
    with state.library() as (library, _):
        trash = Trash(library.store.home)
        if entry is None:
            listing = TrashListing(trash.entries(), RETENTION_SECONDS / 86_400, MAX_BYTES)
            state.show(listing, lambda: _show_trash(listing))
            return
        found = next((one for one in trash.entries() if one.id == entry), None)
        if found is None:
            raise NotFound(
                f"There is nothing {ascii(entry[:40])} in the trash.", "`evolvable trash` lists its entries."
            )
        if action == "delete":
            trash.delete(found.id)
            state.show(PutBack(found, []), lambda: say(f"Deleted {found.id} for good."))
            return
        if found.folder not in {str(folder.path) for folder in library.folders()}:
            raise InvalidArgument(
                f"{found.folder} is not watched any more.", f"Copy the files from {library.store.home}/trash/{entry}."
            )
        root = Path(found.folder)
        with open_root(root) as opened:
            kept = trash.put_back(found.id, opened / found.directory)
    state.show(PutBack(found, kept), lambda: _show_put_back(found, kept))


def _show_trash(listing: TrashListing) -> None:
    if not listing.entries:
        say("The trash is empty.")
        return
    rows: list[Row] = [
        [
            (one.id, "bold"),
            local_time(datetime.fromtimestamp(one.at, UTC).isoformat()),
            f"{one.folder}/{one.directory}",
            str(one.files),
            f"{one.size:,}",
        ]
        for one in listing.entries
    ]
    show_table(["entry", "when", "from", "files", "bytes"], rows, wide=("from",))
    say(f"\nKept for {listing.retention_days:.0f} days, at most {listing.max_bytes:,} bytes in all.")
    say("Put one back: evolvable trash restore ENTRY")


def _show_put_back(entry: TrashEntry, kept: list[str]) -> None:
    for path in kept:
        warn(f"{path} stays in the trash: something else has its place in {entry.folder}/{entry.directory}")
    say(f"Put back {count(entry.files, 'file')} into {entry.folder}/{entry.directory}.")
