"""Private keys that are written as blocks of lines: whole, quoted in JSON, numbered, indented, or without one end."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

MAX_BLOCK = 40_000
"""Characters of a block that are looked at."""

ROWS = 2
"""Rows of nothing but base64 that are taken for the middle of a block of which neither end is there."""

_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{0,5}|PuTTY-User-Key-File-\d")
_END = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{0,5}")
# A line end, or what stands for one in a text of JSON, also in JSON in JSON.
_BREAK = re.compile(r"\r?\n|(?:\\{1,4}[rn]){1,2}")
_AROUND = " \t\"'`,;+\\>|#*"
_NUMBER = re.compile(r"(?:[\w./-]{0,80}[:-])?\d{1,6}[→\t:|-][ \t]*")
_BASE64 = re.compile(r"[A-Za-z0-9+/=]*")
_HEADER = re.compile(
    r"(?:Proc-Type|DEK-Info|Version|Comment|Encryption|Public-Lines|Private-Lines|Private-MAC|Hash)\s*:"
)
_ROW = re.compile(
    r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{60,76}={0,2}(?![A-Za-z0-9+/=])|(?<=\\[nr])[A-Za-z0-9+/]{60,76}={0,2}(?=\\)"
)
_BETWEEN = re.compile(r"[\s\\nr\"',;+>|#*\d→:-]{1,24}")
_AFTER = re.compile(rf"(?:{_BREAK.pattern})[ \t>|+\"']{{0,12}}[A-Za-z0-9+/]{{16,76}}={{0,2}}(?![A-Za-z0-9])")
_AHEAD = re.compile(rf"(?<![A-Za-z0-9+/])([A-Za-z0-9+/]{{16,76}})[\"']{{0,3}}(?:{_BREAK.pattern})[ \t>|+\"']{{0,12}}\Z")
_LONG, _SHORT = 40, 16
_ROW_LENGTH = 60


def blocks(text: str, words: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Yields (start, end, unfinished) of every private key in a text; unfinished: it goes on where the text ends.

    words: at least all the long words of the text.
    """
    at = 0
    if "PRIVATE KEY" in text or "PuTTY-User-Key" in text:
        ends = list(_END.finditer(text))
        starts = [end.start() for end in ends]
        for begin in _BEGIN.finditer(text):
            if begin.start() >= at:
                place = bisect_left(starts, begin.end())
                at, unfinished = _end_of(text, begin.end(), ends[place] if place < len(ends) else None)
                yield begin.start(), at, unfinished
        before = 0
        for end in ends:
            yield _start_of(text, before, end.start()), end.end(), False
            before = end.end()
    rows = [len(word) for word in words if len(word) >= _ROW_LENGTH]
    if len(rows) >= ROWS or sum(rows) >= ROWS * _ROW_LENGTH:
        yield from _middles(text)


def leading(text: str) -> int:
    """Returns where the block ends that a text begins within: 0 when its first line is none of a block's."""
    return _end_of(text, 0, _END.search(text))[0]


def _end_of(text: str, start: int, end: re.Match[str] | None) -> tuple[int, bool]:
    """Returns where the block ends whose first line ends at `start`, and whether the text ends before it.

    end: the next last line of a block.
    """
    limit = min(len(text), start + MAX_BLOCK)
    end = end if end is not None and end.start() < limit else None
    stop = end.start() if end else limit
    at, full = start, False
    while at < stop:
        broken = _BREAK.search(text, at, stop)
        line_end = broken.start() if broken else stop
        body = _body(text[at:line_end])
        # The last row of a block may be short; a short word before any long row is no row.
        if body is None or (0 < body < _SHORT and not full and broken is not None and end is None):
            return (at, False)
        full = full or body >= _LONG
        at = broken.end() if broken else stop
        if full and 0 < body < _LONG and end is None:
            return at, at == len(text)
    return (end.end(), False) if end else (at, at == len(text))


def _start_of(text: str, floor: int, end: int) -> int:
    """Returns where the rows begin that lead up to the end of a block, not before `floor`."""
    first = max(floor, end - MAX_BLOCK)
    breaks = list(_BREAK.finditer(text, first, end))
    edges = [first, *(found.end() for found in breaks)]
    ends = [*(found.start() for found in breaks), end]
    start = end
    for line_start, line_end in zip(reversed(edges), reversed(ends), strict=True):
        if _body(text[line_start:line_end]) is None:
            break
        start = line_start
    return start


def _body(line: str) -> int | None:
    """Returns how many characters of a block a line holds, None when it is none of a block's lines."""
    said = line.strip(_AROUND)
    numbered = _NUMBER.match(said)
    if numbered is not None:
        said = said[numbered.end() :].strip(_AROUND)
    if len(said) <= 100 and _BASE64.fullmatch(said):
        return len(said)
    return 0 if _HEADER.match(said) or _BEGIN.match(said) else None


def _middles(text: str) -> Iterator[tuple[int, int, bool]]:
    rows: list[re.Match[str]] = []
    for row in _ROW.finditer(text):
        if rows and not _BETWEEN.fullmatch(text, rows[-1].end(), row.start()):
            yield from _middle(text, rows)
            rows = []
        if any(map(str.islower, row[0])) and any(map(str.isupper, row[0])) and any(map(str.isdigit, row[0])):
            rows.append(row)
    yield from _middle(text, rows)


def _middle(text: str, rows: list[re.Match[str]]) -> Iterator[tuple[int, int, bool]]:
    if len(rows) < ROWS:
        return
    start, end = rows[0].start(), rows[-1].end()
    # The rows at its ends are shorter than the others, or cut.
    rest = _AFTER.match(text, end)
    before = _AHEAD.search(text, max(0, start - 120), start)
    end = rest.end() if rest is not None else end
    yield (before.start(1) if before is not None else start), end, end >= len(text) - 1
