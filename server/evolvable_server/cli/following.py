"""Driving a run in this process, and showing at a terminal how it goes."""

import contextlib
from typing import TYPE_CHECKING, Any

from evolvable_server.cli.state import State
from evolvable_server.cli.terminal import local_time, remark, say

if TYPE_CHECKING:
    from evolvable_tools.evolve.run_control import RunStatus

SHOWN = 0.5
"""Seconds between two looks at a run that is followed."""


def drive(state: State, run: str | None, since: int = 0) -> None:
    """Drives a run, and shows what happened after this event, then how it stands."""
    import asyncio
    import signal

    from evolvable_server.evolving import evolve_means
    from evolvable_tools.evolve.driver import drive_run
    from evolvable_tools.evolve.ledger.run_directory import find_run
    from evolvable_tools.evolve.run_control import read_status

    config, asked, seen = state.config(), list[int](), [since]
    folder = find_run(config.home, run)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError):  # on Windows a stop is asked for by `evolve stop` alone
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, asked.append, number)
        telling = asyncio.create_task(_tell(state, folder, seen))
        try:
            await drive_run(library, caller, folder, evolve_means(config), lambda: bool(asked))
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    with state.library() as (library, caller):
        asyncio.run(work())
    now = read_status(folder, seen[0])
    state.show(now, lambda: show_status(now))


async def _tell(state: State, folder: Any, seen: list[int]) -> None:
    """Says what happens while it happens, for people; `seen` is the last event that was said."""
    import asyncio

    from evolvable_tools.evolve.run_control import read_status

    while not state.json:
        now = read_status(folder, seen[0])
        show_events(now)
        seen[0] = now.next
        await asyncio.sleep(SHOWN)


def show_events(now: "RunStatus") -> None:
    for event in now.events:
        say(f"{local_time(event.at)}  {event.what}")


def show_status(now: "RunStatus") -> None:
    show_events(now)
    say(now.line)
    for member in now.frontier:
        mean = "-" if member["mean"] is None else f"{member['mean']:.3f}"
        delta = "" if member["delta"] is None else f" ({member['delta']:+.3f} to its parent)"
        say(f"  {member['name']}  {mean}{delta}  {member['summary']}")
    if now.state == "waiting":
        remark("`evolvable evolve pending --json` is the question, `evolvable evolve submit` takes the answer.")
    elif now.state in ("stopped", "interrupted"):
        remark("`evolvable evolve continue` goes on with it.")
    elif now.state == "finished" and now.verdict == "PROMOTE":
        remark(f"`evolvable evolve adopt {now.run}` makes it live.")
