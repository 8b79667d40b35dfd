"""An answer over MCP has no field that says nothing; the command line's has them all."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import CommandLine
from mcp_place import Place, skill_text

from evolvable_server.config import Config
from evolvable_server.mcp.results import KEPT, without_empty
from evolvable_server.serving import Serving
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store

EMPTY: tuple[Any, ...] = (None, "", [], {})
PARAGRAPHS = [f"Paragraph {number} of the guide, with ordinary words." for number in range(40)]
GUIDE = "\n\n".join(PARAGRAPHS)


def size(answer: dict[str, Any]) -> int:
    return len(json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode())


def test_only_what_a_schema_names_is_left_out() -> None:
    inner = {
        "properties": {
            "why": {"type": "string"},
            "map": {"type": "object", "additionalProperties": True},
        }
    }
    schema = {
        "$defs": {"Inner": inner},
        "properties": {
            "list": {"items": {"$ref": "#/$defs/Inner"}},
            "maybe": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Inner"}]},
            "off": {"type": "boolean", "default": False},
            "on": {"type": "boolean", "default": True},
            "said": {"type": "boolean"},
            "count": {"type": "integer", "default": 0},
            "kept": {"type": "array"},
            "data": {"type": "object", "additionalProperties": True},
        },
    }
    empty = {"why": "", "map": {}}
    data = {"schema": {"required": [], "additionalProperties": False, "default": None}}
    value = {
        "list": [empty],
        "maybe": empty,
        "off": False,
        "on": False,
        "said": False,
        "count": 0,
        "kept": [],
    }

    whole = without_empty({**value, "data": data, "unknown": ""}, schema, {"kept"})

    assert whole == {"list": [{}], "on": False, "said": False, "count": 0, "kept": [], "data": data}


def empty_fields(value: Any, schema: dict[str, Any], parts: dict[str, Any]) -> set[str]:
    """The names of the empty fields among those that a schema names."""
    schema = next((one for one in schema.get("anyOf", ()) if one != {"type": "null"}), schema)
    schema = parts[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if isinstance(value, list):
        return {name for one in value for name in empty_fields(one, schema.get("items", {}), parts)}
    if not isinstance(value, dict) or "properties" not in schema:
        return set()
    inner = (
        empty_fields(one, schema["properties"].get(name, {}), parts) for name, one in value.items()
    )
    return {name for name, one in value.items() if one in EMPTY}.union(*inner)


@pytest.mark.process
@pytest.mark.anyio
async def test_no_answer_has_an_empty_field_and_each_fits_its_schema(
    place: Place, tmp_path: Path, era: str
) -> None:
    talk = [{"role": "user", "content": "Fill the form."}, {"role": "assistant", "content": ""}]
    edit = [{"path": "SKILL.md", "old": "two", "new": "second"}]
    calls = [
        ("update_resource", {"ref": "pdf", "reason": "clearer", "edits": edit}),
        ("update_resource", {"ref": "csv", "reason": "clearer", "edits": edit, "propose": True}),
        ("resource_history", {"ref": "pdf"}),
        ("load_skill", {"ref": "pdf"}),
        ("report_outcome", {"ref": "pdf", "outcome": "succeeded"}),
        ("review_inbox", {}),
        ("review_inbox", {"action": "show", "proposal_id": 1}),
        ("restore_resource", {"ref": "pdf", "version": 1, "reason": "was better"}),
        ("remove_resource", {"ref": "csv", "reason": "not needed"}),
        ("undo", {"operation": 1, "reason": "a test"}),
        ("review_session", {"transcript": talk, "mode": "handoff"}),
        ("compress_history", {"messages": talk}),
        ("list_resources", {}),
    ]
    async with place.client(era) as client:
        answers = [(tool, await client.call_tool(tool, given)) for tool, given in calls]
    serving = Serving(Config(tmp_path / "schemas", tmp_path))
    try:
        for tool, answer in answers:
            assert not answer.is_error, answer.content
            assert serving.server.late_tools is not None
            serving.server.late_tools.make(tool)
            made = serving.server._tool_manager.get_tool(tool)
            assert made is not None
            if made.output_schema is None or answer.structured_content is None:
                continue
            jsonschema.validate(answer.structured_content, made.output_schema)
            found = empty_fields(
                answer.structured_content, made.output_schema, made.output_schema.get("$defs", {})
            )
            assert found <= KEPT.get(tool, frozenset()), (tool, answer.structured_content)
    finally:
        serving.close()

    by_tool = {tool: answer.structured_content for tool, answer in answers}
    assert by_tool["compress_history"]["messages"] == talk, "an empty text of a message is data"
    assert "next_cursor" not in by_tool["list_resources"]


@pytest.mark.process
@pytest.mark.anyio
async def test_an_inbox_that_is_empty_says_so(place: Place) -> None:
    async with place.client("modern") as client:
        assert (await client.call_tool("review_inbox", {})).structured_content == {"proposals": []}


@pytest.mark.process
def test_the_command_line_writes_every_field(tmp_path: Path) -> None:
    run = CommandLine(tmp_path)
    (tmp_path / "new.md").write_text(skill_text("bread"), encoding="utf-8")
    run("init")
    made = run(
        "update",
        "bread",
        "--create",
        "-m",
        "new",
        "--file",
        f"SKILL.md={tmp_path / 'new.md'}",
        "--json",
    ).json

    assert (
        made["warnings"] == [] and made["previous_version"] is None and made["proposal_id"] is None
    )


async def propose(client: Any, name: str, *edits: dict[str, str]) -> int:
    given = {
        "ref": name,
        "reason": "The guide was wrong about the order of the steps.",
        "edits": list(edits),
    }
    answer = await client.call_tool("update_resource", {**given, "propose": True})
    assert not answer.is_error, answer.content
    return int(answer.structured_content["proposal_id"])


def changed(*paragraphs: int) -> list[dict[str, str]]:
    return [
        {
            "path": "SKILL.md",
            "old": PARAGRAPHS[one],
            "new": f"{PARAGRAPHS[one]} Check the form first.",
        }
        for one in paragraphs
    ]


@pytest.mark.process
@pytest.mark.anyio
async def test_three_proposals_are_listed_with_their_differences_in_three_kilobytes(
    place: Place, era: str
) -> None:
    async with place.client(era) as client:
        for name in ("one", "two", "three"):
            files = {"SKILL.md": skill_text(name, body=GUIDE)}
            await client.call_tool(
                "update_resource", {"ref": name, "reason": "new", "files": files, "create": True}
            )
        ids = [await propose(client, name, *changed(7, 27)) for name in ("one", "two", "three")]
        listed = (await client.call_tool("review_inbox", {})).structured_content
        several = {"action": "show", "proposal_ids": ids}
        shown = (await client.call_tool("review_inbox", several)).structured_content
        (whole,) = (
            await client.call_tool("review_inbox", {"action": "show", "proposal_id": ids[0]})
        ).structured_content["proposals"]

    for answer in (listed, shown):
        assert size(answer) <= 3_000
        assert [one["proposal_id"] for one in answer["proposals"]] == ids
        assert all(one["diff"].count("+Paragraph") == 2 for one in answer["proposals"])
        assert [bool(one.get("notice")) for one in answer["proposals"]] == [True, False, False]
    assert (
        f" {PARAGRAPHS[6]}" in whole["diff"]
        and f" {PARAGRAPHS[6]}" not in shown["proposals"][0]["diff"]
    )


@pytest.mark.process
@pytest.mark.anyio
async def test_a_difference_without_room_is_left_to_show_and_the_others_are_listed(
    place: Place,
) -> None:
    async with place.client("modern") as client:
        for name in ("one", "two"):
            files = {"SKILL.md": skill_text(name, body=GUIDE)}
            await client.call_tool(
                "update_resource", {"ref": name, "reason": "new", "files": files, "create": True}
            )
        long, short = (
            await propose(client, "one", *changed(*range(40))),
            await propose(client, "two", *changed(7)),
        )
        first, second = (await client.call_tool("review_inbox", {})).structured_content["proposals"]
        (whole,) = (
            await client.call_tool("review_inbox", {"action": "show", "proposal_id": long})
        ).structured_content["proposals"]

    assert (first["proposal_id"], second["proposal_id"]) == (long, short)
    assert "diff" not in first and "+Paragraph" in second["diff"]
    assert whole["diff"].count("+Paragraph") == 40


def add_reviewed(place: Place, name: str) -> int:
    """Have a review propose a change of a skill, with the evidence that an ordinary one has."""
    grounds = {
        "what": "skill-edit",
        "evidence": [
            {
                "session": "session-1",
                "turn": turn,
                "origin": "user",
                "quote": f"No. {PARAGRAPHS[turn]} " * 3,
            }
            for turn in (1, 2)
        ],
        "near": [f"skill:{name}"],
        "cost": {"thinker": "handoff", "tokens": 850},
        "expected_signal": "The form is checked before it is filled in.",
    }
    with Store.open(place.home) as store:
        head = store.head(Ref.parse(name))
        files = {"SKILL.md": File(skill_text(name, body=f"{GUIDE}\n\nCheck the form.").encode())}
        draft = Draft(
            head.ref, head.version or 0, files, "The user said so.", grounds=json.dumps(grounds)
        )
        return store.backend.proposals.add(store.now(), Actor.REVIEW, "session-1", draft)


@pytest.mark.process
@pytest.mark.anyio
async def test_where_evidence_takes_the_room_the_differences_are_listed_and_show_has_both(
    place: Place,
) -> None:
    names = ("one", "two", "three")
    async with place.client("modern") as client:
        for name in names:
            files = {"SKILL.md": skill_text(name, body=GUIDE)}
            await client.call_tool(
                "update_resource", {"ref": name, "reason": "new", "files": files, "create": True}
            )
        ids = [add_reviewed(place, name) for name in names]
        listed = (await client.call_tool("review_inbox", {})).structured_content
        shown = (await client.call_tool("review_inbox", {"proposal_ids": ids})).structured_content

    assert size(listed) <= 3_000
    assert all(
        "+Check the form." in one["diff"] and "grounds" not in one for one in listed["proposals"]
    )
    assert all(
        "+Check the form." in one["diff"] and one["grounds"]["evidence"]
        for one in shown["proposals"]
    )
