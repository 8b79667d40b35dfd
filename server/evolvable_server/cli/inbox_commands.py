"""The commands inbox, which decides about proposals, and publish and channel, which decide what
hosts see.
"""

from collections.abc import Callable, Sequence
from typing import Any

import click
from click.core import ParameterSource

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.editor_commands import edit_proposed
from evolvable_server.cli.exit_codes import ExitCode
from evolvable_server.cli.inbox_review import MAX_QUEUE, can_ask, review_inbox
from evolvable_server.cli.maintenance import warn_left_out
from evolvable_server.cli.options import REF, page_option, read_source, reason_option, say_more
from evolvable_server.cli.proposal_view import (
    describe_author,
    show_decided,
    show_proposal,
    show_unseen,
)
from evolvable_server.cli.run_review import ask_about_runs, describe_run, show_runs
from evolvable_server.cli.terminal import (
    ask_yes,
    count,
    local_time,
    remark,
    say,
    show_table,
    some,
    warn,
)
from evolvable_server.plugins import WaitingRun, waiting_runs
from evolvable_store import Actor, Principal
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_store.storage import Proposal, ReleasePolicy
from evolvable_tools import AnswerMarks, Caller, Library, verbs
from evolvable_tools.verbs import (
    ChannelLog,
    ChannelStatus,
    ChannelStep,
    Decided,
    Published,
    ReleaseMove,
    UnseenChange,
    WaitingProposal,
    as_read,
    list_unseen,
)


@command("inbox", table=True)
@click.argument(
    "action",
    type=click.Choice(["list", "decide", "show", "approve", "edit", "take", "reject", "reopen"]),
    default="list",
)
@click.argument("proposals", type=click.IntRange(min=1), nargs=-1, metavar="[PROPOSAL]...")
@click.option("-m", "--reason", default="", help="Why; kept in the history.")
@click.option("--all", "every", is_flag=True, help="All that wait.")
@click.option("--session", metavar="ID", help="Instead of numbers: all that this session led to.")
@click.option(
    "--ref", "about", type=REF, metavar="REF", help="Instead of numbers: all about this resource."
)
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Of list."
)
@page_option
@click.option(
    "--file", "files", multiple=True, metavar="PATH=FILE", help="With approve: this file instead."
)
def inbox_command(
    state: CommandContext,
    action: str,
    proposals: tuple[int, ...],
    reason: str,
    every: bool,
    session: str | None,
    about: Ref | None,
    limit: int,
    page: int,
    files: tuple[str, ...],
) -> Output[Any] | None:
    """Decide on proposed changes.

    At your terminal, `evolvable inbox` (or `inbox decide`) shows one proposal after the other and
    asks. `list` lists those that wait, and what agents changed or created since you last looked:
    `evolvable approve REF` ends that. Trials of skills that an agent asked for wait here too; at
    your terminal a yes begins one. The other actions show, approve, edit or reject those with the
    numbers PROPOSAL. Several that are approved together are one operation, all of them or none.
    `edit` opens the proposed text in an editor and approves what you save. `take` approves a
    proposal with its own lines where the resource changed since in the same place. `reopen` takes a
    rejection back.
    """
    with state.library() as (library, caller):
        if action == "decide" or _is_asking(state, proposals):
            _decide_one_by_one(state, library, caller, proposals, session, about)
            return None
        ids = list(proposals) or _choose_ids(library, caller, every, session, about)
        # `list` goes without numbers and all others with some, except where a filter chose none.
        if (action == "list") != (not ids) and not (every or session or about):
            raise click.UsageError(
                "`inbox list` takes no number, every other action the number of a proposal."
            )
        if action == "list":
            return _list_inbox(library, caller, session, about, limit, page)
        if not ids:
            say("Nothing waits for a decision.")
            return None
        if action == "show":
            return _read_proposals(library, caller, ids)
        if action == "reject":
            return _report_decisions(
                [verbs.reject(library, identity, reason, caller) for identity in ids]
            )
        if action == "reopen":
            return _report_decisions([verbs.reopen(library, caller, identity) for identity in ids])
        if action == "edit":
            return _report_decisions(_approve_edited(library, caller, ids, reason))
        proposed_files = _read_proposed_files(library, caller, ids) if action == "take" else {}
        settles = bool(proposed_files)
        # Files that the person gives replace the merged ones, so there is nothing to look at.
        seen = None if files else _look_at_merged(state, library, caller, ids, settles=settles)
        # Files of the command line count before the lines of the proposal.
        edited = {**proposed_files, **_read_replacement_files(files)}
        return _report_decisions(
            verbs.approve_together(library, caller, ids, reason, edited=edited, seen=seen)
        )


