"""The command taskset, and those on the result of a run: evolve report, adopt, watch, opportunities."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command, home_option, json_option
from evolvable_server.cli.terminal import confirm, count, remark, say, show_table, warn
from evolvable_server.config import is_person
from evolvable_server.model_setup import commands_of_role
from evolvable_server.run_launcher import choose_sandbox, start_driver
from evolvable_store.errors import EvolvableError, Refused
from evolvable_store.resource import Kind, Ref
from evolvable_tools.evolve import deploy
from evolvable_tools.evolve.executors.base import CommandHost
from evolvable_tools.evolve.ledger.run_directory import find_run
from evolvable_tools.evolve.report.render import write_report
from evolvable_tools.evolve.run_control import decide_held_candidate, get_held_candidate
from evolvable_tools.evolve.scorers.registry import TaskSetScorer
from evolvable_tools.evolve.start import find_opportunities
from evolvable_tools.evolve.task import SplitRatios, TaskSet
from evolvable_tools.evolve.tasks import locate
from evolvable_tools.evolve.tasks.diagnostics import TaskSetCheck, check_taskset, count_by_category, count_by_split
from evolvable_tools.evolve.tasks.holdout import look_at
from evolvable_tools.evolve.tasks.locate import registered_scorers
from evolvable_tools.library import Caller, Library
from evolvable_tools.sandbox import sandbox_of
from evolvable_tools.verbs import edit

_STYLES = {"refuse": "red", "warn": "yellow", "note": "dim"}


@dataclass(frozen=True)
class OneTaskSet:
    """A task set in short; `problem` says why it cannot be read."""

    ref: str
    tasks: int
    sizes: dict[str, int]
    problem: str = ""


@dataclass(frozen=True)
class OneTask:
    """A task as it is listed: nothing that it asks or expects."""

    id: str
    split: str
    category: str
    scorer: str
    source: str


@dataclass(frozen=True)
class SplitDone:
    """How tasks are dealt out, by category. `written` names the file or the version that says so now, '' for none."""

    name: str
    sizes: dict[str, int]
    categories: dict[str, dict[str, int]]
    dealt: int
    written: str


@click.group("taskset")
@home_option
@json_option
def taskset_command() -> None:
    """Check, list and split the tasks of an evolution.

    WHAT is a folder with tasks.jsonl, such a file, or an environment of the library: environment:NAME.
    """


def _share(name: str, said: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(name, type=click.FloatRange(0, 1), default=0.25, show_default=True, help=said)


@command("check")
@click.argument("what")
@_share("--train", "Share of tasks without one.")
@_share("--val", "The same for val.")
def check_command(state: CommandContext, what: str, train: float, val: float) -> Output[TaskSetCheck]:
    """Say whether figures from these tasks could mean anything.

    Every scorer is tried on known good and known bad answers. Command scorers are run for that, in the sandbox of
    trials where there is one, and never before a person approved them: at a terminal you are asked. A scorer that a
    task only names is your own command, see `evolvable scorer`. Says the smallest difference that the test could show.
    Exit code 1: nothing should be spent on it.
    """
    taskset, _ = _found(state, what, SplitRatios(train, val), runs=True)
    registered = registered_scorers(taskset.tasks, commands_of_role(state.config(), "scorers", person=is_person()))
    looks = look_at(state.config().home, taskset) - 1
    sandbox = sandbox_of(choose_sandbox(state.config())).sandbox
    host = CommandHost(sandbox=sandbox, hidden=(state.config().home,))
    scoring = TaskSetScorer(host=host, registered=registered)
    found = asyncio.run(check_taskset(taskset, looks=looks, scoring=scoring))
    return Output(found, _show_check, 0 if found.passes else 1)


@command("list")
@click.argument("what", required=False)
def list_command(state: CommandContext, what: str | None) -> Output[Any]:
    """List the task sets of the library, or the tasks of one.

    What a task asks and expects is not shown: `evolvable get` shows the file.
    """
    if what is None:
        listed = _task_sets(state)
        return Output({"tasksets": listed}, lambda _: _show_task_sets(listed))
    taskset, _ = _found(state, what)
    tasks = [OneTask(task.id, str(task.split), task.category, task.scorer.type, task.source) for task in taskset.tasks]
    return Output({"name": taskset.name, "digest": taskset.digest, "tasks": tasks}, lambda _: _show_tasks(tasks))


@command("split")
@click.argument("what")
@_share("--train", "Share to learn from.")
@_share("--val", "Share to choose by.")
@click.option("--write", is_flag=True, help="Write the splits down, so that they stay whatever is added later.")
def split_command(state: CommandContext, what: str, train: float, val: float, write: bool) -> Output[SplitDone]:
    """Show how tasks are dealt out, or write it down.

    Tasks that name a split keep it. The others go by a hash of their id, every category in its share; what is neither
    train nor val is the test, which is sealed.
    """
    taskset, ref = _found(state, what, SplitRatios(train, val))
    dealt = locate.count_unassigned(taskset)
    written = _write(state, what, ref, taskset) if write and dealt else ""
    done = SplitDone(taskset.name, count_by_split(taskset), count_by_category(taskset.tasks), dealt, written)
    return Output(done, lambda _: _show_split(done, write))


for _command in (check_command, list_command, split_command):
    taskset_command.add_command(_command)


def _found(
    state: CommandContext, what: str, ratios: SplitRatios | None = None, *, runs: bool = False
) -> tuple[TaskSet, Ref | None]:
    """Return the task set that is named, and its ref when it is the library's. runs: its commands are to be run."""
    path = Path(what)
    if not what.startswith(f"{Kind.ENVIRONMENT}:"):
        taskset = locate.read_taskset_path(path, ratios)
        if runs:
            ask_about_commands(state, taskset)
            locate.refuse_unapproved(state.config().home, taskset, str(path))
        return taskset, None
    ref = Ref.parse(what)
    with state.library() as (library, caller):
        taskset, _ = locate.load_taskset(library, caller, ref, ratios)
        if runs:
            ask_before_unvouched(state, library, caller, ref, taskset)
    return taskset, ref


