"""The command ags: have agents plan and do a task together, show how it goes, answer the planner,
stop and go on.
"""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from evolvable_evolve import ags
from evolvable_evolve.agent_runs import ags_allowance
from evolvable_evolve.ags import (
    MAX_CONCURRENT,
    AgsControl,
    AgsRequest,
    AgsStatus,
    StartedAgs,
    WrittenFiles,
    drive_ags,
    start_ags,
)
from evolvable_evolve.cli.evolve_driving import SHOWN, parse_price
from evolvable_evolve.evolution import AGS_DIR, SpendLimit, find_run, parse_executor_spec
from evolvable_evolve.run_launcher import evolve_context, start_driver
from evolvable_server.cli import (
    CommandContext,
    Output,
    VerbGroup,
    command,
    home_option,
    json_option,
)
from evolvable_server.cli.terminal import local_time, remark, say, show_table, warn
from evolvable_store import Principal
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, Ref


@click.group("ags", cls=VerbGroup, modules=(__name__,))
@home_option
@json_option
def ags_command() -> None:
    """Have agents plan and do a task together.

    A planner writes the plan and never executes anything; agents of the library do its items, each
    in a sandbox. A run is driven by a process of its own, and can be stopped and continued at any
    time.
    """


_run_argument = click.argument("run", required=False, metavar="[RUN]")


def _add_limits(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that limit the spending of a run."""
    for option in (
        click.option("--max-minutes", type=click.FloatRange(min=0), help="Minutes of work."),
        click.option("--max-calls", type=click.IntRange(min=0), help="Calls of models."),
        click.option(
            "--max-tokens", type=click.IntRange(min=0), help="Tokens, in both directions."
        ),
        click.option(
            "--max-cost", type=click.FloatRange(min=0), metavar="DOLLARS", help="US dollars."
        ),
    ):
        function = option(function)
    return function


def _take_limits(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the limits from the options of a command, and return them by the names of settings."""
    minutes = options.pop("max_minutes")
    limits = {name: options.pop(f"max_{name}") for name in ("cost", "tokens", "calls")}
    limits["wall"] = None if minutes is None else minutes * 60
    return {name: value for name, value in limits.items() if value is not None}


@command("run")
@click.argument("task")
@click.option(
    "--executor", required=True, help="claude:MODEL, codex:MODEL, anthropic:MODEL, or a name."
)
@click.option(
    "--planner",
    default="handoff",
    show_default=True,
    help="handoff, none (one agent does TASK), anthropic[:MODEL], claude, codex or a name.",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="REF",
    help="Repeatable [default: all that are trusted].",
)
@click.option(
    "--memory", multiple=True, metavar="REF", help="A memory that workers read; repeatable."
)
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="NAME",
    help="A scorer that may check an item's result; repeatable.",
)
@click.option(
    "--judge",
    metavar="WHO",
    help="Who judges items by the plan's criteria: anthropic[:MODEL], claude, codex or a name.",
)
@click.option(
    "--improve",
    metavar="WHO",
    help="Who improves the run's own program: anthropic[:MODEL], claude, codex or a name.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, MAX_CONCURRENT),
    default=MAX_CONCURRENT,
    show_default=True,
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 7200),
    default=600.0,
    show_default=True,
    help="For one item.",
)
@click.option(
    "--price",
    metavar="IN,OUT",
    help="Dollars of a million tokens, where nobody tells what it cost.",
)
@click.option("--free", is_flag=True, help="What the command uses costs nothing.")
@click.option(
    "--stand-in", is_flag=True, help="No real model is behind it: figures are labelled scripted."
)
@click.option("--wait", is_flag=True, help="Drive it here, and show how it goes.")
@_add_limits
def run_command(
    state: CommandContext,
    task: str,
    executor: str,
    planner: str,
    agents: tuple[str, ...],
    memory: tuple[str, ...],
    checks: tuple[str, ...],
    judge: str | None,
    improve: str | None,
    wait: bool,
    **options: Any,
) -> Output[Any]:
    """Begin a run on TASK.

    A command is given by the name that `evolvable role executor add` gave it, a planner by that of
    `evolvable role proposer add`, a check by that of `evolvable role scorer add`: only ends that a
    check saw count in the rates of agents and skills. An agent that runs this command is held to
    the executors and the budget of the person's configuration.
    """
    config = state.config()
    person = state.identity.principal is Principal.PERSON
    host = evolve_context(config, person=person)
    commands = host.commands["executors"] if host.commands else None
    more = {"price": parse_price(options.pop("price"))}
    more |= {"free": options.pop("free") or None, "scripted": options.pop("stand_in") or None}
    spec = parse_executor_spec(executor, commands, host.models, **(more if person else {}))
    limit = SpendLimit(**_take_limits(options))
    request = AgsRequest(
        task,
        spec,
        planner,
        [Ref.parse(agent, Kind.AGENT) for agent in agents],
        [Ref.parse(name, Kind.MEMORY) for name in memory],
        limit,
        options["concurrency"],
        options["seconds"],
        checks,
        improver=improve or "",
        judge=judge or "",
    )
    with state.library() as (library, caller):
        begun = start_ags(library, caller, host, request, ags_allowance(config))
    if not wait:
        start_driver(config.home, find_run(config.home, begun.run, AGS_DIR), verb=AGS_DIR)
        return Output(begun, _show_started)
    if not state.json:
        _show_started(begun)
    return _drive_here(state, begun.run)


def _show_started(begun: StartedAgs) -> None:
    say(f"Run {begun.run} [{begun.label}] with {', '.join(begun.agents)}; {begun.planner} plans.")
    warn(*begun.warnings)
    remark(f"`evolvable lab ags status` shows how it goes; the plan is {begun.plan}.")