def _decide_one_by_one(
    state: CommandContext,
    library: Library,
    caller: Caller,
    proposals: tuple[int, ...],
    session: str | None,
    about: Ref | None,
) -> None:
    """Show a person one thing after the other that waits, and ask about each."""
    state.require_person("Deciding one by one")
    if proposals:
        raise click.UsageError("`inbox decide` takes no number; --session and --ref choose.")
    # A filter chooses proposals; runs have neither a session nor a ref.
    if session is None and about is None:
        ask_about_runs(library, state.config())
    review_inbox(library, caller, _make_filter(library, caller, session, about))
    show_unseen(_find_unseen_changes(library, caller, about))


def _read_proposals(library: Library, caller: Caller, ids: list[int]) -> Output[Any]:
    """Return proposals as the caller reads them."""
    details = as_read([verbs.show_proposal(library, identity) for identity in ids], caller.actor)
    result: Any = details[0] if len(details) == 1 else {"proposals": details}
    return Output(result, lambda _: _show_proposals(details, decides=caller.decides))


def _read_proposed_files(
    library: Library, caller: Caller, ids: list[int]
) -> dict[str, bytes | None]:
    """Return the files of a proposal in conflict, with its lines in place of the conflicts.

    Raise InvalidArgument for a proposal without a conflict.
    """
    if len(ids) != 1:
        raise click.UsageError("Take one proposal at a time.")
    library.authorise(caller, "Approving a proposal")
    return verbs.proposed_lines(library, ids[0])


def _look_at_merged(
    state: CommandContext, library: Library, caller: Caller, ids: list[int], *, settles: bool
) -> dict[int, int | None] | None:
    """Show at a person's terminal what is merged with a newer version, and ask.

    Return the version that was shown for each proposal. None where nothing is merged, where nobody
    can be asked, and where a conflict blocks a proposal, so that a yes would approve nothing.
    settles: whether the call brings the lines of the conflict. Raise click.Abort for a no.
    """
    if not caller.decides or state.json or not can_ask():
        return None
    # What changed on disk first: the proposal is merged with the newest version.
    library.take_in([library.store.backend.proposals.get(identity).ref for identity in ids])
    proposals = [verbs.show_proposal(library, identity) for identity in ids]
    # The base of a proposal for a new resource is 0.
    merged = [proposal for proposal in proposals if proposal.head != (proposal.base or None)]
    if not merged or (not settles and any(proposal.blocked for proposal in proposals)):
        return None
    for proposal in merged:
        show_proposal(proposal)
    if not ask_yes(f"Approve {'it' if len(merged) == 1 else 'them'} as merged?", default=False):
        raise click.Abort
    return {proposal.proposal_id: proposal.head for proposal in proposals}


def _list_inbox(
    library: Library, caller: Caller, session: str | None, about: Ref | None, limit: int, page: int
) -> Output[Any]:
    """List a page of the waiting proposals, unseen changes, and the runs that nobody began."""
    # Changes and runs belong to no session, and stand on the first page alone.
    unseen = _find_unseen_changes(library, caller, about) if session is None and page == 1 else []
    runs = [] if session or about or page > 1 else waiting_runs(library)
    is_wanted = _make_filter(library, caller, session, about)
    # One more than a page shows, to know whether another page follows.
    waiting = verbs.list_waiting(library, limit * page + 1, is_wanted)[limit * (page - 1) :]
    proposals, more = as_read(waiting[:limit], caller.actor), len(waiting) > limit
    result = {
        "proposals": proposals,
        "changed": unseen,
        "runs": [describe_run(run) for run in runs],
    }
    return Output(result, lambda _: _show_inbox(proposals, page, more, unseen, runs))


