"""A project is the folder that holds a client's skills, whatever its name; tests use the doors that
people have.
"""

import json
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from command_line import CommandLine, skill_text
from mcp import Client, StdioServerParameters

from evolvable_store.workingcopy.project_map import PROJECTS_FILE

pytestmark = pytest.mark.process

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@a.test", "-c", "protocol.file.allow=always"]


def git(folder: Path, *arguments: str) -> str:
    command = [*GIT, *arguments]
    return subprocess.run(
        command, cwd=folder, check=True, capture_output=True, encoding="utf-8"
    ).stdout


class Workplace:
    """A person's machine with projects below their home."""

    def __init__(self, root: Path) -> None:
        self.run = CommandLine(root)
        self.user = self.run.user

    def skill(
        self, project: str, name: str, description: str, folder: str = ".claude/skills"
    ) -> Path:
        text = skill_text(name, description, f"Step of {project}.")
        return self.run.save(self.user / project / folder, name, text)

    def repository(self, project: str) -> Path:
        place = self.user / project
        git(place, "init", "-q")
        git(place, "add", "-A")
        git(place, "commit", "-qm", "first")
        return place

    def init(self, project: str, *more: object, code: int = 0) -> str:
        """Take in the folder of a project's skills; return what was printed."""
        ran = self.at(project, "init", self.user / project / ".claude/skills", *more, code=code)
        return ran.out + ran.err

    def at(self, project: str, *arguments: object, code: int | None = 0):
        return self.run(*arguments, code=code, CLAUDE_PROJECT_DIR=str(self.user / project))

    def loaded(self, project: str, ref: str) -> str:
        ran = self.at(project, "load", ref, code=None)
        return ran.out if ran.code == 0 else ""

    def refs(self, project: str) -> list[str]:
        return [one["ref"] for one in self.at(project, "list", "--json").json["resources"]]

    def trusts(self, project: str) -> dict[str, str]:
        listed = self.at(project, "list", "--json").json["resources"]
        return {one["ref"].rpartition("/")[2]: one["author"] for one in listed}

    def scopes(self) -> dict[str, str]:
        """By the path below the home: the scope of each watched folder."""
        folders = self.run("folders", "--json").json["folders"]
        return {str(Path(one["path"]).relative_to(self.user)): one["scope"] for one in folders}


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def two_of_one_name(work: Workplace) -> None:
    for client in ("client-a", "client-b"):
        work.skill(f"{client}/app", "deploy", f"Deploys to the servers of {client}.")
        work.run.save(
            work.user / client / "app/.claude/skills", "lint", skill_text("lint", "Lints the code.")
        )
        work.init(f"{client}/app")
        work.repository(f"{client}/app")


def test_two_projects_in_folders_of_one_name_neither_see_nor_write_each_others_skills(
    work: Workplace,
) -> None:
    two_of_one_name(work)
    assert work.scopes() == {
        "client-a/app/.claude/skills": "app",
        "client-b/app/.claude/skills": "app-2",
    }
    for own, other in (("client-a", "client-b"), ("client-b", "client-a")):
        assert f"Step of {own}/app." in work.loaded(f"{own}/app", "deploy")
        assert other not in work.at(f"{own}/app", "find", "deploy to the servers").out
    work.at("client-b/app", "update", "deploy", "--edit", "SKILL.md", "Step of", "Second step of")
    with open(
        work.user / "client-a/app/.claude/skills/lint/SKILL.md", "a", encoding="utf-8"
    ) as file:
        file.write("Only for a.\n")
    work.run("sync")
    assert git(work.user / "client-a/app", "status", "--short").split() == [
        "M",
        ".claude/skills/lint/SKILL.md",
    ]
    assert git(work.user / "client-b/app", "status", "--short").split() == [
        "M",
        ".claude/skills/deploy/SKILL.md",
    ]


def test_two_folders_of_one_name_in_one_command_are_two_projects(work: Workplace) -> None:
    work.skill("a/app", "deploy", "Deploys a.")
    work.skill("b/app", "deploy", "Deploys b.")
    work.run("init", work.user / "a/app/.claude/skills", work.user / "b/app/.claude/skills")
    assert set(work.scopes().values()) == {"app", "app-2"}


