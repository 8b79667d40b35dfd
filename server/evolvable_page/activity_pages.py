"""Operations as they happen, with what takes each one back."""

from evolvable_page import elements as h
from evolvable_page.decision_notes import moved_by_each, operation_note
from evolvable_page.elements import Node
from evolvable_page.layout import PageBody, author_tag, form, swapping, table, when
from evolvable_page.site import PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, one_line, quoted
from evolvable_store import Operation
from evolvable_store.errors import InvalidArgument
from evolvable_tools import Library, operation_author
from evolvable_tools.verbs import revert_or_propose

PAGE = 50
"""Operations on a page."""


def _operations(site: Site, asked: PageRequest) -> PageBody:
    """List the operations, the newest first."""
    session = asked.get("session") or None
    made = site.library.store.operations(PAGE, session)
    moved = moved_by_each(site.library, [one.id for one in made])
    rows = [
        [
            h.span(id=f"operation-{one.id}")[str(one.id)],
            when(one.at),
            author_tag(*operation_author(one)),
            _session(one),
            make_visible(one.reason),
            moved[one.id],
            _undo_form(asked, one),
        ]
        for one in made
    ]
    heads = ("operation", "when", "author", "session", "why", "what", "")
    return PageBody(
        "Operations",
        [
            h.h1["Operations"],
            operation_note(site, asked),
            h.p[f"Of session {one_line(session, 60)}. ", h.a(href="/operations")["All"]] if session else None,
            h.div(id="operations", data_live=True)[
                table(heads, rows, "The newest operations") if rows else h.p["Nothing has happened yet."]
            ],
        ],
        "operations",
    )


def _session(made: Operation) -> Node:
    if not made.session:
        return "-"
    return h.a(href=f"/sessions/{quoted(made.session)}")[one_line(made.session, 16)]


def _undo_form(asked: PageRequest, made: Operation) -> Node:
    button = h.button(type="submit", aria_label=f"Take back operation {made.id}")["Take back"]
    fields = {"operation": made.id, "back": "/operations"}
    return form(asked.session.csrf, action_path("undo"), button, fields=fields, **swapping())


BACK = {address: address for address in ("/", "/inbox", "/inbox/changed", "/inbox/decided", "/operations")}
"""Where an undo may lead to."""


MAX_DIRECTORIES = 50
"""Directories that are named before they go."""


MAX_SIDES = 20
"""Lines of the two sides of a conflict that the page shows."""


def _going(library: Library, operation: int) -> list[str]:
    """Return the directories of watched folders that an undo takes off the disk: those of what was created."""
    created = {one.ref for one in library.store.backend.changes_of([operation]) if one.before is None}
    heads = [head.id for ref in created if (head := library.store.head_or_none(ref)) is not None and head.version]
    places = library.store.backend.bindings.places(heads) if heads else []
    return sorted(str(folder.path / binding.directory) for folder, binding, _ in places)


def _ask_undo(site: Site, asked: PageRequest) -> PageBody:
    """Name the directories that would go from the disk, and ask."""
    number = asked.needed("number")
    made, going = site.library.store.operation(number), _going(site.library, number)
    more = h.p[f"and {len(going) - MAX_DIRECTORIES:,} more"] if len(going) > MAX_DIRECTORIES else None
    said = "These directories hold what it created, and go from the disk if nobody changed it since:"
    back = BACK.get(asked.get("back"), "/operations")
    fields = {"operation": number, "back": back, "sure": "1"}
    button = h.button(".bad", type="submit")[f"Take back operation {number}"]
    return PageBody(
        f"Operation {number}",
        [
            h.h1[f"Take back operation {number}?"],
            h.blockquote[make_visible(made.reason)],
            [h.p[said], h.ul[[h.li[h.code[make_visible(path)]] for path in going[:MAX_DIRECTORIES]]], more]
            if going
            else None,
            form(asked.session.csrf, action_path("undo"), button, fields=fields),
            h.p[h.a(href=back)["Leave it as it is"]],
        ],
        "operations",
    )


def _undo(site: Site, asked: PageRequest) -> str:
    number = asked.needed("operation")
    back = BACK.get(asked.get("back"), "/operations")
    if not asked.get("sure") and _going(site.library, number):
        return f"/operations/{number}/undo" + (f"?back={back}" if back != "/operations" else "")
    undone = revert_or_propose(site.library, site.caller, f"operation {number} undone", operation=number)
    if undone.conflicts:
        conflict = undone.conflicts[0]
        sides = " | ".join(conflict.sides.splitlines()[:MAX_SIDES])
        both = f"There now (-) and before (+): {sides}. " if sides else ""
        why = f"{conflict.ref} was skipped: {conflict.reason}"
        raise InvalidArgument(why, f"{both}Operations shows what happened.")
    said = f"operation={undone.operation}" if undone.operation is not None else "nothing=1"
    return f"{back}?{said}"


VIEWS = (PageView("/operations", _operations), PageView("/operations/{number:int}/undo", _ask_undo))

ACTIONS = (PageAction("undo", _undo),)
