"""Commands that make task sets: from finished sessions, from a table, and by putting tasks into categories."""

import asyncio
from pathlib import Path

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.taskset_access import ask_about_commands
from evolvable_server.cli.terminal import count, remark, say
from evolvable_server.config import is_person, read_machine
from evolvable_server.run_launcher import choose_sandbox
from evolvable_tools.evolve.executors.base import CommandHost
from evolvable_tools.evolve.scorers.registry import TaskSetScorer
from evolvable_tools.evolve.tasks import locate, session_import
from evolvable_tools.sandbox.probe import sandbox_of
from evolvable_tools.sessions.parser import list_sessions


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
) -> Output[session_import.SessionTaskSet]:
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
        draft = session_import.draft_from_sessions(library, paths[:limit], name)
        if tries and draft.found and is_person() and locate.list_commands(draft.taskset):
            ask_about_commands(state, draft.taskset)
            sandbox = sandbox_of(choose_sandbox(state.config())).sandbox
            host = CommandHost(sandbox=sandbox, hidden=(state.config().home,))
            asyncio.run(session_import.try_checks(draft, TaskSetScorer(host=host)))
            if draft.found:  # a part of what was approved
                locate.approve(state.config().home, draft.taskset, via="terminal")
        if dry_run:
            left_out = dict(draft.left_out.most_common())
            found = session_import.SessionTaskSet(str(draft.ref), draft.sessions, draft.found, left_out)
        else:
            found = session_import.propose_session_tasks(library, caller, draft)
    return Output(found, _show_found)


def _show_found(found: session_import.SessionTaskSet) -> None:
    for one in found.tasks:
        say(f"{one.id}  {one.tried or 'not tried'}; {one.check}", f"  {' '.join(one.prompt.split())[:100]}")
    say(f"{count(len(found.tasks), 'task')} from {count(found.sessions, 'session')}.")
    say(*(f"  {number:,} without: {why}" for why, number in found.left_out.items()))
    if found.proposal is not None:
        remark(
            f"`evolvable inbox show {found.proposal}` shows them; `evolvable inbox approve {found.proposal}` adds them."
        )
