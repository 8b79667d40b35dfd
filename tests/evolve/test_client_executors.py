"""Headless clients as executors: real processes that print what the real clients do, and one run of
those.
"""

import asyncio
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
import pytest
from evolving import a_program, a_skill, a_task
from fake_clients import fake_claude, fake_codex

from evolvable_evolve.evolution.candidates.programs import Program, make_part
from evolvable_evolve.evolution.executors import agent_cli
from evolvable_evolve.evolution.executors.agent_cli import (
    ClientError,
    ClientSettings,
    read_client_version,
)
from evolvable_evolve.evolution.executors.coding_agents import ClaudeExecutor, CodexExecutor
from evolvable_evolve.evolution.executors.installation import canary_program, run_canary
from evolvable_evolve.evolution.task import ModelUsage, Price, Rollout, Task, TrialOutcome
from evolvable_server.environment import REVIEWING
from evolvable_store.resource import Kind
from evolvable_tools.sessions.parser import is_reviewing

pytestmark = pytest.mark.process

Executor = ClaudeExecutor | CodexExecutor
KEY = "sk-ant-of-the-test"
EMPTY = Program()


def settings(binary: Path, **more: Any) -> ClientSettings:
    environment = {
        "PATH": os.environ["PATH"],
        "ANTHROPIC_API_KEY": KEY,
        "HOME": "/home/of-the-user",
        "CLAUDECODE": "1",
    }
    version = read_client_version(str(binary), environment)
    return ClientSettings(str(binary), version, "some-model", environment, **more)


@pytest.fixture
def claude(tmp_path: Path) -> ClaudeExecutor:
    return ClaudeExecutor(settings(fake_claude(tmp_path)))


@pytest.fixture
def codex(tmp_path: Path) -> CodexExecutor:
    return CodexExecutor(settings(fake_codex(tmp_path), price=Price(1.0, 10.0)))


@pytest.fixture(params=["claude", "codex"])
def executor(request: pytest.FixtureRequest) -> Executor:
    found: Executor = request.getfixturevalue(request.param)
    return found


def ran(
    executor: Any, tmp_path: Path, prompt: str, program: Program = EMPTY, seconds: float = 30.0
) -> Rollout:
    work = tmp_path / "trial" / "work"
    work.mkdir(parents=True, exist_ok=True)
    return asyncio.run(executor.run(a_task(prompt=prompt, timeout_s=seconds), program, 0, work))


def test_a_canary_passes_where_the_skill_reaches_the_model(
    executor: Executor, tmp_path: Path
) -> None:
    found = asyncio.run(run_canary(executor, tmp_path / "c", "kestrel-0123456789ab"))

    assert (found.passed, found.why, found.installed, found.empty) == (
        True,
        "",
        "kestrel-0123456789ab",
        "NONE",
    )
    assert found.fingerprint == executor.fingerprint
    assert list((tmp_path / "c").iterdir()) == []


class Wrapped:
    """An executor that runs another program than it was given."""

    def __init__(self, executor: Executor, program: Program) -> None:
        self._executor, self._program = executor, program
        self.fingerprint, self.label = executor.fingerprint, executor.label

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        return await self._executor.run(task, self._program, repeat, workspace)


def test_a_client_that_loads_no_skills_fails_the_canary(
    claude: ClaudeExecutor, tmp_path: Path
) -> None:
    found = asyncio.run(run_canary(Wrapped(claude, Program()), tmp_path))

    assert not found.passed and "does not reach the model" in found.why


def test_a_word_that_is_known_without_the_skill_fails_the_canary(
    claude: ClaudeExecutor, tmp_path: Path
) -> None:
    word = "kestrel-0123456789ab"

    found = asyncio.run(run_canary(Wrapped(claude, canary_program(word)), tmp_path, word))

    assert not found.passed and "arms are not apart" in found.why


def test_a_run_has_a_home_of_its_own_and_nothing_of_the_users(
    executor: Executor, tmp_path: Path
) -> None:
    told = dict(
        line.split("=", 1) for line in ran(executor, tmp_path, "environment").output.splitlines()
    )

    trial = tmp_path / "trial"
    assert told["cwd"] == str(trial / "work")
    assert told["HOME"].startswith(f"{trial}/client-") and told["HOME"].endswith("/home")
    config = told.get("CLAUDE_CONFIG_DIR") or told["CODEX_HOME"]
    assert config == told["HOME"].removesuffix("home") + "config"
    assert "CLAUDECODE" not in told
    assert told[REVIEWING] == "1"
    assert agent_cli.REVIEWING_VARIABLE == REVIEWING
    assert told["ANTHROPIC_API_KEY"] == KEY
    assert KEY not in executor.fingerprint
    assert list(trial.iterdir()) == [trial / "work"]


def test_a_run_is_known_to_be_none_of_a_persons(executor: Executor) -> None:
    assert is_reviewing(agent_cli.build_prompt(a_task(prompt="Fill in the form.")), None)