def _is_asking(state: CommandContext, proposals: tuple[int, ...]) -> bool:
    """Return whether `evolvable inbox` without an action asks: at a person's own terminal, and not
    with --json.
    """
    # `inbox list`, written out, lists and never asks.
    source = click.get_current_context().get_parameter_source("action")
    is_bare = source is ParameterSource.DEFAULT and not proposals and not state.json
    return is_bare and state.identity.principal is Principal.PERSON and can_ask()


def _make_filter(
    library: Library, caller: Caller, session: str | None, about: Ref | None
) -> Callable[[Proposal], bool]:
    """Return the test for the proposals of a session and about a resource; None excludes none."""
    head = library.store.head_or_none(about, caller.scopes) if about else None
    ref = head.ref if head else about
    return lambda proposal: (
        (session is None or proposal.session == session) and (ref is None or proposal.ref == ref)
    )


def _choose_ids(
    library: Library, caller: Caller, every: bool, session: str | None, about: Ref | None
) -> list[int]:
    if not every and session is None and about is None:
        return []
    is_wanted = _make_filter(library, caller, session, about)
    waiting = library.store.backend.proposals.waiting(MAX_QUEUE)
    return [
        proposal.id
        for proposal in waiting
        if is_wanted(proposal) and not verbs.is_expired(library, proposal)
    ]


def _read_replacement_files(files: tuple[str, ...]) -> dict[str, bytes | None]:
    """Return the files that replace those of a proposal, as bytes; None for one that is to go."""
    replacements: dict[str, bytes | None] = {}
    for text in files:
        path, equals, source = text.partition("=")
        if not equals:
            raise click.UsageError(
                "--file is PATH=FILE: the file of the proposal, and the one with its content."
            )
        replacements[path] = read_source(source) if source else None
    return replacements


def _approve_edited(library: Library, caller: Caller, ids: list[int], reason: str) -> list[Decided]:
    """Approve a proposal with the texts that a person saves in an editor.

    Raise InvalidArgument for none.
    """
    if len(ids) != 1:
        raise click.UsageError("Edit one proposal at a time.")
    library.take_in([library.store.backend.proposals.get(ids[0]).ref])
    # Before the editor opens: what changes meanwhile is refused at the end.
    texts = verbs.proposed_texts(library, ids[0])
    seen = verbs.seen_versions(library, ids)
    # As bytes, so that line ends and a byte order mark come back as they were.
    decided = edit_proposed(
        {path: text.encode("utf-8") for path, text in texts.items()},
        lambda edited: verbs.approve_together(
            library, caller, ids, reason, edited=edited, seen=seen
        ),
    )
    if decided is None:
        raise InvalidArgument(
            "Nothing was changed in the editor.", "`evolvable inbox approve` takes it as it is."
        )
    return decided


def _report_decisions(decided: list[Decided]) -> Output[Any]:
    if len(decided) == 1:
        return Output(decided[0], show_decided)
    return Output({"decided": decided}, lambda _: _show_decisions(decided))


def _show_decisions(decided: list[Decided]) -> None:
    for decision in decided:
        warn(*decision.warnings)
        say(
            f"Proposal {decision.proposal_id} is {decision.state}: {decision.ref}"
            + (f"@{decision.version}" if decision.version else "")
        )
    if decided[0].operation is not None:
        say(f"Take all of it back: evolvable undo {decided[0].operation}")


def _find_unseen_changes(library: Library, caller: Caller, about: Ref | None) -> list[UnseenChange]:
    """Return what agents changed and nobody looked at, of one resource or of all."""
    changes = list_unseen(library, caller, with_diff=True).changes
    if about is None:
        return changes
    head = library.store.head_or_none(about, caller.scopes)
    return [change for change in changes if head is not None and change.ref == str(head.ref)]


