"""Finds where a secret may begin that its issuer marked."""

import re
from collections.abc import Sequence

from evolvable_tools.secret_shapes import FORMS

BEGINNINGS = {beginning: (form, form.pattern) for form in reversed(FORMS) for beginning in form.beginnings}


def _alternatives(words: list[str]) -> str:
    """Returns a pattern for words that looks at each first character once."""
    by_first: dict[str, list[str]] = {}
    for word in words:
        by_first.setdefault(word[0], []).append(re.escape(word[1:]))
    parts = [
        f"{re.escape(first)}(?:{'|'.join(sorted(rest, key=len, reverse=True))})" for first, rest in by_first.items()
    ]
    return "|".join(parts)


BEGINNING = re.compile(_alternatives(list(BEGINNINGS)))
"""Finds where a secret may begin; `stands_free` says whether it can."""

_ESCAPED = re.compile(r"\\[nrtbf]\Z|%[0-9A-F]{2}\Z")


_FREE = re.compile(rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-F]{{2}}))(?:{BEGINNING.pattern})")


def may_hold(words: Sequence[str]) -> bool:
    """Returns whether one of a text's words may hold a secret of these forms: far less to look at than the text."""
    return _FREE.search(" ".join(words)) is not None


def stands_free(text: str, at: int) -> bool:
    """Returns whether a word may begin here: in JSON in JSON a line ends with a backslash and a letter."""
    return at == 0 or not text[at - 1].isalnum() or _ESCAPED.search(text, max(0, at - 3), at) is not None
