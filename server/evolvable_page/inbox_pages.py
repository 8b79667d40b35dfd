"""The inbox: the list of proposals beside the one that is decided on.

Several are decided on together where the person was shown all of each.
"""

from collections.abc import Sequence

from evolvable_page import elements as h
from evolvable_page.changed_list import draw_changed, link_changed
from evolvable_page.decision_notes import (
    decision_note,
    link_or_name,
    next_address,
    proposal_line,
    take_back_forms,
)
from evolvable_page.elements import Node
from evolvable_page.layout import PageBody, form, passphrase_field, swapping, tag
from evolvable_page.parts import page_parts
from evolvable_page.proposal_view import (
    decision_forms,
    draw_change,
    draw_findings,
    draw_proposal,
    look_at,
    needs_own_look,
    own_reason,
    reason_field,
    seen_fields,
    shown_hash,
)
from evolvable_page.site import MOST_WAITING, PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, one_line, restore_line_ends
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.storage import APPROVED, OPEN, REJECTED
from evolvable_tools import Library, verbs
from evolvable_tools.verbs import Decided, MergePart, WaitingProposal, end_with_newline
from evolvable_tools.verbs.library_status import first_request

KEYS = "Keys: a approve, r reject, e edit, m merge, j next, k previous, u take back, ? all keys."

_HOW = "in the local page"

# A form has at most MAX_FIELDS fields and MAX_BODY bytes; the other files of a proposal are
# approved as they are.
MAX_EDITED = 40
"""Files of a proposal that are edited in one form."""

MAX_DECIDED = 20
"""Decisions of each kind that the list of decisions holds."""

# As in a unified diff.
CONTEXT = 3
"""Equal lines that the merge shows before and after lines in conflict."""


def _show_inbox(site: Site, request: PageRequest) -> PageBody | str:
    """Lead to the first proposal that waits, or say that none does.

    Each proposal has an address of its own, so that a live part of its page never shows another
    one.
    """
    waiting = verbs.list_waiting(site.library, 1)
    if waiting:
        return next_address(f"/inbox/{waiting[0].proposal_id}", request)
    text = "Nothing waits for a decision. What agents and reviews propose appears here by itself."
    live = h.div(id="inbox", data_live=True)[h.p[text], first_steps(site), waiting_parts(site)]
    changed = draw_changed(site, request)
    main = [h.h1["Inbox"], decision_note(site, request), live, changed, _link_decided()]
    return PageBody("Inbox", main, "inbox")


def read_waiting(site: Site) -> list[WaitingProposal]:
    """Return the proposals that the inbox lists, without their differences."""
    return site.keep("proposals that wait", lambda: verbs.list_waiting(site.library, MOST_WAITING))


def first_steps(site: Site) -> Node:
    """Return how the first proposal comes about, nothing once one was decided."""
    words = first_request(site.library, site.caller)
    if words is None:
        return None
    if not words:
        return h.p[
            "The library holds no skill yet: run ",
            h.code["evolvable quickstart"],
            " in a terminal.",
        ]
    return h.section[
        h.h2["The first proposal"],
        h.ol[
            h.li[
                "Connect your client, in a terminal: ",
                h.code["evolvable connect claude-code"],
                " (or another one).",
            ],
            h.li["Say to it: ", h.q[make_visible(words)]],
            h.li[
                "Its proposal appears here by itself. Read it: the key a approves it, r rejects it."
            ],
        ],
    ]


def waiting_parts(site: Site) -> list[Node]:
    """Return the waiting items of other parts of the program."""
    return [part.waiting(site) for part in page_parts() if part.waiting is not None]


def _link_decided() -> Node:
    return h.p[h.a(href="/inbox/decided")["What was decided, and how to take it back"]]


def _show_proposal(site: Site, request: PageRequest) -> PageBody:
    """Show one proposal."""
    waiting = read_waiting(site)
    done = decision_note(site, request)
    proposal = verbs.show_proposal(site.library, request.require_number("number"))
    look_at(request, proposal)
    parts = h.div(".inbox")[
        draw_proposal(site, request, proposal, waiting),
        _draw_queue(site, request, waiting, proposal),
    ]
    main = [done, parts, h.p(".keys")[KEYS]]
    return PageBody(f"{proposal.ref} · Inbox", main, "inbox", of=f"proposal {proposal.proposal_id}")


def _draw_queue(
    site: Site, request: PageRequest, waiting: Sequence[WaitingProposal], proposal: WaitingProposal
) -> Node:
    links = [
        h.li[_link_waiting(other, is_current=other.proposal_id == proposal.proposal_id)]
        for other in waiting
    ]
    bound = h.p(".none")[f"The oldest {MOST_WAITING} are listed."]
    queue = h.nav(
        ".queue", id="queue", tabindex="-1", aria_label="Proposals that wait", data_live=True
    )
    return queue[
        h.h2[f"{len(waiting)} wait" if len(waiting) != 1 else "1 waits"],
        h.ol[links],
        bound if len(waiting) == MOST_WAITING else None,
        _draw_together_form(site, request, waiting),
        link_changed(site),
        waiting_parts(site),
        _link_decided(),
    ]


