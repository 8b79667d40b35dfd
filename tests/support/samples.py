"""Small things that many tests need: a clock to move by hand, a skill in one line, the hostile
inputs.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from evolvable_store.objects import File, Files
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref, main_file
from evolvable_store.store import Store

ATTACKS = Path(__file__).parents[1] / "data" / "attacks.json"

OFFICE = {
    "pdf-forms": "Fill, merge and split PDF forms.",
    "release-notes": "Write the release notes of a version from its git log.",
    "helm-deploy": "Deploy a service to Kubernetes with Helm charts.",
    "sql-review": "Review SQL queries and the indexes that they use.",
    "csv-tables": "Clean and summarise CSV tables with pandas.",
    "incident-report": "Write a report after an outage, with timeline, cause and measures.",
}
"""Skills that do different things: names and descriptions."""

FROZEN = '---\nname: pdf\ndescription: d\nmetadata:\n  evolvable: "false"\n---\nDo not change me.\n'
"""A SKILL.md that only a person may change."""


class Clock:
    """Says the same moment until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **by: float) -> None:
        """Move the clock by a timedelta's arguments, back when they are negative."""
        self.now += timedelta(**by)


def skill(text: str, **more: str) -> Files:
    """Return the files of a skill: its SKILL.md, and others named by keyword (`notes`
    is notes.md).
    """
    return {
        "SKILL.md": File(text.encode()),
        **{f"{name}.md": File(text.encode()) for name, text in more.items()},
    }


def put_texts(
    store: Store, texts: Mapping[str, str], remove: Iterable[str] = (), **beside: bytes
) -> None:
    """Write the main files of resources and remove others, all in one operation; each gets the
    files `beside` too.
    """
    files = {f"{name}.md": File(data) for name, data in beside.items()}
    with store.transaction(Actor.HUMAN, "write") as tx:
        for ref, text in texts.items():
            named = Ref.parse(ref)
            tx.put(named, {main_file(named.kind, named.name): File(text.encode()), **files})
        for ref in remove:
            tx.remove(Ref.parse(ref))


def teach(store: Store, ref: str, description: str, *, triggers: str = "", body: str = "") -> None:
    """Write one resource: `teach(store, "pdf", "Fills PDF forms.", triggers="merge pdf",
    body="...")`.
    """
    metadata = f"metadata:\n  triggers: {json.dumps(triggers)}\n" if triggers else ""
    head = f"name: {Ref.parse(ref).name}\ndescription: {json.dumps(description)}\n{metadata}"
    put_texts(store, {ref: f"---\n{head}---\n{body}\n"})


def attacks(category: str, expect: str | None = None) -> list[dict[str, Any]]:
    """Return the hostile cases of a category; with `expect`, those that should end so."""
    cases = json.loads(ATTACKS.read_text(encoding="utf-8"))["cases"]
    return [
        case for case in cases if case["category"] == category and expect in (None, case["expect"])
    ]
