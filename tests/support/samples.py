"""Small things that many tests need: a clock to move by hand, a skill in one line, the hostile inputs."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from evolvable_store.objects import File, Files

ATTACKS = Path(__file__).parents[1] / "data" / "attacks.json"

FROZEN = '---\nname: pdf\ndescription: d\nmetadata:\n  evolvable: "false"\n---\nDo not change me.\n'
"""A SKILL.md that only a person may change."""


class Clock:
    """Says the same moment until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        """Moves the clock by a timedelta's arguments, back when they are negative."""
        self.now += timedelta(**by)


def skill(text: str, **more: str) -> Files:
    """Returns the files of a skill: its SKILL.md, and others named by keyword (`notes` is notes.md)."""
    return {"SKILL.md": File(text.encode()), **{f"{name}.md": File(text.encode()) for name, text in more.items()}}


def attacks(category: str, expect: str | None = None) -> list[dict[str, Any]]:
    """Returns the hostile cases of a category; with `expect`, those that should end so."""
    cases = json.loads(ATTACKS.read_text(encoding="utf-8"))["cases"]
    return [case for case in cases if case["category"] == category and expect in (None, case["expect"])]
