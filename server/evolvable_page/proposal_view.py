"""One proposal in the inbox: its difference, the findings of the scan, the forms that decide, and
its evidence.
"""

from collections.abc import Sequence
from hashlib import sha256

from evolvable_page import elements as h
from evolvable_page.decision_notes import link_or_name, proposal_line, take_back_forms
from evolvable_page.diff_view import draw_diff
from evolvable_page.elements import Node
from evolvable_page.layout import (
    form,
    passphrase_field,
    resource_address,
    share_bar,
    swapping,
    tag,
    when,
    with_code,
)
from evolvable_page.site import PageRequest, Site, action_path
from evolvable_page.text import make_visible, one_line, quote_part
from evolvable_store.resource import Ref
from evolvable_store.storage import OPEN
from evolvable_tools import verbs
from evolvable_tools.outcomes import stats
from evolvable_tools.scan import Finding
from evolvable_tools.verbs import CUT, Grounds, WaitingProposal

# About three lines at the width of the page, so that the difference begins on the first screen.
MAX_REASON = 240
"""Characters of a reason that stand above the difference; a longer one stands whole below it."""

_SEVERITIES = {"high": "bad", "medium": "doubtful"}
"""Severities about which a person is asked -> how they are marked."""


def needs_own_look(proposal: WaitingProposal) -> bool:
    """Return whether a person has to look at a proposal by itself: for a finding of the scan, or
    for a conflict.
    """
    return bool(proposal.blocked) or any(
        str(finding.severity) in _SEVERITIES for finding in proposal.findings
    )


def shown_hash(proposal: WaitingProposal) -> str:
    """Return the hash of everything that a proposal shows to a person, '' where its difference was
    cut.
    """
    diff = proposal.diff or ""
    # A person who saw a part has not seen the proposal, so it is never approved together with
    # others.
    if diff.endswith(CUT):
        return ""
    content = repr((proposal.head, proposal.base, proposal.removes, diff))
    return sha256(content.encode("utf-8", "replace")).hexdigest()


def look_at(request: PageRequest, proposal: WaitingProposal) -> None:
    """Note that the person of a request is shown all of a proposal, unless it needs a look of its
    own.
    """
    # A tab in the background reads its live parts by itself, and nobody looks at it.
    if request.by_itself or proposal.state != OPEN or needs_own_look(proposal):
        return
    if content_hash := shown_hash(proposal):
        request.session.look_at(proposal.proposal_id, content_hash)


def draw_proposal(
    site: Site, request: PageRequest, proposal: WaitingProposal, waiting: Sequence[WaitingProposal]
) -> Node:
    """Return one proposal: difference, findings, decision, then its evidence and its use."""
    article = h.article(
        ".proposal", id="proposal", tabindex="-1", data_live=True, aria_label="Proposal"
    )
    return article[
        _draw_steps(proposal, waiting),
        draw_change(site, proposal),
        draw_findings(proposal),
        _draw_decision(site, request, proposal),
        own_reason() if proposal.state == OPEN else None,
        h.div(".why")[
            _draw_reason(proposal),
            _draw_evidence(proposal.grounds, proposal.session),
            _draw_capabilities("It can now also", proposal.gains),
            _draw_capabilities("It can no longer", proposal.loses),
            _draw_use(site, proposal),
        ],
        _link_same_session(proposal, waiting),
    ]


def _draw_steps(proposal: WaitingProposal, waiting: Sequence[WaitingProposal]) -> Node:
    """Return where the proposal stands in the list, and the links to its neighbours."""
    ids = [other.proposal_id for other in waiting]
    before = [proposal_id for proposal_id in ids if proposal_id < proposal.proposal_id]
    after = [proposal_id for proposal_id in ids if proposal_id > proposal.proposal_id]
    place = f"{len(before) + 1} of {len(ids)}" if proposal.proposal_id in ids else "decided"
    return h.p(".steps")[
        h.span(".none")[place],
        _draw_step("previous", "k", before[-1]) if before else None,
        _draw_step("next", "j", after[0]) if after else None,
    ]


def _draw_step(name: str, key: str, number: int) -> Node:
    attributes = {"id": name, "rel": name[:4], "aria_keyshortcuts": key}
    return [" ", h.a(href=f"/inbox/{number}", **attributes)[name.capitalize()]]