def _show_inbox(
    proposals: list[WaitingProposal],
    page: int,
    more: bool,
    unseen: list[UnseenChange],
    runs: Sequence[WaitingRun],
) -> None:
    if proposals:
        _show_waiting(proposals, page, more)
    elif not runs:
        say("Nothing waits for a decision." if page == 1 else f"There is no page {page}.")
    show_unseen(unseen)
    show_runs(runs)


def _show_waiting(proposals: list[WaitingProposal], page: int, more: bool) -> None:
    if notice := next((proposal.notice for proposal in proposals if proposal.notice), ""):
        say(notice)
    show_table(
        ["proposal", "ref", "when", "author", "why", "files"],
        [
            [
                (str(proposal.proposal_id), "bold"),
                proposal.ref,
                local_time(proposal.at),
                describe_author(proposal),
                proposal.reason,
                _format_files(proposal),
            ]
            for proposal in proposals
        ],
        names=("ref",),
        wide=("why", "files"),
        spare=("files", "when", "author"),
        whole=bool(notice),
    )
    say_more(page, len(proposals), more)
    say("\nRead one: evolvable inbox show PROPOSAL")


def _format_files(proposal: WaitingProposal) -> str:
    return "removes it" if proposal.removes else ", ".join(proposal.files)


def _show_proposals(proposals: list[WaitingProposal], *, decides: bool) -> None:
    for proposal in proposals:
        show_proposal(proposal)
        number = proposal.proposal_id
        if decides and not proposal.blocked:
            say(f"\nDecide: evolvable inbox approve {number}, or reject {number} -m WHY")
        elif not decides:
            say("\nIt waits for a person.")


MEANING = {
    ReleasePolicy.NEW: (
        "new skills appear by themselves, later changes wait until they are published"
    ),
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
def publish_command(
    state: CommandContext, refs: tuple[Ref, ...], dry_run: bool, reason: str
) -> Output[Published]:
    """Let hosts see what changed.

    All skills that wait, or those named, move to their newest version in one step; pdf@3 moves to
    version 3. A host asks its user again for a skill that moved. Exit code 1: a skill with a secret
    was left out.
    """
    with state.library() as (library, caller):
        done = verbs.publish(library, caller, reason, refs=refs or None, dry_run=dry_run)
    return Output(done, _show_published, ExitCode.ERROR if done.left_out else ExitCode.DONE)


def _show_published(done: Published) -> None:
    warn_left_out(done.left_out)
    remark(*(f"{ref} is published as it is." for ref in done.unchanged))
    if not done.steps:
        say(f"The policy is {done.policy} now." if done.move else "Nothing waits to be published.")
        return
    _show_steps(done.steps)
    if done.dry_run:
        say("\nNothing was published yet. Do it: evolvable lab publish")
        return
    say(
        f"\nMove {done.move}: {count(len(done.steps), 'skill')}. What changed: evolvable lab "
        f"channel log {done.move}"
    )


def _show_steps(steps: list[ChannelStep]) -> None:
    show_table(
        ["skill", "hosts see", "then", "what"],
        [
            [
                (step.ref, "bold"),
                _format_version(step.before),
                _format_version(step.after),
                step.what,
            ]
            for step in steps
        ],
        names=("skill",),
        spare=("what",),
    )
    hidden = [step for step in steps if step.left_out]
    warn(
        *(
            f"{step.ref} will not be offered to hosts: {'; '.join(step.left_out)}."
            for step in hidden
        )
    )


def _format_version(version: int | None) -> str:
    return "nothing" if version is None else str(version)


@command("channel")
@click.argument(
    "action",
    type=click.Choice(["status", "log", "policy", "withdraw"]),
    default="status",
    metavar="[ACTION]",
)
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1)
@click.option(
    "--limit",
    type=click.IntRange(1, verbs.MAX_MOVES),
    default=20,
    show_default=True,
    help="Of log.",
)
@reason_option("decided on the command line")
def channel_command(
    state: CommandContext, action: str, arguments: tuple[str, ...], limit: int, reason: str
) -> Output[Any]:
    """Show and steer what hosts see.

    \b
    channel                   what hosts see, and what waits to be published
    channel log [MOVE]        what was published when, or what one move changed
    channel policy [POLICY]   what moves by itself: new (default), manual or live
    channel withdraw REF...   hide skills from hosts until they are published
    """
    if (action == "withdraw") != bool(arguments) and action in ("withdraw", "status"):
        raise click.UsageError(
            "`lab channel withdraw` takes refs, `lab channel status` takes nothing."
        )
    if action in ("log", "policy") and len(arguments) > 1:
        raise click.UsageError(f"`lab channel {action}` takes one argument at most.")
    with state.library() as (library, caller):
        if action == "status":
            return Output(verbs.channel_status(library), _show_status)
        if action == "log":
            return _read_log(
                library, arguments, limit, AnswerMarks(caller.actor is not Actor.HUMAN)
            )
        if action == "policy":
            return _run_policy(library, caller, arguments, reason)
        refs = [Ref.parse(text) for text in arguments]
        return Output(verbs.withdraw_skills(library, caller, refs, reason), _show_withdrawn)


