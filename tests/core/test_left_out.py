"""A secret keeps its own resource in the library at every door, and everything else leaves; whole
copies take all.
"""

import json
import zipfile
from pathlib import Path

import pytest
from command_line import CommandLine, Ran, skill_text

from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.store import Store

pytestmark = pytest.mark.process

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
PERSON = Identity(Principal.PERSON, "test")
AGENT = "---\nname: {name}\ndescription: Files letters.\n{more}---\nFile it.\n"


@pytest.fixture
def shop(tmp_path: Path) -> CommandLine:
    """A person's machine with a watched folder of three skills, of which `shop` has a secret in its
    second version.
    """
    made = CommandLine(tmp_path)
    for name in ("shop", "till", "desk"):
        made.save(made.user / ".claude/skills", name, skill_text(name))
    made("init", made.user / ".claude/skills")
    made.save(
        made.user / ".claude/skills", "shop", skill_text("shop") + f"\nUse {SECRET} for the shop.\n"
    )
    made("sync")
    return made


def put(evolvable: CommandLine, name: str, text: str) -> None:
    """Write a resource of the person into the library, and into no folder."""
    ref = Ref.parse(name)
    with (
        Store.open(evolvable.home) as store,
        store.transaction(Actor.HUMAN, "test", identity=PERSON) as tx,
    ):
        tx.put(ref, {f"{ref.kind.value.upper()}.md": File(text.encode())})


def secret_id(evolvable: CommandLine) -> str:
    (found,) = {one["id"] for one in evolvable("purge", "--list", "--json").json["secrets"]}
    return found


def assert_named(ran: Ran, *names: str) -> None:
    """Fail unless the answer names exactly these as left out, why and what to do, and shows no
    secret.
    """
    for name in names:
        assert f"{name} is left out: {name}@" in ran.err
    assert ran.err.count("is left out") == len(names)
    assert (
        "line" in ran.err and "github" in ran.err and "evolvable care purge --secret ID" in ran.err
    )
    assert SECRET not in ran.out + ran.err


def names_in(target: Path) -> set[str]:
    """Return the names of the skills in an export."""
    if target.suffix == ".json":
        return {one["ref"] for one in json.loads(target.read_text())["changes"]}
    paths = (
        zipfile.ZipFile(target).namelist()
        if target.suffix == ".zip"
        else [*map(str, target.iterdir())]
    )
    return {
        f"skill:{Path(path).parent.name if target.suffix else Path(path).name}" for path in paths
    }


@pytest.mark.parametrize("target", ["out.json", "out.zip", "out"])
def test_an_export_leaves_out_the_skill_with_the_secret_and_has_the_rest(shop, tmp_path, target):
    ran = shop("export", tmp_path / target, code=1)

    assert_named(ran, "skill:shop")
    assert "2 resources written" in ran.out
    assert names_in(tmp_path / target) == {"skill:desk", "skill:till"}
    if target != "out":
        assert SECRET.encode() not in (tmp_path / target).read_bytes()

    shop("purge", "--accept", secret_id(shop))
    shop("export", tmp_path / target, *(["skill:shop"] if target == "out" else ["--replace"]))
    assert names_in(tmp_path / target) == {"skill:desk", "skill:shop", "skill:till"}


@pytest.mark.parametrize("target", ["out.json", "out.zip", "out"])
def test_an_export_of_named_skills_leaves_out_the_one_with_the_secret(shop, tmp_path, target):
    ran = shop("export", tmp_path / target, "shop", "till", "--json", code=1)

    assert ran.json["resources"] == ["skill:till"]
    assert [one["ref"] for one in ran.json["left_out"]] == ["skill:shop"]
    assert names_in(tmp_path / target) == {"skill:till"}
    assert shop("export", tmp_path / "other", "till", "--json").json["left_out"] == []


@pytest.mark.parametrize("target", ["out.json", "out.zip", "out"])
def test_an_export_writes_the_newest_version_and_refuses_a_ref_that_names_another(
    shop, tmp_path, target
):
    older, missing = (
        shop("export", tmp_path / target, ref, code=1) for ref in ("shop@1", "till@77")
    )
    assert "skill:shop@1 names a version" in older.err and "restore that version" in older.err
    assert "version 77" in missing.err and "restore that version" not in missing.err
    assert not (tmp_path / target).exists()
    assert shop("export", tmp_path / target, "till@1", "--json").json["resources"] == ["skill:till"]


@pytest.mark.parametrize("target", ["out.json", "out.zip", "out"])
def test_an_export_of_nothing_but_the_secret_is_refused_and_writes_nothing(shop, tmp_path, target):
    ran = shop("export", tmp_path / target, "shop", code=1)

    assert "carry secrets: skill:shop@2" in ran.err and SECRET not in ran.err
    assert not (tmp_path / target).exists()


def test_a_secret_of_an_old_version_keeps_the_skill_out_of_what_carries_history_alone(
    shop, tmp_path
):
    shop.save(shop.user / ".claude/skills", "shop", skill_text("shop"))
    shop("sync")

    shop("export", tmp_path / "out.zip")
    assert "skill:shop" in names_in(tmp_path / "out.zip")
    assert_named(shop("export", tmp_path / "out.json", code=1), "skill:shop")
    assert SECRET not in (tmp_path / "out.json").read_text()


def test_an_environment_file_keeps_back_its_own_skill_alone(shop, tmp_path):
    shop("purge", "--accept", secret_id(shop))
    shop.save(shop.user / ".claude/skills", "till", "TILL_PASSWORD=k1L2m3N4o5P6q7R8\n", ".env")
    shop("sync")

    ran = shop("export", tmp_path / "out.zip", code=1)
    assert "skill:till is left out: skill:till@2 .env: an environment file" in ran.err
    assert names_in(tmp_path / "out.zip") == {"skill:desk", "skill:shop"}


