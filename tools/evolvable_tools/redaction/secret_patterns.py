"""Secrets that their form marks: prefixes of issuers, blocks of private keys, and a person's own
texts and patterns.

The issuers' forms are data, in `secret_patterns.toml`. A person's patterns run in RE2 alone, which
takes linear time.
"""

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidArgument, Refused
from evolvable_tools.redaction.token_detection import occurrences

_TABLE = tomllib.loads(Path(__file__).with_name("secret_patterns.toml").read_text(encoding="utf-8"))
_PATTERNS = {
    name: re.compile("|".join(alternatives)) for name, alternatives in _TABLE["patterns"].items()
}

_END = r"(?![A-Za-z0-9_-])"  # a longer run is something else than a secret of this form
_LONGEST = 4_000  # characters of a secret whose length is not fixed


@dataclass(frozen=True)
class SecretForm:
    """The form of one issuer's secrets, for two uses: to hide each possible one, and to report only
    certain ones.

    chars: a character class of the rest; least: how many there are at least; whole: how many there
    are, None if that differs. exact: a regular expression of the rest of a certain secret; None if
    that is not known.
    """

    name: str
    beginnings: tuple[str, ...]
    chars: str
    least: int
    whole: int | None = None
    exact: str | None = None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(f"[{self.chars}]{{1,{self.whole or _LONGEST}}}")


def _read_forms() -> Iterator[SecretForm]:
    for row in _TABLE["forms"]:
        exact = row["exact"].replace("{end}", _END) if "exact" in row else None
        yield SecretForm(**row | {"beginnings": tuple(row["beginnings"]), "exact": exact})


FORMS = tuple(_read_forms())
"""In the order of the search: of two that begin alike the longer first."""

BEGINNINGS = {beginning: form for form in reversed(FORMS) for beginning in form.beginnings}


def _join_words(words: list[str]) -> str:
    """Return a pattern for words that looks at each first character once."""
    # A pattern with one branch for each first character fails at most places after one comparison.
    by_first: dict[str, list[str]] = {}
    for word in words:
        by_first.setdefault(word[0], []).append(re.escape(word[1:]))
    longest_first = {
        first: "|".join(sorted(rest, key=len, reverse=True)) for first, rest in by_first.items()
    }
    return "|".join(f"{re.escape(first)}(?:{rest})" for first, rest in longest_first.items())


BEGINNING = re.compile(_join_words(list(BEGINNINGS)))
"""Finds where a secret may begin; `stands_free` says whether it can."""


_FREE = re.compile(
    rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-F]{{2}}))(?:{BEGINNING.pattern})"
)


def may_hold(words: Sequence[str]) -> bool:
    """Return whether one of a text's words may hold a secret of these forms: far less to look at
    than the text.
    """
    return _FREE.search(" ".join(words)) is not None


def stands_free(text: str, at: int) -> bool:
    """Return whether a word may begin here: in JSON in JSON a line ends with a backslash and a
    letter.
    """
    return (
        at == 0
        or not text[at - 1].isalnum()
        or _PATTERNS["escaped"].search(text, max(0, at - 3), at) is not None
    )


MAX_BLOCK = 40_000
"""Characters of a block that are looked at."""

# A single such row may be a hash or an encoded picture; rows of the same text side by side are a
# block.
ROWS = 2
"""Rows of nothing but base64 that are taken for the middle of a block of which neither end is
there.
"""

# A line end, or its escape in JSON, also in JSON in JSON.
_BREAK = re.compile(r"\r?\n|(?:\\{1,4}[rn]){1,2}")
# Signs of quotes, lists, comments and joined strings, which a block may have at the sides of its
# rows.
_AROUND = " \t\"'`,;+\\>|#*"
# A shorter row behind the middle of a block, and one before it.
_AFTER = re.compile(
    rf"(?:{_BREAK.pattern})[ \t>|+\"']{{0,12}}[A-Za-z0-9+/]{{16,76}}={{0,2}}(?![A-Za-z0-9])"
)
_AHEAD = re.compile(
    rf"(?<![A-Za-z0-9+/])([A-Za-z0-9+/]{{16,76}})[\"']{{0,3}}(?:{_BREAK.pattern})[ "
    r"\t>|+\"']{0,12}\Z"
)
# Least characters of a full row, and of a row before any full one.
_LONG, _SHORT = 40, 16
# PEM has rows of 64 characters; some programs write 60.
_ROW_LENGTH = 60