def ask_before_unvouched(state: CommandContext, library: Library, caller: Caller, ref: Ref, taskset: TaskSet) -> None:
    """Ask the person at the terminal about commands that nobody approved. Raise Refused where there is no yes."""
    try:
        locate.refuse_untrusted(library, caller, ref, taskset)
    except Refused:
        ask_about_commands(state, taskset)
        locate.refuse_untrusted(library, caller, ref, taskset)


def ask_about_commands(state: CommandContext, taskset: TaskSet) -> None:
    """Show a person at the terminal which commands a task set runs, and record a yes. Elsewhere nothing happens."""
    commands, home = locate.list_commands(taskset), state.config().home
    if not commands or not is_person() or locate.is_approved(home, taskset):
        return
    remark(f"{taskset.name} runs these commands on this machine, with the files that it brings:")
    remark(*(f"  {' '.join(words)}" for words in commands))
    remark(*(f"  file {path}, {len(content):,} bytes" for path, content in sorted(taskset.files.items())))
    confirm("Have you read them, and may they run?")
    locate.approve(home, taskset, via="terminal")


def _task_sets(state: CommandContext) -> list[OneTaskSet]:
    listed = []
    with state.library() as (library, caller):
        for head in library.store.heads(Kind.ENVIRONMENT):
            try:
                taskset, _ = locate.load_taskset(library, caller, head.ref)
                listed.append(OneTaskSet(str(head.ref), len(taskset.tasks), count_by_split(taskset)))
            except EvolvableError as error:
                listed.append(OneTaskSet(str(head.ref), 0, {}, str(error)))
    return listed


