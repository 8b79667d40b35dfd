"""The command status: what waits for a person, and what changed. It imports little, because it is run often."""

from pathlib import Path

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import Cell, count, local_time, show_fields, some
from evolvable_server.watch_failures import watch_failures
from evolvable_store.paths import open_elsewhere
from evolvable_store.storage.bindings import WatchedFolder
from evolvable_tools.library import Library
from evolvable_tools.verbs.library_status import (
    IN_SYNC,
    LibraryStatus,
    WatchedRoot,
    folder_statuses,
    folder_summary,
    library_status,
    unsaved_directories,
)

MOST = 5
"""Names that a line lists."""


@command("status")
def status_command(state: CommandContext) -> Output[LibraryStatus]:
    """Show what waits for you, and what changed since you last changed something.

    Makes the quick checks of `evolvable doctor` and names the worst finding.
    """
    with state.library() as (library, _):
        watched = folder_statuses(library)
        problems = [f"{one.path} is watched and not there." for one in watched if not one.there]
        problems += [f"{one.path}: {conflict}." for one in watched for conflict in one.conflicts]
        problems += [one.text for one in watch_failures(library.store.home, [root.path for root in library.folders()])]
        found = library_status(
            library,
            folders=[_folder(library, one, root) for one, root in zip(watched, library.folders(), strict=True)],
            windows=_windows(library.store.backend.path),
            problems=problems,
        )
    return Output(found, _show_status)


def _folder(library: Library, one: WatchedRoot, root: WatchedFolder) -> str:
    unsaved = unsaved_directories(library, root)
    changed = [f"{unsaved.changed} changed on disk, `evolvable diff` shows how"] * bool(unsaved.changed)
    refused = len(unsaved.refused)
    changed += [f"{refused} not imported ({some(unsaved.refused, MOST)}), `evolvable doctor` says why"] * bool(refused)
    stands = folder_summary(one)
    how = [stands] if stands != IN_SYNC or not changed else []
    return f"{one.path} ({one.scope}): {'; '.join([*how, *changed])}"


def _windows(library: Path) -> int | None:
    """Return how many other processes have the library open, None where the system does not show them."""
    return sum(1 for _ in open_elsewhere(library)) if Path("/proc/self/fd").is_dir() else None


def _show_status(found: LibraryStatus) -> None:
    held = ", ".join(count(number, kind) for kind, number in found.resources.items()) or "nothing"
    rows: list[tuple[Cell, Cell]] = [
        (("library", "bold"), f"{found.home}: {held}"),
        (("waits", "bold"), (_waits(found), "yellow" if found.waiting else "")),
        (("since", "bold"), _since(found)),
    ]
    rows += [(("folder" if number == 0 else "", "bold"), text) for number, text in enumerate(found.folders)]
    if found.windows is not None:
        rows.append((("windows", "bold"), f"{found.windows} more have the library open"))
    if found.queued:
        rows.append((("reviews", "bold"), f"{count(found.queued, 'session')} queued: evolvable review --queue"))
    more = f" ({found.problems - 1} more)" if found.problems > 1 else ""
    worst = (f"{found.worst}{more} `evolvable doctor` says what to do.", "red")
    rows.append((("doctor", "bold"), worst if found.worst else "the quick checks found nothing"))
    show_fields(rows)


def _waits(found: LibraryStatus) -> str:
    if not found.waiting:
        return "nothing"
    asking = f", {found.asking} with findings of the scan" if found.asking else ""
    held = f"; {found.held} of them held on disk" if found.held else ""
    return f"{count(found.waiting, 'proposal')}{asking}{held}: evolvable inbox"


def _since(found: LibraryStatus) -> str:
    """Say what others did after the person's last operation."""
    since = found.since
    start = f"operation {since.operation}, yours of {local_time(since.at)}" if since.operation else "the beginning"
    if not since.by:
        return f"{start}: nothing by others"
    by = ", ".join(f"{number} by {who}" for who, number in since.by.items())
    return f"{start}: {by}; {some(since.refs, MOST)}: evolvable log"
