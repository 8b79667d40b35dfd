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
        found = library_status(
            library,
            folders=[line.text for line in standing.about(Topic.FOLDER)],
            windows=_windows(library.store.backend.path),
            problems=[f"{wrong.what} {wrong.next}".strip() for wrong in standing.problems],
            near_duplicates=take_pairs(library),
            listing=". ".join(line.text for line in standing.about(Topic.LIST)),
            reviews=_reviews(state, library),
            clients=[line.text for line in standing.about(Topic.CLIENT)],
        )
        waits = "".join(line.text for line in standing.about(Topic.WAITS))
    return Output(found, lambda status: _show_status(status, waits))


def _reviews(state: CommandContext, library: Library) -> str:
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
    state.show(_overview(state), _show_overview)


def _overview(state: CommandContext) -> Overview:
    home = str(state.config().home)
    try:
        with state.library() as (library, _):
            found = library_status(library)
    except NoLibrary:
        return Overview(home, None, 0, "", "evolvable setup")
    # The worst first: a fault, then what waits, then the usual next step.
    if found.worst:
        step = "evolvable doctor"
    elif found.waiting:
        step = "evolvable inbox"
    else:
        step = 'evolvable find "what you want to do"' if found.resources else "evolvable setup"
    return Overview(home, found.resources, found.waiting, found.worst, step)


def _show_overview(found: Overview) -> None:
    if found.resources is None:
        say(f"There is no library in {found.home} yet.")
    else:
        contents = (
            some([count(number, kind) for kind, number in found.resources.items()], MOST)
            or "nothing yet"
        )
        say(f"The library in {found.home} holds {contents}.")
    if found.waiting:
        say(f"{count(found.waiting, 'proposal')} wait{'s' * (found.waiting == 1)} for you.")
    if found.worst:
        say(found.worst)
    say(f"\nNext: {found.next}")
    if found.next == "evolvable setup":
        say("      evolvable quickstart   (a demonstration in a temporary library)")
    say("`evolvable status` shows more, `evolvable --help` lists the commands.")


def _windows(library: Path) -> int | None:
    """Return how many other processes have the library open, None where the system does not show
    them.
    """
    return sum(1 for _ in open_elsewhere(library)) if Path("/proc/self/fd").is_dir() else None


def _show_status(found: LibraryStatus, waits: str) -> None:
    contents = (
        ", ".join(count(number, kind) for kind, number in found.resources.items()) or "nothing"
    )
    rows: list[tuple[Cell, Cell]] = [
        (("library", "bold"), f"{found.home}: {contents}"),
        (("waits", "bold"), (waits or "nothing", "yellow" if waits else "")),
        (("since", "bold"), _since(found)),
    ]
    if found.out_of_force:
        rows.append((("out of force", "bold"), (some(found.out_of_force, MOST), "yellow")))
    rows += _rows("to look at", _unseen(found))
    rows += _rows("held files", [file.text for file in found.held_files])
    rows += _rows("put back", found.put_back)
    rows += _rows("similar", _near_duplicates(found))
    rows += _rows("folder", found.folders)
    rows += _rows("client", found.clients)
    rows += _rows("listed", [found.listing] if found.listing else [])
    if found.windows:
        rows.append((("windows", "bold"), f"{found.windows} more have the library open"))
    rows += _rows("reviews", [found.reviews] if found.reviews else [])
    if found.queued:
        rows.append(
            (
                ("reviews", "bold"),
                f"{count(found.queued, 'session')} queued: evolvable learn review --queue",
            )
        )
    rows += _rows("upkeep", [found.upkeep] if found.upkeep else [])
    # One less: the worst one is shown.
    more = f" {found.problems - 1:,} more: `evolvable doctor`" if found.problems > 1 else ""
    worst = (f"{found.worst}{more}", "red")
    rows.append((("doctor", "bold"), worst if found.worst else "the quick checks found nothing"))
    show_fields(rows)


def _rows(name: str, lines: Sequence[str]) -> list[tuple[Cell, Cell]]:
    return [((name if number == 0 else "", "bold"), line) for number, line in enumerate(lines)]


def _unseen(found: LibraryStatus) -> list[str]:
    more = found.unseen_count - len(found.unseen)
    end = [f"{more:,} more: evolvable inbox list"] if more > 0 else []
    return [*found.unseen, *end]


def _near_duplicates(found: LibraryStatus) -> list[str]:
    more = len(found.near_duplicates) - MOST
    end = [f"{count(more, 'more pair')}: `evolvable doctor` names them"] if more > 0 else []
    return [*found.near_duplicates[:MOST], *end]


def _since(found: LibraryStatus) -> str:
    """Say what others did after the person's last operation."""
    since = found.since
    start = (
        f"operation {since.operation}, yours of {local_time(since.at)}"
        if since.operation
        else "the beginning"
    )
    if not since.by:
        return f"{start}: nothing by others"
    by = ", ".join(f"{number} by {author}" for author, number in since.by.items())
    return f"{start}: {by}; {some(since.refs, MOST)}: evolvable log"
