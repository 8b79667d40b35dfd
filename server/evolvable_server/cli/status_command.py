"""The command status: what waits for a person, and what changed.

It imports little, because it is run often.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_server import care
from evolvable_server.auto_switch import read_switch
from evolvable_server.care import Topic, read_standing
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import Cell, count, local_time, say, show_fields, some
from evolvable_store import open_elsewhere
from evolvable_store.errors import NoLibrary
from evolvable_tools import Library
from evolvable_tools.verbs import take_pairs
from evolvable_tools.verbs.library_status import LibraryStatus, library_status

MOST = 5
"""Names that a line lists."""


@command("status")
def status_command(state: CommandContext) -> Output[LibraryStatus]:
    """Show what waits for you, and what changed since you last changed something.

    Makes the quick checks of `evolvable doctor` and names the worst finding.
    """
    with state.library() as (library, _):
        standing = read_standing(library, state.config())
        status = library_status(
            library,
            folders=[line.text for line in standing.about(Topic.FOLDER)],
            windows=_count_windows(library.store.backend.path),
            problems=[f"{wrong.what} {wrong.next}".strip() for wrong in standing.problems],
            near_duplicates=take_pairs(library),
            listing=". ".join(line.text for line in standing.about(Topic.LIST)),
            reviews=_describe_reviews(state, library),
            clients=[line.text for line in standing.about(Topic.CLIENT)],
        )
        waits = "".join(line.text for line in standing.about(Topic.WAITS))
    return Output(status, lambda _: _show_status(status, waits))


def _describe_reviews(state: CommandContext, library: Library) -> str:
    """Return the line on automatic reviews, '' where they are off."""
    config = state.config()
    # Most libraries have none, and are spared the import of what describes them.
    if not read_switch(config.home).projects:
        return ""
    return care.auto_line(config, library)


@dataclass(frozen=True, slots=True)
class Overview:
    """What `evolvable` alone shows.

    resources: None where there is no library. next: the command to go on with.
    """

    home: str
    resources: dict[str, int] | None
    waiting: int
    worst: str
    next: str


def show_overview(state: CommandContext) -> None:
    """Write whether there is a library, what waits, and the next step. Make nothing."""
    state.show(_make_overview(state), _show_overview)


def _make_overview(state: CommandContext) -> Overview:
    home = str(state.config().home)
    try:
        with state.library() as (library, _):
            status = library_status(library)
    except NoLibrary:
        return Overview(home, None, 0, "", "evolvable setup")
    # The worst first: a fault, then what waits, then the usual next step.
    if status.worst:
        step = "evolvable doctor"
    elif status.waiting:
        step = "evolvable inbox"
    else:
        step = 'evolvable find "what you want to do"' if status.resources else "evolvable setup"
    return Overview(home, status.resources, status.waiting, status.worst, step)


def _show_overview(overview: Overview) -> None:
    if overview.resources is None:
        say(f"There is no library in {overview.home} yet.")
    else:
        kinds = [count(number, kind) for kind, number in overview.resources.items()]
        contents = some(kinds, MOST) or "nothing yet"
        say(f"The library in {overview.home} holds {contents}.")
    if overview.waiting:
        say(f"{count(overview.waiting, 'proposal')} wait{'s' * (overview.waiting == 1)} for you.")
    if overview.worst:
        say(overview.worst)
    say(f"\nNext: {overview.next}")
    if overview.next == "evolvable setup":
        say("      evolvable quickstart   (a demonstration in a temporary library)")
    say("`evolvable status` shows more, `evolvable --help` lists the commands.")


def _count_windows(library: Path) -> int | None:
    """Return how many other processes have the library open, None where the system does not show
    them.
    """
    return sum(1 for _ in open_elsewhere(library)) if Path("/proc/self/fd").is_dir() else None


def _show_status(status: LibraryStatus, waits: str) -> None:
    kinds = [count(number, kind) for kind, number in status.resources.items()]
    contents = ", ".join(kinds) or "nothing"
    rows: list[tuple[Cell, Cell]] = [
        (("library", "bold"), f"{status.home}: {contents}"),
        (("waits", "bold"), (waits or "nothing", "yellow" if waits else "")),
        (("since", "bold"), _describe_since(status)),
    ]
    if status.out_of_force:
        rows.append((("out of force", "bold"), (some(status.out_of_force, MOST), "yellow")))
    rows += _make_rows("to look at", _list_unseen(status))
    rows += _make_rows("held files", [file.text for file in status.held_files])
    rows += _make_rows("put back", status.put_back)
    rows += _make_rows("similar", _list_near_duplicates(status))
    rows += _make_rows("folder", status.folders)
    rows += _make_rows("client", status.clients)
    rows += _make_rows("listed", [status.listing] if status.listing else [])
    if status.windows:
        rows.append((("windows", "bold"), f"{status.windows} more have the library open"))
    rows += _make_rows("reviews", [status.reviews] if status.reviews else [])
    if status.queued:
        queued = f"{count(status.queued, 'session')} queued: evolvable learn review --queue"
        rows.append((("reviews", "bold"), queued))
    rows += _make_rows("upkeep", [status.upkeep] if status.upkeep else [])
    # One less: the worst one is shown.
    more = f" {status.problems - 1:,} more: `evolvable doctor`" if status.problems > 1 else ""
    worst = (f"{status.worst}{more}", "red")
    rows.append((("doctor", "bold"), worst if status.worst else "the quick checks found nothing"))
    show_fields(rows)


def _make_rows(name: str, lines: Sequence[str]) -> list[tuple[Cell, Cell]]:
    return [((name if number == 0 else "", "bold"), line) for number, line in enumerate(lines)]


def _list_unseen(status: LibraryStatus) -> list[str]:
    more = status.unseen_count - len(status.unseen)
    end = [f"{more:,} more: evolvable inbox list"] if more > 0 else []
    return [*status.unseen, *end]


def _list_near_duplicates(status: LibraryStatus) -> list[str]:
    more = len(status.near_duplicates) - MOST
    end = [f"{count(more, 'more pair')}: `evolvable doctor` names them"] if more > 0 else []
    return [*status.near_duplicates[:MOST], *end]


def _describe_since(status: LibraryStatus) -> str:
    """Say what others did after the person's last operation."""
    since = status.since
    start = "the beginning"
    if since.operation:
        start = f"operation {since.operation}, yours of {local_time(since.at)}"
    if not since.by:
        return f"{start}: nothing by others"
    by = ", ".join(f"{number} by {author}" for author, number in since.by.items())
    return f"{start}: {by}; {some(since.refs, MOST)}: evolvable log"
