"""What an agent asks of a search and reads of a listing: how many bytes, and what is left out
first.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from answers import best_of
from command_line import skill_text
from earned import verified
from mcp import Client

from evolvable_server.config import Config
from evolvable_server.mcp.brief_answers import listing_answer
from evolvable_server.serving import Serving
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.verbs import edit
from evolvable_tools.verbs.search import ListedResource, Listing

NUMBER = "0123456789abcdef"
LONG = "Fills, merges and splits the forms of PDF files, and says “done” when it is. " * 14
NOTICE = "brought by a repository that no person has trusted"


def size(answer: Any) -> int:
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())


def test_a_page_of_a_listing_has_at_most_six_thousand_bytes() -> None:
    resources = [
        ListedResource(f"skill:{'n' * 58}-{at}", 12, LONG, "Budding", 0, None, "you")
        for at in range(25)
    ]
    used = ListedResource("skill:pdf", 2, "Fill forms.", "Growing", 7, 0.5, "you")

    page = listing_answer(Listing(resources, "a cursor"), limit=25, detail=False)

    assert (
        size(page) <= 6_000 and len(page["resources"]) == 25 and page["next_cursor"] == "a cursor"
    )
    assert listing_answer(Listing([used]), limit=25, detail=False)["resources"] == [
        {
            "ref": "skill:pdf",
            "version": 2,
            "description": "Fill forms.",
            "author": "you",
            "maturity": "Growing",
            "uses": 7,
            "success": 0.5,
        }
    ]


@pytest.mark.anyio
async def test_an_agent_that_names_the_task_type_gets_near_ties_ordered_by_it(
    tmp_path: Path,
) -> None:
    serving = Serving(Config(tmp_path / "home", tmp_path, embedder="off"))
    library = serving.library
    for name in ("left", "right"):
        files = {"SKILL.md": skill_text(f"{name}-form", "Fills in a form.")}
        edit.update_resource(
            library,
            Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal"),
            Ref.parse(f"{name}-form"),
            "new",
            files=files,
            create=True,
        )
    for number in range(4):
        for name, good, bad in (
            ("left", "fill a.pdf", "test a.py"),
            ("right", "test a.py", "fill a.pdf"),
        ):
            verified(library, f"{name}-form", f"{name}-good-{number}", "succeeded", task=good)
            verified(library, f"{name}-form", f"{name}-bad-{number}", "failed", task=bad)

    async with Client(serving.server, mode="legacy") as client:
        for task_type, best in (
            ("test python", "skill:right-form"),
            ("convert documents", "skill:left-form"),
        ):
            asked = {"task": "fill in a form", "task_type": task_type}
            found = (await client.call_tool("find_skill", asked)).structured_content
            assert best_of(found) == best, task_type
    serving.close()
