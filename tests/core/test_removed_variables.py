"""Variables that are no longer read: each says what takes its place, and changes nothing."""

import subprocess
import sys

import pytest
from command_line import CommandLine, skill_text

VALUES = {
    "EVOLVABLE_FITS": ("0.9", "docs/lookup.md"),
    "EVOLVABLE_RERANKER": ("onnx:/none", "EVOLVABLE_EMBEDDER"),
    "EVOLVABLE_PROGRESS": ("off", "stderr is a terminal"),
    "EVOLVABLE_JUDGE": ("./run.sh", "evolvable role model role judge"),
    "EVOLVABLE_REVIEW": ("./run.sh", "evolvable role model role reviewer"),
}


@pytest.fixture
def run(tmp_path):
    made = CommandLine(tmp_path)
    skills = made.user / ".claude/skills"
    made.save(skills, "pdf", skill_text("pdf", "Merge, split and fill PDF forms."))
    made("init", skills)
    return made


@pytest.mark.parametrize("name", VALUES)
def test_a_variable_that_is_gone_gives_one_line_on_stderr_and_changes_nothing(run, name):
    value, instead = VALUES[name]
    plain = run("find", "fill a PDF form", "--json")
    hinted = run("find", "fill a PDF form", "--json", **{name: value})

    (line,) = hinted.err.splitlines()
    assert line.startswith(f"Hint: {name} is no longer ") and instead in line
    assert plain.err == "" and hinted.json["matches"] == plain.json["matches"]


def test_an_error_keeps_its_code_beside_the_hint(run):
    assert run("find", "sail a boat", code=3, EVOLVABLE_FITS="0").err.startswith(
        "Hint: EVOLVABLE_FITS "
    )
    assert run("history", "none", code=1, EVOLVABLE_JUDGE="off").err.startswith(
        "Hint: EVOLVABLE_JUDGE "
    )


@pytest.mark.parametrize("word", ["off", "OFF", "0", "none"])
def test_reviews_can_still_be_switched_off_by_a_variable(run, word):
    ran = run("review", "--status", EVOLVABLE_REVIEW=word)
    assert "off (EVOLVABLE_REVIEW=off)" in ran.out and ran.err == ""


def test_an_empty_variable_is_not_set(run):
    assert run("list", **dict.fromkeys(VALUES, "")).err == ""


@pytest.mark.process
def test_a_server_says_it_once_in_its_log_and_a_hook_says_nothing(run):
    env = {**run.environment, "EVOLVABLE_FITS": "much"}
    served = run.process("serve", env=env)
    assert (
        served.code == 0
        and served.err.count("EVOLVABLE_FITS is no longer") == 1
        and served.out == ""
    )

    hook = "from evolvable_server.hooks.command import main; main()"
    command = [sys.executable, "-P", "-c", hook, "Stop", "claude-code"]
    ran = subprocess.run(command, input=b"{}", capture_output=True, env=env, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, b"") and b"EVOLVABLE_FITS" not in ran.stderr