def draw_change(site: Site, proposal: WaitingProposal) -> Node:
    """Return the subject and the difference of a proposal, after both sides of each conflict."""
    if proposal.removes:
        what = f"Proposes to remove version {proposal.base}"
    elif proposal.base:
        what = f"Made from version {proposal.base}"
    else:
        what = "A new resource"
    files = ", ".join(map(make_visible, proposal.files))
    removes = h.p(".warning")[f"It removes {make_visible(proposal.ref)}; the versions stay."]
    sides: Node = None
    if proposal.sides:
        title = h.h2["Both sides of each conflict"]
        sides = [title, draw_diff(proposal.sides), h.h2["The difference"]]
    return [
        h.h1[f"Proposal {proposal.proposal_id}: ", link_or_name(site.library, proposal.ref)],
        h.p(".lead")[one_line(proposal.reason, MAX_REASON)] if proposal.reason else None,
        h.p(".none")[
            f"{what} by {proposal.actor}, ",
            when(proposal.at),
            _link_session(proposal.session),
            f", proposed {proposal.times} times" if proposal.times > 1 else None,
            f". It changes {files}." if proposal.files else ".",
        ],
        removes if proposal.removes else None,
        _draw_stale(proposal),
        sides,
        draw_diff(proposal.diff or "") if not proposal.removes else None,
    ]


def _draw_stale(proposal: WaitingProposal) -> Node:
    """Return the note on a proposal whose resource changed since, and the time when it expires."""
    notes: list[Node] = []
    is_behind = proposal.head not in (proposal.base, None)
    if proposal.blocked:
        notes.append(h.p(".warning")[with_code(make_visible(proposal.blocked))])
    elif is_behind and not proposal.removes and proposal.state == OPEN:
        merged = (
            f"{proposal.ref} is at version {proposal.head} now; the difference shows the "
            "two merged."
        )
        since = resource_address(proposal.ref, **{"from": proposal.base, "to": proposal.head})
        link = h.a(href=since)["What changed since"] if proposal.base else None
        notes.append(h.p(".warning")[merged, " ", link])
    if proposal.expires:
        notes.append(h.p(".none")["It expires ", when(proposal.expires), "."])
    return notes


def draw_findings(proposal: WaitingProposal) -> Node:
    """Return the findings of the scan in a proposal."""
    if not proposal.findings:
        return h.p(".none", id=f"findings-{proposal.proposal_id}")["The scan found nothing."]
    rows = [
        h.li[
            tag(str(finding.severity), _SEVERITIES.get(str(finding.severity), "")),
            h.span(".grow")[make_visible(str(finding))],
        ]
        for finding in proposal.findings
    ]
    section = h.section(id=f"findings-{proposal.proposal_id}")
    return section[h.h2["The scan found"], h.ul(".rows")[rows]]


def _link_session(session: str | None) -> Node:
    if not session:
        return None
    return [", session ", h.a(href=f"/sessions/{quote_part(session)}")[one_line(session, 24)]]


def _draw_reason(proposal: WaitingProposal) -> Node:
    if len(proposal.reason) <= MAX_REASON and "\n" not in proposal.reason:
        return None
    return h.section[h.h2["Why"], h.blockquote[make_visible(proposal.reason)]]


def _draw_decision(site: Site, request: PageRequest, waiting_proposal: WaitingProposal) -> Node:
    """Return the forms that decide, or the result for a proposal that is decided already."""
    section = h.section(id="decide", aria_label="Decision")
    if waiting_proposal.state != OPEN:
        proposal = site.library.store.backend.proposals.get(waiting_proposal.proposal_id)
        note = h.div(".warning", role="status")[
            h.p[f"Proposal {waiting_proposal.proposal_id} is {waiting_proposal.state} already."],
            h.p[proposal_line(site.library, proposal)],
        ]
        return section[note, take_back_forms(site, request, [proposal])]
    address, further = f"/inbox/{waiting_proposal.proposal_id}", list[Node]()
    if waiting_proposal.sides:
        merge = h.a(".button", href=f"{address}/merge", id="merge", aria_keyshortcuts="m")
        further.append(merge["Merge by hand"])
    if verbs.changes_text(site.library, waiting_proposal.proposal_id):
        edit = h.a(".button", href=f"{address}/edit", id="edit", aria_keyshortcuts="e")
        further.append(edit["Edit, then approve"])
    return section[
        _summarize_findings(waiting_proposal.findings, waiting_proposal.proposal_id),
        decision_forms(site, request, [waiting_proposal], [waiting_proposal], further),
    ]


def _summarize_findings(findings: Sequence[Finding], number: int) -> Node:
    """Return how many findings ask a question, in a line.

    The line stands in the bar with the buttons, which hides the findings above it.
    """
    counts = {
        level: sum(str(finding.severity) == level for finding in findings) for level in _SEVERITIES
    }
    words = [
        tag(f"{count} {level}", _SEVERITIES[level]) for level, count in counts.items() if count
    ]
    if not words:
        return None
    link = h.a(href=f"#findings-{number}")["Read what the scan found"]
    return h.p[[[word, " "] for word in words], link, " before you approve."]


