"""The sections of Markdown files: their stable ids, their places, and which of them are frozen.

A section is what stands below a heading of the second level, up to the next heading of that level
or of the first. A first-level heading after a section begins one too. A parser of CommonMark finds
the headings, so that lines of code that look like headings are none.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

from evolvable_store import Files, find_frontmatter

MAX_PARSED = 256 * 1024
"""Bytes of a file that is parsed. A longer one is one section."""

_FROZEN = re.compile(r"<!--\s*frozen\s*-->")
_LINE_END = re.compile(r"\r\n|\n|\r")
_SLUG = re.compile(r"[\W_]+")
_PARSER = MarkdownIt("commonmark").disable("inline")
"""Parses blocks alone, in half the time: nothing inside a paragraph is a section or a mark."""


@dataclass(frozen=True, slots=True)
class MarkdownSection:
    """One section. id: of its heading, '' for what stands before the first. start, end: its text in
    the file.

    frozen: a comment `<!-- frozen -->` stands in it, as a block of its own.
    """

    id: str
    start: int
    end: int
    frozen: bool = False


def read_sections(data: bytes) -> list[MarkdownSection]:
    """Return the sections of a Markdown file, the text before the first one included. A file that
    is not UTF-8: none.

    Ids are the words of the headings, lower case, with hyphens; of two that are equal the later one
    ends in a number.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return []
    # Parsing takes time, and a hostile file may be long; a mark anywhere in it then freezes the
    # whole file.
    if len(data) > MAX_PARSED:
        return [MarkdownSection("", 0, len(text), _FROZEN.search(text) is not None)]
    place = find_frontmatter(data)
    # Places of the frontmatter are in bytes, those of sections in characters.
    offset = len(data[: place.body].decode("utf-8")) if place else 0
    body = text[offset:]
    lines = [offset, *(offset + match.end() for match in _LINE_END.finditer(body))]
    tokens = _PARSER.parse(body)
    frozen = [token.map[0] for token in tokens if _is_frozen_mark(token) and token.map]
    sections, used_ids = list[MarkdownSection](), set[str]()
    for name, first, last in _find_spans(tokens, len(lines)):
        start, end = (lines[line] if line < len(lines) else len(text) for line in (first, last))
        marked = any(first <= line < last for line in frozen)
        sections.append(MarkdownSection(_make_id(name, used_ids), start, end, marked))
    return sections


def _is_frozen_mark(token: Token) -> bool:
    return token.type == "html_block" and _FROZEN.search(token.content) is not None


def _find_spans(tokens: list[Token], lines: int) -> Iterator[tuple[str | None, int, int]]:
    """Yield the heading of each section, None for the text before the first, with its first line
    and the line after.
    """
    name: str | None = None
    first = 0
    for at, token in enumerate(tokens):
        if token.map is None or not _is_section_heading(token):
            continue
        if token.tag == "h1" and name is None:
            continue  # a title belongs to what stands before the first section
        yield name, first, token.map[0]
        name, first = tokens[at + 1].content, token.map[1]
    yield name, first, lines


def _is_section_heading(token: Token) -> bool:
    # A heading within a quotation or a list, which has a level, begins no section.
    return token.type == "heading_open" and not token.level and token.tag in ("h1", "h2")


def _make_id(heading: str | None, used: set[str]) -> str:
    if heading is None:
        return ""
    slug = _SLUG.sub("-", heading.lower()).strip("-")[:80].strip("-") or "section"
    name, number = slug, 1
    while name in used:
        number += 1
        name = f"{slug}-{number}"
    used.add(name)
    return name


def frozen_sections(files: Files) -> dict[str, str]:
    """Return the texts of all frozen sections, by path and id."""
    texts = dict[str, str]()
    for path, file in files.items():
        # Most files have no such word, and are not parsed.
        if path.endswith(".md") and b"frozen" in file.data:
            text = file.data.decode("utf-8", "replace")
            texts |= {
                f"{path}#{section.id}": text[section.start : section.end]
                for section in read_sections(file.data)
                if section.frozen
            }
    return texts


def changed_frozen_sections(before: Files, after: Files) -> list[str]:
    """Return the frozen sections that a change edits, renames, unfreezes or removes, by path and
    id.
    """
    changed = {
        path: file
        for path, file in before.items()
        if path not in after or after[path].data != file.data
    }
    frozen_after: Mapping[str, str] = frozen_sections(
        {path: after[path] for path in changed if path in after}
    )
    return [
        name for name, text in frozen_sections(changed).items() if frozen_after.get(name) != text
    ]
