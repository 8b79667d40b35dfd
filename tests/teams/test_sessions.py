"""Which session a call belongs to, in each way that a client may say it."""

import os

import pytest
from http_place import http_server
from mcp import Client

from evolvable_server.mcp.call import CALLS, CallSessions

pytestmark = pytest.mark.anyio

CODEX = {"x-codex-turn-metadata": {"session_id": "codex-1", "turn_id": "t"}, "threadId": "thread-1"}


async def change(client, ref="pdf", **options):
    """Changes a resource and returns the session that its operation remembers."""
    arguments = {"ref": ref, "reason": "x", "files": {f"{os.urandom(8).hex()}.md": f"{options}"}}
    assert not (await client.call_tool("update_resource", arguments, **options)).is_error
    history = await client.call_tool("resource_history", {"ref": ref, "limit": 1})
    return history.structured_content["versions"][0]["session"]


@pytest.mark.parametrize(
    ("meta", "session"),
    [
        (None, "usual"),
        ({}, "usual"),
        (CODEX, "codex-1"),
        ({"threadId": "thread-1"}, "thread-1"),
        ({"assemblySessionId": "droid-1", "caller": "AGENT"}, "droid-1"),
        ({"assemblySessionId": 7}, "usual"),
        ({"x-codex-turn-metadata": "odd", "threadId": 5}, "usual"),
        ({"x-codex-turn-metadata": {"session_id": "x" * 201}}, "usual"),
        ({"claudecode/toolUseId": "toolu_1"}, "usual"),
        ({"claudecode/toolUseId": ["odd"]}, "usual"),
    ],
)
def test_what_a_call_says_counts_before_what_is_usual(meta, session):
    assert CallSessions("usual").of(meta) == session


def test_a_hook_before_a_tool_says_whose_call_comes():
    sessions = CallSessions(None, shared=True)
    for number in range(CALLS + 1):
        sessions.note_session(f"claude-{number}", f"toolu_{number}")

    assert sessions.of({"claudecode/toolUseId": f"toolu_{CALLS}"}) == f"claude-{CALLS}"
    assert sessions.of({"claudecode/toolUseId": "toolu_0"}) is None
    assert sessions.of({}) is None


@pytest.mark.process
async def test_a_person_who_begins_another_session_keeps_the_server_and_not_the_session(
    place, monkeypatch
):
    """Claude Code starts a server once and names its session in the environment; hooks tell of the
    next one.
    """
    monkeypatch.setattr(
        type(place), "environment", {**place.environment, "CLAUDE_CODE_SESSION_ID": "claude-1"}
    )
    async with place.client("modern") as client:
        first = await change(client)
        await client.call_tool(
            "hook_event",
            {"hook_event_name": "UserPromptSubmit", "session_id": "claude-2", "prompt": "hello"},
        )
        second = await change(client, "csv")
        like_a_token = await change(client, "csv", meta={"threadId": "token:alice"})

    assert (first, second) == ("claude-1", "claude-2")
    assert like_a_token == "client:token:alice"  # nobody who showed a token is called so


@pytest.mark.process
async def test_over_http_each_call_has_its_own_session(place):
    """Claude Code names only the call; a hook before it says whose it is.

    The server's own environment is nobody's.
    """
    with http_server(place, environment={"CLAUDE_CODE_SESSION_ID": "the-server's"}) as server:
        one, other, old = (Client(server.url, mode=mode) for mode in ("auto", "auto", "legacy"))
        async with one, other, old:
            announced = {
                "hook_event_name": "PreToolUse",
                "session_id": "claude-1",
                "tool_use_id": "toolu_1",
            }
            await one.call_tool("hook_event", announced)
            sessions = [
                await change(other, meta=CODEX),
                await change(one, "csv", meta={"claudecode/toolUseId": "toolu_1"}),
            ]
            await other.call_tool(
                "restore_resource", {"ref": "pdf", "version": 1, "reason": "back"}
            )
            history = await other.call_tool("resource_history", {"ref": "pdf", "limit": 1})
            await old.call_tool("restore_resource", {"ref": "csv", "version": 1, "reason": "back"})
            past = await old.call_tool("resource_history", {"ref": "csv", "limit": 1})

    assert sessions == ["codex-1", "claude-1"]
    assert history.structured_content["versions"][0].get("session") is None
    assert past.structured_content["versions"][0]["session"].startswith("http-")
