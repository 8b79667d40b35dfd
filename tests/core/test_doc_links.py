"""Every link of the documentation leads to a file and a heading that are there, on the forge and on
the site.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), ROOT / "benchmarks/README.md", *(ROOT / "docs").rglob("*.md")]


@cache
def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    for token in tokens(page):
        for part in token.children or ():
            if part.type == "link_open":
                yield str(part.attrs["href"])


def forge_anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def site_anchor(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of the headings of a page that both the forge and the site have."""
    found = tokens(page)
    headings = [
        "".join(part.content for part in inline.children or ())
        for opening, inline in zip(found, found[1:], strict=False)
        if opening.type == "heading_open"
    ]
    return frozenset(map(forge_anchor, headings)) & frozenset(map(site_anchor, headings))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if ":" in path or (
            target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))
        ):
            continue
        dead.append(link)

    assert dead == []


def test_pages_have_links_and_anchors() -> None:
    assert sum(1 for page in PAGES for _ in links(page)) > 400
    found = anchors(ROOT / "docs/lookup.md")
    assert "the-verdict" in found and "judge" not in found, "a word in bold type is no heading"
