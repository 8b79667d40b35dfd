"""The hooks of Qwen Code and Droid are commands, and act as those of the other clients do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from evolvable_server.environment import drop_client_keys

pytestmark = pytest.mark.process

TEXT = (
    "---\nname: write-commit-messages\ndescription: Writes commit messages for staged changes.\n"
    "---\n\n# Write\n"
)
PROMPT = "Write a commit message for my staged changes."


def run(evolvable: CommandLine, client: str, event: str, **payload: object) -> str:
    """Run one hook as a client does, and return what the client reads."""
    code = "from evolvable_server.hooks.command import main; main()"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(evolvable.user),
        "EVOLVABLE_HOME": str(evolvable.home),
    }
    given = json.dumps(
        {"session_id": "s1", "cwd": str(evolvable.user), "hook_event_name": event, **payload}
    )
    command = [sys.executable, "-P", "-c", code, event, client]
    ran = subprocess.run(
        command, input=given, capture_output=True, text=True, env=environment, timeout=60
    )
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return ran.stdout


@pytest.fixture
def evolvable(tmp_path: Path) -> CommandLine:
    evolvable = CommandLine(tmp_path)
    skill = evolvable.user / ".qwen/skills/write-commit-messages/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(TEXT, encoding="utf-8")
    evolvable("init", "--yes")
    return evolvable


def test_init_finds_the_skills_of_both_clients(evolvable: CommandLine) -> None:
    other = evolvable.user / ".factory/skills/fold-maps/SKILL.md"
    other.parent.mkdir(parents=True)
    other.write_text(TEXT.replace("write-commit-messages", "fold-maps"), encoding="utf-8")
    evolvable("init", "--yes")
    listed = evolvable("list", "--json").out
    assert "skill:write-commit-messages" in listed and "skill:fold-maps" in listed


def test_a_prompt_that_is_reported_with_each_request_is_answered_once(
    evolvable: CommandLine,
) -> None:
    event = {"prompt": PROMPT, "prompt_id": "s1########0"}
    first = json.loads(run(evolvable, "qwen", "UserPromptSubmit", **event))
    assert "skill:write-commit-messages" in first["hookSpecificOutput"]["additionalContext"]
    assert [run(evolvable, "qwen", "UserPromptSubmit", **event) for _ in range(2)] == ["", ""]
    searches = evolvable.home / "hooks/offered"
    assert [path.read_text("utf-8") for path in searches.rglob("prompt")] == ["s1########0"]


@pytest.mark.parametrize("client", ["qwen", "droid"])
def test_the_end_of_a_turn_comes_into_the_queue_under_the_clients_name(
    client: str, evolvable: CommandLine
) -> None:
    run(evolvable, client, "Stop", transcript_path="/home/ada/x.jsonl")
    queued = json.loads((evolvable.home / "reviews/queue/s1.json").read_text("utf-8"))
    assert queued["client"] == client and queued["transcript_path"] == "/home/ada/x.jsonl"


@pytest.mark.parametrize("client", ["qwen", "droid"])
def test_a_skill_that_the_client_opens_with_its_own_tool_is_noted(
    client: str, evolvable: CommandLine
) -> None:
    path = str(evolvable.user / ".qwen/skills/write-commit-messages/SKILL.md")
    tool = {"qwen": "read_file", "droid": "Read"}[client]
    run(evolvable, client, "PostToolUse", tool_name=tool, tool_input={"file_path": path})
    row = next(
        line
        for line in evolvable("list").out.splitlines()
        if line.startswith("skill:write-commit-messages")
    )
    assert row.split()[1:3] == ["you", "1"]


@pytest.mark.parametrize("client", ["qwen", "droid"])
def test_a_skill_that_the_client_writes_is_a_change_of_the_agent(
    client: str, evolvable: CommandLine
) -> None:
    path = evolvable.user / ".qwen/skills/write-commit-messages/SKILL.md"
    path.write_text(f"{TEXT}Say why.\n", encoding="utf-8")
    tool = {"qwen": "write_file", "droid": "Create"}[client]
    run(evolvable, client, "PostToolUse", tool_name=tool, tool_input={"file_path": str(path)})
    assert f"hook:{client}" in evolvable("log", "--json").out


def test_the_keys_that_the_clients_hand_over_are_dropped_but_for_those_that_the_person_named() -> (
    None
):
    given = {
        "FACTORY_API_KEY": "a",
        "OPENAI_API_KEY": "b",
        "QWEN_CODE_SESSION_ID": "s",
        "PATH": "/bin",
    }
    left = dict(given)
    drop_client_keys(left, ())
    assert left == {"QWEN_CODE_SESSION_ID": "s", "PATH": "/bin"}
    named = dict(given)
    drop_client_keys(named, {"OPENAI_API_KEY": "b"})
    assert named.keys() == given.keys() - {"FACTORY_API_KEY"}
    elsewhere = {"OPENAI_API_KEY": "b"}
    drop_client_keys(elsewhere, ())
    assert elsewhere == {"OPENAI_API_KEY": "b"}
