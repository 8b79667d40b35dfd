"""Skills over MCP (SEP-2640), as a host uses it: in both eras, against what
resources/read serves.
"""

import base64
import hashlib
from typing import Any

import anyio
import mcp_types as types
import pytest
from click.testing import CliRunner
from mcp.shared.exceptions import MCPError
from processes import poll
from pydantic import TypeAdapter

from evolvable_server.cli.command_line import cli

pytestmark = [pytest.mark.process, pytest.mark.anyio]

ID = "io.modelcontextprotocol/skills"

ANYTHING: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


async def ask(client, method, **params):
    """The raw result of a method of the extension."""
    question = types.Request[Any, Any](method=method, params=params)
    return await client.session.send_request(question, ANYTHING)


async def refusal(client, method, **params):
    with pytest.raises(MCPError) as caught:
        await ask(client, method, **params)
    return caught.value.error.code


async def read(client, uri):
    (content,) = (await client.read_resource(uri)).contents
    return (
        content.text.encode()
        if isinstance(content, types.TextResourceContents)
        else base64.b64decode(content.blob)
    )


def evolvable(place, *arguments):
    """A person at a terminal, while the server runs."""
    with pytest.MonkeyPatch.context() as terminal, pytest.raises(SystemExit) as ended:
        terminal.setenv("EVOLVABLE_TEST_TERMINAL", "1")
        cli.main([*arguments, "--home", str(place.home)])
    assert ended.value.code == 0


async def test_every_entry_promises_what_reading_gives(place, era):
    place.save("pdf", "A reference.\r\n", "references/forms guide.md")
    (place.skills / "pdf/logo.bin").write_bytes(b"\xff\x00\n")
    evolvable(place, "sync")
    evolvable(place, "publish")
    async with place.client(era) as client:
        listed = await ask(client, "skills/list")
        resources = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert [skill["uri"] for skill in listed["skills"]] == [
            "skill://csv/SKILL.md",
            "skill://pdf/SKILL.md",
        ]
        assert {skill["uri"] for skill in listed["skills"]} <= set(resources)
        for skill in listed["skills"]:
            assert (await ask(client, "skills/get", uri=skill["uri"]))["skill"] == skill
            for file in skill["resources"]:
                data = await read(client, file["uri"])
                assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (
                    file["digest"],
                    file["size"],
                )

    pdf = listed["skills"][1]
    assert pdf["frontmatter"] == {"name": "pdf", "description": "Merge, split and fill PDF forms."}
    assert [file["uri"].removeprefix("skill://pdf/") for file in pdf["resources"]] == [
        *("SKILL.md", "logo.bin", "references/forms%20guide.md")
    ]


async def test_the_capability_is_declared_where_the_protocol_has_one(place):
    async with place.client("modern") as client:
        declared = client.server_capabilities.extensions
        assert declared[ID] == {"directoryRead": True}
        assert set(declared) == {ID}
        listed = await ask(client, "skills/list")
    assert (listed["ttlMs"], listed["cacheScope"], listed["resultType"]) == (
        0,
        "private",
        "complete",
    )


async def test_hosts_see_a_change_when_it_is_published_and_tools_at_once(place, era):
    async with place.client(era) as client:
        before = await ask(client, "skills/get", uri="skill://pdf/SKILL.md")
        edit = [{"path": "SKILL.md", "old": "two", "new": "second"}]
        await client.call_tool(
            "update_resource", {"ref": "pdf", "reason": "clearer", "edits": edit}
        )
        assert await ask(client, "skills/get", uri="skill://pdf/SKILL.md") == before
        assert b"two" in await read(client, "skill://pdf/SKILL.md")
        assert "second" in (await client.call_tool("load_skill", {"ref": "pdf"})).content[0].text

        evolvable(place, "publish", "-m", "weekly")
        after = await ask(client, "skills/get", uri="skill://pdf/SKILL.md")
        assert after != before
        assert b"second" in await read(client, "skill://pdf/SKILL.md")

        old = await ask(client, "skills/get", uri="skill://version.1/pdf/SKILL.md")
        assert old["skill"]["resources"][0]["digest"] == before["skill"]["resources"][0]["digest"]
        assert old["skill"]["uri"] == "skill://version.1/pdf/SKILL.md"
        assert b"two" in await read(client, "skill://version.1/pdf/SKILL.md")


async def test_a_skill_that_waits_is_served_only_by_its_version(place, era):
    evolvable(place, "channel", "policy", "manual")
    text = "---\nname: tides\ndescription: Predict tides.\n---\n\nAsk for the harbour.\n"
    async with place.client(era) as client:
        call = {"ref": "tides", "reason": "asked for", "files": {"SKILL.md": text}, "create": True}
        await client.call_tool("update_resource", call)
        assert (
            await refusal(client, "skills/get", uri="skill://tides/SKILL.md")
            == types.INVALID_PARAMS
        )
        assert (await ask(client, "skills/get", uri="skill://version.1/tides/SKILL.md"))["skill"][
            "resources"
        ]
        assert len((await ask(client, "skills/list"))["skills"]) == 2


