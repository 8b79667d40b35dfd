"""What a reader is shown of descriptions: cut at words, and of near-equal ones the clause in which
they differ.
"""

import re
from collections.abc import Sequence

from evolvable_store.search import FUNCTION_WORDS, tokenize

ALIKE = 0.6
"""Share of the words of the shorter of two descriptions from which they are near-equal."""

_MOST = 1_024  # characters of a description that are compared
# A clause with the marks that end it, of Latin and of CJK scripts. Brackets and line breaks end one
# as well.
_CLAUSE = re.compile(r"[^.;:!?,()。；：！？，、\n]+[.;:!?,()。；：！？，、\n]*\s*")


def cut_at_words(text: str, length: int) -> str:
    """Return a text of at most so many characters on one line, cut after a word."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    cut = line[: max(0, length - 1)]
    if not line[len(cut)].isspace():
        begun = cut.rpartition(" ")[0]
        # A text without spaces is cut between two characters.
        cut = begun if 2 * len(begun) >= len(cut) else cut
    cut = cut.rstrip(" ,;:")
    return f"{cut}…" if cut else ""


class Excerpts:
    """Descriptions that are read side by side."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._lines = [" ".join(text.split()) for text in texts]
        words = [_words(line[:_MOST]) for line in self._lines]
        self._starts = [_difference(at, self._lines, words) for at in range(len(texts))]

    def excerpt(self, at: int, length: int) -> str:
        """Return so many characters of a description: the first ones, or from the clause that its
        likes lack.

        A clause that stands wholly among the first ones needs no other beginning.
        """
        line, (start, end) = self._lines[at], self._starts[at]
        if len(line) <= length or end < length:
            return cut_at_words(line, length)
        return f"…{cut_at_words(line[start:], length - 1)}"


def _words(text: str) -> set[str]:
    return {word for word in tokenize(text) if word not in FUNCTION_WORDS}


def _difference(at: int, lines: Sequence[str], words: Sequence[set[str]]) -> tuple[int, int]:
    """Return where the clause with most of the words that no near-equal description has begins and
    ends.

    (0, 0) where there is none.
    """
    own = words[at]
    others = [
        other_words
        for other, other_words in enumerate(words)
        if other != at and _are_alike(own, other_words)
    ]
    rest = own.difference(*others) if others else set()
    best, most = (0, 0), 0
    for clause in _CLAUSE.finditer(lines[at][:_MOST]) if rest else ():
        count = len(rest & _words(clause[0]))
        if count > most:
            best, most = clause.span(), count
    return best


def _are_alike(first: set[str], second: set[str]) -> bool:
    # `max`: a text without words is like no other.
    return len(first & second) >= ALIKE * max(1, min(len(first), len(second)))
