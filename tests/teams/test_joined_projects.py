"""Projects of a library that is served over HTTP: the person says once which project a
folder is.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from command_line import CommandLine
from http_place import HttpServer, http_server, made_token
from mcp import Client, StdioServerParameters
from mcp_place import Place

from evolvable_server.grants import Permission
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_teams import joining

pytestmark = [pytest.mark.process, pytest.mark.anyio]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[HttpServer]:
    """A served library with a skill of the project shop, and one of the project tools."""
    (tmp_path / "served").mkdir()
    place = Place(tmp_path / "served")
    with (
        Store.open(place.home, create=True) as store,
        store.transaction(Actor.HUMAN, "two projects") as tx,
    ):
        for ref in ("skill:shop/deploy", "skill:tools/lint"):
            text = (
                f"---\nname: {ref.partition('/')[2]}\ndescription: Works.\n---\n\nStep of {ref}.\n"
            )
            tx.put(Ref.parse(ref), {"SKILL.md": File(text.encode())})
    secret = made_token(place, "ada", Permission.READ, Permission.REPORT)
    with http_server(place, secret=secret) as running:
        yield running


class Joined:
    """A machine that joined the library, as `join` leaves it after a sign-in."""

    def __init__(self, root: Path, served: HttpServer) -> None:
        root.mkdir()
        self.run, self.name = CommandLine(root), joining.membership_name(served.url)
        folder = self.run.user / ".config/evolvable/joined"
        folder.mkdir(parents=True, mode=0o700)
        kept = {
            "version": 1,
            "resource": served.url,
            "issuer": "https://idp.example",
            "client": "x",
        }
        kept |= {"token": served.secret, "expires": time.time() + 3600, "refresh": ""}
        with open(
            folder / f"{self.name}.json",
            "x",
            opener=lambda path, flags: os.open(path, flags, 0o600),
        ) as file:
            json.dump(kept, file)

    async def loaded(self, folder: Path, ref: str) -> bool:
        """Return whether a client that works in a folder opens a skill through the bridge."""
        command = ["-P", "-m", "evolvable_server", "bridge", self.name]
        bridge = StdioServerParameters(
            command=sys.executable, args=command, env=self.run.environment, cwd=folder
        )
        with anyio.fail_after(60):
            async with Client(bridge) as client:
                return not (await client.call_tool("load_skill", {"ref": ref})).is_error


async def test_a_client_reads_the_projects_that_the_person_named(
    served: HttpServer, tmp_path: Path
) -> None:
    joined = Joined(tmp_path / "machine", served)
    mono = joined.run.user / "work/mono"
    (mono / "web/.claude/skills").mkdir(parents=True)
    (mono / ".claude/skills").mkdir(parents=True)
    (mono / ".git").mkdir()
    assert not await joined.loaded(mono / "web", "deploy")
    for place, project in ((mono / "web", "shop"), (mono, "tools")):
        ran = joined.run("join", served.url, "--project", project, CLAUDE_PROJECT_DIR=str(place))
        assert f"{place} is the project {project} of {served.url}" in ran.out
    assert await joined.loaded(mono / "web", "deploy") and await joined.loaded(mono / "web", "lint")
    assert await joined.loaded(mono, "lint") and not await joined.loaded(mono, "deploy")
    assert not await joined.loaded(joined.run.user, "lint")


def test_a_library_that_was_not_joined_has_no_projects(served: HttpServer, tmp_path: Path) -> None:
    machine = CommandLine(tmp_path)
    assert "No library was joined" in machine("join", served.url, "--project", "shop", code=1).err


@pytest.mark.parametrize(
    "text", ["../shop", "shop tools", "SHOP", "," * 4_000, "x" * 4_000, "\u00e9"]
)
def test_a_header_that_names_no_project_changes_nothing(served: HttpServer, text: str) -> None:
    assert loaded_with(served, "shop") and not loaded_with(served, text)


def loaded_with(served: HttpServer, projects: str) -> bool:
    """Return whether a request with this header opens the skill of the project shop."""
    asked = {"name": "load_skill", "arguments": {"ref": "deploy"}}
    answer = served.call("tools/call", asked, {"Evolvable-Projects": projects})
    return answer.status == 200 and b"Step of skill:shop/deploy." in answer.body