async def test_directories_are_read_level_by_level(place, era):
    place.save("pdf", "A reference.\n", "references/deep/forms guide.md")
    evolvable(place, "sync")
    evolvable(place, "publish")
    async with place.client(era) as client:
        root = await ask(client, "resources/directory/read", uri="skill://pdf")
        below = await ask(client, "resources/directory/read", uri="skill://pdf/references/deep")
    told = [(child["uri"], child["name"], child["mimeType"]) for child in root["resources"]]
    assert told == [
        ("skill://pdf/SKILL.md", "SKILL.md", "text/markdown"),
        ("skill://pdf/references", "references", "inode/directory"),
    ]
    assert below["resources"][0]["uri"] == "skill://pdf/references/deep/forms%20guide.md"


NOT_THERE = [
    ("skills/get", {"uri": "skill://nope/SKILL.md"}),
    ("skills/get", {"uri": "skill://pdf/other.md"}),
    ("skills/get", {"uri": "skill://pdf"}),
    ("skills/get", {"uri": "skill://version.9/pdf/SKILL.md"}),
    ("skills/get", {"uri": "skill://version.x/pdf/SKILL.md"}),
    ("skills/get", {"uri": "file:///etc/passwd"}),
    ("skills/get", {}),
    ("skills/list", {"cursor": "x' UNION SELECT 1--"}),
    ("resources/directory/read", {"uri": "skill://pdf/SKILL.md"}),
    ("resources/directory/read", {"uri": "skill://pdf/"}),
    ("resources/directory/read", {"uri": "skill://nope"}),
    ("resources/directory/read", {"uri": "skill://pdf/../csv"}),
]


async def test_what_is_not_there_is_invalid_params(place):
    async with place.client("modern") as client:
        for method, params in NOT_THERE:
            assert await refusal(client, method, **params) == types.INVALID_PARAMS, (method, params)


async def test_pages_follow_each_other_and_name_every_skill_once(place):
    for number in range(130):
        place.save(
            f"skill-{number:03}",
            f"---\nname: skill-{number:03}\ndescription: Does {number}.\n---\n\nx\n",
        )
    evolvable(place, "sync")
    async with place.client("modern") as client:
        first = await ask(client, "skills/list")
        second = await ask(client, "skills/list", cursor=first["nextCursor"])
    names = [skill["frontmatter"]["name"] for skill in first["skills"] + second["skills"]]
    assert len(first["skills"]) == 100 and "nextCursor" not in second
    assert names == sorted(set(names)) and len(names) == 132


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_hosts_are_told_when_the_channel_moves(place):
    told: list[str] = []

    async def on_message(message):
        told.append(getattr(message, "method", type(message).__name__))

    async with place.client("handshake", message_handler=on_message) as client:
        await client.list_tools()
        await client.session.subscribe_resource("skill://pdf/SKILL.md")
        edit = [{"path": "SKILL.md", "old": "two", "new": "second"}]
        await client.call_tool(
            "update_resource", {"ref": "pdf", "reason": "clearer", "edits": edit}
        )
        assert told == []
        evolvable(place, "publish")
        with anyio.fail_after(10):
            while not {
                "notifications/resources/list_changed",
                "notifications/resources/updated",
            } <= set(told):
                await anyio.sleep(0.02)


def shown(place):
    """What `evolvable show pdf` writes."""
    with pytest.MonkeyPatch.context() as terminal:
        terminal.setenv("EVOLVABLE_TEST_TERMINAL", "1")
        return CliRunner().invoke(cli, ["show", "pdf", "--home", str(place.home)]).output


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("skills/list", {}),
        ("skills/get", {"uri": "skill://pdf/SKILL.md"}),
        ("resources/directory/read", {"uri": "skill://pdf"}),
        ("resources/read", {"uri": "skill://pdf/SKILL.md"}),
    ],
)
async def test_show_says_what_hosts_see_once_a_host_was_served_from_the_channel(
    place, era, method, params
):
    edit = [{"path": "SKILL.md", "old": "two", "new": "second"}]
    async with place.client(era) as client:
        await client.call_tool(
            "update_resource", {"ref": "pdf", "reason": "clearer", "edits": edit}
        )
        await client.list_resources()
        await read(client, "skill://version.2/pdf/SKILL.md")
        assert "hosts see" not in shown(place)
        await ask(client, method, **params)
        await anyio.to_thread.run_sync(
            poll, lambda: "hosts see  version 1" in shown(place), "what hosts see"
        )
