"""The command that removes a file or a secret from every version: purge; and the warning about secrets."""

import dataclasses
from typing import TYPE_CHECKING

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import count, remark, say, warn
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref

if TYPE_CHECKING:
    from evolvable_tools.library import Caller, Library
    from evolvable_tools.secret_leaks import LeakedSecret
    from evolvable_tools.verbs.purge_content import Purged, PurgePlan


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
    state: State,
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
        _ask(plan, yes)
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


def _ask(plan: "PurgePlan", yes: bool) -> None:
    for line in (*plan.versions, *plan.files):
        remark(f"  {line}")
    for line in plan.folders:
        remark(f"  {line} (a watched folder)")
    if not yes and not click.confirm("Remove it permanently? It cannot be undone.", default=False, err=True):
        raise InvalidArgument("Nothing was removed.", "`--dry-run` shows what a purge would remove.")


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
