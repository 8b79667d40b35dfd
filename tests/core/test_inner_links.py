"""A link in a skill to a file of the same work tree brings that file's bytes, and is never written
through.
"""

import itertools
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from evolvable_store.objects import MAX_FILE, File
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store
from evolvable_store.workingcopy.incoming import SyncReport
from evolvable_store.workingcopy.registry import WorkingCopies

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="a symbolic link needs a right of its own there"
)

PDF = Ref(Kind.SKILL, "pdf", "app")
TEXT = "---\nname: pdf\ndescription: Fills PDF forms.\n---\n\none\n"


class Tree:
    """A work tree with a folder of skills, one of which links to a file beside the folder."""

    def __init__(self, place: Path) -> None:
        self.root = place / "app"
        self.skills, self.shared = self.root / ".claude/skills", self.root / "shared/forms.md"
        (self.root / ".git").mkdir(parents=True)
        for path, text in ((self.shared, "forms\n"), (self.skills / "pdf/SKILL.md", TEXT)):
            path.parent.mkdir(parents=True)
            path.write_text(text)
        self.link = self.skills / "pdf/forms.md"
        self.link.symlink_to("../../../shared/forms.md")
        self.store = Store.open(place / "home", create=True)
        self.copies = WorkingCopies(self.store)

    def add(self) -> SyncReport:
        return self.copies.add(self.skills, scope="app")

    def sync(self) -> SyncReport:
        (sync,) = self.copies.sync()
        return sync

    def files(self, version: int | None = None) -> dict[str, bytes]:
        return {
            path: file.data
            for path, file in self.store.files(self.store.head(PDF), version).items()
        }

    def agent(self, **texts: str) -> list[str]:
        files = {**self.store.files(self.store.head(PDF))}
        files |= {f"{name}.md": File(text.encode()) for name, text in texts.items()}
        with self.store.transaction(Actor.AGENT, "an agent's change") as tx:
            tx.put(PDF, files)
        return self.copies.checkout([PDF])

    def turn(self, target: "str | Path") -> None:
        self.link.unlink()
        self.link.symlink_to(target)


@pytest.fixture
def tree(tmp_path):
    tree = Tree(tmp_path)
    yield tree
    tree.store.close()


def test_the_bytes_of_a_linked_file_of_the_work_tree_belong_to_the_version(tree):
    sync = tree.add()
    assert not sync.refused and not sync.warnings
    assert tree.files() == {"SKILL.md": TEXT.encode(), "forms.md": b"forms\n"}


def test_a_change_of_the_linked_file_is_a_version_of_each_skill_that_links_to_it(tree):
    shutil.copytree(tree.skills / "pdf", tree.skills / "csv", symlinks=True)
    tree.add()
    tree.shared.write_text("more\n")
    assert {taken.directory for taken in tree.sync().taken} == {"csv", "pdf"}
    assert tree.files()["forms.md"] == b"more\n" and tree.sync().taken == []


def test_a_directory_with_such_a_link_is_passed_over_until_something_changes(tree):
    tree.add()
    for path in (tree.shared, tree.skills / "pdf/SKILL.md", tree.link):
        os.utime(path, ns=(0, 0), follow_symlinks=False)
    status = tree.copies.copy(tree.copies.folders()[0]).status
    assert status.read("pdf").links == {"forms.md": tree.shared}
    before = status.signature("pdf")
    tree.shared.write_text("other\n")
    assert status.signature("pdf") != before


def test_a_version_is_written_beside_the_link_which_stays_a_link(tree):
    tree.add()
    assert tree.agent(SKILL=TEXT + "two\n") == []
    assert (tree.skills / "pdf/SKILL.md").read_text().endswith("two\n")
    assert (
        os.readlink(tree.link) == "../../../shared/forms.md"
        and tree.shared.read_text() == "forms\n"
    )
    sync = tree.sync()
    assert (
        not sync.taken
        and not sync.written
        and not sync.refused
        and tree.store.head(PDF).version == 2
    )
    assert (
        not (tree.skills.parent / ".skills.evolvable").exists()
        or len(tree.copies.unknown_entries()) == 0
    )


def test_a_change_of_the_linked_file_in_the_library_is_not_written_and_says_where_to_make_it(tree):
    tree.add()
    (said,) = tree.agent(SKILL=TEXT + "two\n", forms="theirs\n")
    assert f"forms.md is a link to {tree.shared}" in said and "skill:app/pdf" in said
    assert tree.link.is_symlink() and tree.shared.read_text() == "forms\n"
    assert (tree.skills / "pdf/SKILL.md").read_text() == TEXT
    tree.shared.write_text("theirs\n")
    assert not tree.sync().refused
    assert (tree.skills / "pdf/SKILL.md").read_text() == TEXT + "two\n" and tree.link.is_symlink()
    assert tree.files() == {"SKILL.md": f"{TEXT}two\n".encode(), "forms.md": b"theirs\n"}


def test_a_file_in_the_place_of_the_link_gets_what_the_library_has(tree):
    tree.add()
    tree.agent(forms="theirs\n")
    tree.link.unlink()
    tree.link.write_text("forms\n")
    assert not tree.sync().refused
    assert (
        tree.link.read_text() == "theirs\n"
        and not tree.link.is_symlink()
        and tree.shared.read_text() == "forms\n"
    )


