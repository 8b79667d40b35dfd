"""The inbox: one proposal at a time with its difference and its reasons, decided by forms; all of a session at once."""

from collections.abc import Sequence

import htpy as h
from htpy import Node

from evolvable_page.changed_list import draw_changed, link_changed
from evolvable_page.decision_notes import (
    decision_note,
    link_or_name,
    next_address,
    proposal_line,
    take_back_forms,
)
from evolvable_page.diff_view import draw_diff
from evolvable_page.layout import (
    PageBody,
    form,
    passphrase_field,
    share_bar,
    swapping,
    tag,
    when,
)
from evolvable_page.parts import page_parts
from evolvable_page.site import MOST_WAITING, PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, one_line, quoted, restore_line_ends
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_store.storage import OPEN, REJECTED
from evolvable_tools import Library, verbs
from evolvable_tools.outcomes import stats
from evolvable_tools.scan import Finding
from evolvable_tools.verbs import Decided, Grounds, WaitingProposal
from evolvable_tools.verbs.library_status import first_request

KEYS = "Keys: a approve, r reject, e edit, j next, k previous, u take back, ? all keys."

_HOW = "in the local page"

MAX_EDITED = 40
"""Files of a proposal that are edited in one form."""


def _inbox(site: Site, asked: PageRequest) -> PageBody | str:
    """Lead to the first proposal that waits, or say that none does.

    Each proposal has an address of its own, so that a live part of its page never shows another one.
    """
    waiting = verbs.list_waiting(site.library, 1)
    if waiting:
        return next_address(f"/inbox/{waiting[0].proposal_id}", asked)
    empty = h.p["Nothing waits for a decision. What agents and reviews propose appears here by itself."]
    live = h.div(id="inbox", data_live=True)[empty, _first_steps(site), _waiting_parts(site)]
    changed = draw_changed(site, asked)
    return PageBody("Inbox", [h.h1["Inbox"], decision_note(site, asked), live, changed], "inbox")


def _first_steps(site: Site) -> Node:
    """Return how the first proposal comes about, nothing once one was decided."""
    words = first_request(site.library, site.caller)
    if words is None:
        return None
    if not words:
        return h.p["The library holds no skill yet: run ", h.code["evolvable quickstart"], " in a terminal."]
    return h.section[
        h.h2["The first proposal"],
        h.ol[
            h.li["Connect your client, in a terminal: ", h.code["evolvable connect claude-code"], " (or another one)."],
            h.li["Say to it: ", h.q[make_visible(words)]],
            h.li["Its proposal appears here by itself. Read it: the key a approves it, r rejects it."],
        ],
    ]


def _waiting_parts(site: Site) -> list[Node]:
    """Return what waits for the person in other parts of the program."""
    return [part.waiting(site) for part in page_parts() if part.waiting is not None]


def _proposal(site: Site, asked: PageRequest) -> PageBody:
    """Show one proposal."""
    waiting = verbs.list_waiting(site.library, MOST_WAITING)
    done, shown = decision_note(site, asked), verbs.show_proposal(site.library, asked.needed("number"))
    queue = _queue(waiting, shown.proposal_id, [link_changed(site), *_waiting_parts(site)])
    parts = h.div(".inbox")[_left(site, shown), _right(site, asked, shown, waiting), queue]
    main = [done, parts, h.p(".keys")[KEYS]]
    return PageBody(f"{shown.ref} · Inbox", main, "inbox", of=f"proposal {shown.proposal_id}")


def _left(site: Site, shown: WaitingProposal) -> Node:
    if shown.removes:
        what = f"Proposes to remove version {shown.base}"
    elif shown.base:
        what = f"Made from version {shown.base}"
    else:
        what = "A new resource"
    return h.article(".left", aria_label="Difference")[
        h.h1["Proposal ", str(shown.proposal_id), ": ", link_or_name(site.library, shown.ref)],
        h.p(".none")[f"{what}. ", f"It changes {', '.join(map(make_visible, shown.files))}." if shown.files else None],
        h.p(".warning")[f"It removes {make_visible(shown.ref)}; the versions stay."] if shown.removes else None,
        draw_diff(shown.diff or "") if not shown.removes else None,
        [h.h2["Both sides of each conflict"], draw_diff(shown.sides)] if shown.sides else None,
    ]


