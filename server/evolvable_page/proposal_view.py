"""One proposal as the inbox shows it: the difference, what the scan found, the decision, and what helps to decide."""

from collections.abc import Sequence
from hashlib import sha256

from evolvable_page import elements as h
from evolvable_page.decision_notes import link_or_name, proposal_line, take_back_forms
from evolvable_page.diff_view import draw_diff
from evolvable_page.elements import Node
from evolvable_page.layout import form, passphrase_field, resource_address, share_bar, swapping, tag, when, with_code
from evolvable_page.site import PageRequest, Site, action_path
from evolvable_page.text import make_visible, one_line, quoted
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


def asks(shown: WaitingProposal) -> bool:
    """Return whether a person has to look at a proposal by itself: for a finding of the scan, or for a conflict."""
    return bool(shown.blocked) or any(str(one.severity) in _SEVERITIES for one in shown.findings)


def shown_hash(shown: WaitingProposal) -> str:
    """Return the hash of everything that a proposal shows to a person, '' where its difference was cut."""
    diff = shown.diff or ""
    # A person who saw a part has not seen the proposal, so it is never approved together with others.
    if diff.endswith(CUT):
        return ""
    return sha256(repr((shown.head, shown.base, shown.removes, diff)).encode("utf-8", "replace")).hexdigest()


def look_at(asked: PageRequest, shown: WaitingProposal) -> None:
    """Note that the person of a request is shown all of a proposal about which nothing is asked."""
    # A tab in the background reads its live parts by itself, and nobody looks at it.
    if not asked.by_itself and shown.state == OPEN and not asks(shown) and (found := shown_hash(shown)):
        asked.session.look_at(shown.proposal_id, found)


def draw_proposal(site: Site, asked: PageRequest, shown: WaitingProposal, waiting: Sequence[WaitingProposal]) -> Node:
    """Return one proposal: difference, findings, decision, then what helps to decide."""
    return h.article(".proposal", id="proposal", tabindex="-1", data_live=True, aria_label="Proposal")[
        _steps(shown, waiting),
        draw_change(site, shown),
        draw_findings(shown),
        _decision(site, asked, shown),
        own_reason() if shown.state == OPEN else None,
        h.div(".why")[
            _reason(shown),
            _evidence(shown.grounds, shown.session),
            _capabilities("It can now also", shown.gains),
            _capabilities("It can no longer", shown.loses),
            _use(site, shown),
        ],
        _same_session(shown, waiting),
    ]


def _steps(shown: WaitingProposal, waiting: Sequence[WaitingProposal]) -> Node:
    """Return where the proposal stands in the list, and the links to its neighbours."""
    ids = [one.proposal_id for one in waiting]
    before, after = (
        [one for one in ids if one < shown.proposal_id],
        [one for one in ids if one > shown.proposal_id],
    )
    place = f"{len(before) + 1} of {len(ids)}" if shown.proposal_id in ids else "decided"
    return h.p(".steps")[
        h.span(".none")[place],
        _step("previous", "k", before[-1]) if before else None,
        _step("next", "j", after[0]) if after else None,
    ]


def _step(name: str, key: str, number: int) -> Node:
    said = {"id": name, "rel": name[:4], "aria_keyshortcuts": key}
    return [" ", h.a(href=f"/inbox/{number}", **said)[name.capitalize()]]


def draw_change(site: Site, shown: WaitingProposal) -> Node:
    """Return the subject and the difference of a proposal; of a conflict both sides first."""
    if shown.removes:
        what = f"Proposes to remove version {shown.base}"
    elif shown.base:
        what = f"Made from version {shown.base}"
    else:
        what = "A new resource"
    return [
        h.h1[f"Proposal {shown.proposal_id}: ", link_or_name(site.library, shown.ref)],
        h.p(".lead")[one_line(shown.reason, MAX_REASON)] if shown.reason else None,
        h.p(".none")[
            f"{what} by {shown.actor}, ",
            when(shown.at),
            _session(shown.session),
            f", proposed {shown.times} times" if shown.times > 1 else None,
            f". It changes {', '.join(map(make_visible, shown.files))}." if shown.files else ".",
        ],
        h.p(".warning")[f"It removes {make_visible(shown.ref)}; the versions stay."] if shown.removes else None,
        _stale(shown),
        [h.h2["Both sides of each conflict"], draw_diff(shown.sides), h.h2["The difference"]] if shown.sides else None,
        draw_diff(shown.diff or "") if not shown.removes else None,
    ]


def _stale(shown: WaitingProposal) -> Node:
    """Return the note on a proposal whose resource changed since, and the time when it expires."""
    found: list[Node] = []
    if shown.blocked:
        found.append(h.p(".warning")[with_code(make_visible(shown.blocked))])
    elif shown.head not in (shown.base, None) and not shown.removes and shown.state == OPEN:
        merged = f"{shown.ref} is at version {shown.head} now; the difference shows the two merged."
        since = resource_address(shown.ref, **{"from": shown.base, "to": shown.head})
        found.append(h.p(".warning")[merged, " ", h.a(href=since)["What changed since"] if shown.base else None])
    if shown.expires:
        found.append(h.p(".none")["It expires ", when(shown.expires), "."])
    return found


