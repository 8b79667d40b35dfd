"""How what a sync of folders did is told: as data, and as a table with every reason of what was refused."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evolvable_server.cli.terminal import Row, count, say, show_table
from evolvable_store.operation import Principal

if TYPE_CHECKING:
    from evolvable_store.workingcopy.incoming import DirectoryIssue, SyncReport

MAX_NAMED = 10
"""Resources that a line names."""


@dataclass(frozen=True, slots=True)
class TakenIn:
    """A directory that became a version. `how`: new, edited, returned or merged."""

    directory: str
    ref: str
    version: int
    how: str


@dataclass(frozen=True, slots=True)
class Remarks:
    """A directory, and everything that is to be said of it."""

    directory: str
    problems: list[str]


@dataclass(frozen=True, slots=True)
class Waits:
    """A directory whose content waits in the inbox as a proposal; `why` is '' when it was held before."""

    directory: str
    ref: str
    proposal: int
    why: str


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a sync of one folder did; directories are relative to it.

    missing: the folder itself is not there. in_step: directories seen for the first time that hold what the library
    has. held: directories whose content waits in the inbox and is not served. untrusted: what a repository brought.
    """

    path: str
    scope: str
    kind: str
    missing: bool
    taken: list[TakenIn]
    in_step: list[str]
    written: list[str]
    removed: list[str]
    refused: list[Remarks]
    conflicts: list[Remarks]
    warnings: list[Remarks]
    held: list[Waits] = field(default_factory=list)
    untrusted: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync of all folders did."""

    folders: list[SyncResult]


def result(sync: "SyncReport") -> SyncResult:
    """Returns what a sync did, as plain data."""
    folder = sync.folder
    return SyncResult(
        path=str(folder.path),
        scope=folder.scope,
        kind=folder.kind,
        missing=sync.stale,
        taken=[TakenIn(t.directory, str(t.ref), t.version, t.how) for t in sync.taken],
        in_step=list(sync.bound),
        written=list(sync.written),
        removed=list(sync.removed),
        refused=_remarks(sync.refused),
        conflicts=_remarks(sync.conflicts),
        warnings=_remarks(sync.warnings),
        held=[Waits(one.directory, str(one.ref), one.proposal, one.why) for one in sync.held],
        untrusted=[str(taken.ref) for taken in sync.taken if taken.principal is Principal.REPOSITORY],
    )


def _remarks(refusals: "Sequence[DirectoryIssue]") -> list[Remarks]:
    return [Remarks(refusal.directory, list(refusal.problems)) for refusal in refusals]


def show(results: Sequence[SyncResult], verbose: bool) -> None:
    """Writes a table with a row for each folder, and below it every reason of what was refused or conflicts."""
    columns = ("folder", "taken in", "in step", "written", "removed", "refused", "conflicts", "warnings")
    show_table(columns, [_row(one) for one in results], wide=("folder",))
    for one in results:
        _show_details(one, verbose)


def _row(one: SyncResult) -> Row:
    path = f"{one.path} ({one.scope}{', missing' if one.missing else ''})"
    done = [str(len(what)) for what in (one.taken, one.in_step, one.written, one.removed)]
    alarming = [(str(len(what)), "red" if what else "") for what in (one.refused, one.conflicts)]
    return [path, *done, *alarming, str(len(one.warnings))]


def _show_details(one: SyncResult, verbose: bool) -> None:
    if one.taken:
        names = [f"{taken.ref}@{taken.version}" for taken in one.taken]
        more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED and not verbose else ""
        say(f"\nTaken in from {one.path}: {', '.join(names if verbose else names[:MAX_NAMED])}{more}")
    if one.untrusted:
        more = f" and {len(one.untrusted) - MAX_NAMED:,} more" if len(one.untrusted) > MAX_NAMED and not verbose else ""
        named = ", ".join(one.untrusted if verbose else one.untrusted[:MAX_NAMED])
        say(f"\nuntrusted: a repository brought {named}{more}. They are found after your own, and marked.")
        say(f"  Read what they hold and decide: evolvable trust {one.path}")
    if one.held:
        say(f"\nheld: not served, and left in {one.path} as it is, until you decide:")
    for waits in one.held:
        say(f"  {waits.ref} (evolvable inbox show {waits.proposal}){': ' + waits.why if waits.why else ''}")
    _show_remarks("Refused", one.path, one.refused)
    _show_remarks("Conflicts", one.path, one.conflicts)
    if verbose:
        _show_remarks("Warnings", one.path, one.warnings)
    elif one.warnings:
        number = sum(len(remark.problems) for remark in one.warnings)
        where = count(len(one.warnings), "folder")
        say(f"\n{count(number, 'warning')} in {where} of {one.path}: `evolvable doctor --verbose` shows them.")


def _show_remarks(title: str, path: str, remarks: Sequence[Remarks]) -> None:
    if remarks:
        say(f"\n{title} in {path}:")
    for remark in remarks:
        say(f"  {remark.directory}")
        for problem in remark.problems:
            say(f"    - {problem}")
