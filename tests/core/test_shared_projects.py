"""Projects of a shared library: each member says once which project a folder is, and no path leaves
a machine.
"""

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from postgres_place import address_home

from evolvable_store.store import Store
from evolvable_store.workingcopy.project_map import PROJECTS_FILE
from evolvable_store.workingcopy.shared_marks import plain_address, shared_marks

pytestmark = pytest.mark.process

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@a.test"]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True)


class Member:
    """A member's machine, with a clone of the team's repository."""

    def __init__(self, root: Path, project: str) -> None:
        root.mkdir()
        self.run = CommandLine(root)
        address_home(self.run.home, project)
        self.app = self.run.user / "work/app"

    def init(self, *more: object, answer: str | None = None) -> str:
        # After the question on projects the folder is taken in.
        said = f"{answer}y\n" if answer is not None else None
        ran = self.run(
            "init", self.app / ".claude/skills", *more, stdin=said, CLAUDE_PROJECT_DIR=str(self.app)
        )
        return ran.out + ran.err

    def scopes(self) -> list[str]:
        return [one["scope"] for one in self.run("folders", "--json").json["folders"]]


@pytest.fixture
def members(tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    """Two members whose folders have one name; the second one has a clone of the first one's
    repository.
    """
    project = "s" + hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]
    one, two = Member(tmp_path / "one", project), Member(tmp_path / "two", project)
    one.run.save(one.app / ".claude/skills", "deploy", skill_text("deploy", "Deploys.", "First."))
    git(one.app, "init", "-q")
    git(one.app, "add", "-A")
    git(one.app, "commit", "-qm", "first")
    git(one.app, "remote", "add", "origin", "https://ada:secret@git.example/team/app.git")
    two.app.parent.mkdir(parents=True)
    git(two.app.parent, "clone", "-q", str(one.app), "app")
    yield one, two


def test_a_clone_of_a_members_repository_is_offered_as_the_same_project(
    members: tuple[Member, Member],
) -> None:
    one, two = members
    one.init()
    said = two.init(answer="y\n")
    assert f"{two.app}: is it the project app of this library?" in said
    assert one.scopes() == two.scopes() == ["app"]
    assert "is it the project" not in two.init()


def test_a_member_who_says_no_has_a_project_of_the_same_name_with_a_number(
    members: tuple[Member, Member],
) -> None:
    one, two = members
    one.init()
    said = two.init(answer="n\n")
    assert "evolvable init --scope app" in said
    assert two.scopes() == ["app-2"]


def test_without_a_person_nobody_joins_a_members_project(members: tuple[Member, Member]) -> None:
    one, two = members
    one.init()
    two.run.person = False
    assert "evolvable init --scope app" in two.init("--yes")
    assert two.scopes() == ["app-2"]


def test_another_project_of_the_same_name_is_named_and_not_joined(
    members: tuple[Member, Member],
) -> None:
    one, two = members
    one.init()
    other = two.run.user / "other/app"
    two.run.save(other / ".claude/skills", "deploy", skill_text("deploy", "Deploys another thing."))
    said = two.run("init", other / ".claude/skills", CLAUDE_PROJECT_DIR=str(other)).err
    assert "This library has a project app" in said and "is it the project" not in said
    assert two.scopes() == ["app-2"]
    listed = two.run("list", "--json", CLAUDE_PROJECT_DIR=str(other)).json["resources"]
    assert [one["ref"] for one in listed] == ["skill:app-2/deploy"]


def test_what_one_member_saves_reaches_the_folder_of_the_other_in_the_same_project(
    members: tuple[Member, Member],
) -> None:
    one, two = members
    one.init()
    two.init("--scope", "app")
    assert two.scopes() == ["app"]
    (one.app / ".claude/skills/deploy/SKILL.md").write_text(
        skill_text("deploy", "Deploys.", "Second."), "utf-8"
    )
    one.run("sync")
    two.run("sync")
    assert "Second." in (two.app / ".claude/skills/deploy/SKILL.md").read_text(encoding="utf-8")


def test_no_path_and_no_address_stand_in_the_shared_library(members: tuple[Member, Member]) -> None:
    one, _ = members
    one.init()
    with Store.open(one.run.home) as store:
        with store.backend.reading() as db:  # type: ignore[attr-defined]
            rows = db.execute("SELECT scope, mark FROM project_mark").fetchall()
        assert {scope for scope, _ in rows} == {"app"} and {
            mark for _, mark in rows
        } == shared_marks(one.app)
    assert len(rows) == 2 and all(len(mark) == 32 and int(mark, 16) for _, mark in rows)


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("https://ada:secret@Git.example/team/app.git", "git.example/team/app"),
        ("git@git.example:team/app.git", "git.example/team/app"),
        ("ssh://git@git.example:22/team/app", "git.example/team/app"),
        ("/home/ada/app.git", ""),
        ("file:///home/ada/app", ""),
        ("C:\\work\\app", ""),
        ("https://[", ""),
        ("", ""),
    ],
)
def test_an_address_is_compared_without_how_it_is_reached(address: str, plain: str) -> None:
    assert plain_address(address) == plain


def test_a_members_projects_are_separated_without_touching_those_of_others(
    members: tuple[Member, Member],
) -> None:
    """As versions made it that knew a project by its folder's name: two folders of one member
    shared a scope.
    """
    one, two = members
    other = one.run.user / "other/app"
    one.run.save(other / ".claude/skills", "test", skill_text("test", "Tests."))
    one.init()
    one.run("init", other / ".claude/skills", "--scope", "app")
    two.init("--scope", "app")
    (one.run.home / PROJECTS_FILE).unlink()
    assert sorted(one.scopes()) == ["app", "app-2"] and two.scopes() == ["app"]
    listed = one.run("list", "--json", CLAUDE_PROJECT_DIR=str(other)).json["resources"]
    assert [found["ref"] for found in listed] == ["skill:app-2/test"]
    listed = two.run("list", "--json", CLAUDE_PROJECT_DIR=str(two.app)).json["resources"]
    assert [found["ref"] for found in listed] == ["skill:app/deploy", "skill:app/test"]
    assert one.run("fsck", "--json").json["faults"] == []
