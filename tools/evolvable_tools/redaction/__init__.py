"""Redaction of secrets: gitleaks' rules as data (MIT, see gitleaks.LICENSE), and detectors of our own."""

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