def test_a_link_whose_file_a_version_no_longer_has_is_left_to_the_person(tree):
    tree.add()
    with tree.store.transaction(Actor.AGENT, "less") as tx:
        tx.put(PDF, {"SKILL.md": File(TEXT.encode())})
    assert "forms.md is a link" in tree.copies.checkout([PDF])[0] and tree.link.is_symlink()
    tree.link.unlink()
    assert not tree.sync().refused and tree.files() == {"SKILL.md": TEXT.encode()}


def test_a_removed_skill_leaves_the_link_and_comes_back_with_it(tree):
    tree.add()
    with tree.store.transaction(Actor.HUMAN, "away") as tx:
        tx.remove(PDF, expected_version=1)
    tree.copies.checkout([PDF])
    assert not (tree.skills / "pdf/SKILL.md").exists() and tree.shared.read_text() == "forms\n"
    assert not tree.sync().taken and not tree.sync().refused
    with tree.store.transaction(Actor.HUMAN, "back") as tx:
        tx.put(
            PDF, {"SKILL.md": File(TEXT.encode()), "forms.md": File(b"forms\n")}, expected_version=0
        )
    assert tree.copies.checkout([PDF]) == []
    assert (tree.skills / "pdf/SKILL.md").read_text() == TEXT and tree.link.is_symlink()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("outside/secret", "a symlink out of "),
        ("app/.env", "a symlink to what is hidden"),
        ("app/.git/config", "a symlink to what is hidden"),
        ("app/way/secret", "a symlink out of "),
        ("app/nowhere", "a symlink that leads nowhere"),
        ("app/shared", "a symlink"),
        ("app/pipe", "a symlink"),
        ("app/large", "too large"),
        ("app/.claude/skills/pdf/forms.md", "a symlink that leads nowhere"),
        ("/etc/passwd", "a symlink out of "),
    ],
)
def test_a_link_to_anything_else_is_left_out_with_the_reason(tree, tmp_path, target, why):
    (tmp_path / "outside").mkdir()
    (tree.root / "way").symlink_to(tmp_path / "outside")
    for path in ("outside/secret", "app/.env", "app/.git/config"):
        (tmp_path / path).write_text("secret\n")
    os.mkfifo(tree.root / "pipe")
    (tree.root / "large").write_bytes(b"x" * (MAX_FILE + 1))
    tree.turn(tmp_path / target)
    (warning,) = tree.add().warnings
    assert warning.problems[0].startswith(f"forms.md: {why}") and tree.files() == {
        "SKILL.md": TEXT.encode()
    }


def test_a_link_that_turns_to_a_private_file_keeps_the_known_version(tree, tmp_path):
    tree.add()
    (tmp_path / "key").write_text("private\n")
    tree.turn(tmp_path / "key")
    (refusal,) = tree.sync().refused
    assert (
        refusal.problems[0].startswith("forms.md: a symlink out of ")
        and tree.store.head(PDF).version == 1
    )


def test_a_link_to_a_link_within_the_work_tree_is_read(tree):
    (tree.root / "other.md").symlink_to("shared/forms.md")
    tree.turn("../../../other.md")
    tree.add()
    assert tree.files()["forms.md"] == b"forms\n"


def test_outside_of_work_trees_a_link_is_read_within_its_own_watched_folder_alone(tree):
    (tree.root / ".git").rmdir()
    (tree.skills / "shared").mkdir()
    (tree.skills / "shared/forms.md").write_text("ours\n")
    assert tree.add().warnings[0].problems[0].startswith("forms.md: a symlink out of ")
    tree.turn("../shared/forms.md")
    tree.sync()
    assert tree.files()["forms.md"] == b"ours\n"


def test_a_work_tree_that_the_library_lies_in_is_a_home_folder_and_not_the_boundary(tree, tmp_path):
    (tree.root / ".git").rmdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "private.md").write_text("private\n")
    tree.turn(tmp_path / "private.md")
    assert tree.add().warnings[0].problems[0].startswith("forms.md: a symlink out of ")


def test_a_skill_that_is_a_clone_of_its_own_leads_to_nothing_beside_it(tree):
    (tree.skills / "pdf/.git").mkdir()
    assert (
        tree.add()
        .warnings[0]
        .problems[0]
        .startswith(f"forms.md: a symlink out of {tree.skills / 'pdf'}")
    )


def test_a_linked_file_counts_for_the_limits_of_a_skill(tree):
    for number in range(4):
        (tree.root / f"shared/{number}").write_bytes(bytes([number]) * 4_500_000)
        (tree.skills / f"pdf/{number}").symlink_to(f"../../../shared/{number}")
    (warning,) = tree.add().warnings
    assert any("too large together" in problem for problem in warning.problems)


def test_a_link_that_is_swapped_while_it_is_read_shows_no_other_bytes(tree, tmp_path):
    secret, aside, done = tmp_path / "secret", tree.root / "next", threading.Event()
    secret.write_text("private\n")
    tree.add()

    def swap() -> None:
        for target in itertools.cycle([tree.shared, secret]):
            if done.is_set():
                return
            aside.symlink_to(target)
            os.replace(aside, tree.link)

    racing = threading.Thread(target=swap)
    racing.start()
    try:
        for number in range(40):
            (tree.skills / "pdf/SKILL.md").write_text(f"{TEXT}{number}\n")
            tree.copies.sync()
    finally:
        done.set()
        racing.join()
    past = tree.store.history(tree.store.head(PDF), limit=99)
    assert not any(
        b"private" in data for entry in past for data in tree.files(entry.version.number).values()
    )
