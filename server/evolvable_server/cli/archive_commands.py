"""The commands import, export and backup: resources and libraries in and out."""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from evolvable_server import plugins
from evolvable_server.care import (
    FORMATS,
    ExportResult,
    ImportResult,
    back_up,
    export,
    format_of,
    import_source,
)
from evolvable_server.cli.command_context import CommandContext, Output, command, to_cli_words
from evolvable_server.cli.exit_codes import ExitCode, found_code
from evolvable_server.cli.maintenance import show_near_duplicates, warn_left_out, warn_of_secrets
from evolvable_server.cli.options import KIND, REF
from evolvable_server.cli.person_commands import ask_import
from evolvable_server.cli.terminal import count, progress, say, warn
from evolvable_store import LIBRARY_FILE, Principal
from evolvable_store.errors import InvalidArchive
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_scope
from evolvable_tools.verbs import Answer

_FORMAT = click.Choice(FORMATS)


@command("import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--kind", type=KIND, help="What a zip or the folders hold (default: skill).")
@click.option("--scope", help="Where they shall belong (default: user).")
@click.option(
    "--replace", is_flag=True, help="Make new versions of those that are here with other content."
)
@click.option("--format", "form", type=_FORMAT, help="Default: by the name of SOURCE.")
@click.option(
    "--yes", is_flag=True, help="Do not ask: import all but what the scan finds of high severity."
)
@click.option(
    "--accept", is_flag=True, help="You answer for all of it: findings of the scan are only told."
)
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

    SOURCE is a JSON archive with all its versions, a zip (.zip or .skill), or a folder; it is not
    watched. Resources from elsewhere are scanned. At a terminal you see what comes and what the
    scan found, and are asked once; findings of high severity are refused. Exit code 4: something
    was refused or waits in the inbox.
    """
    form = form or format_of(source)
    if form == "json" and (kind or scope or replace):
        raise click.UsageError(
            "--kind, --scope and --replace are for zips and folders; JSON brings its own."
        )
    if form == "folders" and not source.is_dir():
        raise InvalidArchive(f"{source} is not a folder.", "Name a folder, a .zip or a .json.")
    with state.library(create=True) as (library, caller):
        options: dict[str, Any] = {}
        # A JSON archive names kind and scope of each resource itself.
        if form != "json":
            options = {
                "kind": Kind(kind or Kind.SKILL),
                "scope": check_scope(scope or USER_SCOPE),
                "replace": replace,
            }
        answer = None
        if state.identity.principal is Principal.PERSON and not accept:
            answer = Answer() if yes else ask_import(state, library, source, form, options)
        options |= {"accepted": accept, "answer": answer}
        result, removed = import_source(library, caller, source, form, options, progress)
        warn_of_secrets(library)
    result = dataclasses.replace(result, warnings=list(map(to_cli_words, result.warnings)))
    return Output(
        result,
        lambda _: _show_imported(result, removed),
        found_code(result.refused, result.waiting),
    )


def _show_imported(result: ImportResult, removed: Collection[str]) -> None:
    """Show what an import changed.

    removed: those of the added that only have a history, as they were removed where they come from.
    """
    added = [ref for ref in result.added if ref not in removed]
    warn(*result.warnings)
    say(
        *(f"added: {ref}" for ref in added),
        *(f"history only, it is removed: {ref}" for ref in sorted(removed)),
    )
    say(*(f"updated: {ref}" for ref in result.updated))
    say(
        *(
            f"waits for you: {ref} (evolvable inbox show {identity})"
            for identity, ref in result.waiting.items()
        )
    )
    for refused in result.refused:
        say(
            f"refused: {refused.name}",
            *(f"  - {to_cli_words(problem)}" for problem in refused.problems),
        )
    show_near_duplicates(result.doubles)
    waiting = f" {len(result.waiting):,} waiting in the inbox," if result.waiting else ""
    history = f" {len(removed):,} removed with their history," if removed else ""
    say(
        f"{len(added):,} added,{history} {len(result.updated):,} updated,{waiting} "
        f"{len(result.unchanged):,} unchanged, {len(result.refused):,} refused."
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
) -> Output[ExportResult]:
    """Write resources to a file or folder.

    A TARGET ending in .json gets every version of everything, a .zip or a folder the newest version
    of the user's skills. REFs choose others. Exit code 1: a resource with a secret was left out.
    """
    form = form or format_of(target)
    with state.library() as (library, caller):
        result = export(library, caller, target, form, refs, replace=replace)
    return Output(result, _show_exported, ExitCode.ERROR if result.left_out else ExitCode.DONE)


def _show_exported(result: ExportResult) -> None:
    left_out = result.left_out
    # A folder can take single resources later; a file is written as a whole.
    again = (
        f"with {' '.join(resource.ref for resource in left_out[:10])}"
        if result.format == "folders"
        else "with --replace"
    )
    warn_left_out(left_out, f"Then repeat the command {again}.")
    say(f"{count(len(result.resources), 'resource')} written to {result.target}")


@command("backup")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="An older backup there makes room.")
def backup_command(state: CommandContext, target: Path, replace: bool) -> Output[dict[str, Any]]:
    """Copy the whole library.

    Into the new folder TARGET, while others go on writing. To use it: evolvable --home TARGET ...
    """
    with state.library() as (library, _), progress("Copying") as show:
        folder = back_up(library.store, target, show, replace=replace)
        # What a missing part keeps beside the library is not in the copy.
        warn(*plugins.left_by_missing_parts(library))
    size = (folder / LIBRARY_FILE).stat().st_size
    return Output(
        {"target": str(folder), "bytes": size}, lambda _: say(f"{size:,} bytes in {folder}")
    )
