"""The structure of a text file: its sentences, headings, code lines and comments, and which of them a change brings."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from evolvable_tools.scan.views import View


class Part(StrEnum):
    """Where a sentence stands."""

    PROSE = "prose"
    HEADING = "heading"
    CODE = "code"
    FRONT = "front"
    COMMENT = "comment"
    """An HTML comment, or text that Markdown or CSS hides."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence or one line of code, in lower case. line: where its block begins."""

    part: Part
    text: str
    line: int
    program: bool = False
    """Whether it is a line of a program file, and not of a code block in a document."""


_FENCE = re.compile(r"\s{0,20}(?:>\s?)?(?:[-*+]\s|\d{1,3}\.\s)?\s{0,12}(```+|~~~+)")
_ITEM = re.compile(r"\s{0,40}(?:>\s{0,4})*(?:[-*+•]|\d{1,3}[.)])\s+|\s{0,10}>\s{0,4}")
_SENTENCE_END = re.compile(r"(?<=[.!?:][\s\"'”)`*])\s*(?=\S)|(?<=[。！？])\s*(?=\S)")
_ABBREVIATION = re.compile(r"(?:^[\w-]+:|\b(?:e\.g|i\.e|etc|vs|z\.b|d\.h|bzw|ca|no|fig|\d)[.:]|:)\s?$")
_COMMENT = re.compile(r"<!--(.{1,4000}?)(?:-->|\Z)", re.DOTALL)
_REFERENCE = re.compile(r"(?m)^\s{0,3}\[(?://|comment|_|\^?#)\]:\s{0,3}(?:#|<>|<#>)\s{0,3}[(\"'](.{1,1000})[)\"']\s*$")
_UNSEEN = re.compile(
    r"<([a-z]{1,12})\b[^>\n]{0,300}?(?:display\s?:\s?none|visibility\s?:\s?(?:hidden|collapse)|font-size\s?:\s?0?\.?[01]?(?:px|pt|em|rem)?\s?[;\"']"
    r"|opacity\s?:\s?0?\.?0?[0-9]?\s?[;\"']|color\s?[:=]\s?[\"']?(?:#fff(?:fff)?|white|transparent)\b|\s(?:hidden|aria-hidden=[\"']?true)(?=[\s>=])"
    r"|(?:left|top|text-indent)\s?:\s?-\d{3,}|clip\s?:\s?rect\(0|(?:max-)?(?:height|width)\s?:\s?[01](?:px)?\s?[;\"'])"
    r"[^>\n]{0,300}>(.{1,2000}?)(?:</\1|\Z)",
    re.DOTALL,
)
_SHOWN = re.compile(r"(?ms)^[ \t>]*(```+|~~~+).*?(?:^[ \t>]*\1|\Z)|`[^`\n]{1,400}`")
"""Code is shown as it is written, comments and styles in it as well."""
_TAG = re.compile(r"<[^>\n]{0,200}>")
_NOTE = re.compile(r"(?:^|\s)(?:#|//|--|;|rem\s|\*|/\*+)\s+(.{8,400})$")
_PLAIN_LINE = re.compile(r"[\"']{0,3}\s{0,4}[^\W_][^\n(){}=;\[\]]{15,}")


def parts(view: View) -> tuple[Sentence, ...]:
    """Return the sentences of a file in order."""
    if view.is_code:
        return tuple(_of_program(view.plain, view.lines_before))
    return _of_document(view.plain, view.lines_before)


MAX_SENTENCE, _OVERLAP = 1_200, 300
"""Characters that the rules on meaning look at together, and by which two pieces of a long sentence overlap."""


def brought(before: View | None, after: View) -> tuple[list[Sentence], list[Sentence]]:
    """Return the sentences that a change adds and those that it takes away; all are added without a `before`."""
    new = parts(after)
    if before is None:
        return list(new), []
    old = parts(before)
    return _without(new, old), _without(old, new)


def _without(some: Iterable[Sentence], others: Iterable[Sentence]) -> list[Sentence]:
    known = Counter((one.part, one.text) for one in others)
    left = []
    for one in some:
        key = (one.part, one.text)
        known[key] -= 1
        if known[key] < 0:
            left.append(one)
    return left


