"""The digest of the last week on Home: lessons of agents, helpful and unused resources, undone
operations.
"""

from evolvable_page import elements as h
from evolvable_page.decision_notes import undo_form
from evolvable_page.elements import Node
from evolvable_page.layout import resource_link, with_code
from evolvable_page.site import PageRequest, Site
from evolvable_page.text import make_visible, one_line
from evolvable_tools.care import PARTS, Digest, DigestLine, DigestPart, weekly_digest

MAX_LINES = 10
"""Lines of each part; the terminal has the others."""


def draw_digest(site: Site, request: PageRequest) -> Node:
    """Return the digest, each part folded below its number.

    It is read beside the page: it goes through all uses.
    """
    caller = site.caller
    read: Digest | None = site.value(
        f"digest {caller.via}", lambda: weekly_digest(site.library, caller), site.library_revision()
    )
    body: Node = h.p(".none")["The week is being read; this page shows it by itself."]
    if read is not None:
        body = [
            _draw_part(request, getattr(read, name), title, nothing)
            for name, (title, nothing) in PARTS.items()
        ]
    return h.section(".panel.broad", id="digest", data_live=True)[
        h.h2["The last 7 days"],
        h.div(".digest")[body],
        h.p(".none")[with_code("`evolvable digest --write FILE` writes all of it as Markdown.")],
    ]


def _draw_part(request: PageRequest, part: DigestPart, title: str, nothing: str) -> Node:
    if not part.lines:
        return h.p(".none")[f"{title}: 0. {nothing}"]
    more = part.number - min(len(part.lines), MAX_LINES)
    return h.details[
        h.summary[f"{title}: {part.number:,}"],
        h.ul(".rows")[[_draw_line(request, line) for line in part.lines[:MAX_LINES]]],
        h.p(".none")[with_code(f"{more:,} more: `evolvable digest --json`")] if more > 0 else None,
    ]


def _draw_line(request: PageRequest, line: DigestLine) -> Node:
    names = [[resource_link(ref.partition("@")[0], ref), " "] for ref in line.refs]
    facts = ", ".join(filter(None, (line.text, line.author, line.at[:10])))
    why = f": {one_line(line.reason, 120)}" if line.reason else ""
    back = h.button(type="submit", aria_label=f"Take back operation {line.operation}")["Take back"]
    return h.li[
        h.span(".grow")[
            names,
            f"and {line.more:,} more " if line.more else None,
            h.span(".none")[make_visible(f"{facts}{why}")],
        ],
        undo_form(request, line.operation, back, "/")
        if line.operation
        else h.code[make_visible(line.undo)],
    ]
