"""A file as the rules read it: as written, and as a reader takes it, without what hides words from
a search.

The structure of a text file: its sentences, headings, code lines and comments, and which of them a
change brings.
"""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import NamedTuple

from evolvable_tools.scan.scan_findings import Alternatives, PatternTable
from evolvable_tools.scan.text_loops import PartFinder

_TABLE = PatternTable("text_analysis.toml")
_PATTERNS = {name: _TABLE.compile(name) for name in _TABLE.data["patterns"]}

# Code points without a shape: soft hyphen, joiners, fillers and marks of direction; then variation
# selectors, the byte order mark and tags.
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164"
)
_MORE_INVISIBLE = "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff"


def _list_characters(ranges: str) -> Iterator[str]:
    """Yield the characters of the class of a pattern, but for those beyond 16 bits."""
    for match in re.finditer("(.)-(.)|(.)", ranges):
        first, last = (match[1], match[2]) if match[1] else (match[3], match[3])
        yield from map(chr, range(ord(first), min(ord(last), 0xFFFF) + 1))


_HIDDEN = re.compile(f"[{INVISIBLE}{_MORE_INVISIBLE}]+")

_HIDDEN_PARTS = PartFinder(tuple(_list_characters(f"{INVISIBLE}{_MORE_INVISIBLE}")))
_TAGS = re.compile("[\U000e0000-\U000e0fff]")
# Different characters, from which on one pass of the pattern is faster than a pass for each.
_MOST_PARTS = 8


def _remove_hidden(text: str) -> str:
    """Return a text without invisible characters.

    Those that most texts have, a few different ones, are soon out.
    """
    hidden_parts = _HIDDEN_PARTS.find(text)
    if len(hidden_parts) > _MOST_PARTS or _TAGS.search(text) is not None:
        return _HIDDEN.sub("", text)
    for part in hidden_parts:
        text = text.replace(part, "")
    return text


_LOOKALIKES = str.maketrans(_TABLE.data["lookalikes"])


def _replace_lookalikes(line: str) -> str:
    """Return a line with Latin letters for those that look like them, unless it is written in
    another alphabet.
    """
    if line.isascii() or _PATTERNS["alphabets"].search(line) is None:
        return line
    # A word that stays foreign after the replacement shows a text in that alphabet; only mixed
    # words are disguised then.
    if any(map(_stays_foreign, _PATTERNS["foreign_word"].findall(line))):
        return _PATTERNS["foreign_word"].sub(_replace_if_mixed, line)
    return line.translate(_LOOKALIKES)


def _stays_foreign(word: str) -> bool:
    """Return whether a word of three letters or more has other letters than look-alikes of Latin
    ones.
    """
    if not word.isalpha() or len(word) <= 2:
        return False
    return _PATTERNS["alphabets"].search(word.translate(_LOOKALIKES)) is not None


def _replace_if_mixed(word: re.Match[str]) -> str:
    return word[0].translate(_LOOKALIKES) if re.search("[a-zA-Z]", word[0]) else word[0]


_AROUND = 4
"""Lines around a new line that are read with it."""

MAX_EXCERPT = 120
"""Characters."""

_CODE, _DATA = (frozenset(_TABLE.data[name].split()) for name in ("code", "data"))


@dataclass(frozen=True)
class TextView:
    """A text file. `text`: as written, without its byte order mark and with line ends \\n."""

    path: str
    text: str
    lines_before: int = 0
    """Added to every line number: where a part of a file begins."""
    is_ascii: bool = field(init=False, default=True)

    def __post_init__(self) -> None:
        # The class is frozen, and this is known once.
        object.__setattr__(self, "is_ascii", self.text.isascii())

    @property
    def is_code(self) -> bool:
        """Whether the file is a program, by its name or its first line."""
        return (
            self.text.startswith("#!")
            or self.path.rpartition("/")[2].rpartition(".")[2].lower() in _CODE
        )

    @property
    def is_data(self) -> bool:
        """Whether each line of the file stands for itself, by its name."""
        return self.path.rpartition(".")[2].lower() in _DATA

    @cached_property
    def plain(self) -> str:
        """The text in lower case, without invisible characters, with Latin letters for those that
        look like them.
        """
        if self.is_ascii:
            return self.text.lower()
        # NFKC makes plain letters of full-width and styled ones.
        visible = unicodedata.normalize("NFKC", _remove_hidden(self.text))
        if _PATTERNS["alphabets"].search(visible):
            visible = "\n".join(map(_replace_lookalikes, visible.split("\n")))
        return visible.lower()

    def line(self, position: int, view: str | None = None) -> int:
        """Return the number of the line that a position of a view (default: the text) lies in."""
        whole = self.text if view is None else view
        return self.lines_before + whole.count("\n", 0, position) + 1

    def excerpt(self, start: int, end: int, view: str | None = None) -> str:
        """Return what stands from `start` to `end` of a view, with what is on the line around it,
        on one line.
        """
        whole = self.text if view is None else view
        end = min(end, start + MAX_EXCERPT)
        room = (MAX_EXCERPT - (end - start)) // 2
        first = max(0, start - room)
        first = max(whole.rfind("\n", first, start) + 1, first)
        last = whole.find("\n", end)
        last = min(len(whole) if last < 0 else last, end + room)
        return escape_unprintable(whole[first:last])


