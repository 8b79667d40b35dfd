"""The lessons that wait, on Home: one line, and below it each lesson with its difference, decided
there.
"""

from evolvable_page import elements as h
from evolvable_page.diff_view import draw_diff
from evolvable_page.elements import Node
from evolvable_page.layout import form, passphrase_field, swapping
from evolvable_page.proposal_view import look_at, needs_own_look, seen_fields, shown_hash
from evolvable_page.site import PageRequest, Site, action_path
from evolvable_page.text import make_visible, one_line
from evolvable_tools import verbs
from evolvable_tools.verbs import WaitingLesson

MOST_SHOWN = 3
"""Lessons that are decided on Home; the line names as many, and the others are in the inbox."""

MAX_QUOTE = 200
"""Characters of the sentence of the session that stands with a lesson."""


def draw_lessons(site: Site, request: PageRequest) -> Node:
    """Return the panel of the lessons that wait, nothing without one."""
    lessons = verbs.waiting_lessons(site.library)
    if not lessons:
        return None
    return h.section(".panel.broad", id="lessons", data_live=True)[
        h.h2[make_visible(verbs.lessons_line(lessons))],
        [_draw_lesson(site, request, lesson) for lesson in lessons[:MOST_SHOWN]],
        h.p[h.a(href="/inbox")["All in the inbox"]] if len(lessons) > MOST_SHOWN else None,
    ]


def _draw_lesson(site: Site, request: PageRequest, lesson: WaitingLesson) -> Node:
    """Return one lesson with its forms.

    A lesson about which the scan asks, or whose difference is cut, has only a link to the inbox.
    """
    proposal = verbs.show_proposal(site.library, lesson.proposal_id)
    link = h.h3[h.a(href=f"/inbox/{lesson.proposal_id}")[make_visible(lesson.text)]]
    if needs_own_look(proposal) or not shown_hash(proposal):
        return h.article[
            link, h.p(".none")["It has a question of its own: decide on it in the inbox."]
        ]
    look_at(request, proposal)
    evidence = proposal.grounds.evidence if proposal.grounds else ()
    quote = next((statement.quote for statement in evidence), "")
    fields, csrf = {"number": lesson.proposal_id, "home": 1}, request.session.csrf
    keep = [
        seen_fields([proposal]),
        passphrase_field(site.passphrase_label),
        h.button(".good", type="submit")["Keep it"],
    ]
    reject = h.button(".bad", type="submit")["Reject it"]
    against = {"class_": "against", **swapping()}
    return h.article(aria_label=f"Lesson {lesson.proposal_id}")[
        link,
        h.blockquote[one_line(quote, MAX_QUOTE)] if quote else None,
        draw_diff(proposal.diff or ""),
        h.div(".decide")[
            form(csrf, action_path("inbox approve"), *keep, fields={"home": 1}, **swapping()),
            form(csrf, action_path("inbox reject"), reject, fields=fields, **against),
        ],
    ]
