"""Show a unified diff: file by file, with the words that differ marked inside of changed lines."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from evolvable_page import elements as h
from evolvable_page.elements import Node
from evolvable_page.text import make_visible

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_WORD = re.compile(r"\w+|\s+|[^\w\s]")

MAX_WORDS = 2_000
"""Words of a pair of lines, both together, up to which they are compared word by word."""

# A choice, not measured: below it the marks cover most of both lines, and help nobody.
MIN_ALIKE = 0.3
"""The share of words in common below which a pair of lines is shown without marks."""

_PLACE = Markup('<span class="place">{}\n</span>')
_REMARK = Markup('<span class="remark">{}\n</span>')
_LINES = {
    "-": Markup('<span class="removed"><span class="sign">-</span>{}\n</span>'),
    "+": Markup('<span class="added"><span class="sign">+</span>{}\n</span>'),
    " ": Markup('<span><span class="sign"> </span>{}\n</span>'),
}
_REMOVED, _ADDED = Markup("<del>{}</del>"), Markup("<ins>{}</ins>")


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff.

    sign: '-', '+', ' ', '@' for the place of a hunk, '' for a remark. text: without the sign.
    """

    sign: str
    text: str


@dataclass(slots=True)
class FileDiff:
    """The lines of one file. path: without the version. what: happened to the file, in words."""

    path: str
    what: str
    lines: list[DiffLine] = field(default_factory=list)


def parse_diff(text: str) -> list[FileDiff]:
    """Return the files of a unified diff.

    Lines are counted by the head of their hunk: the text of a file can look like the head of
    another one.
    """
    files: list[FileDiff] = []
    old = new = 0
    lines = iter(text.split("\n"))
    for line in lines:
        # Inside a hunk every line counts down; only then can a line be a head again.
        if (old or new) and line[:1] in _LINES:
            old -= line[0] != "+"
            new -= line[0] != "-"
            files[-1].lines.append(DiffLine(line[0], line[1:]))
        elif line.startswith("\\") and files:
            files[-1].lines.append(DiffLine("", "No line end at the end of the file"))
        elif line.startswith("--- "):
            was, now = line[4:], next(lines, "+++ ")[4:]
            files.append(
                FileDiff(
                    _strip_version(now if now != "/dev/null" else was), _describe_change(was, now)
                )
            )
        elif (hunk := _HUNK.match(line)) and files:
            old, new = (int(count) if count is not None else 1 for count in hunk.groups())
            files[-1].lines.append(DiffLine("@", line))
        elif line:
            if not files:
                files.append(FileDiff("", "changed"))
            files[-1].lines.append(DiffLine("", line))
    return files


def _strip_version(name: str) -> str:
    return name.rpartition("@")[0] or name


def _describe_change(was: str, now: str) -> str:
    if was == "/dev/null":
        return "new file"
    return "removed file" if now == "/dev/null" else "changed"


def draw_diff(text: str) -> Node:
    """Return a unified diff as a section for each file."""
    files = parse_diff(text)
    if not files:
        return h.p(".none")["No difference."]
    return [
        h.section(".file", aria_label=make_visible(file.path))[
            h.h3[h.code[make_visible(file.path)], " ", h.span(".none")[file.what]],
            h.pre(".diff", tabindex="0")[[_draw_line(*line) for line in _mark_lines(file.lines)]],
        ]
        for file in files
    ]


def _draw_line(sign: str, body: str) -> Markup:
    # Put together as text: a diff has many lines, and elements take several times as long.
    # Formatting escapes `body`.
    if sign not in _LINES:
        return (_PLACE if sign == "@" else _REMARK).format(body)
    return _LINES[sign].format(body)


def _mark_lines(lines: Sequence[DiffLine]) -> Iterator[tuple[str, str]]:
    """Yield the sign and the shown text of each line.

    Runs of removed lines are paired with the added ones behind.
    """
    at = 0
    while at < len(lines):
        removed = _take_run(lines, at, "-")
        added = _take_run(lines, at + len(removed), "+")
        if not removed and not added:
            yield lines[at].sign, make_visible(lines[at].text)
            at += 1
            continue
        # Line by line in their order, which is right for most edits and needs no search.
        pairs = [_mark_words(old.text, new.text) for old, new in zip(removed, added, strict=False)]
        yield from (("-", pair[0]) for pair in pairs)
        yield from (("-", make_visible(line.text)) for line in removed[len(pairs) :])
        yield from (("+", pair[1]) for pair in pairs)
        yield from (("+", make_visible(line.text)) for line in added[len(pairs) :])
        at += len(removed) + len(added)


def _take_run(lines: Sequence[DiffLine], at: int, sign: str) -> Sequence[DiffLine]:
    """Return the lines from `at` on that have this sign, without a gap."""
    end = at
    while end < len(lines) and lines[end].sign == sign:
        end += 1
    return lines[at:end]


def _mark_words(old: str, new: str) -> tuple[str, str]:
    """Return both lines with the words that only one of them has marked."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    if len(before) + len(after) > MAX_WORDS:
        return make_visible(old), make_visible(new)
    # The equal words at both ends are taken off first: SequenceMatcher over whole lines takes most
    # of the time of a page.
    begin = _count_equal_words(before, after)
    end = _count_equal_words(before[begin:][::-1], after[begin:][::-1])
    inner, inner_new = before[begin : len(before) - end], after[begin : len(after) - end]
    matcher = difflib.SequenceMatcher(None, inner, inner_new, autojunk=False)
    alike = begin + end + sum(block.size for block in matcher.get_matching_blocks())
    if 2 * alike < MIN_ALIKE * (len(before) + len(after)):
        return make_visible(old), make_visible(new)
    head, tail = _escape_words(before[:begin]), _escape_words(before[len(before) - end :])
    removed, added = [head], [head]
    for change, start, stop, start_new, stop_new in matcher.get_opcodes():
        gone, come = _escape_words(inner[start:stop]), _escape_words(inner_new[start_new:stop_new])
        removed.append(gone if change == "equal" or not gone else _REMOVED.format(gone))
        added.append(come if change == "equal" or not come else _ADDED.format(come))
    return Markup("").join((*removed, tail)), Markup("").join((*added, tail))


def _count_equal_words(some: Sequence[str], others: Sequence[str]) -> int:
    """Return the number of equal words at the beginning of both."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((at for at, (word, other) in pairs if word != other), min(len(some), len(others)))


def _escape_words(words: Sequence[str]) -> Markup:
    return escape(make_visible("".join(words)))
