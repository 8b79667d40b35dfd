"""The example of docs/solutions.md, as a person at a terminal tells it."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

PAGE = Path(__file__).parents[2] / "docs/solutions.md"

pytestmark = pytest.mark.process


def test_the_example_ends_as_the_page_says_and_its_report_has_the_rounds(
    tmp_path, monkeypatch
) -> None:
    person = CommandLine(tmp_path)
    monkeypatch.chdir(person.project)
    story = PAGE.read_text(encoding="utf-8").split("```")[1]
    for command, shown in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", story, re.MULTILINE):
        words = shlex.split(command)
        if words[0] == "cat":
            Path(words[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(words[1]).write_text(shown, encoding="utf-8")
        elif words[0] == "python3":
            subprocess.run([sys.executable, *words[1:]], check=True)
        else:
            asked = "y\n" if words[:3] == ["evolvable", "evolve", "start"] else None
            ran = person(
                *(sys.executable if word == "python3" else word for word in words[1:]), stdin=asked
            )
    assert "PROMOTE" in ran.out and "10 of 10 tasks came out better" in ran.out
    shown = PAGE.read_text(encoding="utf-8").split("```")[3].strip().splitlines()
    lines = [line.split() for line in ran.out.splitlines()]
    told = [*lines, *(line[:-1] for line in lines)]
    assert [line for line in shown if line.split() not in told] == [], (
        "as printed, of the table without the seconds"
    )
    facts = json.loads(next(person.home.rglob("report.json")).read_text(encoding="utf-8"))
    found = {(row["arm"], row["split"], row["round"]): row for row in facts["rounds"]}
    assert {place: row["mean"] for place, row in found.items() if place[1] == "test"} == {
        ("base", "test", "0"): 0.0,
        ("base", "test", "final"): 0.0,
        ("c1", "test", "0"): 0.0,
        ("c1", "test", "1"): 1.0,
        ("c1", "test", "final"): 1.0,
    }
    assert [found["c1", "test", name]["calls"] for name in ("0", "1", "final")] == [10, 20, 30]
    assert "--rounds 1" in facts["provenance"]["command"]
    assert "solution_only" in facts["provenance"]["command"]
    nothing = person("evolve", "adopt", stdin="y\n", code=1)
    assert (
        "has nothing to adopt" in nothing.err and "Make this live?" not in nothing.out + nothing.err
    )
    assert "evolve adopt" not in person("evolve", "status").out
    refused = person(
        "evolve", "start", "environment:dates", "--mode", "joint", "--executor", "author", code=1
    )
    assert "no rounds are given" in refused.err