def test_two_folders_of_one_project_have_one_scope(work: Workplace) -> None:
    work.skill("app", "deploy", "Deploys.")
    work.skill("app", "test", "Tests.", ".agents/skills")
    work.at("app", "init", "--yes")
    assert work.scopes() == {"app/.claude/skills": "app", "app/.agents/skills": "app"}


def test_a_folder_of_agents_belongs_to_the_project_of_the_skills_beside_it(work: Workplace) -> None:
    work.skill("app", "deploy", "Deploys.")
    work.run.save(work.user / "app/.claude", "agents", skill_text("helper", "Helps."), "helper.md")
    work.init("app")
    work.run("init", "--kind", "agent", work.user / "app/.claude/agents")
    assert work.scopes()["app/.claude/agents"] == "app"


def test_the_person_names_a_project(work: Workplace) -> None:
    two_of_one_name(work)
    work.skill("client-c/app", "deploy", "Deploys c.")
    work.init("client-c/app", "--scope", "shop")
    assert work.scopes()["client-c/app/.claude/skills"] == "shop"
    assert work.refs("client-c/app") == ["skill:shop/deploy"]


def test_another_name_for_a_project_takes_its_skills_along_with_their_history(
    work: Workplace,
) -> None:
    two_of_one_name(work)
    work.at("client-b/app", "update", "deploy", "--edit", "SKILL.md", "Step of", "Second step of")
    work.init("client-b/app", "--scope", "shop")
    assert work.refs("client-b/app") == ["skill:shop/deploy", "skill:shop/lint"]
    past = work.at("client-b/app", "history", "deploy", "--json").json["versions"]
    assert [one["version"] for one in past] == [2, 1]
    assert "Second step of" in work.loaded("client-b/app", "deploy")
    assert "shop" not in json.dumps(work.refs("client-a/app"))
    assert work.run("fsck", "--json").json["faults"] == []
    assert (
        work.at("client-b/app", "find", "deploy to the servers", "--json").json["matches"][0]["ref"]
        == "skill:shop/deploy"
    )


def test_a_package_reads_its_own_skills_then_those_of_its_repository(work: Workplace) -> None:
    work.skill("mono", "release", "Releases the whole monorepo.")
    work.skill("mono", "test", "Tests the whole monorepo.")
    for package in ("web", "api"):
        work.skill(f"mono/packages/{package}", "test", f"Tests the package {package}.")
    for project in ("mono", "mono/packages/web", "mono/packages/api"):
        work.init(project)
    work.repository("mono")
    (work.user / "mono/packages/web/src").mkdir()
    for place in ("mono/packages/web", "mono/packages/web/src"):
        assert work.refs(place) == ["skill:mono/release", "skill:web/test"]
        assert "Step of mono/packages/web." in work.loaded(place, "test")
        assert "Step of mono." in work.loaded(place, "release")
        assert "Releases the whole" in work.at(place, "find", "release the whole monorepo").out
    assert "Step of mono/packages/api." in work.loaded("mono/packages/api", "test")
    assert work.refs("mono") == ["skill:mono/release", "skill:mono/test"]


def test_a_package_delegates_to_an_agent_of_its_repository(work: Workplace) -> None:
    work.run.save(
        work.user / "mono/.claude", "agents", skill_text("clerk", "Files papers."), "clerk.md"
    )
    more = "metadata:\n  delegate: agent:clerk\n"
    work.run.save(
        work.user / "mono/web/.claude/skills", "filing", skill_text("filing", "Files.", more=more)
    )
    work.run("init", "--kind", "agent", work.user / "mono/.claude/agents")
    work.init("mono/web")
    work.repository("mono")
    assert "(agent:mono/clerk@1)" in work.at("mono/web", "load", "filing").out
    assert "clerk" not in work.at("mono/web", "doctor", code=None).out


def test_packages_of_one_name_in_two_monorepos_are_two_projects(work: Workplace) -> None:
    for mono in ("one", "two"):
        work.skill(f"{mono}/packages/api", "test", f"Tests the api of {mono}.")
        work.repository(mono)
        work.init(f"{mono}/packages/api")
    assert work.scopes() == {
        "one/packages/api/.claude/skills": "api",
        "two/packages/api/.claude/skills": "api-2",
    }
    assert "Step of two" in work.loaded("two/packages/api", "test")


