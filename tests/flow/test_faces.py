"""Each package says in its face what others may use, and imports it late."""

import json
import shutil
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import structure

from evolvable_store import paths
from evolvable_store.faces import late_names


def run(code: str) -> Any:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.mark.process
@pytest.mark.parametrize(
    "top",
    [
        "evolvable_store",
        "evolvable_tools",
        "evolvable_server",
        "evolvable_evolve",
        "evolvable_teams",
    ],
)
def test_each_face_gives_every_name_that_it_lists(top):
    faces = sorted(
        module.name
        for module in structure.modules()
        if "late_names(" in module.text
        and "__getattr__" in module.text
        and module.name.partition(".")[0] == top
    )
    faces = [name for name in faces if name != "evolvable_store.faces"]
    code = f"""
import json
from importlib import import_module
print(json.dumps([[face, name] for face in {faces} for name in import_module(face).__all__
                  if not hasattr(import_module(face), name)]))"""

    assert faces
    assert run(code) == []


@pytest.mark.process
def test_a_face_imports_the_module_of_a_name_and_no_other_one():
    loaded = """
import json, sys
from evolvable_tools import verbs
def loaded():
    return [name for name in sys.modules if name.startswith("evolvable_tools.verbs.")]
before = loaded()
from evolvable_tools.verbs import ALIASES
print(json.dumps([before, loaded()]))"""

    assert run(loaded) == [[], ["evolvable_tools.verbs.registry"]]


def test_a_face_knows_no_other_names():
    with pytest.raises(AttributeError, match="'evolvable_store.storage' .*'no_such_name'"):
        _ = import_module("evolvable_store.storage").no_such_name


def test_a_face_waits_for_a_module_that_another_thread_has_begun_to_run(tmp_path, monkeypatch):
    (tmp_path / "begun_package").mkdir()
    (tmp_path / "begun_package" / "__init__.py").touch()
    (tmp_path / "begun_package" / "begun.py").write_text(
        "import threading\n"
        "def first(): return second()\n"
        "threading.begun.set(); threading.go_on.wait(60)\n"
        "def second(): return 2\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    begun, go_on, results = threading.Event(), threading.Event(), []
    monkeypatch.setattr(threading, "begun", begun, raising=False)
    monkeypatch.setattr(threading, "go_on", go_on, raising=False)
    face = late_names("begun_package", {"begun": "first"})
    importer = threading.Thread(target=import_module, args=("begun_package.begun",))
    importer.start()
    assert begun.wait(60)
    user = threading.Thread(target=lambda: results.append(face("first")()))
    user.start()
    # A thread that gets half of the module ends within this time, unless the machine is busy.
    user.join(0.2)
    waits = user.is_alive()
    go_on.set()
    importer.join()
    user.join()
    for name in ("begun_package", "begun_package.begun"):
        del sys.modules[name]

    assert waits and results == [2]


def test_who_asks_a_face_again_gets_the_value_that_the_module_has_now(monkeypatch):
    names = late_names("evolvable_store", {"paths": "MAX_DEPTH"})
    first = names("MAX_DEPTH")
    monkeypatch.setattr(paths, "MAX_DEPTH", first + 1)

    assert names("MAX_DEPTH") == first + 1


@pytest.mark.process
def test_no_package_has_more_than_three_doors():
    assert structure.too_many_doors(structure.modules()) == []


def copied(place: Path) -> Path:
    for folder in ("skills_store", "tools", "server"):
        shutil.copytree(
            structure.ROOT / folder,
            place / folder,
            ignore=shutil.ignore_patterns("seed", "*.so", "__pycache__"),
        )
    shutil.copytree(
        structure.ROOT / "benchmarks",
        place / "benchmarks",
        ignore=lambda _, names: set(names) - {"structure.py"},
    )
    return place


def checked(place: Path) -> tuple[int, str]:
    command = [sys.executable, place / "benchmarks" / "structure.py", "--imports"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout


@pytest.mark.process
def test_a_fourth_door_and_a_face_whose_lists_differ_are_refused(tmp_path):
    place = copied(tmp_path)
    modules = ("copying", "findings", "library_health", "recovery")
    used = "\n".join(f"from evolvable_tools.care import {module}" for module in modules)
    (place / "server" / "evolvable_server" / "planted.py").write_text(used, encoding="utf-8")
    face = place / "tools" / "evolvable_tools" / "care" / "__init__.py"
    head, table = face.read_text(encoding="utf-8").split("late_names(", 1)
    face.write_text(head + "late_names(" + table.replace(" copy_skills", "", 1), encoding="utf-8")

    code, report = checked(place)

    door, difference = sorted(report.splitlines(), key=lambda line: "copy_skills" in line)
    assert code == 1
    assert door.startswith(
        "evolvable_tools.care: evolvable_tools.care, evolvable_tools.care.copying, "
        "evolvable_tools.care.findings"
    )
    assert (
        difference
        == "tools/evolvable_tools/care/__init__.py: copy_skills of evolvable_tools.care.copying"
    )


@pytest.mark.process
def test_the_page_imports_no_protocol():
    """The contracts cannot see what a face imports late; here it runs."""
    code = (
        "import json, sys, evolvable_page.app; print(json.dumps([n for n in ('mcp', 'mcp_types') "
        "if n in sys.modules]))"
    )

    assert run(code) == []
