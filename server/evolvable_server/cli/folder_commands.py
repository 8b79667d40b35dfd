"""The commands init, folders and sync, for the folders that the library watches."""

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from evolvable_server.care import Standing, Topic, read_standing
from evolvable_server.cli.command_context import (
    CommandContext,
    Output,
    command,
    format_option,
    home_option,
    json_option,
    pass_state,
)
from evolvable_server.cli.command_groups import VerbGroup
from evolvable_server.cli.folder_choice import check_links
from evolvable_server.cli.folder_import import (
    SyncResult,
    choose_folders,
    import_folders,
    sync_result,
    watched_paths,
)
from evolvable_server.cli.folder_reception import MOST_COUNTED, Confirmed, confirm_folders
from evolvable_server.cli.learned_commands import (
    offer_past_sessions,
    read_past_sessions,
    show_past_sessions,
)
from evolvable_server.cli.maintenance import show_near_duplicates, warn_of_secrets
from evolvable_server.cli.options import KIND
from evolvable_server.cli.terminal import (
    Row,
    ask_yes,
    count,
    progress,
    remark,
    say,
    show_fields,
    show_table,
    some,
    warn,
)
from evolvable_server.client_folders import client_folders, project_folders, read_client_homes
from evolvable_server.config import is_person
from evolvable_server.learning_consent import consent
from evolvable_store.errors import AlreadyExists, EvolvableError
from evolvable_store.resource import Kind, check_scope, is_plugins
from evolvable_store.storage import WaitingPlaces, WatchedFolder
from evolvable_store.workingcopy import DirectoryIssue, count_resources, refresh_marks
from evolvable_tools import Library
from evolvable_tools.outcomes import PastSessions

# Ten names fill about two lines of a terminal; --verbose names all of them.
MAX_NAMED = 10
"""Resources that a line names."""


def show_sync(results: Sequence[SyncResult], verbose: bool) -> None:
    """Write a table with a row for each folder, and below it every reason of what was refused or
    conflicts.
    """
    columns = (
        "folder",
        "imported",
        "unchanged",
        "written",
        "removed",
        "refused",
        "conflicts",
        "warnings",
    )
    # Left out in this order on a narrow terminal.
    spare = ("unchanged", "warnings", "written", "removed", "imported")
    show_table(columns, [_make_row(result) for result in results], names=("folder",), spare=spare)
    for result in results:
        _show_sync_details(result, verbose)


def _make_row(result: SyncResult) -> Row:
    path = f"{result.path} ({result.scope}{', missing' if result.missing else ''})"
    numbers = [
        f"{len(result.taken)}",
        f"{result.unchanged:,}",
        f"{len(result.written)}",
        f"{len(result.removed)}",
    ]
    faults = [
        (str(len(issues)), "red" if issues else "") for issues in (result.refused, result.conflicts)
    ]
    return [path, *numbers, *faults, str(len(result.warnings))]


def _show_sync_details(result: SyncResult, verbose: bool) -> None:
    most = sys.maxsize if verbose else MAX_NAMED
    if result.taken:
        say(
            f"\nImported from {result.path}: "
            f"{some([f'{item.ref}@{item.version}' for item in result.taken], most)}"
        )
    if result.approved:
        say(
            f"\napproved as they are now: {some(result.approved, most)}. What git changes there "
            "later is held."
        )
        say(f"  Take it back: evolvable trust --withdraw {result.path}")
    if result.untrusted:
        brought = some(result.untrusted, most)
        say(
            f"\nrepository: {brought}. Agents find them after your own and read them between marks."
        )
        say(f"  Read what they hold and decide: evolvable trust {result.path}")
    if is_plugins(result.scope) and any(item.how == "new" for item in result.taken):
        say(
            "\nA plugin brought them. Agents read them between marks until you decide: evolvable "
            f"trust {result.path}"
        )
    if result.held:
        say(f"\nheld: not served, and left in {result.path} as it is, until you decide:")
    for waits in result.held:
        why = f": {waits.why}" if waits.why else ""
        say(f"  {waits.ref} (evolvable inbox show {waits.proposal}){why}")
    for waiting in result.waiting_for_git:
        say(f"\nwaits until git has finished: {waiting}")
    _show_remarks("Refused", result.path, result.refused)
    for waits in result.replaced:
        say(
            f"\n{waits.ref}: its files were replaced; {waits.why}: evolvable inbox show "
            f"{waits.proposal}"
        )
    _show_remarks("Conflicts", result.path, result.conflicts)
    if verbose:
        _show_remarks("Warnings", result.path, result.warnings)
    elif result.warnings:
        number = sum(len(remark.problems) for remark in result.warnings)
        where = count(len(result.warnings), "folder")
        say(
            f"\n{count(number, 'warning')} in {where} of {result.path}: `evolvable doctor "
            "--verbose` shows them."
        )