def test_nothing_above_the_root_of_the_work_tree_is_read(work: Workplace) -> None:
    work.skill("outer", "release", "Releases the outer one.")
    work.init("outer")
    work.skill("outer/app", "test", "Tests.")
    work.repository("outer/app")
    work.init("outer/app")
    assert work.refs("outer/app") == ["skill:app/test"]


def test_without_git_the_nearest_project_alone_is_read(work: Workplace) -> None:
    work.skill("outer", "release", "Releases.")
    work.skill("outer/app", "test", "Tests.")
    work.init("outer")
    work.init("outer/app")
    (work.user / "outer/app/src").mkdir()
    (work.user / "outer/other").mkdir()
    assert work.refs("outer/app/src") == ["skill:app/test"]
    assert work.refs("outer/other") == ["skill:outer/release"]


def test_init_without_folders_finds_the_project_around_the_directory(work: Workplace) -> None:
    work.skill("mono", "release", "Releases.")
    work.skill("mono/packages/web", "test", "Tests.")
    work.repository("mono")
    (work.user / "mono/packages/web/src").mkdir()
    work.at("mono/packages/web/src", "init", "--yes")
    assert work.scopes() == {
        "mono/packages/web/.claude/skills": "web",
        "mono/.claude/skills": "mono",
    }


@pytest.mark.anyio
async def test_a_server_reads_the_chain_of_projects_over_mcp(
    work: Workplace, anyio_backend: str
) -> None:
    work.skill("mono", "release", "Releases the whole monorepo.")
    work.skill("mono/packages/web", "buttons", "Styles the buttons.")
    work.repository("mono")
    work.init("mono")
    work.init("mono/packages/web")
    command = ["-P", "-m", "evolvable_server", "serve"]
    cwd = work.user / "mono/packages/web"
    server = StdioServerParameters(
        command=sys.executable, args=command, env=work.run.environment, cwd=cwd
    )
    with anyio.fail_after(60):
        async with Client(server) as client:
            found = (
                await client.call_tool("find_skill", {"task": "release the whole monorepo"})
            ).structured_content
            loaded = await client.call_tool("load_skill", {"ref": "release"})
            listed = (await client.list_resources()).resources
    assert found is not None and "skill:mono/release" in json.dumps(found)
    assert not loaded.is_error
    assert {"mono/release", "web/buttons"} <= {
        "/".join(str(one.uri).split("/")[2:4]) for one in listed
    }


def test_a_hook_reads_the_projects_of_the_directory_that_it_names(work: Workplace) -> None:
    two_of_one_name(work)
    for client in ("client-a", "client-b"):
        said = {
            "session_id": "s1",
            "hook_event_name": "UserPromptSubmit",
            "cwd": str(work.user / client / "app"),
        }
        said["prompt"] = "Please deploy this to the servers now"
        command = Path(sys.executable).with_name("evolvable-hook")
        ran = subprocess.run(
            [command, "UserPromptSubmit"],
            input=json.dumps(said),
            env=work.run.environment,
            cwd=work.user,
            capture_output=True,
            encoding="utf-8",
        )
        other = {"client-a": "client-b", "client-b": "client-a"}[client]
        assert f"servers of {client}" in ran.stdout and other not in ran.stdout


# Linked work trees


def linked(work: Workplace) -> Path:
    work.skill("app", "deploy", "Deploys the app.")
    main = work.repository("app")
    tree = work.user / "trees/feature"
    git(main, "worktree", "add", "-q", str(tree))
    return tree


def test_a_linked_work_tree_reads_the_project_of_the_main_one_and_is_never_written(
    work: Workplace,
) -> None:
    tree = linked(work)
    work.init("app")
    assert "Step of app." in work.loaded("trees/feature", "deploy")
    work.at("trees/feature", "update", "deploy", "--edit", "SKILL.md", "Step of", "Second step of")
    (tree / ".claude/skills/deploy/SKILL.md").write_text(
        skill_text("deploy", "Hostile."), encoding="utf-8"
    )
    work.run("sync")
    assert "Second step of app." in (work.user / "app/.claude/skills/deploy/SKILL.md").read_text(
        encoding="utf-8"
    )
    assert "Hostile" in (tree / ".claude/skills/deploy/SKILL.md").read_text(encoding="utf-8")
    assert work.refs("trees/feature") == work.refs("app") == ["skill:app/deploy"]


