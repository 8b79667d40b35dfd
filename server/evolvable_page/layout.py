"""The parts that every page is made of: the frame, tables, forms, times, shares with their
intervals.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from secrets import token_urlsafe
from typing import Any

from markupsafe import Markup

from evolvable_page import elements as h
from evolvable_page.elements import Element, Node
from evolvable_page.text import make_visible, one_line, quote_part
from evolvable_tools import author_words
from evolvable_tools.outcomes import Share

SECTIONS = {
    "home": ("/", "Home"),
    "inbox": ("/inbox", "Inbox"),
    "library": ("/library", "Library"),
    "learn": ("", "Learn"),
    "health": ("/health", "Health"),
    "search": ("/search", "Search"),
}
"""Section -> its address and its name, in the order of the navigation.

Learn leads to the first of its pages.
"""

LEARN = {
    "overview": ("/learn", "Overview"),
    "sessions": ("/sessions", "Sessions"),
    "operations": ("/operations", "Operations"),
}
"""Pages of Learn: section -> its address and its name, in the order of its line of the
navigation.
"""

# `static/page.js` holds the same keys; a key that changes here changes there.
KEYS = {
    "a": "approve the proposal, or the change in the frame",
    "r": "reject it: type why, then Enter; Escape leaves",
    "e": "edit the proposal before you approve it; on a resource, edit it",
    "j, k": "next and previous",
    "u": "take the last decision back",
    "m": "the merge of a proposal whose resource changed since",
    "/": "to the search field",
    "?": "show these keys",
}
"""Key -> its effect in words."""

MAY_READ = "This browser may read, and decides nothing."
HOW_TO_DECIDE = (
    "To decide, run `evolvable ui --open`, or press Enter where `evolvable ui` runs, and "
    "open its link."
)


@dataclass(frozen=True, slots=True)
class PageBody:
    """The answer of a view. section: of the navigation. status: of HTTP.

    of: names the subject of the page. Live parts are replaced only by those of a page with the same
    subject.
    """

    title: str
    main: Node
    section: str = ""
    status: int = 200
    of: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame around a body. files: address of each file of the page. waiting: how many proposals
    wait. csrf: the form token.

    locked: decisions need a passphrase. signed: the person whom a provider named. left_out:
    sections that are not shown. added: sections of other parts of the program, which stand in
    Learn. reads: this browser decides nothing. keeps: it decides, and can also read at the address
    that the home keeps.
    """

    files: Mapping[str, str]
    waiting: str
    csrf: str
    locked: bool
    signed: str = ""
    left_out: frozenset[str] = frozenset()
    added: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    reads: bool = False
    keeps: bool = False


def _list_learn_pages(frame: Frame) -> dict[str, tuple[str, str]]:
    """Return the pages of Learn that this page has."""
    (*first, last), added = LEARN.items(), frame.added.items()
    return {name: page for name, page in (*first, *added, last) if name not in frame.left_out}


def _draw_navigation(body: PageBody, frame: Frame) -> Node:
    """Return the line of the sections, and below it that of Learn where the page is of it."""
    learn = _list_learn_pages(frame)
    sections = {
        name: (next(iter(learn.values()))[0] if name == "learn" else address, title)
        for name, (address, title) in SECTIONS.items()
        if name not in frame.left_out and (name != "learn" or learn)
    }
    current = "learn" if body.section in learn else body.section
    count = h.span(".count", id="waiting", data_live=True)[frame.waiting]
    links = [
        h.a(
            class_="to-search" if name == "search" else None,
            href=address,
            aria_current=_mark_current(name, current, body.section),
        )[title, count if name == "inbox" else None]
        for name, (address, title) in sections.items()
    ]
    further = [
        h.a(href=address, aria_current=_mark_current(name, body.section, body.section))[title]
        for name, (address, title) in learn.items()
    ]
    return [
        h.nav(aria_label="Sections")[h.strong(".brand")["Evolvable"], links],
        h.nav(".second", aria_label="Learn")[further] if current == "learn" else None,
    ]


