"""Who comes in over HTTP and what each may do: tokens, permissions, names in the
history, revoking.
"""

import time

import pytest
from answers import best_of
from http_place import Answer, http_server, made_token, modern, received
from mcp import Client
from mcp_place import ERAS, Place, skill_text
from mcp_types import TextContent
from processes import poll

from evolvable_server.grants import Permission
from evolvable_store.errors import InvalidArgument
from evolvable_store.store import Store
from evolvable_teams.http.http_access import accepted_hosts, accepted_origins, required_permissions
from evolvable_teams.http.http_auth import HttpSettings, OAuth
from evolvable_teams.tokens import FILE, Tokens
from evolvable_tools.verbs.registry import TOOLS

READ, REPORT, WRITE, APPROVE = Permission


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """A server with a token of each sort, made by a person beside it."""
    place = Place(tmp_path_factory.mktemp("team"))
    secrets = {
        "reader": made_token(place, "reader"),
        "writer": made_token(place, "writer", WRITE),
        "approver": made_token(place, "approver", APPROVE),
    }
    with http_server(place, secret=secrets["writer"]) as server:
        yield place, server, secrets


def update(name: str) -> dict:
    return {"ref": name, "reason": "x", "create": True, "files": {"SKILL.md": skill_text(name)}}


@pytest.mark.process
@pytest.mark.parametrize("who", ["reader", "approver"])
def test_a_token_without_write_reads_and_changes_nothing(team, who):
    place, server, secrets = team
    loaded = server.tool("load_skill", {"ref": "pdf"}, secrets[who]).json["result"]
    reported = server.tool(
        "report_outcome", {"ref": "pdf", "outcome": "succeeded"}, secrets[who]
    ).json["result"]
    refused = server.tool("update_resource", update(f"by-{who}"), secrets[who]).json["result"]

    assert not loaded["isError"] and reported["isError"]
    assert "needs report" in reported["content"][0]["text"]
    assert refused["isError"]
    assert f"The token {who} may read" in refused["content"][0]["text"]
    assert "needs write" in refused["content"][0]["text"]
    with Store.open(place.home) as store:
        assert f"by-{who}" not in {head.ref.name for head in store.heads()}


@pytest.mark.process
@pytest.mark.anyio
@pytest.mark.parametrize("era", list(ERAS))
async def test_the_refusal_reaches_a_client_of_either_era(team, era):
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    _, server, secrets = team
    headers = {"Authorization": f"Bearer {secrets['reader']}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(server.url, http_client=http), mode=ERAS[era]) as client,
    ):
        refused = await client.call_tool("remove_resource", {"ref": "pdf", "reason": "x"})
        found = await client.call_tool("find_skill", {"task": "fill a PDF form"})

    assert refused.is_error and isinstance(refused.content[0], TextContent)
    assert "needs write" in refused.content[0].text
    assert best_of(found.structured_content) == "skill:pdf"


@pytest.mark.process
def test_an_operation_says_whose_token_made_it(team):
    place, server, _ = team
    made = server.tool("update_resource", update("named")).json["result"]["structuredContent"]

    with Store.open(place.home) as store:
        assert store.operation(made["operation"]).session == "token:writer"


@pytest.mark.process
def test_a_client_cannot_speak_in_the_session_of_another(team):
    place, server, _ = team
    frame, headers = modern(
        "tools/call", {"name": "update_resource", "arguments": update("spoken")}
    )
    frame["params"]["_meta"]["x-codex-turn-metadata"] = {"session_id": "reader"}
    made = server.post(frame, headers).json["result"]["structuredContent"]

    with Store.open(place.home) as store:
        assert store.operation(made["operation"]).session == "token:writer/reader"