def test_init_takes_in_no_project_of_a_linked_work_tree(work: Workplace) -> None:
    tree = linked(work)
    refused = work.init("trees/feature", code=1)
    assert f"evolvable init {work.user / 'app/.claude/skills'}" in refused
    work.at("trees/feature", "init", "--yes")
    assert work.scopes() == {"app/.claude/skills": "app"}
    assert work.at("trees/feature", "checkout", "codex", "--project", code=1).err
    assert not (tree / ".agents").exists()


def test_a_hostile_git_file_gets_no_skill_of_another_project(work: Workplace) -> None:
    tree = linked(work)
    work.init("app")
    hostile = work.skill("download", "deploy", "Deploys something else.").parents[2]
    (hostile / ".git").write_bytes((tree / ".git").read_bytes())
    assert work.loaded("download", "deploy") == ""
    assert work.refs("download") == []


# Folders that moved, and copies


def test_a_folder_that_moved_keeps_its_project(work: Workplace) -> None:
    two_of_one_name(work)
    (work.user / "client-b/app").rename(work.user / "shop")
    assert work.refs("shop") == ["skill:app-2/deploy", "skill:app-2/lint"]
    assert work.scopes() == {"client-a/app/.claude/skills": "app", "shop/.claude/skills": "app-2"}
    with open(work.user / "shop/.claude/skills/lint/SKILL.md", "a", encoding="utf-8") as file:
        file.write("After the move.\n")
    work.run("sync")
    assert "After the move." in work.loaded("shop", "lint")
    assert "After the move." not in work.loaded("client-a/app", "lint")


def test_a_folder_without_git_that_moved_keeps_its_project(work: Workplace) -> None:
    work.skill("app", "deploy", "Deploys.")
    work.init("app")
    (work.user / "app").rename(work.user / "shop")
    assert work.refs("shop") == ["skill:app/deploy"]


def test_a_monorepo_that_moved_takes_its_packages_along(work: Workplace) -> None:
    work.skill("mono", "release", "Releases.")
    work.skill("mono/packages/web", "test", "Tests.")
    work.repository("mono")
    work.init("mono")
    work.init("mono/packages/web")
    (work.user / "mono").rename(work.user / "renamed")
    assert work.refs("renamed/packages/web") == ["skill:mono/release", "skill:web/test"]
    assert set(work.scopes()) == {"renamed/.claude/skills", "renamed/packages/web/.claude/skills"}


def test_a_repository_that_was_copied_elsewhere_and_deleted_keeps_its_project(
    work: Workplace,
) -> None:
    """As between two disks: the numbers of the folders are new, the first commit is the same."""
    two_of_one_name(work)
    work.run("sync")  # the repository is younger than the project
    shutil.copytree(work.user / "client-b/app", work.user / "shop", symlinks=True)
    assert work.refs("shop") == []
    shutil.rmtree(work.user / "client-b/app")
    assert work.refs("shop") == ["skill:app-2/deploy", "skill:app-2/lint"]


def test_a_new_folder_in_the_place_of_a_deleted_one_gets_no_skill_of_it(work: Workplace) -> None:
    """The file system may give it the number of the deleted one."""
    work.skill("app", "deploy", "Deploys.")
    work.repository("app")
    work.init("app")
    shutil.rmtree(work.user / "app")
    work.skill("other", "deploy", "Deploys another thing.")
    work.repository("other")
    assert work.refs("other") == []


def test_a_clone_is_a_project_of_its_own_while_the_first_one_is_there(work: Workplace) -> None:
    work.skill("app", "deploy", "Deploys.")
    main = work.repository("app")
    work.init("app")
    git(work.user, "clone", "-q", str(main), "again/app")
    assert work.refs("again/app") == []
    work.init("again/app")
    assert work.scopes()["again/app/.claude/skills"] == "app-2"


def test_a_clone_on_a_disk_that_is_not_there_is_not_taken_for_another_one(work: Workplace) -> None:
    work.skill("disk/work/app", "deploy", "Deploys.")
    main = work.repository("disk/work/app")
    work.init("disk/work/app")
    git(work.user, "clone", "-q", str(main), "fork")
    (work.user / "disk").rename(work.run.root / "elsewhere")
    assert work.refs("fork") == []


