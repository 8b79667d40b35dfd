"""The command learned: what lookup learned from use, from labels, and from the sessions that
clients wrote down.
"""

import os
from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.options import REF
from evolvable_server.cli.terminal import (
    Row,
    ask_yes,
    count,
    local_time,
    progress,
    remark,
    say,
    show_table,
)
from evolvable_server.config import Config, is_person, marked_client
from evolvable_server.learning_consent import check_own, consent, set_consent
from evolvable_server.session_learning import (
    count_sessions,
    describe_past_sessions,
    learn_past_sessions,
)
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library
from evolvable_tools.outcomes import (
    MAX_TASK,
    ListedTask,
    PastSessions,
    correct_task,
    list_learned,
    reassign_task,
    remove_learned,
)
from evolvable_tools.verbs import AMONG, LookupTest, measure_lookup


@command("learned", table=True)
@click.argument("ref", required=False, type=REF)
@click.option("--remove", type=int, metavar="ID", help="Remove this task for good.")
@click.option(
    "--correct",
    type=int,
    metavar="ID",
    help="Say that this task was for REF, and not for its skill.",
)
@click.option("--task", metavar="TEXT", help="Say that this task should have been for REF.")
@click.option(
    "--not", "wrong", metavar="REF", type=REF, help="With --task: the skill that it was not for."
)
@click.option("--measure", is_flag=True, help="Ask lookup the labels that it did not learn.")
@click.option(
    "--from-sessions",
    is_flag=True,
    help="Learn from the sessions that clients wrote down, and from new ones.",
)
@click.option(
    "--forget-sessions",
    is_flag=True,
    help="Learn from no session's prompts, and remove what they taught.",
)
def learned_command(state: CommandContext, ref: Ref | None, **chosen: Any) -> Output[Any]:
    """List the tasks that lookup learned from use, remove one, or correct one.

    A session whose end is verified teaches a skill the message that you typed before the skill was
    loaded, without secrets and code. With --from-sessions, which asks you once, sessions in which a
    skill of yours was opened teach it too, those that clients wrote down before this library was
    made among them. A task with "not" before it counts against its skill. One of four tasks given
    with --task is held out: lookup does not learn it, and --measure asks it.
    """
    _check_options(ref, **chosen)
    if chosen["measure"]:
        with state.library() as (library, caller):
            tested = measure_lookup(library, caller)
        return Output(tested, lambda _: _show_lookup_test(tested))
    if chosen["forget_sessions"]:
        return _forget(state)
    if chosen["from_sessions"]:
        return _learn(state)
    with state.library() as (library, caller):
        stored = _change_task(library, caller, ref, **chosen)
        entries = list_learned(library, caller, ref, shows=_is_read_by_person())
    # The task of a session is left empty for everybody but the person.
    if any(not entry.task for entry in entries):
        remark(
            "A prompt that a session taught is shown to you alone: run `evolvable learn tasks` at "
            "a terminal."
        )
    held_out = any(entry.held_out for entry in stored)
    return Output(entries, lambda _: _show_learned(entries, held_out))


def _check_options(ref: Ref | None, **chosen: Any) -> None:
    """Raise InvalidArgument for options that do not go together."""
    alone = [name for name in ("measure", "from_sessions", "forget_sessions") if chosen[name]]
    changes = [name for name in ("remove", "correct", "task") if chosen[name] is not None]
    if alone and (ref is not None or changes or chosen["wrong"] is not None or len(alone) > 1):
        option = f"--{alone[0].replace('_', '-')}"
        raise InvalidArgument(
            f"{option} takes nothing else.", f"Run: evolvable learn tasks {option}"
        )
    if len(changes) > 1:
        raise InvalidArgument(
            "Several changes were named.", "Give --remove, --correct or --task, one of them."
        )
    if chosen["task"] is None and chosen["wrong"] is not None:
        raise InvalidArgument("--not names no task.", "Give the task with --task.")
    if chosen["task"] is not None and ref is None:
        raise InvalidArgument(
            "--task names no skill.", "Run: evolvable learn tasks REF --task TEXT"
        )
    if chosen["correct"] is not None and ref is None:
        raise InvalidArgument(
            "--correct names no skill.", "Run: evolvable learn tasks REF --correct ID"
        )


def _change_task(
    library: Library, caller: Caller, ref: Ref | None, **chosen: Any
) -> list[ListedTask]:
    """Make the change that the options name, and return what it stored."""
    if chosen["remove"] is not None:
        remove_learned(library, caller, chosen["remove"])
    elif ref is not None and chosen["correct"] is not None:
        return reassign_task(library, caller, chosen["correct"], ref)
    elif ref is not None and chosen["task"] is not None:
        return correct_task(library, caller, chosen["task"], ref, chosen["wrong"])
    return []


