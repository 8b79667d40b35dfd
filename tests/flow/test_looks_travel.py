"""Looks at sealed tests go along with what holds their tasks, and nothing that comes back makes
fewer of them.
"""

import json
import os
import subprocess

import pytest
from command_line import CommandLine
from remote_place import commit_tree, git, make_hub

from evolvable_evolve.evolution.tasks.holdout import ACCESS_FILE, look_at
from evolvable_evolve.evolution.tasks.opened_tasks import OpenedTaskLog, TaskOpening
from evolvable_evolve.evolution.tasks.reader import read_taskset
from evolvable_evolve.evolution.tasks.similarity import sketch_tasks

ABOUT = "---\nname: {}\ndescription: Sums to do.\n---\n"


def tasks_of(*sums):
    lines = [
        {"id": f"t{n}", "prompt": f"Add {n} and 3.", "expected": str(n + 3), "split": "test"}
        for n in sums
    ]
    return "".join(json.dumps(one) + "\n" for one in lines)


def opens(home, *sums, run="one"):
    taskset = read_taskset("sums", {"tasks.jsonl": tasks_of(*sums).encode()})
    sketches = tuple(sketch_tasks(taskset.tasks, taskset.files))
    OpenedTaskLog.in_library(home).add(TaskOpening(run, "f", taskset.test_digest, (), sketches))


def looks(home, *sums):
    return look_at(home, read_taskset("sums", {"tasks.jsonl": tasks_of(*sums).encode()})) - 1


@pytest.fixture
def machine(tmp_path):
    """A library with a task set, three tasks of which a run has opened, and one task of another
    set.
    """
    evolvable = CommandLine(tmp_path)
    folder = tmp_path / "sums"
    folder.mkdir()
    (folder / "ENVIRONMENT.md").write_text(ABOUT.format("sums"))
    (folder / "tasks.jsonl").write_text(tasks_of(1, 2, 3))
    evolvable("import", folder, "--kind", "environment", "--yes")
    opens(evolvable.home, 1, 2, 3)
    opens(evolvable.home, 100)
    return evolvable


def test_a_backup_has_the_looks_and_an_older_one_that_is_restored_takes_none_back(
    machine, tmp_path
):
    old = tmp_path / "monday"
    machine("backup", old)
    assert looks(old, 2) == 1, "the backup opened as a library"
    opens(machine.home, 2, run="two")
    machine("recover", old, "--yes")
    assert (looks(machine.home, 2), looks(machine.home, 1)) == (2, 1)

    # An agent that damages or removes the record gains nothing by a backup either.
    record = machine.home / "evolve/opened.jsonl"
    record.write_bytes(b"damaged\n" + b"".join(record.read_bytes().splitlines(True)[-1:]))
    machine("recover", old, "--yes")
    assert (looks(machine.home, 2), looks(machine.home, 1)) == (2, 1)
    machine("backup", old, "--replace")
    assert looks(old, 2) == 2


@pytest.mark.parametrize("form", ["json", "zip", "folders"])
def test_an_exported_task_set_brings_its_looks_and_a_second_import_adds_none(
    machine, tmp_path, form
):
    target = tmp_path / {"json": "out.json", "zip": "out.zip", "folders": "out"}[form]
    machine("export", target, "environment:sums", "--format", form)
    elsewhere = {"EVOLVABLE_HOME": str(tmp_path / "elsewhere")}
    kind = [] if form == "json" else ["--kind", "environment"]
    first = machine("import", target, *kind, "--yes", **elsewhere)
    again = machine("import", target, *kind, "--yes", "--json", **elsewhere).json

    assert "1 look at sealed test tasks" in first.out and again["looks"] == 0
    there = tmp_path / "elsewhere"
    assert looks(there, 3, 1) == 1, "in another order, a subset, under any name"
    assert looks(there, 100) == 0, "only of the tasks that were exported"


def test_a_whole_archive_brings_every_look_and_an_older_reader_ignores_them(machine, tmp_path):
    machine("export", tmp_path / "all.json")
    machine("import", tmp_path / "all.json", "--yes", EVOLVABLE_HOME=str(tmp_path / "elsewhere"))

    assert looks(tmp_path / "elsewhere", 100) == 1
    written = json.loads((tmp_path / "all.json").read_text())
    assert written["version"] == 1 and {one["run"] for one in written["looks"]} == {"one"}


@pytest.mark.skipif(os.name == "nt", reason="there are no such links and pipes")
def test_looks_beside_hostile_folders_are_not_read_through_links_and_pipes(machine, tmp_path):
    out = tmp_path / "out"
    machine("export", out, "environment:sums", "--format", "folders")
    secret = out / ".evolvable/opened.jsonl"
    secret.rename(tmp_path / "outside")
    for make in (lambda: secret.symlink_to(tmp_path / "outside"), lambda: os.mkfifo(secret)):
        make()
        home = tmp_path / f"home-{secret.is_fifo()}"
        machine("import", out, "--kind", "environment", "--yes", EVOLVABLE_HOME=str(home))
        assert looks(home, 1) == 0
        secret.unlink()


def test_the_numbers_of_looks_from_before_tasks_were_recorded_are_merged_too(machine, tmp_path):
    line = b'{"test": "abc", "number": 1, "run": "%s", "finalist": "f", "at": "2026-11-01"}\n'
    record = machine.home / "evolve" / ACCESS_FILE
    record.write_bytes(line % b"old")
    machine("backup", tmp_path / "monday")
    record.write_bytes(line % b"new")
    machine("recover", tmp_path / "monday", "--yes")

    assert record.read_bytes() == line % b"new" + line % b"old"


@pytest.mark.process
def test_a_clone_of_a_remote_has_its_looks_and_what_others_push_makes_none_fewer(machine, tmp_path):
    hub, there = make_hub(tmp_path / "hub.git"), tmp_path / "there"
    machine("remote", "add", "origin", hub)
    machine("push")
    machine("--home", there, "clone", hub, "--yes")
    assert (looks(there, 2), looks(there, 100)) == (1, 0), (
        "of the tasks that were pushed, and of no others"
    )

    opens(there, 2, run="two")
    machine("--home", there, "push")
    decided = (
        b'{"run": "one", "finalist": "f", "test": "", "program": [], "tasks": [], "state": '
        b'"decided"}'
    )
    files = []
    for line in git(hub, "ls-tree", "-r", "main").splitlines():
        mode, _, rest = line.split(" ", 2)
        identity, path = rest.split("\t")
        data = subprocess.check_output(["git", "cat-file", "blob", identity], cwd=hub)
        files.append(
            (mode, path, decided + b"\n[[[\n\xff" if path.endswith("looks.jsonl") else data)
        )
    commit_tree(hub, files, "decided", git(hub, "rev-parse", "main"))
    machine("pull", "--yes")
    assert looks(machine.home, 1) == 1, (
        "a line that frees what was opened, and bytes that are no line"
    )
