"""Checks in the lines that agents write, windows from a failing check to its success, and judges of
one session.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from session_cases import FAILED, PASSED
from transcripts import EditFile, ReadFile, Run, Says, User, write_claude_code, write_codex

from evolvable_evolve.evolution.scorers.registry import TaskSetScorer
from evolvable_evolve.evolution.tasks.check_commands import read_check
from evolvable_evolve.evolution.tasks.diagnostics import check_taskset
from evolvable_evolve.evolution.tasks.session_import import draft_from_sessions, try_checks
from evolvable_tools.library import Library

DATA = Path(__file__).parents[1] / "data"
TESTS, LINT = (
    "cd app && PYTHONPATH=. python3 -m unittest -q 2>&1 | tail -3",
    "python3 ./check_names.py",
)
SUM = "def add(a, b):\n    return a - b\n"
TEST = (
    "import unittest\nfrom add import add\n\n\nclass It(unittest.TestCase):\n"
    "    def test_it(self):\n"
)
TEST += "        self.assertEqual(add(2, 3), 5)\n"
NAMES = "import sys\nsys.exit('a - b' in open('app/add.py').read() or 'x' in open('n').read())\n"


def lines(name: str) -> list[str]:
    return [
        line
        for line in (DATA / name).read_text(encoding="utf-8").splitlines()
        if line and line[0] != "#"
    ]


@pytest.mark.parametrize("line", lines("check_commands.txt"))
def test_the_forms_in_which_agents_run_checks_are_taken(line):
    assert read_check(line, "/home/me/shop")


@pytest.mark.parametrize(
    "line",
    [
        *lines("no_check_commands.txt"),
        *(
            "LD_PRELOAD=./x.so pytest",
            "PATH=/tmp/x:$PATH pytest",
            "BASH_ENV=x pytest",
            "source /opt/x/bin/activate && pytest",
        ),
        *(
            "cd /etc && pytest",
            "cd .. && pytest",
            "pytest $(cat x)",
            "pytest `x`",
            "pytest > out.txt",
            "pytest < x",
        ),
        *(
            "(pytest)",
            "sudo pytest",
            "pytest && rm -rf x",
            "pytest | sh",
            "sh -c pytest",
            "pytest\nrm x",
            "pytest | tail -f",
        ),
    ],
)
def test_what_is_no_check_or_leads_elsewhere_is_not_taken(line):
    assert read_check(line, "/home/me/shop") is None


def test_what_stands_around_a_check_becomes_arguments_and_environment():
    line = (
        "cd /home/me/shop/web && . .venv/bin/activate && CI=1 npx tsc --noEmit && npm test "
        "2>&1 | tail -5"
    )
    found = read_check(line, "/home/me/shop")

    assert found and found.words == ("npx", "tsc", "--noEmit", "&&", "npm", "test") and found.piped
    assert found.options == ("--in", "web", "--set", "CI=1", "--path", ".venv/bin")
    assert found == read_check(
        "cd web && source .venv/bin/activate && CI=1 npx tsc --noEmit && npm test", "/home/me/shop"
    )


def two_windows(prompt: str = "now do the same for the app, please."):
    """Work in which the tests failed and passed, and then another check did; the words of the
    person say little.
    """
    yield User("Hello there, what do you see in here?")
    yield Says("An app.")
    yield User(prompt)
    yield Run(TESTS, "FAILED (failures=1)")
    yield ReadFile("/home/dev/shop/app/add.py", SUM)
    yield ReadFile("/home/dev/shop/app/test_add.py", TEST)
    yield ReadFile("/home/dev/shop/check_names.py", NAMES)
    yield ReadFile("/home/dev/shop/n", "x\n")
    yield EditFile("/home/dev/shop/app/add.py", "    return a - b", "    return a + b")
    yield Run(TESTS, "OK")
    yield Run(LINT, "", code=1)
    yield EditFile("/home/dev/shop/n", "x", "y")
    yield Run(LINT, "")


@pytest.mark.process
@pytest.mark.parametrize("writer", [write_claude_code, write_codex])
def test_each_window_from_a_failing_check_to_its_success_is_a_task_that_holds(tmp_path, writer):
    path = writer(tmp_path, list(two_windows()), session="one", project="/home/dev/shop")
    with Library.open(tmp_path / "library", create=True) as library:
        draft = draft_from_sessions(library, [path])
        asyncio.run(try_checks(draft, TaskSetScorer()))

    assert [one.tried for one in draft.found] == ["fails before, passes after"] * 2, draft.left_out
    assert {one.prompt.split("`")[1] for one in draft.found} == {
        "in app: PYTHONPATH=. python3 -m unittest -q",
        LINT,
    }
    [tests, lint] = sorted(
        draft.taskset.tasks, key=lambda task: "--in" not in task.scorer.args["argv"]
    )
    assert draft.files[f"work/{tests.id}/app/add.py"].decode() == SUM
    assert b"a + b" in draft.files[f"work/{lint.id}/app/add.py"], (
        "what was repaired before stays repaired"
    )


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ([], 2),
        ([User("No, that's wrong.")], 0),
        ([Run("git checkout -- .", "")], 0),
        (
            [
                Run(TESTS, "FAILED (failures=1)"),
                EditFile("/home/dev/shop/n", "y", "z"),
                Run(TESTS, "OK"),
            ],
            3,
        ),
    ],
)
def test_windows_of_work_that_was_rejected_or_taken_back_are_none(tmp_path, more, count):
    path = write_claude_code(
        tmp_path, [*two_windows(), *more], session="one", project="/home/dev/shop"
    )
    with Library.open(tmp_path / "library", create=True) as library:
        assert len(draft_from_sessions(library, [path]).found) == count


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ("FAILED (failures=1)", "OK", 1),
        ("1 failed, 3 passed", "4 passed in 0.1s", 1),
        ("see the log", "see the log", 0),
        ("FAILED (failures=1)", "all of it works", 0),
    ],
)
def test_the_exit_code_of_a_filter_says_nothing_and_the_closing_line_does(
    tmp_path, before, after, count
):
    events = [
        User("Repair the function add in add.py, which subtracts."),
        Run("python3 -m unittest -q | tail -1", before),
        ReadFile("/home/dev/shop/add.py", SUM),
        EditFile("/home/dev/shop/add.py", "    return a - b", "    return a + b"),
        Run("python3 -m unittest -q | tail -1", after),
    ]
    path = write_codex(tmp_path, events, session="one", project="/home/dev/shop")
    with Library.open(tmp_path / "library", create=True) as library:
        assert len(draft_from_sessions(library, [path]).found) == count


def test_a_transcript_of_another_client_gives_tasks_too(tmp_path):
    def call(number: int, name: str, given: dict, output: str, failed: bool = False) -> list[dict]:
        made = {"type": "tool_use", "id": f"c{number}", "name": name, "input": given}
        result = {
            "type": "tool_result",
            "tool_use_id": f"c{number}",
            "content": output,
            "is_error": failed,
        }
        return [{"role": "assistant", "content": [made]}, {"role": "user", "content": [result]}]

    add = {"file_path": "/home/dev/shop/add.py"}
    messages = [
        {
            "role": "user",
            "content": "Repair the function add in add.py: it has to give the sum.",
            "session_id": "m",
            "cwd": "/home/dev/shop",
        },
        *call(1, "run_shell_command", {"command": "python3 -m unittest -q"}, FAILED, failed=True),
        *call(
            2,
            "read_file",
            add,
            "".join(f"     {n}\t{line}\n" for n, line in enumerate(SUM.splitlines(), 1)),
        ),
        *call(3, "replace", {**add, "old_string": "a - b", "new_string": "a + b"}, "done"),
        *call(4, "run_shell_command", {"command": "python3 -m unittest -q"}, PASSED),
    ]
    path = tmp_path / "messages.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in messages), encoding="utf-8")
    with Library.open(tmp_path / "library", create=True) as library:
        draft = draft_from_sessions(library, [path])

    assert [one.check for one in draft.found] == ["python3 -m unittest -q"], draft.left_out


def test_one_correction_has_a_judge_that_can_be_calibrated(tmp_path):
    events = [
        User("Explain to a customer in one paragraph why the invoice came twice."),
        Says("It is your fault."),
    ]
    events += [
        User("No, don't blame the customer. Say that we are sorry."),
        Says("We are sorry."),
        User("Perfect, thanks."),
    ]
    path = write_claude_code(tmp_path, events, session="one", project="/home/dev/shop")
    with Library.open(tmp_path / "library", create=True) as library:
        draft = draft_from_sessions(library, [path])

    [task] = draft.taskset.tasks
    assert [len(task.scorer.args[side]) for side in ("good", "bad")] == [3, 3]
    assert all("We are sorry." in text for text in task.scorer.args["good"])
    found = asyncio.run(check_taskset(draft.taskset))
    assert "judge-uncalibrated" not in {one.rule for one in found.remarks}


@pytest.mark.process
def test_the_program_beside_the_tasks_runs_steps_in_the_workspace_alone(tmp_path):
    script = tmp_path / "check_exit.py"
    source = Path(
        sys.modules["evolvable_evolve.evolution.tasks.session_import"].__file__
    ).with_name("session_check.txt")
    script.write_bytes(source.read_bytes())
    work = tmp_path / "work"
    (work / "bin").mkdir(parents=True)
    (work / "bin/ours").write_text('#!/bin/sh\ntest "$MODE" = on\n', encoding="utf-8")
    (work / "bin/ours").chmod(0o755)

    def score(*words: str) -> float | None:
        ran = subprocess.run(
            [sys.executable, script, "t", *words], cwd=work, capture_output=True, text=True
        )
        return json.loads(ran.stdout)["score"] if ran.returncode == 0 else None

    assert score("--set", "MODE=on", "--path", "bin", "--", "ours", "&&", "true") == 1.0
    assert (
        score("--path", "bin", "--", "true", "&&", "ours")
        == score("--", "false", "&&", "true")
        == 0.0
    )
    assert score("--in", "../..", "--", "true") is None and score("--", "ours") is None
