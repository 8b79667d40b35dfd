"""The core without its annexes: a copy of the installation without their folders runs the tests of
the core.
"""

import os
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from older_machine import OlderMachine

import evolvable_server
import evolvable_store
import evolvable_tools
from evolvable_server import plugins
from evolvable_store.paths import MIRRORS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
CORE = (evolvable_store, evolvable_tools, evolvable_server)
ANNEXES = (plugins.EVOLVE, plugins.TEAMS, plugins.PAGE)

COMMANDS_AND_TOOLS = (
    "test_cli",
    "test_bare_command",
    "test_lookup",
    "test_stdio",
    "test_surface",
    "test_undo",
)
"""Modules of `tests/core`: the commands of the core and the tools of its server."""


def installed_entries() -> Iterator[Path]:
    """Yield what is installed, but for this program."""
    own = {package.__name__ for package in CORE} | set(ANNEXES)
    for folder in map(Path, [*site.getsitepackages(), *sys.path]):
        for entry in folder.iterdir() if folder.name == "site-packages" and folder.is_dir() else ():
            is_own = entry.name in own or entry.name.startswith(("evolvable-", "__editable__"))
            if not is_own and entry.suffix != ".pth":
                yield entry


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an installation that holds the core alone."""
    place = tmp_path_factory.mktemp("core")
    venv.create(place, with_pip=False, symlinks=True)
    packages = next(place.glob("lib/*/site-packages"))
    for entry in installed_entries():
        if not (packages / entry.name).exists():
            (packages / entry.name).symlink_to(entry)
    for package in CORE:
        shutil.copytree(Path(package.__file__).parent, packages / package.__name__)
    return place / "bin/python"


def run(python: Path, *words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *words], capture_output=True, text=True, timeout=500, **options)


def test_no_annex_is_there(python):
    for annex in ANNEXES:
        assert run(python, "-c", f"import {annex}").returncode == 1


def test_the_commands_and_the_tools_of_the_core_work(python, tmp_path):
    modules = [ROOT / f"tests/core/{name}.py" for name in COMMANDS_AND_TOOLS]
    options = ("-q", "-p", "no:cacheprovider", "-n", "0", "--basetemp", tmp_path / "core")

    done = run(python, "-m", "pytest", *options, *modules, cwd=ROOT)

    assert done.returncode == 0, done.stdout[-4000:]


def test_a_library_that_all_annexes_wrote_to_is_checked_copied_and_named(python, tmp_path):
    machine = OlderMachine(tmp_path, "4329b64")
    (machine.home / MIRRORS / "hub.git").mkdir(parents=True)
    environment = {**os.environ, "HOME": str(machine.user), "EVOLVABLE_HOME": str(machine.home)}

    def evolvable(*words: str | Path) -> str:
        done = run(python, "-m", "evolvable_server", *words, env=environment, cwd=machine.project)
        assert done.returncode == 0, done.stderr
        return done.stderr

    for said in (evolvable("fsck"), evolvable("backup", tmp_path / "copy")):
        assert f"{machine.home / 'evolve'} holds 2 runs of evolution" in said
        assert f"{machine.home / MIRRORS} holds 1 mirrors of git remotes" in said