def _show_status(status: ChannelStatus) -> None:
    say(f"Policy {status.policy}: {MEANING[ReleasePolicy(status.policy)]}.")
    say(f"Hosts see {count(status.seen, 'skill')}.")
    warn(
        *(
            f"{step.ref} is not offered to hosts: {'; '.join(step.left_out)}."
            for step in status.left_out
        )
    )
    say(*(f"Withdrawn: {ref}" for ref in status.withdrawn))
    if status.waiting:
        say("")
        _show_steps(status.waiting)
        say("\nPublish all of it: evolvable lab publish")
    else:
        say("Nothing waits to be published.")


def _read_log(
    library: Library, arguments: tuple[str, ...], limit: int, marks: AnswerMarks
) -> Output[Any]:
    if not arguments:
        return Output(verbs.channel_log(library, limit, marks), _show_log)
    # A longer number is no row of the database, and may be more than its 64 bits hold.
    if not (arguments[0].isascii() and arguments[0].isdigit() and len(arguments[0]) < 10):
        raise click.UsageError(
            f"{ascii(arguments[0])} is no number of a move. `evolvable lab channel log` lists them."
        )
    changes = verbs.changelog(library, int(arguments[0]), marks)
    return Output(changes, lambda changes: say(changes.text.rstrip("\n")))


def _show_log(log: ChannelLog) -> None:
    if not log.moves:
        say("The channel has not moved yet.")
        return
    show_table(
        ["move", "when", "who", "why", "what"],
        [
            [
                (str(move.move), "bold"),
                local_time(move.at),
                move.actor,
                move.reason,
                _format_moves(move),
            ]
            for move in log.moves
        ],
        wide=("why", "what"),
        spare=("who", "when"),
    )
    say("\nWhat one changed: evolvable lab channel log MOVE")
    if log.notice:
        say(log.notice)


def _format_moves(move: ReleaseMove) -> str:
    policy = [f"policy {move.policy}"] if move.policy else []
    changes = [
        f"{step.ref} {_format_version(step.before)} -> {_format_version(step.after)}"
        for step in move.steps
    ]
    steps = some(changes, MAX_STEPS_SHOWN)
    return ", ".join([*policy, *([steps] if steps else [])])


def _run_policy(
    library: Library, caller: Caller, arguments: tuple[str, ...], reason: str
) -> Output[Published]:
    if arguments:
        return Output(verbs.set_policy(library, caller, arguments[0], reason), _show_policy)
    policy = verbs.channel_status(library).policy
    return Output(
        Published(None, [], [], policy=policy),
        lambda _: say(f"{policy}: {MEANING[ReleasePolicy(policy)]}."),
    )


def _show_policy(done: Published) -> None:
    policy = ReleasePolicy(done.policy or "")
    say(f"The policy is {policy}: {MEANING[policy]}.")
    if done.steps:
        say("")
        _show_steps(done.steps)


def _show_withdrawn(done: Published) -> None:
    remark(*(f"{ref} is withdrawn already." for ref in done.unchanged))
    for step in done.steps:
        say(
            f"{step.ref} is withdrawn; it stays in the library. Let hosts see it again: evolvable "
            f"lab publish {step.ref}"
        )
