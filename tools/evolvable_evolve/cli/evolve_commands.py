"""The command evolve: start a run, drive it in this process, answer and stop it, show
its progress.
"""

import json
import time
from collections.abc import Callable
from dataclasses import Field
from typing import Any

import click

from evolvable_evolve import evolution
from evolvable_evolve.cli.evolve_driving import (
    SHOWN,
    drive_here,
    parse_price,
    show_events,
    show_status,
    show_trials,
)
from evolvable_evolve.cli.taskset_access import ask_before_unvouched
from evolvable_evolve.evolution import (
    GIVEN,
    PendingQuestions,
    RunStatus,
    check_runnable,
    find_run,
    load_run_state,
    load_taskset,
    parse_executor_spec,
    read_run_file,
    start_run,
)
from evolvable_evolve.run_launcher import evolve_context, start_driver
from evolvable_server import is_person
from evolvable_server.cli import REF, CommandContext, Output, command, read_source
from evolvable_server.cli.terminal import progress, remark, say, show_table, warn
from evolvable_store import Principal
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref

_run_argument = click.argument("run", required=False, metavar="[RUN]")


def _add_limits(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that limit the spending of a run."""
    for option in (
        click.option("--max-minutes", type=click.FloatRange(min=0), help="Minutes of trials."),
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


_OPTION_NAMES = {"fail_below": "pass_at"}
"""Settings whose option has another name."""


def _add_file_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the settings of the run's file as hidden options, for scripts.

    The help lists the file instead.
    """
    own_options = ("brain", "judge", "mode", "optimizer", "iterations", "trials", "structure")
    for name, setting in GIVEN.items():
        if name not in own_options:
            flag = f"--{_OPTION_NAMES.get(name, name).replace('_', '-')}"
            function = click.option(flag, name, type=_choose_option_type(setting), hidden=True)(
                function
            )
    for option in (
        click.option("--rounds", type=click.IntRange(0, 3), hidden=True),
        click.option("--stand-in", is_flag=True, default=None, hidden=True),
        click.option("--structure", multiple=True, metavar="NAME=NUMBER", hidden=True),
        click.option("--final", hidden=True),
        click.option("--give-up-below", type=float, hidden=True),
    ):
        function = option(function)
    return function


def _choose_option_type(setting: Field[Any]) -> Any:
    """Return the type of the option of a setting."""
    usual = setting.default
    if isinstance(usual, str):
        return str
    low, high = setting.metadata.get("range", (None, None))
    number = click.FloatRange(low, high) if isinstance(usual, float) else click.IntRange(low, high)
    return (number, number) if isinstance(usual, tuple) else number


def _read_file(source: str | None) -> dict[str, Any]:
    return {} if source is None else read_run_file(read_source(source))


@command("start")
@click.argument("tasks", type=REF, metavar="ENVIRONMENT")
@click.option(
    "--program",
    "-p",
    type=REF,
    multiple=True,
    metavar="REF",
    help="What may get better; repeatable.",
)
@click.option(
    "--executor",
    help="claude:MODEL, codex:MODEL, anthropic:MODEL, simulated, or a name [default: the role's].",
)
@click.option(
    "--brain",
    help="handoff, or anthropic[:MODEL], claude, codex, names [default: the role's, else handoff].",
)
@click.option(
    "--judge",
    help="anthropic[:MODEL], claude, codex or a name [default: the role's, else --brain].",
)
@click.option("--mode", help="skill_only, ..., joint, or any  [default: skill_only]")
@click.option(
    "--optimizer",
    help="greedy, evoskill, reflection, textgrad, reinforce_pp, grpo, or a name  [default: greedy]",
)
@click.option(
    "--iterations",
    type=click.IntRange(0, 1000),
    help="Proposals [default: 10, and more while trials are left].",
)
@click.option(
    "--trials",
    type=click.IntRange(0),
    help="Evaluations that the run plans for [default: 8 a test task].",
)
@click.option(
    "--file",
    "source",
    metavar="FILE",
    help="The run's file, in TOML: all other settings; - is stdin.",
)
@click.option(
    "--merge",
    multiple=True,
    metavar="RUN",
    help="Try the finalists of these runs as one; repeatable.",
)
@click.option(
    "--price",
    metavar="IN,OUT",
    help="Dollars of a million tokens, where nobody tells what it cost.",
)
@click.option("--free", is_flag=True, help="What the command uses costs nothing.")
@click.option("--wait", is_flag=True, help="Drive it here, and show how it goes.")
@_add_limits
@_add_file_options
def start_command(
    state: CommandContext,
    tasks: Ref,
    program: tuple[Ref, ...],
    executor: str | None,
    source: str | None,
    wait: bool,
    **arguments: Any,
) -> Output[Any]:
    """Begin a run: ENVIRONMENT is a task set of the library, such as environment:invoices.

    A command is given by the name that `evolvable role executor add`, `proposer add` or `judge add`
    gave it, a model by that of `role model add`; `role model role` says who answers where an option
    does not.

    The run's file (--file) has a setting a line, such as `seed = 7`. docs/evolve.md lists the
    settings. Each is an option too, such as --seed 7, and an option counts before the file.
    """
    free, price = arguments.pop("free") or None, parse_price(arguments.pop("price"))
    merge = arguments.pop("merge")
    structure = _parse_thresholds(arguments.pop("structure"))
    limits = _take_limits(arguments)
    options = _read_file(source)
    options |= {name: value for name, value in arguments.items() if value is not None}
    options |= limits
    options |= {"structure": structure} if structure else {}
    stand_in = options.pop("stand_in", None) or None
    config = state.config()
    host = evolve_context(config, person=state.identity.principal is Principal.PERSON)
    commands = host.commands["executors"] if host.commands else None
    executor = executor or next(iter(host.answering("executor")), None)
    if executor is None:
        raise click.UsageError(
            "Name who does the tasks: --executor, or `evolvable role model role executor NAME`."
        )
    options["brain"] = options.get("brain") or ",".join(host.answering("proposer")) or "handoff"
    spec = parse_executor_spec(
        executor, commands, host.models, price=price, scripted=stand_in, free=free
    )
    with state.library() as (library, caller):
        taskset, _ = load_taskset(library, caller, tasks)
        if is_person():
            ask_before_unvouched(state, library, caller, tasks, taskset)
        begun = start_run(library, caller, host, tasks, program, spec, options, merge)
    folder = find_run(config.home, begun.run)
    if not wait:
        start_driver(config.home, folder)
        return Output(begun, _show_started)
    if not state.json:
        _show_started(begun)
    return drive_here(state, begun.run)


def _parse_thresholds(texts: tuple[str, ...]) -> dict[str, float]:
    """Return the thresholds that options name. Raises UsageError for a text without a number."""
    thresholds: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            thresholds[name] = int(number) if number.isdecimal() else float(number)
        except ValueError:
            raise click.UsageError(
                f"--structure {text} is no NAME=NUMBER, such as mass=0.5."
            ) from None
    return thresholds


def _show_started(begun: Any) -> None:
    sizes = ", ".join(f"{count} {split}" for split, count in begun.sizes.items())
    say(
        f"Run {begun.run} [{begun.label}] on {sizes} tasks, from "
        f"{', '.join(begun.base) or 'nothing'}."
    )
    warn(*begun.warnings)
    remark(
        "`evolvable evolve status` shows how it goes, `evolvable evolve pending` what it waits for."
    )


@command("drive")
@_run_argument
@click.option("--pilot", is_flag=True, help="Stop after its first three trials.")
def drive_command(state: CommandContext, run: str | None, pilot: bool) -> Output[RunStatus]:
    """Drive a run in this process until it is decided, stops or waits for an answer.

    `start` and `continue` start a process in the background that does this.
    """
    folder = find_run(state.config().home, run)
    return drive_here(state, folder.id, lambda: pilot and bool(load_run_state(folder).preflight))


@command("status")
@_run_argument
@click.option(
    "--since", type=click.IntRange(min=0), default=0, help="Only events after this number."
)
@click.option(
    "--follow", is_flag=True, help="Show events until the run is decided, stops or waits."
)
@click.option("--all", "every", is_flag=True, help="All runs, a line each.")
def status_command(
    state: CommandContext, run: str | None, since: int, follow: bool, every: bool
) -> Output[Any]:
    """Show how far a run is, what it cost so far, and what it waits for. Without RUN the newest."""
    home = state.config().home
    if every:
        return Output(evolution.list_statuses(home), _show_statuses)
    now = evolution.get_status(home, run, since)
    with progress("evolution") as show:
        while follow and now.state == "running":
            show_events(now)
            show_trials(now, show)
            time.sleep(SHOWN)
            now = evolution.get_status(home, now.run, now.next)
    return Output(now, show_status)


def _show_statuses(statuses: list[RunStatus]) -> None:
    heads = ["Run", "State", "Verdict", "Evaluations", "Label"]
    rows = [
        [
            status.run,
            status.state,
            status.verdict or "-",
            f"{status.spent['trials']:,}",
            status.label,
        ]
        for status in statuses
    ]
    show_table(heads, rows, names=("Run",), wide=("Label",), spare=("Label", "Evaluations"))


@command("pending")
@_run_argument
def pending_command(state: CommandContext, run: str | None) -> Output[PendingQuestions]:
    """Show the questions that a run waits for; with --json all that an answer needs."""
    return Output(evolution.list_pending(state.config().home, run), _show_pending)


def _show_pending(waits: PendingQuestions) -> None:
    for candidate in waits.held:
        say(
            f"{candidate['name']} does not run before a person has seen its change: "
            f"{candidate['why']}."
        )
    if waits.held and is_person():
        remark(f"`evolvable evolve allow {waits.run} {waits.held[0]['name']}` shows it, and asks.")
    if not waits.packets and not waits.held:
        say(f"Run {waits.run} waits for no answer; it is {waits.state}.")
    say(*(f"{packet['question_id']}: for a {packet['role']}" for packet in waits.packets))
    if waits.packets:
        remark(
            "--json shows a question whole; `evolvable evolve submit --question ID FILE` takes "
            "its answer."
        )


@command("submit")
@click.argument("answer", type=click.File("rb"), metavar="FILE")
@click.option("--run", "run", help="Which run [default: the newest].")
@click.option("--question", metavar="ID", help="Which question [default: the one that waits].")
@click.option("--wait", is_flag=True, help="Drive it here, and show how it goes.")
def submit_command(
    state: CommandContext, answer: Any, run: str | None, question: str | None, wait: bool
) -> Output[RunStatus] | None:
    """Hand in an answer: FILE holds one JSON object, - is stdin. The run goes on with it."""
    home = state.config().home
    pending = evolution.list_pending(home, run)
    waits = [packet["question_id"] for packet in pending.packets]
    if question is None and not waits:
        hint = "`evolvable evolve status --follow` shows how it goes on."
        text = f"Run {pending.run} waits for no answer; it is {pending.state}."
        raise InvalidArgument(text, hint)
    if question is None and len(waits) != 1:
        raise InvalidArgument(f"{len(waits)} questions wait.", "Name one by --question.")
    try:
        value = json.loads(answer.read())
    except ValueError:
        raise InvalidArgument(
            "The answer is no JSON.", "It is one object that fits answer_schema."
        ) from None
    submitted = evolution.submit_answer(home, run, question or waits[0], value)
    if not state.json or not wait:
        then = "is stopped; `evolvable evolve continue` goes on with it"
        if submitted.goes_on:
            then = "goes on"
        text = f"Taken as the {submitted.role}'s answer; run {submitted.run} {then}."
        state.show(submitted, lambda _: say(text))
    if submitted.goes_on and wait:
        since = evolution.get_status(home, submitted.run).next
        return drive_here(state, submitted.run, since=since)
    if submitted.goes_on:
        start_driver(home, find_run(home, submitted.run))
    return None


@command("stop")
@_run_argument
def stop_command(state: CommandContext, run: str | None) -> Output[Any]:
    """Stop a run. What was measured stays, and `continue` goes on from there."""
    return Output(evolution.stop_run(state.config().home, run), _show_line)


def _show_line(result: Any) -> None:
    say(f"Run {result.run}: {result.line}")


@command("continue")
@_run_argument
@click.option("--wait", is_flag=True, help="Drive it here, and show how it goes.")
@_add_limits
def continue_command(
    state: CommandContext, run: str | None, wait: bool, **options: Any
) -> Output[Any]:
    """Go on with a run that was stopped or interrupted, with another budget if you like."""
    config = state.config()
    home = config.home
    folder = find_run(home, run)
    host = evolve_context(config, person=state.identity.principal is Principal.PERSON)
    check_runnable(folder, host)
    result = evolution.resume_run(home, run, _take_limits(options))
    if wait:
        return drive_here(state, result.run, since=evolution.get_status(home, result.run).next)
    start_driver(home, find_run(home, result.run))
    return Output(result, _show_line)


def _take_limits(options: dict[str, Any]) -> dict[str, float]:
    """Remove the limits from the options of a command, and return them by the names of settings."""
    minutes = options.pop("max_minutes")
    limits = {name: options.pop(f"max_{name}") for name in ("cost", "tokens", "calls")}
    limits["wall"] = None if minutes is None else minutes * 60
    return {name: value for name, value in limits.items() if value is not None}