def _mark_current(name: str, current: str, page: str) -> str | None:
    """Return the mark of a link of the navigation: `page` for the page itself, `true` for the
    section above it, else None.
    """
    if name != current:
        return None
    return "page" if name == page else "true"


# No inline style, which the Content-Security-Policy forbids; no copy of pages in the browser's
# storage.
_HTMX_CONFIG = (
    '{"includeIndicatorCSS":false,"history":"reload","defaultSettleDelay":0,'
    '"extensions":"evolvable"}'
)


def draw_page(body: PageBody, frame: Frame) -> str:
    """Return the whole document."""
    reading = h.p(".reading", id="reading")[f"{MAY_READ} ", with_code(HOW_TO_DECIDE)]
    document = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.meta(name="htmx-config", content=_HTMX_CONFIG),
            h.title[f"{one_line(body.title, 80)} · Evolvable"],
            h.link(rel="icon", type="image/svg+xml", href=frame.files["icon.svg"]),
            h.link(rel="stylesheet", href=frame.files["style.css"]),
            h.script(src=frame.files["htmx.min.js"], defer=True),
            h.script(src=frame.files["page.js"], defer=True),
        ],
        h.body(class_="reads" if frame.reads else None)[
            h.a(".skip", href="#main")["Skip to the content"],
            h.header[_draw_navigation(body, frame)],
            reading if frame.reads else None,
            h.main(id="main", tabindex="-1", data_of=body.of or body.title)[body.main],
            h.footer[_draw_footer(frame)],
        ],
    ]
    return f"<!doctype html>{document}"


def _draw_footer(frame: Frame) -> Node:
    live = "Live updates need JavaScript; reload to see what is new."
    keys = h.dl[[[h.dt[key], h.dd[does]] for key, does in KEYS.items()]]
    keep = h.p[h.a(href="/keep", id="keep")["Read at an address for a bookmark"]]
    return [
        h.p(id="live", role="status")[live],
        h.details(id="keys")[h.summary["Keys"], keys],
        _draw_signed_in(frame),
        keep if frame.keeps else None,
        form(frame.csrf, "/end", h.button(type="submit")["Sign this browser out"]),
    ]


_START = token_urlsafe(12)
"""The random part of `once` in the forms of this process.

It is drawn once: a random number for each form would take a tenth of the time of a long page.
"""

# `next` of a count is atomic in CPython, so two threads never draw one number.
_FORMS = itertools.count()

# HTML: Enter in a field presses the first submit button, and does nothing where that one is
# disabled.
_NO_ENTER = Markup(h.input(type="submit", disabled=True, hidden=True))


def form(
    csrf: str,
    action: str,
    *content: Node,
    fields: Mapping[str, object] | None = None,
    **attributes: str | None,
) -> Markup:
    """Return a form that posts to this page, by one of its buttons only. fields: hidden ones.

    `once` differs in every form that is drawn: the same form counts once, however often a browser
    sends it.
    """
    # The start differs with each process: a form of an earlier one must not look as if it had been
    # sent.
    hidden_fields = {"csrf": csrf, "once": f"{_START}-{next(_FORMS)}", **(fields or {})}
    hidden = [
        h.input(type="hidden", name=name, value=str(value)) for name, value in hidden_fields.items()
    ]
    all_attributes = {"method": "post", "action": action, **attributes}
    return h.form(**all_attributes)[_NO_ENTER, hidden, content]


def swapping() -> dict[str, Any]:
    """Return the attributes of a form that htmx sends: the main part of the answer replaces that of
    the page.
    """
    return {"hx-boost": "true", "hx-target": "#main", "hx-select": "#main", "hx-swap": "outerHTML"}


def _draw_signed_in(frame: Frame) -> Node:
    if not frame.signed:
        return None
    key = [" · ", h.a(href="/key", id="key")["Your signing key"]] if frame.locked else None
    return h.p["Signed in as ", h.strong(id="signed")[one_line(frame.signed, 120)], key]


