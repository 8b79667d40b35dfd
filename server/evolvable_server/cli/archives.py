"""The commands that bring resources in and out, and copy the library: import, export, backup."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evolvable_server.cli.doubles import doubles, show_doubles
from evolvable_server.cli.import_question import ask
from evolvable_server.cli.purging import warn_of_secrets
from evolvable_server.cli.state import KIND, REF, State, command, spoken
from evolvable_server.cli.terminal import count, progress, say, warn
from evolvable_store.errors import InvalidArchive, InvalidArgument
from evolvable_store.operation import Principal
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_scope
from evolvable_tools.verbs import scan_import
from evolvable_tools.verbs.scan_import import Answer

if TYPE_CHECKING:
    from evolvable_store.bundle.import_ import ImportReport
    from evolvable_store.store import Store
    from evolvable_tools.library import Caller, Library
    from evolvable_tools.verbs.scan_import import ImportSummary

REFUSED = 1
"""The exit code of `import` when something was not taken in."""

FORMATS = ("json", "zip", "folders")

_FORMAT = click.Choice(FORMATS)


@dataclass(frozen=True, slots=True)
class NotTaken:
    """What was not taken in, with every reason."""

    name: str
    problems: list[str]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did; refs as texts. waiting: by their proposals, those that a person is to see first."""

    operation: int | None
    added: list[str]
    updated: list[str]
    unchanged: list[str]
    refused: list[NotTaken]
    warnings: list[str] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    waiting: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written, and where."""

    target: str
    format: str
    resources: list[str]


@dataclass(frozen=True, slots=True)
class BackupResult:
    """The folder of a backup, and the bytes of its library."""

    target: str
    bytes: int


@command("import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--kind", type=KIND, help="What a zip or the folders hold (default: skill).")
@click.option("--scope", help="Where they shall belong (default: user).")
@click.option("--replace", is_flag=True, help="Make new versions of those that are here with other content.")
@click.option("--format", "form", type=_FORMAT, help="Default: by the name of SOURCE.")
@click.option("--yes", is_flag=True, help="Do not ask: import all but what the scan finds of high severity.")
@click.option("--accept", is_flag=True, help="You answer for all of it: findings of the scan are only told.")
@click.pass_context
def import_command(
    ctx: click.Context,
    state: State,
    source: Path,
    kind: str | None,
    scope: str | None,
    replace: bool,
    form: str | None,
    yes: bool,
    accept: bool,
) -> None:
    """Take in an archive or folders.

    SOURCE is a JSON archive with all its versions, a zip, or a folder; it is not watched. Resources from elsewhere
    are checked strictly and scanned. At a terminal you see what comes and what the scan found, and are asked once;
    findings of high severity are refused. Exit code 1: something was refused.
    """
    form = form or _format_of(source)
    if form == "json" and (kind or scope or replace):
        raise click.UsageError("--kind, --scope and --replace are for zips and folders; JSON brings its own.")
    if form == "folders" and not source.is_dir():
        raise InvalidArchive(f"{source} is not a folder.", "Name a folder, a .zip or a .json.")
    with state.library(create=True) as (library, caller):
        options: dict[str, Any] = {
            "kind": Kind(kind or Kind.SKILL),
            "scope": check_scope(scope or USER_SCOPE),
            "replace": replace,
        }
        answer = None
        if state.identity.principal is Principal.PERSON and not accept:
            answer = Answer() if yes else ask(state, library, source, form, {} if form == "json" else options)
        said = {"accepted": accept, "answer": answer}
        taken = _take_in(library, caller, source, form, {**options, **said} if form != "json" else said)
        imported = taken.imported
        # An archive's history may end with a removal.
        living = [ref for ref in imported.added if _lives(library.store, ref)]
        warnings = taken.warnings + library.checkout(imported.updated) + library.checkout(living, created=True)
        alike = doubles(library, [*living, *imported.updated])
        warn_of_secrets(library)
    waiting = {identity: str(ref) for identity, ref in taken.proposals.items()}
    result = _result(imported, [spoken(text) for text in warnings], alike, waiting)
    removed = {*result.added} - {str(ref) for ref in living}
    state.show(result, lambda: _show_import(result, removed))
    if result.refused:
        ctx.exit(REFUSED)


def _lives(store: "Store", ref: Ref) -> bool:
    head = store.head_or_none(ref)
    return head is not None and head.version is not None


def _format_of(path: Path) -> str:
    if path.is_dir() or not path.suffix:
        return "folders"
    form = path.suffix.lower().lstrip(".")
    if form not in ("json", "zip"):
        raise InvalidArgument(f"{path.name} is neither .json nor .zip.", f"Say --format {' or '.join(FORMATS)}.")
    return form


def _take_in(library: "Library", caller: "Caller", source: Path, form: str, options: dict[str, Any]) -> "ImportSummary":
    if form == "json":
        return scan_import.import_json(library, source, caller=caller, **options)
    if form == "zip":
        return scan_import.import_zip(library, caller, source, **options)
    with progress("reading") as show:
        return scan_import.import_folders(library, caller, source, progress=show, **options)


def _result(imported: "ImportReport", warnings: list[str], alike: list[str], waiting: dict[int, str]) -> ImportResult:
    added, updated, unchanged = (
        [str(ref) for ref in refs] for refs in (imported.added, imported.updated, imported.unchanged)
    )
    refused = [NotTaken(name, list(problems)) for name, problems in imported.refused]
    return ImportResult(imported.operation, added, updated, unchanged, refused, warnings, alike, waiting)


def _show_import(result: ImportResult, removed: Collection[str]) -> None:
    """removed: those of the added that only have a history, as they were removed where they come from."""
    added = [ref for ref in result.added if ref not in removed]
    for text in result.warnings:
        warn(text)
    for what, refs in (("added", added), ("history only, it is removed", sorted(removed)), ("updated", result.updated)):
        for ref in refs:
            say(f"{what}: {ref}")
    for identity, ref in result.waiting.items():
        say(f"waits for you: {ref} (evolvable inbox show {identity})")
    for refused in result.refused:
        say(f"refused: {refused.name}")
        for problem in refused.problems:
            say(f"  - {spoken(problem)}")
    show_doubles(result.doubles)
    waiting = f" {len(result.waiting):,} waiting in the inbox," if result.waiting else ""
    kept = f" {len(removed):,} removed with their history," if removed else ""
    say(
        f"{len(added):,} added,{kept} {len(result.updated):,} updated,{waiting} {len(result.unchanged):,} unchanged,"
        f" {len(result.refused):,} refused."
    )
    if result.operation is not None:
        say(f"Take it back: evolvable undo {result.operation}")


@command("export")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("refs", nargs=-1, type=REF, metavar="[REF]...")
@click.option("--format", "form", type=_FORMAT, help="Default: by the name of TARGET.")
@click.option("--replace", is_flag=True, help="Write over a file that is there.")
def export_command(state: State, target: Path, refs: tuple[Ref, ...], form: str | None, replace: bool) -> None:
    """Write resources to a file or folder.

    A TARGET ending in .json gets every version of everything, a .zip or a folder the newest version of the user's
    skills. REFs choose others.
    """
    from evolvable_store import bundle
    from evolvable_tools.secret_leaks import check_may_leave
    from evolvable_tools.verbs.purge_content import note_copy

    form = form or _format_of(target)
    if form != "folders" and target.exists() and not replace:
        raise InvalidArgument(f"{target} is there already.", "Name a new file, or pass --replace.")
    write: Callable[..., tuple[Ref, ...]] = {
        "json": bundle.export_json,
        "zip": bundle.export_zip,
        "folders": bundle.export_folders,
    }[form]
    with state.library() as (library, caller):
        chosen = [library.store.head(ref.at(None), caller.scopes).ref for ref in refs] or None
        check_may_leave(library, "The export", chosen, history=form == "json")
        written = write(library.store, target, chosen)
        if not library.store.read_only:
            note_copy(library.store.home, target)
    result = ExportResult(str(target.absolute()), form, [str(ref) for ref in written])
    state.show(result, lambda: say(f"{count(len(result.resources), 'resource')} written to {result.target}"))


@command("backup")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="An older backup there makes room.")
def backup_command(state: State, target: Path, replace: bool) -> None:
    """Copy the whole library.

    Into the new folder TARGET, while others go on writing. To use it: evolvable --home TARGET ...
    """
    from evolvable_store.bundle.export import backup
    from evolvable_store.storage.sqlite import FILE
    from evolvable_tools.verbs.purge_content import note_copy

    with state.library() as (library, _), progress("copying") as show:
        made = backup(library.store, target.absolute(), show, replace=replace)
        if not library.store.read_only:
            note_copy(library.store.home, made)
    result = BackupResult(str(made), (made / FILE).stat().st_size)
    state.show(result, lambda: say(f"{result.bytes:,} bytes in {result.target}"))
