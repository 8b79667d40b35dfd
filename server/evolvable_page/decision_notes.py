"""The notes on the last decision or operation, with the forms that take it back."""

from collections.abc import Mapping, Sequence

from evolvable_page import elements as h
from evolvable_page.elements import Node
from evolvable_page.layout import form, resource_link, swapping, with_code
from evolvable_page.site import MOST_WAITING, PageRequest, Site, action_path
from evolvable_page.text import make_visible, one_line, quote_part
from evolvable_store import Change
from evolvable_store.resource import Ref
from evolvable_store.storage import APPROVED, OPEN, REJECTED, Proposal
from evolvable_tools import Library

# The note stands above the next proposal, which must stay on the first screen.
MAX_NAMED = 5
"""Proposals of one decision that a note names; the others are counted."""

MAX_MOVED = 6
"""Resources that are named of one operation."""

ANSWERS = ("done", "operation", "nothing")
"""Fields of an address that name the last decision or operation."""


def link_or_name(library: Library, ref: object) -> Node:
    """Return a link to a resource, or its name alone where it is only proposed and has no page."""
    exists = library.store.head_or_none(Ref.parse(str(ref))) is not None
    return resource_link(ref) if exists else one_line(str(ref), 120)


def moved_resources(library: Library, operation: int) -> Node:
    """Return links to the resources that an operation changed.

    An import may have changed thousands.
    """
    return moved_by_each(library, [operation])[operation]


def moved_by_each(library: Library, operations: Sequence[int]) -> Mapping[int, Node]:
    """Return the links of `moved_resources` for each of these operations, with one query for all of
    them.
    """
    moved: dict[int, list[Change]] = {number: [] for number in operations}
    # One more than is named, to know whether there are more.
    for change in library.store.backend.first_changes_of(operations, MAX_MOVED + 1):
        moved[change.operation].append(change)
    return {number: _name_changes(changes) for number, changes in moved.items()}


def _name_changes(changes: Sequence[Change]) -> Node:
    names: list[Node] = []
    for change in changes[:MAX_MOVED]:
        to = f"{change.ref}@{change.after}" if change.after else f"{change.ref} removed"
        names.append([resource_link(change.ref, to), " "])
    return [*names, "and more" if len(changes) > MAX_MOVED else None]


def operation_note(site: Site, request: PageRequest) -> Node:
    """Return the result of an undo or another form, by the number of its operation; nothing without
    one.
    """
    number = request.number("operation")
    if number is None:
        if not request.get("nothing"):
            return None
        return h.div(".done", role="status", id="done")[h.p["Nothing had to be changed."]]
    operation = site.library.store.operation(number)
    if operation.intent.undoes:
        text = (
            f"Operation {number} took back operation "
            f"{', '.join(map(str, operation.intent.undoes))}: "
        )
    else:
        text = f"Operation {number}, {make_visible(operation.reason)}: "
    # No key: `u` pressed twice would do again what it took back.
    back = undo_form(request, number, h.button(type="submit")["Take it back"], "/operations")
    remarks = request.session.remarks(number)
    return [
        h.div(".done", role="status", id="done")[
            h.p[text, moved_resources(site.library, number)], back
        ],
        h.div(".warning")[[h.p[with_code(make_visible(line))] for line in remarks]]
        if remarks
        else None,
    ]


def decision_note(site: Site, request: PageRequest) -> Node:
    """Return the last decisions with the forms that take them back.

    Only numbers come from the address.
    """
    numbers = [
        int(text)
        for text in request.get("done").split(",")[:MOST_WAITING]
        if text.isascii() and text.isdigit()
    ]
    if not numbers:
        return operation_note(site, request)
    proposals = [site.library.store.backend.proposals.get(number) for number in numbers]
    lines = [h.p[proposal_line(site.library, proposal)] for proposal in proposals[:MAX_NAMED]]
    more = h.p[f"And {len(proposals) - MAX_NAMED} more."] if len(proposals) > MAX_NAMED else None
    return h.div(".done", role="status", id="done")[
        lines, more, take_back_forms(site, request, proposals, key="u")
    ]


def proposal_line(library: Library, proposal: Proposal) -> Node:
    """Return the present state of a proposal."""
    link = link_or_name(library, proposal.ref)
    text = f"Proposal {proposal.id} is {proposal.state}: "
    if proposal.state == OPEN:
        return [f"Proposal {proposal.id} waits again: ", link, "."]
    if proposal.state == REJECTED:
        why = f" Reason: {one_line(proposal.decision)}" if proposal.decision else ""
        return [text, link, f" stays as it is.{why}"]
    # It expired, or its approval changed nothing.
    if proposal.state != APPROVED or proposal.operation is None:
        return [text, link, "."]
    later = _find_later_operation(library, proposal)
    if later is not None and _is_taken_back(library, proposal):
        taken_back = f"Proposal {proposal.id} was approved, and operation {later} took it back: "
        return [taken_back, link, "."]
    since = f" Operation {later} changed it since." if later is not None else ""
    return [
        text,
        moved_resources(library, proposal.operation),
        f"by operation {proposal.operation}.{since}",
    ]


def take_back_forms(
    site: Site, request: PageRequest, proposals: Sequence[Proposal], key: str | None = None
) -> Node:
    """Return the forms that take decisions back: one for all rejections, one for each operation
    that was not taken back yet. key: presses the first of them.
    """
    rejected = [proposal.id for proposal in proposals if proposal.state == REJECTED]
    approved = dict.fromkeys(
        proposal.operation
        for proposal in proposals
        if proposal.state == APPROVED
        and proposal.operation is not None
        and not _is_taken_back(site.library, proposal)
    )
    forms: list[Node] = []

    def button() -> Node:
        text = "Take it back" if len(proposals) == 1 else "Take these back"
        return h.button(
            type="submit", id="undo" if key and not forms else None, aria_keyshortcuts=key
        )[text]

    if rejected:
        numbers = [h.input(type="hidden", name="number", value=str(number)) for number in rejected]
        forms.append(
            form(request.session.csrf, action_path("inbox reopen"), numbers, button(), **swapping())
        )
    for operation in approved:
        forms.append(undo_form(request, operation, button(), "/inbox"))
    return forms


def next_address(address: str, request: PageRequest) -> str:
    """Return an address with the fields of the request that name the last decision."""
    text = "&".join(
        f"{name}={quote_part(request.get(name))}" for name in ANSWERS if request.get(name)
    )
    return address + (f"?{text}" if text else "")


def undo_form(request: PageRequest, operation: int, button: Node, back: str) -> Node:
    """Return the form that takes an operation back. back: the address of the page that says so."""
    fields = {"operation": operation, "back": back}
    return form(request.session.csrf, action_path("undo"), button, fields=fields, **swapping())


def _is_taken_back(library: Library, proposal: Proposal) -> bool:
    """Return whether the last operation that changed the resource took the approval of a proposal
    back.
    """
    later = _find_later_operation(library, proposal)
    return later is not None and proposal.operation in library.store.operation(later).intent.undoes


def _find_later_operation(library: Library, proposal: Proposal) -> int | None:
    """Return the last operation that changed the resource after a proposal was approved, None
    without one.
    """
    head = library.store.head_or_none(proposal.ref)
    if head is None or proposal.operation is None:
        return None
    # The id of an operation is the sequence of its first change.
    changes = library.store.backend.changes_to(head.id, proposal.operation - 1)
    later = (
        change.operation for change in reversed(changes) if change.operation != proposal.operation
    )
    return next(later, None)
