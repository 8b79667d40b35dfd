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
    """Return the versions, newest first, with what was proposed and refused.

    opened: whose difference is drawn.
    """
    proposals = [
        proposal
        for proposal in site.library.store.backend.proposals.about(head.ref)
        if proposal.state not in (APPROVED, OPEN)
    ]
    before = request.number("from")
    diff = past.diff if before is None else None
    count = f"{head.latest} version{'' if head.latest == 1 else 's'}"
    refused = (
        f", {len(proposals)} refused proposal{'' if len(proposals) == 1 else 's'}"
        if proposals
        else ""
    )
    older = (
        h.p(".none")[f"The newest {VERSIONS} of {head.latest} are listed."]
        if head.latest > VERSIONS
        else None
    )
    return [
        h.h2["History", h.span(".none")[f" {count}{refused}"]],
        h.ol(".history", reversed=True)[
            list(_entries(site, request, head, past, proposals, opened, diff))
        ],
        older,
        _compare(head, past),
    ]


def _entries(
    site: Site,
    request: PageRequest,
    head: Head,
    past: History,
    proposals: Sequence[Proposal],
    opened: int | None,
    diff: str | None,
) -> Iterator[Node]:
    numbers = {version.version for version in past.versions}
    for version in past.versions:
        # What was proposed against a version came after it.
        mine = [
            each
            for each in proposals
            if each.base == version.version or not each.base and version.version == min(numbers)
        ]
        for each in list(reversed(mine))[:REFUSED]:
            yield h.li(".refused")[
                h.a(href=f"/inbox/{each.id}")[f"Proposal {each.id}"],
                h.span(".none")[f" {each.state}: {one_line(each.reason, 160)}"],
            ]
        yield _entry(site, request, head, version, diff if version.version == opened else None)


def author_of(version: PastVersion) -> str:
    """Return the author of a version, or the program that acted for the reader where that says
    more.
    """
    return (
        str(version.actor) if version.actor in (Actor.REVIEW, Actor.EVOLUTION) else version.author
    )


def _entry(
    site: Site, request: PageRequest, head: Head, past_version: PastVersion, diff: str | None
) -> Node:
    author = author_of(past_version)
    files = ", ".join(make_visible(path) for path in past_version.files[:6]) + (
        " and more" if len(past_version.files) > 6 else ""
    )
    changed = (
        resource_address(head.ref, to=past_version.version) + f"#version-{past_version.version}"
    )
    label = f"what it changed: version {past_version.version}"
    return h.li(id=f"version-{past_version.version}", class_=author)[
        h.span(".letter", aria_hidden="true")[LETTERS.get(author, "?")],
        h.div[
            resource_link(
                head.ref, f"Version {past_version.version}", version=past_version.version
            ),
            " ",
            author_tag(past_version.author, past_version.by),
            h.span(".none")[" ", when(past_version.at)],
        ],
        h.div[
            make_visible(past_version.reason),
            h.span(".none")[f" ({files})"] if len(past_version.files) > 1 else None,
        ],
        draw_diff(diff)
        if diff is not None
        else h.div(".buttons")[
            h.a(href=changed, aria_label=label)["what it changed"],
            _restore_form(site, request, head, past_version),
        ],
    ]


def _restore_form(site: Site, request: PageRequest, head: Head, past_version: PastVersion) -> Node:
    if past_version.version == head.version:
        return None
    fields = {"ref": str(head.ref), "version": past_version.version, "expected": head.version or 0}
    button = h.button(type="submit", aria_label=f"Restore version {past_version.version}")[
        "Restore"
    ]
    lock = passphrase_field(site.passphrase_label if head.kind is Kind.MEMORY else "")
    return form(
        request.session.csrf, action_path("restore"), lock, button, fields=fields, **swapping()
    )


def _compare(head: Head, past: History) -> Node:
    numbers = [version.version for version in past.versions]
    if len(numbers) < 3:
        return None
    choices = [
        h.label[
            title,
            " ",
            h.select(name=name)[
                [
                    h.option(value=str(number), selected=number == chosen)[str(number)]
                    for number in numbers
                ]
            ],
        ]
        for title, name, chosen in (
            ("Compare version", "from", numbers[-1]),
            ("with", "to", numbers[0]),
        )
    ]
    return h.form(".line", action=resource_address(head.ref), method="get")[
        choices, h.button(type="submit")["Show the difference"]
    ]


def draw_difference(past: History, between: tuple[int | None, int | None]) -> Node:
    """Return the difference of two versions that a person chose, nothing where no first one was
    chosen.
    """
    if between[0] is None or past.diff is None:
        return None
    return h.section[
        h.h2[f"From version {between[0]} to {between[1] or past.head}"], draw_diff(past.diff)
    ]
