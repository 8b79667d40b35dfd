"""A plugin in a distribution of its own: the example of the how-to page, installed by pip, and a
plugin that fails.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
TASK = {
    "id": "fr",
    "prompt": "Capital of France?",
    "scorer": {
        "type": "one_of",
        "args": {"choices": ["Paris", "Paname"], "good": ["Paname"], "bad": ["Rome"]},
    },
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The folder that pip installed the example into."""
    place = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "examples/plugin", place / "source")
    options = (
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--target",
        place / "packages",
    )
    subprocess.run([sys.executable, "-m", "pip", "install", *options, place / "source"], check=True)
    return place / "packages"


def run(packages: Path, home: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(packages),
        "EVOLVABLE_HOME": str(home / "library"),
        "HOME": str(home),
    }
    command = [sys.executable, "-m", "evolvable_server", *words]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=home, timeout=120
    )


def test_its_command_runs_and_stands_in_the_help(installed, tmp_path):
    text = "---\nname: csv\ndescription: Reads CSV.\n---\n\nOne two three.\n"
    with Library.open(tmp_path / "library", create=True) as library:
        files = {"SKILL.md": text}
        edit.update_resource(
            library, Caller(Actor.HUMAN), Ref.parse("csv"), "made", files=files, create=True
        )

    assert run(installed, tmp_path, "words").stdout.split() == ["skill:csv", "10"]
    assert "words" in run(installed, tmp_path, "help", "--all").stdout


def test_its_client_is_one_that_connect_knows(installed, tmp_path):
    done = json.loads(run(installed, tmp_path, "connect", "example", "--dry-run", "--json").stdout)
    refused = run(Path("/nowhere"), tmp_path, "connect", "example", "--dry-run")

    assert done["path"] == str(tmp_path / ".example/mcp.json")
    assert refused.returncode == 2 and "example" in refused.stderr


def test_its_client_has_a_folder_of_skills_that_checkout_writes(installed, tmp_path, monkeypatch):
    evolvable = CommandLine(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    evolvable.save(evolvable.root / "own", "csv", skill_text("csv"))
    evolvable("init", evolvable.root / "own")

    written = evolvable.on_terminal("checkout", "example")
    other = evolvable.on_terminal("checkout", "exampel")

    assert (evolvable.user / ".example/skills/csv/SKILL.md").is_file(), written
    said = " ".join(other.split())
    assert "Name claude-code, " in said and ", example, " in said and "or a folder" in said


def test_its_scorer_scores_the_known_answers_of_a_task(installed, tmp_path):
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK))
    with_plugin = run(installed, tmp_path, "taskset", "check", tmp_path).stdout
    without = run(Path("/nowhere"), tmp_path, "taskset", "check", tmp_path)

    assert "no scorer" not in with_plugin and "no tasks in val" in with_plugin
    assert "no scorer 'one_of'" in without.stdout + without.stderr


def broken_plugin(place: Path, text: str) -> Path:
    """A folder that holds an installed plugin with this text."""
    (place / "broken-1.0.dist-info").mkdir(parents=True)
    (place / "broken.py").write_text(text)
    (place / "broken-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n"
    )
    (place / "broken-1.0.dist-info/entry_points.txt").write_text("[evolvable]\nbroken = broken\n")
    return place


def test_a_plugin_that_fails_is_left_out_with_a_warning(tmp_path):
    broken = broken_plugin(tmp_path / "packages", "raise RuntimeError('no')\n")

    done = run(broken, tmp_path, "help", "--all")

    assert done.returncode == 0 and "find" in done.stdout
    assert "plugin broken was left out" in done.stderr and "RuntimeError: no" in done.stderr


FAILS = """
from evolvable_server.plugins import hookimpl


@hookimpl
def {hook}({arguments}):
    raise TypeError("no such field")
"""


@pytest.mark.parametrize(
    ("hook", "arguments", "words"),
    [
        ("clients", "", ("connect", "codex", "--dry-run")),
        ("clients", "", ("uninstall", "--dry-run")),
        ("commands", "", ("word",)),
        ("doctor_checks", "config", ("doctor",)),
        ("scorers", "", ("taskset", "check", ".")),
    ],
)
def test_a_hook_that_fails_adds_nothing_and_the_command_goes_on(hook, arguments, words, tmp_path):
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK))
    with Library.open(tmp_path / "library", create=True):
        pass
    without = run(Path("/nowhere"), tmp_path, *words)
    broken = broken_plugin(tmp_path / "packages", FAILS.format(hook=hook, arguments=arguments))

    done = run(broken, tmp_path, *words)

    assert "Traceback" not in done.stderr and done.returncode == without.returncode
    assert done.stderr.count("The plugin broken adds no") == 1
    assert "TypeError: no such field" in done.stderr
