"""`connect --hooks` writes a client's hooks, and `disconnect` takes them out and leaves every other
byte.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine

SETTINGS = (
    '{\n  // mine\n  "hooks": {\n    "Stop": [\n'
    '      {"hooks": [{"type": "command", "command": "say done"}]} // mine\n    ]\n  },\n'
    '  "mcpServers": {\n    "other": {"command": "x"}\n  }\n}\n'
)
FILES = {
    "copilot": ".copilot/hooks/evolvable.json",
    "qwen": ".qwen/settings.json",
    "droid": ".factory/settings.json",
    "opencode": ".config/opencode/plugins/evolvable.js",
}


@pytest.fixture
def evolvable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    for name in ("COPILOT_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return CommandLine(tmp_path)


def files_below(folder: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".backup-" not in path.name
    }


@pytest.mark.parametrize("client", ["qwen", "droid"])
def test_hooks_stand_beside_those_of_the_person_and_go_byte_for_byte(
    client: str, evolvable: CommandLine
) -> None:
    path = evolvable.user / FILES[client]
    path.parent.mkdir()
    path.write_text(SETTINGS, encoding="utf-8")
    (evolvable.user / ".factory").mkdir(exist_ok=True)
    (evolvable.user / ".factory/mcp.json").write_text(
        '{"mcpServers": {"other": {}}}', encoding="utf-8"
    )
    before = files_below(evolvable.user)

    assert f"written into {path}" in evolvable("connect", client, "--hooks").out
    text = path.read_text("utf-8").replace("// mine", "")
    stop = json.loads(text)["hooks"]["Stop"]
    assert stop[0]["hooks"][0]["command"] == "say done"
    (hook,) = stop[1]["hooks"]
    assert (
        hook["command"].endswith(f"evolvable-hook Stop {client}")
        and f"EVOLVABLE_HOME={evolvable.home}" in hook["command"]
    )
    assert hook["timeout"] == {"qwen": 10_000, "droid": 10}[client]
    again = files_below(evolvable.user)
    evolvable("connect", client, "--hooks")
    assert files_below(evolvable.user) == again

    assert f"taken out of {path}" in evolvable("disconnect", client).out
    assert files_below(evolvable.user) == before


@pytest.mark.parametrize("client", ["copilot", "opencode"])
def test_a_file_of_our_own_comes_and_goes_and_another_one_of_its_name_stays(
    client: str, evolvable: CommandLine
) -> None:
    path = evolvable.user / FILES[client]
    evolvable("connect", client, "--hooks")
    assert "evolvable-hook" in path.read_text("utf-8") and str(evolvable.home) in path.read_text(
        "utf-8"
    )
    evolvable("disconnect", client)
    assert not path.exists()
    path.write_text("{}", encoding="utf-8")
    assert "no hooks of ours" in evolvable("connect", client, "--hooks", code=1).err
    evolvable("disconnect", client)
    assert path.read_text("utf-8") == "{}"


def test_without_the_option_and_in_a_dry_run_no_hooks_are_written(evolvable: CommandLine) -> None:
    for client, name in FILES.items():
        evolvable("connect", client)
        evolvable("connect", client, "--hooks", "--dry-run")
        path = evolvable.user / name
        assert not path.exists() or "evolvable-hook" not in path.read_text("utf-8")


def test_a_client_without_hooks_and_a_project_are_refused(evolvable: CommandLine) -> None:
    assert "gets no hooks" in evolvable("connect", "cursor", "--hooks", code=1).err
    assert (
        "gets no hooks" in evolvable("connect", "qwen", "--hooks", "--scope", "project", code=1).err
    )


@pytest.mark.process
def test_the_command_that_is_written_runs_in_a_shell(evolvable: CommandLine) -> None:
    skill = evolvable.user / ".qwen/skills/write-commit-messages/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(
        "---\nname: write-commit-messages\ndescription: Writes commit messages for staged "
        "changes.\n---\n\nX\n",
        "utf-8",
    )
    evolvable("init", "--yes")
    evolvable("connect", "qwen", "--hooks")
    settings = json.loads((evolvable.user / FILES["qwen"]).read_text("utf-8"))
    command = settings["hooks"]["UserPromptSubmit"][0]["hooks"][0]["command"]
    payload = {
        "session_id": "s1",
        "cwd": str(evolvable.user),
        "prompt": "Write a commit message for staged changes.",
    }
    environment = {"PATH": os.environ["PATH"], "HOME": str(evolvable.user)}
    ran = subprocess.run(
        command,
        shell=True,
        input=json.dumps(payload),
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    assert "skill:write-commit-messages" in ran.stdout, ran.stderr
