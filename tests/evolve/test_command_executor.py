"""The command executor and the workspaces: a fresh folder for each trial, JSON in and out, nobody
left behind.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from processes import poll
from trial_parts import BASE, ByFirstWord, program, task

from evolvable_evolve.evolution.executors.base import (
    open_workspace,
    remove_stale_workspaces,
    remove_tree,
    run_command,
)
from evolvable_evolve.evolution.executors.command_executor import CommandExecutor
from evolvable_evolve.evolution.task import ModelUsage, Task, TrialOutcome
from evolvable_evolve.evolution.trials.trial import TrialAttempt, TrialJob, run_job
from evolvable_store.errors import InvalidArgument, InvalidPath

pytestmark = pytest.mark.process

PYTHON = "{python}"
LISTEN = "import json, sys, os, pathlib, time\ntold = json.load(sys.stdin)\n"


def attempt(
    script: str,
    tmp_path: Path,
    one: Task | None = None,
    files: Mapping[str, bytes] | None = None,
    arm: str = "pdf",
) -> TrialAttempt:
    """Returns what comes of a task whose command is this Python script."""
    executor = CommandExecutor([PYTHON, "-c", LISTEN + script])
    place = tmp_path / "workspaces"
    done = asyncio.run(
        run_job(
            TrialJob(
                executor, ByFirstWord(), one or task("a"), program(arm), 2, files or {}, place=place
            )
        )
    )
    assert list(place.iterdir()) == [], "the workspace is gone"
    return done


def test_a_command_is_told_the_task_and_the_program_but_not_the_answer(tmp_path: Path) -> None:
    script = (
        "skill = pathlib.Path(told['program']['resources'][0]['folder'], 'SKILL.md').read_text()\n"
        "print(json.dumps({'output': json.dumps({**told, 'cwd': os.getcwd(), 'skill': skill})}))"
    )
    done = attempt(
        script, tmp_path, task("a", "What is it?", expected="the secret", category="easy")
    )
    told = json.loads(done.rollout.output)
    assert "the secret" not in done.rollout.output
    assert (told["task_id"], told["prompt"], told["category"], told["repeat"]) == (
        "a",
        "What is it?",
        "easy",
        2,
    )
    assert (told["cwd"], told["skill"]) == (told["workspace"], "pdf")
    assert told["program"]["resources"][0]["ref"] == "skill:pdf"


def test_a_command_may_say_what_it_spent_and_read_and_how_it_got_there(tmp_path: Path) -> None:
    answer = {
        "output": "pass",
        "trace": "first, then",
        "read": ["skill:pdf"],
        "usage": {"input_tokens": 10, "output_tokens": 5, "calls": 2, "cost": 0.25},
    }
    done = attempt(f"print(json.dumps({answer!r}))", tmp_path)
    assert (done.score.value if done.score else None) == 1.0
    assert done.rollout.usage == ModelUsage(10, 5, 2, 0.25)
    assert (done.rollout.trace, done.rollout.read) == ("first, then", ("skill:pdf",))
    assert done.rollout.wall > 0


OTHER = "the command printed another object than was agreed on: "


def test_what_a_command_does_not_say_is_unknown_and_not_free(tmp_path: Path) -> None:
    assert attempt('print(\'{"output": "pass"}\')', tmp_path).rollout.usage == ModelUsage(
        calls=1, cost=None
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("sys.exit('no key')", "the command ended with exit code 1; it said: no key"),
        ("print('done')", "the command printed no JSON"),
        ("print('[' * 100000)", "the command printed no JSON"),
        ("print('[1]')", "the command printed no JSON object"),
        ("print('{}')", f"{OTHER}'output' is a required property"),
        ("print('{\"output\": 3}')", f"{OTHER}output: 3 is not of type 'string'"),
        (
            'print(\'{"output": "", "usage": {"cost": -1}}\')',
            f"{OTHER}usage.cost: -1 is less than the minimum",
        ),
        (
            'print(\'{"output": "", "usage": {"cost": 1e999}}\')',
            f"{OTHER}usage.cost: inf is greater than the maximum",
        ),
        (
            'print(\'{"output": "", "usage": {"cost": true}}\')',
            f"{OTHER}usage.cost: True is not of type",
        ),
        ('print(\'{"output": "", "usage": {"cost": NaN}}\')', "the command printed no JSON"),
        ('print(\'{"output": "", "usage": 3}\')', f"{OTHER}usage: 3 is not of type 'object'"),
        ('print(\'{"output": "", "outcome": "pass"}\')', f"{OTHER}outcome: 'pass' is not one of"),
        ("sys.stdout.buffer.write(b'\\xff')", "the command printed no JSON"),
        ("print('x' * 2_000_000)", "the command printed too much"),
    ],
)
def test_a_command_that_ends_without_an_answer_has_failed_and_is_not_run_again(
    tmp_path: Path, script: str, why: str
) -> None:
    done = attempt(script, tmp_path)
    assert (done.outcome, done.score) == (TrialOutcome.FAIL, None)
    assert done.detail.startswith(f"crashed: {why}")


def test_a_command_may_say_that_its_provider_is_busy(tmp_path: Path) -> None:
    done = attempt(
        """print('{"outcome": "infra_error", "detail": "429", "retry_after": 7}')""", tmp_path
    )
    assert (done.outcome, done.detail, done.rollout.retry_after) == (
        TrialOutcome.INFRA_ERROR,
        "429",
        7.0,
    )


def test_a_command_that_cannot_be_started_is_an_infrastructure_error(tmp_path: Path) -> None:
    executor = CommandExecutor(["/no/such/command"])
    done = asyncio.run(
        run_job(TrialJob(executor, ByFirstWord(), task("a"), BASE, 0, place=tmp_path))
    )
    assert done.outcome is TrialOutcome.INFRA_ERROR
    assert done.detail.startswith("/no/such/command ") and "No such file" in done.detail


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
def test_a_command_that_takes_too_long_is_ended_with_all_it_has_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = (
        "import subprocess\n"
        f"with open({str(note)!r}, 'w') as file: file.write(str(subprocess.Popen(['sleep', "
        "'600']).pid))\ntime.sleep(600)"
    )
    # Where both cores are busy a Python may take longer than the first to start.
    for seconds in (1.0, 8.0, 64.0):
        done = attempt(script, tmp_path, task("a", timeout_s=seconds))
        assert (done.outcome, done.detail) == (
            TrialOutcome.AGENT_TIMEOUT,
            f"it took longer than {seconds:g} s",
        )
        if note.exists() and note.read_text():
            break
    poll(lambda: _gone(int(note.read_text())), "the command's child to end")


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
def test_a_command_whose_caller_is_cancelled_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    async def work() -> None:
        running = asyncio.create_task(run_command([PYTHON, "-c", script], timeout=600))
        while not (note.exists() and note.read_text()):
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert _gone(int(note.read_text()))

    asyncio.run(work())


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return (
        Path(f"/proc/{pid}/stat").exists()
        and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    )


def test_another_script_is_another_executor(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("one")
    first = CommandExecutor([PYTHON, "run.py"], folder=tmp_path)
    assert CommandExecutor([PYTHON, "run.py"], folder=tmp_path).fingerprint == first.fingerprint
    (tmp_path / "run.py").write_text("two")
    others = [
        CommandExecutor([PYTHON, "run.py"], folder=tmp_path),
        CommandExecutor([PYTHON, "run.py", "--fast"], folder=tmp_path),
        CommandExecutor([PYTHON, "run.py"], folder=tmp_path, version="2"),
    ]
    assert len({first.fingerprint, *(one.fingerprint for one in others)}) == 4
    assert first.label == "command run.py"
    assert first.command[1] == str(tmp_path / "run.py")


@pytest.mark.parametrize("command", [[], [""], ["a\0b"], [1]])
def test_what_is_no_command_is_refused(command: list[str]) -> None:
    with pytest.raises(InvalidArgument):
        CommandExecutor(command)


# Workspaces


def test_each_trial_begins_with_fresh_copies_and_its_setup(tmp_path: Path) -> None:
    setup = ((PYTHON, "-c", "open('data/b.txt', 'w').write(open('data/a.txt').read() * 2)"),)
    one = task("a", setup=setup)
    script = (
        "a, b = pathlib.Path('data/a.txt'), pathlib.Path('data/b.txt')\n"
        "print(json.dumps({'output': a.read_text() + b.read_text()}))\n"
        "a.write_text('spoiled')"
    )
    for _ in range(2):
        assert (
            attempt(script, tmp_path, one, {"data/a.txt": b"pass"}).rollout.output == "passpasspass"
        )


def test_a_setup_that_fails_says_nothing_about_the_program(tmp_path: Path) -> None:
    one = task("a", setup=((PYTHON, "-c", "raise SystemExit('no disk')"),))
    done = attempt("print('never')", tmp_path, one)
    assert done.outcome is TrialOutcome.INFRA_ERROR
    assert "setup of task a" in done.detail and "exit code 1" in done.detail
    assert "{python}: no disk" in done.detail


@pytest.mark.parametrize("path", ["../out.txt", "/etc/out.txt", "a/../../out.txt"])
def test_no_file_of_a_task_leaves_its_workspace(tmp_path: Path, path: str) -> None:
    async def make() -> None:
        async with open_workspace(task("a"), {path: b"x"}, place=tmp_path / "w"):
            pass

    with pytest.raises(InvalidPath):
        asyncio.run(make())
    assert list((tmp_path / "w").iterdir()) == []


def test_a_workspace_is_removed_whatever_was_done_in_it(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "a.txt").write_text("a")
    script = (
        "os.makedirs('deep/er'); open('deep/er/x', 'w').close()\n"
        f"os.symlink({str(kept)!r}, 'link'); os.symlink('/nowhere', 'dead')\n"
        "os.chmod('deep/er/x', 0); os.chmod('deep/er', 0o500); os.chmod('deep', 0)\n"
        "open('../beside.txt', 'w').close()\n"
        "print(json.dumps({'output': 'pass'}))"
    )
    assert attempt(script, tmp_path).outcome is None
    assert (kept / "a.txt").read_text() == "a"


def test_what_a_killed_run_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "evolvable-trial-abc" / "work").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    remove_stale_workspaces(tmp_path)
    remove_stale_workspaces(tmp_path / "none")
    remove_tree(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