def blocks(text: str, words: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, unfinished) of every private key in a text.

    An unfinished one goes on where the text ends. words: at least all the long words of the text.
    """
    at = 0
    if "PRIVATE KEY" in text or "PuTTY-User-Key" in text:
        # The ends are found once; looking for one after each beginning would read a hostile text
        # again and again.
        ends = list(_PATTERNS["block_end"].finditer(text))
        starts = [end.start() for end in ends]
        for begin in _PATTERNS["begin"].finditer(text):
            if begin.start() >= at:
                place = bisect_left(starts, begin.end())
                end_line = ends[place] if place < len(ends) else None
                at, unfinished = _find_end(text, begin.end(), end_line)
                yield begin.start(), at, unfinished
        # An end without its beginning: a tool cut the text above.
        before = 0
        for end in ends:
            yield _find_start(text, before, end.start()), end.end(), False
            before = end.end()
    rows = [len(word) for word in words if len(word) >= _ROW_LENGTH]
    if len(rows) >= ROWS or sum(rows) >= ROWS * _ROW_LENGTH:
        yield from _find_middles(text)


def leading(text: str) -> int:
    """Return where the block ends that a text begins within: 0 when its first line is none of a
    block's.
    """
    return _find_end(text, 0, _PATTERNS["block_end"].search(text))[0]


def _find_end(text: str, start: int, end: re.Match[str] | None) -> tuple[int, bool]:
    """Return where the block ends whose first line ends at `start`, and whether the text ends
    before it.

    end: the next last line of a block.
    """
    limit = min(len(text), start + MAX_BLOCK)
    # An end that is too far away belongs to another block.
    end = end if end is not None and end.start() < limit else None
    stop = end.start() if end else limit
    at, full = start, False
    while at < stop:
        broken = _BREAK.search(text, at, stop)
        line_end = broken.start() if broken else stop
        body = _measure_body(text[at:line_end])
        if body is None:
            return at, False
        # The last row of a block may be short; a short word before any long row is no row.
        if 0 < body < _SHORT and not full and broken is not None and end is None:
            return at, False
        full = full or body >= _LONG
        at = broken.end() if broken else stop
        # A short row behind a full one is the last of its block.
        if full and 0 < body < _LONG and end is None:
            return at, at == len(text)
    return (end.end(), False) if end else (at, at == len(text))


def _find_start(text: str, floor: int, end: int) -> int:
    """Return where the rows begin that lead up to the end of a block, not before `floor`."""
    first = max(floor, end - MAX_BLOCK)
    breaks = list(_BREAK.finditer(text, first, end))
    starts = [first, *(line_break.end() for line_break in breaks)]
    ends = [*(line_break.start() for line_break in breaks), end]
    start = end
    # Backwards from the end, up to the first line that is no row.
    for line_start, line_end in zip(reversed(starts), reversed(ends), strict=True):
        if _measure_body(text[line_start:line_end]) is None:
            break
        start = line_start
    return start


def _measure_body(line: str) -> int | None:
    """Return how many characters of a block a line holds, None when it is none of a
    block's lines.
    """
    content = line.strip(_AROUND)
    numbered = _PATTERNS["number"].match(content)
    if numbered is not None:
        content = content[numbered.end() :].strip(_AROUND)
    if len(content) <= 100 and _PATTERNS["base64_line"].fullmatch(content):
        return len(content)
    return 0 if _PATTERNS["header"].match(content) or _PATTERNS["begin"].match(content) else None


def _find_middles(text: str) -> Iterator[tuple[int, int, bool]]:
    rows: list[re.Match[str]] = []
    for row in _PATTERNS["row"].finditer(text):
        if rows and not _are_adjacent(text, rows[-1], row):
            yield from _read_middle(text, rows)
            rows = []
        if _is_base64_row(row[0]):
            rows.append(row)
    yield from _read_middle(text, rows)


def _are_adjacent(text: str, row: re.Match[str], following: re.Match[str]) -> bool:
    return _PATTERNS["between"].fullmatch(text, row.end(), following.start()) is not None


def _is_base64_row(row: str) -> bool:
    """Return whether a row has small letters, capitals and digits.

    Hashes in hex and long words lack one of the three.
    """
    return any(map(str.islower, row)) and any(map(str.isupper, row)) and any(map(str.isdigit, row))


def _read_middle(text: str, rows: list[re.Match[str]]) -> Iterator[tuple[int, int, bool]]:
    if len(rows) < ROWS:
        return
    start, end = rows[0].start(), rows[-1].end()
    # The rows at its ends are shorter than the others, or cut.
    rest = _AFTER.match(text, end)
    before = _AHEAD.search(text, max(0, start - 120), start)
    end = rest.end() if rest is not None else end
    yield (before.start(1) if before is not None else start), end, end >= len(text) - 1


MAX_PATTERN = 1_000  # characters of a pattern or a literal text
MAX_LINES = 1_000  # of the person's file: each pattern is searched for in each text

# A shorter text would hide parts of ordinary words.
MIN_LITERAL = 4
"""Characters of a literal text."""


class PatternsNeedRe2(Refused):
    """A person's own patterns were given where RE2 is not installed."""