def view_of(path: str, data: bytes) -> TextView | None:
    """Return the file as text, None when it is none."""
    # Text in UTF-8 has no zero byte; text in UTF-16 mostly has.
    if b"\0" in data:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return TextView(path, text.removeprefix("\ufeff").replace("\r\n", "\n"))


def changed_lines_of(before: TextView | None, after: TextView) -> TextView:
    """Return a file with the lines that a change brings and those around them.

    All others are empty.
    """
    if before is None:
        return after
    old_lines = Counter(before.text.split("\n"))
    lines = after.text.split("\n")
    keep = [False] * len(lines)
    for number, line in enumerate(lines):
        old_lines[line] -= 1
        if old_lines[line] < 0:
            first, end = max(0, number - _AROUND), min(len(lines), number + _AROUND + 1)
            for near in range(first, end):
                keep[near] = True
    # The first line may tell that the file is a program.
    if lines[0].startswith("#!"):
        keep[0] = True
    text = "\n".join(line if is_kept else "" for line, is_kept in zip(lines, keep, strict=True))
    return TextView(after.path, text, after.lines_before)


def escape_unprintable(text: str) -> str:
    """Return the text on one line, with every character that is not printable written
    as an escape.
    """
    line = " ".join(text.split())
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in line
    )


class TextPart(StrEnum):
    """Where a sentence stands."""

    PROSE = "prose"
    HEADING = "heading"
    CODE = "code"
    FRONT = "front"
    COMMENT = "comment"
    """A comment in the source of a document."""
    UNSHOWN = "unshown"
    """Text of an element that a page does not show."""


class Sentence(NamedTuple):
    """One sentence or one line of code, in lower case. line: where its block begins."""

    part: TextPart
    text: str
    line: int
    program: bool = False
    """Whether it is a line of a program file, and not of a code block in a document."""


def parts(view: TextView) -> tuple[Sentence, ...]:
    """Return the sentences of a file in order."""
    if view.is_code:
        return tuple(_read_program(view.plain, view.lines_before))
    if view.is_data:
        return tuple(_read_data(view.plain, view.lines_before))
    return _read_document(view.plain, view.lines_before)


MAX_SENTENCE, _OVERLAP = 1_200, 300
"""Characters that the rules on meaning look at together, and by which two pieces of a long sentence
overlap.
"""


def sentence_diff(
    before: TextView | None, after: TextView
) -> tuple[list[Sentence], list[Sentence]]:
    """Return the sentences that a change adds and those that it takes away.

    All are added without a `before`.
    """
    if before is None:
        return list(parts(after)), []
    alike = before.is_code == after.is_code and not before.is_data and not after.is_data
    old, new = _changed_parts(before, after) if alike else (list(parts(before)), list(parts(after)))
    return _subtract(new, old), _subtract(old, new)


def _changed_parts(before: TextView, after: TextView) -> tuple[list[Sentence], list[Sentence]]:
    """Return the sentences of the lines that differ, and of those around them up to where both are
    divided alike.

    Both texts have the same sentences elsewhere, so that the difference of the results is that of
    the whole texts.
    """
    old, new = before.plain.split("\n"), after.plain.split("\n")
    alike = _count_equal(zip(old, new, strict=False))
    # Lines of the common beginning must not count again at the end.
    most = min(len(old), len(new)) - alike
    backwards = zip(reversed(old), reversed(new), strict=False)
    alike_last = _count_equal(itertools.islice(backwards, most))
    divide = _find_blank_lines if before.is_code else _find_divisions
    divides_old, divides_new = divide(old), divide(new)
    start = next((number for number in range(alike - 1, -1, -1) if divides_new[number]), 0)
    counts = range(alike_last, 0, -1)
    rest = next((count for count in counts if divides_old[-count] and divides_new[-count]), 0)
    return _read_lines(before, old, start, rest), _read_lines(after, new, start, rest)


