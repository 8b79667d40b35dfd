"""The history of a resource as a timeline: each version with its author, its reason and its
difference.
"""

from collections.abc import Iterator, Sequence

from evolvable_page import elements as h
from evolvable_page.diff_view import draw_diff
from evolvable_page.elements import Node
from evolvable_page.layout import (
    author_tag,
    form,
    passphrase_field,
    resource_address,
    resource_link,
    swapping,
    when,
)
from evolvable_page.site import PageRequest, Site, action_path
from evolvable_page.text import make_visible, one_line
from evolvable_store import Actor, Head
from evolvable_store.resource import Kind
from evolvable_store.storage import APPROVED, OPEN, Proposal
from evolvable_tools.verbs import History, PastVersion

VERSIONS = 30
"""Versions of one page."""

REFUSED = 3
"""Proposals against one version that were refused and are named."""

MAX_FILES = 6
"""Changed files of a version that are named."""

LETTERS = {
    "you": "Y",
    "agent": "A",
    "member": "M",
    "repository": "G",
    "review": "R",
    "evolution": "E",
    "import": "I",
}
"""Author of a version -> its letter in the timeline, so that no meaning is in a colour alone."""


def draw_history(
    site: Site, request: PageRequest, head: Head, past: History, opened: int | None
) -> Node:
    """Return the versions, newest first, with the refused proposals.

    opened: the version whose difference is drawn.
    """
    proposals = [
        proposal
        for proposal in site.library.store.backend.proposals.about(head.ref)
        if proposal.state not in (APPROVED, OPEN)
    ]
    before = request.number("from")
    diff = past.diff if before is None else None
    count = f"{head.latest} version{'' if head.latest == 1 else 's'}"
    refused = ""
    if proposals:
        refused = f", {len(proposals)} refused proposal{'' if len(proposals) == 1 else 's'}"
    entries = list(_draw_entries(site, request, head, past, proposals, opened, diff))
    bound = h.p(".none")[f"The newest {VERSIONS} of {head.latest} are listed."]
    return [
        h.h2["History", h.span(".none")[f" {count}{refused}"]],
        h.ol(".history", reversed=True)[entries],
        bound if head.latest > VERSIONS else None,
        _draw_compare_form(head, past),
    ]


def _draw_entries(
    site: Site,
    request: PageRequest,
    head: Head,
    past: History,
    proposals: Sequence[Proposal],
    opened: int | None,
    diff: str | None,
) -> Iterator[Node]:
    oldest = min((version.version for version in past.versions), default=0)
    for version in past.versions:
        # Proposals against a version stand above it, since they came after it. Those without a base
        # stand above the oldest.
        against = [
            proposal
            for proposal in proposals
            if proposal.base == version.version or (not proposal.base and version.version == oldest)
        ]
        for proposal in list(reversed(against))[:REFUSED]:
            yield h.li(".refused")[
                h.a(href=f"/inbox/{proposal.id}")[f"Proposal {proposal.id}"],
                h.span(".none")[f" {proposal.state}: {one_line(proposal.reason, 160)}"],
            ]
        yield _draw_entry(site, request, head, version, diff if version.version == opened else None)


def author_of(version: PastVersion) -> str:
    """Return the author of a version; for reviews and evolution the program that acted for the
    reader.
    """
    by_program = version.actor in (Actor.REVIEW, Actor.EVOLUTION)
    return str(version.actor) if by_program else version.author


def _draw_entry(
    site: Site, request: PageRequest, head: Head, past_version: PastVersion, diff: str | None
) -> Node:
    """Return a version with its difference, or with the buttons that lead to it."""
    author, number = author_of(past_version), past_version.version
    files = ", ".join(make_visible(path) for path in past_version.files[:MAX_FILES])
    files += " and more" if len(past_version.files) > MAX_FILES else ""
    below: Node = None
    if diff is not None:
        below = draw_diff(diff)
    else:
        changed = resource_address(head.ref, to=number) + f"#version-{number}"
        link = h.a(href=changed, aria_label=f"what it changed: version {number}")
        restore = _draw_restore_form(site, request, head, past_version)
        below = h.div(".buttons")[link["what it changed"], restore]
    return h.li(id=f"version-{number}", class_=author)[
        h.span(".letter", aria_hidden="true")[LETTERS.get(author, "?")],
        h.div[
            resource_link(head.ref, f"Version {number}", version=number),
            " ",
            author_tag(past_version.author, past_version.by),
            h.span(".none")[" ", when(past_version.at)],
        ],
        h.div[
            make_visible(past_version.reason),
            h.span(".none")[f" ({files})"] if len(past_version.files) > 1 else None,
        ],
        below,
    ]


def _draw_restore_form(
    site: Site, request: PageRequest, head: Head, past_version: PastVersion
) -> Node:
    if past_version.version == head.version:
        return None
    fields = {"ref": str(head.ref), "version": past_version.version, "expected": head.version or 0}
    label = f"Restore version {past_version.version}"
    button = h.button(type="submit", aria_label=label)["Restore"]
    lock = passphrase_field(site.passphrase_label if head.kind is Kind.MEMORY else "")
    return form(
        request.session.csrf, action_path("restore"), lock, button, fields=fields, **swapping()
    )


def _draw_compare_form(head: Head, past: History) -> Node:
    numbers = [version.version for version in past.versions]
    if len(numbers) < 3:
        return None
    choices: list[Node] = []
    fields = (("Compare version", "from", numbers[-1]), ("with", "to", numbers[0]))
    for title, name, chosen in fields:
        options = [
            h.option(value=str(number), selected=number == chosen)[str(number)]
            for number in numbers
        ]
        choices.append(h.label[title, " ", h.select(name=name)[options]])
    line = h.form(".line", action=resource_address(head.ref), method="get")
    return line[choices, h.button(type="submit")["Show the difference"]]


def draw_difference(past: History, between: tuple[int | None, int | None]) -> Node:
    """Return the difference between two chosen versions, nothing where no first one was chosen."""
    first, second = between
    if first is None or past.diff is None:
        return None
    title = h.h2[f"From version {first} to {second or past.head}"]
    return h.section[title, draw_diff(past.diff)]
