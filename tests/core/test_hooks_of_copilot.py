"""The hooks of Copilot CLI are commands with names of their own, and act as those of the other
clients do.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
ID = "373b9d0c-b8d1-4ba3-969f-8048c2eaa3e3"
TEXT = (
    "---\nname: write-commit-messages\ndescription: Writes commit messages for staged changes.\n"
    "---\n\n# Write\n"
)


def run(evolvable: CommandLine, event: str, **payload: object) -> str:
    """Run one hook as the client does, with the fields that the real one was seen to send; return
    what it reads.
    """
    code = "from evolvable_server.hooks.command import main; main()"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(evolvable.user),
        "EVOLVABLE_HOME": str(evolvable.home),
    }
    given = json.dumps(
        {"sessionId": ID, "timestamp": 1795832124718, "cwd": str(evolvable.user), **payload}
    )
    command = [sys.executable, "-P", "-c", code, event, "copilot"]
    ran = subprocess.run(
        command, input=given, capture_output=True, text=True, env=environment, timeout=60
    )
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return ran.stdout


@pytest.fixture
def skill(evolvable: CommandLine) -> Path:
    return evolvable.user / ".copilot/skills/write-commit-messages/SKILL.md"


@pytest.fixture
def evolvable(tmp_path: Path) -> CommandLine:
    evolvable = CommandLine(tmp_path)
    skill = evolvable.user / ".copilot/skills/write-commit-messages/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(TEXT, encoding="utf-8")
    evolvable("init", "--yes")
    return evolvable


def test_the_hint_of_a_prompt_stands_where_the_client_reads_it_and_comes_once(
    evolvable: CommandLine,
) -> None:
    prompt = "Write a commit message for my staged changes."
    answer = json.loads(run(evolvable, "userPromptSubmitted", prompt=prompt))
    assert (
        answer.keys() == {"additionalContext"}
        and "skill:write-commit-messages" in answer["additionalContext"]
    )
    assert run(evolvable, "userPromptSubmitted", prompt=prompt) == ""


def test_the_end_of_a_turn_and_of_the_session_are_one_entry_of_the_queue(
    evolvable: CommandLine,
) -> None:
    path = f"/home/ada/.copilot/session-state/{ID}/events.jsonl"
    run(evolvable, "agentStop", transcriptPath=path, stopReason="end_turn", stop_hook_active=False)
    run(evolvable, "sessionEnd", reason="complete")
    (entry,) = (evolvable.home / "reviews/queue").glob("*.json")
    queued = json.loads(entry.read_text("utf-8"))
    assert (queued["client"], queued["session_id"], queued["transcript_path"]) == (
        "copilot",
        ID,
        path,
    )


def test_a_skill_that_the_client_opens_with_its_own_tool_is_noted(
    evolvable: CommandLine, skill: Path
) -> None:
    run(
        evolvable,
        "postToolUse",
        toolName="view",
        toolArgs={"path": str(skill)},
        toolResult={"resultType": "success"},
    )
    row = next(
        line
        for line in evolvable("list").out.splitlines()
        if line.startswith("skill:write-commit-messages")
    )
    assert row.split()[1:3] == ["you", "1"]


@pytest.mark.parametrize("tool", ["create", "edit"])
def test_a_skill_that_the_client_writes_is_a_change_of_the_agent(
    tool: str, evolvable: CommandLine, skill: Path
) -> None:
    skill.write_text(f"{TEXT}Say why.\n", encoding="utf-8")
    run(evolvable, "postToolUse", toolName=tool, toolArgs={"path": str(skill)})
    assert "hook:copilot" in evolvable("log", "--json").out


def test_the_hooks_file_that_is_handed_out_has_only_commands_of_events_that_act() -> None:
    file = json.loads(
        (ROOT / "plugins/agent-plugin/com.github.copilot/hooks/hooks.json").read_text("utf-8")
    )
    assert file["version"] == 1
    for event, (hook,) in file["hooks"].items():
        assert hook["type"] == "command"
        assert hook["bash"] == hook["powershell"] == f"evolvable-hook {event} copilot"
    assert file["hooks"].keys() == {"userPromptSubmitted", "postToolUse", "agentStop", "sessionEnd"}
