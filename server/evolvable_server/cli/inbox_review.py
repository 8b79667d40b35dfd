"""Decide on proposals one by one at a person's terminal, as `git add -p` does with hunks.

Each answer is one transaction of its own, and an interrupt waits until it has ended, so nothing is
ever half decided. A proposal that another window decided meanwhile is reported and never decided
twice. The text of a proposal is hostile, so it is always indented or behind the sign of a diff. The
findings of the scan come last, beside the question.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from evolvable_server.cli.command_context import to_cli_words
from evolvable_server.cli.editor_commands import edit_proposed
from evolvable_server.cli.proposal_view import describe_author, show_decided, show_proposal
from evolvable_server.cli.terminal import (
    ask,
    ask_yes,
    count,
    discard_typed,
    one_line,
    page_output,
    remark,
    say,
    show_diff,
    show_error,
    show_table,
    style_text,
    warn,
)
from evolvable_store.errors import Conflict, EvolvableError, InvalidArgument
from evolvable_store.storage import APPROVED, OPEN, REJECTED, Proposal
from evolvable_tools import Caller, Library, verbs
from evolvable_tools.verbs import CUT, Decided, WaitingProposal
from evolvable_tools.verbs.library_status import first_request

MAX_QUEUE = 1_000
"""Proposals that are asked about in one go; those that come meanwhile are asked about
after them.
"""

HELP = """\
y - approve this proposal
n - reject it; you are asked why
s - skip it: it goes on waiting
e - edit the proposed text, and approve what you save
t - take the lines of the proposal where the resource changed since in the same place, and \
approve it
v - view the whole difference in the pager
q - quit; what is not decided goes on waiting
ys, ns, ss - the same for all that its session led to, after a question
yr, nr, sr - the same for all about this resource, after a question
l - show the lessons of reviews that wait, and approve them all after a question
? - show this help"""

KEYS = "y,n,s,e,v,l,q,?"
KEYS_IN_CONFLICT = "n,e,t,s,v,l,q,?"


@dataclass
class DecisionTally:
    """The decisions of one run through the inbox.

    seen: the proposals that were shown or answered for.
    """

    approved: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def add(self, decided: Sequence[Decided]) -> None:
        """Count these decisions."""
        for decision in decided:
            {APPROVED: self.approved, REJECTED: self.rejected}[decision.state].append(
                decision.proposal_id
            )
            self.seen.add(decision.proposal_id)
        # Those that were approved together have one operation.
        operations = [each.operation for each in decided if each.operation is not None]
        self.operations += list(dict.fromkeys(operations))


class Quit(Exception):
    """Raised when the person ends the review."""


class InboxReview:
    """One run through the proposals that wait and that `is_wanted` accepts."""

    def __init__(
        self, library: Library, caller: Caller, is_wanted: Callable[[Proposal], bool]
    ) -> None:
        self._library, self._caller, self._is_wanted = library, caller, is_wanted
        self.tally = DecisionTally()
        self._viewed = set[int]()

    def run(self) -> DecisionTally:
        """Ask about every proposal. Raise click.Abort when the person interrupts."""
        with contextlib.suppress(Quit):
            # More may come while the person decides, so the queue is read again.
            while queue := self._list_waiting():
                for number, proposal in enumerate(queue, 1):
                    if proposal.id not in self.tally.seen:
                        self._ask_about(proposal.id, f"{number}/{len(queue)}")
        return self.tally

    def _list_waiting(self) -> list[Proposal]:
        """Return what waits and was not seen yet, oldest first."""
        # Seen ones may still wait, and must not use up the limit.
        waiting = self._library.store.backend.proposals.waiting(MAX_QUEUE + len(self.tally.seen))
        return [
            proposal
            for proposal in waiting
            if proposal.id not in self.tally.seen
            and self._is_wanted(proposal)
            and not verbs.is_expired(self._library, proposal)
        ]

    def _ask_about(self, identity: int, place: str) -> None:
        """Show one proposal and ask until it is answered."""
        # Before it is shown: one that cannot be shown would be asked about without an end.
        self.tally.seen.add(identity)
        proposal = self._show_open(identity)
        while proposal is not None:
            keys = KEYS_IN_CONFLICT if proposal.sides else KEYS
            answer = self._read_answer(f"({place}) Decide on proposal {identity} [{keys}]?")
            if answer == "q":
                raise Quit
            if answer == "v":
                whole = verbs.show_proposal(self._library, identity, limit=None)
                with page_output():
                    show_diff(whole.diff or "")
                self._viewed.add(identity)
                continue
            if answer in ("y", "t") and _is_cut(proposal) and identity not in self._viewed:
                warn("You have not seen the end of this difference; `v` shows all of it.")
                if not ask_yes("Approve it all the same?", default=False):
                    continue
            if answer not in _ANSWERS:
                click.echo(style_text(HELP, "bold red" if answer not in ("", "?") else "bold"))
                continue
            # Once more: another window may have decided while the person was reading.
            now = self._read_open(identity)
            # y, e and t take the text that was shown; n, s and l do not depend on it.
            if now is None or (answer[0] in "yet" and now.head != proposal.head):
                if now is not None:
                    warn(
                        f"{proposal.ref} changed while you were reading. Here is the proposal as "
                        "it is now."
                    )
                proposal = self._show_open(identity) if now is not None else None
                continue
            try:
                if self._decide(proposal, answer):
                    return
            except EvolvableError as error:
                show_error(to_cli_words(str(error)), to_cli_words(error.hint))
                # A conflict brings another text to read. After any other error, the shown one is
                # still right.
                read = self._show_open if isinstance(error, Conflict) else self._read_open
                proposal = read(identity)

    def _read_answer(self, question: str) -> str:
        """Return what the person types, in small letters.

        What was typed before the question was asked is discarded.
        """
        discard_typed()
        try:
            typed = ask(
                style_text(question, "bold blue"), default="", show_default=False, prompt_suffix=" "
            )
        except click.Abort as abort:
            if isinstance(abort.__cause__ or abort.__context__, EOFError):
                click.echo()
                raise Quit from None
            raise
        return typed.strip().lower()

    def _show_open(self, identity: int) -> WaitingProposal | None:
        proposal = self._read_open(identity)
        if proposal is not None:
            click.echo()
            show_proposal(proposal)
        return proposal

    def _read_open(self, identity: int) -> WaitingProposal | None:
        """Return a proposal as it is now.

        Tell the person when it waits no longer, and return None.
        """
        try:
            proposal = verbs.show_proposal(self._library, identity)
        except EvolvableError as error:
            show_error(to_cli_words(str(error)))
            return None
        stored = self._library.store.backend.proposals.get(identity)
        if proposal.state != OPEN or verbs.is_expired(self._library, stored):
            state = proposal.state if proposal.state != OPEN else "expired"
            by = f", operation {stored.operation}" if stored.operation else ""
            say(
                f"Proposal {identity} for {proposal.ref} is {state} already: another window "
                f"decided it{by}."
            )
            return None
        return proposal

    def _decide(self, proposal: WaitingProposal, answer: str) -> bool:
        """Do what the person answered; return whether the proposal is dealt with."""
        if answer == "e":
            return self._edit(proposal)
        if answer == "l":
            return self._approve_lessons() and self._is_decided(proposal.proposal_id)
        if answer == "t":
            lines = verbs.proposed_lines(self._library, proposal.proposal_id)
            self._approve([proposal.proposal_id], lines, seen={proposal.proposal_id: proposal.head})
            return True
        ids, what = self._select_proposals(proposal, answer)
        # Several are confirmed once more, below a table of them.
        if what and not self._confirm_selection(ids, answer[0], what):
            return False
        if answer[0] == "s":
            self.tally.skipped += ids
            self.tally.seen.update(ids)
            return True
        if answer[0] == "y":
            # Of several no single text was shown, so each is approved as it is now.
            self._approve(ids, seen=None if what else {proposal.proposal_id: proposal.head})
            return True
        # Outside of `_defer_interrupts`, so that an interrupt ends this question.
        why = ask("Why? Enter for no reason", default="", show_default=False)
        with self._defer_interrupts():
            decided = [verbs.reject(self._library, identity, why, self._caller) for identity in ids]
        self._report_decisions(decided)
        return True

    def _select_proposals(self, proposal: WaitingProposal, answer: str) -> tuple[list[int], str]:
        """Return the proposals that an answer is about, and a phrase that names the selection; ''
        for the shown one.
        """
        if len(answer) == 1:
            return [proposal.proposal_id], ""
        waiting = self._library.store.backend.proposals.waiting(MAX_QUEUE)
        if answer[1] == "r":
            ids = [candidate.id for candidate in waiting if str(candidate.ref) == proposal.ref]
            return ids, f"about {proposal.ref}"
        if proposal.session is None:
            raise InvalidArgument(
                "No session led to this proposal.", f"`{answer[0]}` is for this one alone."
            )
        ids = [candidate.id for candidate in waiting if candidate.session == proposal.session]
        return ids, f"of session {one_line(proposal.session)}"

    def _confirm_selection(self, ids: Sequence[int], key: str, what: str) -> bool:
        """List the proposals that an answer is for, and ask whether all of them are meant."""
        proposals = [verbs.show_proposal(self._library, identity) for identity in ids]
        show_table(
            ["proposal", "ref", "seen", "scan", "author", "why"],
            [
                [
                    str(proposal.proposal_id),
                    proposal.ref,
                    "yes" if proposal.proposal_id in self.tally.seen else "no",
                    (_format_findings(proposal), "red"),
                    describe_author(proposal),
                    proposal.reason,
                ]
                for proposal in proposals
            ],
            names=("ref",),
            wide=("why",),
            spare=("author", "why"),
        )
        unseen = sum(1 for identity in ids if identity not in self.tally.seen)
        aware = f", {unseen} of which you have not seen," if unseen else ""
        verb = {"y": "Approve", "n": "Reject", "s": "Skip"}[key]
        discard_typed()
        return ask_yes(f"{verb} {count(len(ids), 'proposal')}{aware} {what}?", default=False)

    def _approve(
        self,
        ids: Sequence[int],
        edited: Mapping[str, bytes | None] | None = None,
        *,
        seen: Mapping[int, int | None] | None,
    ) -> list[Decided]:
        with self._defer_interrupts():
            decided = verbs.approve_together(
                self._library, self._caller, ids, "", edited=edited, seen=seen
            )
        self._report_decisions(decided)
        return decided

    def _report_decisions(self, decided: Sequence[Decided]) -> None:
        self.tally.add(decided)
        for decision in decided:
            show_decided(decision)

    def _approve_lessons(self) -> bool:
        """Show the lessons that wait, and approve after a yes those that were shown whole and have
        no question.
        """
        lessons = list[WaitingProposal]()
        for lesson in verbs.waiting_lessons(self._library):
            if self._is_wanted(self._library.store.backend.proposals.get(lesson.proposal_id)):
                proposal = verbs.show_proposal(self._library, lesson.proposal_id)
                if not _has_question(proposal):
                    lessons.append(proposal)
        if not lessons:
            say(
                "No lesson waits that could be approved with others: each has a question "
                "of its own."
            )
            return False
        for proposal in lessons:
            click.echo()
            show_proposal(proposal)
        discard_typed()
        if not ask_yes(f"Approve {count(len(lessons), 'lesson')}?", default=False):
            return False
        self._approve(
            [proposal.proposal_id for proposal in lessons],
            seen={proposal.proposal_id: proposal.head for proposal in lessons},
        )
        return True

    def _is_decided(self, identity: int) -> bool:
        return self._library.store.backend.proposals.get(identity).state != OPEN

    def _edit(self, proposal: WaitingProposal) -> bool:
        """Open the proposed texts, and again where the library does not take them; approve what the
        person saves.
        """
        number = proposal.proposal_id
        texts = verbs.proposed_texts(self._library, number)
        contents = {path: text.encode("utf-8") for path, text in texts.items()}

        def approve(edited: Mapping[str, bytes]) -> list[Decided]:
            return self._approve([number], edited, seen={number: proposal.head})

        if edit_proposed(contents, approve) is None:
            say("Nothing was changed in the editor. `y` approves it as it is.")
            return False
        return True

    @contextlib.contextmanager
    def _defer_interrupts(self) -> Iterator[None]:
        """Let an interrupt wait until the body has ended.

        The passphrase is asked for before it begins.
        """
        if self._caller.signer is not None:
            self._caller.signer.unlock()
        # Python sets signal handlers in the main thread alone.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        arrived = list[Any]()
        # Only noted: the transaction runs to its end.
        before = signal.signal(signal.SIGINT, lambda *arguments: arrived.append(arguments))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            if arrived:
                raise KeyboardInterrupt


_ANSWERS = frozenset(("y", "n", "s", "e", "t", "l", "ys", "ns", "ss", "yr", "nr", "sr"))


def _format_findings(proposal: WaitingProposal) -> str:
    words = [str(finding.severity) for finding in proposal.findings]
    if proposal.gains:
        words.append("gains")
    return ", ".join(dict.fromkeys(words))


def _has_question(proposal: WaitingProposal) -> bool:
    """Return whether a person has to look at a proposal by itself before a yes."""
    if proposal.blocked or proposal.sides or proposal.removes:
        return True
    return bool(_format_findings(proposal)) or _is_cut(proposal)


def _is_cut(proposal: WaitingProposal) -> bool:
    return (proposal.diff or "").endswith(CUT)


def can_ask() -> bool:
    """Return whether both ends of this process are a terminal that questions can be asked at."""
    # A process without a console has no streams.
    return bool(sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty())


def review_inbox(library: Library, caller: Caller, is_wanted: Callable[[Proposal], bool]) -> None:
    """Ask the person about the proposals that wait.

    Write the decisions at the end, also after an interrupt.
    """
    review = InboxReview(library, caller, is_wanted)
    if line := verbs.lessons_line(verbs.waiting_lessons(library)):
        remark(line)
    try:
        tally = review.run()
        if not tally.seen:
            say("Nothing waits for a decision.")
            if words := first_request(library, caller):
                remark(f'To see a proposal, say to a client that is connected: "{words}"')
            return
    finally:
        _show_tally(library, review.tally)


def _show_tally(library: Library, tally: DecisionTally) -> None:
    if not tally.seen:
        return
    left = len(library.store.backend.proposals.waiting(MAX_QUEUE))
    parts = [
        f"{len(ids)} {word}"
        for ids, word in ((tally.approved, "approved"), (tally.rejected, "rejected"))
        if ids
    ]
    say("", f"{', '.join(parts) or 'Nothing decided'}; {count(left, 'proposal')} still waiting.")
    if tally.operations:
        undos = (f"evolvable undo {operation}" for operation in reversed(tally.operations[-5:]))
        say(f"Take back: {', '.join(undos)}")
