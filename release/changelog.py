"""Read the part of CHANGELOG.md that belongs to a release, and cut one from what is unreleased."""

import re
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "CHANGELOG.md"

UNRELEASED = "## Unreleased\n"


class NoRelease(Exception):
    """CHANGELOG.md has no such release, or none that could be cut."""


def release_notes(text: str, version: str) -> str:
    """Return what the release with a date says. Raises NoRelease without one."""
    part = re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)",
        text,
        re.MULTILINE | re.DOTALL,
    )
    if part is None or not part[1].strip():
        raise NoRelease(
            f'CHANGELOG.md has no "## {version} - YYYY-MM-DD" with text: `release/check --cut '
            f"{version}` writes it."
        )
    return part[1].strip() + "\n"


def cut_release(text: str, version: str, date: str) -> str:
    """Return the text in which what is unreleased is this release.

    Raises NoRelease when nothing is, or it exists.
    """
    before, mark, after = text.partition(UNRELEASED)
    unreleased = after.partition("\n## ")[0]
    if not mark or not unreleased.strip():
        raise NoRelease("Nothing stands below Unreleased in CHANGELOG.md.")
    if re.search(rf"^## {re.escape(version)} - ", text, re.MULTILINE):
        raise NoRelease(f"CHANGELOG.md has {version} already: name the next version.")
    return f"{before}{UNRELEASED}\n## {version} - {date}\n{after}"