def _right(site: Site, asked: PageRequest, shown: WaitingProposal, waiting: Sequence[WaitingProposal]) -> Node:
    return h.aside(".right", aria_label="Why")[
        h.h2["Why"],
        h.blockquote[make_visible(shown.reason)],
        h.p(".none")[
            f"By {shown.actor}, ",
            when(shown.at),
            _session(shown.session),
            f", proposed {shown.times} times" if shown.times > 1 else None,
        ],
        _decision(site, asked, shown),
        _notes(shown),
        _evidence(shown.grounds, shown.session),
        _findings(shown.findings),
        _capabilities("It can now also", shown.gains),
        _capabilities("It can no longer", shown.loses),
        _use(site, shown),
        _same_session(shown, waiting),
    ]


def _session(session: str | None) -> Node:
    if not session:
        return None
    return [", session ", h.a(href=f"/sessions/{quoted(session)}")[one_line(session, 24)]]


def _decision(site: Site, asked: PageRequest, shown: WaitingProposal) -> Node:
    """Return the forms that decide; what became of a proposal that is decided already."""
    if shown.state != OPEN:
        proposal = site.library.store.backend.proposals.get(shown.proposal_id)
        said = h.div(".warning", role="status")[
            h.p[f"Proposal {shown.proposal_id} is {shown.state} already."], h.p[proposal_line(site.library, proposal)]
        ]
        return h.section(id="decide", data_live=True)[said, take_back_forms(site, asked, [proposal])]
    edit = None
    if verbs.changes_text(site.library, shown.proposal_id):
        edit = h.a(href=f"/inbox/{shown.proposal_id}/edit", id="edit", aria_keyshortcuts="e")
    return h.section(id="decide", data_live=True)[
        _decision_forms(site, asked, [shown]), h.p[edit["Edit, then approve"]] if edit is not None else None
    ]


def _decision_forms(site: Site, asked: PageRequest, shown: Sequence[WaitingProposal]) -> Node:
    """Return one form that approves and another that rejects; those of a single proposal have keys."""
    single = len(shown) == 1
    these, csrf = "" if single else f" these {len(shown)}", asked.session.csrf
    numbers = [h.input(type="hidden", name="number", value=str(one.proposal_id)) for one in shown]
    seen = [h.input(type="hidden", name="seen", value=str(one.head or 0)) for one in shown]
    keys = {name: {"id": name, "aria_keyshortcuts": name[0]} if single else {} for name in ("approve", "reject")}
    approve: Node = h.button(".good", type="submit", **keys["approve"])[f"Approve{these}"]
    if single and shown[0].sides:
        approve = h.button(".good", type="submit", name="take", value="1")["Approve with the lines of the proposal"]
    reject = h.button(".bad", type="submit", **keys["reject"])
    why = _reason_field("Reason to reject", **({"id": "reason"} if single else {}))
    own = _reason_field("Reason to approve", form="approve-form")
    return [
        form(
            csrf,
            action_path("inbox approve"),
            *(numbers, seen, passphrase_field(site.passphrase_label), approve),
            id="approve-form",
            **swapping(),
        ),
        form(
            csrf,
            action_path("inbox reject"),
            *(numbers, why, reject[f"Reject{these}"]),
            class_="line",
            **swapping(),
        ),
        h.details[h.summary["Approve with a reason of your own"], own],
    ]


def _reason_field(label: str, **attributes: str) -> Node:
    return h.label[f"{label} ", h.input(type="text", name="reason", maxlength="2000", autocomplete="off", **attributes)]


def _notes(shown: WaitingProposal) -> Node:
    found: list[Node] = []
    if shown.blocked:
        found.append(h.p(".warning")[make_visible(shown.blocked)])
    elif shown.head not in (shown.base, None) and not shown.removes:
        merged = f"{shown.ref} is at version {shown.head} now; the difference shows the two merged."
        found.append(h.p(".warning")[merged])
    if shown.expires:
        found.append(h.p(".none")["It expires ", when(shown.expires), "."])
    return found


def _evidence(grounds: Grounds | None, session: str | None) -> Node:
    if grounds is None:
        return None
    quotes = [
        h.li[
            h.q[make_visible(one.quote)],
            h.span(".none")[
                f" {one.origin}, ",
                h.a(href=f"/sessions/{quoted(one.session)}#turn-{one.turn}")[f"turn {one.turn}"],
                f" of session {one_line(one.session, 24)}" if one.session != session else None,
            ],
        ]
        for one in grounds.evidence
    ]
    said = {"Against it": grounds.counter_evidence, "Shows itself by": grounds.expected_signal, "Risk": grounds.risk}
    cost = ", ".join(f"{key} {value}" for key, value in grounds.cost.items())
    return h.section[
        h.h2["Evidence"],
        h.p[f"A {make_visible(grounds.what)}. It rests on:"],
        h.ul(".quotes")[quotes],
        h.dl[[[h.dt[name], h.dd[make_visible(text)]] for name, text in said.items() if text]],
        [h.p(".none")["Similar: ", one_line(near)] for near in grounds.near],
        h.p(".none")[f"Cost: {one_line(cost)}"] if cost else None,
    ]