def decision_forms(
    site: Site,
    request: PageRequest,
    proposals: Sequence[WaitingProposal],
    approvable: Sequence[WaitingProposal],
    further: Sequence[Node] = (),
) -> Node:
    """Return one form that approves and another that rejects, with keys for a single proposal.

    approvable: those that may be approved together. further: nodes beside the first form.
    """
    single, csrf = len(proposals) == 1, request.session.csrf
    keys = {
        name: {"id": name, "aria_keyshortcuts": name[0]} if single else {}
        for name in ("approve", "reject")
    }
    these = "" if single else f" these {len(proposals)}"
    reject = h.button(".bad", type="submit", **keys["reject"])[f"Reject{these}"]
    why = reason_field("Reason to reject", **({"id": "reason"} if single else {}))
    numbers = [
        h.input(type="hidden", name="number", value=str(proposal.proposal_id))
        for proposal in proposals
    ]
    against = form(
        csrf, action_path("inbox reject"), numbers, why, reject, class_="against", **swapping()
    )
    if not approvable:
        return h.div(".decide")[further, against]
    words = "Approve" if single else f"Approve these {len(approvable)}"
    approve: Node = h.button(".good", type="submit", **keys["approve"])[words]
    if single and proposals[0].sides:
        take = h.button(".good", type="submit", name="take", value="1")
        approve = take["Approve with the lines of the proposal"]
    return h.div(".decide")[
        form(
            csrf,
            action_path("inbox approve"),
            seen_fields(approvable),
            passphrase_field(site.passphrase_label),
            approve,
            id="approve-form",
            **swapping(),
        ),
        further,
        against,
    ]


def own_reason() -> Node:
    """Return the folded field for a reason to approve, for the place below the bar with the
    buttons.
    """
    own = reason_field("Reason to approve", form="approve-form")
    return h.details[h.summary["Approve with a reason of your own"], own]


def seen_fields(proposals: Sequence[WaitingProposal]) -> Node:
    """Return the hidden fields that name proposals, each with the version of its resource that was
    shown.
    """
    return [
        [
            h.input(type="hidden", name="number", value=str(proposal.proposal_id)),
            # The approval fails where the resource has another version by then.
            h.input(type="hidden", name="seen", value=str(proposal.head or 0)),
        ]
        for proposal in proposals
    ]


def reason_field(label: str, **attributes: str) -> Node:
    """Return the field for the reason of a decision."""
    return h.label[
        f"{label} ",
        h.input(type="text", name="reason", maxlength="2000", autocomplete="off", **attributes),
    ]


def _draw_evidence(grounds: Grounds | None, session: str | None) -> Node:
    if grounds is None:
        return None
    quotes: list[Node] = []
    for evidence in grounds.evidence:
        address = f"/sessions/{quote_part(evidence.session)}#turn-{evidence.turn}"
        turn = h.a(href=address)[f"turn {evidence.turn}"]
        other = f" of session {one_line(evidence.session, 24)}"
        where = [f" {evidence.origin}, ", turn, other if evidence.session != session else None]
        quotes.append(h.li[h.q[make_visible(evidence.quote)], h.span(".none")[where]])
    statements = {
        "Against it": grounds.counter_evidence,
        "Shows itself by": grounds.expected_signal,
        "Risk": grounds.risk,
    }
    cost = ", ".join(f"{key} {value}" for key, value in grounds.cost.items())
    return h.section[
        h.h2["Evidence"],
        h.p[f"A {make_visible(grounds.what)}. It rests on:"],
        h.ul(".quotes")[quotes],
        h.dl[[[h.dt[name], h.dd[make_visible(text)]] for name, text in statements.items() if text]],
        [h.p(".none")["Similar: ", one_line(near)] for near in grounds.near],
        h.p(".none")[f"Cost: {one_line(cost)}"] if cost else None,
    ]


def _draw_capabilities(what: str, names: Sequence[str]) -> Node:
    if not names:
        return None
    return h.section[h.h2[what], h.ul[[h.li[make_visible(name)] for name in names]]]


def _draw_use(site: Site, proposal: WaitingProposal) -> Node:
    """Return the uses of the version that the proposal changes, with their outcomes."""
    head = site.library.store.head_or_none(Ref.parse(proposal.ref))
    if head is None or head.version is None:
        return None
    (line,) = stats(site.library, site.caller, head.ref).resources
    places = site.library.store.backend.bindings.places([head.id])
    folders = [str(folder.path / binding.directory) for folder, binding, _ in places]
    return h.section[
        h.h2["Who uses it"],
        h.p[
            f"Version {head.version}: shown {line.shown} times, opened {line.loaded}, used "
            f"{line.used}."
        ],
        h.p["Helped: ", share_bar(line.helped)],
        h.ul[[h.li[h.code[make_visible(folder)]] for folder in folders[:10]]] if folders else None,
    ]


def _link_same_session(proposal: WaitingProposal, waiting: Sequence[WaitingProposal]) -> Node:
    same = [other for other in waiting if other.session and other.session == proposal.session]
    if len(same) < 2 or not proposal.session:
        return None
    label = f"All {len(same)} that this session led to"
    return h.p[h.a(href=f"/inbox/session/{quote_part(proposal.session)}")[label]]