def _link_waiting(proposal: WaitingProposal, *, is_current: bool) -> Node:
    link = h.a(href=f"/inbox/{proposal.proposal_id}", aria_current="true" if is_current else None)
    return link[
        f"{proposal.proposal_id} ",
        one_line(proposal.ref, 60),
        [" ", tag("asks", "doubtful")] if needs_own_look(proposal) else None,
        h.span(".none")[one_line(proposal.reason, 80)],
    ]


def _draw_together_form(
    site: Site, request: PageRequest, waiting: Sequence[WaitingProposal]
) -> Node:
    """Return the form that approves all proposals that this browser was shown whole, except those
    that need a look of their own.
    """
    # Only what this session was shown: a person who signs for several at once must have had each on
    # the screen.
    seen = [
        proposal
        for proposal in waiting
        if proposal.proposal_id in request.session.shown_hashes and not needs_own_look(proposal)
    ]
    if len(seen) < 2:
        return None
    names = ", ".join(str(proposal.proposal_id) for proposal in seen)
    note = f"Proposals {names}: you saw all of their files, and the scan asks nothing about them."
    approve = form(
        request.session.csrf,
        action_path("inbox approve"),
        seen_fields(seen),
        passphrase_field(site.passphrase_label),
        h.button(type="submit", id="together")[f"Approve the {len(seen)} that you have read"],
        **swapping(),
    )
    return h.section[approve, h.p(".none")[note]]


def _show_decided(site: Site, request: PageRequest) -> PageBody:
    """List the last decisions, each with what takes it back while its version stands."""
    decided = [
        proposal
        for state in (APPROVED, REJECTED)
        for proposal in site.library.store.backend.proposals.in_state(state, MAX_DECIDED)
    ]
    rows = [
        h.li[
            h.span(".grow")[proposal_line(site.library, proposal)],
            take_back_forms(site, request, [proposal]),
        ]
        for proposal in sorted(decided, key=lambda proposal: -proposal.id)
    ]
    text = "Nothing was decided yet. What you decide in the inbox stands here with the way back."
    listing = h.ul(".rows")[rows] if rows else h.p[text]
    back = h.p[h.a(href="/inbox", id="back")["To the inbox"]]
    return PageBody("Decided", [h.h1["Decided"], listing, back], "inbox")


def _approve(site: Site, request: PageRequest) -> str:
    numbers = _read_numbers(request)
    caller = site.decider(request)
    if len(numbers) > 1:
        _check_looked_at(site, request, numbers)
    takes_proposed = request.get("take") and len(numbers) == 1
    edited = verbs.proposed_lines(site.library, numbers[0]) if takes_proposed else {}
    decided = verbs.approve_together(
        site.library,
        caller,
        numbers,
        request.get("reason"),
        _HOW,
        edited=edited,
        seen=_read_seen_versions(numbers, request),
    )
    return _find_next_address(site.library, decided, request)


def _check_looked_at(site: Site, request: PageRequest, numbers: Sequence[int]) -> None:
    """Raise Refused unless this browser was shown all of each proposal, and the scan asks nothing
    about any.
    """
    for number in numbers:
        proposal = verbs.show_proposal(site.library, number)
        present_hash = shown_hash(proposal)
        what = ""
        if needs_own_look(proposal):
            what = "has a question for you"
        elif not present_hash or request.session.shown_hashes.get(number) != present_hash:
            what = "was not shown to you as it is now"
        if what:
            raise Refused(
                f"Proposal {number} {what}; nothing was approved.",
                "Look at it, and decide on it by itself.",
            )


def _edit(site: Site, request: PageRequest) -> str:
    """Approve a proposal as the person edited it, or with the lines that the person chose of a
    conflict.
    """
    number = request.require_number("number")
    edited = (
        _merge_chosen(site, request, number)
        if request.get("merge")
        else _read_edited_texts(site, request, number)
    )
    decided = verbs.approve_together(
        site.library,
        site.decider(request),
        [number],
        request.get("reason"),
        _HOW,
        edited=edited,
        seen=_read_seen_versions([number], request),
    )
    return _find_next_address(site.library, decided, request)


def _read_edited_texts(
    site: Site, request: PageRequest, number: int
) -> dict[str, str | bytes | None]:
    texts = verbs.proposed_texts(site.library, number)
    sent = {path: request.get(f"text:{path}") for path in texts if f"text:{path}" in request.fields}
    saved = {path: restore_line_ends(text, texts[path]) for path, text in sent.items()}
    return {path: text for path, text in saved.items() if text != texts[path]}