def _findings(findings: Sequence[Finding]) -> Node:
    if not findings:
        return h.p(".none")["The scan found nothing."]
    kinds = {"high": "bad", "medium": "doubtful"}
    rows = [
        h.li[tag(str(one.severity), kinds.get(str(one.severity), "")), " ", make_visible(str(one))] for one in findings
    ]
    return h.section[h.h2["Scan"], h.ul[rows]]


def _capabilities(what: str, names: Sequence[str]) -> Node:
    return h.section[h.h2[what], h.ul[[h.li[make_visible(name)] for name in names]]] if names else None


def _use(site: Site, shown: WaitingProposal) -> Node:
    """Return who uses the version that the proposal changes, and how that fares."""
    head = site.library.store.head_or_none(Ref.parse(shown.ref))
    if head is None or head.version is None:
        return None
    (line,) = stats(site.library, site.caller, head.ref).resources
    places = site.library.store.backend.bindings.places([head.id])
    folders = [str(folder.path / binding.directory) for folder, binding, _ in places]
    return h.section[
        h.h2["Who uses it"],
        h.p[f"Version {head.version}: shown {line.shown} times, opened {line.loaded}, used {line.used}."],
        h.p["Helped: ", share_bar(line.helped)],
        h.ul[[h.li[h.code[make_visible(folder)]] for folder in folders[:10]]] if folders else None,
    ]


def _same_session(shown: WaitingProposal, waiting: Sequence[WaitingProposal]) -> Node:
    same = [one for one in waiting if one.session and one.session == shown.session]
    if len(same) < 2 or not shown.session:
        return None
    said = f"All {len(same)} that this session led to"
    return h.p[h.a(href=f"/inbox/session/{quoted(shown.session)}")[said]]


def _queue(waiting: Sequence[WaitingProposal], current: int, below: Node) -> Node:
    ids = [one.proposal_id for one in waiting]
    before, after = [one for one in ids if one < current], [one for one in ids if one > current]
    links = [
        h.li[
            h.a(href=f"/inbox/{one.proposal_id}", aria_current="true" if one.proposal_id == current else None)[
                f"{one.proposal_id} ", one_line(one.ref, 60)
            ],
            h.span(".none")[" ", one_line(one.reason, 80)],
            " high finding" if any(str(found.severity) == "high" for found in one.findings) else None,
        ]
        for one in waiting
    ]
    more = h.p(".none")[f"The oldest {MOST_WAITING} are listed."] if len(waiting) == MOST_WAITING else None
    return h.nav(".queue", id="queue", tabindex="-1", aria_label="Proposals that wait", data_live=True)[
        h.h2[f"{len(waiting)} wait" if len(waiting) != 1 else "1 waits"],
        h.p[
            h.a(href=f"/inbox/{before[-1]}", id="previous", rel="prev", aria_keyshortcuts="k")["Previous"]
            if before
            else None,
            " ",
            h.a(href=f"/inbox/{after[0]}", id="next", rel="next", aria_keyshortcuts="j")["Next"] if after else None,
        ],
        h.ol[links],
        more,
        below,
    ]


def _approve(site: Site, asked: PageRequest) -> str:
    numbers = _numbers(asked)
    caller = site.decider(asked)
    taken = verbs.proposed_lines(site.library, numbers[0]) if asked.get("take") and len(numbers) == 1 else {}
    decided = verbs.approve_together(
        site.library, caller, numbers, asked.get("reason"), _HOW, edited=taken, seen=_seen(numbers, asked)
    )
    return _after(site.library, decided)


def _edit(site: Site, asked: PageRequest) -> str:
    number = asked.needed("number")
    texts = verbs.proposed_texts(site.library, number)
    sent = {path: asked.get(f"text:{path}") for path in texts if f"text:{path}" in asked.fields}
    saved = {path: restore_line_ends(text, texts[path]) for path, text in sent.items()}
    edited = {path: text for path, text in saved.items() if text != texts[path]}
    caller = site.decider(asked)
    decided = verbs.approve_together(
        site.library, caller, [number], asked.get("reason"), _HOW, edited=edited, seen=_seen([number], asked)
    )
    return _after(site.library, decided)


