"""The commands evolve measure and evolve plan: measure resources as they are, and plan a run."""

from collections.abc import Callable
from typing import Any

import click

from evolvable_evolve.cli.evolve_driving import drive_here, parse_price
from evolvable_evolve.cli.taskset_access import ask_before_unvouched, show_left_out
from evolvable_evolve.evolution import (
    HostContext,
    MeasuredUnder,
    Measurement,
    RunPlan,
    RunState,
    StartedMeasurement,
    describe_evaluations,
    describe_look,
    find_run,
    load_run_state,
    load_taskset,
    look_at,
    make_plan,
    parse_executor_spec,
    read_measurement,
    start_measurement,
    start_run,
)
from evolvable_evolve.run_launcher import evolve_context, start_driver
from evolvable_server import is_person
from evolvable_server.cli import REF, CommandContext, Output, command
from evolvable_server.cli.terminal import count, remark, say, show_table, warn
from evolvable_store import Principal
from evolvable_store.errors import NotFound
from evolvable_store.resource import Ref


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that a measurement and a plan have in common with a run."""
    for option in (
        click.option(
            "--stand-in",
            is_flag=True,
            help="No real model is behind it: figures are labelled scripted.",
        ),
        click.option("--free", is_flag=True, help="What the command uses costs nothing."),
        click.option(
            "--price",
            metavar="IN,OUT",
            help="Dollars of a million tokens, where nobody tells what it cost.",
        ),
        click.option("--seed", type=int, default=42, show_default=True),
        click.option(
            "--concurrency",
            type=click.IntRange(1, 64),
            default=4,
            show_default=True,
            help="Trials at once.",
        ),
        click.option(
            "--backend", default="auto", show_default=True, help="tasks, processes, ray[:ADDRESS]."
        ),
        click.option(
            "--pass-at",
            type=click.FloatRange(0, 1),
            default=1.0,
            show_default=True,
            help="What passes.",
        ),
        click.option(
            "--test-repeats", type=click.IntRange(0, 20), default=0, help="Of each test task."
        ),
        click.option(
            "--repeats",
            type=click.IntRange(1, 20),
            default=1,
            show_default=True,
            help="Of each of val.",
        ),
        click.option("--judge", default="", help="anthropic[:MODEL], claude, codex or a name."),
        click.option(
            "--rounds",
            type=click.IntRange(0, 3),
            default=0,
            help="Of each answer, by public checks.",
        ),
    ):
        function = option(function)
    return function


def executor_specs(
    state: CommandContext, names: list[str], options: dict[str, Any]
) -> tuple[HostContext, list[Any]]:
    """Return the host of runs, and the executors of these names; remove their options from
    `options`.
    """
    stand_in, free = options.pop("stand_in") or None, options.pop("free") or None
    host = evolve_context(state.config(), person=state.identity.principal is Principal.PERSON)
    commands = host.commands["executors"] if host.commands else None
    price = parse_price(options.pop("price"))
    return host, [
        parse_executor_spec(name, commands, host.models, price=price, scripted=stand_in, free=free)
        for name in names
    ]


@command("measure")
@click.argument("tasks", type=REF, metavar="ENVIRONMENT")
@click.option(
    "--program", "-p", type=REF, multiple=True, metavar="REF", help="What is measured; repeatable."
)
@click.option(
    "--from",
    "source",
    metavar="RUN",
    help="Measure the finalist of this run instead, as it is (zero-shot).",
)
@click.option(
    "--against",
    default="none",
    show_default=True,
    help="none, REF, REF@VERSION, or RUN: its finalist.",
)
@click.option(
    "--executor",
    "executors",
    multiple=True,
    help="claude:MODEL, codex:MODEL, ..., or a name; repeatable.",
)
@click.option(
    "--executors", "listed", default="", metavar="A,B", help="Several executors in one option."
)
@click.option(
    "--open-test", is_flag=True, help="Open the sealed test, in stages; without it it stays closed."
)
@click.option(
    "--wait", is_flag=True, help="Drive it here, one executor after the other, and show the result."
)
@run_options
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    metavar="DOLLARS",
    help="US dollars, for each executor.",
)
@click.option("--max-tokens", type=click.IntRange(min=0), help="Tokens, for each executor.")
@click.option("--max-calls", type=click.IntRange(min=0), help="Calls of models, for each executor.")
def measure_command(
    state: CommandContext,
    tasks: Ref,
    program: tuple[Ref, ...],
    source: str | None,
    against: str,
    executors: tuple[str, ...],
    listed: str,
    wait: bool,
    **arguments: Any,
) -> Output[Any]:
    """Measure whether resources help, against nothing or against something else, and for which
    model.

    Nothing is searched and nothing is changed. Tasks of train and validation are asked; those that
    the program was made from are left out. Over all that is measured on one task set Benjamini and
    Hochberg's rule decides which answers stand. With --open-test the sealed test is opened in
    stages, and what that look costs is said first; several executors share it. The answers then are
    PROMOTE, NOT SUPPORTED and HARMFUL, which share one alpha by Holm's method.
    """
    names = [*executors, *filter(None, (name.strip() for name in listed.split(",")))]
    host, specs = executor_specs(state, names, arguments)
    limits = {name: arguments.pop(f"max_{name}") for name in ("cost", "tokens", "calls")}
    options = {
        ("fail_below" if name == "pass_at" else name): value for name, value in arguments.items()
    }
    options |= {name: value for name, value in limits.items() if value is not None}
    with state.library() as (library, caller):
        taskset, _ = load_taskset(library, caller, tasks)
        if is_person():
            ask_before_unvouched(state, library, caller, tasks, taskset)
        if arguments["open_test"]:
            remark(describe_look(look_at(state.config().home, taskset)))
        begun = start_measurement(
            library, caller, host, tasks, program, specs, options, against=against, source=source
        )
    home = state.config().home
    if wait:
        if not state.json:
            show_started(begun)
        for run in begun.runs:
            drive_here(state, run.run)
        measurement = read_measurement(home, begun.family)
        if measurement is None:
            raise NotFound(
                f"The measurement {begun.family} is gone: its runs were removed.", "Measure again."
            )
        return Output(measurement, show_measurement)
    for run in begun.runs:
        start_driver(home, find_run(home, run.run))
    return Output(begun, show_started)


def show_started(begun: StartedMeasurement) -> None:
    """Show a measurement that was begun."""
    say(f"Measuring {begun.measured} against {begun.against}.")
    say(*(f"Run {run.run} [{run.label}]" for run in begun.runs))
    warn(*begun.warnings)
    remark(f"`evolvable evolve report {begun.family}` shows the joint result.")
    show_left_out(begun.left_out)
    if not begun.look:
        remark(
            "Train and validation are asked. The sealed test stays closed: --open-test opens it."
        )


def show_measurement(found: Measurement) -> None:
    """Show the joint result of a measurement."""
    if found.batch > 1:
        say(
            f"{found.batch} answers on this task set are read together (joint p by Benjamini and "
            "Hochberg over all)."
        )
    elif len(found.rows) > 1 and not found.batch:
        say(
            f"Measurement {found.family} under {count(len(found.rows), 'executor')} (p by Holm "
            "over all of them):"
        )
    heads = ["run", "executor", "tasks", "against", "measured"]
    heads += ["gain", "95 %", "p", "joint p", "verdict"]
    rows = [_format_row(row) for row in found.rows]
    spare = ("joint p", "p", "tasks", "against", "measured")
    show_table(heads, rows, names=("run",), wide=("executor",), spare=spare)
    say(*filter(None, (row.sentence for row in found.rows)))
    if not found.finished:
        say("Not all of it is measured yet; there is no joint verdict.")


def _format_row(measured: MeasuredUnder) -> list[str]:
    def number(value: float | None, form: str = ".3f") -> str:
        return "-" if value is None else f"{value:{form}}"

    interval = "-"
    if measured.interval is not None:
        low, high = measured.interval
        interval = f"{100 * low:+.1f} to {100 * high:+.1f}"
    return [
        measured.run,
        measured.label,
        str(measured.n),
        number(measured.before),
        number(measured.after),
        "-" if measured.gain is None else f"{100 * measured.gain:+.1f}",
        interval,
        number(measured.p, ".2g"),
        number(measured.joint, ".2g"),
        measured.ruling or "-",
    ]


@command("plan")
@click.argument("tasks", type=REF, metavar="ENVIRONMENT")
@click.option(
    "--program",
    "-p",
    type=REF,
    multiple=True,
    metavar="REF",
    help="What may get better; for the pilot.",
)
@click.option(
    "--executor", default="", help="Who would do the tasks: three trials say what a run costs."
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 1),
    help="Share of results that differ between two runs of the same.",
)
@click.option("--iterations", type=click.IntRange(0, 1000), help="Proposals, as of `start`.")
@run_options
def plan_command(
    state: CommandContext,
    tasks: Ref,
    program: tuple[Ref, ...],
    executor: str,
    noise: float | None,
    iterations: int | None,
    **arguments: Any,
) -> Output[RunPlan]:
    """Show what a run would cost and what its test could find, before more than three trials are
    spent.

    Without --executor nothing is run. With it three trials are, and the run stops after them:
    `evolvable evolve continue` goes on with it. The chance to find a gain is a band over base rates
    from .2 to .8.
    """
    home, repeats = state.config().home, arguments["test_repeats"]
    pilot: RunState | None = None
    with state.library() as (library, caller):
        taskset, _ = load_taskset(library, caller, tasks)
        look = look_at(home, taskset)
        if executor:
            host, [spec] = executor_specs(state, [executor], arguments)
            if is_person():
                ask_before_unvouched(state, library, caller, tasks, taskset)
            options = {
                ("fail_below" if name == "pass_at" else name): value
                for name, value in arguments.items()
            }
            options |= {} if iterations is None else {"iterations": iterations}
            begun = start_run(library, caller, host, tasks, program, spec, options)
    if executor:
        folder = find_run(home, begun.run)
        drive_here(state, begun.run, lambda: bool(load_run_state(folder).preflight))
        pilot = load_run_state(folder)
        if not pilot.preflight:
            warn(pilot.stopped)
    plan = make_plan(taskset, test_repeats=repeats, look=look, noise=noise, pilot=pilot)
    return Output(plan, show_plan)


def show_plan(plan: RunPlan) -> None:
    """Show a plan."""
    sizes = ", ".join(f"{number} {split}" for split, number in plan.sizes.items())
    claim = "nothing" if plan.claim == "nothing" else f"something of {plan.claim}"
    say(f"{plan.name}: {sizes}. It could claim {claim}.")
    warn(*plan.remarks)
    if plan.evaluations is not None:
        evaluations = describe_evaluations({"evaluations": plan.evaluations, "likely": plan.likely})
        money = "an unknown price"
        if plan.dollars is not None:
            money = f"${plan.dollars[0]:.2f} to ${plan.dollars[1]:.2f}"
        say(f"A run takes {evaluations} evaluations, for {money}.")
    if plan.power:
        _show_power(plan)
    if plan.run:
        remark(
            f"`evolvable evolve continue {plan.run}` goes on with it; what was measured is not "
            "paid again."
        )


def _show_power(plan: RunPlan) -> None:
    """Show the gains that the test of a run could find, at each look and after each change."""
    origin = "as given" if plan.noise_measured else "assumed"
    say(
        f"The test: {plan.tests} tasks, {plan.repeats} runs of each under both arms, p <= "
        f"{plan.alpha:.2g}.",
        f"Noise {plan.noise:.0%} ({origin}): so many results differ from one run to the next. "
        "Base rates .2 to .8.",
    )
    if plan.detectable is not None:
        points = f"{100 * plan.detectable:.0f} points"
        say(f"It finds a gain of {points} or more in four runs of five.")
    show_table(
        ["true gain", "chance to find it"],
        [[f"+{100 * row.gain:.0f} points", _format_band(row)] for row in plan.power],
    )
    show_table(
        ["look at this test", "p needed", "chance at +10 points"],
        [[str(look.look), f"{look.alpha:.2g}", _format_band(look)] for look in plan.looks],
    )
    show_table(
        ["change", "test trials", "chance at +10 points"],
        [[option.change, f"{option.trials:,}", _format_band(option)] for option in plan.options],
    )


def _format_band(row: Any) -> str:
    return "no room for it" if row.least is None else f"{row.least:.0%} to {row.most:.0%}"
