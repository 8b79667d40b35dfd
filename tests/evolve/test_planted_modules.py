"""No process of ours imports what lies in the folder where it is started: every command that starts
one has -P.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from mcp_place import Place

from evolvable_evolve.evolution.ledger.run_directory import create_run
from evolvable_evolve.run_launcher import start_driver
from evolvable_server.clients.registration import server_start

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("server", "tools", "skills_store", "plugins")
    for path in sorted((ROOT / folder).rglob("*.py"))
    # Scripts of the seed skills run a user's own tests, in the user's folder.
    if "seed/skills" not in path.as_posix()
]
SAFE = {"-P", "-I"}

PLANTED = (
    *(
        "server",
        "tools",
        "json",
        "random",
        "multiprocessing",
        "asyncio",
        "logging",
        "sqlite3",
        "platform",
        "secrets",
    ),
    *(
        "evolvable_server",
        "evolvable_tools",
        "evolvable_store",
        "yaml",
        "anyio",
        "mcp",
        "click",
        "filelock",
    ),
)


def commands(tree: ast.AST) -> Iterator[tuple[int, list[object]]]:
    """Yields each list or tuple that begins with sys.executable, with the constants in it."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.List | ast.Tuple)
            and node.elts
            and "sys.executable" in ast.unparse(node.elts[0])
        ):
            yield (
                node.lineno,
                [one.value if isinstance(one, ast.Constant) else one for one in node.elts],
            )


def test_every_command_that_starts_python_is_safe():
    found = {
        f"{path.relative_to(ROOT)}:{line}": parts
        for path in SOURCES
        for line, parts in commands(ast.parse(path.read_text(encoding="utf-8")))
    }
    unsafe = [
        where
        for where, parts in found.items()
        if parts[1:] and not SAFE & set(map(str, parts[1:3]))
    ]

    assert len(found) >= 4
    assert unsafe == []


def test_no_entry_of_a_client_or_a_plugin_starts_a_module_unsafely():
    texts = [
        path
        for folder in (ROOT / "plugins", ROOT / ".claude-plugin")
        for path in folder.rglob("*.json")
    ]
    texts += [ROOT / "server.json", ROOT / "claude_desktop_config.example.json"]
    for path in texts:
        assert '"-m"' not in path.read_text(encoding="utf-8"), path


def plant(folder: Path) -> Path:
    """Plants modules that leave a mark when anything imports them; returns where."""
    marks = folder.parent / f"{folder.name}-marks"
    marks.mkdir()
    code = (
        f"import os\nopen(os.path.join({str(marks)!r}, __name__.partition('.')[0]), 'w').close()\n"
    )
    for name in PLANTED:
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return marks


def imported(marks: Path) -> list[str]:
    return sorted(os.listdir(marks))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_plants_work(place):
    marks = plant(place.root)
    subprocess.run([sys.executable, "-c", "import yaml"], cwd=place.root, check=True, timeout=60)
    assert imported(marks) == ["yaml"]


def test_the_process_that_drives_an_evolution_imports_nothing_from_the_home(place):
    marks = plant(place.home)
    folder = create_run(place.home, datetime.now(UTC))
    start_driver(place.home, folder)
    text = folder.log.read_text(encoding="utf-8")

    assert imported(marks) == []
    assert "ImportError" not in text and "AttributeError" not in text, text


WORKERS = """
import asyncio
from evolvable_evolve.evolution.trials.backends import ProcessBackend, _Worker

async def main():
    backend = ProcessBackend()
    worker = _Worker(backend)
    await worker.stop()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_the_processes_of_trials_import_nothing_from_the_folder_even_when_this_program_is_a_script(
    place, tmp_path
):
    """A script, as `evolvable` is one, has its own folder before all others, and not the one it is
    started in.
    """
    marks = plant(place.root)
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "run").write_text(WORKERS, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(scripts / "run")],
        cwd=place.root,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (imported(marks), ran.returncode) == ([], 0), ran.stderr


def test_a_server_that_a_client_starts_without_our_script_imports_nothing_from_the_folder(
    place, monkeypatch
):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(place.root / "no-scripts"))
    start = server_start(place.home)
    marks = plant(place.root)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    command = [start.command, *start.args]
    ran = subprocess.run(
        command,
        input=json.dumps(hello) + "\n",
        cwd=place.root,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (imported(marks), ran.returncode) == ([], 0), ran.stderr
    assert start.args[:2] == ("-P", "-m")