def test_a_removed_skill_with_a_secret_is_left_out_of_an_archive(shop, tmp_path):
    shop("remove", "shop", "-m", "gone")
    assert "skill:shop" not in shop("list").out

    assert_named(shop("export", tmp_path / "out.json", code=1), "skill:shop")
    assert SECRET not in (tmp_path / "out.json").read_text()


def test_an_archive_without_the_skill_is_whole_and_removes_nothing_where_it_is_imported(
    shop, tmp_path
):
    shop("report", "shop", "success")
    shop("export", tmp_path / "out.json", code=1)
    (tmp_path / "other").mkdir()
    other = CommandLine(tmp_path / "other")
    other.save(other.user / ".claude/skills", "shop", skill_text("shop"))
    other("init", other.user / ".claude/skills")

    assert "skill:shop" not in (tmp_path / "out.json").read_text(), (
        "neither evidence nor anything else is about it"
    )
    other("import", tmp_path / "out.json", "--yes")
    assert {"desk", "shop", "till"} <= set(
        other("list").out.replace(":", " ").replace("@", " ").split()
    )
    other("fsck")


def test_a_checkout_writes_the_rest_and_names_what_it_left_out(shop, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    ran = shop("checkout", tmp_path / "elsewhere", code=1)

    assert_named(ran, "skill:shop")
    assert {path.name for path in (tmp_path / "elsewhere").iterdir() if path.is_dir()} >= {
        "desk",
        "till",
    }
    assert not (tmp_path / "elsewhere/shop").exists()
    assert [
        one["ref"]
        for one in shop("checkout", tmp_path / "elsewhere", "--json", code=1).json["left_out"]
    ] == ["skill:shop"]

    shop("purge", "--accept", secret_id(shop))
    assert shop("checkout", tmp_path / "elsewhere", "--json").json["left_out"] == []
    assert SECRET in (tmp_path / "elsewhere/shop/SKILL.md").read_text()


def test_a_checkout_of_nothing_but_the_secret_is_refused(shop, tmp_path):
    (tmp_path / "elsewhere").mkdir()

    assert (
        "would carry secrets"
        in shop("checkout", tmp_path / "elsewhere", "--only", "shop", code=1).err
    )
    assert not list((tmp_path / "elsewhere").rglob("SKILL.md"))


def test_a_checkout_into_the_folder_that_the_secret_came_from_leaves_nothing_out(shop):
    ran = shop("checkout", "claude-code", "--json")

    assert ran.json["left_out"] == [] and (shop.user / ".claude/skills/shop/SKILL.md").exists()


def test_a_checkout_for_two_clients_leaves_the_skill_out_of_the_folder_that_lacks_it(shop):
    assert_named(shop("checkout", "claude-code", "codex", code=1), "skill:shop")

    assert SECRET in (shop.user / ".claude/skills/shop/SKILL.md").read_text()
    assert sorted(path.name for path in (shop.user / ".agents/skills").glob("[a-z]*")) == [
        "desk",
        "till",
    ]


def test_an_agent_with_a_secret_is_left_out_of_the_checkout_of_the_skill_that_names_it(shop):
    put(shop, "agent:clerk", AGENT.format(name="clerk", more="") + f"Use {SECRET}.\n")
    put(
        shop,
        "filing",
        skill_text("filing").replace("\n---\n", "\nmetadata:\n  delegate: agent:clerk\n---\n", 1),
    )

    ran = shop("checkout", "claude-code", "--only", "filing", code=1)
    assert_named(ran, "agent:clerk")
    assert (shop.user / ".claude/skills/filing/SKILL.md").exists()
    assert not list(shop.user.rglob("clerk.md"))


def test_the_agent_of_a_skill_that_is_left_out_is_not_written_alone(shop, tmp_path):
    put(shop, "agent:clerk", AGENT.format(name="clerk", more=""))
    text = skill_text("filing").replace("\n---\n", "\nmetadata:\n  delegate: agent:clerk\n---\n", 1)
    put(shop, "filing", text + f"\nUse {SECRET}.\n")

    assert_named(
        shop("checkout", "claude-code", "--only", "filing", "--only", "till", code=1),
        "skill:filing",
    )
    assert not list(shop.user.rglob("clerk.md")) and not list(shop.user.rglob("filing"))


def test_publishing_moves_the_rest_and_names_what_it_left_out(shop):
    shop("channel", "policy", "manual", "-m", "by hand")
    for name in ("shop", "till"):
        text = skill_text(name) + "\nmore\n" + (f"Use {SECRET}.\n" if name == "shop" else "")
        shop.save(shop.user / ".claude/skills", name, text)
    shop("sync")

    planned = shop("publish", "--dry-run", "--json", code=1).json
    assert [one["ref"] for one in planned["left_out"]] == ["skill:shop"]
    ran = shop("publish", "-m", "weekly", code=1)
    assert_named(ran, "skill:shop")
    assert "skill:till" in ran.out and "skill:shop" not in ran.out
    assert "would carry secrets: skill:shop@3" in shop("publish", "-m", "weekly", code=1).err

    shop("purge", "--accept", secret_id(shop))
    assert "skill:shop" in shop("publish", "-m", "weekly").out


def test_a_backup_is_whole_and_has_the_secret(shop, tmp_path):
    shop("backup", tmp_path / "kept")

    shop.home = tmp_path / "kept"
    assert SECRET in shop("get", "shop").out


def test_the_person_is_asked_to_decide_where_the_secret_came_in(shop):
    shop.save(shop.user / ".claude/skills", "till", skill_text("till") + f"\nUse {SECRET}.\n")
    err = shop("sync").err

    assert "leave out the resources" in err and "evolvable care purge --accept ID" in err