@pytest.mark.process
def test_a_revoked_token_is_refused_at_once_and_its_stream_ends(team):
    place, server, _ = team
    secret = made_token(place, "leaver")
    frame, headers = modern(
        "subscriptions/listen", {"notifications": {"resourcesListChanged": True}}
    )
    headers |= {"Authorization": f"Bearer {secret}", "Connection": "keep-alive"}
    with server.connect(server.request(frame, headers)) as listening:
        assert listening.recv(65536).startswith(b"HTTP/1.1 200")
        Tokens(place.home).revoke("leaver")

        refused = server.tool("list_resources", {}, secret)
        began = time.monotonic()
        received(listening)  # until the server closes it, or leaves it to another request

    assert refused.status == 401
    assert refused.headers["www-authenticate"].startswith('Bearer error="invalid_token"')
    assert time.monotonic() - began < 10


@pytest.mark.process
def test_a_broken_file_of_tokens_lets_nobody_in(team):
    place, server, _ = team
    path = place.home / FILE
    before = path.read_bytes()
    try:
        path.write_bytes(before[: len(before) // 2])
        assert server.tool("list_resources", {}).status == 401
    finally:
        path.write_bytes(before)
    assert server.tool("list_resources", {}).status == 200


@pytest.mark.process
def test_every_tool_that_is_served_has_its_permission(team):
    """A tool that is named nowhere needs all permissions: it has to be decided about."""
    _, server, _ = team
    served = {tool["name"] for tool in server.call("tools/list", {}).json["result"]["tools"]}

    assert served <= TOOLS.keys()
    assert required_permissions("brand_new_tool", {}) == frozenset(Permission)
    assert required_permissions("review_inbox", {"action": "approve"}) == {APPROVE}
    assert required_permissions("review_inbox", {"action": "list"}) == {READ}


@pytest.mark.process
def test_one_bearer_cannot_take_all_the_streams(team):
    place, server, secrets = team
    frame, headers = modern(
        "subscriptions/listen", {"notifications": {"resourcesListChanged": True}}
    )
    headers |= {"Authorization": f"Bearer {secrets['reader']}", "Connection": "keep-alive"}
    streams = []
    try:
        for _ in range(65):
            streams.append(server.connect(server.request(frame, headers)))
        answers = [stream.recv(65536) for stream in streams]
        assert sum(answer.startswith(b"HTTP/1.1 429") for answer in answers) == 1
        assert b"retry-after: 5" in next(answer for answer in answers if b" 429 " in answer)
        assert server.tool("list_resources", {}, secrets["reader"]).status == 200
    finally:
        for stream in streams:
            stream.close()


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A server that asks nobody for a token."""
    place = Place(tmp_path_factory.mktemp("open"))
    with http_server(place, tools=True) as server:
        yield place, server


def text_of(answer: Answer) -> str:
    return answer.json["result"]["content"][0]["text"]


def queued(place: Place) -> list[str]:
    return sorted(path.name for path in place.home.glob("reviews/queue/*"))


@pytest.mark.process
def test_a_transcript_of_this_machines_clients_may_be_named_and_no_other_file(opened):
    place, server = opened
    kept = place.root / ".claude/projects/p/s.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text("what was said")
    (place.root / "secret.jsonl").write_text("a secret")
    (kept.parent / "link.jsonl").symlink_to(place.root / "secret.jsonl")
    (kept.parent / "notes.txt").write_text("a secret")
    others = [
        "/etc/passwd",
        "secret.jsonl",
        str(kept.parent / "../../../secret.jsonl"),
        ["x"],
        "a\0b",
    ]
    others += [str(kept.parent / name) for name in ("link.jsonl", "notes.txt")]

    assert text_of(server.tool("review", {"transcript_path": str(kept)})) == "what was said"
    for other in others:
        refused = server.tool("review", {"transcript_path": other})
        assert refused.json["result"]["isError"] and "transcript_path is refused" in text_of(
            refused
        )
    for number, path in enumerate([str(kept), *others]):
        event = {"hook_event_name": "Stop", "session_id": f"s{number}", "transcript_path": path}
        assert text_of(server.tool("hook_event", event)) == "{}"
    assert queued(place) == ["s0.json"]


@pytest.mark.process
def test_a_bearer_names_no_file_and_a_hook_still_answers(team):
    place, server, _ = team
    kept = place.root / ".claude/projects/p/s.jsonl"
    event = {"session_id": "s1", "transcript_path": str(kept)}
    prompt = {
        **event,
        "hook_event_name": "UserPromptSubmit",
        "prompt": "Please fill in this PDF form",
    }

    assert "skill:pdf" in text_of(server.tool("hook_event", prompt))
    assert text_of(server.tool("hook_event", {**event, "hook_event_name": "Stop"})) == "{}"
    assert "is refused" in text_of(
        server.tool("load_skill", {"ref": "pdf", "transcript_path": str(kept)})
    )
    assert queued(place) == []


@pytest.mark.process
def test_who_is_no_trusted_proxy_is_taken_for_itself(opened):
    _, server = opened
    frame, headers = modern("tools/call", {"name": "seen", "arguments": {}})
    forwarded = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}

    assert (
        text_of(server.post(frame, headers | forwarded))
        == f"http 127.0.0.1 127.0.0.1:{server.port}"
    )


@pytest.mark.process
def test_a_server_of_this_machine_asks_for_a_token_once_one_is_made(tmp_path):
    place = Place(tmp_path)
    with http_server(place) as server:
        assert server.tool("list_resources", {}).status == 200
        secret = made_token(place, "first")
        assert server.tool("list_resources", {}).status == 401
        assert server.tool("list_resources", {}, secret).status == 200
        poll(lambda: Tokens(place.home).all()[0].last_used, "the use to be noted")
        Tokens(place.home).revoke("first")
        # The last one is gone, and the door stays shut.
        assert server.tool("list_resources", {}).status == 401


@pytest.mark.process
def test_beyond_this_machine_only_the_hosts_that_are_named_are_answered(tmp_path):
    place = Place(tmp_path)
    secret = made_token(place, "proxy")
    options = (
        "--allowed-host",
        "Skills.Example.org",
        "--allowed-origin",
        "https://skills.example.org:443",
    )
    with http_server(place, *options, secret=secret, address="0.0.0.0:0") as server:
        statuses = {
            host: server.post(b"", {"Host": host}).status
            for host in (
                "skills.example.org",
                "skills.example.org:443",
                "0.0.0.0:1",
                f"0.0.0.0:{server.port}",
            )
        }
        frame, headers = modern("tools/list", {})
        named = server.post(
            frame, headers | {"Host": "skills.example.org", "Origin": "https://skills.example.org"}
        )
        assert server.tool("list_resources", {}, "evo_x").status == 401

    assert named.status == 200
    assert statuses == {
        "skills.example.org": 400,
        "skills.example.org:443": 421,
        "0.0.0.0:1": 421,
    } | {f"0.0.0.0:{server.port}": 421}


@pytest.mark.parametrize(
    "host", ["a b", "https://example.org", "*", "example.org:*", "", "a/b", "a@b"]
)
def test_a_host_that_no_client_would_send_is_no_setting(host):
    with pytest.raises(InvalidArgument):
        accepted_hosts(HttpSettings(hosts=(host,)), 8642)


@pytest.mark.parametrize(
    "origin", ["example.org", "https://example.org/path", "null", "*", "https://*.example.org"]
)
def test_an_origin_that_no_browser_would_send_is_no_setting(origin):
    with pytest.raises(InvalidArgument):
        accepted_origins(HttpSettings(origins=(origin,)), 8642)


@pytest.mark.parametrize(
    "url",
    ["login", "http://login.example.org", "https://", "ftp://x", "https://a:b", "https://a#b"],
)
def test_an_authorization_server_has_a_url_that_nobody_on_the_way_can_answer_for(url):
    with pytest.raises(InvalidArgument):
        OAuth(url, "https://example.org/mcp")
