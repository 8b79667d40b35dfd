"""`evolvable care upgrade` replaces the program only by one that is ours, and says what it would
run before it does.
"""

import json
import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from evolvable_server.care.upgrade import UpgradePlan, UpgradeRefused, index_name, replace_program
from evolvable_store import __version__

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    made = CommandLine(tmp_path)
    made.person = True
    return made


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of another version, as far as `upgrade` reads it."""
    folder = tmp_path / "clone"
    store = folder / "skills_store/evolvable_store"
    store.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "evolvable"\n', encoding="utf-8")
    (store / "__init__.py").write_text('__version__ = "0.9.0"\n', encoding="utf-8")
    return folder


def is_editable() -> bool:
    from importlib.metadata import distribution

    text = distribution("evolvable").read_text("direct_url.json")
    return bool(text and json.loads(text).get("dir_info", {}).get("editable"))


def test_a_clone_is_installed_by_the_installer_of_this_environment(
    run: CommandLine, clone: Path
) -> None:
    if is_editable():
        refusal = run("upgrade", clone, "--dry-run", code=1).err
        assert "runs from the clone" in refusal and "git pull" in refusal
        return
    done = run("--json", "upgrade", clone, "--dry-run").json
    assert (done["before"], done["after"]) == (__version__, "0.9.0")
    assert done["command"][-1] == str(clone) and sys.executable in done["command"]
    assert done["backup"] is None


@pytest.mark.parametrize("name", ["", "other"])
def test_a_folder_that_is_no_clone_of_ours_is_refused(
    run: CommandLine, clone: Path, name: str
) -> None:
    (clone / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n', encoding="utf-8")
    assert "is no clone of Evolvable" in run("upgrade", clone, "--yes", code=1).err


def test_a_version_is_refused_while_the_name_on_the_index_is_nobody_s(run: CommandLine) -> None:
    assert "names no package index" in run("upgrade", "9.9.9", "--yes", code=1).err


def test_a_wheel_of_another_package_and_a_missing_one_are_refused(
    run: CommandLine, tmp_path: Path
) -> None:
    other = tmp_path / "evolvable_tools-1.0-py3-none-any.whl"
    other.write_bytes(b"")
    assert "is no wheel of Evolvable" in run("upgrade", other, "--yes", code=1).err
    assert (
        "There is no file"
        in run("upgrade", "evolvable-9.0.0-py3-none-any.whl", "--yes", code=1).err
    )


def test_the_version_that_is_installed_is_not_installed_again(
    run: CommandLine, tmp_path: Path
) -> None:
    wheel = tmp_path / f"evolvable-{__version__}-py3-none-any.whl"
    wheel.write_bytes(b"")
    assert "is installed already" in run("upgrade", wheel, "--yes", code=1).err


def test_an_agent_cannot_replace_the_program(run: CommandLine, clone: Path) -> None:
    run.person = False
    refusal = run("upgrade", clone, "--yes", code=1, CLAUDECODE="1").err
    assert "Only a person replaces" in refusal


@pytest.mark.process
def test_the_installer_runs_outside_of_the_folder_that_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # whose uv.toml could name an index
    where = (sys.executable, "-c", "import os, sys; sys.exit(f'in {os.getcwd()}.')")
    with pytest.raises(UpgradeRefused) as refusal:
        replace_program(UpgradePlan("9.0.0", where, None))
    assert f"in {Path(sys.prefix).resolve()}." in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('published = false\nindex_name = "held"\n', None),
        ('published = true\nindex_name = ""\n', None),
        ('published = "true"\nindex_name = "held"\n', None),
        ("broken", None),
        ('published = true\nindex_name = "held"\n', "held"),
    ],
)
def test_a_name_on_the_index_counts_once_it_is_published(
    tmp_path: Path, text: str, name: str | None
) -> None:
    file = tmp_path / "identity.toml"
    file.write_text(text, encoding="utf-8")
    assert index_name(file) == name
    assert index_name(tmp_path / "missing.toml") is None
