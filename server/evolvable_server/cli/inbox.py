"""The command for changes that wait for a person: inbox."""

from dataclasses import dataclass

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import Row, local_time, say, show_diff, show_table, warn
from evolvable_tools import inbox


@dataclass(frozen=True, slots=True)
class Inbox:
    """The proposals that wait, oldest first."""

    proposals: list[inbox.Waiting]


@command("inbox")
@click.argument("action", type=click.Choice(["list", "show", "approve", "reject"]), default="list")
@click.argument("proposal", type=click.IntRange(min=1), required=False)
@click.option("-m", "--reason", default="", help="Why; kept in the history.")
def inbox_command(state: State, action: str, proposal: int | None, reason: str) -> None:
    """Decide on proposed changes.

    Lists those that wait; shows, approves or rejects the one with the number PROPOSAL.
    """
    if (action == "list") != (proposal is None):
        raise click.UsageError("`inbox list` takes no number, every other action the number of a proposal.")
    with state.library() as (library, caller):
        if proposal is None:
            waiting = Inbox(inbox.waiting(library))
            state.show(waiting, lambda: _show_list(waiting.proposals))
        elif action == "show":
            one = inbox.show(library, proposal)
            state.show(one, lambda: _show_one(one))
        elif action == "approve":
            _tell(state, inbox.approve(library, caller, proposal, reason))
        else:
            _tell(state, inbox.reject(library, proposal, reason))


def _tell(state: State, decided: inbox.Decided) -> None:
    state.show(decided, lambda: _show_decided(decided))


def _show_list(proposals: list[inbox.Waiting]) -> None:
    if not proposals:
        say("Nothing waits for a decision.")
        return
    rows: list[Row] = [
        [(str(p.proposal_id), "bold"), p.ref, local_time(p.at), p.actor, p.reason, _files(p)] for p in proposals
    ]
    show_table(["proposal", "ref", "when", "who", "why", "files"], rows, wide=("ref", "why", "files"))
    say("\nRead one: evolvable inbox show PROPOSAL")


def _files(proposal: inbox.Waiting) -> str:
    return "removes it" if proposal.removes else ", ".join(proposal.files)


def _show_one(proposal: inbox.Waiting) -> None:
    made = f"made from version {proposal.base}" if proposal.base else "made as a new resource"
    what = f"to remove version {proposal.base}" if proposal.removes else made
    say(f"Proposal {proposal.proposal_id}: {proposal.ref}, {what} by {proposal.actor}, {local_time(proposal.at)}")
    say(f"{proposal.reason}\n")
    if not proposal.removes:
        show_diff(proposal.diff or "")
    if proposal.head not in (proposal.base, None) and not proposal.removes:
        warn(f"{proposal.ref} is at version {proposal.head} now; approving merges the two.")
    say(f"\nDecide: evolvable inbox approve {proposal.proposal_id}, or reject {proposal.proposal_id} -m WHY")


def _show_decided(decided: inbox.Decided) -> None:
    for text in decided.warnings:
        warn(text)
    version = f"; {decided.ref} is now version {decided.version}" if decided.version else ""
    if decided.operation is not None and decided.version is None:
        version = f"; {decided.ref} is removed, its versions are kept"
    say(f"Proposal {decided.proposal_id} is {decided.state}{version}.")
    if decided.operation is not None:
        say(f"Take it back: evolvable undo {decided.operation}")
