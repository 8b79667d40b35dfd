"""The commands import, export and backup: resources and libraries in and out."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from evolvable_server import plugins
from evolvable_server.cli import ExitCode, found_code
from evolvable_server.cli.command_context import CommandContext, Output, command, to_cli_words
from evolvable_server.cli.maintenance import show_near_duplicates, warn_left_out, warn_of_secrets
from evolvable_server.cli.options import KIND, REF
from evolvable_server.cli.person_commands import ask_import
from evolvable_server.cli.terminal import count, progress, say, warn
from evolvable_server.missing_parts import left_by_missing_parts
from evolvable_store import bundle
from evolvable_store.bundle.export import backup, select_heads
from evolvable_store.bundle.folders import read_looks
from evolvable_store.errors import InvalidArchive, InvalidArgument
from evolvable_store.operation import Head, Principal
from evolvable_store.paths import LIBRARY_FILE
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_scope
from evolvable_store.store import Store
from evolvable_tools.care.findings import near_duplicate_lines
from evolvable_tools.library import Caller, Library
from evolvable_tools.secret_leaks import check_anything_leaves, held_back
from evolvable_tools.verbs import scan_import
from evolvable_tools.verbs.purge_content import note_copy
from evolvable_tools.verbs.scan_import import Answer, ImportSummary

FORMATS = ("json", "zip", "folders")

_FORMAT = click.Choice(FORMATS)


@dataclass(frozen=True, slots=True)
class RefusedImport:
    """Resources that were not imported, with every reason."""

    name: str
    problems: list[str]


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What an import did; refs as texts. waiting: by their proposals, those that a person is to see first.

    looks: runs that opened test tasks elsewhere, which count here from now on.
    """

    operation: int | None
    added: list[str]
    updated: list[str]
    unchanged: list[str]
    refused: list[RefusedImport]
    warnings: list[str] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    waiting: dict[int, str] = field(default_factory=dict)
    looks: int = 0


@command("import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--kind", type=KIND, help="What a zip or the folders hold (default: skill).")
@click.option("--scope", help="Where they shall belong (default: user).")
@click.option("--replace", is_flag=True, help="Make new versions of those that are here with other content.")
@click.option("--format", "form", type=_FORMAT, help="Default: by the name of SOURCE.")
@click.option("--yes", is_flag=True, help="Do not ask: import all but what the scan finds of high severity.")
@click.option("--accept", is_flag=True, help="You answer for all of it: findings of the scan are only told.")
def import_command(
    state: CommandContext,
    source: Path,
    kind: str | None,
    scope: str | None,
    replace: bool,
    form: str | None,
    yes: bool,
    accept: bool,
) -> Output[ImportResult]:
    """Import an archive or folders.

    SOURCE is a JSON archive with all its versions, a zip (.zip or .skill), or a folder; it is not watched. Resources
    from elsewhere are scanned. At a terminal you see what comes and what the scan found, and are asked once;
    findings of high severity are refused. Exit code 4: something was refused or waits in the inbox.
    """
    form = form or _format_of(source)
    if form == "json" and (kind or scope or replace):
        raise click.UsageError("--kind, --scope and --replace are for zips and folders; JSON brings its own.")
    if form == "folders" and not source.is_dir():
        raise InvalidArchive(f"{source} is not a folder.", "Name a folder, a .zip or a .json.")
    with state.library(create=True) as (library, caller):
        options: dict[str, Any] = {}
        if form != "json":
            options = {"kind": Kind(kind or Kind.SKILL), "scope": check_scope(scope or USER_SCOPE), "replace": replace}
        answer = None
        if state.identity.principal is Principal.PERSON and not accept:
            answer = Answer() if yes else ask_import(state, library, source, form, options)
        taken = _import(library, caller, source, form, {**options, "accepted": accept, "answer": answer})
        imported = taken.imported
        lines = b"\n".join(imported.looks) if form == "json" else read_looks(source, form)
        looks = sum(part.add(library.store.home, lines) for part in plugins.archive_parts())
        # An archive's history may end with a removal.
        heads = {ref: library.store.head_or_none(ref) for ref in imported.added}
        living = [ref for ref, head in heads.items() if head is not None and head.version is not None]
        warnings = taken.warnings + library.checkout(imported.updated) + library.checkout(living, created=True)
        alike = near_duplicate_lines(library, [*living, *imported.updated], progress)
        warn_of_secrets(library)
    result = ImportResult(
        operation=imported.operation,
        added=list(map(str, imported.added)),
        updated=list(map(str, imported.updated)),
        unchanged=list(map(str, imported.unchanged)),
        refused=[RefusedImport(name, list(problems)) for name, problems in imported.refused],
        warnings=[to_cli_words(text) for text in warnings],
        doubles=alike,
        waiting={identity: str(ref) for identity, ref in taken.proposals.items()},
        looks=looks,
    )
    removed = {*result.added} - {str(ref) for ref in living}
    return Output(result, lambda _: _show_imported(result, removed), found_code(result.refused, result.waiting))


def _format_of(path: Path) -> str:
    if path.is_dir() or not path.suffix:
        return "folders"
    form = {"skill": "zip"}.get(end := path.suffix.lower().lstrip("."), end)
    if form not in ("json", "zip"):
        raise InvalidArgument(
            f"{path.name} is none of .json, .zip and .skill.", f"Say --format {' or '.join(FORMATS)}."
        )
    return form


