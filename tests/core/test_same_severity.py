"""What `init` imports with a warning is refused at no other door: archives, remotes, proposals,
edits of a person.
"""

import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

ODD = {
    "model": skill_text("model", description='"Checks the file <model>.json. Use for models."'),
    "silent": "---\nname: silent\n---\n\nDo it.\n",
    "bare": "# Bare\n\nDo it.\n",
    "twice": "---\nname: twice\nname: twice\ndescription: Does it twice.\n---\n\nDo it.\n",
    "long": skill_text("long", description="Works with long texts. " * 60),
}


@pytest.fixture
def evolvable(tmp_path: Path) -> CommandLine:
    """A machine whose library holds skills that break the specification, taken in from the person's
    own folder.
    """
    made = CommandLine(tmp_path)
    for name, text in ODD.items():
        made.save(made.user / ".claude/skills", name, text)
    made("init", made.user / ".claude/skills")
    assert names(made) == sorted(ODD)
    return made


def names(evolvable: CommandLine, **env: str) -> list[str]:
    return sorted(
        one["ref"].removeprefix("skill:")
        for one in evolvable("list", "--json", **env).json["resources"]
    )


@pytest.mark.parametrize("form", ["all.zip", "all.json", "all"])
def test_an_export_is_imported_whole_into_an_empty_library(
    evolvable: CommandLine, form: str
) -> None:
    second = {"EVOLVABLE_HOME": str(evolvable.root / "second")}
    evolvable("export", evolvable.root / form)
    evolvable("import", evolvable.root / form, stdin="y\n", **second)
    assert names(evolvable, **second) == sorted(ODD)


@pytest.mark.process
def test_a_remote_brings_them_to_another_library(evolvable: CommandLine) -> None:
    second, bare = {"EVOLVABLE_HOME": str(evolvable.root / "second")}, evolvable.root / "origin.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", bare], check=True)
    evolvable("remote", "add", "origin", bare)
    evolvable("push")
    evolvable("clone", bare, "--yes", **second)
    assert names(evolvable, **second) == sorted(ODD)


@pytest.mark.process
def test_what_waits_of_an_import_without_a_terminal_can_be_approved(evolvable: CommandLine) -> None:
    second = {"EVOLVABLE_HOME": str(evolvable.root / "second")}
    evolvable("export", evolvable.root / "all.zip")
    evolvable.person = False
    evolvable("import", evolvable.root / "all.zip", code=4, **second)
    evolvable.person = True
    for number in range(1, len(ODD) + 1):
        evolvable("inbox", "approve", number, **second)
    assert names(evolvable, **second) == sorted(ODD)


@pytest.mark.parametrize("name", ODD)
def test_a_person_writes_and_restores_such_a_text_and_an_agent_changes_it(
    evolvable: CommandLine, name: str
) -> None:
    text = ("--file", "SKILL.md=-", "-m", "as it was")
    evolvable("update", f"new-{name}", *text, "--create", stdin=ODD[name])
    evolvable("update", name, "--file", "SKILL.md=-", "-m", "sound", stdin=skill_text(name))
    evolvable("restore", f"{name}@1", "-m", "back")
    evolvable.person = False
    last = ODD[name].rstrip().rpartition("\n")[2]
    evolvable("update", name, "--edit", "SKILL.md", last, f"{last} Look twice.", "-m", "more")


@pytest.mark.parametrize("name", ["bare", "twice"])
def test_an_agent_may_not_write_a_new_head_that_programs_read_differently(
    evolvable: CommandLine, name: str
) -> None:
    evolvable.person = False
    refused = evolvable(
        "update",
        f"new-{name}",
        "--file",
        "SKILL.md=-",
        "--create",
        "-m",
        "x",
        stdin=ODD[name],
        code=1,
    )
    assert (
        "cannot be stored" in refused.err
        or "frontmatter" in refused.err
        or "more than once" in refused.err
    )


def test_an_agent_may_write_what_is_only_worth_a_warning(evolvable: CommandLine) -> None:
    evolvable.person = False
    evolvable(
        "update", "new-model", "--file", "SKILL.md=-", "--create", "-m", "x", stdin=ODD["model"]
    )
    assert "new-model" in names(evolvable)


def test_nobody_adds_a_file_that_a_version_leaves_out(evolvable: CommandLine) -> None:
    refused = evolvable("update", "model", "--file", f".DS_Store={__file__}", "-m", "x", code=1).err
    assert "left out of every version" in refused
