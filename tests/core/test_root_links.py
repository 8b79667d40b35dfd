"""A link to a skill of a watched folder is that skill; any other link is refused with what can be
done.
"""

import itertools
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy.incoming import SyncReport
from evolvable_store.workingcopy.registry import WorkingCopies

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="a symbolic link needs a right of its own there"
)

PDF, FORMS = Ref(Kind.SKILL, "pdf", "user"), Ref(Kind.SKILL, "forms", "user")
PROJECT = "app"
TEXT = "---\nname: pdf\ndescription: Fills PDF forms.\n---\n\none\n"


class Desk:
    """Two folders of a person, the second with a skill that the first links to."""

    def __init__(self, place: Path) -> None:
        self.claude, self.agents = place / "claude" / "skills", place / "agents" / "skills"
        self.claude.mkdir(parents=True)
        self.skill(self.agents / "pdf")
        self.link = self.claude / "pdf"
        self.link.symlink_to(self.agents / "pdf")
        self.store = Store.open(place / "home", create=True)
        self.copies = WorkingCopies(self.store)

    @staticmethod
    def skill(place: Path) -> Path:
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(TEXT)
        return place

    def sync(self) -> SyncReport:
        """What a sync says of the folder with the link."""
        return next(sync for sync in self.copies.sync() if sync.folder.path == self.claude)

    def agent(self, text: str) -> list[str]:
        with self.store.transaction(Actor.AGENT, "an agent's change") as tx:
            tx.put(PDF, {"SKILL.md": File(text.encode())})
        return self.copies.checkout([PDF])

    def refs(self) -> list[str]:
        return [str(head.ref) for head in self.store.heads()]

    def problems(self) -> str:
        return "".join(problem for refusal in self.sync().refused for problem in refusal.problems)


@pytest.fixture
def desk(tmp_path):
    desk = Desk(tmp_path)
    yield desk
    desk.store.close()


def test_a_link_between_two_folders_of_the_person_is_one_resource_without_a_message(desk):
    desk.copies.add(desk.agents)
    assert not desk.copies.add(desk.claude).refused
    assert not desk.sync().refused and not desk.sync().missing
    assert desk.refs() == ["skill:pdf"]


def test_an_edit_through_the_link_and_one_by_an_agent_are_the_same_file(desk):
    desk.copies.add(desk.claude)
    desk.copies.add(desk.agents)
    (desk.link / "SKILL.md").write_text(TEXT + "mine\n")
    desk.sync()
    assert desk.store.head(PDF).version == 2
    assert desk.agent(TEXT + "mine\nagent's\n") == []
    assert (desk.agents / "pdf/SKILL.md").read_text().endswith("agent's\n")
    assert desk.link.is_symlink() and (desk.link / "SKILL.md").read_text().endswith("agent's\n")


def test_a_removed_and_restored_resource_is_written_into_the_folder_that_holds_it(desk):
    desk.copies.add(desk.claude)
    desk.copies.add(desk.agents)
    with desk.store.transaction(Actor.HUMAN, "away") as tx:
        tx.remove(PDF, expected_version=1)
    assert desk.copies.checkout([PDF]) == [] and not desk.link.exists() and desk.link.is_symlink()
    assert desk.agent(TEXT) == []
    assert (desk.link / "SKILL.md").read_text() == TEXT and desk.link.is_symlink()


def test_a_directory_that_is_replaced_by_such_a_link_removes_nothing(desk):
    desk.link.unlink()
    shutil.copytree(desk.agents / "pdf", desk.link)
    desk.copies.add(desk.claude)
    desk.copies.add(desk.agents)
    shutil.rmtree(desk.link)
    desk.link.symlink_to(desk.agents / "pdf")
    assert not desk.sync().refused and desk.refs() == ["skill:pdf"]
    assert desk.agent(TEXT + "two\n") == []
    assert (desk.agents / "pdf/SKILL.md").read_text() == TEXT + "two\n" and desk.link.is_symlink()


def test_a_relative_link_counts_as_well(desk):
    desk.link.unlink()
    desk.link.symlink_to("../../agents/skills/pdf")
    desk.copies.add(desk.agents)
    assert not desk.copies.add(desk.claude).refused


def test_a_link_into_a_folder_that_is_not_watched_names_the_folder_to_take_in(desk):
    desk.copies.add(desk.claude)
    assert f"evolvable init {desk.agents}" in desk.problems()
    assert desk.refs() == []


def test_a_checkout_leaves_the_link_as_it_is(desk):
    desk.copies.add(desk.agents)
    sync = desk.copies.check_out(desk.claude)
    assert not sync.refused and not sync.written and desk.link.is_symlink()


@pytest.mark.parametrize("where", ["claude", "agents", "."])
@pytest.mark.parametrize(
    "scopes", [(USER_SCOPE, USER_SCOPE), (PROJECT, PROJECT), (PROJECT, USER_SCOPE)]
)
def test_a_link_of_or_into_a_repository_is_followed_to_a_folder_that_was_taken_in(
    desk, tmp_path, where, scopes
):
    (tmp_path / where / ".git").mkdir()
    desk.copies.add(desk.agents, scope=scopes[1])
    assert not desk.copies.add(desk.claude, scope=scopes[0]).refused and not desk.sync().refused
    assert [(head.name, head.scope) for head in desk.store.heads()] == [("pdf", scopes[1])]