def _show_remarks(title: str, path: str, remarks: Sequence[DirectoryIssue]) -> None:
    if remarks:
        say(f"\n{title} in {path}:")
    for issue in remarks:
        say(f"  {issue.directory}", *(f"    - {problem}" for problem in issue.problems))


@dataclass(frozen=True, slots=True)
class InitResult:
    """What `init` did.

    made: whether the library was made. folders: what each folder brought. doubles: lines about near
    duplicates. sessions: what the sessions of the clients taught, None where the person does not
    let the library read them.
    """

    home: str
    made: bool
    folders: list[SyncResult]
    doubles: list[str]
    sessions: PastSessions | None = None


@command("init")
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--scope", help="Where the resources belong: 'user', or a project's name.")
@click.option(
    "--kind", type=KIND, help="What the folders hold (default: by their names, else skill)."
)
@click.option(
    "--yes", is_flag=True, help="Take the folders of the installed clients without asking."
)
@click.option("--verbose", is_flag=True, help="Show every warning.")
def init_command(
    state: CommandContext,
    folders: tuple[Path, ...],
    scope: str | None,
    kind: str | None,
    yes: bool,
    verbose: bool,
) -> Output[InitResult]:
    """Import folders and watch them.

    The library is made when it is missing, imports the skills in FOLDERS, and both are kept in sync
    from now on. Without FOLDERS, those of the installed clients and their plugins are taken. Shows
    what each folder holds, who brought it and what the scan found, and asks once. A resource with a
    finding of high severity waits for a yes of its own. A folder of a project's client belongs to
    that project, any other to the user, unless --scope says otherwise.
    """
    config = state.config()
    homes = read_client_homes(config, unasked=yes)
    remark(*(() if folders else homes.remarks))
    found_folders = client_folders(homes, config.project)
    in_project = [folder.path for folder in project_folders(Path.home(), config.project)]
    check_links(folders or in_project, found_folders, is_named=bool(folders))
    paths = folders or [folder.path for folder in found_folders]
    scope = check_scope(scope) if scope else None
    choices = choose_folders(state, homes, paths, Kind(kind) if kind else None, scope)
    watched, confirmed = watched_paths(state), Confirmed()
    # A program that names folders is not asked; `receive` decides who answers for what they hold.
    if not yes and (is_person() or not folders):
        new = [choice for choice in choices if choice.path.resolve() not in watched]
        confirmed = confirm_folders(new, config.person.is_yours)
        choices = [choice for choice in choices if choice in confirmed or choice not in new]
    done = import_folders(state, choices, confirmed, yes=yes, watched=watched)
    # After the import, because a session is matched with skills that the library holds.
    sessions = _learn_from_sessions(state, ask=not yes)
    result = InitResult(str(config.home), done.made, done.folders, done.doubles, sessions)
    return Output(result, lambda _: _show_init(result, verbose))


def _learn_from_sessions(state: CommandContext, *, ask: bool) -> PastSessions | None:
    """Learn from the sessions of the clients, where the person has agreed.

    ask: whether a person who was not asked before is asked now.
    """
    config = state.config()
    if not (offer_past_sessions(config) if ask else consent(config.home)):
        return None
    try:
        with state.library() as (library, _):
            return read_past_sessions(config, library)
    except EvolvableError as error:
        warn(
            f"Not all sessions were read: {error.text}",
            "Then: evolvable learn tasks --from-sessions",
        )
        return None


def _show_init(result: InitResult, verbose: bool) -> None:
    say(f"{'Made' if result.made else 'Opened'} the library in {result.home}")
    if result.folders:
        show_sync(result.folders, verbose)
        show_near_duplicates(result.doubles)
    else:
        say("No folder of a client's skills was found. `evolvable init FOLDER` imports any other,")
        say("`evolvable quickstart` the skills that come with this program.")
    if result.sessions is not None:
        show_past_sessions(result.sessions)
    say('\nNext: evolvable find "what you want to do"')
    say("      evolvable connect claude-code   (or codex, claude-desktop, cursor, vscode)")


@command("sync")
@click.option("--verbose", is_flag=True, help="Show every warning.")
def sync_command(state: CommandContext, verbose: bool) -> Output[dict[str, list[SyncResult]]]:
    """Synchronise folders and library.

    A running server does this by itself, within a fraction of a second.
    """
    with state.library() as (library, _):
        results = [sync_result(sync) for sync in library.working_copies.sync()]
        refresh_marks(library.store)
        warn_of_secrets(library)
    return Output({"folders": results}, lambda _: _show_sync(results, verbose))


def _show_sync(results: Sequence[SyncResult], verbose: bool) -> None:
    if results:
        show_sync(results, verbose)
    else:
        say("No folder is watched. `evolvable init FOLDER` watches one.")


