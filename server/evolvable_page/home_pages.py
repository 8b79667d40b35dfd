"""Home: waiting proposals, changes by agents, the size of the clients' lists, helpful and dead
skills.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from evolvable_page import elements as h
from evolvable_page import listing_budget
from evolvable_page.changed_list import approved_note, draw_changed
from evolvable_page.decision_notes import decision_note
from evolvable_page.digest_panel import draw_digest
from evolvable_page.elements import Node
from evolvable_page.inbox_pages import first_steps, read_waiting, waiting_parts
from evolvable_page.layout import PageBody, resource_link, share_bar, tag, with_code
from evolvable_page.lesson_panel import draw_lessons
from evolvable_page.library_pages import read_evidence
from evolvable_page.proposal_view import needs_own_look
from evolvable_page.site import MOST_WAITING, PageAction, PageRequest, PageView, Site
from evolvable_page.text import one_line
from evolvable_tools.outcomes import ResourceStats, Stats
from evolvable_tools.verbs import list_resources, list_unseen

MAX_ROWS = 5
"""Rows of a list; the others are a link away."""

WEEK = timedelta(days=7)


def _show_home(site: Site, request: PageRequest) -> PageBody:
    """Show the waiting proposals, the recent changes and the evidence."""
    if not list_resources(site.library, site.caller, limit=1).resources:
        return PageBody(
            "Home", [h.h1["Home"], decision_note(site, request), _draw_first_steps()], "home"
        )
    main = [
        h.h1(".skip")["Home"],
        approved_note(site, request) or decision_note(site, request),
        h.div(".home")[
            draw_lessons(site, request),
            _draw_waiting(site),
            _draw_budget(site, request),
            _draw_changes(site, request),
            draw_digest(site, request),
            _draw_evidence(site),
        ],
    ]
    return PageBody("Home", main, "home", of="home")


def _draw_first_steps() -> Node:
    """Return the first steps in a library that is empty."""
    steps = (
        (
            "Run `evolvable setup` in a terminal: it finds the skills of your clients, and "
            "connects the clients."
        ),
        (
            "Or run `evolvable init FOLDER` to watch one folder of skills, or `evolvable "
            "quickstart` for an example."
        ),
        "What agents then learn, and what waits for you, appears here.",
    )
    return h.div(id="begin", data_live=True)[
        h.p(".lead")["The library holds no skill yet."],
        h.ol[[h.li[with_code(step)] for step in steps]],
    ]


def _draw_waiting(site: Site) -> Node:
    waiting = read_waiting(site)
    rows = [
        h.li[
            h.a(".grow", href=f"/inbox/{proposal.proposal_id}")[
                one_line(proposal.ref, 60), h.span(".none")[" ", one_line(proposal.reason, 80)]
            ],
            tag("asks", "doubtful") if needs_own_look(proposal) else None,
        ]
        for proposal in waiting[:MAX_ROWS]
    ]
    number = f"{len(waiting)}+" if len(waiting) == MOST_WAITING else str(len(waiting))
    steps = first_steps(site)
    text = "Nothing waits for a decision. What agents and reviews propose appears here by itself."
    title = "Nothing waits for you"
    if waiting:
        title = f"{number} {'waits' if len(waiting) == 1 else 'wait'} for you"
    return h.section(".panel", id="waits", data_live=True)[
        h.h2[title],
        h.ul(".rows")[rows] if rows else steps or h.p(".none")[text],
        h.p[h.a(".button", href="/inbox")["Decide on them"]] if waiting else None,
        waiting_parts(site),
    ]


def _draw_budget(site: Site, request: PageRequest) -> Node:
    return h.section(".panel", id="budget-short", data_live=True)[
        h.h2["What clients list by themselves"],
        listing_budget.draw_short(site, request),
        h.p[h.a(href=listing_budget.ADDRESS)["Which skills lose their description"]],
    ]


def _draw_changes(site: Site, request: PageRequest) -> Node:
    # Not dated: their number and their times are read here, and not the age of each.
    unseen = site.keep(
        "unseen changes", lambda: list_unseen(site.library, site.caller), is_dated=False
    )
    since = datetime.fromisoformat(site.library.store.now()) - WEEK
    recent = sum(datetime.fromisoformat(change.at) >= since for change in unseen.changes)
    if not unseen.number:
        text = (
            "Agents changed nothing that you have not looked at. What they learn in use "
            "appears here."
        )
        return h.section(".panel.broad", id="changed", data_live=True)[
            h.h2["What agents changed"],
            h.p(".none")[text],
            h.p[h.a(href="/operations")["All operations"]],
        ]
    older = unseen.number - recent
    title = f"What agents changed this week: {recent}" + (f", and {older} before" if older else "")
    return h.div(".panel.broad")[draw_changed(site, request, title=title, home=True)]


def _draw_evidence(site: Site) -> Node:
    """Return the resources that helped and those that are dead, computed in the background: it
    reads all uses.
    """
    read: tuple[Stats, int] | None = site.value(
        "stats", lambda: read_evidence(site), site.library_revision()
    )
    if read is None:
        reading = h.p(".none")["The evidence is being read; this page shows it by itself."]
        panel = h.section(".panel.broad", id="evidence", data_live=True)
        return panel[h.h2["What helped"], reading]
    lines = read[0].resources
    helped = sorted(
        (line for line in lines if line.helped.is_enough), key=lambda line: -line.helped.low
    )
    dead = [line for line in lines if line.verdict == "dead"]
    none_helped = "No skill has five uses with a rating yet. Agents report how each use ended."
    none_dead = "No skill is shown again and again without being opened."
    all_helped = h.p[h.a(href="/library?view=rated")["All by success"]]
    all_dead = h.p[h.a(href="/library?view=dead")[f"All {len(dead):,}"]]
    return h.div(".home.broad", id="evidence", data_live=True)[
        h.section(".panel")[
            h.h2["What helped"],
            _draw_rows(helped, lambda line: share_bar(line.helped)),
            all_helped if helped else h.p(".none")[none_helped],
        ],
        h.section(".panel")[
            h.h2["What is dead"],
            _draw_rows(dead, lambda line: f"shown {line.shown:,} times, never opened"),
            None if dead else h.p(".none")[none_dead],
            all_dead if len(dead) > MAX_ROWS else None,
        ],
    ]


def _draw_rows(lines: Sequence[ResourceStats], draw: Callable[[ResourceStats], Node]) -> Node:
    return h.ul(".rows")[
        [h.li[h.span(".grow")[resource_link(line.ref)], draw(line)] for line in lines[:MAX_ROWS]]
    ]


VIEWS = (PageView("/", _show_home),)

ACTIONS: tuple[PageAction, ...] = ()