def _of_program(text: str, lines_before: int) -> Iterator[Sentence]:
    note: list[str] = []
    start = 0
    for number, line in enumerate(text.split("\n"), lines_before + 1):
        bare = line.strip()
        said = _said(bare)
        if said is not None:
            note.append(said)
            start = start or number
        elif note:
            yield from _split(Part.PROSE, " ".join(note), start, program=True)
            note, start = [], 0
        if bare:
            yield Sentence(Part.CODE, bare, number, True)
    if note:
        yield from _split(Part.PROSE, " ".join(note), start, program=True)


def _said(line: str) -> str | None:
    """Return the words of a comment or of a line of plain words, None for a statement."""
    if match := _NOTE.search(line):
        return match[1]
    return line.strip("\"' ") if _PLAIN_LINE.fullmatch(line) and line.count(" ") >= 3 else None


@lru_cache(maxsize=64)
def _of_document(text: str, lines_before: int) -> tuple[Sentence, ...]:
    return tuple(_document(text, lines_before))


def _document(text: str, lines_before: int) -> Iterator[Sentence]:
    if "<" in text or "]:" in text:
        yield from _unseen(text, lines_before)
    fence, front = "", text.startswith("---\n")
    block: list[str] = []
    start = 0
    for number, line in enumerate(text.split("\n"), lines_before + 1):
        if front:
            bare = line.strip()
            if bare == "---" and number > lines_before + 1:
                front = False
            elif bare != "---" and bare:
                yield from _split(Part.FRONT, bare, number)
            continue
        match = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if match and (not fence or match[1].startswith(fence)):
            yield from _ended(block, start)
            block = []
            fence = "" if fence else match[1]
            continue
        if fence:
            if bare := line.strip():
                yield Sentence(Part.CODE, bare, number)
                if (note := _said(bare)) is not None and note.count(" ") >= 3:
                    yield from _split(Part.PROSE, note, number, program=True)
            continue
        item = _ITEM.match(line)
        if not line.strip() or item or line.startswith(("#", "|", "    |")):
            yield from _ended(block, start)
            block = []
        if not line.strip():
            continue
        if not block:
            start = number
        block.append(line[item.end() :] if item else line)
        if line.startswith(("#", "|")):
            yield from _ended(block, start)
            block = []
    yield from _ended(block, start)


def _ended(block: list[str], start: int) -> Iterator[Sentence]:
    if not block:
        return
    if block[0].startswith("#"):
        yield Sentence(Part.HEADING, block[0].strip("# \t"), start)
        return
    text = " ".join(part.strip() for part in block)
    if "<!--" in text:
        text = _COMMENT.sub(" ", text)
    if text.strip():
        yield from _split(Part.PROSE, text, start)


def windows(sentence: Sentence) -> Iterator[Sentence]:
    """Yield a sentence in pieces of at most MAX_SENTENCE characters, which overlap; most sentences are one piece.

    The rules compare the places of words with one another, so an endless sentence would take them for ever.
    """
    text = sentence.text
    if len(text) <= MAX_SENTENCE:
        yield sentence
        return
    for start in range(0, len(text) - _OVERLAP, MAX_SENTENCE - _OVERLAP):
        yield replace(sentence, text=text[start : start + MAX_SENTENCE])


def _split(part: Part, text: str, line: int, program: bool = False) -> Iterator[Sentence]:
    # Most blocks of an update are those of the version before; an endless one is not worth its memory.
    pieces = _pieces(text) if len(text) <= MAX_SENTENCE else _pieces.__wrapped__(text)
    for piece in pieces:
        yield Sentence(part, piece, line, program)


@lru_cache(maxsize=2048)
def _pieces(text: str) -> tuple[str, ...]:
    """Return the sentences of a block of text."""
    found: list[str] = []
    rest = ""
    for piece in _SENTENCE_END.split(text.replace("**", "")):
        rest = f"{rest}{piece}"
        if _ABBREVIATION.search(piece) and len(rest) < 400:
            rest += " "
            continue
        found.append(rest.strip())
        rest = ""
    return tuple(filter(None, (*found, rest.strip())))


def _unseen(text: str, lines_before: int) -> Iterator[Sentence]:
    """Yield what stands in the source of a document and not in what a person sees of it."""
    text = _SHOWN.sub(lambda match: "\n" * match[0].count("\n"), text)
    for pattern, group in ((_COMMENT, 1), (_REFERENCE, 1), (_UNSEEN, 2)):
        for match in pattern.finditer(text):
            said = " ".join(_TAG.sub(" ", match[group]).split())
            if said:
                line = lines_before + text.count("\n", 0, match.start()) + 1
                yield Sentence(Part.COMMENT, said, line)
