"""What the model does in a session: the turns, and what must have come of them, whichever client
carried them.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from model import Model, Say, Seen, Turn, Use
from place import BODY, Place, skill

Check = tuple[str, bool, str]
"""What was to be seen, whether it was, and what there was instead."""

CHANGED = "Zebras count the pages twice."
NEW = skill("quibblefrost", "Quibblefrost a report before it is sent.", "Hot from the folder.")


def found(text: str) -> dict[str, Any]:
    """Return the JSON that a client showed as a tool's result; Codex writes a line before it."""
    parsed, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    assert isinstance(parsed, dict)
    return parsed


def whole(server: str) -> list[Turn]:
    """Return the turns of a session that finds, loads, updates, restores, and reports."""

    def load(seen: Seen) -> Use:
        answer = found(seen.last)
        return Use(
            "load_skill", {"ref": answer["use"]["ref"], "search_id": answer["search_id"]}, server
        )

    def update(seen: Seen) -> Use:
        assert BODY in seen.last
        edit = {"path": "SKILL.md", "old": BODY, "new": CHANGED}
        values = {
            "ref": "skill:pdf",
            "edits": [edit],
            "reason": "count again",
            "expected_version": 1,
        }
        return Use("update_resource", values, server)

    def restore(seen: Seen) -> Use:
        assert found(seen.last)["version"] == 2
        return Use(
            "restore_resource",
            {"ref": "skill:pdf", "version": 1, "reason": "once is enough"},
            server,
        )

    def report(seen: Seen) -> Use:
        assert found(seen.last)["version"] == 3
        use = next(match for text in seen.results if (match := re.search(r"use_id: (\S+)", text)))
        return Use(
            "report_outcome", {"use_id": use[1], "outcome": "succeeded", "usage": "used"}, server
        )

    def wrong(seen: Seen) -> Use:
        assert "isError" not in seen.last
        return Use("load_skill", {"ref": "skill:pdff"}, server)

    find = Use("find_skill", {"task": "fill in a PDF form"}, server)
    return [
        lambda _: find,
        load,
        update,
        restore,
        report,
        wrong,
        lambda seen: Say(f"DONE {len(seen.results)}"),
    ]


def whole_checks(model: Model, place: Place) -> Iterator[Check]:
    """Yield what must be seen after a session of these turns."""
    results = [*model.seen.results, *[""] * 6]
    yield (
        "find_skill shows the match",
        "skill:pdf" in results[0] and "search_id" in results[0],
        results[0],
    )
    yield (
        "load_skill shows the document and a use",
        BODY in results[1] and "use_id" in results[1],
        results[1],
    )
    yield (
        "update_resource makes version 2",
        place.text("pdf", 2) == place.text("pdf", 1).replace(BODY, CHANGED),
        "",
    )
    yield (
        "restore_resource brings the bytes back as version 3",
        place.text("pdf", 3) == place.text("pdf", 1),
        "",
    )
    folder = (place.skills / "pdf" / "SKILL.md").read_text(encoding="utf-8")
    yield "the folder on disk holds what was restored", folder == place.text("pdf", 3), folder
    yield (
        "report_outcome answers with the evidence",
        '"succeeded":1' in results[4].replace(" ", ""),
        results[4],
    )
    yield "a mistake says what to do next", "pdff" in results[5] and "pdf" in results[5], results[5]
    yield (
        "the script went through",
        not model.failures and len(model.seen.results) == 6,
        str(model.failures),
    )


def hot(server: str, place: Place, listing: Use | None = None) -> list[Turn]:
    """Return the turns of a session in which somebody saves a new skill; `listing` is the client's
    own list tool.
    """
    find = Use("find_skill", {"task": "quibblefrost the report"}, server)

    def save(_: Seen) -> Use:
        place.save_and_wait("quibblefrost", NEW)
        return find

    turns: list[Turn] = [lambda _: find, save]
    if listing:
        listed = listing
        turns = [lambda _: listed, *turns, lambda _: listed]
    return [*turns, lambda _: Say("DONE")]


def hot_checks(model: Model, listing: bool) -> Iterator[Check]:
    """Yield what must be seen after a session with a hot reload."""
    results = [*model.seen.results, *[""] * 4]
    before, after = results[1:3] if listing else results[:2]
    yield (
        "the new skill is not found before it is saved",
        "skill:quibblefrost" not in before,
        before,
    )
    yield "the new skill is found in the same session", "skill:quibblefrost" in after, after
    if listing:
        first, last = results[0], results[3]
        yield (
            "the client's own list has it too",
            "quibblefrost" in last and "quibblefrost" not in first,
            last,
        )
    yield "the script of the reload went through", not model.failures, str(model.failures)
