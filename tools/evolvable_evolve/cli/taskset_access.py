"""Find the task set that a command names, and ask a person before its commands run."""

from collections.abc import Mapping
from pathlib import Path

from evolvable_evolve import evolution
from evolvable_evolve.evolution import SplitRatios, TaskSet
from evolvable_server import is_person
from evolvable_server.cli import CommandContext
from evolvable_server.cli.terminal import confirm, count, remark, say
from evolvable_store.errors import Refused
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library
from evolvable_tools.verbs import approve_seen, update_resource


def find_taskset(
    state: CommandContext, what: str, ratios: SplitRatios | None = None, *, runs: bool = False
) -> tuple[TaskSet, Ref | None]:
    """Return the task set of this name, and its ref with the version when it is the library's.

    runs: its commands are to be run, so a person is asked about them.
    """
    path = Path(what)
    if not what.startswith(f"{Kind.ENVIRONMENT}:"):
        taskset = evolution.read_taskset_path(path, ratios)
        if runs:
            ask_about_commands(state, taskset)
            evolution.refuse_unapproved(state.config().home, taskset, str(path))
        return taskset, None
    ref = Ref.parse(what)
    with state.library() as (library, caller):
        taskset, version = evolution.load_taskset(library, caller, ref, ratios)
        if runs:
            ask_before_unvouched(state, library, caller, ref, taskset)
    return taskset, ref.at(version)


def ask_before_unvouched(
    state: CommandContext, library: Library, caller: Caller, ref: Ref, taskset: TaskSet
) -> None:
    """Ask the person at the terminal about commands that nobody approved.

    Raise Refused where there is no yes.
    """
    try:
        evolution.refuse_untrusted(library, caller, ref, taskset)
    except Refused:
        ask_about_commands(state, taskset)
        evolution.refuse_untrusted(library, caller, ref, taskset)


def ask_about_commands(state: CommandContext, taskset: TaskSet) -> None:
    """Show a person at the terminal which commands a task set runs, and record a yes.

    Elsewhere nothing happens.
    """
    commands, home = evolution.list_commands(taskset), state.config().home
    if not commands or not is_person() or evolution.is_approved(home, taskset):
        return
    remark(f"{taskset.name} runs these commands on this machine, with the files that it brings:")
    remark(*(f"  {' '.join(words)}" for words in commands))
    files = sorted(taskset.files.items())
    remark(*(f"  file {path}, {len(content):,} bytes" for path, content in files))
    confirm("Have you read them, and may they run?")
    evolution.approve(home, taskset, via="terminal")


def write_tasks(
    state: CommandContext, what: str, ref: Ref | None, files: Mapping[str, bytes]
) -> str:
    """Write changed files of a task set to its folder, or to the library for an environment.

    Return in words where they are now: a file, a version or a proposal.
    """
    if ref is None:
        return str(evolution.write_files(Path(what), files))
    with state.library() as (library, caller):
        head = library.store.head(ref.at(None), caller.scopes)
        now = library.store.files(head)
        if all(path in now and now[path].data == data for path, data in files.items()):
            # The files are the same already, and an agent may have written them: the person
            # approves the version.
            approve_seen(library, caller, {str(head.ref): head.tree or ""})
            return f"{head.ref}@{head.version}, which you stand for now"
        reason = "its tasks were changed on the command line"
        done = update_resource(
            library, caller, ref.at(None), reason, files=files, expected_version=ref.version
        )
    if done.proposal_id is not None:
        return f"proposal {done.proposal_id} for {done.ref}, which waits for a person"
    return f"{done.ref}@{done.version}"


def show_left_out(left_out: Mapping[str, str]) -> None:
    """Show how many tasks are left out, by reason."""
    reasons: dict[str, int] = {}
    for why in left_out.values():
        reasons[why] = reasons.get(why, 0) + 1
    say(*(f"{count(number, 'task')} left out: {why}" for why, number in reasons.items()))
