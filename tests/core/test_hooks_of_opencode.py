"""OpenCode's plugin runs the hook command: a hint, a queued session, and the session that a call
belongs to.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from evolvable_server.hooks import named_session
from evolvable_server.hooks.named_sessions import MAX_NAMED, name_session
from evolvable_server.mcp.call import CallSessions

TEXT = (
    "---\nname: write-commit-messages\ndescription: Writes commit messages for staged changes.\n"
    "---\n\n# Write\n"
)
ID = "ses_de0102349ffefBzYU3H1ZYquIh"


def run(evolvable: CommandLine, event: str, **payload: object) -> str:
    """Run one hook as the plugin does, and return what the plugin reads."""
    code = "from evolvable_server.hooks.command import main; main()"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(evolvable.user),
        "EVOLVABLE_HOME": str(evolvable.home),
    }
    given = json.dumps({"session_id": ID, "cwd": str(evolvable.user), **payload})
    command = [sys.executable, "-P", "-c", code, event, "opencode"]
    ran = subprocess.run(
        command, input=given, capture_output=True, text=True, env=environment, timeout=60
    )
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return ran.stdout


@pytest.mark.process
def test_a_session_of_opencode_gets_its_hint_its_note_and_its_place_in_the_queue(
    tmp_path: Path,
) -> None:
    evolvable = CommandLine(tmp_path)
    skill = evolvable.user / ".config/opencode/skills/write-commit-messages/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(TEXT, encoding="utf-8")
    evolvable("init", "--yes")
    hint = json.loads(
        run(evolvable, "UserPromptSubmit", prompt="Write a commit message for my staged changes.")
    )
    assert "skill:write-commit-messages" in hint["hookSpecificOutput"]["additionalContext"]
    (named,) = (evolvable.home / "hooks/named").iterdir()
    assert named.read_text("utf-8") == ID

    run(evolvable, "PostToolUse", tool_name="skill", tool_input={"name": "write-commit-messages"})
    row = next(
        line
        for line in evolvable("list").out.splitlines()
        if line.startswith("skill:write-commit-messages")
    )
    assert row.split()[1:3] == ["you", "1"]

    run(evolvable, "Stop")
    (entry,) = (evolvable.home / "reviews/queue").glob("*.json")
    queued = json.loads(entry.read_text("utf-8"))
    path = str(evolvable.user / ".local/share/opencode/opencode.db" / ID)
    assert (queued["client"], queued["session_id"], queued["transcript_path"]) == (
        "opencode",
        ID,
        path,
    )


def test_a_call_is_in_the_session_that_a_hook_of_its_own_client_named_last(tmp_path: Path) -> None:
    mine = CallSessions("process-1", hook_session=lambda: named_session(tmp_path, "client-a"))
    assert mine.of({}) == "process-1"
    name_session(tmp_path, "client-b", "ses_other")
    assert mine.of({}) == "process-1"
    name_session(tmp_path, "client-a", ID)
    assert mine.of({}) == ID and mine.of({"threadId": "t1"}) == "t1"
    name_session(tmp_path, None, "ses_none")
    assert named_session(tmp_path, None) is None
    for number in range(MAX_NAMED):
        name_session(tmp_path, f"client-{number}", "ses_more")
    assert len(list((tmp_path / "hooks/named").iterdir())) == MAX_NAMED
