"""What is listed of the tools: closed schemas, and descriptions that stand alone where a client
cuts them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp_place import Place, skill_text

from evolvable_server.mcp.lazy_tools import TOOLS_FILE

DATA = Path(__file__).parents[1] / "data"
GROUPS = [TOOLS_FILE, *(DATA / f"tools_{group}.json" for group in ("ags", "evolve", "rspl"))]
TOOLS = {
    tool["name"]: tool for file in GROUPS for tool in json.loads(file.read_text(encoding="utf-8"))
}

SHAPED_ELSEWHERE = {
    ("ags_answer", "plan"),
    ("evolve_measure", "settings"),
    ("evolve_start", "settings"),
    ("evolve_submit", "answer"),
    ("run_resource", "given"),
    ("set_variables", "values"),
}
"""Arguments of the further groups whose fields a run, a resource or its variables decide."""

CUT = 160
"""Characters of a description that Qwen Code shows."""


def open_objects(schema: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the places of objects that may have properties which they do not name."""
    if isinstance(schema, list):
        for part in schema:
            yield from open_objects(part, place)
    elif isinstance(schema, dict):
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            yield place
        if schema.get("type") == "array" and "items" not in schema:
            yield place
        for name, part in schema.items():
            if name in ("properties", "$defs"):
                for field, inner in part.items():
                    yield from open_objects(inner, (*place, field))
            else:
                yield from open_objects(part, place)


def test_every_object_of_every_listed_schema_is_closed() -> None:
    found = {
        (name, *place)
        for name, tool in TOOLS.items()
        for place in open_objects(tool["inputSchema"])
    }

    assert found == SHAPED_ELSEWHERE
    assert not found & {
        (tool["name"], *place) for tool in json.loads(TOOLS_FILE.read_text()) for place in found
    }


@pytest.mark.parametrize("name", TOOLS)
def test_a_description_that_is_cut_at_160_characters_says_what_the_tool_does(name: str) -> None:
    sentences = re.split(r"(?<=\.) (?=[A-Z`])", TOOLS[name]["description"])
    whole = max(
        len(" ".join(sentences[:count]))
        for count in range(len(sentences) + 1)
        if fits(sentences[:count])
    )

    assert whole >= 40 and all(sentence.endswith(".") for sentence in sentences)


def fits(sentences: list[str]) -> bool:
    return len(" ".join(sentences)) <= CUT


def test_the_list_of_tools_has_not_grown_by_closing_its_schemas() -> None:
    """14,316 bytes before; clients without tool search send the whole list with each request."""
    tools = json.loads(TOOLS_FILE.read_text(encoding="utf-8"))
    text = json.dumps({"tools": tools}, ensure_ascii=False, separators=(",", ":"))

    assert len(text.encode()) <= 14_316 * 1.03


NEW = skill_text("bread", "Bakes bread.")


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.parametrize("as_text", [False, True], ids=["json", "json in a text"])
async def test_files_are_taken_as_a_list_and_as_a_map(
    place: Place, era: str, as_text: bool
) -> None:
    def given(files: Any) -> Any:
        return json.dumps(files) if as_text else files

    async with place.client(era) as client:

        async def update(files: Any, **more: Any) -> types.CallToolResult:
            given_files = {"ref": "bread", "reason": "a test", "files": given(files), **more}
            return await client.call_tool("update_resource", given_files)

        made = await update(
            [{"path": "SKILL.md", "text": NEW}, {"path": "a.md", "text": "a"}], create=True
        )
        more = await update({"b.md": "b", "a.md": None})
        gone = await update([{"path": "b.md", "text": None}])
        twice = await update([{"path": "c.md", "text": "c"}, {"path": "c.md", "text": "d"}])
        other = await update([{"path": "c.md", "content": "c"}])
        whole = (await client.call_tool("get_resource", {"ref": "bread"})).content[0].text

    assert [one.structured_content["changed"] for one in (made, more, gone)] == [
        ["SKILL.md", "a.md"],
        ["a.md", "b.md"],
        ["b.md"],
    ]
    assert twice.is_error and "'c.md' is there twice" in twice.content[0].text
    assert other.is_error and "each file is {path, text}" in other.content[0].text
    assert whole.startswith(NEW)


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.parametrize("form", ["list", "map"])
async def test_a_person_is_shown_the_files_that_an_approval_brings_in_either_form(
    place: Place, form: str
) -> None:
    text = skill_text("pdf", body="as the person wants it")
    files: Any = {"SKILL.md": text} if form == "map" else [{"path": "SKILL.md", "text": text}]
    asked: list[str] = []

    async def person(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept")

    async with place.client("handshake", elicitation_callback=person) as client:
        edit = [{"path": "SKILL.md", "old": "two", "new": "second"}]
        await client.call_tool(
            "update_resource", {"ref": "pdf", "reason": "clearer", "edits": edit, "propose": True}
        )
        call = {"action": "approve", "proposal_id": 1, "files": files}
        decided = await client.call_tool("review_inbox", call)
        wrong = await client.call_tool("review_inbox", {**call, "files": [{"path": "SKILL.md"}]})

    assert (
        "With other files than proposed: SKILL.md" in asked[0]
        and "as the person wants it" in asked[0]
    )
    assert decided.structured_content["decided"][0]["state"] == "approved"
    assert (
        wrong.is_error and "each file is {path, text}" in wrong.content[0].text and len(asked) == 1
    )
    assert (place.skills / "pdf/SKILL.md").read_text(encoding="utf-8") == text


@pytest.mark.process
@pytest.mark.anyio
async def test_messages_are_taken_with_fields_that_are_not_listed(place: Place) -> None:
    """What the list closes for one client stays open for those that send more."""
    talk = [
        {"role": "user", "content": [{"type": "text", "text": "Fill the form."}], "id": "m-1"},
        {"role": "assistant", "content": "Filled.", "tool_calls": []},
    ]
    async with place.client("modern") as client:
        shorter = (
            await client.call_tool("compress_history", {"messages": talk})
        ).structured_content

    assert shorter["messages"] == talk