def test_only_the_workspace_is_left_of_a_run(claude: ClaudeExecutor, tmp_path: Path) -> None:
    ran(claude, tmp_path, "writes")

    assert [
        str(path.relative_to(tmp_path / "trial")) for path in (tmp_path / "trial").rglob("*")
    ] == ["work", "work/answer.txt"]


def test_what_was_spent_is_what_the_client_says_or_what_tokens_cost(
    claude: ClaudeExecutor, codex: CodexExecutor, tmp_path: Path
) -> None:
    assert ran(claude, tmp_path, "answer").usage == ModelUsage(223, 7, 2, 0.25)
    assert ran(codex, tmp_path, "answer").usage == ModelUsage(
        1000, 50, 1, (1000 * 1.0 + 50 * 10.0) / 1e6
    )


def test_without_a_price_the_cost_of_codex_is_unknown_and_not_nothing(
    codex: CodexExecutor, tmp_path: Path
) -> None:
    unpriced = CodexExecutor(settings(fake_codex(tmp_path)))

    assert ran(unpriced, tmp_path, "answer").usage.cost is None


@pytest.mark.parametrize(
    ("prompt", "seconds"), [("hangs", 0.6), ("exits", 30.0), ("throttled", 30.0), ("busy", 1.0)]
)
def test_what_says_nothing_about_the_program_is_an_infrastructure_error(
    executor: Executor, tmp_path: Path, prompt: str, seconds: float
) -> None:
    rollout = ran(executor, tmp_path, prompt, seconds=seconds)

    assert rollout.outcome is TrialOutcome.INFRA_ERROR
    assert rollout.detail and "ghp_" not in rollout.detail


def test_a_throttled_client_says_how_long_to_wait(
    claude: ClaudeExecutor, codex: CodexExecutor, tmp_path: Path
) -> None:
    waits = [
        ran(each, tmp_path, prompt, seconds=seconds).retry_after
        for each in (claude, codex)
        for prompt, seconds in (("busy", 3.0), ("throttled", 30.0))
    ]

    assert waits == [2.5, 0.0, 0.0, 0.0]
    assert ran(claude, tmp_path, "exits").retry_after is None


def test_a_client_that_worked_and_was_not_done_in_time_has_failed(
    claude: ClaudeExecutor, tmp_path: Path
) -> None:
    rollout = ran(claude, tmp_path, "works-and-hangs", seconds=1.5)

    assert rollout.outcome is TrialOutcome.AGENT_TIMEOUT
    assert rollout.usage.calls == 1 and rollout.usage.cost is None
    assert "make" in rollout.trace


def test_a_client_that_ran_out_of_turns_has_failed(claude: ClaudeExecutor, tmp_path: Path) -> None:
    assert ran(claude, tmp_path, "turns").outcome is TrialOutcome.AGENT_TIMEOUT


def test_a_connection_that_comes_back_is_no_trouble(codex: CodexExecutor, tmp_path: Path) -> None:
    rollout = ran(codex, tmp_path, "recovers")

    assert (rollout.outcome, rollout.output) == (None, "after all")


def test_a_skill_counts_as_read_by_its_tool_by_its_file_and_by_a_command(
    claude: ClaudeExecutor, codex: CodexExecutor, tmp_path: Path
) -> None:
    program = a_program(*canary_program("kestrel-0123456789ab").parts, a_skill("other"))

    reads = [
        ran(each, tmp_path, prompt, program).read
        for each, prompt in ((claude, "answer"), (claude, "reads"), (codex, "answer"))
    ]

    assert reads == [("skill:canary-word",)] * 3


def test_the_trace_is_redacted_before_anybody_sees_it(
    claude: ClaudeExecutor, tmp_path: Path
) -> None:
    rollout = ran(claude, tmp_path, "reads", canary_program("kestrel-0123456789ab"))

    assert "hunter2" not in rollout.trace and "[redacted:" in rollout.trace


@pytest.mark.parametrize("base", [".claude/skills", ".agents/skills", ".codex/skills"])
def test_a_skill_of_the_folder_with_a_parts_name_is_refused(
    tmp_path: Path, base: str, request: pytest.FixtureRequest
) -> None:
    executor = request.getfixturevalue("claude" if base.startswith(".claude") else "codex")
    folder = tmp_path / "trial" / "work" / base / "anything"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: pdf\ndescription: x\n---\n", encoding="utf-8")

    rollout = ran(executor, tmp_path, "answer", a_program(a_skill("pdf")))

    assert rollout.outcome is TrialOutcome.REFUSED and str(folder) in rollout.detail
    assert ran(executor, tmp_path, "answer", a_program(a_skill("csv"))).outcome is None


@pytest.mark.parametrize(
    "needs", ["allowed-tools: WebFetch(domain:a.org) Read\n", "allowed-tools:\n- WebFetch\n"]
)
def test_a_program_is_not_evaluated_without_its_means(
    executor: Executor, tmp_path: Path, needs: str
) -> None:
    rollout = ran(executor, tmp_path, "answer", a_program(a_skill("web", more=needs)))

    assert rollout.outcome is TrialOutcome.REFUSED and "skill:web needs WebFetch" in rollout.detail


