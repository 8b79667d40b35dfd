"""A secret keeps one skill out of a remote, and nothing else: what was there of it stays, and the
rest goes on.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from remote_place import PERSON, Machine, git
from remote_place import skill_text as skill_bytes

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.secret_leaks import accept_leak, leaks
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.purge_content import plan_secret, purge

pytestmark = pytest.mark.process

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
TEN = "".join(f"line {number}\n" for number in range(10))


def has_secret(hub: Path) -> bool:
    """Return whether any object of a repository holds the secret, reachable or not."""
    words = ["git", "cat-file", "--batch-all-objects", "--batch"]
    return SECRET.encode() in subprocess.run(words, cwd=hub, capture_output=True, check=True).stdout


def there(hub: Path, name: str) -> str:
    """Return the text of a skill in the newest commit; '' where it has none."""
    listed = git(hub, "ls-tree", "-r", "--name-only", "main").splitlines()
    path = f"skills/{name}/SKILL.md"
    return (
        git(hub, "show", f"main:{path}").partition("---\n")[2].partition("---\n")[2]
        if path in listed
        else ""
    )


def settle(machine: Machine, how: str) -> None:
    """Decide on every secret of a library: keep it, or purge it."""
    for id in {one.id for one in leaks(machine.library)}:
        if how == "accept":
            accept_leak(machine.library, PERSON, id, "it is revoked")
        else:
            purge(machine.library, PERSON, plan_secret(machine.library, id), "it leaked")


def test_a_secret_in_one_skill_keeps_that_skill_from_the_push_and_the_rest_goes(ada, ben, hub):
    ada.put("csv", "one\n")
    ada.put("pdf", "one\n")
    ada.push()
    ada.put("pdf", f"token {SECRET}\n")
    ada.put("csv", "two\n")
    ada.put("new", f"token {SECRET}\n")

    done = ada.push()

    assert [one.ref for one in done.left_out] == ["skill:new", "skill:pdf"]
    assert all("github" in one.secrets[0] and SECRET not in str(one) for one in done.left_out)
    assert there(hub, "csv") == "two" and there(hub, "pdf") == "one" and not there(hub, "new")
    assert not has_secret(hub)
    ben.pull()
    assert ben.texts() == {"skill:csv": "two\n", "skill:pdf": "one\n"}


def test_a_push_of_nothing_else_makes_no_commit(ada, hub):
    ada.put("pdf", f"token {SECRET}\n")
    ada.put("pdf", "no token\n")

    done = ada.push()

    assert [one.ref for one in done.left_out] == ["skill:pdf"] and not done.commits
    assert not git(hub, "for-each-ref") and not has_secret(hub)
    ada.put("csv", "one\n")
    assert ada.push().commits and ada.push().commits == 0
    assert there(hub, "csv") == "one" and not there(hub, "pdf")


def test_a_pull_after_that_sees_no_removal_and_keeps_what_is_here(ada, ben, hub):
    ada.put("pdf", "one\n")
    ada.push()
    ben.pull()
    ada.put("pdf", f"token {SECRET}\n")
    ada.push()
    ben.put("csv", "ben's\n")
    ben.push()

    done = ada.pull()

    assert done.resources == {"skill:csv": "new"} and not done.proposals
    assert SECRET in ada.text("pdf") and ada.text("csv") == "ben's\n"
    assert ada.push().left_out and there(hub, "pdf") == "one" and not has_secret(hub)
    assert "skill:pdf" not in ben.pull().resources and ben.text("pdf") == "one\n"


@pytest.mark.parametrize("how", ["accept", "purge"])
def test_the_first_push_after_the_decision_sends_what_was_held_back(ada, ben, hub, how):
    ada.put("pdf", "one\n")
    ada.push()
    ada.put("pdf", f"token {SECRET}\nand more\n")
    ada.put("new", f"token {SECRET}\nof a new one\n")
    ada.push()
    settle(ada, how)

    done = ada.push()

    assert not done.left_out and done.commits
    assert "and more" in there(hub, "pdf") and "of a new one" in there(hub, "new")
    assert has_secret(hub) is (how == "accept")
    if how == "purge":
        ben.pull()
        assert ben.texts() == ada.texts()
    assert ada.push().commits == 0 and not ada.pull().commits


def test_a_later_change_without_the_secret_waits_with_the_version_that_has_it(ada, hub):
    ada.put("pdf", "one\n")
    ada.push()
    ada.put("pdf", f"token {SECRET}\n")
    ada.put("pdf", "two\n")

    assert [one.ref for one in ada.push().left_out] == ["skill:pdf"] and there(hub, "pdf") == "one"
    assert [one.ref for one in ada.push().left_out] == ["skill:pdf"], (
        "it is said again while it lasts"
    )
    settle(ada, "purge")
    ada.put("pdf", "three\n")
    assert not ada.push().left_out and there(hub, "pdf") == "three" and not has_secret(hub)


def test_a_change_of_both_sides_waits_here_and_never_carries_the_secret_out(ada, ben, hub):
    ada.put("pdf", TEN)
    ada.push()
    ben.pull()
    ada.put("pdf", TEN.replace("line 1\n", f"token {SECRET}\n"))
    ada.push()
    ben.put("pdf", TEN.replace("line 8\n", "ben's line\n"))
    ben.push()

    done = ada.pull()
    assert len(done.proposals) == 1 and "secret" in next(iter(done.proposals.values()))
    assert "ben's line" not in ada.text("pdf")
    assert [one.ref for one in ada.push().left_out] == ["skill:pdf"] and not has_secret(hub)
    assert "ben's line" in there(hub, "pdf")

    proposal_inbox.approve_together(ada.library, PERSON, [*done.proposals], "both")
    assert "ben's line" in ada.text("pdf") and SECRET in ada.text("pdf")
    assert [one.ref for one in ada.push().left_out] == ["skill:pdf"] and not has_secret(hub)
    settle(ada, "purge")
    ada.push()
    assert "ben's line" in there(hub, "pdf")
    assert "line 1\n" not in there(hub, "pdf")
    assert not has_secret(hub)


def test_a_removal_by_others_of_what_is_held_back_waits_here(ada, ben, hub):
    ada.put("pdf", "one\n")
    ada.push()
    ben.pull()
    ada.put("pdf", f"token {SECRET}\n")
    ada.push()
    ben.put("pdf", None)
    ben.push()

    (why,) = ada.pull().proposals.values()
    assert "origin removed it" in why and SECRET in ada.text("pdf")
    assert [one.ref for one in ada.push().left_out] == ["skill:pdf"] and not has_secret(hub)


def test_a_change_by_others_comes_in_while_only_an_old_version_here_has_the_secret(ada, ben, hub):
    ada.put("pdf", "one\n")
    ada.push()
    ben.pull()
    ada.put("pdf", f"token {SECRET}\n")
    ada.put("pdf", "one\n")
    ada.push()
    ben.put("pdf", "ben's\n")
    ben.push()

    assert ada.pull().resources == {"skill:pdf": "changed"} and ada.text("pdf") == "ben's\n"
    assert ada.push().commits == 0
    ada.put("pdf", "ada's\n")
    assert [one.ref for one in ada.push().left_out] == ["skill:pdf"] and there(
        hub, "pdf"
    ) == "ben's"
    settle(ada, "purge")
    ada.push()
    assert there(hub, "pdf") == "ada's" and not has_secret(hub)


def test_a_secret_beside_a_conflict_that_waits_does_not_stop_the_push(ada, ben, hub):
    ada.put("pdf", "one\n")
    ada.push()
    ben.pull()
    ada.put("pdf", "ada's\n")
    ben.put("pdf", "ben's\n")
    ben.push()
    (number,) = ada.pull().proposals
    ada.put("pdf", f"token {SECRET}\n")
    ada.put("csv", "one\n")

    assert [one.ref for one in ada.push().left_out] == ["skill:pdf"]
    assert there(hub, "pdf") == "ben's" and there(hub, "csv") == "one"
    proposal_inbox.reject(ada.library, number, "ada's", PERSON)
    ada.push()
    assert there(hub, "pdf") == "ben's" and not has_secret(hub)
    settle(ada, "purge")
    ada.push()
    assert there(hub, "pdf").split() == ada.text("pdf").split() and not has_secret(hub)


def test_the_removal_of_a_skill_that_is_held_back_is_sent(ada, ben, hub):
    ada.put("csv", "one\n")
    ada.put("pdf", "one\n")
    ada.push()
    ben.pull()
    ada.put("pdf", f"token {SECRET}\n")
    ada.push()
    ada.put("pdf", None)

    assert not ada.push().left_out
    assert not there(hub, "pdf") and not has_secret(hub)
    assert ben.pull().resources == {"skill:pdf": "removed"}


def test_a_skill_that_returns_with_its_secret_stays_away_from_the_remote(ada, hub):
    ada.put("pdf", "one\n")
    ada.push()
    ada.put("pdf", f"token {SECRET}\n")
    ada.put("pdf", None)
    ada.put("pdf", f"token {SECRET} again\n")

    assert [one.ref for one in ada.push().left_out] == ["skill:pdf"]
    assert not there(hub, "pdf") and not has_secret(hub)
    settle(ada, "accept")
    ada.push()
    assert "again" in there(hub, "pdf")


def test_an_operation_on_two_skills_is_sent_with_the_one_that_may_leave(ada, hub):
    with ada.store.transaction(Actor.HUMAN, "both at once", identity=PERSON.identity) as tx:
        for name, text in (("csv", "one\n"), ("pdf", f"token {SECRET}\n")):
            tx.put(Ref.parse(name), {"SKILL.md": File(skill_bytes(name, text))})
    assert [one.ref for one in ada.push().left_out] == ["skill:pdf"]
    assert there(hub, "csv") == "one" and not there(hub, "pdf")
    assert "skill:pdf" not in git(hub, "log", "--format=%B", "main")


def test_approvals_of_what_the_remote_has_stay_while_a_newer_version_is_held_back(ada, hub):
    ada.put("csv", "one\n")
    ada.put("pdf", "one\n")
    ada.push()
    before = approvals(hub)
    ada.put("pdf", f"token {SECRET}\n")
    ada.put("csv", "two\n")
    ada.push()

    assert approvals(hub)["skill:pdf"] == before["skill:pdf"]
    assert approvals(hub)["skill:csv"] != before["skill:csv"]


def test_a_secret_stays_here_when_the_mirror_was_deleted(ada, ben, hub):
    ada.put("pdf", "one\n")
    ada.push()
    ada.put("pdf", f"token {SECRET}\n")
    ada.push()
    shutil.rmtree(ada.home / "remotes", ignore_errors=True)
    for mirror in ada.home.rglob("origin.git"):
        shutil.rmtree(mirror)
    ben.pull()
    ben.put("csv", "ben's\n")
    ben.push()

    ada.pull()
    ada.push()
    assert SECRET in ada.text("pdf") and there(hub, "pdf") == "one" and not has_secret(hub)


def test_the_command_names_what_it_left_out_and_ends_with_1(tmp_path, hub):
    evolvable = CommandLine(tmp_path)
    folder = evolvable.user / ".claude/skills"
    evolvable.save(folder, "shop", skill_text("shop"))
    evolvable.save(folder, "till", skill_text("till"))
    evolvable("init", folder)
    evolvable("remote", "add", "origin", str(hub))
    evolvable.save(folder, "shop", skill_text("shop") + f"\nUse {SECRET} here.\n")

    ran = evolvable("push", code=1)
    assert "pushed to origin" in ran.out
    assert "skill:shop is left out: skill:shop@2 SKILL.md" in ran.err
    assert "evolvable care purge --secret ID" in ran.err
    assert "skill:till" not in ran.err and SECRET not in ran.out + ran.err
    assert "Waits for you" not in evolvable("remote", "list").out
    (left,) = evolvable("push", "--json", code=1).json["left_out"]
    assert left["ref"] == "skill:shop" and "shop@2 SKILL.md, line" in left["secrets"][0]
    assert "origin has everything else." in evolvable("push", code=1).out


def approvals(hub: Path) -> dict[str, str]:
    """Return the content of each skill that a person wrote, as the newest commit says."""
    (path,) = (
        one
        for one in git(hub, "ls-tree", "-r", "--name-only", "main").splitlines()
        if "approvals" in one
    )
    return {one["ref"]: one["tree"] for one in json.loads(git(hub, "show", f"main:{path}"))}
