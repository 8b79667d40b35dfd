"""The MCP surface through the SDK's own client over real stdio, in both eras."""

import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import mcp_types as types
import pytest
from answers import best_of
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_place import Place, skill_text

from evolvable_server.config import SELF_CHECK, Config
from evolvable_server.mcp.lazy_tools import TOOLS_FILE
from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.tools import add_tool
from evolvable_server.serving import Serving

pytestmark = [pytest.mark.process, pytest.mark.anyio]

ATTACKS = json.loads((Path(__file__).parents[1] / "data/attacks.json").read_text(encoding="utf-8"))[
    "cases"
]


@pytest.fixture(scope="module")
async def reader(era: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of one server for all the tests that change nothing; in both eras."""
    async with Place(tmp_path_factory.mktemp("read")).client(era, within=300) as client:
        yield client


@pytest.fixture(scope="module")
async def modern(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """As `reader`, in the modern era only."""
    async with Place(tmp_path_factory.mktemp("read")).client("modern", within=300) as client:
        yield client


def as_json(tools: Sequence[types.Tool]) -> list[dict[str, object]]:
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]


async def call(client, tool, **arguments):
    """The structured result, or the text where a tool returns a document. Fails on an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    if result.structured_content is not None:
        return result.structured_content
    return "".join(block.text for block in result.content)


async def failure(client, tool, **arguments):
    """The text of the error that a call answers."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return result.content[0].text


async def test_a_search_by_the_program_itself_is_not_counted_as_shown_to_an_agent(tmp_path):
    """`quickstart` asks its own server; what it shows to a person says nothing of agents."""
    async with Place(tmp_path).client("modern") as client:
        checked = await client.call_tool(
            "find_skill", {"task": "merge PDF forms"}, meta={SELF_CHECK: True}
        )
        asked = await client.call_tool("find_skill", {"task": "clean a CSV table"})
        told = [await client.get_prompt("why", {"ref": name}) for name in ("pdf", "csv")]

    assert [best_of(answer.structured_content) for answer in (checked, asked)] == [
        "skill:pdf",
        "skill:csv",
    ]
    assert (
        "Shown 0 times" in told[0].messages[0].content.text
        and "Shown 1 time" in told[1].messages[0].content.text
    )


async def test_what_is_listed_before_a_tool_is_made_is_what_it_says_of_itself(tmp_path):
    """To accept a change, run the suite with EVOLVABLE_UPDATE_GOLDEN=1 and commit the file."""
    serving = Serving(Config(tmp_path / "home", tmp_path))
    try:
        server = LibraryServer()
        for tool in serving.server.late_tools.declared():
            add_tool(server, tool)
        made = as_json(await server.list_tools())
        if os.environ.get("EVOLVABLE_UPDATE_GOLDEN"):
            TOOLS_FILE.write_text(
                json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )

        assert made == json.loads(TOOLS_FILE.read_text(encoding="utf-8"))
        assert [tool.name for tool in await serving.server.list_tools()] == [
            tool["name"] for tool in made
        ]
    finally:
        serving.close()


async def test_the_tool_list_is_that_of_the_file(reader):
    """Descriptions and schemas are what a model reads: a change to them is deliberate."""
    listed = as_json((await reader.list_tools()).tools)

    assert listed == json.loads(TOOLS_FILE.read_text(encoding="utf-8"))


async def test_the_tool_list_is_small_and_uses_only_standard_keywords():
    """A client without tool search pays for the whole list in every conversation."""
    tools = json.loads(TOOLS_FILE.read_text(encoding="utf-8"))
    schemas = [tool["inputSchema"] for tool in tools]

    def keywords(schema):
        for name, part in schema.items():
            yield name
            inner = (
                part.values()
                if name == "properties"
                else part
                if isinstance(part, list)
                else [part]
            )
            yield from (word for one in inner if isinstance(one, dict) for word in keywords(one))

    assert (
        len(json.dumps({"tools": tools}, ensure_ascii=False, separators=(",", ":")).encode())
        <= 16_000
    )
    assert {word for schema in schemas for word in keywords(schema)} - {
        "$defs",
        "EditArgument",
    } <= {
        *(
            "type",
            "properties",
            "required",
            "additionalProperties",
            "description",
            "items",
            "$ref",
            "anyOf",
        ),
        *("enum", "minimum", "maximum", "maxLength", "default"),
    }
    assert schemas[0]["properties"]["limit"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 20,
        "default": 8,
        "description": "how many matches, 1 to 20",
    }
    assert not any("outputSchema" in tool for tool in tools)


async def test_every_tool_is_annotated_and_only_what_takes_away_is_destructive(modern):
    """Codex runs a tool without asking only when destructiveHint and openWorldHint are
    both false.
    """
    tools = (await modern.list_tools()).tools

    assert [tool.name for tool in tools if tool.annotations.destructive_hint] == [
        "remove_resource",
        "undo",
    ]
    assert {tool.annotations.open_world_hint for tool in tools} == {False}
    assert [tool.name for tool in tools if tool.annotations.read_only_hint] == [
        *("find_skill", "load_skill", "report_outcome"),
        *("list_resources", "get_resource", "resource_history", "compress_history"),
    ]
    assert all(
        len(tool.description) < 1000 and tool.input_schema["additionalProperties"] is False
        for tool in tools
    )


async def test_an_answer_is_the_same_in_text_and_in_its_structured_form(place, era):
    """Clients show a model both where they differ, some by their text: 1.0 in one of them would be
    a difference.
    """
    async with place.client(era) as client:
        use = (await client.call_tool("load_skill", {"ref": "pdf"})).content[-1].text
        files = {"SKILL.md": skill_text("pdf", "Merge PDF forms.")}
        asked = {
            "find_skill": {"task": "merge PDF forms"},
            "report_outcome": {
                "use_id": use.split("use_id: ")[1].split()[0],
                "outcome": "succeeded",
            },
            "list_resources": {"detail": True},
            "resource_history": {"ref": "pdf"},
            "update_resource": {"ref": "pdf", "files": files, "reason": "a test"},
            "undo": {"operation": 1, "reason": "a test"},
            "review_inbox": {},
        }
        answers = {
            tool: await client.call_tool(tool, arguments) for tool, arguments in asked.items()
        }

    assert answers["report_outcome"].structured_content["success"] == 1
    for tool, answer in answers.items():
        (block,) = answer.content
        compact = json.dumps(answer.structured_content, ensure_ascii=False, separators=(",", ":"))
        assert block.text == compact and not re.search(r"[0-9]\.0[,}\]]", compact), tool


@pytest.mark.parametrize(
    ("word", "counted"), [("success", "succeeded"), ("failure", "failed"), ("failed", "failed")]
)
async def test_report_outcome_takes_the_words_that_agents_write(place, era, word, counted):
    async with place.client(era) as client:
        await client.call_tool("load_skill", {"ref": "pdf"})
        told = await call(client, "report_outcome", ref="pdf", outcome=word)

    assert told[counted] == 1 and told["counted"]


async def test_the_first_line_of_the_instructions_says_what_this_is_and_when_to_call(reader):
    """Codex shows a model only about the first 250 characters."""
    first = reader.instructions.splitlines()[0]

    assert len(first) < 200
    assert "find_skill" in first and "before" in first


async def test_a_skill_is_found_loaded_changed_looked_up_restored_and_undone(place, era):
    """The whole of the product in one go."""
    async with place.client(era) as client:
        found = await call(client, "find_skill", task="fill a PDF form")
        best = found["use"]
        assert (best["ref"], found["verdict"]) == ("skill:pdf", "sure")
        assert 0.5 <= best["confidence"] <= 1 and best["why"] and best["about"]

        document = await call(client, "load_skill", ref=best["ref"], search_id=found["search_id"])
        use_id = document.split("use_id: ")[1].split()[0]

        edits = [{"path": "SKILL.md", "old": "two", "new": "second"}]
        updated = await call(
            client,
            "update_resource",
            ref="skill:pdf",
            reason="clearer",
            edits=edits,
            expected_version=1,
        )
        assert (updated["version"], updated["changed"], "warnings" in updated) == (
            2,
            ["SKILL.md"],
            False,
        )
        assert "second" in (place.skills / "pdf/SKILL.md").read_text(encoding="utf-8")

        history = await call(
            client, "resource_history", ref="skill:pdf", from_version=1, to_version=2
        )
        assert [version["version"] for version in history["versions"]] == [2, 1]
        assert "-two\n+second" in history["diff"]

        restored = await call(
            client, "restore_resource", ref="skill:pdf", version=1, reason="was better"
        )
        assert restored["version"] == 3
        undone = await call(client, "undo", operation=restored["operation"], reason="was not")
        assert undone["restored"] == ["skill:pdf@4"]
        assert "second" in await call(client, "get_resource", ref="skill:pdf")

        told = await call(
            client, "report_outcome", use_id=use_id, outcome="succeeded", usage="used"
        )
        assert (told["loaded"], told["succeeded"], told["maturity"]) == (1, 1, "Growing")

        waits = await call(client, "remove_resource", ref="skill:pdf", reason="not needed")
        assert ("operation" in waits, waits["proposal_id"]) == (False, 1) and (
            place.skills / "pdf"
        ).exists()
        text = "---\nname: own\ndescription: Made here.\n---\n\nMine.\n"
        await call(
            client,
            "update_resource",
            ref="own",
            reason="new",
            files={"SKILL.md": text},
            create=True,
        )
        await call(client, "remove_resource", ref="own", reason="not needed")
        assert not (place.skills / "own").exists()
        listing = await call(client, "list_resources", kind="skill")
        assert [resource["ref"] for resource in listing["resources"]] == [
            "skill:csv",
            "skill:pdf",
        ]


async def test_a_new_skill_is_created_in_the_folder_and_found_at_once(place, era):
    text = (
        "---\nname: tides\ndescription: Predict tides at a harbour.\n---\n\nAsk for the harbour.\n"
    )
    async with place.client(era) as client:
        made = await call(
            client,
            "update_resource",
            ref="tides",
            reason="asked for",
            files={"SKILL.md": text},
            create=True,
        )
        found = await call(client, "find_skill", task="when is high tide in the harbour")

    assert (made["ref"], made["version"]) == ("skill:tides", 1)
    assert best_of(found) == "skill:tides"
    assert (place.skills / "tides/SKILL.md").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("task", "verdict"),
    [
        ("bake sourdough bread with rye", "none"),
        ("fill a PDF form", "sure"),
        ("une tarte aux pommes", "choose"),
    ],
)
async def test_a_task_has_the_same_answer_each_time(reader, task, verdict):
    first, *others = [await call(reader, "find_skill", task=task) for _ in range(3)]

    assert first["verdict"] == verdict
    assert all(other == first | {"search_id": other["search_id"]} for other in others)


async def test_in_detail_with_another_limit_and_of_another_kind_the_second_answer_says_the_same(
    reader,
):
    for asked in (
        {"detail": True},
        {"limit": 1},
        {"limit": 20},
        {"kind": "prompt"},
        {"mode": "text"},
    ):
        one, two = [
            await call(reader, "find_skill", task="bake sourdough bread", **asked) for _ in range(2)
        ]

        assert two == one | {"search_id": two["search_id"]}


async def test_detail_gives_every_field(reader):
    brief, whole = [
        (await call(reader, "find_skill", task="fill a PDF form", detail=detail))
        for detail in (False, True)
    ]

    assert brief == {name: whole[name] for name in brief} | {"search_id": brief["search_id"]}
    assert set(whole) - set(brief) == {"matches", "stages", "notice", "fits"}
    best = whole["matches"][0]
    assert (best["ref"], best["version"], best["author"]) == ("skill:pdf", 1, "you")
    assert (
        best["why"].startswith(brief["use"]["why"])
        and best["confidence"] == brief["use"]["confidence"]
    )


async def test_pages_of_a_listing_follow_each_other(reader):
    first = await call(reader, "list_resources", limit=1)
    second = await call(reader, "list_resources", limit=1, cursor=first["next_cursor"])

    assert [first["resources"][0]["ref"], second["resources"][0]["ref"]] == [
        "skill:csv",
        "skill:pdf",
    ]
    assert "next_cursor" not in second


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("load_skill", {"ref": "pfd"}, "There is no skill named pfd. Did you mean pdf?"),
        (
            "update_resource",
            {"ref": "pfd", "reason": "x", "files": {"SKILL.md": "x"}},
            "pass create=true.",
        ),
        ("load_skill", {"ref": "pdf@9"}, "has no version 9. It has versions 1 to 1."),
        (
            "load_skill",
            {"ref": "pdf", "path": "nope.md"},
            "has no file 'nope.md'. Its files: SKILL.md.",
        ),
        ("load_skill", {"ref": "cats:pdf"}, "is not a kind. The kinds are skill,"),
        ("load_skill", {"ref": "../pdf"}, "is not a"),
        ("find_skill", {"task": "x", "limit": 0}, "limit"),
        ("find_skill", {"task": ""}, "task"),
        ("find_skill", {"task": "x", "mode": "magic"}, "mode"),
        ("find_skill", {"task": "x", "colour": "red"}, "has no argument 'colour'. It has task,"),
        ("find_skill", {}, "task: field required"),
        ("no_such_tool", {}, "The tools are compress_history, find_skill,"),
        ("list_resources", {"limit": True}, "a number is needed, not true or false"),
        ("list_resources", {"limit": 1.5}, "limit"),
        ("list_resources", {"limit": 9223372036854775808}, "limit"),
        ("list_resources", {"cursor": "x' UNION SELECT 1--"}, "is no cursor"),
        ("update_resource", {"ref": "pdf", "reason": "x"}, "Nothing to change"),
        (
            "update_resource",
            {"ref": "pdf", "reason": "x", "files": {"a.md": "a"}, "expected_version": 7},
            "at version 7",
        ),
        (
            "update_resource",
            {"ref": "pdf", "reason": "x", "files": {"a.md": "a"}, "expected_version": -1},
            "greater",
        ),
        ("restore_resource", {"ref": "pdf", "version": 0, "reason": "x"}, "greater"),
        ("restore_resource", {"ref": "pdf", "version": "1;drop", "reason": "x"}, "integer"),
        ("undo", {"reason": "x"}, "either an operation or a session"),
        ("report_outcome", {"outcome": "failed", "use_id": "use-none"}, "There is no use"),
    ],
)
async def test_a_mistake_is_answered_with_what_which_and_what_next(modern, tool, arguments, words):
    assert words in await failure(modern, tool, **arguments)


@pytest.mark.parametrize("category", ["path", "sql"])
async def test_hostile_arguments_are_refused_and_the_server_goes_on(modern, category):
    """attacks.json: paths inside a bundle, and values for limits and offsets."""
    for case in (
        case for case in ATTACKS if case["category"] == category and case["expect"] == "reject"
    ):
        if category == "path":
            arguments = {"ref": "pdf", "reason": case["id"], "files": {case["input"]: "x"}}
            assert await failure(modern, "update_resource", **arguments), case["id"]
        else:
            assert await failure(modern, "list_resources", limit=case["input"]), case["id"]
    assert (await call(modern, "list_resources"))["resources"]


@pytest.mark.parametrize("category", ["fts", "redos", "sql", "unicode"])
async def test_any_text_can_be_searched_for(modern, category):
    for case in (case for case in ATTACKS if case["category"] == category):
        text = _text(case)
        if text is not None:
            result = await modern.call_tool("find_skill", {"task": text})
            assert result.is_error is (text.strip() == "") or "task" in result.content[0].text, (
                case["id"]
            )


def _text(case):
    if "gen" in case:
        repeat, times = case["gen"]["repeat"]
        return case["gen"].get("prefix", "") + repeat * times + case["gen"].get("suffix", "")
    text = case.get("input", case.get("subject"))
    return text if isinstance(text, str) else None


async def test_skills_are_concrete_resources_with_a_template_beside_them(place, era):
    place.save("pdf", "A reference.\n", "references/forms guide.md")
    async with place.client(era) as client:
        listed = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        read = await client.read_resource("skill://pdf/SKILL.md")

    assert [str(resource.uri) for resource in listed] == [
        "skill://csv/SKILL.md",
        "skill://pdf/SKILL.md",
    ]
    assert [template.uri_template for template in templates] == ["skill://{name}/{+file}"]
    assert read.contents[0].text == (place.skills / "pdf/SKILL.md").read_text(encoding="utf-8")
    assert read.contents[0].mime_type == "text/markdown"


@pytest.mark.parametrize(
    "uri",
    [
        "skill://nope/SKILL.md",
        "skill://pdf/nope.md",
        "skill://pdf/../csv/SKILL.md",
        "file:///etc/passwd",
        "skill://pdf",
    ],
)
async def test_a_resource_that_is_not_there_is_an_error_with_its_uri(reader, uri):
    """Specification 2026-07-28: resource not found is -32602."""
    with pytest.raises(MCPError) as caught:
        await reader.read_resource(uri)

    assert caught.value.error.code == types.INVALID_PARAMS


async def test_the_prompt_loads_a_skill_and_its_argument_completes(reader):
    prompt, *_ = (await reader.list_prompts()).prompts
    got = await reader.get_prompt("use_skill", {"name": "pdf", "task": "merge"})
    done = await reader.complete(
        types.PromptReference(type="ref/prompt", name="use_skill"), {"name": "name", "value": "p"}
    )

    assert [argument.name for argument in prompt.arguments] == ["name", "task"]
    assert "Follow the skill skill:pdf@1" in got.messages[0].content.text
    assert done.completion.values == ["pdf"]


async def test_the_session_of_the_client_is_kept_with_what_it_changes(place, monkeypatch):
    monkeypatch.setattr(
        type(place), "environment", {**place.environment, "CLAUDE_CODE_SESSION_ID": "claude-1"}
    )
    async with place.client("modern") as client:
        arguments = {"ref": "pdf", "reason": "x", "files": {"a.md": "a"}}
        await call(client, "update_resource", **arguments)
        await client.call_tool(
            "update_resource",
            {"ref": "csv", "reason": "y", "files": {"a.md": "a"}},
            meta={"x-codex-turn-metadata": {"session_id": "codex-1"}},
        )
        pdf = await call(client, "resource_history", ref="pdf", limit=1)
        csv = await call(client, "resource_history", ref="csv", limit=1)

    assert (pdf["versions"][0]["session"], csv["versions"][0]["session"]) == ("claude-1", "codex-1")


async def test_where_no_session_is_named_the_server_process_is_one(place):
    async with place.client("modern") as client:
        for ref in ("pdf", "csv"):
            await call(client, "update_resource", ref=ref, reason="x", files={"a.md": "a"})
        past = await call(client, "resource_history", ref="pdf", limit=1)
        session = past["versions"][0]["session"]
        undone = await call(client, "undo", session=session, reason="not wanted")

    assert session.startswith("process-")
    assert undone["restored"] == ["skill:pdf@3", "skill:csv@3"]
