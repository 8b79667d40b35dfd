"""The parts of a text in which a long secret can stand: far less to look at than the text."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property

Hit = tuple[int, int, str]
"""Where a secret begins and ends, and of what type it is."""

LEAST = 12
"""Characters of a run that may be a secret; every rule asks for as many."""

NEAR = 48
"""Characters around a run that belong to the same secret, when it names itself."""

LEAD, TAIL = 110, 4
"""Characters before a run in which a rule's fixed part may stand, and behind it."""

_RUN = re.compile(r"[A-Za-z0-9_+/=.~-]{12,}")
_CERTAIN_RUN = re.compile(r"[A-Za-z0-9_-]{20,}")
_DIGIT = re.compile(r"\d")


class Ground:
    """A text, the same in lower case with the same length, and its windows: none over another, in order."""

    def __init__(self, text: str, lower: str, words: Sequence[str] | None = None, *, certain: bool = False) -> None:
        """words: at least all the words of the text with LEAST characters, where they are known.

        certain: only for secrets that name themselves; no name of a provider has to stand before them.
        """
        self.text, self.lower = text, lower
        self.windows: list[tuple[int, int]] = []
        if words is not None and not any(map(_may_be_one, words)):
            return
        lead, tail = (NEAR, NEAR) if certain else (LEAD, TAIL)
        for run in (_CERTAIN_RUN if certain else _RUN).finditer(text):
            start, end = run.span()
            if _DIGIT.search(text, start, end) is None and (certain or end - start < 2 * LEAST):
                continue
            start, end = max(0, start - lead), end + tail
            if self.windows and start <= self.windows[-1][1]:
                self.windows[-1] = (self.windows[-1][0], end)
            else:
                self.windows.append((start, end))

    @cached_property
    def joined(self) -> str:
        """The windows' text, one after the other."""
        return "\n".join(self.text[start:end] for start, end in self.windows)

    @cached_property
    def joined_lower(self) -> str:
        """The windows' text in lower case."""
        return "\n".join(self.lower[start:end] for start, end in self.windows)

    def find(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern that lie in a window."""
        for start, end in self.windows:
            yield from pattern.finditer(self.text, start, end)

    def places(self, anchor: str) -> Iterator[int]:
        """Yield where a text in lower case stands in the windows."""
        for start, end in self.windows:
            at = self.lower.find(anchor, start, end)
            while at >= 0:
                yield at
                at = self.lower.find(anchor, at + 1, end)


def _may_be_one(word: str) -> bool:
    return len(word) >= LEAST and (len(word) >= 2 * LEAST or _DIGIT.search(word) is not None)


def certain_ground(text: str) -> Ground:
    """Return the ground of a text for secrets that name themselves."""
    return Ground(text, text.replace("İ", "I").lower(), certain=True)