# The map


def test_the_map_is_private_and_goes_along_with_a_backup(work: Workplace) -> None:
    two_of_one_name(work)
    path = work.run.home / PROJECTS_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    work.run("backup", work.run.root / "copy")
    assert (work.run.root / "copy" / PROJECTS_FILE).read_bytes() == path.read_bytes()
    listed = work.run(
        "--home",
        work.run.root / "copy",
        "list",
        "--json",
        CLAUDE_PROJECT_DIR=str(work.user / "client-b/app"),
    )
    assert [one["ref"] for one in listed.json["resources"]] == [
        "skill:app-2/deploy",
        "skill:app-2/lint",
    ]
    path.unlink()
    work.run("recover", work.run.root / "copy", "--yes")
    assert work.refs("client-b/app") == ["skill:app-2/deploy", "skill:app-2/lint"]
    assert str(path) in work.run("uninstall", "--data", "--dry-run").out


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"projects": 7, "separated": true}',
        (
            '{"separated": true, "projects": [7, {"folder": "relative", "scope": "a"}, {"folder": '
            '"/x", "scope": "../x"}]}'
        ),
        (
            '{"separated": true, "projects": [{"folder": "/x\\u0000", "scope": "x", "inode": [], '
            '"skills": {}}]}'
        ),
        (
            '{"separated": true, "projects": [{"folder": "/gone", "scope": "gone", "commit": '
            '"zz:../../../../.."}]}'
        ),
    ],
)
def test_a_damaged_map_costs_no_project_that_is_watched(work: Workplace, text: str) -> None:
    two_of_one_name(work)
    (work.run.home / PROJECTS_FILE).write_text(text, encoding="utf-8")
    assert work.refs("client-b/app") == ["skill:app-2/deploy", "skill:app-2/lint"]


def test_a_scope_that_the_environment_names_is_read_alone(work: Workplace) -> None:
    two_of_one_name(work)
    where = str(work.user / "client-b/app")
    listed = work.run("list", "--json", CLAUDE_PROJECT_DIR=where, EVOLVABLE_SCOPE="app")
    assert [one["ref"] for one in listed.json["resources"]] == [
        "skill:app/deploy",
        "skill:app/lint",
    ]


def test_a_plain_folder_with_an_explicit_scope_is_read_where_it_lies(work: Workplace) -> None:
    work.run.save(work.user / "team/skills", "deploy", skill_text("deploy"))
    work.run("init", work.user / "team/skills", "--scope", "acme")
    assert work.refs("team") == work.refs("team/skills") == ["skill:acme/deploy"]
    (work.user / "other").mkdir()
    assert work.refs("other") == []


# Libraries of versions that knew a project by its folder's name


def as_before(work: Workplace) -> None:
    """Make the library as a version made it that knew a project by the base name of its folder: one
    scope for two.
    """
    for client in ("client-a", "client-b"):
        work.skill(f"{client}/app", "deploy", f"Deploys to the servers of {client}.")
        work.run.save(
            work.user / client / "app/.claude/skills", "lint", skill_text("lint", "Lints the code.")
        )
        work.skill(f"{client}/app", f"only-{client}", f"Is of {client} alone.")
    work.init("client-a/app", "--scope", "app")
    work.init("client-b/app", "--scope", "app")
    for client in ("client-a", "client-b"):
        work.repository(f"{client}/app")
    (work.run.home / PROJECTS_FILE).unlink()
    with closing(sqlite3.connect(work.run.home / "library.db")) as db:
        assert db.execute("SELECT DISTINCT scope FROM folder").fetchall() == [("app",)]
        names = db.execute("SELECT name FROM resource ORDER BY name").fetchall()
    assert [name for (name,) in names] == [
        "deploy",
        "deploy-2",
        "lint",
        "only-client-a",
        "only-client-b",
    ]


