"""Learn: what sessions, reviews and corrections taught, and what other parts of the program learn;
a list of each.
"""

from collections.abc import Sequence

from evolvable_page import elements as h
from evolvable_page.elements import Node
from evolvable_page.layout import PageBody, resource_link, tag, when, with_code
from evolvable_page.parts import page_parts
from evolvable_page.session_pages import read_sessions
from evolvable_page.site import PageAction, PageRequest, PageView, Site
from evolvable_page.text import one_line, quote_part
from evolvable_tools.outcomes import list_learned

LISTED = 5
"""Entries of each kind that the overview names, the newest first."""


def _show_overview(site: Site, request: PageRequest) -> PageBody:
    """Show the newest sessions, reviews and learned tasks, and what other parts learned."""
    own = [] if "sessions" in site.left_out else [_draw_sessions(site), _draw_reviews(site)]
    parts = [part.learn(site) for part in page_parts() if part.learn is not None]
    main = [
        h.h1(".skip")["Learn"],
        h.div(".home", id="learn", data_live=True)[own, _draw_tasks(site), parts],
    ]
    return PageBody("Learn", main, "overview")


def _draw_section(title: str, rows: Sequence[Node], none: str, more: Node = None) -> Node:
    return h.section(".panel")[
        h.h2[title],
        h.ul(".rows")[rows] if rows else h.p(".none")[with_code(none)],
        more and h.p[more],
    ]


def _draw_sessions(site: Site) -> Node:
    page = read_sessions(site)
    listed = page.sessions[:LISTED] if page is not None else ()
    rows = [
        h.li[
            h.a(".grow", href=f"/sessions/{quote_part(session.session)}")[
                one_line(session.project or session.session, 60),
                h.span(".none")[f" {session.client}, {session.turns:,} turns"],
            ],
            h.span(".none")[when(session.at)],
        ]
        for session in listed
    ]
    none = "No client wrote a session here yet." if page else "The sessions are being read."
    return _draw_section("Sessions", rows, none, h.a(href="/sessions")["All sessions"])


def _draw_reviews(site: Site) -> Node:
    rows = [
        h.li[
            h.a(".grow", href=f"/sessions/{quote_part(review.session)}")[
                one_line(review.session, 60)
            ],
            tag(str(review.state), "good" if review.state == "done" else "doubtful"),
            h.span(".none")[when(review.at)],
        ]
        for review in site.library.store.backend.reviews.newest(LISTED)
    ]
    none = "No session was reviewed. `evolvable learn review` proposes what a session taught."
    return _draw_section("Reviews", rows, none)


def _draw_tasks(site: Site) -> Node:
    """Return the learned tasks. They are read beside the page: there may be thousands."""
    caller = site.caller
    read = site.value(
        f"learned {caller.via}", lambda: list_learned(site.library, caller), site.library_revision()
    )
    learned = sorted(read or (), key=lambda task: task.at, reverse=True)
    rows = [
        h.li[
            h.span(".grow")[
                resource_link(task.ref),
                h.span(".none")[" not for: " if task.against else " ", _describe_task(task.task)],
            ],
            tag("held out") if task.held_out else None,
            h.span(".none")[task.source],
        ]
        for task in learned[:LISTED]
    ]
    title = f"Learned tasks: {len(learned):,}" if learned else "Learned tasks"
    none = (
        "Nothing was learned of tasks. A correction in Search, or a use that went well, "
        "teaches one."
    )
    return _draw_section(title, rows, none, h.a(href="/search")["Correct a search"])


def _describe_task(task: str) -> str:
    return one_line(task, 100) or "(a prompt of yours, not shown here)"


VIEWS = (PageView("/learn", _show_overview),)

ACTIONS: tuple[PageAction, ...] = ()
