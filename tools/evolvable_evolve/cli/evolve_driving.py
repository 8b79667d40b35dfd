"""Drive a run in this process and show how it goes."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

import click

from evolvable_evolve.evolution import (
    RunDirectory,
    RunStatus,
    drive_run,
    find_run,
    planned_trials,
    read_status,
)
from evolvable_evolve.run_launcher import evolve_context
from evolvable_server.cli import CommandContext, Output, set_label
from evolvable_server.cli.terminal import local_time, progress, remark, say
from evolvable_tools import Progress

SHOWN = 0.5
"""Seconds between two looks at a run that is followed."""


def drive_here(
    state: CommandContext,
    run: str | None,
    stop: Callable[[], bool] = lambda: False,
    *,
    since: int = 0,
) -> Output[RunStatus]:
    """Drive a run in this process until it ends or waits, or `stop` returns True, and show its
    events meanwhile.
    """
    config, stop_signals, seen = state.config(), list[int](), [since]
    folder = find_run(config.home, run)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        # On Windows a stop is asked for by `evolve stop` alone.
        with contextlib.suppress(NotImplementedError):
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop_signals.append, number)
        telling = asyncio.create_task(_tell(state, folder, seen, show))
        try:
            host = evolve_context(config)
            await drive_run(library, caller, folder, host, lambda: bool(stop_signals) or stop())
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    with state.library() as (library, caller), progress("evolution") as show:
        asyncio.run(work())
    return Output(read_status(folder, seen[0]), show_status)


async def _tell(
    state: CommandContext, folder: RunDirectory, seen: list[int], show: Progress
) -> None:
    """Show events as they happen, for people. seen: the number of the last event that was shown."""
    while not state.json:
        now = read_status(folder, seen[0])
        show_events(now)
        show_trials(now, show)
        seen[0] = now.next
        await asyncio.sleep(SHOWN)


def show_events(now: RunStatus) -> None:
    """Show the events of a run."""
    say(*(f"{local_time(event.at)}  {event.what}" for event in now.events))


def show_trials(now: RunStatus, show: Progress) -> None:
    """Show on a terminal how many of the planned trials are done, and their cost."""
    planned = planned_trials(now.estimate)
    set_label(f"{now.phase}, ${now.spent['cost']:.2f}: trials")
    show(min(now.spent["trials"], planned), planned)


def show_status(now: RunStatus) -> None:
    """Show the events, the state of the run, and the next step."""
    show_events(now)
    if now.answer:
        say(now.answer)
    say(now.line)
    for member in now.frontier:
        mean = "-" if member["mean"] is None else f"{member['mean']:.3f}"
        delta = "" if member["delta"] is None else f" ({member['delta']:+.3f} to its parent)"
        say(f"  {member['name']}  {mean}{delta}  {member['summary']}")
    if now.state == "waiting":
        remark(
            "`evolvable evolve pending --json` is the question, `evolvable evolve submit` takes "
            "the answer."
        )
    elif now.state in ("stopped", "interrupted"):
        remark("`evolvable evolve continue` goes on with it.")
    elif now.adopted is not None:
        remark(f"`evolvable evolve adopt --undo {now.run}` takes the adoption back.")
    elif now.state == "finished" and now.adoptable:
        remark(f"`evolvable evolve adopt {now.run}` makes it live.")


def parse_price(text: str | None) -> list[float] | None:
    """Return the two prices of an option `IN,OUT`. Raises UsageError."""
    if text is None:
        return None
    try:
        input_price, output_price = (float(part) for part in text.split(","))
    except ValueError:
        raise click.UsageError(
            f"--price is {ascii(text)}; it is two numbers, such as 1,5."
        ) from None
    return [input_price, output_price]
