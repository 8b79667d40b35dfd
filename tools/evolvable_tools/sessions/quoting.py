"""Quoted text keeps the origin that it came from: what a later span repeats belongs to who said it first."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evolvable_tools.sessions.session import UNTRUSTED, Origin

RUN = 7
"""Words in a row that are no coincidence."""

LINE = 4
"""Words of a whole line that are none."""

COPIED = 12
"""Words in a row, or half of all words, that make a result of a tool a copy."""

MAX_KNOWN = 200_000
"""Runs of words, and lines, that are remembered of one session; of more, every eighth."""

MAX_SEARCHED = 8_000
"""Characters of a tool's result in which quotations are looked for also within lines."""

MAX_OWN = 4_000
"""Characters of an argument of a call that are remembered as its caller's words."""

_WORD = re.compile(r"\w+")
_AROUND = " \t\r\n#>*-|+`'\"0123456789→.:"
_SPOKEN = frozenset((Origin.USER, Origin.ASSISTANT))


class Quotes:
    """Remembers who said what first, span by span in the order of the session."""

    def __init__(self) -> None:
        self._lines: dict[int, Origin] = {}
        self._runs: dict[int, Origin] = {}
        self._own: set[int] = set()

    def divided(self, text: str, origin: Origin, *, whole: bool = False) -> list[tuple[str, Origin]]:
        """Returns the parts of a text with their origins, in order, and remembers them.

        A person's text is divided at everything that somebody else said before; every other text at what third
        parties said. whole: it is not divided; it is theirs when it is a copy for the most part.
        """
        if origin in UNTRUSTED:
            self._remember(text, origin)
            return [(text, origin)]
        marks = self._quoted(text, origin)
        if whole:
            found = [(text, (_most(marks, text) or origin) if marks else origin)]
        else:
            found = list(_cut(text, marks, origin)) if marks else [(text, origin)]
        for part, of in found:
            self._remember(part, of)
        return found

    def note(self, value: Mapping[str, Any] | None) -> None:
        """Remembers what a call was given as its caller's own words, so that an echo of it is nobody else's."""
        for said in (value or {}).values():
            if isinstance(said, str) and len(said) <= MAX_OWN:
                self._own.update(mark for mark in _runs(_words(said)) if mark not in self._runs)

    def _remember(self, text: str, origin: Origin) -> None:
        lines = self._lines
        for line in text.splitlines():
            said = line.strip(_AROUND)
            if said.count(" ") >= LINE - 1 and len(lines) < MAX_KNOWN:
                lines.setdefault(hash(said), origin)
        if origin in UNTRUSTED:
            runs, own = self._runs, self._own
            for mark in _runs(_words(text)):
                if mark not in own and (len(runs) < MAX_KNOWN or mark % 8 == 0):
                    runs.setdefault(mark, origin)
        elif origin in (Origin.USER, Origin.ASSISTANT) and len(self._own) < MAX_KNOWN:
            self._own.update(mark for mark in _runs(_words(text)) if mark not in self._runs)

    def _quoted(self, text: str, origin: Origin) -> list[tuple[int, int, Origin]]:
        """Returns (start, end, origin) of what somebody else said before."""
        marks = self._repeated(text) if self._runs and (origin in _SPOKEN or len(text) <= MAX_SEARCHED) else []
        at, lines = 0, self._lines
        for line in text.splitlines(keepends=True):
            said = line.strip(_AROUND)
            if said.count(" ") >= LINE - 1:
                of = lines.get(hash(said))
                if of is not None and (of in UNTRUSTED or (origin is Origin.USER and of is not Origin.USER)):
                    marks.append((at, at + len(line), of))
            at += len(line)
        return sorted(marks)

    def _repeated(self, text: str) -> list[tuple[int, int, Origin]]:
        runs = self._runs
        found = [runs.get(mark) for mark in _runs(_words(text))]
        if not any(found):
            return []
        places = [match.span() for match in _WORD.finditer(text.lower())]
        return [(places[i][0], places[i + RUN - 1][1], of) for i, of in enumerate(found) if of is not None]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _runs(words: Sequence[str]) -> Iterator[int]:
    return map(hash, zip(*(words[start:] for start in range(RUN)), strict=False))


def _most(marks: Sequence[tuple[int, int, Origin]], text: str) -> Origin | None:
    """Returns whose copy a text is, by its longest quotation; None when it is hardly one."""
    length = max(1, len(text))
    joined = list(_joined(marks))
    longest = max(joined, key=lambda mark: mark[1] - mark[0])
    copied = len(_WORD.findall(text[longest[0] : longest[1]])) >= COPIED
    share = sum(end - start for start, end, _ in joined) / length
    return longest[2] if copied or share >= 0.5 else None


def _joined(marks: Sequence[tuple[int, int, Origin]]) -> Iterator[tuple[int, int, Origin]]:
    """Yields the marks, those that touch or overlap as one; of third parties if one of them is."""
    now: tuple[int, int, Origin] | None = None
    for start, end, of in marks:
        if now is not None and start <= now[1] + 2:
            now = (now[0], max(now[1], end), now[2] if now[2] in UNTRUSTED else of)
        else:
            if now is not None:
                yield now
            now = (start, end, of)
    if now is not None:
        yield now


def _cut(text: str, marks: Sequence[tuple[int, int, Origin]], origin: Origin) -> Iterator[tuple[str, Origin]]:
    at = 0
    for start, end, of in _joined(marks):
        if _WORD.search(text, at, start):
            yield text[at:start].strip(), origin
        else:
            start = at
        end = end if _WORD.search(text, end) else len(text)
        yield text[start:end].strip(), of
        at = end
    if text[at:].strip():
        yield text[at:].strip(), origin
