"""The command for changes that wait for a person: inbox."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import Row, local_time, say, show_diff, show_table, warn
from evolvable_store.errors import InvalidArgument
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.proposal_inbox import Grounds, WaitingProposal, as_read

if TYPE_CHECKING:
    from evolvable_tools.library import Library


@dataclass(frozen=True, slots=True)
class Inbox:
    """The proposals that wait, oldest first."""

    proposals: list[WaitingProposal]


@dataclass(frozen=True, slots=True)
class DecidedAll:
    """What became of several proposals."""

    decided: list[proposal_inbox.Decided]


@command("inbox")
@click.argument("action", type=click.Choice(["list", "show", "approve", "edit", "reject"]), default="list")
@click.argument("proposals", type=click.IntRange(min=1), nargs=-1, metavar="[PROPOSAL]...")
@click.option("-m", "--reason", default="", help="Why; kept in the history.")
@click.option("--all", "every", is_flag=True, help="All that wait.")
@click.option("--session", metavar="ID", help="Instead of numbers: all that this session led to.")
@click.option("--file", "files", multiple=True, metavar="PATH=FILE", help="With approve: this text instead.")
def inbox_command(
    state: State,
    action: str,
    proposals: tuple[int, ...],
    reason: str,
    every: bool,
    session: str | None,
    files: tuple[str, ...],
) -> None:
    """Decide on proposed changes.

    Lists those that wait; shows, approves, edits or rejects those with the numbers PROPOSAL. Several that are approved
    together are one operation, all of them or none. `edit` opens the proposed text in an editor and approves what you
    save.
    """
    with state.library() as (library, caller):
        ids = list(proposals) or _chosen(library, every, session)
        if (action == "list") != (not ids) and not (every or session):
            raise click.UsageError("`inbox list` takes no number, every other action the number of a proposal.")
        if action == "list":
            waiting = Inbox(
                as_read(
                    [one for one in proposal_inbox.list_waiting(library) if not ids or one.proposal_id in ids],
                    caller.actor,
                )
            )
            state.show(waiting, lambda: _show_list(waiting.proposals))
        elif not ids:
            say("Nothing waits for a decision.")
        elif action == "show":
            shown = as_read([proposal_inbox.show_proposal(library, identity) for identity in ids], caller.actor)
            _show_each(state, shown, decides=caller.decides)
        elif action == "reject":
            _tell(state, [proposal_inbox.reject(library, identity, reason) for identity in ids])
        else:
            edited = _edited(library, ids) if action == "edit" else _given(files)
            _tell(state, proposal_inbox.approve_together(library, caller, ids, reason, edited=edited))


def _chosen(library: "Library", every: bool, session: str | None) -> list[int]:
    if not every and session is None:
        return []
    return [one.proposal_id for one in proposal_inbox.list_waiting(library) if every or one.session == session]


def _given(files: tuple[str, ...]) -> dict[str, str | None]:
    given: dict[str, str | None] = {}
    for text in files:
        path, equals, source = text.partition("=")
        if not equals:
            raise click.UsageError("--file is PATH=FILE: the file of the proposal, and the one with its text.")
        given[path] = Path(source).read_text(encoding="utf-8") if source else None
    return given


def _edited(library: "Library", ids: list[int]) -> Mapping[str, str | None]:
    """Returns the texts of a proposal as a person saves them in an editor. Raises InvalidArgument for none."""
    if len(ids) != 1:
        raise click.UsageError("Edit one proposal at a time.")
    edited: dict[str, str | None] = {}
    for path, text in proposal_inbox.proposed_texts(library, ids[0]).items():
        saved = click.edit(text, extension=Path(path).suffix or ".txt")
        if saved is not None and saved != text:
            edited[path] = saved
    if not edited:
        raise InvalidArgument("Nothing was changed in the editor.", "`evolvable inbox approve` takes it as it is.")
    return edited


def _tell(state: State, decided: list[proposal_inbox.Decided]) -> None:
    if len(decided) == 1:
        state.show(decided[0], lambda: _show_decided(decided[0]))
    else:
        state.show(DecidedAll(decided), lambda: _show_all(decided))


def _show_all(decided: list[proposal_inbox.Decided]) -> None:
    for one in decided:
        for text in one.warnings:
            warn(text)
        say(f"Proposal {one.proposal_id} is {one.state}: {one.ref}" + (f"@{one.version}" if one.version else ""))
    if decided[0].operation is not None:
        say(f"Take all of it back: evolvable undo {decided[0].operation}")


def _show_list(proposals: list[WaitingProposal]) -> None:
    if not proposals:
        say("Nothing waits for a decision.")
        return
    if notice := next((p.notice for p in proposals if p.notice), ""):
        say(notice)
    rows: list[Row] = [
        [(str(p.proposal_id), "bold"), p.ref, local_time(p.at), _who(p), p.reason, _files(p)] for p in proposals
    ]
    show_table(["proposal", "ref", "when", "who", "why", "files"], rows, wide=("ref", "why", "files"))
    say("\nRead one: evolvable inbox show PROPOSAL")


def _who(proposal: WaitingProposal) -> str:
    return proposal.actor + (f", {proposal.times} times" if proposal.times > 1 else "")


def _files(proposal: WaitingProposal) -> str:
    return "removes it" if proposal.removes else ", ".join(proposal.files)


def _show_each(state: State, proposals: list[WaitingProposal], *, decides: bool) -> None:
    if len(proposals) == 1:
        state.show(proposals[0], lambda: _show_one(proposals[0], decides=decides))
    else:
        state.show(Inbox(proposals), lambda: _show_those(proposals, decides=decides))


def _show_those(proposals: list[WaitingProposal], *, decides: bool) -> None:
    for one in proposals:
        _show_one(one, decides=decides)


def _show_one(proposal: WaitingProposal, *, decides: bool) -> None:
    """decides: whether whoever reads it may decide."""
    made = f"made from version {proposal.base}" if proposal.base else "made as a new resource"
    what = f"to remove version {proposal.base}" if proposal.removes else made
    say(f"Proposal {proposal.proposal_id}: {proposal.ref}, {what} by {proposal.actor}, {local_time(proposal.at)}")
    if proposal.notice:
        say(proposal.notice)
    say(f"{proposal.reason}\n")
    if proposal.times > 1:
        say(f"It was proposed {proposal.times} times; the reason is that of the last.\n")
    if proposal.grounds is not None:
        _show_grounds(proposal.grounds, proposal.session)
    for finding in proposal.findings:
        warn(f"scan: {finding}")
    for gain in proposal.gains:
        warn(f"it gains: {gain}")
    if not proposal.removes:
        show_diff(proposal.diff or "")
    if proposal.blocked:
        warn(proposal.blocked)
    elif proposal.head not in (proposal.base, None) and not proposal.removes:
        warn(f"{proposal.ref} is at version {proposal.head} now; approving merges the two.")
    if proposal.expires:
        say(f"It closes by itself on {local_time(proposal.expires)}.")
    if decides:
        say(f"\nDecide: evolvable inbox approve {proposal.proposal_id}, or reject {proposal.proposal_id} -m WHY")
    else:
        say("\nIt waits for a person.")


def _show_grounds(grounds: Grounds, session: str | None) -> None:
    say(f"A {grounds.what}, from session {session}. It rests on:")
    for quoted in grounds.evidence:
        where = "" if quoted.session == session else f" of session {quoted.session}"
        say(f"  {quoted.origin}, turn {quoted.turn}{where}: “{quoted.quote}”")
    for near in grounds.near:
        say(f"  like {near}")
    told = {"Against it": grounds.counter_evidence, "Shows itself by": grounds.expected_signal, "Risk": grounds.risk}
    for name, text in told.items():
        if text:
            say(f"{name}: {text}")
    if grounds.cost:
        say("Cost: " + ", ".join(f"{key} {value}" for key, value in grounds.cost.items()))
    say()


def _show_decided(decided: proposal_inbox.Decided) -> None:
    for text in decided.warnings:
        warn(text)
    version = f"; {decided.ref} is now version {decided.version}" if decided.version else ""
    if decided.operation is not None and decided.version is None:
        version = f"; {decided.ref} is removed, its versions are kept"
    say(f"Proposal {decided.proposal_id} is {decided.state}{version}.")
    if decided.operation is not None:
        say(f"Take it back: evolvable undo {decided.operation}")
