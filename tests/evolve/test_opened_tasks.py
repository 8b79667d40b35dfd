"""Looks are counted by task and near-duplicate text, and tasks that are alike are grouped."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from evolvable_store.errors import InvalidArgument, LibraryCorrupt
from evolvable_tools.evolve.ledger.run_directory import RunDirectory
from evolvable_tools.evolve.statistics.staged_test import alpha_of_look
from evolvable_tools.evolve.task import Split
from evolvable_tools.evolve.tasks.holdout import look_at, opened_before
from evolvable_tools.evolve.tasks.reader import read_taskset
from evolvable_tools.evolve.tasks.similarity import OpenedTaskLog, TaskOpening, TextSketch, find_groups, sketch_tasks

LONG = "The harbour office of the northern town keeps a ledger of every ship that leaves in autumn; name the {} one."


def made(*prompts: str, **more: str):
    lines = [
        {"id": f"t{n}", "prompt": text, "expected": "7", "split": "test", **more} for n, text in enumerate(prompts)
    ]
    return read_taskset("made", {"tasks.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode()})


def opened(home: Path, prompts: Sequence[str], run: str = "one", finalist: str = "f") -> None:
    taskset = made(*prompts)
    sketches = tuple(sketch_tasks(taskset.of(Split.TEST), taskset.files))
    OpenedTaskLog.in_library(home).add(TaskOpening(run, finalist, taskset.test_digest, ("skill:pdf",), sketches))


def test_a_space_a_dropped_task_and_another_name_of_the_set_leave_the_count_as_it_is(tmp_path):
    opened(tmp_path, ["Add 2 and 3.", "Add 4 and 5.", LONG.format("third")])

    assert look_at(tmp_path, made("Add 2 and 3.", "Add 4 and 5.", LONG.format("third"))) == 2
    assert look_at(tmp_path, made("add  2 and 3")) == 2
    assert look_at(tmp_path, made("Take 9 from 11.", LONG.format("fourth"))) == 2, "one word of twenty is no other task"
    assert look_at(tmp_path, made("Add 2 and 4.", "Name the capital of Chile.")) == 1


def test_a_set_has_one_look_more_than_the_most_of_its_tasks_and_what_was_not_opened_stays_fresh(tmp_path):
    for run in ("one", "two", "three"):
        opened(tmp_path, ["Add 2 and 3."], run)
    opened(tmp_path, ["Add 2 and 3.", "Add 4 and 5."], "one")  # continued after a kill: not a further look

    assert look_at(tmp_path, made("Add 4 and 5.")) == 2
    assert look_at(tmp_path, made("Add 4 and 5.", "Add 2 and 3.")) == 4
    assert look_at(tmp_path, made("Add 6 and 7.")) == 1
    assert opened_before(tmp_path, made("Add 6 and 7.", "Add 2 and 3.").tasks, {}) == ["t1"]


def test_the_looks_of_another_library_come_along_and_hostile_lines_are_skipped(tmp_path):
    opened(tmp_path / "old", ["Add 2 and 3.", "Add 4 and 5."])
    told = OpenedTaskLog.in_library(tmp_path / "old").export_lines([TextSketch.of("Add 2 and 3.")])
    log = OpenedTaskLog.in_library(tmp_path / "new")

    assert log.import_lines(told + b'{"run": 3}\n[1]\n' + b"[" * 10_000 + b"\n\xff\n") == 1
    assert log.import_lines(told) == 0
    assert look_at(tmp_path / "new", made("Add 2 and 3.")) == 2
    assert look_at(tmp_path / "new", made("Add 4 and 5.")) == 1


def test_a_damaged_record_is_an_error_and_not_a_first_look(tmp_path):
    opened(tmp_path, ["Add 2 and 3."])
    path = tmp_path / "evolve/opened.jsonl"
    path.write_bytes(path.read_bytes() + b'{"half": ')
    assert look_at(tmp_path, made("Add 2 and 3.")) == 2, "a line that was not finished opened nothing"
    path.write_bytes(b"{}\n" + path.read_bytes())

    with pytest.raises(LibraryCorrupt, match="cannot be counted"):
        look_at(tmp_path, made("Add 2 and 3."))


def test_the_alpha_of_all_looks_together_stays_at_five_percent():
    assert alpha_of_look(1) == 0.04 and alpha_of_look(2) == pytest.approx(0.00608, abs=1e-5)
    assert sum(map(alpha_of_look, range(1, 5_000))) <= 0.05
    with pytest.raises(InvalidArgument):
        alpha_of_look(0)


def test_alike_tasks_are_one_group_and_a_persons_names_can_join_groups_and_not_part_them():
    texts = {"a": LONG.format("third"), "b": LONG.format("fifth"), "c": "Add 2 and 3.", "d": "Add 2 and 4."}

    assert find_groups(texts) == {"a": "a", "b": "a", "c": "c", "d": "d"}
    assert find_groups(texts, {"a": "x", "b": "y", "c": "x"}) == {"a": "a", "b": "a", "c": "a", "d": "d"}


def test_a_group_is_dealt_to_one_part_of_the_set():
    lines = [
        {"id": f"t{n}", "prompt": f"Question {n} of page {n // 5}", "expected": "7", "group": f"page {n // 5}"}
        for n in range(100)
    ]
    taskset = read_taskset("made", {"tasks.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode()})

    parts = {task.group: {one.split for one in taskset.tasks if one.group == task.group} for task in taskset.tasks}
    assert len(parts) == 20 and all(len(splits) == 1 for splits in parts.values())
    assert {split: len(taskset.of(split)) for split in Split} == {Split.TRAIN: 25, Split.VAL: 25, Split.TEST: 50}


@pytest.mark.process
@pytest.mark.skipif(os.name == "nt", reason="there a process cannot be asked for without ending it")
def test_a_driver_that_takes_long_to_start_is_waited_for_and_one_that_is_gone_is_not(tmp_path):
    folder = RunDirectory(tmp_path)
    slow = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        folder.mark_driver_starting(True, slow.pid)
        os.utime(tmp_path / "starting", (0, os.stat(tmp_path / "starting").st_mtime - 600))
        assert folder.is_driver_starting
    finally:
        slow.communicate(b"\n")
    assert not folder.is_driver_starting
