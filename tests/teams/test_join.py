"""One command joins a served library: a real provider, a real server, a real client's
configuration.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from environments import environment_with_program
from http_place import HttpServer, http_server
from mcp import Client, StdioServerParameters
from mcp_place import ERAS, Place
from oidc_provider import Browser, Provider, fill_login

from evolvable_store.errors import InvalidArgument, Refused
from evolvable_teams import joining
from evolvable_teams.joining import Membership, ServedLibrary
from evolvable_teams.membership_auth import MembershipAuth
from evolvable_teams.oidc import ProviderMetadata, discover

pytestmark = [pytest.mark.process, pytest.mark.anyio]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[HttpServer]:
    """A library that is served for the readers and writers of the provider."""
    place = Place(tmp_path_factory.mktemp("served"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    place.configure(f"""
[sign_in]
issuer = "{provider.issuer}"
resource = "http://127.0.0.1:{port}/mcp"
[[sign_in.grants]]
value = "writers"
permissions = ["write"]
""")
    with http_server(place, address=f"127.0.0.1:{port}") as running:
        yield running


class Machine:
    """Somebody's own machine, with Claude Code's configuration and none of a library."""

    def __init__(self, root: Path) -> None:
        self.root, self.claude, self.python = root, root / ".claude.json", Path(sys.executable)
        self.claude.write_text('{"mcpServers": {"other": {"command": "other"}}}')
        self.environment = {
            **{name: os.environ[name] for name in ("PATH", "PYTHONPATH")},
            "HOME": str(root),
            "EVOLVABLE_TEST_ACCOUNT": str(root),
            "EVOLVABLE_TEST_TERMINAL": "1",
            "EVOLVABLE_EMBEDDER": "off",
        }
        # The client's own command would be found on PATH; the file is edited without it.
        self.environment["PATH"] = str(Path(sys.executable).parent)

    def start(self, *words: str, terminal: bool = True) -> "subprocess.Popen[str]":
        environment = self.environment | ({} if terminal else {"EVOLVABLE_TEST_TERMINAL": "0"})
        return subprocess.Popen(
            [self.python, "-P", "-m", "evolvable_server", *words],
            env=environment,
            cwd=self.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, answer: str = "", terminal: bool = True) -> tuple[int, str]:
        process = self.start(*words, terminal=terminal)
        out, err = process.communicate(answer, timeout=60)
        return process.returncode, out + err

    def join(self, url: str, login: str, *words: str) -> tuple[int, str]:
        """Join, and sign in by the provider's form in a browser."""
        process = self.start("join", url, "--yes", *words)
        assert process.stdout is not None
        said = ""
        address = ""
        for line in process.stdout:
            said += line
            if line.strip().startswith("http") and "code_challenge" in line:
                address = line.strip()
                break
        if address:
            with Browser() as browser:
                back = fill_login(browser, address, login, until="http://127.0.0.1:0")
                assert (
                    httpx2.get(back.replace("state=", "state=x"), trust_env=False).status_code
                    == 400
                )
                assert httpx2.get(back, trust_env=False).status_code == 200
        out, err = process.communicate(timeout=60)
        return process.returncode, said + out + err

    @property
    def tokens(self) -> Path:
        (found,) = (self.root / ".config/evolvable/joined").glob("*.json")
        return found


@pytest.fixture(scope="module")
def joined(
    tmp_path_factory: pytest.TempPathFactory, served: HttpServer, provider: Provider
) -> Machine:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    provider.account("ada", "writers")
    code, said = machine.join(served.url, "ada")
    assert code == 0, said
    machine.said = said  # type: ignore[attr-defined]
    return machine


def test_join_stores_the_token_privately_connects_the_clients_and_says_how_to_undo_it(
    joined, served, provider
):
    stored = json.loads(joined.tokens.read_text())
    entry = json.loads(joined.claude.read_text())["mcpServers"]
    (name,) = set(entry) - {"other"}

    assert joined.tokens.stat().st_mode & 0o777 == 0o600
    assert joined.tokens.parent.stat().st_mode & 0o777 == 0o700
    assert (stored["resource"], stored["issuer"]) == (served.url, provider.issuer)
    assert entry[name]["args"][-2:] == ["bridge", joined.tokens.stem] and entry["other"] == {
        "command": "other"
    }
    assert stored["token"] not in joined.claude.read_text() and stored["token"] not in joined.said
    assert f"Changed: {joined.tokens}" in joined.said and f"Changed: {joined.claude}" in joined.said
    assert f"To undo: evolvable team join {served.url} --undo" in joined.said
    assert "approve" not in json.dumps(stored)