def _write(state: CommandContext, what: str, ref: Ref | None, taskset: TaskSet) -> str:
    files = locate.render_splits(taskset)
    if ref is None:
        return str(locate.write_files(Path(what), files))

    with state.library() as (library, caller):
        reason = "the splits of its tasks, written down"
        done = edit.update_resource(library, caller, ref.at(None), reason, files=files, expected_version=ref.version)
    return f"{done.ref}@{done.version}"


def _show_check(found: TaskSetCheck) -> None:
    _show_table(found.categories, found.sizes)
    say("")
    for one in found.remarks:
        level = str(one.level)
        click.echo(click.style(f"{level}: ", fg=_STYLES[level] if level != "note" else None), nl=False)
        say(one.text)
        if one.hint:
            say(f"  {one.hint}")
    refused = sum(one.level == "refuse" for one in found.remarks)
    if refused:
        say(f"{found.name} is refused: {count(refused, 'problem')} to fix before anything is spent on it.")
    elif found.exploratory:
        say(f"{found.name} may be used to explore; nothing would be promoted on it.")
    else:
        say(f"{found.name} may be used.")


def _show_table(categories: dict[str, dict[str, int]], sizes: dict[str, int]) -> None:
    show_table(
        ["category", *sizes],
        [
            *([name, *(f"{number:,}" for number in row.values())] for name, row in categories.items()),
            [("all", "bold"), *((f"{number:,}", "bold") for number in sizes.values())],
        ],
    )


def _show_task_sets(listed: list[OneTaskSet]) -> None:
    if not listed:
        say("There is no task set in the library: an environment with tasks.jsonl is one.")
        remark("`evolvable import FOLDER --kind environment` imports a folder of ENVIRONMENT.md and tasks.jsonl.")
        return
    splits = ("train", "val", "test")
    show_table(
        ["task set", "tasks", *splits, "problem"],
        [
            [one.ref, f"{one.tasks:,}", *(f"{one.sizes.get(split, 0):,}" for split in splits), one.problem]
            for one in listed
        ],
        wide=("problem",),
    )


def _show_tasks(tasks: list[OneTask]) -> None:
    columns = ("task", "split", "category", "scorer", "source")
    show_table(columns, [[task.id, task.split, task.category, task.scorer, task.source] for task in tasks])


def _show_split(done: SplitDone, write: bool) -> None:
    _show_table(done.categories, done.sizes)
    if done.written:
        say(f"Written to {done.written}.")
    elif not done.dealt:
        say("Every task names its split already.")
    elif not write:
        say(f"{count(done.dealt, 'task')} would be dealt out so; --write writes it down.")


@command("adopt")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--undo", "undoing", is_flag=True, help="Take the adoption back.")
@click.option("--unproven", is_flag=True, help="Also without PROMOTE; the history says so.")
@click.option("-m", "--reason", default="", help="Why; kept in the history.")
def adopt_command(state: CommandContext, run: str | None, undoing: bool, unproven: bool, reason: str) -> Output[Any]:
    """Make live what a run promoted, in one operation, when nothing changed since it was measured."""
    with state.library() as (library, caller):
        if undoing:
            return Output(deploy.unadopt(library, caller, run, reason), _show_back)
        if is_person():
            shown = deploy.preview_adoption(library.store.home, run, unproven=unproven)
            _show_change(f"{shown.verdict or 'no verdict'} [{shown.label}]: {shown.why}", shown, state)
            confirm("Make this live?", err=state.json)
        return Output(deploy.adopt(library, caller, run, reason, unproven=unproven), _show_adopted)