def test_a_skill_with_scripts_needs_commands(claude: ClaudeExecutor, tmp_path: Path) -> None:
    program = a_program(a_skill("calc", run_py="print(1)"))
    without = ClaudeExecutor(replace(settings(fake_claude(tmp_path)), tools=("Read", "Skill")))

    assert "needs Bash" in ran(without, tmp_path, "answer", program).detail
    assert ran(claude, tmp_path, "answer", program).outcome is None


def test_what_a_client_cannot_be_given_is_refused(executor: Executor, tmp_path: Path) -> None:
    tool = make_part(Kind.TOOL, "t", {"TOOL.md": b"---\nname: t\ndescription: x\n---\n"})

    assert "cannot be given tool:t" in ran(executor, tmp_path, "answer", a_program(tool)).detail


@pytest.mark.parametrize("config", ["", 'model_provider = "own"\n'])
def test_codex_is_told_the_address_of_its_model_where_its_configuration_names_none(
    tmp_path: Path, config: str
) -> None:
    own = settings(fake_codex(tmp_path), config=config)
    address = "http://127.0.0.1:9/v1"
    executor = CodexExecutor(
        replace(own, environment={**own.environment, "OPENAI_BASE_URL": address})
    )

    argv = next(
        line
        for line in ran(executor, tmp_path, "environment").output.splitlines()
        if line.startswith("argv=")
    )

    assert (f'openai_base_url="{address}"' in argv) is not bool(config)


def test_an_agent_with_hooks_or_servers_runs_in_a_sandbox_alone(
    claude: ClaudeExecutor, tmp_path: Path
) -> None:
    """Claude Code runs the hooks of an agent's head as commands, whatever tools it may use."""
    head = "---\nname: clerk\ndescription: x\n{}---\n\nx\n"
    for field in ("hooks:\n  PreToolUse: []\n  Stop: [x]\n", "mcpServers:\n  - x\n"):
        agent = make_part(Kind.AGENT, "clerk", {"AGENT.md": head.format(field).encode()})
        done = ran(claude, tmp_path, "answer", a_program(agent))
        assert done.outcome is TrialOutcome.REFUSED
        assert "agent:clerk" in done.detail and "hooks or servers" in done.detail
    assert (
        ran(
            claude,
            tmp_path,
            "answer",
            a_program(make_part(Kind.AGENT, "clerk", {"AGENT.md": head.format("").encode()})),
        ).outcome
        is None
    )


def test_a_program_with_agents_has_the_tool_that_starts_them(
    claude: ClaudeExecutor, tmp_path: Path
) -> None:
    text = b"---\nname: clerk\ndescription: x\n---\n\nx\n"
    outputs = [
        ran(claude, tmp_path, "environment", program).output
        for program in (a_program(make_part(Kind.AGENT, "clerk", {"AGENT.md": text})), EMPTY)
    ]

    assert ["Write,Agent" in output for output in outputs] == [True, False]


def test_a_client_that_is_not_there_is_said_so_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="cannot be started"):
        read_client_version(str(tmp_path / "none"), {})


def test_executors_travel_to_other_processes_and_differ_by_what_decides(
    executor: Executor, tmp_path: Path
) -> None:
    again = pickle.loads(pickle.dumps(executor))
    other = type(executor)(replace(executor._settings, model="another"))

    assert again.fingerprint == executor.fingerprint != other.fingerprint
    assert executor.label == "real model some-model"


@pytest.mark.parametrize("client", ["claude", "codex"])
@pytest.mark.parametrize("part", ["executor", "brain"])
def test_the_real_client_keeps_the_contract(client: str, part: str) -> None:
    binary = os.environ.get(f"EVOLVABLE_TEST_{client.upper()}") or shutil.which(client)
    if binary is None:
        pytest.skip(f"no {client} on this machine")
    script = Path(__file__).parents[2] / "benchmarks" / "clients"

    done = subprocess.run(
        [sys.executable, str(script), f"--{client}", binary, "--only", part],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_that_is_given_up_leaves_no_process_and_no_folder(
    claude: ClaudeExecutor, tmp_path: Path
) -> None:
    async def given_up() -> None:
        running = asyncio.create_task(
            claude.run(
                a_task(prompt="notes-its-id hangs", timeout_s=60),
                EMPTY,
                0,
                tmp_path / "trial" / "work",
            )
        )
        deadline = monotonic() + 20
        while not note.exists() or not note.read_text():
            assert monotonic() < deadline
            await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    note = tmp_path / "trial" / "work" / "id"
    note.parent.mkdir(parents=True)
    asyncio.run(given_up())

    assert not psutil.pid_exists(int(note.read_text()))
    assert list((tmp_path / "trial").iterdir()) == [note.parent]
