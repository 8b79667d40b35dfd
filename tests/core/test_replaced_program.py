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
    server: Server, place: Place, installation: Installation
) -> None:
    """Nor the threads that load their parts meanwhile."""
    assert "three" in server.call("load_skill", ref="pdf")
    installation.install("0.1.0", HASHES)
    answer = server.call("update_resource", **CHANGE)
    log = (place.root / "log").read_text(encoding="utf-8")
    assert "\n2\n" in server.call("load_skill", ref="pdf"), (answer, log)
    assert "Evolvable was updated" not in log
    assert "Traceback" not in log


def run_program(
    place: Place, installation: Installation, program: str
) -> subprocess.CompletedProcess[str]:
    """Run it with the names `folder`, `record`, `files` (the module) and `put_back`, which says
    what is done where the program waits.
    """
    names = (
        "import pathlib, shutil, sys\n"
        "from evolvable_store import program_files as files\n"
        f"folder = pathlib.Path({os.fspath(installation.folder)!r})\n"
        "record = folder / 'evolvable-0.1.0.dist-info' / 'RECORD'\n"
        "def put_back(what): files.time.sleep = lambda _: what()\n"
    )
    return subprocess.run(
        [sys.executable, "-c", names + program],
        env=place.environment | {"PYTHONPATH": os.fspath(installation.folder)},
        capture_output=True,
        text=True,
    )


def test_a_command_that_runs_while_its_program_is_removed_ends_with_a_sentence(
    place: Place, installation: Installation
) -> None:
    """Its parts are loaded one after the other: here the program goes once the first of
    them are.
    """
    done = run_program(
        place,
        installation,
        "from evolvable_server.cli import main\n"
        "files.guard_imports(); shutil.rmtree(folder); files.INSTALL_SECONDS = 0\n"
        "sys.argv = ['evolvable', 'status']; main()",
    )
    assert done.returncode == 1 and "Restart this window" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_that_an_update_has_removed_already_waits_for_its_end_and_says_the_sentence(
    place: Place, installation: Installation
) -> None:
    """The installer's list of files is replaced last: here while the import waits."""
    done = run_program(
        place,
        installation,
        "from evolvable_server.cli import main\n"
        "files.guard_imports()\n"
        "for part in folder.glob('evolvable_*'): shutil.rmtree(part)\n"
        "files.VERSION_FILE.parent.mkdir()\n"
        "files.VERSION_FILE.write_text('another')\n"
        "files.running._marks = files.running._read_marks()\n"
        "put_back(lambda: record.write_text('another'))\n"
        "sys.argv = ['evolvable', 'status']; main()",
    )
    assert done.returncode == 1 and "Restart this window" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_that_the_same_installation_puts_back_is_loaded(
    place: Place, installation: Installation
) -> None:
    """It is gone when the import begins, and comes back while that waits."""
    done = run_program(
        place,
        installation,
        "module = folder / 'evolvable_store' / 'gc.py'; away = module.with_suffix('.away')\n"
        "files.guard_imports(); module.rename(away); put_back(lambda: away.rename(module))\n"
        "import evolvable_store.gc; print(evolvable_store.gc.__file__)",
    )
    assert done.stdout.strip() == os.fspath(installation.folder / "evolvable_store" / "gc.py"), (
        done.stderr
    )


def test_a_package_whose_init_is_removed_already_is_loaded_once_it_is_back(
    place: Place, installation: Installation
) -> None:
    """Python would take the folder for a package without code."""
    done = run_program(
        place,
        installation,
        "module = folder / 'evolvable_store' / 'search' / '__init__.py'\n"
        "away = module.with_suffix('.away')\n"
        "files.guard_imports(); module.rename(away); put_back(lambda: away.rename(module))\n"
        "import evolvable_store.search; print(evolvable_store.search.__file__)",
    )
    assert done.stdout.strip().endswith("__init__.py"), done.stderr


