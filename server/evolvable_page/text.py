"""Show untrusted text in a browser: characters that hide or turn text are written out, Markdown is
rendered inert.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import takewhile
from typing import Any
from urllib.parse import quote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

_HARMLESS = frozenset("\n\t\u200c\u200d\ufe0f")
"""Line ends, tabs, and the joiners and the selector that scripts and emoji need."""

# Unicode categories: controls, format characters, surrogates, private use, unassigned, and the two
# separators.
_STEERS = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))

_SELECTORS = (
    *range(0xFE00, 0xFE10),
    *range(0xE0100, 0xE01F0),
    *range(0x115F, 0x1161),
    0x3164,
    0xFFA0,
)
"""Characters without a shape that Unicode counts as letters or marks."""

_SHAPELESS = frozenset(map(chr, _SELECTORS)) - _HARMLESS

# Rendering takes time in proportion to the text, and a page has little of it.
MAX_MARKDOWN = 50_000
"""Characters of a document that are rendered; the rest is shown as plain text."""

# `javascript:` and `data:` would run in the page; the policy of the page forbids it too.
SCHEMES = ("http", "https", "mailto")
"""Schemes that a link of a document may have; any other link is shown as text."""


def make_visible(text: str) -> str:
    """Return a text whose characters without a shape, or that turn the direction of writing, are
    written as ⟦U+202E⟧.

    CR LF becomes LF.
    """
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    # Over the set: a long text has few different characters, and `category` is slow.
    hidden = [char for char in set(text) if _is_hidden(char)]
    if not hidden:
        return text
    return text.translate({ord(char): f"⟦U+{ord(char):04X}⟧" for char in hidden})


_LINE_END = re.compile("\r\n|\r|\n")


def restore_line_ends(sent: str, original: str) -> str:
    """Return a text that was edited in a form with the line ends of the text that the form showed.

    A browser sends CR LF for every line end. The lines before and after the edited ones have the
    ends that they had, those between have the end that most lines had. The time is in proportion to
    the length of the texts.
    """
    old, new = _LINE_END.split(original), _LINE_END.split(sent)
    old_ends = _LINE_END.findall(original)
    usual_end = max(sorted(set(old_ends)), key=old_ends.count, default="\n")
    ends = [usual_end] * (len(new) - 1)
    head = _count_equal(zip(old, new, strict=False))
    equal_tail = _count_equal(zip(reversed(old), reversed(new), strict=False))
    tail = min(equal_tail, len(old) - head, len(new) - head)
    before = min(head, len(old_ends), len(ends))
    after = max(tail - 1, 0)  # the last line has no end
    ends[:before] = old_ends[:before]
    ends[len(ends) - after :] = old_ends[len(old_ends) - after :]
    return "".join(line + end for line, end in zip(new, [*ends, ""], strict=True))


def _count_equal(pairs: Iterable[tuple[str, str]]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _is_hidden(char: str) -> bool:
    return char not in _HARMLESS and (char in _SHAPELESS or unicodedata.category(char) in _STEERS)


def one_line(text: str, limit: int = 300) -> str:
    """Return a text as one visible line of at most `limit` characters."""
    line = make_visible(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


Place = Callable[[str], str | None]
"""Returns the address of a file of the resource that a relative link names, None when there is
none.
"""


def render_markdown(text: str, place: Place) -> tuple[Markup, str]:
    """Return the beginning of a document as HTML without any of its own HTML, and the rest as it is
    to be shown.

    A link shows the host that it leads to. An image is not loaded: its text and its host are shown.
    """
    visible = make_visible(text)
    end = len(visible)
    if end > MAX_MARKDOWN:
        # No line is cut, unless it is all there is.
        end = visible.rfind("\n", 0, MAX_MARKDOWN) + 1 or MAX_MARKDOWN
    return Markup(_make_parser().render(visible[:end], {"place": place})), visible[end:]


@cache
def _make_parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "maxNesting": 40}
    parser = MarkdownIt("commonmark", options).enable("table")
    # Every address is parsed, so that none stays as source text; what may be followed is decided
    # when it is shown.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    rules: Any = parser.renderer.rules  # type: ignore[attr-defined]
    rules |= {"link_open": _open_link, "link_close": _close_link, "image": _write_image}
    # A `style` attribute would be refused by the policy of the page.
    rules |= dict.fromkeys(("th_open", "td_open"), lambda tokens, at, *_: f"<{tokens[at].tag}>")
    return parser


def _open_link(tokens: Sequence[Token], at: int, _: Any, env: Any) -> str:
    written = str(tokens[at].attrs.get("href", ""))
    address = _resolve_link(written, env["place"])
    env.setdefault("links", []).append((address, written))
    if address is None:
        return "<span>"
    return f'<a href="{escapeHtml(address)}" rel="noopener noreferrer nofollow">'


def _close_link(tokens: Sequence[Token], at: int, _: Any, env: Any) -> str:
    address, written = env["links"].pop()
    if address is None:
        return f'</span> <span class="host">({escapeHtml(written[:200])})</span>'
    host = host_of(address)
    return "</a>" + (f' <span class="host">({escapeHtml(host)})</span>' if host else "")


def _write_image(tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    token = tokens[at]
    alt = RendererHTML().renderInlineAsText(token.children or [], options, env)
    source = str(token.attrs.get("src", ""))
    where = escapeHtml(host_of(source) or source[:200])
    return f'<span class="host">[image: {escapeHtml(alt)} ({where})]</span>'


def _resolve_link(written: str, place: Place) -> str | None:
    """Return the address that a link of a document leads to, None for one that is not to be
    followed.
    """
    try:
        parts = urlsplit(written)
    except ValueError:
        return None
    if parts.scheme in SCHEMES and (parts.netloc or parts.scheme == "mailto"):
        return written
    if parts.scheme or parts.netloc or written.startswith(("/", "\\", "#")):
        return None
    return place(parts.path)


def host_of(address: str) -> str:
    """Return the host that an address leads to, in ASCII as browsers resolve it; '' for none."""
    try:
        parts = urlsplit(address)
        if parts.hostname:
            return parts.hostname.encode("idna").decode("ascii")
        return parts.path if parts.scheme == "mailto" else ""
    except (ValueError, UnicodeError):
        return "unreadable host"


def quote_part(text: str) -> str:
    """Return a text as one part of an address."""
    return quote(text, safe="")
