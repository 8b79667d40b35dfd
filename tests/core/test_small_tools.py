"""A client that sends every tool with each request gets five in 4.5 KB; one that adds no name gets
a prefix.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_place import Place

from evolvable_server.config import read_config
from evolvable_store.errors import InvalidArgument

pytestmark = [pytest.mark.process, pytest.mark.anyio]

FIVE = ["find_skill", "load_skill", "report_outcome", "update_resource", "review_inbox"]


def served(place: Place, **environment: str) -> Client:
    command = ["-m", "evolvable_server", "serve"]
    env = {**place.environment, **environment}
    return Client(
        stdio_client(StdioServerParameters(command=sys.executable, args=command, env=env))
    )


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return dict(result.structured_content or {})


async def test_the_small_group_is_five_tools_in_four_and_a_half_kilobytes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with served(place, EVOLVABLE_TOOLSETS="small") as client:
        listed = (await client.list_tools()).tools
        text = json.dumps(
            [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in listed]
        )
        new = "---\nname: bread\ndescription: Bakes bread.\n---\n\nBake.\n"
        made = await call(
            client,
            "update_resource",
            ref="bread",
            reason="new",
            files={"SKILL.md": new},
            create=True,
        )
        gone = await client.call_tool("undo", {"operation": made["operation"], "reason": "no"})
        await call(client, "find_skill", task="bake bread", detail=True)  # not listed, and taken

    assert [tool.name for tool in listed] == FIVE and len(text.encode()) <= 4_500
    assert gone.is_error and "There is no tool 'undo'" in gone.content[0].text


async def test_the_small_group_goes_with_another_one(tmp_path: Path) -> None:
    async with served(Place(tmp_path), EVOLVABLE_TOOLSETS="small,rspl") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]

    assert names[:5] == FIVE and len(names) > 5 and "undo" not in names


async def test_a_prefix_stands_before_every_tool_and_a_call_may_leave_it_out(
    tmp_path: Path,
) -> None:
    async with served(Place(tmp_path), EVOLVABLE_TOOL_PREFIX="evolvable_") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        listing = await call(client, "evolvable_list_resources")
        assert listing == await call(client, "list_resources")
        wrong = await client.call_tool("evolvable_list", {})

    assert len(names) == 14 and all(name.startswith("evolvable_") for name in names)
    assert wrong.is_error and "evolvable_list_resources" in wrong.content[0].text


@pytest.mark.parametrize("prefix", ["a b", "1x", "x" * 33, "é_", "x.y"])
async def test_a_prefix_that_no_client_takes_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(InvalidArgument, match="EVOLVABLE_TOOL_PREFIX"):
        read_config({"EVOLVABLE_HOME": str(tmp_path), "EVOLVABLE_TOOL_PREFIX": prefix})


async def test_connect_writes_the_prefix_and_the_group(tmp_path: Path) -> None:
    run = CommandLine(tmp_path)
    run("connect", "cursor", "--prefix", "evolvable_", "--env", "EVOLVABLE_TOOLSETS=small")
    entry = json.loads((run.user / ".cursor/mcp.json").read_text(encoding="utf-8"))["mcpServers"][
        "evolvable"
    ]

    assert (
        entry["env"]["EVOLVABLE_TOOL_PREFIX"] == "evolvable_"
        and entry["env"]["EVOLVABLE_TOOLSETS"] == "small"
    )
    assert "cannot stand before" in run("connect", "cursor", "--prefix", "a b", code=1).err