def _is_read_by_person() -> bool:
    """Return whether the output is for a person: also where they hand it to another program."""
    try:
        # stdin is a terminal: a person may send the output through a pipe of their own.
        return is_person() or (marked_client(os.environ) is None and os.isatty(0))
    except OSError:
        return False


# What clients wrote down


def offer_past_sessions(config: Config) -> bool:
    """Return whether the library learns from the sessions of the clients.

    Ask a person who was not asked before.
    """
    answer = consent(config.home)
    if answer is None and is_person() and (number := count_sessions(config)):
        answer = ask_consent(number)
        set_consent(config.home, answer)
    return bool(answer)


def ask_consent(number: int) -> bool:
    """Say what would be kept of so many sessions, ask, and return the answer.

    The answer is no where nobody answers.
    """
    sessions = count(number, "session")
    remark(
        f"\nYour clients wrote {sessions} here. Where a skill of yours was opened or a file of "
        "its folder was used, in these and in every new one, this library can learn for which "
        "tasks search finds that skill.",
        f"It keeps the prompt that began the task: at most {MAX_TASK} characters, without "
        "secrets and code.",
        "Nothing leaves this machine, and no agent is shown a prompt. `evolvable learn tasks` "
        "lists, corrects and removes them.",
    )
    try:
        # No is the default, because a person's own words would be stored.
        return ask_yes("Learn from these sessions?", default=False, err=True)
    except click.Abort as abort:
        if not isinstance(abort.__cause__ or abort.__context__, EOFError):
            raise
        return False


def read_past_sessions(config: Config, library: Library) -> PastSessions:
    """Learn from the sessions of the clients, with progress on a terminal.

    Raise as `learn_past_sessions`.
    """
    with progress("Reading sessions") as show:
        return learn_past_sessions(config, library, show)


def show_past_sessions(done: PastSessions) -> None:
    """Write what a run over past sessions came to."""
    say(*describe_past_sessions(done))


def _learn(state: CommandContext) -> Output[PastSessions]:
    config = state.config()
    check_own(config.home)
    # Only a person gives the first yes.
    if not consent(config.home):
        state.require_person("Letting a library learn from past sessions")
    with state.library() as (library, _):
        if not consent(config.home):
            answer = ask_consent(count_sessions(config))
            set_consent(config.home, answer)
            if not answer:
                raise InvalidArgument(
                    "Nothing was read.", "The library learns from no session's prompts."
                )
        done = read_past_sessions(config, library)
    return Output(done, show_past_sessions)


def _forget(state: CommandContext) -> Output[dict[str, int]]:
    state.require_person("Removing what sessions taught")
    config = state.config()
    with state.library() as (library, caller):
        # Consent first: a process that learns right now must not store tasks behind the removal.
        set_consent(config.home, False)
        gone = library.store.backend.learned.forget_transcripts()
        library.record(caller, "forget sessions", count(gone, "task"))
    message = (
        f"Removed {count(gone, 'task')}. The library learns from no session's prompts any more."
    )
    return Output({"removed": gone}, lambda _: say(message))


def _show_learned(entries: list[ListedTask], held_out: bool) -> None:
    if held_out:
        say(
            "The task is held out: lookup does not learn it. `evolvable learn tasks "
            "--measure` asks it."
        )
    if not entries:
        say("Nothing was learned yet.")
        return
    rows: list[Row] = [
        [
            str(entry.id),
            (entry.ref, "bold"),
            _format_task(entry),
            local_time(entry.at),
            entry.source,
        ]
        for entry in entries
    ]
    show_table(
        ["id", "ref", "task", "learned", "from"],
        rows,
        names=("ref",),
        wide=("task",),
        spare=("from", "learned"),
    )


def _format_task(entry: ListedTask) -> str:
    return f"{'not ' * entry.against}{entry.task}{' (held out)' * entry.held_out}"


def _show_lookup_test(tested: LookupTest) -> None:
    if tested.first is None or tested.among is None:
        say(
            "No label is held out. `evolvable learn tasks REF --task TEXT` adds labels; one of "
            "four is held out."
        )
        return
    say(f"{count(tested.labels, 'held-out label')}, without a judge:")
    say(
        f"  right skill first       {tested.first:.0%} (95 % interval {tested.low:.0%} to "
        f"{tested.high:.0%})"
    )
    say(f"  among the first {AMONG}       {tested.among:.0%}")
    rows: list[Row] = [
        [miss.task, (miss.right, "bold"), miss.found or "nothing", str(miss.place or "not found")]
        for miss in tested.missed
    ]
    if rows:
        show_table(
            ["task", "right", "first match", "place"],
            rows,
            names=("right", "first match"),
            wide=("task",),
        )
