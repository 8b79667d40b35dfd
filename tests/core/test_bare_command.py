"""`evolvable` without a command, without a home directory, and without a terminal."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def test_alone_it_says_that_there_is_no_library_and_how_to_begin_and_makes_none(
    run: CommandLine,
) -> None:
    shown = run().out

    assert f"There is no library in {run.home} yet." in shown and "Next: evolvable setup" in shown
    assert not run.home.exists()


def test_alone_it_says_what_the_library_holds_what_waits_and_what_to_do_next(
    run: CommandLine,
) -> None:
    run("init")
    assert "holds nothing yet." in run().out and "Next: evolvable setup" in run().out
    run(
        "update",
        "pdf",
        "--create",
        "--file",
        f"SKILL.md={_written(run, skill_text('pdf'))}",
        "-m",
        "new",
    )

    assert "holds 1 skill." in run().out and "Next: evolvable find" in run().out
    run(
        "update",
        "pdf",
        "--file",
        f"SKILL.md={_written(run, skill_text('pdf', body='more'))}",
        "--propose",
        "-m",
        "more",
    )
    assert "1 proposal waits for you." in run().out and "Next: evolvable inbox" in run().out
    assert run("--json").json["waiting"] == 1


def _written(run: CommandLine, text: str) -> Path:
    path = run.root / "text.md"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_script_without_a_terminal_is_not_taken_for_an_agent(run: CommandLine) -> None:
    run.person = False

    refused = run("inbox", "approve", "1", code=1).err
    assert "needs a terminal, or --token-file." in refused and "agent" not in refused
    assert "It needs a terminal." in run("trust", run.root, code=1).err
    assert "for an agent" in run("trust", run.root, code=1, CLAUDECODE="1").err


NOBODY = 4_321
"""A user that the account database does not know."""


homeless = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0,
    reason="only root starts a process as another user",
)


def run_homeless(
    *words: str, stdin: str = "", cwd: str = "/"
) -> "subprocess.CompletedProcess[str]":
    """Run Python with these arguments as a user without a home directory."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv is not installed")
    become = [
        setpriv,
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        "env",
        "-i",
        "PATH=/usr/bin:/bin",
    ]
    become.append(f"PYTHONPATH={os.pathsep.join(sys.path)}")
    version = (
        f"import sys, evolvable_server; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
    )
    pythons = (sys.executable, "/usr/bin/python3")
    fit = (
        one
        for one in pythons
        if Path(one).exists()
        and not subprocess.run([*become, one, "-P", "-c", version], capture_output=True).returncode
    )
    python = next(fit, None)
    if python is None:
        pytest.skip("another user cannot read this program, or no Python of this version")
    return subprocess.run(
        [*become, python, "-P", *words],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.process
@homeless
@pytest.mark.parametrize(
    "command", [[], ["status"], ["find", "x"], ["serve"], ["init"], ["quickstart"]]
)
def test_an_account_without_a_home_directory_is_told_so_in_one_sentence(command: list[str]) -> None:
    done = run_homeless("-m", "evolvable_server", *command)

    assert done.returncode == 1 and "no home directory" in done.stderr
    assert len(done.stderr.splitlines()) == 2, done.stderr


@pytest.mark.process
@homeless
@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"])
def test_a_hook_of_an_account_without_a_home_directory_says_so_and_makes_no_folder(
    event: str,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        payload = json.dumps(
            {"hook_event_name": event, "session_id": "s", "prompt": "count boats", "cwd": folder}
        )
        hook = "from evolvable_server.hooks.command import main; main()"
        done = run_homeless("-c", hook, stdin=payload, cwd=folder)

        assert done.returncode == 0 and done.stdout == "" and os.listdir(folder) == []
        assert done.stderr.startswith("evolvable-hook: ")
        assert "no home directory" in done.stderr
        assert len(done.stderr.splitlines()) == 1
