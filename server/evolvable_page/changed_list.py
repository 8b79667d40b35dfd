"""Changed since you last looked: what agents changed or created, approved one by one or as one
list.
"""

from collections.abc import Sequence

from evolvable_page import elements as h
from evolvable_page.decision_notes import operation_note, undo_form
from evolvable_page.diff_view import draw_diff
from evolvable_page.elements import Node
from evolvable_page.layout import (
    PageBody,
    author_tag,
    form,
    passphrase_field,
    resource_link,
    swapping,
    tag,
    when,
)
from evolvable_page.site import PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, one_line, quote_part
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools.verbs import UnseenChange, approve_seen, count_unseen, list_unseen

ADDRESS = "/inbox/changed"

HOME = "/"
"""The address of Home, which shows the list too."""

TITLE = "Changed since you last looked"

# Each is shown with its difference, which has to be read and computed.
MAX_CHANGES = 50
"""Resources that the list shows; the others follow once these are approved."""

MAX_NAMED = 5
"""Resources that a note names."""


def _show_changes(site: Site, request: PageRequest) -> PageBody:
    """Show the list, and the last approval or operation."""
    note = approved_note(site, request) or operation_note(site, request)
    changes = draw_changed(site, request) or h.p["Nothing that you have not looked at."]
    inbox = h.p[h.a(href="/inbox")["Proposals that wait"]]
    return PageBody(TITLE, [h.h1["Inbox"], note, changes, inbox], "inbox")


def link_changed(site: Site) -> Node:
    """Return the link to the list with its length, nothing where it is empty."""
    number = site.keep(
        "number of unseen changes", lambda: count_unseen(site.library, site.caller), is_dated=False
    )
    return h.p[h.a(href=ADDRESS, id="changed-link")[f"{TITLE}: {number:,}"]] if number else None


def draw_changed(
    site: Site, request: PageRequest, *, title: str = TITLE, home: bool = False
) -> Node:
    """Return the list, nothing where it is empty. The keys act on the change in the frame.

    home: the list stands on Home. There the difference of the other changes is folded, and forms
    lead back to Home.
    """
    changes, number = site.keep(
        "unseen changes with differences",
        lambda: list_unseen(site.library, site.caller, limit=MAX_CHANGES, with_diff=True),
    )
    if not changes:
        return None
    # A change that was approved elsewhere is gone from the list: then the first one is in the
    # frame.
    current = next(
        (place for place, change in enumerate(changes) if change.ref == request.get("at")), 0
    )
    more = number - len(changes)
    approve_all = None
    if len(changes) > 1:
        approve_all = _draw_approve_form(
            site, request, changes, f"All {len(changes)} fine", home=home
        )
    return h.section(".changed", id="changed", data_live=True)[
        h.h2[title],
        h.p(".none")[
            "Agents follow it already. New skills stand between marks for other sessions "
            "until you look."
        ],
        approve_all,
        [
            _draw_change(site, request, changes, place, is_current=place == current, home=home)
            for place in range(len(changes))
        ],
        h.p(".none")[f"And {more:,} more, once these are approved."] if more > 0 else None,
        h.p(".keys")["Keys: a approve, j next, k previous, ? all keys."],
    ]


def _draw_change(
    site: Site,
    request: PageRequest,
    changes: Sequence[UnseenChange],
    place: int,
    *,
    is_current: bool,
    home: bool,
) -> Node:
    """Return the change at a place of the list. is_current: it is the one in the frame."""
    change, page = changes[place], HOME if home else ADDRESS
    back = h.button(".bad", type="submit")[f"Take back operation {change.operation}"]
    attributes = (
        {"class_": "current", "aria_current": "true", "id": "current"} if is_current else {}
    )
    difference: Node = draw_diff(change.diff)
    if home and not is_current:
        difference = h.details[h.summary["The difference"], difference]
    approve = _draw_approve_form(
        site, request, [change], "Approve", key="approve" if is_current else "", home=home
    )
    return h.article(aria_label=make_visible(change.ref), **attributes)[
        h.h3[
            resource_link(change.ref, f"{change.ref}@{change.version}"),
            " ",
            author_tag(change.author, change.by),
            [" ", tag("new", "doubtful")] if change.is_new else None,
        ],
        h.p[make_visible(change.line)],
        h.p(".none")[when(change.at), ": ", one_line(change.reason)],
        difference,
        h.div(".buttons")[approve, undo_form(request, change.operation, back, page)],
        _link_neighbours(changes, place, page) if is_current else None,
    ]


def _link_neighbours(changes: Sequence[UnseenChange], place: int, page: str) -> Node:
    links: list[Node] = []
    for name, key, at in (("Previous", "k", place - 1), ("Next", "j", place + 1)):
        if 0 <= at < len(changes):
            address = f"{page}?at={quote_part(changes[at].ref)}#current"
            links += [h.a(href=address, id=name.lower(), aria_keyshortcuts=key)[name], " "]
    return h.p[links] if links else None


def _draw_approve_form(
    site: Site,
    request: PageRequest,
    seen: Sequence[UnseenChange],
    word: str,
    key: str = "",
    *,
    home: bool,
) -> Node:
    """Return the form that approves exactly these contents.

    word: on its button. key: the id of the button where a key presses it, '' where none does.
    """
    contents = [
        [
            h.input(type="hidden", name="ref", value=change.ref),
            h.input(type="hidden", name="seen", value=change.tree),
        ]
        for change in seen
    ]
    attributes = {"id": key, "aria_keyshortcuts": key[0]} if key else {}
    style = "good" if key or len(seen) > 1 else None
    return form(
        request.session.csrf,
        action_path("approve"),
        contents,
        passphrase_field(site.passphrase_label),
        h.button(class_=style, type="submit", **attributes)[word],
        id="approve-form" if key else None,
        fields={"back": HOME} if home else {},
        **swapping(),
    )


def approved_note(site: Site, request: PageRequest) -> Node:
    """Return which resources were approved last.

    The address names them; those that still wait are left out.
    """
    refs = [Ref.parse(text) for text in request.fields.get("approved", ())[:MAX_CHANGES]]
    if not refs:
        return None
    waiting = {change.ref for change in list_unseen(site.library, site.caller).changes}
    heads = [site.library.store.head_or_none(ref, site.caller.scopes) for ref in refs]
    done = [head.ref for head in heads if head is not None and str(head.ref) not in waiting]
    more = f" and {len(done) - MAX_NAMED} more" if len(done) > MAX_NAMED else ""
    links = [[resource_link(ref), " "] for ref in done[:MAX_NAMED]]
    if not done:
        return None
    return h.div(".done", role="status", id="done")[h.p["You looked at ", links, more]]


def _approve(site: Site, request: PageRequest) -> str:
    """Approve all resources that the form names, or none."""
    refs, trees = request.fields.get("ref", ()), request.fields.get("seen", ())
    if not refs or len(refs) != len(trees):
        raise InvalidArgument("The form names no resource.", "Follow a link of the page.")
    done = approve_seen(site.library, site.decider(request), dict(zip(refs, trees, strict=True)))
    page = HOME if request.get("back") == HOME else ADDRESS
    return f"{page}?{'&'.join(f'approved={quote_part(ref)}' for ref in done[:MAX_CHANGES])}"


VIEWS = (PageView(ADDRESS, _show_changes),)

ACTIONS = (PageAction("approve", _approve),)
