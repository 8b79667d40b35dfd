"""The command that shows what sessions there are to learn from: sessions."""

from typing import TYPE_CHECKING

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import Row, local_time, say, show_table

if TYPE_CHECKING:
    from evolvable_tools.sessions.session_listing import SessionPage

SIZES = ((1_000_000, "MB"), (1_000, "kB"))


@command("sessions")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=20, show_default=True, help="How many, the newest first."
)
@click.option("--project", metavar="PATH", help="Only those that worked in this folder or below it.")
def sessions_command(state: State, limit: int, project: str | None) -> None:
    """List the sessions that clients wrote down.

    Shows which of them the library has taken in. Nothing is read into the library, and nothing is written.
    """
    from evolvable_server.config import read_machine
    from evolvable_store.storage.observations import ObservationLog
    from evolvable_tools.sessions.session_listing import list_sessions

    with state.library() as (library, _):
        log = ObservationLog(library.store.backend)
        found = list_sessions(read_machine(state.config().project).transcripts, log.taken, limit, project)
    state.show(found, lambda: _show(found))


def _show(found: "SessionPage") -> None:
    rows: list[Row] = [
        [
            (one.session, "bold"),
            one.client,
            local_time(one.at),
            str(one.turns),
            _size(one.size),
            one.taken,
            one.project or "",
        ]
        for one in found.sessions
    ]
    if not rows:
        say("There are no sessions of Claude Code or Codex here.")
        return
    show_table(["session", "client", "when", "turns", "size", "taken in", "project"], rows, wide=("project",))
    if found.more:
        say(f"({found.more} more; --limit shows them)")


def _size(size: int) -> str:
    return next((f"{size / unit:.1f} {name}" for unit, name in SIZES if size >= unit), f"{size} B")