@command("drive")
@_run_argument
def drive_command(state: CommandContext, run: str | None) -> Output[AgsStatus]:
    """Drive a run in this process until it ends, stops or waits for an answer.

    The other commands start a process in the background that does this.
    """
    return _drive_here(state, run)


def _drive_here(state: CommandContext, run: str | None) -> Output[AgsStatus]:
    config, stop_signals = state.config(), list[int]()
    folder = find_run(config.home, run, AGS_DIR)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        # On Windows a stop is asked for by `ags stop` alone.
        with contextlib.suppress(NotImplementedError):
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop_signals.append, number)
        await drive_ags(library, caller, folder, evolve_context(config), lambda: bool(stop_signals))

    with state.library() as (library, caller):
        asyncio.run(work())
    return Output(ags.ags_status(config.home, folder.id), _show_status)


@command("status")
@_run_argument
@click.option(
    "--since", type=click.IntRange(min=0), default=0, help="Only events after this number."
)
@click.option(
    "--follow", is_flag=True, help="Show events until the run ends, stops or waits for an answer."
)
def status_command(
    state: CommandContext, run: str | None, since: int, follow: bool
) -> Output[AgsStatus]:
    """Show the plan of a run, its items, what it cost, and what it waits for.

    Without RUN the newest.
    """
    home = state.config().home
    now = ags.ags_status(home, run, since)
    while follow and now.state == "running":
        _show_events(now)
        time.sleep(SHOWN)
        now = ags.ags_status(home, now.run, now.next)
    return Output(now, _show_status)


def _show_events(now: AgsStatus) -> None:
    say(*(f"{local_time(event.at)}  {event.what}" for event in now.events))


def _show_status(now: AgsStatus) -> None:
    _show_events(now)
    say(now.line)
    if now.items:
        heads = ["Item", "State", "Agent", "Needs", "Summary"]
        rows = [
            [
                item["id"],
                _describe_state(item),
                item["agent"],
                ", ".join(item["needs"]),
                item.get("summary", item["subtask"]),
            ]
            for item in now.items
        ]
        show_table(heads, rows, names=("Item", "Agent"), wide=("Needs", "Summary"))
    say(*(improvement["line"] for improvement in now.improvements))
    if now.question:
        say(f"The planner asks: {now.question}")
        remark(f"`evolvable lab ags answer {now.run} TEXT` answers it.")
    elif now.request is not None:
        remark(
            "--json shows the question of the planner whole; `evolvable lab ags answer --plan "
            "FILE` takes the plan."
        )
    elif now.state in ("stopped", "interrupted") or now.ended == "budget":
        remark(f"`evolvable lab ags resume {now.run}` goes on with it.")
    if now.result:
        say("", now.result)
    if any(item.get("files") for item in now.items):
        remark(f"`evolvable lab ags files {now.run} FOLDER` writes the files of its items.")


def _describe_state(item: dict[str, Any]) -> str:
    """Return the state of an item, with what its check says."""
    return f"{item['state']}, {item['check']} passes" if item.get("passed") else str(item["state"])


@command("answer")
@click.argument("run")
@click.argument("text", required=False)
@click.option(
    "--plan",
    type=click.File("rb"),
    metavar="FILE",
    help="A plan, where you plan: a JSON object; - is stdin.",
)
@click.option("--wait", is_flag=True, help="Drive it here.")
def answer_command(
    state: CommandContext, run: str, text: str | None, plan: Any, wait: bool
) -> Output[AgsControl] | Output[AgsStatus]:
    """Answer the question of the planner of RUN with TEXT, or hand in a plan."""
    if (text is None) == (plan is None):
        raise click.UsageError("Give a text, or a plan by --plan.")
    answer: Any = text
    if plan is not None:
        try:
            answer = json.loads(plan.read())
        except ValueError:
            raise InvalidArgument(
                "The plan is no JSON.", "It is one object that fits answer_schema."
            ) from None
    with state.library() as (library, caller):
        control = ags.answer_ags(library, caller, run, answer)
    return _go_on(state, control, wait)


def _go_on(
    state: CommandContext, control: AgsControl, wait: bool
) -> Output[AgsControl] | Output[AgsStatus]:
    if control.goes_on and wait:
        return _drive_here(state, control.run)
    if control.goes_on:
        home = state.config().home
        start_driver(home, find_run(home, control.run, AGS_DIR), verb=AGS_DIR)
    return Output(control, _show_control)


def _show_control(control: AgsControl) -> None:
    say(f"Run {control.run}: {control.line}")


@command("stop")
@_run_argument
def stop_command(state: CommandContext, run: str | None) -> Output[AgsControl]:
    """Stop a run. The results of its items stay, and `resume` continues from there."""
    return Output(ags.stop_ags(state.config().home, run), _show_control)


@command("resume")
@_run_argument
@click.option("--wait", is_flag=True, help="Drive it here, and show how it goes.")
@_add_limits
def resume_command(
    state: CommandContext, run: str | None, wait: bool, **options: Any
) -> Output[AgsControl] | Output[AgsStatus]:
    """Go on with a run that was stopped or interrupted, with another budget if you like."""
    return _go_on(state, ags.resume_ags(state.config().home, run, _take_limits(options)), wait)


@command("files")
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
def files_command(state: CommandContext, run: str, folder: Path) -> Output[WrittenFiles]:
    """Write the files that the items of RUN left into FOLDER, which must be new."""
    return Output(ags.write_files(state.config().home, run, folder.absolute()), _show_files)


def _show_files(written: WrittenFiles) -> None:
    say(*written.files)
    remark(f"Agents wrote them: read them before you run any. They are in {written.folder}.")
