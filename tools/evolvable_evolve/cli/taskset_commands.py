"""The command taskset: check, list and split task sets."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from evolvable_evolve import evolution
from evolvable_evolve.cli.taskset_access import find_taskset, write_tasks
from evolvable_evolve.evolution import (
    CommandHost,
    InvalidTaskSet,
    SplitRatios,
    TaskSet,
    TaskSetCheck,
    TaskSetScorer,
    check_taskset,
    count_by_category,
    count_by_split,
    look_at,
    registered_scorers,
)
from evolvable_evolve.run_launcher import choose_sandbox
from evolvable_evolve.sandbox import sandbox_of
from evolvable_server import commands_of_role, is_person
from evolvable_server.cli import CommandContext, Output, command, found_code
from evolvable_server.cli.terminal import ask, count, remark, say, say_labelled, show_table
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind

_MAX_PROBLEM = 160  # characters
_STYLES = {"refuse": "red", "warn": "yellow", "note": "dim"}


@dataclass(frozen=True)
class OneTaskSet:
    """A task set in short; `problem` says why it cannot be read."""

    ref: str
    tasks: int
    sizes: dict[str, int]
    problem: str = ""


@dataclass(frozen=True)
class SplitDone:
    """How tasks are dealt out, by category.

    `written` names the file, version or proposal that says so, '' for none.
    """

    name: str
    sizes: dict[str, int]
    categories: dict[str, dict[str, int]]
    dealt: int
    written: str


def _make_share_option(
    name: str, help_text: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        name, type=click.FloatRange(0, 1), default=0.25, show_default=True, help=help_text
    )


@command("check")
@click.argument("what")
@_make_share_option("--train", "Share of tasks without one.")
@_make_share_option("--val", "The same for val.")
def check_command(
    state: CommandContext, what: str, train: float, val: float
) -> Output[TaskSetCheck]:
    """Say whether figures from these tasks could mean anything.

    Every scorer is tried on known good and known bad answers. Command scorers are run for that, in
    the sandbox of trials where there is one, and never before a person approved them: at a terminal
    you are asked. A scorer that a task only names is your own command, see `evolvable role scorer`.
    Says the smallest difference that the test could show. Exit code 4: nothing should be spent on
    it.
    """
    taskset, ref = find_taskset(state, what, SplitRatios(train, val), runs=True)
    registered = registered_scorers(
        taskset.tasks, commands_of_role(state.config(), "scorers", person=is_person())
    )
    in_folder = ref is not None or Path(what).is_dir()
    if is_person() and not state.json and in_folder and evolution.asks_about_templates(taskset):
        answer = _ask_about_templates(taskset)
        say(f"Written to {write_tasks(state, what, ref, evolution.render_alike(taskset, answer))}.")
        taskset, _ = find_taskset(state, what, SplitRatios(train, val), runs=True)
    looks = look_at(state.config().home, taskset) - 1
    # Probing for a sandbox starts processes: not where nothing would run in it.
    sandbox = None
    if evolution.needs_commands(taskset):
        sandbox = sandbox_of(choose_sandbox(state.config())).sandbox
    host = CommandHost(sandbox=sandbox, hidden=(state.config().home,))
    scoring = TaskSetScorer(host=host, registered=registered)
    found = asyncio.run(check_taskset(taskset, looks=looks, scoring=scoring))
    return Output(found, _show_check, found_code(not found.passes))


@command("list")
@click.argument("what", required=False)
def list_command(state: CommandContext, what: str | None) -> Output[Any]:
    """List the task sets of the library, or the tasks of one.

    What a task asks and expects is not shown: `evolvable get` shows the file.
    """
    if what is None:
        task_sets = _list_task_sets(state)
        return Output({"tasksets": task_sets}, lambda _: _show_task_sets(task_sets))
    taskset, _ = find_taskset(state, what)
    columns = ("id", "split", "category", "scorer", "source")  # nothing that a task asks or expects
    rows = [
        (task.id, str(task.split), task.category, task.scorer.type, task.source)
        for task in taskset.tasks
    ]
    tasks = [dict(zip(columns, row, strict=True)) for row in rows]
    listing = {"name": taskset.name, "digest": taskset.digest, "tasks": tasks}
    heads = ("task", *columns[1:])

    def show(_: Any) -> None:
        show_table(heads, rows, names=("task",), wide=("source",), spare=("source",))

    return Output(listing, show)


@command("split")
@click.argument("what")
@_make_share_option("--train", "Share to learn from.")
@_make_share_option("--val", "Share to choose by.")
@click.option(
    "--write",
    is_flag=True,
    help="Write the splits down, so that they stay whatever is added later.",
)
def split_command(
    state: CommandContext, what: str, train: float, val: float, write: bool
) -> Output[SplitDone]:
    """Show how tasks are dealt out, or write it down.

    Tasks that name a split keep it. The others go by a hash of their id, every category in its
    share; what is neither train nor val is the test, which is sealed.
    """
    taskset, ref = find_taskset(state, what, SplitRatios(train, val))
    dealt = evolution.count_unassigned(taskset)
    written = ""
    if write and dealt:
        written = write_tasks(state, what, ref, evolution.render_splits(taskset))
    sizes, categories = count_by_split(taskset), count_by_category(taskset.tasks)
    done = SplitDone(taskset.name, sizes, categories, dealt, written)
    return Output(done, lambda _: _show_split(done, write))


def _ask_about_templates(taskset: TaskSet) -> str:
    """Show a person the templates of a task set, with two tasks of each, and return the answer.

    The answer says whether the templates are all kinds of tasks, examples of them, or none.
    """
    templates = evolution.find_task_templates(taskset)
    say(f"These {len(taskset.tasks):,} tasks look like {count(len(templates), 'template')}:")
    for template in templates:
        say(f"  {count(template.tasks, 'task')}, such as")
        say(*(f"    {text}" for text in template.examples))
    say(
        "What are they?",
        "  1  all the kinds of tasks that there are: a claim is about these kinds",
        "  2  examples, and there are more kinds",
        "  3  they only read alike: each task is another one",
    )
    number = int(ask("Answer", type=click.Choice(["1", "2", "3"]), default="2"))
    return str(list(evolution.Alike)[number - 1])


def _list_task_sets(state: CommandContext) -> list[OneTaskSet]:
    task_sets = []
    with state.library() as (library, caller):
        for head in library.store.heads(Kind.ENVIRONMENT):
            ref = str(head.ref)
            try:
                taskset, _ = evolution.load_taskset(library, caller, head.ref)
                sizes = count_by_split(taskset)
            except EvolvableError as error:
                task_sets.append(OneTaskSet(ref, 0, {}, _shorten_problem(ref, error)))
            else:
                task_sets.append(OneTaskSet(ref, len(taskset.tasks), sizes))
    return task_sets


def _shorten_problem(ref: str, error: EvolvableError) -> str:
    """Return why a task set cannot be read, short enough for a cell of a table."""
    problems = error.problems if isinstance(error, InvalidTaskSet) else [str(error)]
    more = ""
    if len(problems) > 1:
        more = f" (`evolvable evolve taskset check {ref}` shows {len(problems) - 1} more)"
    return f"{problems[0][:_MAX_PROBLEM]}{more}"


def _show_check(found: TaskSetCheck) -> None:
    _show_table(found.categories, found.sizes)
    say("")
    for finding in found.remarks:
        level = str(finding.level)
        say_labelled(f"{level}: ", finding.text, _STYLES[level] if level != "note" else "")
        if finding.hint:
            say(f"  {finding.hint}")
    tests = found.sizes.get("test", 0)
    if tests:
        say(f"Effective n of the test: {found.effective_n:,} of {count(tests, 'task')}.")
    refused = sum(finding.level == "refuse" for finding in found.remarks)
    if refused:
        say(
            f"{found.name} is refused: {count(refused, 'problem')} to fix before anything is "
            "spent on it."
        )
    elif found.exploratory:
        say(f"{found.name} may be used to explore; nothing would be promoted on it.")
    else:
        say(f"{found.name} may be used.")


def _show_table(categories: dict[str, dict[str, int]], sizes: dict[str, int]) -> None:
    rows: list[list[Any]] = [
        [name, *(f"{number:,}" for number in row.values())] for name, row in categories.items()
    ]
    rows.append([("all", "bold"), *((f"{number:,}", "bold") for number in sizes.values())])
    show_table(["category", *sizes], rows, names=("category",))


def _show_task_sets(task_sets: list[OneTaskSet]) -> None:
    if not task_sets:
        say("There is no task set in the library: an environment with tasks.jsonl is one.")
        remark(
            "`evolvable import FOLDER --kind environment` imports a folder of ENVIRONMENT.md and "
            "tasks.jsonl."
        )
        return
    splits = ("train", "val", "test")
    heads = ["task set", "tasks", *splits, "problem"]
    rows = [
        [
            task_set.ref,
            f"{task_set.tasks:,}",
            *(f"{task_set.sizes.get(split, 0):,}" for split in splits),
            task_set.problem,
        ]
        for task_set in task_sets
    ]
    show_table(heads, rows, names=("task set",), wide=("problem",))


def _show_split(done: SplitDone, write: bool) -> None:
    _show_table(done.categories, done.sizes)
    if done.written:
        say(f"Written to {done.written}.")
    elif not done.dealt:
        say("Every task names its split already.")
    elif not write:
        say(f"{count(done.dealt, 'task')} would be dealt out so; --write writes it down.")
