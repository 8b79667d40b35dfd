"""Operations as they happen, with what takes each one back."""

from evolvable_page import elements as h
from evolvable_page.decision_notes import moved_by_each, operation_note
from evolvable_page.elements import Node
from evolvable_page.layout import PageBody, author_tag, form, swapping, table, when
from evolvable_page.site import PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, one_line, quote_part
from evolvable_store import Operation
from evolvable_store.errors import InvalidArgument
from evolvable_tools import Library, operation_author
from evolvable_tools.verbs import revert_or_propose

PAGE = 50
"""Operations on a page."""


def _show_operations(site: Site, request: PageRequest) -> PageBody:
    """List the operations, the newest first."""
    session = request.get("session") or None
    operations = site.library.store.operations(PAGE, session)
    moved = moved_by_each(site.library, [operation.id for operation in operations])
    rows = [
        [
            h.span(id=f"operation-{operation.id}")[str(operation.id)],
            when(operation.at),
            author_tag(*operation_author(operation)),
            _link_session(operation),
            make_visible(operation.reason),
            moved[operation.id],
            _draw_undo_form(request, operation),
        ]
        for operation in operations
    ]
    heads = ("operation", "when", "author", "session", "why", "what", "")
    of_session = (
        h.p[f"Of session {one_line(session, 60)}. ", h.a(href="/operations")["All"]]
        if session
        else None
    )
    none = h.p["Nothing has happened yet."]
    listing = table(heads, rows, "The newest operations") if rows else none
    live = h.div(id="operations", data_live=True)[listing]
    main = [h.h1["Operations"], operation_note(site, request), of_session, live]
    return PageBody("Operations", main, "operations")


def _link_session(operation: Operation) -> Node:
    if not operation.session:
        return "-"
    return h.a(href=f"/sessions/{quote_part(operation.session)}")[one_line(operation.session, 16)]


def _draw_undo_form(request: PageRequest, operation: Operation) -> Node:
    button = h.button(type="submit", aria_label=f"Take back operation {operation.id}")["Take back"]
    fields = {"operation": operation.id, "back": "/operations"}
    return form(request.session.csrf, action_path("undo"), button, fields=fields, **swapping())


_BACK_ADDRESSES = ("/", "/inbox", "/inbox/changed", "/inbox/decided", "/operations")
BACK = {address: address for address in _BACK_ADDRESSES}
"""The addresses that an undo may lead to, so that a form leads to no other site."""

MAX_DIRECTORIES = 50
"""Directories that are named before they go."""

MAX_SIDES = 20
"""Lines of the two sides of a conflict that the page shows."""


def _list_created_directories(library: Library, operation: int) -> list[str]:
    """Return the directories of watched folders that an undo of the operation removes from the
    disk.

    They are those of the resources that the operation created.
    """
    created = {
        change.ref
        for change in library.store.backend.changes_of([operation])
        if change.before is None
    }
    heads = [
        head.id
        for ref in created
        if (head := library.store.head_or_none(ref)) is not None and head.version
    ]
    places = library.store.backend.bindings.places(heads) if heads else []
    return sorted(str(folder.path / binding.directory) for folder, binding, _ in places)


def _ask_undo(site: Site, request: PageRequest) -> PageBody:
    """Name the directories that would go from the disk, and ask."""
    number = request.require_number("number")
    operation = site.library.store.operation(number)
    directories = _list_created_directories(site.library, number)
    more = (
        h.p[f"and {len(directories) - MAX_DIRECTORIES:,} more"]
        if len(directories) > MAX_DIRECTORIES
        else None
    )
    note = (
        "These directories hold what it created, and go from the disk if nobody changed it since:"
    )
    named = h.ul[[h.li[h.code[make_visible(path)]] for path in directories[:MAX_DIRECTORIES]]]
    back = BACK.get(request.get("back"), "/operations")
    fields = {"operation": number, "back": back, "sure": "1"}
    button = h.button(".bad", type="submit")[f"Take back operation {number}"]
    return PageBody(
        f"Operation {number}",
        [
            h.h1[f"Take back operation {number}?"],
            h.blockquote[make_visible(operation.reason)],
            [h.p[note], named, more] if directories else None,
            form(request.session.csrf, action_path("undo"), button, fields=fields),
            h.p[h.a(href=back)["Leave it as it is"]],
        ],
        "operations",
    )


def _undo(site: Site, request: PageRequest) -> str:
    number = request.require_number("operation")
    back = BACK.get(request.get("back"), "/operations")
    if not request.get("sure") and _list_created_directories(site.library, number):
        return f"/operations/{number}/undo" + (f"?back={back}" if back != "/operations" else "")
    undone = revert_or_propose(
        site.library, site.caller, f"operation {number} undone", operation=number
    )
    if undone.conflicts:
        conflict = undone.conflicts[0]
        sides = " | ".join(conflict.sides.splitlines()[:MAX_SIDES])
        both = f"There now (-) and before (+): {sides}. " if sides else ""
        why = f"{conflict.ref} was skipped: {conflict.reason}"
        raise InvalidArgument(why, f"{both}Operations shows what happened.")
    query = f"operation={undone.operation}" if undone.operation is not None else "nothing=1"
    return f"{back}?{query}"


VIEWS = (
    PageView("/operations", _show_operations),
    PageView("/operations/{number:int}/undo", _ask_undo),
)

ACTIONS = (PageAction("undo", _undo),)