def test_a_module_one_of_whose_files_is_gone_while_it_is_loaded_is_loaded_again(
    place: Place, installation: Installation
) -> None:
    done = run_program(
        place,
        installation,
        "data = folder / 'evolvable_tools' / 'scan' / 'text_analysis.toml'\n"
        "away = data.with_suffix('.away')\n"
        "files.guard_imports(); data.rename(away); put_back(lambda: away.rename(data))\n"
        "import evolvable_tools.scan.text_analysis as module; print(module.__file__)",
    )
    assert done.stdout.strip().endswith("text_analysis.py"), done.stderr


def test_the_import_of_another_package_waits_for_an_installation_that_has_begun(
    place: Place, installation: Installation
) -> None:
    """An import that is refused halfway leaves a package that no later import can load: here the
    list of files goes between the modules of PyYAML.
    """
    done = run_program(
        place,
        installation,
        "away = record.with_suffix('.away')\n"
        "class Installer:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'yaml.tokens' and not away.exists(): record.rename(away)\n"
        "files.guard_imports(); sys.meta_path.insert(0, Installer())\n"
        "put_back(lambda: shutil.copy2(away, record))\n"
        "import yaml; print(yaml.safe_load('1'), away.exists())",
    )
    assert done.stdout.split() == ["1", "True"], done.stderr


def test_a_program_without_its_compiled_part_waits_for_nothing(
    place: Place, installation: Installation
) -> None:
    """It is the one module that an installation may lack."""
    for compiled in installation.folder.rglob("_scoring.*"):
        compiled.unlink()
    done = run_program(
        place,
        installation,
        "def fail(): raise SystemExit('it waits')\n"
        "files.guard_imports(); put_back(fail)\n"
        "from evolvable_store.search.bm25 import COMPILED; print(COMPILED)",
    )
    assert done.stdout.strip() == "False", done.stderr


def test_a_program_that_was_removed_is_waited_for_once(
    place: Place, installation: Installation
) -> None:
    done = run_program(
        place,
        installation,
        "now, pauses = [0.0], []\n"
        "def pass_time(): pauses.append(1); now[0] += 1\n"
        "files.guard_imports(); files.time.monotonic = lambda: now[0]; put_back(pass_time)\n"
        "from evolvable_store.errors import ProgramReplaced\n"
        "record.unlink()\n"
        "for _ in range(3):\n"
        "    try: import evolvable_store.gc\n"
        "    except ProgramReplaced: print(len(pauses))",
    )
    counts = done.stdout.split()
    assert len(counts) == 3 and counts[0] == counts[2] != "0", done.stderr


def test_a_part_that_is_missing_for_good_is_waited_for_once(
    place: Place, installation: Installation
) -> None:
    """As in an installation that somebody damaged."""
    done = run_program(
        place,
        installation,
        "now, pauses = [0.0], []\n"
        "def pass_time(): pauses.append(1); now[0] += 1\n"
        "files.guard_imports(); files.time.monotonic = lambda: now[0]; put_back(pass_time)\n"
        "(folder / 'evolvable_store' / 'gc.py').unlink()\n"
        "for _ in range(3):\n"
        "    try: import evolvable_store.gc\n"
        "    except ModuleNotFoundError: print(len(pauses))",
    )
    counts = done.stdout.split()
    assert len(counts) == 3 and counts[0] == counts[2] != "0", done.stderr


def test_a_clone_has_no_installer_to_wait_for(place: Place, installation: Installation) -> None:
    shutil.rmtree(installation.folder / "evolvable-0.1.0.dist-info")
    done = run_program(
        place,
        installation,
        "def fail(): raise SystemExit('it waits')\n"
        "files.guard_imports(); put_back(fail)\n"
        "(folder / 'evolvable_store' / 'gc.py').unlink()\n"
        "try: import evolvable_store.gc\n"
        "except ModuleNotFoundError: print('missing')",
    )
    assert done.stdout.strip() == "missing", done.stderr