def test_a_program_that_is_cleared_away_some_day_joins_nothing_and_asks_for_no_login(
    tmp_path, served
):
    machine = Machine(tmp_path)
    before = machine.claude.read_bytes()
    machine.python = environment_with_program(
        tmp_path / "cache/uv/archive-v0/jEvkWQNpe5", tmp_path / "cache/uv"
    )

    code, said = machine.run("join", served.url, "--yes")

    assert code == 1 and f"{machine.python} lies in a cache" in said and "uv tool install ." in said
    assert "Open this address" not in said and machine.claude.read_bytes() == before
    assert not (tmp_path / ".config/evolvable/joined").exists()


@pytest.mark.parametrize("era", ["handshake", pytest.param("modern", marks=pytest.mark.nightly)])
async def test_a_client_works_through_the_bridge_and_the_token_is_renewed_before_it_ends(
    joined, era
):
    before = json.loads(joined.tokens.read_text())
    joined.tokens.write_text(json.dumps({**before, "expires": time.time() + 5}))
    bridge = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "evolvable_server", "bridge", joined.tokens.stem],
        env=joined.environment,
        cwd=joined.root,
    )
    with anyio.fail_after(60):
        async with Client(bridge, mode=ERAS[era]) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            found = await client.call_tool("find_skill", {"task": "merge two PDF forms"})
            refused = await client.call_tool(
                "review_inbox", {"action": "approve", "proposal_id": 1}
            )

    assert {"find_skill", "load_skill"} <= tools
    assert "skill:pdf" in json.dumps(found.structured_content)
    assert refused.is_error and "needs approve" in refused.content[0].text
    after = json.loads(joined.tokens.read_text())
    assert after["token"] != before["token"] and after["expires"] > time.time() + 60
    assert joined.tokens.stat().st_mode & 0o777 == 0o600


@pytest.mark.nightly
def test_undo_deletes_the_token_and_the_entry_and_nothing_else(served, provider, tmp_path):
    machine = Machine(tmp_path)
    provider.account("ada", "writers")
    assert machine.join(served.url, "ada")[0] == 0
    code, said = machine.run("join", served.url, "--undo")

    assert code == 0 and f"Changed: {machine.claude}" in said
    assert json.loads(machine.claude.read_text())["mcpServers"] == {"other": {"command": "other"}}
    assert not list((tmp_path / ".config/evolvable/joined").glob("*.json"))


@pytest.mark.nightly
def test_who_may_not_read_there_is_told_so_and_nothing_stays(served, provider, tmp_path):
    machine = Machine(tmp_path)
    before = machine.claude.read_text()
    provider.account("eve", "strangers")
    code, said = machine.join(served.url, "eve")

    assert code == 1 and "did not answer a first call" in said and "Traceback" not in said
    assert machine.claude.read_text() == before
    assert not list((tmp_path / ".config/evolvable/joined").glob("*.json"))


@pytest.mark.nightly
def test_an_agent_does_not_join_and_a_no_changes_nothing(served, tmp_path):
    machine = Machine(tmp_path)
    agent = machine.run("join", served.url, "--yes", terminal=False)
    no = machine.run("join", served.url, answer="n\n")

    assert agent[0] == 1 and "Only a person signs in" in agent[1]
    assert no[0] == 1 and "You did not sign in" in no[1]
    assert not (tmp_path / ".config/evolvable/joined").exists()


# A hostile server