@pytest.mark.parametrize("scopes", [(USER_SCOPE, PROJECT), (PROJECT, "other")])
def test_a_link_into_the_folder_of_another_project_is_refused_and_its_scope_is_named(desk, scopes):
    desk.copies.add(desk.agents, scope=scopes[1])
    desk.copies.add(desk.claude, scope=scopes[0])
    assert f"of the scope {scopes[1]}; put the directory itself" in desk.problems()


def test_a_link_of_a_repository_that_leads_out_of_it_names_both(desk, tmp_path):
    (tmp_path / "claude" / ".git").mkdir()
    desk.copies.add(desk.claude, scope=PROJECT)
    assert (
        f"out of the repository {tmp_path / 'claude'}, to {desk.agents / 'pdf'}" in desk.problems()
    )
    assert f"`evolvable init --scope user {desk.agents}`" in desk.problems()
    desk.copies.add(desk.agents, scope=USER_SCOPE)
    assert not desk.sync().refused


def test_a_link_within_a_repository_names_the_scope_of_its_own_folder(desk, tmp_path):
    (tmp_path / ".git").mkdir()
    desk.copies.add(desk.claude, scope=PROJECT)
    assert f"`evolvable init --scope {PROJECT} {desk.agents}`" in desk.problems()
    desk.copies.add(desk.agents, scope=PROJECT)
    assert not desk.sync().refused


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("nowhere", "where nothing is"),
        ("claude/skills/pdf", "leads in a circle"),
        ("lone", "put the directory itself"),
        ("lone/.git/pdf", "put the directory itself"),
    ],
)
def test_a_link_that_no_folder_can_make_good_gets_no_advice_to_take_one_in(
    desk, tmp_path, target, why
):
    desk.skill(tmp_path / "lone")
    desk.skill(tmp_path / "lone/.git/pdf")
    desk.link.unlink()
    desk.link.symlink_to(tmp_path / target)
    desk.copies.add(desk.claude)
    assert why in desk.problems() and "evolvable init" not in desk.problems()


def test_a_link_to_a_directory_of_skills_is_told_until_that_directory_is_taken_in(desk):
    desk.link.unlink()
    desk.link.symlink_to(desk.agents)
    desk.copies.add(desk.claude)
    assert f"`evolvable init {desk.agents}`" in desk.problems()
    desk.copies.add(desk.agents)
    assert not desk.sync().refused and desk.refs() == ["skill:pdf"]


@pytest.mark.parametrize("target", ["empty", ".."])
def test_a_link_to_a_directory_without_a_skill_of_its_own_is_passed_over(desk, tmp_path, target):
    (tmp_path / "empty").mkdir()
    desk.link.unlink()
    desk.link.symlink_to(tmp_path / target)
    assert not desk.copies.add(desk.claude).refused


def test_a_link_to_a_link_is_the_skill_that_both_lead_to(desk, tmp_path):
    (tmp_path / "middle").symlink_to(desk.agents / "pdf")
    desk.link.unlink()
    desk.link.symlink_to("../../middle")
    desk.copies.add(desk.agents)
    assert not desk.copies.add(desk.claude).refused and desk.refs() == ["skill:pdf"]
    (desk.link / "SKILL.md").write_text(TEXT + "mine\n")
    desk.copies.sync()
    assert desk.store.head(PDF).version == 2


def test_a_link_to_a_skill_of_its_own_folder_is_that_skill(desk):
    desk.skill(desk.claude / "group" / "forms")
    desk.link.unlink()
    desk.link.symlink_to("group/forms")
    assert not desk.copies.add(desk.claude).refused and desk.refs() == ["skill:forms"]


@pytest.mark.parametrize(
    "target",
    [
        "outside/pdf",
        "agents/skills/chain",  # of links
        "agents/skills/pdf/inner",  # a part of a skill
        "agents/skills/.hidden/pdf",
        "agents/skills/a/b/c/d/deep",
        "agents/skills/group/../../../outside/pdf",
        "agents/skills/group/away/pdf",  # by a link out of the folder
        "agents/skills",
    ],
)
def test_a_link_to_anything_but_a_resource_of_such_a_folder_is_refused(desk, tmp_path, target):
    desk.skill(tmp_path / "outside" / "pdf")
    for inside in ("pdf/inner", ".hidden/pdf", "a/b/c/d/deep", "group/other"):
        desk.skill(desk.agents / inside)
    (desk.agents / "SKILL.md").write_text(TEXT)
    (desk.agents / "group" / "away").symlink_to(tmp_path / "outside")
    (desk.agents / "chain").symlink_to(tmp_path / "outside" / "pdf")
    desk.copies.add(desk.agents)
    desk.link.unlink()
    desk.link.symlink_to(tmp_path / target)
    desk.copies.add(desk.claude)
    assert "symbolic link" in desk.problems()
    assert "skill:pdf" in desk.refs()