def draw_findings(shown: WaitingProposal) -> Node:
    """Return the findings of the scan in a proposal."""
    if not shown.findings:
        return h.p(".none", id=f"findings-{shown.proposal_id}")["The scan found nothing."]
    rows = [
        h.li[tag(str(one.severity), _SEVERITIES.get(str(one.severity), "")), h.span(".grow")[make_visible(str(one))]]
        for one in shown.findings
    ]
    return h.section(id=f"findings-{shown.proposal_id}")[h.h2["The scan found"], h.ul(".rows")[rows]]


def _session(session: str | None) -> Node:
    if not session:
        return None
    return [", session ", h.a(href=f"/sessions/{quoted(session)}")[one_line(session, 24)]]


def _reason(shown: WaitingProposal) -> Node:
    if len(shown.reason) <= MAX_REASON and "\n" not in shown.reason:
        return None
    return h.section[h.h2["Why"], h.blockquote[make_visible(shown.reason)]]


def _decision(site: Site, asked: PageRequest, shown: WaitingProposal) -> Node:
    """Return the forms that decide; what became of a proposal that is decided already."""
    if shown.state != OPEN:
        proposal = site.library.store.backend.proposals.get(shown.proposal_id)
        said = h.div(".warning", role="status")[
            h.p[f"Proposal {shown.proposal_id} is {shown.state} already."], h.p[proposal_line(site.library, proposal)]
        ]
        return h.section(id="decide", aria_label="Decision")[said, take_back_forms(site, asked, [proposal])]
    address, further = f"/inbox/{shown.proposal_id}", list[Node]()
    if shown.sides:
        further.append(h.a(".button", href=f"{address}/merge", id="merge", aria_keyshortcuts="m")["Merge by hand"])
    if verbs.changes_text(site.library, shown.proposal_id):
        edit = h.a(".button", href=f"{address}/edit", id="edit", aria_keyshortcuts="e")
        further.append(edit["Edit, then approve"])
    return h.section(id="decide", aria_label="Decision")[
        _summary(shown.findings, shown.proposal_id), decision_forms(site, asked, [shown], [shown], further)
    ]


def _summary(findings: Sequence[Finding], number: int) -> Node:
    """Return in a line how many findings ask a question, as the bar with the buttons hides what is above it."""
    counts = {level: sum(str(one.severity) == level for one in findings) for level in _SEVERITIES}
    words = [tag(f"{count} {level}", _SEVERITIES[level]) for level, count in counts.items() if count]
    if not words:
        return None
    link = h.a(href=f"#findings-{number}")["Read what the scan found"]
    return h.p[[[word, " "] for word in words], link, " before you approve."]


def decision_forms(
    site: Site,
    asked: PageRequest,
    shown: Sequence[WaitingProposal],
    approvable: Sequence[WaitingProposal],
    further: Sequence[Node] = (),
) -> Node:
    """Return one form that approves and another that rejects; those of a single proposal have keys.

    approvable: those that may be approved together. further: stands beside the first form.
    """
    single, csrf = len(shown) == 1, asked.session.csrf
    keys = {name: {"id": name, "aria_keyshortcuts": name[0]} if single else {} for name in ("approve", "reject")}
    these = "" if single else f" these {len(shown)}"
    reject = h.button(".bad", type="submit", **keys["reject"])[f"Reject{these}"]
    why = reason_field("Reason to reject", **({"id": "reason"} if single else {}))
    numbers = [h.input(type="hidden", name="number", value=str(one.proposal_id)) for one in shown]
    against = form(csrf, action_path("inbox reject"), numbers, why, reject, class_="against", **swapping())
    if not approvable:
        return h.div(".decide")[further, against]
    approve: Node = h.button(".good", type="submit", **keys["approve"])[
        "Approve" if single else f"Approve these {len(approvable)}"
    ]
    if single and shown[0].sides:
        approve = h.button(".good", type="submit", name="take", value="1")["Approve with the lines of the proposal"]
    return h.div(".decide")[
        form(
            csrf,
            action_path("inbox approve"),
            *(seen_fields(approvable), passphrase_field(site.passphrase_label), approve),
            id="approve-form",
            **swapping(),
        ),
        further,
        against,
    ]


def own_reason() -> Node:
    """Return the folded field for a reason to approve; it stands below the bar with the buttons."""
    own = reason_field("Reason to approve", form="approve-form")
    return h.details[h.summary["Approve with a reason of your own"], own]


def seen_fields(shown: Sequence[WaitingProposal]) -> Node:
    """Return the hidden fields that name proposals, with the version of its resource that each was shown with."""
    return [
        [
            h.input(type="hidden", name="number", value=str(one.proposal_id)),
            # The approval fails where the resource has another version by then.
            h.input(type="hidden", name="seen", value=str(one.head or 0)),
        ]
        for one in shown
    ]


def reason_field(label: str, **attributes: str) -> Node:
    """Return the field for the reason of a decision."""
    return h.label[f"{label} ", h.input(type="text", name="reason", maxlength="2000", autocomplete="off", **attributes)]


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


def _capabilities(what: str, names: Sequence[str]) -> Node:
    return h.section[h.h2[what], h.ul[[h.li[make_visible(name)] for name in names]]] if names else None


def _use(site: Site, shown: WaitingProposal) -> Node:
    """Return the uses of the version that the proposal changes, with their outcomes."""
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
