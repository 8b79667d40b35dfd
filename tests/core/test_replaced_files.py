"""Files that another program replaced: what was learned is merged with them, or waits to be put
back.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

pytestmark = pytest.mark.process

AGENT = {"CLAUDECODE": "1", "EVOLVABLE_SESSION": "s1"}
VENDOR = "one\n\ntwo\n\nthree\n\nfour\n\nfive"
UPDATE = "one, better\n\ntwo\n\nthree\n\nfour\n\nfive"
LEARNED = "Learned: read it twice.\nLearned: then count."


def text(body: str) -> str:
    return skill_text("pdf", body=body)


def with_learned(body: str) -> str:
    return body.replace("three", f"three\n\n{LEARNED}")


class Installed(CommandLine):
    """A machine with a vendor's skill pdf, in which an agent's two lines were approved."""

    def __init__(self, root: Path, lock: str = "") -> None:
        super().__init__(root)
        self.skills = self.user / ".agents/skills"
        self.lock = self.user / ".agents/.skill-lock.json"
        self.document = self.skills / "pdf/SKILL.md"
        self.save(self.skills, "pdf", text(VENDOR))
        if lock:
            self.write_lock(lock)
        self("init", self.skills)
        self.learn()

    def learn(self) -> None:
        edit = (
            "--edit",
            "SKILL.md",
            "three",
            f"three\n\n{LEARNED}",
            "--propose",
            "-m",
            "from a session",
        )
        number = self("update", "pdf", *edit, "--json", **AGENT).json["proposal_id"]
        self("inbox", "approve", number)
        assert LEARNED in self.document.read_text()

    def write_lock(self, value: str, name: str = "pdf") -> None:
        entry = {
            "source": "v/skills",
            "sourceType": "github",
            "skillFolderHash": value,
            "updatedAt": "2026",
        }
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        self.lock.write_text(json.dumps({"version": 3, "skills": {name: entry}}))

    def served(self) -> str:
        return self("get", "pdf").out

    def proposals(self) -> list[dict[str, object]]:
        return list(self("inbox", "list", "--json").json["proposals"])


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path, "a" * 40)


def test_an_update_by_an_installer_is_merged_with_what_was_learned(installed: Installed) -> None:
    installed.document.write_text(text(UPDATE))
    installed.write_lock("b" * 40)
    installed("sync")
    assert text(with_learned(UPDATE)) in installed.served()
    assert installed.document.read_text() == text(with_learned(UPDATE))
    assert installed.proposals() == []

    # The next update has the vendor's last text as its base.
    again = UPDATE.replace("five", "five and six")
    installed.document.write_text(text(again))
    installed.write_lock("c" * 40)
    installed("sync")
    assert installed.document.read_text() == text(with_learned(again))
    assert installed.proposals() == []


def test_what_is_put_back_stays_the_agents_that_wrote_it_and_undo_takes_it_out(
    installed: Installed,
) -> None:
    installed.document.write_text(text(UPDATE))
    installed.write_lock("b" * 40)
    installed("sync")
    newest = installed("log", "--json").json["operations"][0]
    assert newest["reason"].startswith("put back what was learned (2 lines)")
    installed("undo", newest["operation"] if "operation" in newest else newest["id"])
    assert installed.document.read_text() == text(UPDATE)
    installed("sync")
    assert installed.document.read_text() == text(UPDATE)


def test_the_lock_file_of_a_project_counts_for_its_own_folder(tmp_path: Path) -> None:
    machine = Installed(tmp_path)
    lock = machine.user / "skills-lock.json"
    entry = {"source": "v/skills", "sourceType": "github", "computedHash": "0" * 64}
    lock.write_text(json.dumps({"version": 1, "skills": {"PDF": entry}}))
    machine.document.write_text(text(UPDATE))
    machine("sync")
    assert machine.document.read_text() == text(with_learned(UPDATE))


def test_a_lock_file_makes_no_proposal_of_an_agent_that_took_the_reason_of_a_put_back(
    installed: Installed,
) -> None:
    edit = ("--edit", "SKILL.md", "five", "five\n\nAnswer in capitals.", "--propose")
    installed("update", "pdf", *edit, "-m", "put back what was learned (2 lines)", **AGENT)
    assert "files were replaced" not in installed("status").out
    installed.write_lock("b" * 40)
    installed("sync")
    assert installed.document.read_text() == text(with_learned(VENDOR))
    assert len(installed.proposals()) == 1


def test_a_lock_file_that_is_written_after_the_files_still_tells(installed: Installed) -> None:
    installed.document.write_text(text(UPDATE))
    installed("sync")
    assert len(installed.proposals()) == 1
    installed.write_lock("b" * 40)
    installed("sync")
    assert installed.document.read_text() == text(with_learned(UPDATE))
    assert installed.proposals() == []


def test_a_conflict_keeps_the_file_on_disk_and_waits_with_both_sides(installed: Installed) -> None:
    conflicting = VENDOR.replace("three", "three\n\nRead it once.")
    installed.document.write_text(text(conflicting))
    installed.write_lock("b" * 40)
    said = installed("sync")
    assert installed.document.read_text() == text(conflicting)
    (waiting,) = installed.proposals()
    assert "put back what was learned (2 lines)" in said.out + said.err
    shown = installed("inbox", "show", waiting["proposal_id"], "--json").json
    assert "Read it once." in shown["sides"] and "Learned: then count." in shown["sides"]
    installed("inbox", "take", waiting["proposal_id"])
    assert LEARNED in installed.document.read_text()


def test_files_that_nobody_is_known_to_have_replaced_are_taken_and_the_learned_lines_wait(
    tmp_path: Path,
) -> None:
    machine = Installed(tmp_path)
    for _ in range(2):
        machine.document.write_text(text(UPDATE))
        said = machine("sync")
        UPDATED = machine.document.read_text()
        assert text(UPDATE) == UPDATED
    (waiting,) = machine.proposals()
    assert str(waiting["reason"]).startswith("put back what was learned (2 lines)")
    (line,) = machine("status", "--json").json["put_back"]
    assert "(2 lines)" in line and f"inbox show {waiting['proposal_id']}" in line
    assert "put back what was learned (2 lines)" in " ".join(machine("status").out.split())
    assert said.code == 0

    machine.document.write_text(text(UPDATE.replace("five", "5")))  # and once more, while it waits
    machine("sync")
    assert len(machine.proposals()) == 1
    machine("inbox", "approve", waiting["proposal_id"])
    assert machine.document.read_text() == text(with_learned(UPDATE.replace("five", "5")))
    assert machine("status", "--json").json["put_back"] == []


def test_what_was_learned_in_another_file_and_in_the_head_comes_back_after_an_update(
    installed: Installed,
) -> None:
    for edit in (
        ("--file", "references/more.md=-"),
        ("--edit", "SKILL.md", "Works with pdf files.", "Reads PDF files."),
    ):
        changed = installed(
            "update", "pdf", *edit, "-m", "learned", "--json", stdin="more\n", **AGENT
        )
        assert changed.json["version"]
    (installed.skills / "pdf/references/more.md").unlink()
    installed.document.write_text(text(UPDATE))
    installed.write_lock("b" * 40)
    installed("sync")
    assert (installed.skills / "pdf/references/more.md").read_text() == "more\n"
    assert "Reads PDF files." in installed.document.read_text()
    assert with_learned(UPDATE) in installed.document.read_text()


@pytest.mark.parametrize("is_named", [True, False], ids=["by an installer", "by nobody knows whom"])
def test_what_was_learned_is_not_lost_when_a_removed_skill_is_installed_again(
    installed: Installed, is_named: bool
) -> None:
    shutil.rmtree(installed.skills / "pdf")
    installed("sync")
    installed.save(installed.skills, "pdf", text(UPDATE))
    if is_named:
        installed.write_lock("b" * 40)
    installed("sync")
    if not is_named:
        (waiting,) = installed.proposals()
        assert "(2 lines)" in str(waiting["reason"])
        installed("inbox", "approve", waiting["proposal_id"])
    assert installed.document.read_text() == text(with_learned(UPDATE))


@pytest.mark.parametrize(
    "edited",
    {
        "all learned lines": VENDOR,
        "one of them": with_learned(VENDOR).replace("Learned: then count.\n", ""),
        "one of them and another place": with_learned(UPDATE).replace("\nLearned: then count.", ""),
        "them and the line beside them": VENDOR.replace("three", "3"),
        "none, but another place": with_learned(UPDATE),
    }.items(),
    ids=lambda one: one[0],
)
@pytest.mark.parametrize("lock", ["", "a" * 40], ids=["no lock file", "an old lock file"])
def test_a_learned_line_that_the_owner_deletes_in_an_editor_stays_deleted(
    tmp_path: Path, edited: tuple[str, str], lock: str
) -> None:
    machine = Installed(tmp_path, lock)
    machine.document.write_text(text(edited[1]))
    machine("sync")
    machine("sync")
    assert machine.document.read_text() == text(edited[1])
    assert text(edited[1]) in machine.served()
    assert machine.proposals() == []
    assert machine("status", "--json").json["put_back"] == []


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
@pytest.mark.parametrize(
    "kind", ["pipe", "huge", "deep", "list", "numbers", "binary", "folder", "link to a device"]
)
def test_a_hostile_lock_file_is_none(tmp_path: Path, kind: str) -> None:
    machine = Installed(tmp_path)
    lock = machine.lock
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    elif kind == "link to a device":
        lock.symlink_to("/dev/zero")
    else:
        lock.write_bytes(
            {
                "huge": b'{"skills": {"pdf": {"skillFolderHash": "b"}}}' + b" " * 5_000_000,
                "deep": b'{"skills": ' + b"[" * 200_000,
                "list": b'[{"skills": 1}]',
                "numbers": (
                    b'{"skills": {"pdf": {"skillFolderHash": 1e999}, "x": 3, "y": '
                    b'{"computedHash": "\\u0000"}}}'
                ),
                "binary": b"\xff\x00",
            }[kind]
        )
    machine.document.write_text(text(UPDATE))
    machine("sync")
    assert machine.document.read_text() == text(UPDATE)
    assert len(machine.proposals()) == 1


# git


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@a.test", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


class Cloned(CommandLine):
    """A project that was cloned and taken in; an agent's two lines in its skill pdf
    were approved.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.up = root / "up"
        self.up.mkdir()
        git(self.up, "init", "-q", "-b", "main")
        self.bring(VENDOR)
        self.project.rmdir()
        git(root, "clone", "-q", str(self.up), str(self.project))
        self.document = self.project / ".claude/skills/pdf/SKILL.md"
        self("init", self.project / ".claude/skills", "--scope", "proj", stdin="y\n")
        edit = (
            "--edit",
            "SKILL.md",
            "three",
            f"three\n\n{LEARNED}",
            "--propose",
            "-m",
            "from a session",
        )
        number = self("update", "proj/pdf", *edit, "--json", **AGENT).json["proposal_id"]
        self("inbox", "approve", number)
        assert LEARNED in self.document.read_text()

    def bring(self, body: str) -> None:
        self.save(self.up / ".claude/skills", "pdf", text(body))
        git(self.up, "add", "-A")
        git(self.up, "commit", "-qm", "change")

    def pull(self) -> None:
        git(self.project, "checkout", "-q", ".")
        git(self.project, "pull", "-q")

    def settle(self) -> None:
        for path in (
            self.project / ".git/index",
            self.project / ".git/HEAD",
            self.project / ".git/logs/HEAD",
        ):
            os.utime(path, (1, 1))


