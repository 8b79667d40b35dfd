"""Rules on what a lesson does to the text that is there: its size, and whether the text says it or
the contrary.

Lines are compared by the stems of their words. Two lines are about the same when they share most of
the stems of one of them. They contradict each other when one forbids what the other one asks for,
or names another value in its place.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from evolvable_store import Files
from evolvable_store.search import tokenize
from evolvable_tools.verbs import content_terms

MAX_LINES = 5
"""Lines that a lesson adds, and lines that it takes away."""

# Two joined lines have more stems than one, so they match by chance more often.
SAID, SAID_IN_TWO = 0.66, 0.8
"""Share of a line's stems in a line that is there, or in two in a row, from which it says nothing
new.
"""

FEW = 3
"""Stems of a line in which each counts: "Sign it twice" says more than "Sign it"."""

HALF = 0.5
"""Share of the stems of two lines, without their values, from which they say the same of different
values.
"""

ABOUT = 0.6
"""Share of the stems of the shorter of two lines in the other one, from which both are about the
same.
"""

MAX_TEXT_LINES = 2_000
"""Lines of a file that are compared with."""

_TABLE = tomllib.loads(Path(__file__).with_name("lesson_words.toml").read_text("utf-8"))
_DENIES = re.compile("|".join(_TABLE["denies"]), re.IGNORECASE)
_SAME = {word: group[0] for group in map(str.split, _TABLE["same"]) for word in group}
_SAME_STEM = {stem: first for word, first in _SAME.items() for stem in content_terms(word)}
_OPPOSITE = [frozenset(pair.split()) for pair in _TABLE["opposite"]]
_WEAK = frozenset(_TABLE["weak"].split())
# Ends a clause where a space follows: `a:b` and `1,000` are not split.
_CLAUSE = re.compile(r"[,;:](?:\s|$)")
# What frames a line in Markdown: quote marks, bullets, heading signs, numbers of a list.
_FRAME = re.compile(r"^[\s>*+#-]*(?:\d+[.)]\s+)?")
# Code, quotes, options, numbers, paths and addresses, and words in capitals.
_VALUE = re.compile(
    r"`[^`\n]+`|\"[^\"\n]+\"|(?<!\w)--?[a-z][\w-]*|\b\d[\w.:%]*"
    r"|[\w-]*[./_@:][\w./@:-]*\w|\b[A-Z]{2,}\b"
)
_SLOT = re.compile(_TABLE["slot"], re.IGNORECASE)
_PREFERS = re.compile(_TABLE["prefers"], re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LineTerms:
    """One line as lines are compared.

    stems: of its words. values: its numbers and names. slots: of these and its other words those of
    which only one can hold, such as the number of days or what comes after `with`. denies: whether
    its main clause forbids what it names.
    """

    text: str
    stems: frozenset[str]
    words: frozenset[str]
    values: frozenset[str]
    slots: frozenset[tuple[str, str]]
    denies: bool

    @property
    def every_value(self) -> set[str]:
        """Its numbers and names, with those of its slots."""
        return {*self.values, *(value for _, value in self.slots)}


# Room for the lines of two files of MAX_TEXT_LINES: each line is compared with many others.
@lru_cache(maxsize=4_096)
def line_terms(text: str) -> LineTerms:
    """Return a line as lines are compared."""
    plain = _FRAME.sub("", text).strip()
    words = frozenset(_SAME.get(word, word) for word in tokenize(plain))
    terms = content_terms(" ".join(sorted(words - _WEAK)))
    stems = frozenset(
        _SAME_STEM.get(term, term) for term in terms if len(term) > 1 or term.isdigit()
    )
    # Case and the quotation marks around a value do not distinguish two values.
    values = frozenset(value.strip('`".,:').casefold() for value in _VALUE.findall(plain)) - {""}
    # "Read it as UTF-8, never as latin-1" asks for something: its longest clause decides.
    main = max(_CLAUSE.split(plain), key=lambda part: len(tokenize(part)))
    found_slots = (
        (word.casefold() or "#", number or name) for number, word, name in _SLOT.findall(plain)
    )
    slots = frozenset((key, value.strip('`".,:').casefold()) for key, value in found_slots)
    # Two denials cancel each other out: "never skip" asks for something.
    return LineTerms(plain, stems, words, values, slots, len(_DENIES.findall(main)) % 2 == 1)


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """Return the lines that a change adds and those that it takes away, none that is empty."""
    diff = list(difflib.ndiff(before.splitlines(), after.splitlines(), charjunk=None))
    added, removed = (
        [line[2:] for line in diff if line[:1] == sign and line[2:].strip()] for sign in "+-"
    )
    return added, removed


def too_many_lines(before: Files, after: Files) -> int:
    """Return how many lines a lesson changes where that is more than MAX_LINES, else 0."""
    most = 0
    for path in {*before, *after}:
        old, new = (_read_text(files, path) for files in (before, after))
        if old != new:
            added, removed = changed_lines(old, new)
            most += max(len(added), len(removed))
    return most if most > MAX_LINES else 0


def says_nothing_new(before: Files, after: Files) -> str:
    """Return a line that is there and says all that a lesson adds, '' where the lesson says
    something else.
    """
    covering = ""
    for added, _, unchanged in _compare_files(before, after):
        for line in added:
            covers = (old for old, share in _pair_lines(unchanged) if _covers(old, line, share))
            match = next(covers, None)
            if match is None and line.stems:
                return ""
            covering = match.text if match is not None else covering
    return covering


def contradicted_line(before: Files, after: Files) -> str:
    """Return a line that stays there and says the contrary of what a lesson adds, '' where there is
    none.
    """
    for added, _, unchanged in _compare_files(before, after):
        for line in added:
            for old in unchanged:
                if contradict(line, old):
                    return old.text
    return ""


def contradict(left: LineTerms, right: LineTerms) -> bool:
    """Return whether two lines about the same say the contrary of each other."""
    if left.denies == right.denies and _is_swapped(left, right):
        return True
    shared = left.stems & right.stems
    fewer = min(len(left.stems), len(right.stems))
    if fewer < 2 or len(shared) < 2 or len(shared) < ABOUT * fewer:
        return _has_other_value(left, right)
    if left.denies != right.denies and _forbids_same(left, right):
        return True
    if left.denies == right.denies and _has_opposite_words(left, right):
        return True
    return _has_other_value(left, right)


def _is_swapped(left: LineTerms, right: LineTerms) -> bool:
    """Return whether one line prefers what the other one puts behind."""
    ours, theirs = (
        {tuple(map(str.casefold, pair)) for pair in _PREFERS.findall(line.text)}
        for line in (left, right)
    )
    return any((second, first) in theirs for first, second in ours)


def _has_opposite_words(left: LineTerms, right: LineTerms) -> bool:
    """Return whether one line has a word and the other its opposite."""
    for pair in _OPPOSITE:
        mine, theirs = pair & left.words, pair & right.words
        if len(mine) == 1 == len(theirs) and mine != theirs:
            return True
    return False


def _forbids_same(left: LineTerms, right: LineTerms) -> bool:
    """Return whether what one of two lines forbids is what the other asks for.

    Where they name values they have one in common; where one of them names none, nearly all other
    words are the same.
    """
    if left.values and right.values:
        return bool(left.values & right.values)
    alike = len(left.stems & right.stems) >= SAID_IN_TWO * max(len(left.stems), len(right.stems))
    return alike or not (left.values or right.values)


def _has_other_value(left: LineTerms, right: LineTerms) -> bool:
    """Return whether two lines say the same of another number, or of another name where only one
    can hold.
    """
    if left.denies or right.denies:
        return False
    keys = {key for key, _ in left.slots} & {key for key, _ in right.slots}
    ours, theirs = ({value for key, value in line.slots if key in keys} for line in (left, right))
    if not ours - theirs or not theirs - ours:
        return False
    if left.values & theirs - ours or right.values & ours - theirs:
        return False
    frames = [line.stems - content_terms(" ".join(line.every_value)) for line in (left, right)]
    shared = frames[0] & frames[1]
    # One word in place of another is another thing: functions and modules may each have their
    # number of lines.
    nested = frames[0] <= frames[1] or frames[1] <= frames[0]
    return bool(shared) and nested and len(shared) >= HALF * max(len(frame) for frame in frames)


def _covers(old: LineTerms, new: LineTerms, share: float) -> bool:
    if not new.stems or old.denies != new.denies or new.values - old.values:
        return False
    if _has_opposite_words(old, new):
        return False
    if len(new.stems) <= FEW and new.stems - old.stems:
        return False
    # One word in place of another is another thing: to run the linter is not to run the tests.
    nested = not (old.stems - new.stems and new.stems - old.stems) or share > SAID
    return nested and len(old.stems & new.stems) >= share * len(new.stems)


def _pair_lines(lines: list[LineTerms]) -> Iterator[tuple[LineTerms, float]]:
    """Yield the lines, then each two of them that follow one another, each with the share that a
    new line needs.
    """
    for line in lines:
        yield line, SAID
    for first, second in zip(lines, lines[1:], strict=False):
        if first.denies == second.denies:
            yield line_terms(f"{first.text} {second.text}"), SAID_IN_TWO


def _compare_files(
    before: Files, after: Files
) -> Iterable[tuple[list[LineTerms], list[LineTerms], list[LineTerms]]]:
    """Yield of each text file what is added, what is taken away, and what stays."""
    for path in after:
        old, new = (_read_text(files, path) for files in (before, after))
        if old == new or not path.endswith(".md"):
            continue
        added, removed = changed_lines(old, new)
        # Frontmatter is metadata, which no lesson repeats or contradicts.
        body = new.partition("\n---\n")[2] if new.startswith("---") else new
        lines = [
            line
            for line in body.splitlines()[:MAX_TEXT_LINES]
            if line.strip() and not line.startswith("#")
        ]
        unchanged = [line for line in lines if line not in added]
        yield tuple([line_terms(line) for line in lines] for lines in (added, removed, unchanged))  # type: ignore[misc]


def _read_text(files: Files, path: str) -> str:
    return files[path].data.decode("utf-8", "replace") if path in files else ""