def _merge_chosen(site: Site, request: PageRequest, number: int) -> dict[str, str | bytes | None]:
    """Return the files in conflict with the lines that the form chose.

    Files that are no text are taken as proposed.
    """
    result: dict[str, str | bytes | None] = {**verbs.proposed_lines(site.library, number)}
    for path, parts in verbs.proposed_parts(site.library, number).items():
        chosen = [
            _choose_lines(part, request.get(f"part:{path}:{place}"))
            for place, part in enumerate(parts)
        ]
        result[path] = "".join(chosen)
    return result


def _choose_lines(part: MergePart, choice: str) -> str:
    """Return the lines of a part of a merge. Raise InvalidArgument where none were chosen."""
    if not (part.now or part.proposed):
        return part.both
    if choice not in CHOICES:
        raise InvalidArgument(
            "Of some lines in conflict none were chosen.", "Go back and choose for each place."
        )
    return _list_choices(part)[choice]


def _list_choices(part: MergePart) -> dict[str, str]:
    """Return the lines that each choice of CHOICES takes."""
    both = end_with_newline(part.now) + part.proposed
    return {"now": part.now, "proposed": part.proposed, "both": both}


CHOICES = {"now": "As it is now", "proposed": "As proposed", "both": "Both, those of now first"}
"""Choice of a person among lines in conflict -> its name in the form."""


def _reject(site: Site, request: PageRequest) -> str:
    """Reject the proposals that the form names, or none of them where one is decided already."""
    proposals, numbers = site.library.store.backend.proposals, _read_numbers(request)
    for number in numbers:
        if (state := proposals.get(number).state) != OPEN:
            raise InvalidArgument(
                f"Proposal {number} is {state} already; nothing was rejected.", "Look at it again."
            )
    reason, caller = request.get("reason"), site.caller
    decided = [verbs.reject(site.library, number, reason, caller) for number in numbers]
    return _find_next_address(site.library, decided, request)


def _reopen(site: Site, request: PageRequest) -> str:
    """Let those of the proposals wait again that are still rejected."""
    proposals, numbers = site.library.store.backend.proposals, _read_numbers(request)
    rejected = [number for number in numbers if proposals.get(number).state == REJECTED]
    # Where none is rejected, `reopen` of the first says why it cannot wait again.
    for number in rejected or numbers[:1]:
        verbs.reopen(site.library, site.caller, number)
    return f"/inbox/{numbers[0]}?done={','.join(map(str, numbers))}"


def _read_numbers(request: PageRequest) -> list[int]:
    """Return the proposals that a form names. Raise InvalidArgument for none."""
    texts = request.fields.get("number", ())
    # isdigit alone takes digits of other scripts, and the length bounds the time of `int`.
    if not texts or not all(text.isascii() and text.isdigit() and len(text) < 16 for text in texts):
        raise InvalidArgument("The form names no proposal.", "Follow a link of the page.")
    return [int(text) for text in texts]


def _read_seen_versions(
    numbers: Sequence[int], request: PageRequest
) -> dict[int, int | None] | None:
    """Return by proposal the version of its resource that the form showed, None for a request
    without such fields.
    """
    texts = request.fields.get("seen", ())
    # -1 is no version, so that a malformed field counts as changed since.
    versions = (
        int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1 for text in texts
    )
    return dict(zip(numbers, versions, strict=False)) if texts else None


def _find_next_address(library: Library, decided: Sequence[Decided], request: PageRequest) -> str:
    """Return the address of the next proposal, or of Home for a decision there. It names the
    decided proposals.
    """
    done = ",".join(str(decision.proposal_id) for decision in decided)
    if request.get("home"):
        return f"/?done={done}"
    ids = [proposal.proposal_id for proposal in verbs.list_waiting(library, MOST_WAITING)]
    # The next one in the list, from the top again after the last.
    following = next(
        (proposal_id for proposal_id in ids if proposal_id > decided[-1].proposal_id),
        ids[0] if ids else None,
    )
    return f"/inbox/{following}?done={done}" if following else f"/inbox?done={done}"


