"""The commands fsck, gc, purge and trash, and the warnings about secrets and near duplicates."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from evolvable_server import plugins
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import found_code
from evolvable_server.cli.terminal import (
    confirm,
    count,
    file_size,
    local_time,
    progress,
    remark,
    say,
    say_labelled,
    show_table,
    warn,
)
from evolvable_server.upkeep import FoldedLibrary, fold_library
from evolvable_store import FsckReport, check_library, collect
from evolvable_store.errors import InvalidArgument, LibraryCorrupt, NotFound
from evolvable_store.resource import Ref
from evolvable_store.search import check_index
from evolvable_store.workingcopy import MAX_BYTES, RETENTION_DAYS, Trash, TrashEntry, open_root
from evolvable_tools import (
    ENV_FILE,
    NEXT,
    Caller,
    HealthProblem,
    HeldBack,
    LeakedSecret,
    Library,
    accept_leak,
    check_may_decide,
    leaks,
    verbs,
)
from evolvable_tools.care import open_secrets, secret_lines
from evolvable_tools.verbs import Purged, PurgePlan


def show_near_duplicates(lines: Sequence[str]) -> None:
    """Write lines about near duplicates under a title, nothing for no line."""
    if lines:
        say("\nSimilar descriptions:", *(f"  - {line}" for line in lines))


def show_problems(problems: Sequence[HealthProblem]) -> None:
    """Write what is wrong, each with what to do about it."""
    for problem in problems:
        say_labelled("Wrong: ", f"{problem.what} {problem.next}".strip(), "bold red")


def warn_of_secrets(library: Library) -> None:
    """Warn of each secret in the library that nobody dealt with; the secret itself is not shown."""
    lines = secret_lines(library, progress)
    warn(*lines)
    if lines:
        what = (
            "Until you decide, export, push, publish and checkout leave out the resources "
            "that hold one"
        )
        remark(f"{what}: {NEXT}")


def warn_left_out(left_out: Collection[HeldBack], then: str = "Then repeat the command.") -> None:
    """Say which resources a command left out because of a secret, why, and what to do.

    then: the sentence that says what to do after the decision.
    """
    warn(*(f"{resource}." for resource in left_out))
    if left_out:
        remark(f"The rest is done. {NEXT} {then}")


@command("purge")
@click.argument("ref", required=False)
@click.argument("path", required=False)
@click.option("--secret", metavar="ID", help="Remove this secret wherever it occurs.")
@click.option("--accept", metavar="ID", help="Keep this finding; it stops nothing any more.")
@click.option("--list", "listing", is_flag=True, help="Show the secrets that nobody dealt with.")
@click.option("--resume", is_flag=True, help="End a purge that was interrupted.")
@click.option(
    "--edit-copies",
    is_flag=True,
    help="Edit the files in watched folders too; else they are named.",
)
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
) -> Output[Any]:
    """Remove bytes from every version, permanently.

    REF PATH removes a file from every version, REF@VERSION PATH from that version; the same bytes
    elsewhere go with it. A tombstone says who did it and why. Only a person may. Backups and
    remotes outside the library are not reached.
    """
    chosen = [bool(ref), bool(secret), bool(accept), listing, resume]
    if sum(chosen) != 1 or bool(ref) != bool(path):
        raise click.UsageError(
            "Name REF and PATH, or one of --secret ID, --accept ID, --list, --resume."
        )
    with state.library() as (library, caller):
        if listing:
            return Output({"secrets": open_secrets(library, progress)}, _show_secrets)
        if accept:
            accepted = accept_leak(library, caller, accept, reason or "accepted")
            return _make_purge_output(
                [], lambda _: say(f"Kept: {accepted[0]}"), accepted=[str(leak) for leak in accepted]
            )
        if resume:
            return _make_purge_output(verbs.resume_purges(library, caller), _show_purged)
        plan = _make_plan(library, caller, ref, path, secret)
        if dry_run:
            planned = Purged(
                plan.kind, plan.versions, files=plan.files, remains=plan.folders, dry_run=True
            )
            return _make_purge_output([planned], lambda _: _show_plan(plan))
        # Before the question: nobody should confirm what is refused after it.
        check_may_decide(caller, "purge")
        warn(*plugins.left_by_missing_parts(library))
        _confirm_purge(plan, yes)
        return _make_purge_output(
            [verbs.purge(library, caller, plan, reason, edit_copies=edit_copies)], _show_purged
        )


def _make_purge_output(
    purged: list[Purged], render: Callable[[dict[str, Any]], None], accepted: Sequence[str] = ()
) -> Output[Any]:
    """Return what was purged and what was accepted."""
    return Output({"purged": purged, "accepted": accepted}, render)


def _make_plan(
    library: Library, caller: Caller, ref: str | None, path: str | None, secret: str | None
) -> PurgePlan:
    # The plan shows what holds the secret, so it is for a person too.
    check_may_decide(caller, "purge")
    if secret is None:
        return verbs.plan_file(library, caller, Ref.parse(ref or ""), path or "")
    # In a file of variables the whole file is the secret, so the file goes and not a text in it.
    files = [leak for leak in leaks(library) if leak.id == secret and leak.kind == ENV_FILE]
    if files:
        return verbs.plan_file(library, caller, Ref.parse(files[0].ref), files[0].path)
    return verbs.plan_secret(library, secret)


def _confirm_purge(plan: PurgePlan, yes: bool) -> None:
    remark(*(f"  {line}" for line in (*plan.versions, *plan.files)))
    remark(*(f"  {folder} (a watched folder)" for folder in plan.folders))
    confirm(
        "Remove it permanently? It cannot be undone.",
        yes=yes,
        refused="Nothing was removed.",
        hint="`--dry-run` shows what a purge would remove.",
    )


def _show_secrets(result: dict[str, list[LeakedSecret]]) -> None:
    secrets = result["secrets"]
    total = f"{count(len(secrets), 'finding')}." if secrets else "No open findings."
    say(*map(str, secrets), total)


def _show_plan(plan: PurgePlan) -> None:
    say(*(f"versions: {line}" for line in plan.versions))
    say(*(f"files below the library: {line}" for line in plan.files))
    say(*(f"folders: {line}" for line in plan.folders))
    say(f"{count(len(plan.versions), 'version')} would change. Nothing was removed.")


def _show_purged(done: dict[str, list[Purged]]) -> None:
    for purge in done["purged"]:
        say(*(f"purged: {line}" for line in purge.versions))
        say(*(f"cleaned: {line}" for line in (*purge.files, *purge.edited)))
        warn(*(f"It is still in {line}" for line in purge.remains))
        say(f"{count(len(purge.blobs), 'file content')} replaced by a tombstone.")
    if not done["purged"]:
        say("No purge is waiting to be ended.")
    say(
        "Replace the secret where it was issued; backups, exports and remotes elsewhere may "
        "still hold it."
    )


RESTORE = (
    "`evolvable backup restore FOLDER` restores the last `evolvable backup create`;"
    " `evolvable export` saves what can be read."
)


@command("fsck")
def fsck_command(state: CommandContext) -> Output[FsckReport]:
    """Check every stored byte.

    Every hash, every history, the log and the index are checked, while others may go on working.
    Exit code 4: something is wrong.
    """
    try:
        with state.library() as (library, _), progress("Checking") as show:
            # The store does not know the index, so its check is passed along.
            report = check_library(library.store, show, [check_index])
            warn(*plugins.left_by_missing_parts(library))
    except LibraryCorrupt as error:
        # The error names this command as the next step.
        error.hint = RESTORE if "evolvable care fsck" in error.hint else error.hint
        raise
    return Output(report, _show_report, found_code(report.faults))


def _show_report(report: FsckReport) -> None:
    parts = (
        count(report.resources, "resource"),
        count(report.versions, "version"),
        count(report.blobs, "blob"),
        count(report.operations, "operation"),
    )
    say(f"Checked {', '.join(parts)}.")
    warn(*map(str, report.faults))
    say(f"{count(len(report.faults), 'fault')} found." if report.faults else "All is well.")


class _Days(click.ParamType[int]):
    """An age in days, such as 90d."""

    name = "days"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = str(value).removesuffix("d")
        is_number = number.isascii() and number.isdecimal()
        # Six digits are enough to be too large, and Python refuses to convert thousands of them.
        if not (is_number and LEAST_DAYS <= int(number[:6]) <= MAX_DAYS):
            self.fail(
                f"{value!r} is no age of {LEAST_DAYS}d to {MAX_DAYS}d, such as 90d.", param, ctx
            )
        return int(number)


LEAST_DAYS, MAX_DAYS = 30, 36_500
"""The ages in days that `gc --older` takes."""


@command("gc")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option(
    "--shrink", is_flag=True, help="Give the space back to the disk; writers wait for that long."
)
@click.option(
    "--older", type=_Days(), metavar="DAYS", help="Also make coarser what is older, such as 90d."
)
def gc_command(
    state: CommandContext, dry_run: bool, shrink: bool, older: int | None
) -> Output[Any]:
    """Remove bytes that nothing refers to.

    Versions are never removed, nor what they refer to. With --older, impressions become counts of a
    day, refused proposals lose their files, and runs of evolution that nothing refers to lose their
    folders.
    """
    # Single impressions are lost for good.
    if older is not None and not dry_run:
        state.require_person("`care gc --older`")
    with state.library() as (library, _):
        if older is not None:
            folded = fold_library(library, older, dry_run=dry_run, shrink=shrink)
            return Output(folded, lambda _: _show_folded(folded, "would be" if dry_run else "were"))
        collected = collect(library.store, dry_run, shrink=shrink)
    done = "would be removed" if dry_run else "removed"
    return Output(
        collected,
        lambda _: say(f"{count(collected.blobs, 'blob')} {done}, {collected.bytes:,} bytes."),
    )


def _show_folded(folded: FoldedLibrary, done: str) -> None:
    say(
        f"Older than {folded.older_than_days} days:",
        f"  {count(folded.impressions, 'impression')} {done} made counts of a day.",
        f"  {count(folded.proposals, 'refused proposal')} {done} left without files.",
        f"  {count(len(folded.runs), 'run')} of evolution {done} removed.",
        f"  {count(folded.blobs, 'blob')} {done} removed, {folded.bytes:,} bytes.",
        *(f"Run {run} is kept: {'; '.join(why)}." for run, why in folded.kept.items()),
    )


@command("trash", table=True)
@click.argument("action", type=click.Choice(["list", "restore", "delete"]), default="list")
@click.argument("entry", required=False)
def trash_command(state: CommandContext, action: str, entry: str | None) -> Output[Any]:
    """List and restore files that no version holds.

    When a removal or an undo takes a directory out of a watched folder, files in it that no version
    holds (node_modules, .venv, .DS_Store and the like) are moved here. They return by themselves
    when the directory is written again; `restore ENTRY` puts back everything that the directory
    held.
    """
    if (action == "list") != (entry is None):
        raise click.UsageError("`care trash list` takes no entry; restore and delete take one.")
    with state.library() as (library, _):
        trash = Trash(library.store.home)
        if entry is None:
            kept_for = {"retention_days": RETENTION_DAYS, "max_bytes": MAX_BYTES}
            return Output({"entries": trash.entries(), **kept_for}, _show_trash)
        chosen = next((candidate for candidate in trash.entries() if candidate.id == entry), None)
        if chosen is None:
            raise NotFound(
                f"There is nothing {ascii(entry[:40])} in the trash.",
                "`evolvable care trash` lists its entries.",
            )
        if action == "delete":
            trash.delete(chosen.id)
            return Output(
                {"entry": chosen, "kept": []}, lambda _: say(f"Deleted {chosen.id} for good.")
            )
        # Only into a watched folder: another path may belong to somebody else by now.
        if chosen.folder not in {str(folder.path) for folder in library.folders()}:
            raise InvalidArgument(
                f"{chosen.folder} is not watched any more.",
                f"Copy the files from {library.store.home}/trash/{entry}.",
            )
        with open_root(Path(chosen.folder)) as opened:
            left = trash.put_back(chosen.id, opened / chosen.directory)
    return Output({"entry": chosen, "kept": left}, lambda _: _show_put_back(chosen, left))


def _show_trash(listing: dict[str, Any]) -> None:
    entries: list[TrashEntry] = listing["entries"]
    if not entries:
        say("The trash is empty.")
        return
    show_table(
        ["entry", "when", "from", "files", "size"],
        [
            [
                (entry.id, "bold"),
                # The trash has seconds since 1970.
                local_time(datetime.fromtimestamp(entry.at, UTC).isoformat()),
                f"{entry.folder}/{entry.directory}",
                str(entry.files),
                file_size(entry.size),
            ]
            for entry in entries
        ],
        names=("entry", "from"),
        spare=("when", "files"),
    )
    say(
        f"\nKept for {listing['retention_days']} days of use, at most "
        f"{file_size(MAX_BYTES)} in all."
    )
    say("Put one back: evolvable care trash restore ENTRY")


def _show_put_back(entry: TrashEntry, left: list[str]) -> None:
    where = f"{entry.folder}/{entry.directory}"
    warn(*(f"{path} stays in the trash: something else has its place in {where}" for path in left))
    say(f"Put back {count(entry.files, 'file')} into {where}.")