@click.group("folders", cls=VerbGroup, modules=(__name__,), invoke_without_command=True)
@home_option
@json_option
@format_option
@pass_state
@click.pass_context
def folders_command(ctx: click.Context, state: CommandContext) -> None:
    """List the folders that are watched.

    `evolvable folders drop PATH` stops watching one, `evolvable folders confirm` decides on what a
    database names.
    """
    if ctx.invoked_subcommand is None:
        with progress("evolvable folders"), state.library() as (library, _):
            standing = read_standing(library, state.config())
        # A group returns nothing, so it shows its result itself.
        state.show({"folders": standing.folders}, lambda _: _show_folders(standing))


def _show_folders(standing: Standing) -> None:
    folders = standing.folders
    if not folders:
        say("No folder is watched. `evolvable init FOLDER` watches one.")
        return
    show_table(
        ["folder", "scope", "kind", "holds", "state"],
        [
            [(folder.path, "bold"), folder.scope, folder.kind, str(folder.resources), folder.state]
            for folder in folders
        ],
        names=("folder",),
        spare=("scope", "kind", "holds"),
    )
    rows = [(str(line.topic), line.text) for line in standing.about(Topic.FOLDER) if not line.well]
    rows += [("wrong", f"{problem.what} {problem.next}".strip()) for problem in standing.problems]
    show_fields([((name, "bold"), text) for name, text in rows])


@dataclass(frozen=True, slots=True)
class ConfirmedPlaces:
    """The places of a shared database that the person decided on.

    watched: folders. lists: settings of clients that list a collection. deleted: refused places.
    """

    watched: list[str]
    lists: list[str]
    deleted: list[str]


@command("confirm")
def confirm_command(state: CommandContext) -> Output[ConfirmedPlaces]:
    """Decide on the folders that a shared database, a move or a backup says are watched here.

    Earlier versions kept them in the database, where others can write them. They are shown, and
    asked about once: yes makes them this home's own, no deletes them. Until then they are neither
    read nor written.
    """
    with state.library() as (library, caller):
        library.authorise(caller, "Deciding which folders are watched")
        waiting = library.store.backend.waiting_places()
        if not waiting:
            return Output(
                ConfirmedPlaces([], [], []), lambda _: say("No folder waits to be confirmed.")
            )
        places = [str(folder.path) for folder in waiting.folders]
        places += [row[0] for row in waiting.listings]
        remark(
            "A shared database, or the library that this one was copied from, says that these "
            "are watched:",
            *map(_describe_folder, waiting.folders),
        )
        remark(
            *(
                f"  {row[0]}  (settings of a client, which list the collection {row[1]})"
                for row in waiting.listings
            )
        )
        # No is the default, because others can write into a shared database.
        if not places or not ask_yes("Are all of them yours?", default=False, err=True):
            # A no deletes them all, and they are not asked about again.
            library.store.backend.settle_places(waiting)
            library.record(caller, "refuse places", count(len(places), "place"))
            return Output(ConfirmedPlaces([], [], places), _show_confirmed)
        done = _take_places(library, waiting)
        library.record(caller, "confirm places", count(len(places), "place"))
    return Output(done, _show_confirmed)


def _describe_folder(folder: WatchedFolder) -> str:
    number = count_resources(folder.path, folder.kind, MOST_COUNTED) if folder.path.is_dir() else 0
    return f"  {folder.path}  ({count(number, folder.kind)}, scope {folder.scope})"


def _take_places(library: Library, waiting: WaitingPlaces) -> ConfirmedPlaces:
    watched, backend = list[str](), library.store.backend
    for folder in waiting.folders:
        bindings = [binding for binding in waiting.bindings if binding.folder == folder.id]
        # AlreadyExists: it lies in a folder that is watched, or around one.
        with contextlib.suppress(AlreadyExists):
            backend.bindings.take(folder, bindings)
            watched.append(str(folder.path))
    backend.collections.take(waiting.listings)
    # Last: what a power cut leaves in the database is asked about again.
    backend.settle_places(waiting)
    rest = [str(folder.path) for folder in waiting.folders if str(folder.path) not in watched]
    return ConfirmedPlaces(watched, [row[0] for row in waiting.listings], rest)


def _show_confirmed(done: ConfirmedPlaces) -> None:
    say(
        *(
            f"{path} is watched; `evolvable folders sync` compares it with the library."
            for path in done.watched
        )
    )
    say(*(f"{path} goes on listing its collection." for path in done.lists))
    say(*(f"{path} is not watched; its files are as they were." for path in done.deleted))
    if not (done.watched or done.lists or done.deleted):
        say("What the database named could not be confirmed, and was deleted.")


@command("drop")
@click.argument("path", type=click.Path(path_type=Path))
def drop_command(state: CommandContext, path: Path) -> Output[dict[str, str]]:
    """Stop watching the folder PATH.

    Neither its files nor the library's resources are touched.
    """
    with state.library() as (library, _):
        bindings = library.working_copies.bindings
        folder = bindings.folder(path)
        bindings.drop_folder(folder)
    message = f"{folder.path} is not watched any more; its files and all versions are kept."
    return Output({"path": str(folder.path)}, lambda _: say(message))
