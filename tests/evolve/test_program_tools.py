"""Tools as parts of a program: which executors can be given them, and what a model can
do with one.
"""

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from confined import FOUND, needs_sandbox
from evolving import a_program, a_skill, a_task
from fake_clients import fake_claude, fake_codex
from mcp import Client, StdioServerParameters
from model_api import ModelApi, Reply, says

from evolvable_evolve.evolution.candidates.programs import Program, ProgramPart, make_part
from evolvable_evolve.evolution.candidates.static_gate import find_executable_change
from evolvable_evolve.evolution.executors import tool_server
from evolvable_evolve.evolution.executors.agent_cli import ClientSettings, read_client_version
from evolvable_evolve.evolution.executors.coding_agents import ClaudeExecutor, CodexExecutor
from evolvable_evolve.evolution.executors.installation import find_run_spec, tool_entry, write_part
from evolvable_evolve.evolution.executors.model_api import ApiSettings, ModelExecutor
from evolvable_evolve.evolution.executors.tool_runs import ToolSandbox
from evolvable_evolve.evolution.operators import MaskViolation, make_mask
from evolvable_store.resource import Kind

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
SCRIPT = (
    "import json, sys\na = json.load(sys.stdin)['a']\nif a < 0: sys.exit('too small')\n"
    "print(a + 1)\n"
)


def a_tool(name: str = "adder", script: str = SCRIPT, **run: object) -> ProgramPart:
    said = {
        "argv": ["{python}", "-I", "-S", "{tool}/do.py"],
        "schema": SCHEMA,
        "timeout_s": 20,
    } | run
    text = f"---\nname: {name}\ndescription: Adds one.\nmetadata:\n  run: {json.dumps(said)}\n---\n"
    return make_part(Kind.TOOL, name, {"TOOL.md": text.encode(), "do.py": script.encode()})


def uses(tool: str, **given: object) -> Reply:
    block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": given}
    message = json.loads(says("").body) | {"content": [block], "stop_reason": "tool_use"}
    return Reply(body=json.dumps(message).encode())


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "trial" / "work"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.process
@needs_sandbox
def test_a_model_behind_the_api_calls_a_tool_of_the_program_in_the_sandbox(work: Path) -> None:
    reads = f"import os\nprint(os.path.exists({str(work)!r}), sorted(os.environ))\n"
    program = a_program(a_tool(), a_tool("looks", reads, schema={"type": "object"}))
    inside = ToolSandbox(FOUND.sandbox, {"PATH": os.environ["PATH"], "ANTHROPIC_API_KEY": "secret"})
    turns = [
        uses("tool_adder", a=41),
        uses("tool_adder", a="x"),
        uses("tool_adder", a=-1),
        uses("tool_looks"),
    ]
    with ModelApi(*turns, says("42")) as api:
        executor = ModelExecutor(
            ApiSettings("key", "some-model", api.url, scripted=True, inside=inside)
        )
        rollout = asyncio.run(executor.run(a_task(prompt="Add.", timeout_s=60.0), program, 0, work))

    assert (rollout.output, rollout.outcome, rollout.read) == (
        "42",
        None,
        ("tool:adder", "tool:looks"),
    )
    listed = {tool["name"]: tool["input_schema"] for tool in api.asked[0].body["tools"]}
    assert listed["tool_adder"] == SCHEMA
    results = [message["content"][0] for message in api.asked[-1].body["messages"][2::2]]
    assert [one["is_error"] for one in results] == [False, True, True, False]
    assert results[0]["content"] == "42\n"
    assert "the schema of tool:adder" in results[1]["content"]
    assert "too small" in results[2]["content"]
    assert results[3]["content"].startswith("False ") and "ANTHROPIC" not in results[3]["content"]


