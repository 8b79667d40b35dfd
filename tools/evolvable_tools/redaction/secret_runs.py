"""Redaction of secrets: gitleaks' rules as data (MIT, see gitleaks.LICENSE), and detectors of our own."""

import re
import string
from collections.abc import Iterable, Iterator

Hit = tuple[int, int, str]
"""Where a secret begins and ends, and of what type it is."""


def occurrences(text: str, part: str) -> Iterator[int]:
    """Yield where a part stands in a text, none over another."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


def holds_any(text: str, parts: Iterable[str]) -> bool:
    """Return whether one of some parts occurs in a text. A loop: most texts are short, and a generator takes longer."""
    for part in parts:  # noqa: SIM110
        if part in text:
            return True
    return False


LEAST_CERTAIN = 20
"""Characters of the least run in which a secret can be that names itself."""

_RUN_CHARS = f"{string.ascii_letters}{string.digits}_-".encode()
_AS_RUNS = bytes(ord("a") if code in _RUN_CHARS else ord(" ") for code in range(256))
_LEAST_RUN = b"a" * LEAST_CERTAIN
_DIGIT = re.compile(rb"\d")


def certain_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the runs of letters, digits, `_` and `-` are in which a secret can be that names itself.

    Each is as long as can be and has a digit. A pattern takes four times as long to find them; most files have none.
    """
    runs = data.translate(_AS_RUNS)
    start = runs.find(_LEAST_RUN)
    while start >= 0:
        end = runs.find(b" ", start)
        end = len(runs) if end < 0 else end
        if _DIGIT.search(data, start, end):
            yield start, end
        start = runs.find(_LEAST_RUN, end)
