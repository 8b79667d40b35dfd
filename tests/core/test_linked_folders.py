"""Folders whose skills are links, as installers of skills and managers of dotfiles lay them,
through the commands.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="a symbolic link needs a right of its own there"
)


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
    assert sorted(len(one["taken"]) for one in made) == [0, 2] and refs(run) == [
        "skill:alpha",
        "skill:beta",
    ]


def test_init_without_folders_takes_in_what_an_installer_laid_in_the_home_folder_and_in_a_project(
    run, monkeypatch
):
    installed(run, run.user, "alpha")
    installed(run, run.project, "beta")
    (run.project / ".git").mkdir()
    monkeypatch.chdir(run.project)
    made = run("init", "--yes", "--json").json["folders"]
    assert [one["refused"] for one in made] == [[]] * 4
    assert sorted(refs(run)) == ["skill:alpha", "skill:project/beta"]


def generation(run: CommandLine, name: str, **skills: str) -> Path:
    """Make a folder of skills with these bodies, as a manager of dotfiles keeps one generation."""
    for skill, body in skills.items():
        run.save(run.root / name / "skills", skill, skill_text(skill, body=body))
    return run.root / name / "skills"


def turn(link: Path, target: Path) -> Path:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    return link


def state(run: CommandLine) -> str:
    """What `folders`, `status` and `doctor` say of the only folder, which is the same."""
    (folder,) = run("folders", "--json").json["folders"]
    (line,) = run("status", "--json").json["folders"]
    health = run("doctor", "--json", code=None).json
    assert health["folders"] == [folder]
    said = folder["obstacle"] or folder["state"]
    assert line.replace(", `evolvable doctor` says why", "").endswith(f": {said}")
    return str(said)


@pytest.mark.process
def test_a_folder_whose_link_was_turned_says_so_and_goes_on_with_its_resources_after_init(run):
    first, second = (
        generation(run, "gen1", alpha="old", beta="old"),
        generation(run, "gen2", alpha="new", gamma="new"),
    )
    link = turn(run.user / ".claude/skills", first)
    run("init", "--yes")

    turn(link, second)

    said = state(run)
    assert said.startswith(f"{link} leads to {second} now, not to {first}")
    assert f"`evolvable init {link}`" in said
    assert "leads to" in run("sync").out
    run("update", "alpha", "--file", f"SKILL.md={second}/gamma/SKILL.md", "--reason", "x")
    assert "old" in (first / "alpha/SKILL.md").read_text()

    run("undo", run("log", "--json").json["operations"][0]["operation"])
    run("init", link)

    assert refs(run) == ["skill:alpha", "skill:gamma"] and "new" in run("load", "alpha").out
    assert state(run) == "in sync"
    assert [one["path"] for one in run("folders", "--json").json["folders"]] == [str(second)]
    turn(link, first)
    run("init", "--yes")
    assert refs(run) == ["skill:alpha", "skill:beta"] and "old" in run("load", "alpha").out


def test_a_folder_that_was_named_by_its_own_path_too_is_followed_wherever_a_link_leads(run):
    first, second = generation(run, "gen1", alpha="old"), generation(run, "gen2", alpha="new")
    link = turn(run.user / ".claude/skills", first)
    run("init", link)
    run("init", first)

    turn(link, second)
    run.save(first, "alpha", skill_text("alpha", body="edited"))
    run("sync")

    assert "edited" in run("load", "alpha").out
    assert run("folders", "--json").json["folders"][0]["state"] == "in sync"


def test_a_link_that_is_gone_stops_the_folder_and_removes_nothing(run):
    first = generation(run, "gen1", alpha="old")
    link = turn(run.user / ".claude/skills", first)
    run("init", link)
    link.unlink()
    (first / "alpha/SKILL.md").unlink()
    (first / "alpha").rmdir()

    assert "leads nowhere now" in run("sync").out and refs(run) == ["skill:alpha"]


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"a": 1}', '{"/a": ["b", 1, "\\u0000"]}', "[" * 100_000]
)
def test_names_of_folders_that_are_damaged_are_passed_over(run, text):
    skills = generation(run, "gen1", alpha="old")
    run("init", skills)
    (run.home / "folder-names.json").write_text(text)

    run("sync")
    run("init", skills)

    assert run("folders", "--json").json["folders"][0]["state"] == "in sync"


@pytest.mark.process
def test_a_read_only_folder_is_not_written_and_says_so(run):
    skills = generation(run, "store", alpha="old")
    run("init", skills)
    for path in (skills / "alpha", skills, skills.parent):
        path.chmod(0o555)
    try:
        said = run(
            "update",
            "alpha",
            "--file",
            f"SKILL.md={run.save(run.root, 'new', skill_text('alpha'))}/SKILL.md",
            "--reason",
            "x",
        )
        assert "alpha is read-only, so skill:alpha " in said.out + said.err
        assert state(run) == "1 behind"
        assert f"{skills} is read-only and behind in alpha" in run("doctor", code=4).out
        assert sorted(path.name for path in skills.parent.iterdir()) == ["skills"]
        assert "old" in (skills / "alpha/SKILL.md").read_text()
    finally:
        for path in (skills.parent, skills, skills / "alpha"):
            path.chmod(0o755)


@pytest.mark.process
def test_status_folders_and_doctor_agree_on_a_folder_with_every_state(run):
    """Each state of a directory is in all three, in one number and with the same reasons."""
    skills = run.root / "skills"
    for name in ("same", "behind", "changed", "gone", "large"):
        run.save(skills, name, skill_text(name))
    (skills / "large/data").write_bytes(b"x")
    run("init", skills)
    new = run.save(run.root, "new", skill_text("behind", body="two"))
    (skills / "behind").rename(run.root / "away")
    run("update", "behind", "--file", f"SKILL.md={new}/SKILL.md", "--reason", "x")
    (run.root / "away").rename(skills / "behind")
    run.save(skills, "changed", skill_text("changed", body="by hand"))
    (skills / "gone/SKILL.md").unlink()
    (skills / "gone").rmdir()
    (skills / "large/data").write_bytes(b"x" * 6_000_000)
    run.save(skills, "bad", '---\nname: bad\ndescription: "a\\u0080b"\n---\n')
    (skills / "nowhere").symlink_to("../nothing")
    run.save(run.root / "other", "linked", skill_text("linked"))
    (skills / "linked").symlink_to("../other/linked")

    (folder,) = run("folders", "--json").json["folders"]
    status, health = run("status", "--json").json, run("doctor", "--json", code=4).json
    table = run("folders").out

    assert [one["directory"] for one in folder["not_imported"]] == [
        "bad",
        "large",
        "linked",
        "nowhere",
    ]
    assert (
        folder["behind"] == ["behind"]
        and folder["changed"] == ["changed"]
        and folder["missing"] == ["gone"]
    )
    assert folder["state"] == "1 behind, 4 not imported, 1 changed on disk, 1 not there"
    assert folder["state"] in " ".join(table.split())
    (line,) = status["folders"]
    assert line.startswith(f"{skills} (user): 1 behind; ") and line.endswith("; 1 not there")
    assert "4 not imported (bad, large, linked, nowhere), `evolvable doctor`" in line
    assert "1 changed on disk, `evolvable diff`" in line
    assert health["folders"] == [folder]
    assert health["refused"] == [
        {"directory": f"{skills}/{one['directory']}", "problems": one["problems"]}
        for one in folder["not_imported"]
    ]
    told = [one["what"] for one in health["problems"] if str(skills) in one["what"]]
    assert len(told) == status["problems"] == 5 and status["worst"].startswith(told[0])
    assert sum(str(skills) in note for note in health["notes"]) == 2


@pytest.mark.process
def test_a_linked_file_of_a_repository_comes_with_the_skill_and_an_edit_of_it_is_the_persons(
    run, monkeypatch
):
    skills = run.project / ".claude/skills"
    pdf = run.save(skills, "pdf", skill_text("pdf"))
    shared = run.save(run.project, "shared", "Shared forms.\n", "forms.md") / "forms.md"
    (pdf / "forms.md").symlink_to("../../../shared/forms.md")
    (run.user / ".ssh").mkdir()
    (run.user / ".ssh/config").write_text("Host private\n")
    (pdf / "config.md").symlink_to(run.user / ".ssh/config")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@a.test", "-C", str(run.project)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.chdir(run.project)

    run("init", skills)
    assert "Shared forms." in run("get", "pdf", "--path", "forms.md").out
    assert (
        "private"
        not in run("export", run.root / "all.json").out + (run.root / "all.json").read_text()
    )
    assert "config.md: a symlink out of" in run("doctor", "--verbose", code=None).out

    shared.write_text("Edited by hand.\n")
    run("sync")
    past = run("history", "pdf", "--json").json["versions"]
    assert [one["version"] for one in past] == [2, 1] and past[0]["principal"] != "repository"