def test_without_a_sandbox_or_a_command_a_tool_is_refused_by_its_name(work: Path) -> None:
    executor = ModelExecutor(ApiSettings("key", "some-model", "http://127.0.0.1:9"))
    silent = make_part(
        Kind.TOOL, "silent", {"TOOL.md": b"---\nname: silent\ndescription: x\n---\n"}
    )

    def why(part: ProgramPart) -> str:
        return asyncio.run(executor.run(a_task(), a_program(part), 0, work)).detail

    assert why(a_tool()).startswith("tool:adder runs in a sandbox only")
    assert "cannot be given tool:silent" in why(silent)
    assert "cannot be given tool:adder" in why(a_tool(argv=["../sh"]))


@pytest.mark.process
@pytest.mark.parametrize(
    ("make", "kind"), [(fake_claude, ClaudeExecutor), (fake_codex, CodexExecutor)]
)
def test_a_client_is_started_with_a_server_of_the_programs_tools_alone(
    tmp_path, work, make, kind
) -> None:
    binary, environment = make(tmp_path), {"PATH": os.environ["PATH"], "ANTHROPIC_API_KEY": "key"}
    settings = ClientSettings(
        str(binary), read_client_version(str(binary), environment), "m", environment
    )
    executor = kind(settings)

    def argv(program: Program) -> str:
        rollout = asyncio.run(
            executor.run(a_task(prompt="environment", timeout_s=30.0), program, 0, work)
        )
        return next(line for line in rollout.output.splitlines() if line.startswith("argv="))

    skill = a_skill("adding", "Add.", description="Adds.\nallowed-tools: mcp__library__adder")
    named = argv(a_program(a_tool(), skill))
    assert "tool_server.py" in named if kind is CodexExecutor else "--mcp-config" in named
    assert (
        "mcp_servers.library.required=true" if kind is CodexExecutor else "mcp__library__adder"
    ) in named
    bare = argv(Program())
    assert "library" not in bare and "'--mcp-config'" not in bare


@pytest.mark.process
@pytest.mark.anyio
async def test_the_server_of_a_programs_tools_lists_runs_and_refuses(tmp_path: Path) -> None:
    tools = []
    for part in (
        a_tool(),
        a_tool("slow", "import time\ntime.sleep(60)\n", timeout_s=0.3),
        a_tool("loud", "print('x' * 300_000)"),
    ):
        spec = find_run_spec(part)
        assert spec is not None
        write_part(tmp_path / part.name, part)
        tools.append(tool_entry(part, spec, tmp_path / part.name))
    (tmp_path / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    argv = ["-I", "-S", str(Path(tool_server.__file__)), str(tmp_path / "tools.json")]
    command = StdioServerParameters(
        command=sys.executable, args=argv, env={"PATH": os.environ["PATH"], "API_KEY": "k"}
    )
    async with Client(command, mode="legacy") as client:
        listed = (await client.list_tools()).tools
        assert [(tool.name, tool.input_schema) for tool in listed] == [
            (name, SCHEMA) for name in ("adder", "slow", "loud")
        ]
        assert not any(
            tool.annotations.destructive_hint or tool.annotations.open_world_hint for tool in listed
        )
        good = await client.call_tool("adder", {"a": 41})
        assert (good.is_error, good.content[0].text) == (False, "42\n")
        wrong = {
            ("adder", ()): "a is missing",
            ("adder", (("a", True),)): "a is not of type integer",
            ("adder", (("a", 1), ("b", 2))): "there is no argument b",
            ("adder", (("a", -1),)): "ended with exit code 1: too small",
            ("slow", (("a", 1),)): "took longer than 0.3 s",
            ("loud", (("a", 1),)): "wrote more than 200,000 bytes",
        }
        for (name, given), words in wrong.items():
            result = await client.call_tool(name, dict(given))
            assert result.is_error and words in result.content[0].text, shlex.join([name, words])


def test_a_tool_evolves_in_its_own_mode_and_counts_as_executable() -> None:
    before, after = a_program(a_tool()), a_program(a_tool(argv=["curl", "http://192.0.2.1"]))

    make_mask("tool_only", before).check(before, after)
    make_mask("any", before).check(before, after)
    with pytest.raises(MaskViolation, match="tool:adder may not change"):
        make_mask("skill_only", before).check(before, after)
    for executor in ("command", "claude", "anthropic"):
        assert find_executable_change(before, after, executor)