@pytest.mark.parametrize("follows", [True, False], ids=["followed", "held"])
def test_a_pull_is_merged_with_what_was_learned(tmp_path: Path, follows: bool) -> None:
    machine = Cloned(tmp_path)
    if follows:
        machine("trust", machine.project, "--follow", stdin="y\n")
    machine.bring(UPDATE)
    machine.pull()
    machine.settle()
    machine("sync")
    if not follows:
        (waiting,) = machine("inbox", "list", "--json").json["proposals"]
        shown = machine("inbox", "show", waiting["proposal_id"], "--json").json
        assert "+one, better" in shown["diff"] and "Learned" not in shown["diff"].replace(
            " Learned", ""
        )
        machine("inbox", "approve", waiting["proposal_id"])
    assert machine.document.read_text() == text(with_learned(UPDATE))
    assert machine("inbox", "list", "--json").json["proposals"] == []


def test_learned_lines_that_were_committed_and_taken_away_upstream_stay_away(
    tmp_path: Path,
) -> None:
    machine = Cloned(tmp_path)
    machine("trust", machine.project, "--follow", stdin="y\n")
    git(machine.project, "commit", "-qam", "learned")
    git(machine.up, "pull", "-q", str(machine.project), "main")
    machine.bring(UPDATE)
    git(machine.project, "pull", "-q")
    machine.settle()
    machine("sync")
    machine("sync")
    assert machine.document.read_text() == text(UPDATE)
    assert machine("inbox", "list", "--json").json["proposals"] == []
