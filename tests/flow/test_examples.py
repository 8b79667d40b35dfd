"""What the documentation shows is run here."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from command_line import CommandLine, skill_text
from mcp import Client, StdioServerParameters

from evolvable_server.mcp.lazy_tools import TOOLS_FILE

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("evolvable")


@pytest.mark.process
@pytest.mark.anyio
async def test_the_example_for_claude_desktop_starts_a_server(tmp_path):
    config = json.loads((ROOT / "claude_desktop_config.example.json").read_text(encoding="utf-8"))
    server = config["mcpServers"]["evolvable"]
    assert Path(server["command"]).is_absolute() and Path(server["command"]).name == "evolvable"
    assert Path(server["env"]["EVOLVABLE_HOME"]).is_absolute()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "EVOLVABLE_HOME": str(tmp_path / "home"),
    }
    parameters = StdioServerParameters(command=str(COMMAND), args=server["args"], env=environment)

    with anyio.fail_after(30):
        async with Client(parameters) as client:
            tools = (await client.list_tools()).tools

    assert "find_skill" in {tool.name for tool in tools}


def test_the_quick_start_is_two_lines_and_ends_in_the_main_job_and_the_tests():
    blocks = re.findall(
        r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )

    assert blocks[0].splitlines() == [
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/evolvable setup"
    ]
    assert blocks[1].splitlines() == [
        "python3 -m venv .venv && .venv/bin/pip install '.[dev]' && .venv/bin/python -m pytest -n 3"
    ]


def test_ci_runs_every_block_of_the_readme_and_the_tests_of_the_models_apart():
    blocks = re.findall(r"```sh\n", (ROOT / "README.md").read_text(encoding="utf-8"))
    run = (ROOT / ".ci/run").read_text(encoding="utf-8")

    assert re.findall(r"\$\(readme (\d+)\)", run) == [
        str(number) for number in range(1, len(blocks) + 1)
    ]
    assert '-m "models and not nightly"' in run and run.index("torch==2.13.0") < run.index(
        "'.[dev,models]'"
    )


@pytest.mark.nightly  # as in tests/core/test_cli_processes.py
@pytest.mark.process
def test_quickstart_answers_a_lookup_over_mcp_and_says_what_to_type_next(tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    done = subprocess.run(
        [COMMAND, "quickstart"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert "skill:" in done.stdout
    assert "evolvable setup" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_golden_tool_list_and_the_page_about_the_tools_name_the_same_tools():
    golden = {tool["name"] for tool in json.loads(TOOLS_FILE.read_text(encoding="utf-8"))}
    page = (ROOT / "docs/mcp.md").read_text(encoding="utf-8")

    assert {name for name in golden if f"| `{name}` |" in page} == golden


@pytest.mark.process
def test_the_stand_in_for_a_model_answers_what_the_page_about_models_asks(tmp_path):
    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    [example] = [block for block in blocks if "role model add demo" in block]
    commands = [line.split()[1:] for line in example.splitlines()]
    assert commands[0][:4] == ["role", "model", "add", "demo"]
    assert ["role", "model", "test", "demo"] in commands
    evolvable = CommandLine(tmp_path)
    server = subprocess.Popen(
        [sys.executable, "-I", "-S", ROOT / "examples/model_stand_in.py", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        for words in commands:
            said = evolvable(
                *[address if word.startswith("http://127.0.0.1:8765") else word for word in words]
            ).out
            assert words[1:2] != ["test"] or said.splitlines()[1] == "demo works."
        skills = tmp_path / "skills"
        for name in ("dump", "load"):
            (skills / name).mkdir(parents=True)
            text = skill_text(name, f"Postgres database {name} with psql tools.")
            (skills / name / "SKILL.md").write_text(text, encoding="utf-8")
        evolvable("init", skills)
        found = evolvable("find", "work on a postgres database with psql tools", "--json").json
        assert "demo:demo" in json.dumps(found["stages"])
    finally:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()