def passphrase_field(label: str) -> Node:
    """Return the question for the passphrase, nothing where approvals are not locked (no label)."""
    if not label:
        return None
    return h.label(".passphrase")[
        label, h.input(type="password", name="passphrase", autocomplete="off", required=True)
    ]


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Node]], caption: str = "", **attributes: str
) -> Node:
    """Return a table; on a narrow screen each cell that does not fit has a line of its own, with
    its column's name.

    The first cell of a row is its head.
    """
    cells = [h.td(data_head=head) if head else h.td for head in heads[1:]]
    body = [
        h.tr[
            h.th(scope="row")[row[0]], *(td[cell] for td, cell in zip(cells, row[1:], strict=True))
        ]
        for row in rows
    ]
    region = h.div(
        class_="wide", tabindex="0", role="region", aria_label=caption or "Table", **attributes
    )
    return region[
        h.table[
            h.caption[caption] if caption else None,
            h.thead[h.tr[[h.th(scope="col")[head] for head in heads]]],
            h.tbody[body],
        ]
    ]


def when(at: str | None) -> Node:
    """Return a time in this machine's zone."""
    if not at:
        return "never"
    try:
        local = datetime.fromisoformat(at).astimezone()
    except ValueError:
        return one_line(at, 40)
    return h.time(datetime=at)[local.strftime("%Y-%m-%d %H:%M")]


def resource_address(ref: object, **query: object) -> str:
    """Return the address of a resource's page."""
    query_string = "&".join(
        f"{name}={quote_part(str(value))}" for name, value in query.items() if value is not None
    )
    return f"/resource/{quote_part(str(ref))}" + (f"?{query_string}" if query_string else "")


def resource_link(ref: object, label: str = "", **query: object) -> Node:
    """Return a link to a resource's page."""
    return h.a(href=resource_address(ref, **query))[one_line(label or str(ref), 120)]


def share_bar(share: Share) -> Node:
    """Return a share in words, and drawn where its counts are enough: the filled part is the share,
    the line its interval.
    """
    if not share.n:
        return h.span(".none")["outcome unknown"]
    if not share.is_enough:
        return h.span(".share")[str(share)]
    low, high, mean = 100 * share.low, 100 * share.high, 100 * share.successes / share.n
    interval_width = f"{max(high - low, 1):.1f}"
    picture = svg(
        viewBox="0 0 100 12", width="100", height="12", aria_hidden="true", class_="wilson"
    )
    bars = [
        shape("rect", x="0", y="2", width="100", height="8", class_="axis"),
        shape("rect", x="0", y="2", width=f"{mean:.1f}", height="8", class_="mean"),
        shape("rect", x=f"{low:.1f}", y="5", width=interval_width, height="2", class_="interval"),
    ]
    return h.span(".share")[picture[bars], f" {share}"]


def shape(name: str, **attributes: str) -> Element:
    """Return an element of SVG."""
    return Element(name)(**attributes)


def svg(**attributes: str) -> Element:
    """Return a picture; its elements are made by `shape`."""
    return Element("svg")(**attributes)


def plain(text: str) -> Node:
    """Return a text of many lines as it is, with every hidden character visible."""
    return h.pre[make_visible(text)]


def with_code(sentence: str) -> Node:
    """Return a sentence of ours whose commands, between backticks, are set as code."""
    return [h.code[part] if place % 2 else part for place, part in enumerate(sentence.split("`"))]


_AUTHOR_TAGS = {"you": "good", "agent": "", "member": ""}


def author_tag(kind: str, by: str) -> Node:
    """Return the label of an author."""
    return tag(author_words(kind, by), _AUTHOR_TAGS.get(kind, "doubtful"))


def tag(word: str, kind: str = "") -> Node:
    """Return a word as a label. kind: good, bad or doubtful."""
    return h.span(class_=f"tag {kind}".strip())[word]
