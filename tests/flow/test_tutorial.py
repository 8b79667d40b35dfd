"""The tutorial is true: each of its commands is run after `setup`, as a person at a terminal."""

import importlib.util
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from command_line import skill_text

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

OWN = {
    ".claude/skills/pdf": "Merge, split and fill PDF forms.",
    ".claude/skills/csv": "Clean and summarise CSV tables.",
    ".codex/skills/deploy": "Deploy the shop to the staging server.",
}
"""What a reader with skills has: folder in the home -> description."""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home folder with a path as short as a person's: lines of a terminal break by
    their length.
    """
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as name:
        yield Path(name)


def make_pictures() -> ModuleType:
    """The program that runs the page; it belongs to no package."""
    spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def follow(home: Path) -> dict[str, list[str]]:
    """Runs `setup` and then every command of the page; returns what each block printed, without
    colours.
    """
    pictures = make_pictures()
    printed = {}
    for number, scene in enumerate([pictures.INSTALLED, *pictures.read_scenes(pictures.TUTORIAL)]):
        ran = [pictures.run_on_terminal(command, home) for command in scene.commands]
        outputs = [click.unstyle(output) for _, output in ran]
        assert [code for code, _ in ran] == [0] * len(ran), (scene, outputs)
        printed[scene.name or str(number)] = outputs
    return printed


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="needs a terminal")
@pytest.mark.parametrize("own", [{}, OWN], ids=["without-skills", "with-skills-in-two-folders"])
def test_every_step_of_the_tutorial_comes_true_after_setup(own, home):
    for folder, description in own.items():
        (home / folder).mkdir(parents=True)
        text = skill_text(Path(folder).name, description)
        (home / folder / "SKILL.md").write_text(text, encoding="utf-8")

    printed = follow(home)

    first = (
        f'find_skill("{OWN[".claude/skills/csv"]}"): skill:csv'
        if own
        else "Nothing was imported or connected."
    )
    assert first in " ".join(printed["0"][0].split())
    assert (
        "Imported from " in printed["setup"][0] and "skill:minutes-style@1" in printed["setup"][0]
    )
    assert "Claude Code works: its server answered" in printed["setup"][0]
    assert printed["find"][0].startswith("skill:minutes-style@1")
    assert printed["find"][1].strip() == "Nothing in the library fits this task."
    assert "+- Name the next meeting in the last line." in printed["edit"][-1]
    assert "skill:minutes-style is now version 3" in printed["update"][0]
    assert "your agent (Claude Code) changed line" in " ".join(printed["update"][1].split())
    assert "agent (Claude Code)" in printed["undo"][1]
    assert "restored: skill:minutes-style@4" in printed["undo"][0]
    assert "in at most 60 characters" in printed["undo"][-1]
    assert "skill:minutes-style is now version 5" in printed["inbox"][-1]


def test_the_tutorial_begins_with_the_first_command_of_the_readme():
    pages = [
        (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tutorial.md")
    ]
    readme, tutorial = (
        re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0].splitlines() for page in pages
    )

    assert tutorial == [*readme, "source .venv/bin/activate"]


def test_each_picture_of_a_page_exists_and_loads_nothing_from_elsewhere():
    named = {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"pictures/([a-z-]+\.svg)", page.read_text("utf-8"))
    }
    assert named == {path.name for path in (DOCS / "pictures").glob("*.svg")}
    assert [
        name
        for name in sorted(named)
        if "url(http" in (DOCS / "pictures" / name).read_text("utf-8")
    ] == []