def test_an_existing_library_is_separated_by_its_folders_with_one_message(work: Workplace) -> None:
    as_before(work)
    ran = work.at("client-b/app", "list", "--json")
    assert ran.err.count("known by its folder") == 1
    assert f"{work.user / 'client-b/app'} is the project app-2 (3 " in ran.err
    assert "known by its folder" not in work.at("client-b/app", "list").err
    assert work.refs("client-a/app") == [
        "skill:app/deploy",
        "skill:app/lint",
        "skill:app/only-client-a",
    ]
    assert work.refs("client-b/app") == [
        "skill:app-2/deploy",
        "skill:app-2/lint",
        "skill:app-2/only-client-b",
    ]
    assert "Step of client-b/app." in work.loaded("client-b/app", "deploy")
    assert work.scopes() == {
        "client-a/app/.claude/skills": "app",
        "client-b/app/.claude/skills": "app-2",
    }
    assert work.run("fsck", "--json").json["faults"] == []


def test_texts_that_mirrored_each_other_are_two_after_the_separation(work: Workplace) -> None:
    as_before(work)
    with open(
        work.user / "client-a/app/.claude/skills/lint/SKILL.md", "a", encoding="utf-8"
    ) as file:
        file.write("Only for a.\n")
    work.run("sync")
    assert git(work.user / "client-b/app", "status", "--short") == ""
    assert "Only for a." in work.loaded("client-a/app", "lint")
    assert "Only for a." not in work.loaded("client-b/app", "lint")


def test_what_is_separated_keeps_its_history_its_trust_and_its_evidence(work: Workplace) -> None:
    as_before(work)
    kept = (work.run.home / PROJECTS_FILE, '{"separated": true}')
    kept[0].write_text(kept[1], encoding="utf-8")
    for ref in ("deploy-2", "lint"):
        work.at(
            "client-b/app",
            "update",
            ref,
            "--edit",
            "SKILL.md",
            "description:",
            "description: Well,",
            "-m",
            "well",
        )
    use = work.at("client-b/app", "load", "deploy-2", "--json").json["use_id"]
    work.at("client-b/app", "report", use, "succeeded")
    then = {ref: versions(work, f"app/{ref}") for ref in ("deploy-2", "lint")}
    trusts = work.trusts("client-b/app")
    kept[0].unlink()
    assert versions(work, "app-2/deploy") == then["deploy-2"] and len(then["deploy-2"]) == 2
    assert versions(work, "app-2/lint") == versions(work, "app/lint") == then["lint"]
    now = work.trusts("client-b/app")
    assert now == {
        "deploy": trusts["deploy-2"],
        "lint": trusts["lint"],
        "only-client-b": trusts["only-client-b"],
    }
    (row,) = work.at("client-b/app", "stats", "deploy", "--json").json["resources"]
    assert row["loaded"] == 1


def versions(work: Workplace, ref: str) -> list[tuple[int, str, str]]:
    """Return number, time and reason of each version."""
    past = work.run("history", ref, "--json").json["versions"]
    return [(one["version"], one["at"], one["reason"]) for one in past]


def test_the_first_process_that_opens_an_existing_library_separates_it(work: Workplace) -> None:
    """A server of a client, and no person's command: the message waits for the person."""
    as_before(work)
    work.run.person = False
    assert work.refs("client-b/app") == [
        "skill:app-2/deploy",
        "skill:app-2/lint",
        "skill:app-2/only-client-b",
    ]
    work.run.person = True
    assert "known by its folder" in work.run("status").err


def test_a_folder_of_a_linked_work_tree_is_not_watched_any_more(work: Workplace) -> None:
    tree = linked(work)
    work.init("app")
    with closing(sqlite3.connect(work.run.home / "library.db")) as db, db:
        row = ("feature", "skill", str(tree / ".claude/skills"))
        db.execute("INSERT INTO folder (scope, kind, path) VALUES (?, ?, ?)", row)
    (work.run.home / PROJECTS_FILE).unlink()
    ran = work.run("list")
    assert f"{tree / '.claude/skills'} lies in a linked work tree" in ran.err
    assert "not watched any more" in ran.err
    assert work.scopes() == {"app/.claude/skills": "app"}


def test_an_explicit_scope_of_two_folders_stays(work: Workplace) -> None:
    for client in ("a", "b"):
        work.skill(f"{client}/app", "deploy", f"Deploys {client}.")
        work.init(f"{client}/app", "--scope", "together")
    (work.run.home / PROJECTS_FILE).unlink()
    assert set(work.scopes().values()) == {"together"}
