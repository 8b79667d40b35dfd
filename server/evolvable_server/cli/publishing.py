"""The commands that decide what hosts see: publish, channel."""

from typing import TYPE_CHECKING

import click

from evolvable_server.cli.state import REF, State, command, reason_option
from evolvable_server.cli.terminal import Row, count, local_time, remark, say, show_table, warn
from evolvable_store.resource import Ref
from evolvable_store.storage.protocol import ReleasePolicy
from evolvable_tools.verbs import release

if TYPE_CHECKING:
    from evolvable_tools.library import Caller, Library

MEANING = {
    ReleasePolicy.NEW: "new skills appear by themselves, later changes wait until they are published",
    ReleasePolicy.MANUAL: "everything waits until it is published",
    ReleasePolicy.LIVE: "hosts see every change at once",
}
"""What each policy means, in a sentence."""

MAX_STEPS_SHOWN = 5
"""Skills that a table names of one move."""


@command("publish")
@click.argument("refs", metavar="[REF]...", type=REF, nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only say what would be published.")
@reason_option("published on the command line")
def publish_command(state: State, refs: tuple[Ref, ...], dry_run: bool, reason: str) -> None:
    """Let hosts see what changed.

    All skills that wait, or those named, move to their newest version in one step; pdf@3 moves to version 3. A host
    asks its user again for a skill that moved.
    """
    with state.library() as (library, caller):
        done = release.publish(library, caller, reason, refs=refs or None, dry_run=dry_run)
    state.show(done, lambda: _show_published(done))


def _show_published(done: release.Published) -> None:
    for ref in done.unchanged:
        remark(f"{ref} is published as it is.")
    if not done.steps:
        say(f"The policy is {done.policy} now." if done.move else "Nothing waits to be published.")
        return
    _show_steps(done.steps)
    if done.dry_run:
        say("\nNothing was published yet. Do it: evolvable publish")
        return
    say(f"\nMove {done.move}: {count(len(done.steps), 'skill')}. What changed: evolvable channel log {done.move}")


def _show_steps(steps: list[release.ChannelStep]) -> None:
    rows: list[Row] = [[(step.ref, "bold"), _end(step.before), _end(step.after), step.what] for step in steps]
    show_table(["skill", "hosts see", "then", "what"], rows, wide=("skill",))
    for step in steps:
        if step.left_out:
            warn(f"{step.ref} will not be offered to hosts: {'; '.join(step.left_out)}.")


def _end(version: int | None) -> str:
    return "nothing" if version is None else str(version)


@command("channel")
@click.argument(
    "action", type=click.Choice(["status", "log", "policy", "withdraw"]), default="status", metavar="[ACTION]"
)
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1)
@click.option("--limit", type=click.IntRange(1, release.MAX_MOVES), default=20, show_default=True, help="Of log.")
@reason_option("decided on the command line")
def channel_command(state: State, action: str, arguments: tuple[str, ...], limit: int, reason: str) -> None:
    """Show and steer what hosts see.

    \b
    channel                      what hosts see, and what waits to be published
    channel log [MOVE]           what was published when, or what one move changed
    channel policy [POLICY]      what moves by itself: new (the default), manual or live
    channel withdraw REF...      take skills off, whatever the policy, until they are published
    """
    if (action == "withdraw") != bool(arguments) and action in ("withdraw", "status"):
        raise click.UsageError("`channel withdraw` takes refs, `channel status` takes nothing.")
    if action in ("log", "policy") and len(arguments) > 1:
        raise click.UsageError(f"`channel {action}` takes one argument at most.")
    with state.library() as (library, caller):
        if action == "status":
            _status(state, library)
        elif action == "log":
            _log(state, library, arguments, limit)
        elif action == "policy":
            _policy(state, library, caller, arguments, reason)
        else:
            done = release.withdraw_skills(library, caller, [Ref.parse(text) for text in arguments], reason)
            state.show(done, lambda: _show_withdrawn(done))


def _status(state: State, library: "Library") -> None:
    status = release.channel_status(library)
    state.show(status, lambda: _show_status(status))


def _show_status(status: release.ChannelStatus) -> None:
    say(f"Policy {status.policy}: {MEANING[ReleasePolicy(status.policy)]}.")
    say(f"Hosts see {count(status.seen, 'skill')}.")
    for step in status.left_out:
        warn(f"{step.ref} is not offered to hosts: {'; '.join(step.left_out)}.")
    for ref in status.withdrawn:
        say(f"Withdrawn: {ref}")
    if status.waiting:
        say()
        _show_steps(status.waiting)
        say("\nPublish all of it: evolvable publish")
    else:
        say("Nothing waits to be published.")


def _log(state: State, library: "Library", arguments: tuple[str, ...], limit: int) -> None:
    if arguments:
        if not (arguments[0].isascii() and arguments[0].isdigit() and len(arguments[0]) < 10):
            raise click.UsageError(f"{ascii(arguments[0])} is no number of a move. `evolvable channel log` lists them.")
        changes = release.changelog(library, int(arguments[0]))
        state.show(changes, lambda: say(changes.text.rstrip("\n")))
        return
    log = release.channel_log(library, limit)
    state.show(log, lambda: _show_log(log))


def _show_log(log: release.ChannelLog) -> None:
    if not log.moves:
        say("The channel has not moved yet.")
        return
    rows: list[Row] = [
        [(str(move.move), "bold"), local_time(move.at), move.actor, move.reason, _moves(move)] for move in log.moves
    ]
    show_table(["move", "when", "who", "why", "what"], rows, wide=("why", "what"))
    say("\nWhat one changed: evolvable channel log MOVE")


def _moves(move: release.ReleaseMove) -> str:
    shown = [f"{step.ref} {_end(step.before)} -> {_end(step.after)}" for step in move.steps]
    more = f" and {len(shown) - MAX_STEPS_SHOWN} more" if len(shown) > MAX_STEPS_SHOWN else ""
    policy = [f"policy {move.policy}"] if move.policy else []
    return ", ".join(policy + shown[:MAX_STEPS_SHOWN]) + more


def _policy(state: State, library: "Library", caller: "Caller", arguments: tuple[str, ...], reason: str) -> None:
    if arguments:
        done = release.set_policy(library, caller, arguments[0], reason)
        state.show(done, lambda: _show_policy(done))
        return
    status = release.channel_status(library)
    state.show(
        release.Published(None, [], [], policy=status.policy),
        lambda: say(f"{status.policy}: {MEANING[ReleasePolicy(status.policy)]}."),
    )


def _show_policy(done: release.Published) -> None:
    policy = ReleasePolicy(done.policy or "")
    say(f"The policy is {policy}: {MEANING[policy]}.")
    if done.steps:
        say()
        _show_steps(done.steps)


def _show_withdrawn(done: release.Published) -> None:
    for ref in done.unchanged:
        remark(f"{ref} is withdrawn already.")
    for step in done.steps:
        say(f"{step.ref} is withdrawn; it stays in the library. Let hosts see it again: evolvable publish {step.ref}")