@command("allow")
@click.argument("run", metavar="RUN")
@click.argument("candidate", required=False, metavar="[CANDIDATE]")
@click.option("--refuse", is_flag=True, help="Do not let it run; the search goes on without it.")
def allow_command(state: CommandContext, run: str, candidate: str | None, refuse: bool) -> Output[Any]:
    """Decide whether a candidate runs where there is no sandbox, after all of its change is shown."""
    home = state.config().home
    found = get_held_candidate(home, run, candidate)
    if not is_person():
        raise Refused(
            f"{found.candidate} of run {found.run} runs only after a person has seen its change at a terminal.",
            "Tell the user that it waits.",
        )
    _show_change(f"{found.candidate} of run {found.run}: {found.why}.", found, state)
    if not refuse:
        confirm("Run this with your rights?", err=state.json)
    with state.library() as (_, caller):
        decided = decide_held_candidate(caller, home, found, allowed=not refuse, via="terminal")
    start_driver(home, find_run(home, decided.run))
    said = f"{decided.candidate} {'may' if decided.allowed else 'may not'} run; it goes on."
    return Output(decided, lambda _: say(said))


def _show_change(title: str, shown: Any, state: CommandContext) -> None:
    """Show a whole difference under a title, what it adds in capabilities, and what the scan found in it."""
    write = remark if state.json else say  # with --json the result alone is on stdout
    write(title, *shown.diff.splitlines())
    for what, rows in (("It can do now", shown.capabilities), ("The scan found", shown.findings)):
        write(f"{what}:" if rows else f"{what}: nothing new.", *(f"  - {row}" for row in rows))


def _show_adopted(adopted: Any) -> None:
    for change in adopted.changes:
        before = f"@{change.before}" if change.before else "new"
        say(f"{change.ref}: {before} -> {f'@{change.after}' if change.after else 'removed'}")
    warn(*adopted.warnings)
    say(f"Operation {adopted.operation}. `{adopted.back}` takes it back.")


def _show_back(back: Any) -> None:
    say(*(f"Restored: {ref}" for ref in back.restored))
    warn(*(f"{conflict.ref}: {conflict.reason}" for conflict in back.conflicts))
    say(f"Operation {back.operation}." if back.operation else "Nothing was taken back.")


@command("watch")
@click.option("--dry-run", is_flag=True, help="Propose nothing.")
def watch_command(state: CommandContext, dry_run: bool) -> Output[list[deploy.MonitoredAdoption]]:
    """Compare what was adopted with what it replaced, by real sessions; what is worse is proposed to be taken back."""
    with state.library() as (library, caller):
        return Output(deploy.monitor_adoptions(library, caller, propose=not dry_run), _show_watched)


def _show_watched(watched: list[deploy.MonitoredAdoption]) -> None:
    if not watched:
        say("Nothing that was adopted is live.")
    for one in watched:
        say(f"Run {one.run}, operation {one.operation}: {one.verdict}")
        say(*(f"  {part.ref}: now {part.after}, before {part.before}: {part.verdict}" for part in one.compared))
        if one.proposals:
            numbers = " ".join(map(str, one.proposals))
            remark(f"{count(len(one.proposals), 'proposal')} to take it back: evolvable inbox show {numbers}")


@command("opportunities")
@click.option("--days", type=click.IntRange(1, 3650), default=30, show_default=True)
def opportunities_command(state: CommandContext, days: int) -> Output[Any]:
    """Show which resources deserve work, and why."""
    with state.library() as (library, caller):
        return Output(find_opportunities(library, caller, days=days), _show_opportunities)


def _show_opportunities(found: Any) -> None:
    if not found.found:
        say("Nothing stands out. Sessions say more the more of them there are.")
        return
    show_table(
        ["Resource", "Reason", "Numbers", "Runs"],
        [[one.ref, one.reason, one.numbers, "; ".join(one.runs) or "-"] for one in found.found],
    )
    remark(f"Task sets to measure on: {', '.join(found.task_sets) or 'none yet'}")


@command("report")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Where report.html and report.json go.")
def report_command(state: CommandContext, run: str | None, out: Path | None) -> Output[Any]:
    """Write what a run came to as one HTML page and report.json, and show it here."""
    return Output(write_report(find_run(state.config().home, run), out), _show_report)


def _show_report(reported: Any) -> None:
    say(reported.text)
    remark(f"{reported.html} has the pictures.")
