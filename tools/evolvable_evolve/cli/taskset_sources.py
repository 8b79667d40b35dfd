"""Commands that make task sets: from finished sessions, from a table, and by putting tasks into categories."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import click

from evolvable_evolve import evolution
from evolvable_evolve.cli.taskset_access import ask_about_commands, find_taskset, write_tasks
from evolvable_evolve.evolution import (
    MAX_CATEGORIES,
    Classified,
    CommandHost,
    ImportedTable,
    ModelUsage,
    TableColumns,
    TaskSetScorer,
    add_usage,
    label_tasks,
    name_categories,
    named_model,
    read_table,
    render_categories,
)
from evolvable_evolve.run_launcher import choose_sandbox, evolve_context
from evolvable_evolve.sandbox import sandbox_of
from evolvable_server import is_person, read_machine
from evolvable_server.cli import CommandContext, Output, command
from evolvable_server.cli.terminal import count, remark, say, show_table, warn
from evolvable_store import Principal
from evolvable_tools.sessions import list_sessions
from evolvable_tools.verbs import update_resource


@command("from-sessions")
@click.argument("transcripts", nargs=-1, type=click.Path(path_type=Path), metavar="[TRANSCRIPT]...")
@click.option("--name", default="session-tasks", show_default=True, help="The environment that they are added to.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Sessions, newest first.")
@click.option("--project", metavar="PATH", help="Only sessions that worked in this folder or below it.")
@click.option("--try/--no-try", "tries", default=True, help="Try the checks after you approved them.  [default: try]")
@click.option("--dry-run", is_flag=True, help="Propose nothing.")
def from_sessions_command(
    state: CommandContext,
    transcripts: tuple[Path, ...],
    name: str,
    limit: int,
    project: str | None,
    tries: bool,
    dry_run: bool,
) -> Output[evolution.SessionTaskSet]:
    """Make tasks of finished sessions: without TRANSCRIPT, of those that clients wrote down.

    A task is what a person asked for, with the files as they were, and a check: a command that failed before the work
    and passed after it, or the correction that the person made. That somebody accepted the work is no check. At a
    terminal you are asked whether the checks may run; each has to tell the files before and after the work apart. The
    tasks wait in `evolvable inbox` as one proposal.
    """
    with state.library() as (library, caller):
        paths = list(transcripts)
        if not paths:
            places = read_machine(state.config().project).transcripts
            page = list_sessions(places, library.store.backend.observations.taken, limit, project)
            paths = [Path(one.path) for one in page.sessions if one.taken != "skipped"]
        draft = evolution.draft_from_sessions(library, paths[:limit], name)
        if tries and draft.found and is_person() and evolution.list_commands(draft.taskset):
            ask_about_commands(state, draft.taskset)
            sandbox = sandbox_of(choose_sandbox(state.config())).sandbox
            host = CommandHost(sandbox=sandbox, hidden=(state.config().home,))
            asyncio.run(evolution.try_checks(draft, TaskSetScorer(host=host)))
            if draft.found:  # a part of what was approved
                evolution.approve(state.config().home, draft.taskset, via="terminal")
        found = draft.outcome if dry_run else evolution.propose_session_tasks(library, caller, draft)
    return Output(found, _show_found)


def _show_found(found: evolution.SessionTaskSet) -> None:
    for one in found.tasks:
        say(f"{one.id}  {one.tried or 'not tried'}; {one.check}", f"  {' '.join(one.prompt.split())[:100]}")
    say(f"{count(len(found.tasks), 'task')} from {count(found.sessions, 'session')}.")
    say(*(f"  {number:,} without: {why}" for why, number in found.left_out.items()))
    if found.shortage:
        warn(found.shortage)
    if found.proposal is not None:
        remark(
            f"`evolvable inbox show {found.proposal}` shows them; `evolvable inbox approve {found.proposal}` adds them."
        )


@command("import")
@click.argument("table", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--question", required=True, metavar="COLUMN", help="The column with what is asked.")
@click.option("--answer", required=True, metavar="COLUMN", help="The column with what is right.")
@click.option("--category", default="", metavar="COLUMN", help="The column with the category.")
@click.option("--id", "identity", default="", metavar="COLUMN", help="The column with the id [default: by the text].")
@click.option("--scorer", default="numeric_strict", show_default=True, help="numeric_strict, exact or another type.")
@click.option("--name", default="", help="The environment's name [default: the file's].")
@click.option("--replace", "replaces", is_flag=True, help="Make the next version of an environment of this name.")
def import_command(
    state: CommandContext,
    table: Path,
    question: str,
    answer: str,
    category: str,
    identity: str,
    scorer: str,
    name: str,
    replaces: bool,
) -> Output[ImportedTable]:
    """Make a task set of a table: FILE is CSV, tab separated (.tsv), or lines of JSON (.jsonl)."""
    columns = TableColumns(question, answer, category, identity, scorer)
    ref, files, made = read_table(table, columns, name)
    with state.library() as (library, caller):
        there = library.store.head_or_none(ref, caller.scopes) if replaces else None
        now = library.latest(there)[0].version if there is not None else None
        reason = f"{made.tasks} tasks of {table.name}"
        done = update_resource(
            library, caller, ref, reason, files=dict(files), expected_version=now, create=not replaces
        )
    result = replace(made, ref=str(done.ref), version=done.version, proposal=done.proposal_id)
    return Output(result, _show_imported)


def _show_imported(made: ImportedTable) -> None:
    skipped = f"; {count(made.skipped, 'row')} without question or answer, or told before" if made.skipped else ""
    say(f"{made.ref}: {count(made.tasks, 'task')}{skipped}.")
    if made.proposal is not None:
        remark(f"It waits: `evolvable inbox show {made.proposal}`.")
    else:
        remark(f"`evolvable taskset check {made.ref}` says what its figures could show.")


@command("classify")
@click.argument("what", metavar="WHAT")
@click.option("--brain", required=True, help="anthropic[:MODEL], claude, codex, or the name of a proposer.")
@click.option("--categories", type=click.IntRange(2, MAX_CATEGORIES), default=5, show_default=True, help="At most.")
@click.option("--names", default="", metavar="A,B", help="The names, instead of asking for them.")
@click.option("--write", is_flag=True, help="Write the categories down.")
def classify_command(
    state: CommandContext, what: str, brain: str, categories: int, names: str, write: bool
) -> Output[Classified]:
    """Put tasks into categories by a model.

    It names at most so many kinds by prompts of train and val, then gives each task one of them. It sees the prompts of
    all tasks and no expected answer. What it said of a task is kept.
    """
    taskset, ref = find_taskset(state, what)
    config = state.config()
    means = evolve_context(config, person=state.identity.principal is Principal.PERSON)
    model = named_model(brain, means, config.home)
    given = [name.strip() for name in names.split(",") if name.strip()]

    async def ask() -> Classified:
        chosen, spent = (given, ModelUsage()) if given else await name_categories(taskset, model, categories)
        labels, asked, more = await label_tasks(taskset, chosen, model, config.home / "evolve" / "categories.jsonl")
        sizes = dict(Counter(labels.values()).most_common())
        written = write_tasks(state, what, ref, render_categories(taskset, labels)) if write else ""
        return Classified(taskset.name, chosen, sizes, asked, add_usage(spent, more), written)

    return Output(asyncio.run(ask()), _show_classified)


def _show_classified(found: Classified) -> None:
    show_table(
        ["category", "tasks"], [[name, f"{number:,}"] for name, number in found.sizes.items()], names=("category",)
    )
    cost = "an unknown price" if found.usage.cost is None else f"${found.usage.cost:.4f}"
    say(f"The model was asked about {count(found.asked, 'task')}, for {cost}.")
    say(f"Written to {found.written}." if found.written else "--write writes them down.")