class UserPatterns:
    """Patterns and literal texts, by the names that replace their matches."""

    def __init__(self, patterns: Mapping[str, str] | None = None) -> None:
        """Raise PatternsNeedRe2, and InvalidArgument for a name or a pattern that
        cannot be used.
        """
        self._compiled = [
            (_check_name(name), _compile_pattern(name, pattern))
            for name, pattern in (patterns or {}).items()
        ]
        self._literals = list[tuple[str, str]]()

    def __len__(self) -> int:
        return len(self._compiled) + len(self._literals)

    def add(self, line: str) -> None:
        """Add the entry of a line: `NAME = TEXT` for a literal text, `NAME ~ PATTERN` for a pattern
        of RE2.

        Raises as the constructor.
        """
        entry = _PATTERNS["line"].fullmatch(line)
        if entry is None:
            hint = "Such as `ticket ~ SHOP-[0-9]+`; # begins a remark."
            raise InvalidArgument("It is neither NAME = TEXT nor NAME ~ PATTERN.", hint)
        name, text = _check_name(entry["name"]), entry["text"]
        if entry["sign"] == "~":
            self._compiled.append((name, _compile_pattern(name, text)))
        elif not MIN_LITERAL <= len(text) <= MAX_PATTERN:
            hint = f"It may have {MIN_LITERAL} to {MAX_PATTERN:,}."
            raise InvalidArgument(f"The text {name} has {len(text)} characters.", hint)
        else:
            self._literals.append((name, text))

    def hits(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, name) of each match; of a pattern with a group `secret` only that
        group.

        Marks of secrets that were redacted before stay as they are.
        """
        if not self._compiled and not self._literals:
            return
        has_marks = "[redacted:" in text
        marks = [mark.span() for mark in _PATTERNS["mark"].finditer(text)] if has_marks else []
        for start, end, name in self._find_matches(text):
            if not any(start < after and before < end for before, after in marks):
                yield start, end, name

    def _find_matches(self, text: str) -> Iterator[tuple[int, int, str]]:
        for name, literal in self._literals:
            yield from ((at, at + len(literal), name) for at in occurrences(text, literal))
        for name, pattern in self._compiled:
            group = pattern.groupindex.get("secret", 0)
            for match in pattern.finditer(text):
                start, end = match.span(group)
                if end > start >= 0:
                    yield start, end, name


def read_patterns(lines: Sequence[str], where: str) -> tuple[UserPatterns, list[str]]:
    """Return the patterns that the lines of a file say, and what is wrong, each with file and line.

    A line that cannot be used is left out; the others work.
    """
    own, problems = UserPatterns(), list[str]()
    for number, line in enumerate(lines, 1):
        entry = line.strip()
        if number > MAX_LINES:
            problems.append(
                f"{where}, line {number}: this and what follows is left out: {MAX_LINES:,} "
                "lines are read."
            )
            break
        if not entry or entry.startswith("#"):
            continue
        try:
            own.add(entry)
        except EvolvableError as error:
            problems.append(f"{where}, line {number}: {error.text}")
    return own, problems


def _check_name(name: str) -> str:
    if not _PATTERNS["name"].fullmatch(name):
        hint = "Use small letters, digits and hyphens, such as ticket."
        raise InvalidArgument(f"{ascii(name[:40])} cannot name what a pattern finds.", hint)
    return name


def _compile_pattern(name: str, pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise InvalidArgument(
            f"The pattern {name} is longer than {MAX_PATTERN} characters.", "Divide it."
        )
    try:
        import re2  # an optional extra
    except ImportError:
        raise PatternsNeedRe2(
            f"The pattern {name} cannot be used: RE2 is not installed, and other engines may take "
            "exponential time.",
            "Install it: pip install '.[re2]' in your clone. Without it, literal texts (NAME = "
            "TEXT) and the built-in rules work.",
        ) from None
    options = re2.Options()
    # RE2 would write errors to stderr, past our messages.
    options.log_errors = False
    # Bytes for the automaton of a pattern; beyond them RE2 reports an error.
    options.max_mem = 8 << 20
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        what = error.args[0] if error.args else error
        reason = what.decode("utf-8", "replace") if isinstance(what, bytes) else str(error)
        hint = "RE2 has no lookaround and no backreferences."
        raise InvalidArgument(
            f"RE2 does not take the pattern {name}: {reason[:200]}.", hint
        ) from None
    # A pattern that matches an empty text would match everywhere.
    if compiled.search("") is not None:
        hint = "Make it match at least one character."
        raise InvalidArgument(f"The pattern {name} matches nothing at all as well.", hint)
    return compiled