@contextmanager
def pretending(answers: dict[str, Any]) -> Iterator[str]:
    """Yield the address of a server that answers these paths with these objects; `{me}` is its own
    address.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            me = f"http://127.0.0.1:{http.server_port}"
            text = json.dumps(answers.get(self.path, {})).replace("{me}", me)
            self.send_response(200 if self.path in answers else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()


PATH = "/.well-known/oauth-protected-resource/mcp"

HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "another's resource": (
        {"resource": "https://other.example.org/mcp", "authorization_servers": ["{me}"]},
        "another",
    ),
    "no provider": ({"resource": "{me}/mcp"}, "does not name one provider"),
    "two providers": (
        {"resource": "{me}/mcp", "authorization_servers": ["{me}", "https://x"]},
        "does not name one",
    ),
    "a path": (
        {"resource": "{me}/mcp", "authorization_servers": ["file:///etc/passwd"]},
        "is not a URL",
    ),
    "no encryption": (
        {"resource": "{me}/mcp", "authorization_servers": ["http://evil.example.org"]},
        "not encrypted",
    ),
    "no metadata": (
        {"resource": "{me}/mcp", "authorization_servers": ["{me}"]},
        "publishes no metadata",
    ),
}


@pytest.mark.parametrize(("said", "why"), HOSTILE.values(), ids=HOSTILE.keys())
async def test_what_a_server_says_of_itself_must_fit(said, why):
    with pretending({PATH: said}) as address, pytest.raises((Refused, InvalidArgument), match=why):
        await joining.find_library(address)


async def test_a_server_that_names_anothers_provider_gets_no_token_of_another_server(provider):
    """The provider is real and the person signs in there; the token is for the address that was
    typed alone.
    """
    provider.account("ada", "writers")
    with pretending(
        {PATH: {"resource": "{me}/mcp", "authorization_servers": [provider.issuer]}}
    ) as address:
        found = await joining.find_library(address)
    assert found.name.startswith("127-0-0-1-")
    for resource in ("https://skills.example.org/mcp", f"{address}/mcp2"):
        answer = provider.token("ada", resource)
        with pytest.raises(Refused, match="is not for .* alone"):
            await joining._membership(found, "client", answer)
    kept = await joining._membership(found, "client", provider.token("ada", found.resource))
    assert kept.resource == f"{address}/mcp"


async def test_a_token_that_cannot_be_read_is_not_used(provider):
    provider.account("ada", "writers")
    resource = "http://127.0.0.1:1/opaque/mcp"
    async with joining.new_client() as client:
        found = ServedLibrary(
            resource, provider.issuer, await joining.discover(client, provider.issuer)
        )
    with pytest.raises(Refused, match="not for"):
        await joining._membership(found, "client", provider.token("ada", resource))


@pytest.mark.parametrize(
    "url",
    [
        "http://skills.example.org/mcp",
        "ftp://x/mcp",
        "https://u:p@x/mcp",
        "https://x/mcp?a=1",
        "nonsense",
        "",
    ],
)
def test_an_address_that_is_no_server_is_refused(url):
    with pytest.raises(InvalidArgument):
        joining.normalize_url(url)


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "A", "x" * 51, "a\0"])
def test_a_name_that_leaves_the_folder_is_refused(name):
    with pytest.raises(InvalidArgument, match="is no name"):
        joining.membership_file(name)


async def test_the_token_is_shown_to_no_other_host(joined, monkeypatch):
    monkeypatch.setattr(joining, "memberships", lambda: joined.tokens.parent)
    auth = MembershipAuth(joined.tokens.stem)
    for url in ("http://127.0.0.1:1/mcp", "https://evil.example.org/mcp"):
        request = httpx2.Request("POST", url)
        assert "authorization" not in (await anext(auth.async_auth_flow(request))).headers
    one = httpx2.Request("POST", auth.resource)
    assert (await anext(auth.async_auth_flow(one))).headers["authorization"].startswith("Bearer ")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "resource": 7}', "[" * 4000])
def test_a_broken_file_is_named(tmp_path, monkeypatch, text):
    monkeypatch.setattr(joining, "memberships", lambda: tmp_path)
    (tmp_path / "x.json").write_text(text)
    (tmp_path / "x.json").chmod(0o600)
    with pytest.raises(InvalidArgument, match="is not a membership"):
        joining.load_membership("x")


def test_a_file_that_others_can_write_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(joining, "memberships", lambda: tmp_path)
    path = joining.save_membership("x", Membership("https://x/mcp", "https://y", "c", "t", 0.0))
    path.chmod(0o666)
    with pytest.raises(Refused, match="by other accounts"):
        joining.load_membership("x")


def test_an_endpoint_that_is_null_is_one_that_the_provider_does_not_have() -> None:
    issuer = "https://login.example.org"

    def answer(_: httpx2.Request) -> httpx2.Response:
        endpoints = {"jwks_uri": f"{issuer}/keys", "registration_endpoint": None}
        return httpx2.Response(200, json={"issuer": issuer, **endpoints})

    async def find() -> ProviderMetadata:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
            return await discover(client, issuer)

    metadata = anyio.run(find)
    assert (metadata.keys, metadata.registration) == (f"{issuer}/keys", "")
