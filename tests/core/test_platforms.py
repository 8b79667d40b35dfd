"""What the program does on other systems: docs/platforms.md is complete, and branches that can run
here do.
"""

import json
import os
import re
import struct
import subprocess
import sys
import types
from pathlib import Path

import pytest
from stdio_client import Server

from evolvable_server import file_events
from evolvable_store.workingcopy import folder_lock

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/platforms.md").read_text(encoding="utf-8")
USES = re.compile(
    r"\bos\.(?:fork|register_at_fork)\b|\bmultiprocessing\b|\bsignal\.(?:SIG|signal|set)|"
    r"add_signal_handler|os\.kill\(|killpg|start_new_session|\"/proc|\bfcntl\b|\bmsvcrt\b|"
    r"inotify_init1|geteuid|getuid|st_uid|renameat2|dir_fd|sys\.platform|\bos\.name\b|AF_UNIX|"
    r"import termios|\bchmod\(|umask\(|os\.symlink|symlink_to\(|os\.link\("
)

linux = pytest.mark.skipif(
    sys.platform != "linux", reason="runs the branches of other systems on Linux"
)


def users() -> list[Path]:
    """The modules of the program that use something of the system."""
    folders = (ROOT / "skills_store/evolvable_store", ROOT / "tools", ROOT / "server")
    modules = [
        path for folder in folders for path in folder.rglob("*.py") if "seed" not in path.parts
    ]
    return [path for path in modules if USES.search(path.read_text(encoding="utf-8"))]


def test_every_module_that_uses_the_system_is_in_the_table_of_platforms():
    named = re.findall(r"`([\w/]+\.py)`", PAGE)
    missing = [
        path for path in users() if not any(path.as_posix().endswith(f"/{name}") for name in named)
    ]
    assert [path.relative_to(ROOT).as_posix() for path in missing] == []


def test_every_module_and_every_test_that_the_table_names_is_there():
    tests = {
        path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    }
    defined = set(
        re.findall(r"^(?:async )?def (test_\w+)", "\n".join(tests.values()), re.MULTILINE)
    )
    modules = [
        path.as_posix()
        for folder in ("skills_store", "tools", "server")
        for path in (ROOT / folder).rglob("*.py")
    ]

    for name in re.findall(r"`(test_\w+)`", PAGE):
        assert name in defined, name
    for name in re.findall(r"`([\w/]+\.py)`", PAGE):
        assert name in tests or any(path.endswith(f"/{name}") for path in modules), name


def as_windows_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the lock what Windows has: no fcntl, and msvcrt.locking, here over a lock of the open
    file's bytes.
    """
    import fcntl as real

    def locking(descriptor: int, mode: int, size: int) -> None:
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        real.fcntl(
            descriptor,
            real.F_OFD_SETLK,
            struct.pack("hhqqhh", real.F_WRLCK, os.SEEK_SET, at, size, 0, 0),
        )

    windows = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "msvcrt", windows)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(folder_lock, "os", types.SimpleNamespace(**(vars(os) | {"name": "nt"})))


@linux
def test_a_folder_is_locked_without_fcntl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    as_windows_locks(monkeypatch)
    path = tmp_path / "lock"
    path.write_bytes(b"who")
    first, second = (os.open(path, os.O_RDWR) for _ in range(2))
    try:
        assert folder_lock.try_lock(first)
        assert not folder_lock.try_lock(second)
        assert folder_lock.is_held(path)
        assert path.read_bytes() == b"who"
    finally:
        os.close(first)
    assert folder_lock.try_lock(second)
    os.close(second)
    assert not folder_lock.is_held(path)


@linux
@pytest.mark.process
def test_changes_are_seen_by_watchfiles_where_no_inotify_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(file_events, "has_inotify", lambda: False)
    events = file_events.tree_events([tmp_path])
    try:
        (tmp_path / "SKILL.md").write_text("saved", encoding="utf-8")
        found: set[str] = set()
        for _ in range(20):
            found |= events.wait(1)
            if found:
                break
        assert os.fspath(tmp_path / "SKILL.md") in found
        assert file_events.library_events(tmp_path, tmp_path) is None
    finally:
        events.close()


@linux
@pytest.mark.process
def test_the_program_says_its_version_where_no_module_of_posix_can_be_imported(tmp_path: Path):
    """Every import of such a module is late or guarded: Windows would not even start otherwise."""
    code = (
        "import sys\n"
        "for name in ('fcntl', 'termios', 'pwd', 'grp', 'resource', 'pty', 'tty'): "
        "sys.modules[name] = None\nsys.platform = 'win32'\n"
        "import evolvable_store.workingcopy, evolvable_tools.verbs, evolvable_tools.retrieval\n"
        "import evolvable_store.storage, evolvable_tools.review\nprint('imported')\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "imported", done.stderr


AS_WINDOWS = ROOT / "tests/support/as_windows.py"
SKILL = (
    "---\nname: csv\ndescription: Clean CSV files and check the delimiter.\n---\n# CSV\n"
    "Check the delimiter first.\n"
)


def windows_environment(tmp_path: Path) -> dict[str, str]:
    """A new account and library."""
    return {**os.environ, "HOME": str(tmp_path), "EVOLVABLE_HOME": str(tmp_path / "library")}


@linux
@pytest.mark.process
def test_over_mcp_the_whole_loop_runs_with_what_windows_answers(tmp_path: Path):
    server = Server(
        sys.executable,
        command=["-P", str(AS_WINDOWS), "serve"],
        env=windows_environment(tmp_path),
        stderr=subprocess.DEVNULL,
    )
    try:
        made = server.call(
            "update_resource", ref="skill:csv", reason="new", create=True, files={"SKILL.md": SKILL}
        )
        found = server.call("find_skill", task="clean a csv file whose delimiter is wrong")
        loaded = server.call("load_skill", ref="skill:csv")
        reported = server.call(
            "report_outcome", use_id=loaded.rsplit("use_id: ")[1].split()[0], outcome="success"
        )
        edit = [{"path": "SKILL.md", "old": "first", "new": "and the quotes first"}]
        changed = server.call("update_resource", ref="skill:csv", reason="quotes", edits=edit)
        undone = server.call("undo", operation=json.loads(changed)["operation"], reason="too much")
        text = server.call("get_resource", ref="skill:csv")
    finally:
        server.close()

    assert json.loads(made)["version"] == 1
    assert json.loads(found)["use"]["ref"] == "skill:csv"
    assert "Check the delimiter first." in loaded
    assert json.loads(reported)["counted"]
    assert json.loads(undone)["undid"] == [json.loads(changed)["operation"]]
    assert "Check the delimiter first." in text


@linux
@pytest.mark.process
def test_the_commands_run_with_what_windows_answers(tmp_path: Path):
    skill = tmp_path / "skills/csv/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL, encoding="utf-8")
    commands = [
        ["import", str(skill.parents[1])],
        ["list"],
        ["status"],
        ["inbox"],
        ["doctor"],
        ["backup", "create", str(tmp_path / "backup.zip")],
        ["export", str(tmp_path / "skills.zip")],
        ["care", "scan", str(skill.parents[1])],
        ["connect", "claude-code", "--dry-run"],
        ["find", "clean a csv file"],
    ]
    words = [word for command in commands for word in ("--then", *command)][1:]
    done = subprocess.run(
        [sys.executable, "-P", str(AS_WINDOWS), *words],
        capture_output=True,
        text=True,
        env=windows_environment(tmp_path),
        timeout=240,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 4, done.stderr  # what no person imported at a terminal waits
    assert "skill:csv" in done.stdout
