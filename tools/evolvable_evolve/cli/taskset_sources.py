"""Commands that make task sets: from finished sessions, and from a table."""

import asyncio
from dataclasses import replace
from pathlib import Path

import click

from evolvable_evolve import evolution
from evolvable_evolve.cli.taskset_access import ask_about_commands
from evolvable_evolve.evolution import (
    CommandHost,
    ImportedTable,
    TableColumns,
    TaskSetScorer,
    read_table,
)
from evolvable_evolve.run_launcher import choose_sandbox
from evolvable_evolve.sandbox import sandbox_of
from evolvable_server import is_person, read_machine
from evolvable_server.cli import CommandContext, Output, command
from evolvable_server.cli.terminal import count, remark, say, warn
from evolvable_tools.sessions import list_sessions
from evolvable_tools.verbs import update_resource


@command("from-sessions")
@click.argument("transcripts", nargs=-1, type=click.Path(path_type=Path), metavar="[TRANSCRIPT]...")
@click.option(
    "--name",
    default="session-tasks",
    show_default=True,
    help="The environment that they are added to.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=100,
    show_default=True,
    help="Sessions, newest first.",
)
@click.option(
    "--project", metavar="PATH", help="Only sessions that worked in this folder or below it."
)
@click.option(
    "--try/--no-try",
    "tries",
    default=True,
    help="Try the checks after you approved them.  [default: try]",
)
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

    A task is what a person asked for, with the files as they were, and a check: a command that
    failed before the work and passed after it, or the correction that the person made. That
    somebody accepted the work is no check. At a terminal you are asked whether the checks may run;
    each has to tell the files before and after the work apart. The tasks wait in `evolvable inbox`
    as one proposal.
    """
    with state.library() as (library, caller):
        paths = list(transcripts)
        if not paths:
            places = read_machine(state.config().project).transcripts
            page = list_sessions(
                places, library.store.backend.observations.ingested_session, limit, project
            )
            paths = [Path(session.path) for session in page.sessions if session.taken != "skipped"]
        draft = evolution.draft_from_sessions(library, paths[:limit], name)
        if tries and draft.found and is_person() and evolution.list_commands(draft.taskset):
            ask_about_commands(state, draft.taskset)
            sandbox = sandbox_of(choose_sandbox(state.config())).sandbox
            host = CommandHost(sandbox=sandbox, hidden=(state.config().home,))
            asyncio.run(evolution.try_checks(draft, TaskSetScorer(host=host)))
            if draft.found:  # a part of what was approved
                evolution.approve(state.config().home, draft.taskset, via="terminal")
        outcome = draft.outcome
        if not dry_run:
            outcome = evolution.propose_session_tasks(library, caller, draft)
    return Output(outcome, _show_found)


def _show_found(found: evolution.SessionTaskSet) -> None:
    for task in found.tasks:
        say(
            f"{task.id}  {task.tried or 'not tried'}; {task.check}",
            f"  {' '.join(task.prompt.split())[:100]}",
        )
    say(f"{count(len(found.tasks), 'task')} from {count(found.sessions, 'session')}.")
    say(*(f"  {number:,} without: {why}" for why, number in found.left_out.items()))
    if found.shortage:
        warn(found.shortage)
    if found.proposal is not None:
        remark(
            f"`evolvable inbox show {found.proposal}` shows them; `evolvable inbox approve "
            f"{found.proposal}` adds them."
        )


@command("import")
@click.argument("table", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--question", required=True, metavar="COLUMN", help="The column with what is asked.")
@click.option("--answer", required=True, metavar="COLUMN", help="The column with what is right.")
@click.option("--category", default="", metavar="COLUMN", help="The column with the category.")
@click.option(
    "--id",
    "identity",
    default="",
    metavar="COLUMN",
    help="The column with the id [default: by the text].",
)
@click.option(
    "--scorer",
    default="numeric_strict",
    show_default=True,
    help="numeric_strict, exact or another type.",
)
@click.option("--name", default="", help="The environment's name [default: the file's].")
@click.option(
    "--replace",
    "replaces",
    is_flag=True,
    help="Make the next version of an environment of this name.",
)
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
    ref, files, imported_table = read_table(table, columns, name)
    with state.library() as (library, caller):
        head = library.store.head_or_none(ref, caller.scopes) if replaces else None
        now = library.latest(head)[0].version if head is not None else None
        reason = f"{imported_table.tasks} tasks of {table.name}"
        done = update_resource(
            library,
            caller,
            ref,
            reason,
            files=dict(files),
            expected_version=now,
            create=not replaces,
        )
    result = replace(
        imported_table, ref=str(done.ref), version=done.version, proposal=done.proposal_id
    )
    return Output(result, _show_imported)


def _show_imported(table: ImportedTable) -> None:
    skipped = ""
    if table.skipped:
        skipped = f"; {count(table.skipped, 'row')} without question or answer, or told before"
    say(f"{table.ref}: {count(table.tasks, 'task')}{skipped}.")
    if table.proposal is not None:
        remark(f"It waits: `evolvable inbox show {table.proposal}`.")
    else:
        remark(f"`evolvable evolve taskset check {table.ref}` says what its figures could show.")