def _show_edit_form(site: Site, request: PageRequest) -> PageBody:
    """Show the texts of a proposal in fields. Saving them approves the proposal."""
    number = request.require_number("number")
    proposal = verbs.show_proposal(site.library, number)
    texts = dict(list(verbs.proposed_texts(site.library, number).items())[:MAX_EDITED])
    fields = [
        h.label(".text")[
            h.code[make_visible(path)],
            h.textarea(name=f"text:{path}", rows="24", spellcheck="false")["\n" + text],
        ]
        for path, text in texts.items()
    ]
    button = h.button(".good", type="submit")["Save and approve"]
    hidden_fields = {"number": number, "seen": proposal.head or 0}
    return PageBody(
        f"Edit proposal {number}",
        [
            h.h1[f"Edit proposal {number}: ", link_or_name(site.library, proposal.ref)],
            form(
                request.session.csrf,
                action_path("inbox edit"),
                fields,
                reason_field("Reason"),
                passphrase_field(site.passphrase_label),
                h.p(".buttons")[
                    button, " ", h.a(href=f"/inbox/{number}", id="back")["Back without a change"]
                ],
                fields=hidden_fields,
            ),
        ],
        "inbox",
    )


def _show_merge_form(site: Site, request: PageRequest) -> PageBody:
    """Show each place in which both sides changed the same lines, with the choices of a person."""
    number = request.require_number("number")
    proposal = verbs.show_proposal(site.library, number)
    parts = verbs.proposed_parts(site.library, number)
    places = [_draw_parts(path, file_parts) for path, file_parts in parts.items()]
    return PageBody(
        f"Merge proposal {number}",
        [
            h.h1[f"Merge proposal {number}: ", link_or_name(site.library, proposal.ref)],
            h.p(".lead")[
                f"{proposal.ref} changed since version {proposal.base}. What only one side "
                "changed is merged; choose where both changed the same lines."
            ],
            form(
                request.session.csrf,
                action_path("inbox edit"),
                places,
                reason_field("Reason"),
                passphrase_field(site.passphrase_label),
                h.p(".buttons")[
                    h.button(".good", type="submit")["Approve the merge"],
                    h.a(".button", href=f"/inbox/{number}/edit")["Edit the text instead"],
                    h.a(href=f"/inbox/{number}", id="back")["Back without a change"],
                ],
                fields={"number": number, "seen": proposal.head or 0, "merge": 1},
            ),
        ],
        "inbox",
        of=f"merge {number}",
    )


def _draw_parts(path: str, parts: Sequence[MergePart]) -> Node:
    drawn: list[Node] = []
    for place, part in enumerate(parts):
        if part.both:
            lines = part.both.splitlines(keepends=True)
            if len(lines) > 2 * CONTEXT:
                lines = [*lines[:CONTEXT], "…\n", *lines[-CONTEXT:]]
            drawn.append(h.pre[make_visible("".join(lines))])
            continue
        field, texts = f"part:{path}:{place}", _list_choices(part)
        choices = [
            h.label[
                h.input(type="radio", name=field, value=name, required=True),
                f" {title}",
                h.pre[make_visible(texts[name])] if texts[name] else h.p(".none")["No line."],
            ]
            for name, title in CHOICES.items()
        ]
        legend = h.legend["Both changed these lines"]
        drawn.append(h.fieldset(".part")[legend, h.div(".merge")[choices]])
    return h.section(".file")[h.h2[h.code[make_visible(path)]], drawn]


def _show_session(site: Site, request: PageRequest) -> PageBody:
    """Show the waiting proposals of a session, with the forms that decide on all of them."""
    session = str(request.path["session"])
    waiting = read_waiting(site)
    mine = [
        verbs.show_proposal(site.library, proposal.proposal_id)
        for proposal in waiting
        if proposal.session == session
    ]
    if not mine:
        raise InvalidArgument("Nothing of this session waits.", "The inbox lists what does.")
    for proposal in mine:
        look_at(request, proposal)
    clean = [proposal for proposal in mine if not needs_own_look(proposal) and shown_hash(proposal)]
    left = len(mine) - len(clean)
    text = (
        f"{left} of them {'asks' if left == 1 else 'ask'} for a look by itself, and no approval "
        "together has it."
    )
    note = h.p(".none")[text] if left else None
    main = [
        h.h1[f"Session {one_line(session, 60)}: {len(mine)} proposals"],
        [[draw_change(site, proposal), draw_findings(proposal)] for proposal in mine],
        h.section(id="decide")[note, decision_forms(site, request, mine, clean)],
        own_reason() if clean else None,
    ]
    return PageBody(f"Session {session}", main, "inbox")


VIEWS = (
    PageView("/inbox", _show_inbox),
    PageView("/inbox/decided", _show_decided),
    PageView("/inbox/{number:int}", _show_proposal),
    PageView("/inbox/{number:int}/edit", _show_edit_form),
    PageView("/inbox/{number:int}/merge", _show_merge_form),
    PageView("/inbox/session/{session:path}", _show_session),
)

ACTIONS = (
    PageAction("inbox approve", _approve),
    PageAction("inbox edit", _edit),
    PageAction("inbox reject", _reject),
    PageAction("inbox reopen", _reopen),
)