def _count_equal(pairs: Iterable[tuple[str, str]]) -> int:
    """Return how many of the pairs have two equal lines, up to the first that differs."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _read_lines(view: TextView, lines: list[str], start: int, rest: int) -> list[Sentence]:
    """Return the sentences from the line `start` to the last `rest` lines, and what the whole
    source hides.
    """
    text = "\n".join(lines[start : len(lines) - rest])
    if view.is_code:
        return list(_read_program(text, view.lines_before + start))
    return [
        *_find_unseen(view.plain, view.lines_before),
        *_read_blocks(text, view.lines_before + start),
    ]


def _find_blank_lines(lines: list[str]) -> list[bool]:
    """Return for each line of a program whether it is blank."""
    return [not line.strip() for line in lines]


def _find_divisions(lines: list[str]) -> list[bool]:
    """Return for each line of a document whether it is blank and outside of code and
    front matter.
    """
    fence, front, divides = "", lines[0] == "---" and len(lines) > 1, []
    for number, line in enumerate(lines):
        bare = line.strip()
        divides.append(not bare and not fence and not front)
        if front:
            front = bare != "---" or number == 0
        elif match := _match_fence(line):
            fence = _update_fence(fence, match)
    return divides


def _subtract(some: Iterable[Sentence], others: Iterable[Sentence]) -> list[Sentence]:
    counts = Counter((sentence.part, sentence.text) for sentence in others)
    left = []
    for sentence in some:
        key = (sentence.part, sentence.text)
        counts[key] -= 1
        if counts[key] < 0:
            left.append(sentence)
    return left


def _read_program(text: str, lines_before: int) -> Iterator[Sentence]:
    note: list[str] = []
    start = 0
    for number, line in enumerate(text.split("\n"), lines_before + 1):
        bare = line.strip()
        comment = _read_comment(bare)
        if comment is not None:
            note.append(comment)
            start = start or number
        elif note:
            yield from _split(TextPart.PROSE, " ".join(note), start, program=True)
            note, start = [], 0
        if bare:
            yield Sentence(TextPart.CODE, bare, number, True)
    if note:
        yield from _split(TextPart.PROSE, " ".join(note), start, program=True)


def _read_data(text: str, lines_before: int) -> Iterator[Sentence]:
    for number, line in enumerate(text.split("\n"), lines_before + 1):
        if bare := line.strip():
            yield from _split(TextPart.PROSE, bare, number)


def _read_comment(line: str) -> str | None:
    """Return the words of a comment or of a line of plain words, None for a statement."""
    if _BEFORE_NOTE.find(line) and (match := _PATTERNS["note"].search(line)):
        return match[1]
    is_plain = line.count(" ") >= 3 and _PATTERNS["plain_line"].fullmatch(line)
    return line.strip("\"' ") if is_plain else None


_BEFORE_NOTE = PartFinder(("#", "//", "--", "*", ";", "rem"))
"""One of these stands before the words of a comment."""


@lru_cache(maxsize=16)  # documents; each takes several times its length in memory
def _read_document(text: str, lines_before: int) -> tuple[Sentence, ...]:
    return (*_find_unseen(text, lines_before), *_read_blocks(text, lines_before))


def _match_fence(line: str) -> re.Match[str] | None:
    # Both forms of a fence are looked for before the pattern is tried, since every line comes here.
    return _PATTERNS["fence"].match(line) if "```" in line or "~~~" in line else None


def _update_fence(fence: str, match: re.Match[str]) -> str:
    """Return the fence that is open after a line with one; `fence`: the one that is open before it,
    or ''.
    """
    if not fence:
        return match[1]
    return "" if match[1].startswith(fence) else fence


def _read_blocks(text: str, lines_before: int) -> Iterator[Sentence]:
    fence, front = "", text.startswith("---\n")
    block: list[str] = []
    start, item_of = 0, _PATTERNS["item"].match
    for number, line in enumerate(text.split("\n"), lines_before + 1):
        if front:
            bare = line.strip()
            if bare == "---" and number > lines_before + 1:
                front = False
            elif bare != "---" and bare:
                yield from _split(TextPart.FRONT, bare, number)
            continue
        match = _match_fence(line)
        if match and (after := _update_fence(fence, match)) != fence:
            yield from _finish_block(block, start)
            block, fence = [], after
            continue
        if fence:
            if bare := line.strip():
                yield Sentence(TextPart.CODE, bare, number)
                if (note := _read_comment(bare)) is not None and note.count(" ") >= 3:
                    yield from _split(TextPart.PROSE, note, number, program=True)
            continue
        bare = line.strip()
        blank = not bare
        # An item begins with one of these signs or with a digit, of any script.
        item = item_of(line) if bare and (bare[0] in ">-*+•" or bare[0].isdecimal()) else None
        if block and (blank or item or line.startswith(("#", "|", "    |"))):
            yield from _finish_block(block, start)
            block = []
        if blank:
            continue
        if not block:
            start = number
        block.append(line[item.end() :] if item else line)
        if line.startswith(("#", "|")):
            yield from _finish_block(block, start)
            block = []
    yield from _finish_block(block, start)


def _finish_block(block: list[str], start: int) -> Iterator[Sentence]:
    if not block:
        return
    if block[0].startswith("#"):
        yield Sentence(TextPart.HEADING, block[0].strip("# \t"), start)
        return
    text = " ".join(part.strip() for part in block) if len(block) > 1 else block[0].strip()
    if "<!--" in text:
        text = _PATTERNS["comment"].sub(" ", text)
    if text.strip():
        yield from _split(TextPart.PROSE, text, start)


def windows(sentence: Sentence) -> Iterator[Sentence]:
    """Yield a sentence in pieces of at most MAX_SENTENCE characters, which overlap; most sentences
    are one piece.

    The rules compare the places of words with one another, so an endless sentence would take them
    endless time.
    """
    text = sentence.text
    if len(text) <= MAX_SENTENCE:
        yield sentence
        return
    for start in range(0, len(text) - _OVERLAP, MAX_SENTENCE - _OVERLAP):
        yield sentence._replace(text=text[start : start + MAX_SENTENCE])


def _split(part: TextPart, text: str, line: int, program: bool = False) -> Iterator[Sentence]:
    # Most blocks of an update are those of the version before; an endless one is not worth its
    # memory.
    for piece in (
        _split_block(text) if len(text) <= MAX_SENTENCE else _split_block.__wrapped__(text)
    ):
        yield Sentence(part, piece, line, program)


_LONGEST_ABBREVIATION = 12
"""Characters, with what may stand around it."""


def _is_abbreviated(piece: str) -> bool:
    if not piece.rstrip().endswith((".", ":")):
        return False
    start = max(0, len(piece) - _LONGEST_ABBREVIATION)
    return _PATTERNS["abbreviation"].search(piece, start) is not None


@lru_cache(maxsize=512)
def _split_block(text: str) -> tuple[str, ...]:
    """Return the sentences of a block of text."""
    sentences: list[str] = []
    rest = ""
    # Marks of bold text would hide the end of a sentence within them.
    text = text.replace("**", "")
    if not _PATTERNS["end_inside"].search(text):
        return (text.strip(),) if text.strip() else ()
    for piece in _PATTERNS["sentence_end"].split(text):
        rest = f"{rest}{piece}"
        # A point inside of a code span ends no sentence: `rsync -a . HOST:/in` is one command.
        # Bounded, because a single backtick would make one sentence of all that follows.
        if (_is_abbreviated(piece) or rest.count("`") % 2) and len(rest) < 400:
            rest += " "
            continue
        sentences.append(rest.strip())
        rest = ""
    return tuple(filter(None, (*sentences, rest.strip())))


def _find_unseen(text: str, lines_before: int) -> Iterator[Sentence]:
    """Yield what stands in the source of a document and not in what a person sees of it."""
    if not any(mark in text for mark in ("<", "]:", "{/*", "%%")):
        return
    # What a code block shows is seen. Its line breaks stay, so that line numbers are right.
    if "`" in text or "~~~" in text:
        text = _PATTERNS["shown"].sub(lambda match: "\n" * match[0].count("\n"), text)
    for pattern, part, may_match in _SOURCE_ONLY:
        for match in pattern.finditer(text) if may_match(text) else ():
            hidden_text = " ".join(_PATTERNS["tag"].sub(" ", match[match.lastindex or 0]).split())
            if hidden_text:
                line = lines_before + text.count("\n", 0, match.start()) + 1
                yield Sentence(part, hidden_text, line)


_HIDES = Alternatives(_TABLE.join([source]) for source in _TABLE.data["parts"]["hides"])


def _may_refer(text: str) -> bool:
    return any(mark in text for mark in ("]:", "{/*", "%%"))


_INERT = PartFinder(("<template", "<noscript", "<script", "<datalist", "<input", "<meta"))

_SOURCE_ONLY: tuple[tuple[re.Pattern[str], TextPart, Callable[[str], object]], ...] = (
    (_PATTERNS["comment"], TextPart.COMMENT, lambda text: "<!--" in text),
    (_PATTERNS["reference"], TextPart.COMMENT, _may_refer),
    (_PATTERNS["unseen"], TextPart.UNSHOWN, lambda text: "<" in text and _HIDES.search(text)),
    (_PATTERNS["inert"], TextPart.UNSHOWN, _INERT.find),
)
"""Patterns, what they find, and whether a text has the letters of a match: that is soon known, and
most have none.
"""