def test_a_link_to_a_skill_in_a_group_of_the_folder_is_that_skill(desk):
    desk.skill(desk.agents / "pack" / "forms")
    desk.link.unlink()
    desk.link.symlink_to("../../agents/skills/pack/forms")
    desk.copies.add(desk.agents)
    assert not desk.copies.add(desk.claude).refused and not desk.sync().refused
    assert desk.refs() == ["skill:forms", "skill:pdf"]
    (desk.link / "SKILL.md").write_text(TEXT + "mine\n")
    desk.sync()
    assert desk.store.head(FORMS).version == 2
    with desk.store.transaction(Actor.AGENT, "an agent's change") as tx:
        tx.put(FORMS, {"SKILL.md": File((TEXT + "agent's\n").encode())})
    assert desk.copies.checkout([FORMS]) == [] and desk.link.is_symlink()
    assert (desk.agents / "pack/forms/SKILL.md").read_text().endswith("agent's\n")


def test_two_links_to_one_skill_are_that_skill_and_a_checkout_adds_no_third(desk):
    desk.link.unlink()
    for name in ("forms", "papers"):
        (desk.claude / name).symlink_to(desk.agents / "pdf")
    desk.copies.add(desk.agents)
    sync = desk.copies.check_out(desk.claude)
    assert not sync.refused and not sync.written and desk.refs() == ["skill:pdf"]
    assert sorted(os.listdir(desk.claude)) == ["forms", "papers"]


def test_a_removed_link_removes_nothing_and_a_removed_target_removes_the_skill(desk):
    desk.copies.add(desk.agents)
    desk.copies.add(desk.claude)
    desk.link.unlink()
    assert not desk.sync().refused and desk.store.head(PDF).version == 1
    desk.link.symlink_to(desk.agents / "pdf")
    shutil.rmtree(desk.agents / "pdf")
    assert not desk.sync().refused and desk.refs() == []


def test_a_link_is_refused_again_when_its_target_is_followed_no_longer(desk):
    folder = desk.copies.add(desk.agents).folder
    desk.copies.add(desk.claude)
    desk.copies.bindings.drop_folder(folder)
    assert f"evolvable init {desk.agents}" in desk.problems()


def test_a_link_that_is_swapped_while_it_is_read_shows_no_other_bytes(desk, tmp_path):
    secret = desk.skill(tmp_path / "private")
    (secret / "SKILL.md").write_text(TEXT + "private\n")
    desk.copies.add(desk.agents)
    desk.copies.add(desk.claude)
    done, aside = threading.Event(), tmp_path / "next"

    def swap() -> None:
        for target in itertools.cycle([desk.agents / "pdf", secret]):
            if done.is_set():
                return
            aside.symlink_to(target)
            os.replace(aside, desk.link)

    racing = threading.Thread(target=swap)
    racing.start()
    try:
        for number in range(25):
            desk.copies.sync()
            assert desk.agent(f"{TEXT}{number}\n") == []
    finally:
        done.set()
        racing.join()
    past = desk.store.history(desk.store.head(PDF), limit=99)
    versions = [
        desk.store.file(desk.store.head(PDF), "SKILL.md", entry.version.number).data
        for entry in past
    ]
    assert len(versions) == 26 and not any(b"private" in data for data in versions)
    assert desk.refs() == ["skill:pdf"] and (secret / "SKILL.md").read_text().endswith("private\n")


def test_a_link_in_a_directory_of_the_folder_is_refused(desk):
    desk.copies.add(desk.agents)
    (desk.claude / "group").mkdir()
    os.rename(desk.link, desk.claude / "group" / "pdf")
    desk.copies.add(desk.claude)
    assert "symbolic link" in desk.problems()


def test_a_link_that_changes_its_target_is_looked_at_again(desk, tmp_path):
    desk.copies.add(desk.agents)
    desk.copies.add(desk.claude)
    private = desk.skill(tmp_path / "private")
    desk.link.unlink()
    desk.link.symlink_to(private)
    assert "symbolic link" in desk.problems()
    desk.agent(TEXT + "two\n")
    assert (private / "SKILL.md").read_text() == TEXT and (
        desk.agents / "pdf/SKILL.md"
    ).read_text() == TEXT + "two\n"


def test_an_agent_that_is_a_single_file_can_be_linked_too(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
    (theirs / "reviewer.md").write_text("---\nname: reviewer\ndescription: Reviews.\n---\nx\n")
    (ours / "reviewer.md").symlink_to(theirs / "reviewer.md")
    store = Store.open(tmp_path / "home", create=True)
    copies = WorkingCopies(store)
    copies.add(theirs, kind=Kind.AGENT)
    assert not copies.add(ours, kind=Kind.AGENT).refused
    assert [str(head.ref) for head in store.heads()] == ["agent:reviewer"]
    store.close()