def _import(library: Library, caller: Caller, source: Path, form: str, options: dict[str, Any]) -> ImportSummary:
    with progress("Reading") as show:
        return scan_import.import_archive(library, caller, source, form, progress=show, **options)


def _show_imported(result: ImportResult, removed: Collection[str]) -> None:
    """Show what an import changed.

    removed: those of the added that only have a history, as they were removed where they come from.
    """
    added = [ref for ref in result.added if ref not in removed]
    warn(*result.warnings)
    say(*(f"added: {ref}" for ref in added), *(f"history only, it is removed: {ref}" for ref in sorted(removed)))
    say(*(f"updated: {ref}" for ref in result.updated))
    say(*(f"waits for you: {ref} (evolvable inbox show {identity})" for identity, ref in result.waiting.items()))
    for refused in result.refused:
        say(f"refused: {refused.name}", *(f"  - {to_cli_words(problem)}" for problem in refused.problems))
    show_near_duplicates(result.doubles)
    waiting = f" {len(result.waiting):,} waiting in the inbox," if result.waiting else ""
    kept = f" {len(removed):,} removed with their history," if removed else ""
    say(
        f"{len(added):,} added,{kept} {len(result.updated):,} updated,{waiting} {len(result.unchanged):,} unchanged,"
        f" {len(result.refused):,} refused."
    )
    if result.looks:
        say(f"{count(result.looks, 'look')} at sealed test tasks came along and count here.")
    if result.operation is not None:
        say(f"Take it back: evolvable undo {result.operation}")


@command("export")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("refs", nargs=-1, type=REF, metavar="[REF]...")
@click.option("--format", "form", type=_FORMAT, help="Default: by the name of TARGET.")
@click.option("--replace", is_flag=True, help="Write over a file that is there.")
def export_command(
    state: CommandContext, target: Path, refs: tuple[Ref, ...], form: str | None, replace: bool
) -> Output[dict[str, Any]]:
    """Write resources to a file or folder.

    A TARGET ending in .json gets every version of everything, a .zip or a folder the newest version of the user's
    skills. REFs choose others. Exit code 1: a resource with a secret was left out.
    """
    form = form or _format_of(target)
    if form != "folders" and target.exists() and not replace:
        raise InvalidArgument(f"{target} is there already.", "Name a new file, or pass --replace.")
    with state.library() as (library, caller):
        store = library.store
        chosen = [store.head(ref.at(None), caller.scopes).ref for ref in refs] or None
        leaving = chosen or [head.ref for head in (_all_heads(store) if form == "json" else select_heads(store, None))]
        held = held_back(library, leaving, history=form == "json")
        names = {one.ref for one in held}
        kept = [ref for ref in leaving if str(ref) not in names]
        check_anything_leaves("The export", held, kept)
        if form == "json":
            wanted, without = kept if refs else None, [ref for ref in leaving if str(ref) in names]
            looks = _lines_beside(library, caller, wanted)
            written = bundle.export_json(store, target, wanted, map(json.loads, looks.splitlines()), without=without)
        else:
            # Without refs a zip and folders hold skills alone, and so no look.
            looks = _lines_beside(library, caller, kept if refs else ())
            writer = bundle.export_zip if form == "zip" else bundle.export_folders
            written = writer(store, target, kept if refs or held else None, looks=looks)
        if not store.read_only:
            note_copy(store.home, target)
    result = {"target": str(target.absolute()), "format": form, "resources": list(map(str, written)), "left_out": held}
    return Output(result, _show_exported, ExitCode.ERROR if held else ExitCode.DONE)


def _lines_beside(library: Library, caller: Caller, refs: Iterable[Ref] | None) -> bytes:
    """Return what the parts of the program add to an archive of these resources, by default of all."""
    return b"".join(part.export(library, caller, refs) for part in plugins.archive_parts())


def _files_beside(home: Path) -> dict[str, bytes]:
    """Return the files that the parts of the program have a backup take along, by their names below the home."""
    return {name: data for part in plugins.archive_parts() for name, data in part.backup_files(home).items()}


def _all_heads(store: Store) -> Collection[Head]:
    """Return the heads of all resources, removed ones included."""
    return store.backend.heads_by_id(store.backend.resource_ids()).values()


def _show_exported(result: dict[str, Any]) -> None:
    held = result["left_out"]
    again = f"with {' '.join(one.ref for one in held[:10])}" if result["format"] == "folders" else "with --replace"
    warn_left_out(held, f"Then repeat the command {again}.")
    say(f"{count(len(result['resources']), 'resource')} written to {result['target']}")


@command("backup")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="An older backup there makes room.")
def backup_command(state: CommandContext, target: Path, replace: bool) -> Output[dict[str, Any]]:
    """Copy the whole library.

    Into the new folder TARGET, while others go on writing. To use it: evolvable --home TARGET ...
    """
    with state.library() as (library, _), progress("Copying") as show:
        beside = partial(_files_beside, library.store.home)
        made = backup(library.store, target.absolute(), show, replace=replace, beside=beside)
        warn(*left_by_missing_parts(library))
        if not library.store.read_only:
            note_copy(library.store.home, made)
    size = (made / LIBRARY_FILE).stat().st_size
    return Output({"target": str(made), "bytes": size}, lambda _: say(f"{size:,} bytes in {made}"))
