"""How a proposal and a decision are shown to a person: the same for a list, one command and the
questions.
"""

from collections.abc import Sequence

import click

from evolvable_server.cli.terminal import (
    local_time,
    one_line,
    say,
    say_quoted,
    show_diff,
    style_text,
    warn,
)
from evolvable_store import Actor
from evolvable_tools import AuthorKind
from evolvable_tools.verbs import Decided, Grounds, UnseenChange, WaitingProposal


def describe_author(proposal: WaitingProposal) -> str:
    """Return who proposed something, and how often."""
    author = AuthorKind.YOU if proposal.actor == Actor.HUMAN else proposal.actor
    return author + (f", {proposal.times} times" if proposal.times > 1 else "")


def show_proposal(proposal: WaitingProposal) -> None:
    """Write a proposal: who made it and why, its difference, and last what the scan found in it.

    What its author wrote is indented, so that no line of it can be taken for one of ours.
    """
    origin = f"made from version {proposal.base}" if proposal.base else "made as a new resource"
    what = f"to remove version {proposal.base}" if proposal.removes else origin
    by = f"by {describe_author(proposal)}, {local_time(proposal.at)}"
    say(f"Proposal {proposal.proposal_id}: {proposal.ref}, {what} {by}")
    if proposal.notice:
        say(proposal.notice)
    say_quoted(proposal.reason)
    say("")
    if proposal.times > 1:
        say(f"It was proposed {proposal.times} times; the reason is that of the last.\n")
    if proposal.grounds is not None:
        _show_grounds(proposal.grounds, proposal.session)
    if not proposal.removes:
        show_diff(proposal.diff or "")
        click.echo()
    warn(
        *(f"scan: {one_line(str(finding))}" for finding in proposal.findings),
        *(f"it gains: {one_line(gain)}" for gain in proposal.gains),
    )
    if proposal.sides:
        say("Both sides of each conflict:")
        show_diff(proposal.sides)
    if proposal.blocked:
        warn(proposal.blocked)
    # No conflict, but the resource has moved on since the proposal was made.
    elif proposal.head not in (proposal.base, None) and not proposal.removes:
        warn(
            f"{proposal.ref} is at version {proposal.head} now; the difference shows the "
            "two merged."
        )
    if proposal.expires:
        say(f"It expires on {local_time(proposal.expires)}.")


def _show_grounds(grounds: Grounds, session: str | None) -> None:
    say(f"A {grounds.what}, from session {session}. It rests on:")
    for quoted in grounds.evidence:
        where = "" if quoted.session == session else f" of session {quoted.session}"
        say_quoted(f"{quoted.origin}, turn {quoted.turn}{where}: “{quoted.quote}”")
    for near in grounds.near:
        say_quoted(f"like {near}")
    remarks = {
        "Against it": grounds.counter_evidence,
        "Shows itself by": grounds.expected_signal,
        "Risk": grounds.risk,
    }
    say(*(f"{name}: {one_line(text)}" for name, text in remarks.items() if text))
    if grounds.cost:
        say("Cost: " + ", ".join(f"{key} {value}" for key, value in grounds.cost.items()))
    say("")


def show_unseen(unseen: Sequence[UnseenChange]) -> None:
    """Write what agents changed since the person last looked, a line for each resource; nothing for
    nothing.
    """
    if not unseen:
        return
    click.echo(style_text("\nChanged since you last looked:", "bold"))
    for change in unseen:
        say(f"{change.line} (new)" if change.is_new else change.line)
        if change.reason:
            say_quoted(change.reason)
    say("\nSee the difference and approve: evolvable approve REF")


def show_decided(decided: Decided) -> None:
    """Write the result of a decision, and how to take it back."""
    warn(*decided.warnings)
    version = f"; {decided.ref} is now version {decided.version}" if decided.version else ""
    # An approved removal is an operation without a version.
    if decided.operation is not None and decided.version is None:
        version = f"; {decided.ref} is removed, its versions are kept"
    say(f"Proposal {decided.proposal_id} is {decided.state}{version}.")
    if decided.operation is not None:
        say(f"Take it back: evolvable undo {decided.operation}")
