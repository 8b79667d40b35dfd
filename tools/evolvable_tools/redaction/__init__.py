"""Redaction of secrets: gitleaks' rules as data (MIT, see gitleaks.LICENSE), and detectors of our own."""

from collections.abc import Iterator

Hit = tuple[int, int, str]
"""Where a secret begins and ends, and of what type it is."""


def occurrences(text: str, part: str) -> Iterator[int]:
    """Yield where a part stands in a text, none over another."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))
