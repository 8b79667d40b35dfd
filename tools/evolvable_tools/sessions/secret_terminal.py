"""Texts with a terminal's colour codes: a secret that they cut is whole where they are left out."""

import re
from bisect import bisect_right
from collections.abc import Sequence

_CODE = re.compile(
    r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e|\x9b)\[[0-9;:?]{0,24}[A-Za-z]|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)"
)


class Plain:
    """A text without colour codes, which says where its characters stood."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        self._starts: list[int] = [0]
        self._moved: list[int] = [0]
        at = length = 0
        for code in _CODE.finditer(text):
            parts.append(text[at : code.start()])
            length += code.start() - at
            at = code.end()
            self._starts.append(length)
            self._moved.append(at - length)
        self.text = "".join([*parts, text[at:]])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of the plain text stood, with the codes inside of it and none around it."""
        first = self._moved[bisect_right(self._starts, start) - 1]
        last = self._moved[bisect_right(self._starts, end - 1) - 1]
        return start + first, end + last


def has_codes(text: str) -> bool:
    """Return whether a text has colour codes, also as JSON and programs write them."""
    return any(sign in text for sign in _SIGNS) and _CODE.search(text) is not None


_SIGNS: Sequence[str] = ("\x1b", "\\u001b", "\\u001B", "\\x1b", "\\x1B", "\\033", "\\e", "\x9b")
