"""What the server warns of reaches the client, and not only a stderr that nobody reads."""

import anyio
import pytest
from mcp_place import Place, skill_text

pytestmark = [pytest.mark.process, pytest.mark.anyio]

NO_NAME = "!!!"
"""A folder that no skill can be named after."""


async def test_a_client_of_the_handshake_era_is_told_of_a_skill_that_was_refused(place: Place):
    said = []

    async def keep(params):
        said.append(params)

    async with place.client("handshake", logging_callback=keep) as client:
        await client.list_tools()
        place.save(NO_NAME, skill_text("x"))
        while not said:
            await anyio.sleep(0.02)

    assert said[0].level == "warning"
    assert NO_NAME in said[0].data


async def test_a_client_hears_nothing_below_the_level_it_asked_for(place: Place):
    said = []

    async def keep(params):
        said.append(params)

    async with place.client("handshake", logging_callback=keep) as client:
        with pytest.warns(match="deprecated"):
            await client.set_logging_level("error")
        place.save(NO_NAME, skill_text("x"))
        place.save("sound", skill_text("sound"))
        while "sound" not in str((await client.call_tool("list_resources", {})).structured_content):
            await anyio.sleep(0.02)

    assert said == []