def _reject(site: Site, asked: PageRequest) -> str:
    """Reject the proposals that the form names, or none of them where one is decided already."""
    proposals, numbers = site.library.store.backend.proposals, _numbers(asked)
    for number in numbers:
        if (state := proposals.get(number).state) != OPEN:
            raise InvalidArgument(f"Proposal {number} is {state} already; nothing was rejected.", "Look at it again.")
    return _after(
        site.library,
        [verbs.reject(site.library, number, asked.get("reason"), site.caller) for number in numbers],
    )


def _reopen(site: Site, asked: PageRequest) -> str:
    """Let those of the proposals wait again that are still rejected."""
    proposals, numbers = site.library.store.backend.proposals, _numbers(asked)
    for number in [one for one in numbers if proposals.get(one).state == REJECTED] or numbers[:1]:
        verbs.reopen(site.library, site.caller, number)
    return f"/inbox/{numbers[0]}?done={','.join(map(str, numbers))}"


def _numbers(asked: PageRequest) -> list[int]:
    """Return the proposals that a form names: those that the person saw, and no other of their session."""
    texts = asked.fields.get("number", ())
    if not texts or not all(text.isascii() and text.isdigit() and len(text) < 16 for text in texts):
        raise InvalidArgument("The form names no proposal.", "Follow a link of the page.")
    return [int(text) for text in texts]


def _seen(numbers: Sequence[int], asked: PageRequest) -> dict[int, int | None] | None:
    """Return by proposal the version of its resource that the form showed it with; None for a request without them."""
    texts = asked.fields.get("seen", ())
    known = (int(text) if text.isascii() and text.isdigit() and len(text) < 16 else -1 for text in texts)
    return dict(zip(numbers, known, strict=False)) if texts else None


def _after(library: Library, decided: Sequence[Decided]) -> str:
    """Return the address of the next proposal, with what was decided."""
    done = ",".join(str(one.proposal_id) for one in decided)
    ids = [one.proposal_id for one in verbs.list_waiting(library, MOST_WAITING)]
    following = next((one for one in ids if one > decided[-1].proposal_id), ids[0] if ids else None)
    return f"/inbox/{following}?done={done}" if following else f"/inbox?done={done}"


def _edit_form(site: Site, asked: PageRequest) -> PageBody:
    """Show the texts of a proposal in fields; what is saved is approved."""
    number = asked.needed("number")
    shown = verbs.show_proposal(site.library, number)
    texts = dict(list(verbs.proposed_texts(site.library, number).items())[:MAX_EDITED])
    fields = [
        h.label(".text")[
            h.code[make_visible(path)],
            h.textarea(name=f"text:{path}", rows="24", spellcheck="false")["\n" + text],
        ]
        for path, text in texts.items()
    ]
    button = h.button(".good", type="submit")["Save and approve"]
    named = {"number": number, "seen": shown.head or 0}
    return PageBody(
        f"Edit proposal {number}",
        [
            h.h1[f"Edit proposal {number}: ", link_or_name(site.library, shown.ref)],
            form(
                asked.session.csrf,
                action_path("inbox edit"),
                fields,
                _reason_field("Reason"),
                passphrase_field(site.passphrase_label),
                h.p(".buttons")[button, " ", h.a(href=f"/inbox/{number}", id="back")["Back without a change"]],
                fields=named,
            ),
        ],
        "inbox",
    )


def _session_form(site: Site, asked: PageRequest) -> PageBody:
    """Show all that a session led to, and decide on it together."""
    session = str(asked.path["session"])
    waiting = verbs.list_waiting(site.library, MOST_WAITING)
    mine = [verbs.show_proposal(site.library, one.proposal_id) for one in waiting if one.session == session]
    if not mine:
        raise InvalidArgument("Nothing of this session waits.", "The inbox lists what does.")
    return PageBody(
        f"Session {session}",
        [
            h.h1[f"Session {one_line(session, 60)}: {len(mine)} proposals"],
            h.section(id="decide")[_decision_forms(site, asked, mine)],
            [
                [_left(site, one), h.blockquote[make_visible(one.reason)], _notes(one), _findings(one.findings)]
                for one in mine
            ],
        ],
        "inbox",
    )


VIEWS = (
    PageView("/", _inbox),
    PageView("/inbox", _inbox),
    PageView("/inbox/{number:int}", _proposal),
    PageView("/inbox/{number:int}/edit", _edit_form),
    PageView("/inbox/session/{session:path}", _session_form),
)

ACTIONS = (
    PageAction("inbox approve", _approve),
    PageAction("inbox edit", _edit),
    PageAction("inbox reject", _reject),
    PageAction("inbox reopen", _reopen),
)
