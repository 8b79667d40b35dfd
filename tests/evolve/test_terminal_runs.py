"""Tables of sessions, of the trash, of collections, of task sets and of runs, compared with
tests/data/terminal.
"""

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path

import pytest
from ags_place import AgsPlace, CountedBackend, done, host_of, item, plan_then_end, save_agent
from command_line import CommandLine, skill_text
from evolve_runs import program, running, scripted, task
from golden_tables import assert_as_agreed
from transcripts import Run, Says, User, write_claude_code, write_codex

from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.run_context import RunStopped
from evolvable_evolve.evolution.task import Split
from evolvable_store.workingcopy.openat import open_real
from evolvable_store.workingcopy.trash import Trash
from evolvable_tools.library import Library

LONG = "/home/ada-king/work/customers/acme-corporation/日本語の請求書/invoices-and-reminders"

KEPT = (
    ["sessions"],
    ["trash", "list"],
    ["collection"],
    ["collection", "show", "work"],
    ["taskset", "check", "sums.jsonl"],
    ["taskset", "split", "sums.jsonl"],
)
"""What is kept beside resources."""

RUNS = (
    ["evolve", "status"],
    ["evolve", "status", "20260101-000000-abcd"],
    ["evolve", "status", "--all"],
    ["evolve", "opportunities"],
    ["ags", "status"],
    ["ags", "status", "--since", "1000"],
)
"""Runs of evolution, and of agents."""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the golden files have POSIX paths")


def put_into_trash(machine: CommandLine, name: str, number: int, at: float) -> None:
    """Puts a directory into the trash, as a removal does; it says that it lay in a folder of a home
    directory.
    """
    folder = machine.root / "aside"
    for each in range(number):
        machine.save(folder, name, "x" * 1_000, f"node_modules/{each}.js")
    with open_real(folder) as opened:
        Trash(machine.home).put(opened / name, Path("/home/ada-king/.claude/skills"), name, at)


ASKED = (
    *(
        "Count the legs of a spider.",
        "How old must a voter be?",
        "In which month does winter begin?",
        "五と二の和は？",
    ),
    *(
        "Which prime comes after eleven?",
        "Round pi to a whole.",
        "Tell the players of a chess game.",
        "Zähle die Finger.",
    ),
    *(
        "Wheels on a tricycle?",
        "What number do all clocks begin with?",
        "Combien de jours a la semaine ?",
        "Name a square.",
    ),
)
"""Questions that are no two of one kind."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A machine with transcripts, trash, a used collection and a task set."""
    line = CommandLine(tmp_path_factory.mktemp("kept"))
    for name in ("golang-error-handling", "golang-error-wrapping", "pdf"):
        line.save(
            line.user / ".claude/skills",
            name,
            skill_text(name, f"Works with {name}, 日本語 and 👩\u200d💻."),
        )
    line("init", line.user / ".claude/skills", "--yes")
    talk = [User("Fix the test"), Run("pytest -q", "1 failed", code=1), Says("Fixed.")]
    write_claude_code(line.user, talk, session="first", project=LONG)
    write_codex(line.user, [User("再計算して"), *talk], session="second")
    put_into_trash(line, "a-skill-that-was-taken-away-with-its-modules", 3, time.time() - 60)
    put_into_trash(line, "日本語", 1, time.time())
    line("collection", "add", "work", "golang-error-handling", "pdf")
    line("collection", "add", "a-collection-with-a-name-that-is-long", "golang-error-wrapping")
    line("collection", "use", "work")
    tasks = [
        {
            "id": f"task-{number}",
            "prompt": asked,
            "expected": str(number),
            "category": "日本語の足し算",
        }
        for number, asked in enumerate(ASKED)
    ]
    (line.project / "sums.jsonl").write_text("\n".join(map(json.dumps, tasks)), encoding="utf-8")
    return line


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A machine with a finished run of evolution, one that was stopped, and a finished run of
    agents.
    """
    line = CommandLine(tmp_path_factory.mktemp("driven"))
    with Library.open(line.home, create=True) as library:
        save_agent(library, "clerk-for-letters-with-a-long-name", "You are the clerk.")
        place = AgsPlace(library, host_of())
        agent = "agent:clerk-for-letters-with-a-long-name"
        items = [
            item(
                "collect-the-addresses",
                agent=agent,
                subtask="Collect the addresses of 日本語 customers",
            ),
            item("letter", "collect-the-addresses", agent=agent),
        ]
        place.run(plan_then_end(*items), CountedBackend(done), agents=[agent])
    splits = {split: [task(split, n, "needs:iso") for n in range(6)] for split in Split}
    for name, stopped in (("20260101-000000-abcd", False), ("20260102-000000-abcd", True)):
        settings = RunSettings("environment:made-up", program=(), iterations=1, test_repeats=1)
        folder = line.home / "evolve" / name
        proposals = scripted([("Say in which format dates are, 日本語 too", ["rule: iso"])])
        run = running(
            folder, program(), proposals, splits, settings, stop=lambda stopped=stopped: stopped
        )
        with run as made, contextlib.suppress(RunStopped):
            asyncio.run(run_phases(made))
    return line


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_tables_of_what_is_kept_are_as_they_were_agreed(kept, columns, monkeypatch):
    monkeypatch.chdir(kept.project)
    assert_as_agreed(kept, KEPT, columns, "kept")


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_tables_of_runs_are_as_they_were_agreed(driven, columns, monkeypatch):
    monkeypatch.chdir(driven.project)
    assert_as_agreed(driven, RUNS, columns, "runs")
