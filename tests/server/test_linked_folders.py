"""Folders whose skills are links, as installers of skills and managers of dotfiles lay them, through the commands."""

import sys
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a symbolic link needs a right of its own there")


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


def installed(run: CommandLine, home: Path, *names: str) -> Path:
    """Lay skills out as `npx skills add` does; return the folder with the links."""
    links = home / ".claude/skills"
    links.mkdir(parents=True, exist_ok=True)
    for name in names:
        run.save(home / ".agents/skills", name, skill_text(name))
        (links / name).symlink_to(f"../../.agents/skills/{name}")
    return links


def refs(run: CommandLine) -> list[str]:
    return [one["ref"] for one in run("list", "--json").json["resources"]]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_links_between_folders_of_one_command_count_in_either_order(run, order):
    both = [installed(run, run.user, "alpha", "beta"), run.user / ".agents/skills"]
    made = run("init", *(both[number] for number in order), "--json").json["folders"]
    assert [one["refused"] for one in made] == [[], []]
    assert sorted(len(one["taken"]) for one in made) == [0, 2] and refs(run) == ["skill:alpha", "skill:beta"]


def test_init_without_folders_takes_in_what_an_installer_laid_in_the_home_folder_and_in_a_project(run, monkeypatch):
    installed(run, run.user, "alpha")
    installed(run, run.project, "beta")
    (run.project / ".git").mkdir()
    monkeypatch.chdir(run.project)
    made = run("init", "--yes", "--json").json["folders"]
    assert [one["refused"] for one in made] == [[]] * 4
    assert sorted(refs(run)) == ["skill:alpha", "skill:project/beta"]
