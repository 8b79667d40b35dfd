"""A library is replaced by a backup in one command, and everything is taken off the machine in one
command.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from evolvable_store.store import Store


def skill(name: str, body: str) -> str:
    return f"---\nname: {name}\ndescription: Works with {name} files.\n---\n\n{body}\n"


@pytest.fixture
def evolvable(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def skills(evolvable: CommandLine) -> Path:
    folder = evolvable.user / ".claude/skills"
    evolvable.save(folder, "pdf", skill("pdf", "First."))
    evolvable("init", folder)
    return folder


def bodies(evolvable: CommandLine, *refs: str) -> list[str]:
    return [evolvable("get", ref).out.rsplit("---\n", 1)[1].strip() for ref in refs]


def test_a_backup_replaces_the_library_and_the_folders_are_watched_again(
    evolvable: CommandLine, skills: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "monday"
    evolvable("backup", backup)
    evolvable.save(skills, "pdf", skill("pdf", "Second."))
    evolvable("sync")
    before = {path: path.read_bytes() for path in backup.iterdir()}
    done = evolvable("recover", backup, "--yes", "--json").json

    assert done["resources"] == 1 and done["home"] == str(evolvable.home)
    assert bodies(evolvable, "pdf@1", "pdf@2") == ["First.", "Second."]
    assert [one["path"] for one in evolvable("folders", "--json").json["folders"]] == [str(skills)]
    assert (skills / "pdf/SKILL.md").read_text() == skill("pdf", "Second.")
    assert {path: path.read_bytes() for path in backup.iterdir()} == before
    with Store.open(Path(done["before"])) as store:
        assert len(store.history(store.head(store.heads()[0].ref))) == 2
    evolvable("fsck")


def test_a_damaged_library_is_replaced_too_and_lies_beside(
    evolvable: CommandLine, skills: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "monday"
    evolvable("backup", backup)
    (evolvable.home / "library.db").write_bytes(b"no database" * 1_000)
    done = evolvable("recover", backup, "--yes")

    assert "`evolvable init FOLDER`" in done.err
    assert bodies(evolvable, "pdf") == ["First."]
    (before,) = evolvable.root.glob("library.before-*/library.db")
    assert before.read_bytes().startswith(b"no database")


def test_a_recovery_that_dies_before_its_last_step_leaves_the_library(
    evolvable: CommandLine, skills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evolvable("backup", tmp_path / "monday")
    evolvable.save(skills, "pdf", skill("pdf", "Second."))
    evolvable("sync")

    def dies(*_: object) -> None:
        raise SystemExit(137)

    with monkeypatch.context() as patch:
        patch.setattr("evolvable_tools.care.recovery.os.replace", dies)
        assert evolvable("recover", tmp_path / "monday", "--yes", code=None).code == 137
    assert bodies(evolvable, "pdf") == ["Second."]


@pytest.mark.parametrize("kind", ["empty", "garbage", "itself"])
def test_what_is_no_backup_changes_nothing(
    evolvable: CommandLine, skills: Path, tmp_path: Path, kind: str
) -> None:
    source = evolvable.home if kind == "itself" else tmp_path / "other"
    source.mkdir(exist_ok=True)
    if kind == "garbage":
        (source / "library.db").write_bytes(b"garbage" * 4_000)
    refused = evolvable("recover", source, "--yes", code=None)
    assert refused.code == 1 and str(source) in refused.err and ".part" not in refused.err
    assert bodies(evolvable, "pdf") == ["First."]
    assert not list(evolvable.root.glob("*library.*"))


def test_restoring_a_folder_says_which_command_takes_a_backup(
    evolvable: CommandLine, skills: Path
) -> None:
    said = evolvable("restore", skills, code=None).err

    assert "is a folder" in said and "`evolvable backup restore FOLDER`" in said


def test_a_no_and_an_agent_change_nothing(
    evolvable: CommandLine, skills: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "monday"
    evolvable("backup", backup)
    evolvable.save(skills, "pdf", skill("pdf", "Second."))
    evolvable("sync")
    assert "Nothing was changed" in evolvable("recover", backup, stdin="n\n", code=None).err
    evolvable.person = False
    for command in (("recover", backup, "--yes"), ("uninstall", "--data", "--yes")):
        assert "Only a person" in evolvable(*command, code=None).err
    assert bodies(evolvable, "pdf") == ["Second."]


@pytest.mark.process
def test_a_library_that_a_server_has_open_is_not_replaced(
    evolvable: CommandLine, skills: Path, tmp_path: Path
) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("the system shows no open files of others")
    evolvable("backup", tmp_path / "monday")
    with Store.open(evolvable.home):
        refused = evolvable.process("recover", tmp_path / "monday", "--yes")
    assert refused.code == 1 and "have the library open" in refused.err
    assert bodies(evolvable, "pdf") == ["First."]


def test_uninstalling_takes_out_what_was_put_in_and_leaves_the_skills(
    evolvable: CommandLine, skills: Path
) -> None:
    settings = evolvable.user / ".claude.json"
    settings.write_text(json.dumps({"mcpServers": {"other": {"command": "x"}}}))
    evolvable("connect", "claude-code")
    evolvable("memory", "on", "codex", code=None)
    shown = evolvable("uninstall", "--dry-run").out
    assert (
        "Claude Code" in shown
        and str(skills) in shown
        and "evolvable" in json.loads(settings.read_text())["mcpServers"]
    )
    done = evolvable("uninstall", stdin="y\n").out

    assert list(json.loads(settings.read_text())["mcpServers"]) == ["other"]
    assert evolvable("folders", "--json").json == {"folders": []}
    assert (skills / "pdf/SKILL.md").exists() and (evolvable.home / "library.db").exists()
    assert "pip uninstall evolvable" in done
    assert "No client is connected" in evolvable("uninstall", "--yes").out


def test_uninstalling_with_data_deletes_what_is_ours_alone(
    evolvable: CommandLine, skills: Path
) -> None:
    (evolvable.home / "thesis.txt").write_text("mine")
    evolvable("uninstall", "--data", "--yes")

    assert [path.name for path in evolvable.home.iterdir()] == ["thesis.txt"]
    assert sorted(path.name for path in (evolvable.user / ".claude").iterdir()) == ["skills"]
    assert (skills / "pdf/SKILL.md").exists()


@pytest.mark.process
def test_a_postgresql_that_was_killed_keeps_nobody_from_uninstalling_and_one_that_runs_does(
    evolvable: CommandLine,
) -> None:
    data = evolvable.home / "postgres-server/data"
    data.mkdir(parents=True)
    command = [sys.executable, "-c", "print(flush=True); input()", "-D", str(data)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdout.readline()  # Linux shows an empty command line for a moment after exec
        (data / "postmaster.pid").write_text(f"{running.pid}\n")
        assert "PostgreSQL runs in" in evolvable("uninstall", "--data", "--yes", code=1).err
        running.stdin.write(b"\n")
        running.stdin.flush()

    evolvable("uninstall", "--data", "--yes")
    assert not data.exists()


def test_uninstalling_with_data_deletes_what_commands_wrote_beside_the_library_and_names_what_stays(
    evolvable: CommandLine, skills: Path, tmp_path: Path
) -> None:
    evolvable("backup", tmp_path / "monday")
    evolvable("recover", tmp_path / "monday", "--yes")
    for name in ("copies.jsonl", "approved-tools.jsonl", "state.key", "used-days.json"):
        (evolvable.home / name).write_text("{}\n")
    for name in ("built-tools/csv", "rounds", "remotes/one.git"):
        (evolvable.home / name).mkdir(parents=True)
    (evolvable.home / "thesis.txt").write_text("mine")
    (before,) = evolvable.home.parent.glob(f"{evolvable.home.name}.before-*")
    mine = evolvable.home.with_name(f"{evolvable.home.name}.before-the-move")
    mine.mkdir()

    assert str(before) in evolvable("uninstall", "--dry-run").out
    evolvable("uninstall", "--data", "--yes")

    assert [path.name for path in evolvable.home.iterdir()] == ["thesis.txt"]
    assert not before.exists() and mine.is_dir()
    assert "thesis.txt" in evolvable("uninstall", "--data", "--yes").out
