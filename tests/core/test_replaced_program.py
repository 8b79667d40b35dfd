"""A program that is updated while its server runs: what is in memory goes on, the rest is refused
with a sentence.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_place import Place
from stdio_client import Server

pytestmark = pytest.mark.process

SOURCES = [Path(__file__).parents[2] / folder for folder in ("server", "tools", "skills_store")]
HASHES = "evolvable_store/__init__.py,sha256=abc,1\n"


class Installation:
    """The program in a folder of its own, as an installer leaves it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.install("0.1.0", HASHES)

    def install(self, version: str, record: str, *, parts: bool = True) -> None:
        """Replace what is there. parts: False, where the next version has its modules elsewhere."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for source in SOURCES:
            shutil.copytree(
                source,
                self.folder,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        if not parts:
            for path in self.folder.rglob("*.py"):
                if path.name != "__init__.py":
                    path.unlink()
        about = self.folder / f"evolvable-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: evolvable\nVersion: {version}\n", encoding="utf-8")
        (about / "RECORD").write_text(record, encoding="utf-8")


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path / "site")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def server(place: Place, installation: Installation) -> Iterator[Server]:
    environment = place.environment | {"PYTHONPATH": os.fspath(installation.folder)}
    with open(place.root / "log", "ab") as log:
        running = Server(sys.executable, env=environment, cwd=place.root, stderr=log)
        try:
            yield running
        finally:
            running.close()


CHANGE = {
    "ref": "pdf",
    "edits": [{"path": "SKILL.md", "old": "two", "new": "2"}],
    "reason": "a number",
}


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_a_tool_that_was_not_loaded_before_an_update_says_to_restart_the_window(
    server: Server, place: Place, installation: Installation, version: str
) -> None:
    """The version's number may have stayed, as in an installation from a clone."""
    assert "three" in server.call("load_skill", ref="pdf")
    installation.install(version, HASHES.replace("abc", "def"), parts=False)
    for _ in range(2):
        refusal = server.call("update_resource", **CHANGE)
        assert "Evolvable was updated" in refusal and "Restart this window" in refusal
    assert "three" in server.call("load_skill", ref="pdf")
    assert "Traceback" not in (place.root / "log").read_text(encoding="utf-8")


def test_an_installation_of_the_same_files_again_stops_nobody(
    server: Server, installation: Installation
) -> None:
    assert "three" in server.call("load_skill", ref="pdf")
    installation.install("0.1.0", HASHES)
    answer = server.call("update_resource", **CHANGE)
    assert "Restart" not in answer
    assert "\n2\n" in server.call("load_skill", ref="pdf"), answer


def test_a_command_that_runs_while_its_program_is_removed_ends_with_a_sentence(
    place: Place, installation: Installation
) -> None:
    """Its parts are loaded one after the other: here the program goes once the first of
    them are.
    """
    program = (
        "import shutil, sys; from evolvable_server.cli import main\n"
        "from evolvable_store.program_files import guard_imports\n"
        f"guard_imports(); shutil.rmtree({os.fspath(installation.folder)!r})\n"
        "sys.argv = ['evolvable', 'status']; main()"
    )
    environment = place.environment | {"PYTHONPATH": os.fspath(installation.folder)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (
        done.returncode == 1
        and "Restart this window" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_a_module_that_an_update_has_removed_already_waits_for_its_end_and_says_the_sentence(
    place: Place, installation: Installation
) -> None:
    """The installer's list of files is replaced last: here while the import waits."""
    record = installation.folder / "evolvable-0.1.0.dist-info" / "RECORD"
    program = (
        "import pathlib, shutil, sys; from evolvable_server.cli import main\n"
        "from evolvable_store import program_files\n"
        f"program_files.guard_imports(); record = pathlib.Path({os.fspath(record)!r})\n"
        "for part in record.parents[1].glob('evolvable_*'): shutil.rmtree(part)\n"
        "program_files.VERSION_FILE.parent.mkdir()\n"
        "program_files.time.sleep = lambda _: record.write_text('another')\n"
        "program_files.running._marks = program_files.running._read_marks()\n"
        "sys.argv = ['evolvable', 'status']; main()"
    )
    environment = place.environment | {"PYTHONPATH": os.fspath(installation.folder)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1 and "Restart this window" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_that_the_same_installation_puts_back_is_loaded(
    place: Place, installation: Installation
) -> None:
    """It is gone when the import begins, and comes back while that waits."""
    module = installation.folder / "evolvable_store" / "gc.py"
    program = (
        "import pathlib\nfrom evolvable_store import program_files\n"
        f"module = pathlib.Path({os.fspath(module)!r}); away = module.with_suffix('.away')\n"
        "program_files.guard_imports(); module.rename(away)\n"
        "program_files.time.sleep = lambda _: away.rename(module)\n"
        "import evolvable_store.gc; print(evolvable_store.gc.__file__)"
    )
    environment = place.environment | {"PYTHONPATH": os.fspath(installation.folder)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == os.fspath(module), done.stderr
