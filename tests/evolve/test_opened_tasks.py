"""Looks are counted by task and near-duplicate text, and tasks that are alike are grouped."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from evolvable_evolve.evolution.ledger.run_directory import RunDirectory
from evolvable_evolve.evolution.statistics.staged_test import alpha_of_look
from evolvable_evolve.evolution.task import Split
from evolvable_evolve.evolution.tasks.holdout import look_at, opened_before
from evolvable_evolve.evolution.tasks.opened_tasks import OpenedTaskLog, TaskOpening
from evolvable_evolve.evolution.tasks.reader import read_taskset
from evolvable_evolve.evolution.tasks.similarity import TextSketch, find_groups, sketch_tasks
from evolvable_store.errors import InvalidArgument, LibraryCorrupt

LONG = (
    "The harbour office of the northern town keeps a ledger of every ship that leaves in autumn; "
    "name the {} one."
)


ONLY_WORDS = b"---\nname: made\nalike: only-words\n---\n"


def made(*prompts: str, **more: str):
    lines = [
        {"id": f"t{n}", "prompt": text, "expected": "7", "split": "test", **more}
        for n, text in enumerate(prompts)
    ]
    return read_taskset(
        "made", {"tasks.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode()}
    )


def opened(home: Path, prompts: Sequence[str], run: str = "one", finalist: str = "f") -> None:
    taskset = made(*prompts)
    sketches = tuple(sketch_tasks(taskset.of(Split.TEST), taskset.files))
    OpenedTaskLog.in_library(home).add(
        TaskOpening(run, finalist, taskset.test_digest, ("skill:pdf",), sketches)
    )


def test_a_space_a_dropped_task_and_another_name_of_the_set_leave_the_count_as_it_is(tmp_path):
    opened(tmp_path, ["Add 2 and 3.", "Add 4 and 5.", LONG.format("third")])

    assert look_at(tmp_path, made("Add 2 and 3.", "Add 4 and 5.", LONG.format("third"))) == 2
    assert look_at(tmp_path, made("add  2 and 3")) == 2
    assert (
        look_at(tmp_path, made("Please, could you add 2 and 3?", "Hi! Add 4 and 5 now, thanks."))
        == 2
    )
    assert look_at(tmp_path, made("Take 9 from 11.", LONG.format("fourth"))) == 2, (
        "one word of twenty is no other task"
    )
    assert look_at(tmp_path, made("Add 2 and 4.", "Name the capital of Chile.")) == 1


def test_a_set_has_one_look_more_than_the_most_of_its_tasks_and_what_was_not_opened_stays_fresh(
    tmp_path,
):
    for run in ("one", "two", "three"):
        opened(tmp_path, ["Add 2 and 3."], run)
    # Continued after a kill: not a further look.
    opened(tmp_path, ["Add 2 and 3.", "Add 4 and 5."], "one")

    assert look_at(tmp_path, made("Add 4 and 5.")) == 2
    assert look_at(tmp_path, made("Add 4 and 5.", "Add 2 and 3.")) == 4
    assert look_at(tmp_path, made("Take 6 from 7.")) == 1
    mixed = made("Name the capital of Chile.", "Add 2 and 3.")
    assert opened_before(tmp_path, mixed, mixed.tasks) == ["t1"]


def test_the_looks_of_another_library_come_along_and_hostile_lines_are_skipped(tmp_path):
    opened(tmp_path / "old", ["Add 2 and 3.", "Add 4 and 5."])
    told = OpenedTaskLog.in_library(tmp_path / "old").export_lines([TextSketch.of("Add 2 and 3.")])
    log = OpenedTaskLog.in_library(tmp_path / "new")

    assert log.import_lines(told + b'{"run": 3}\n[1]\n' + b"[" * 10_000 + b"\n\xff\n") == 1
    assert log.import_lines(told) == 0
    assert look_at(tmp_path / "new", made("Add 2 and 3.")) == 2
    assert look_at(tmp_path / "new", made("Add 4 and 5.")) == 1


def test_a_prompt_with_more_around_it_is_the_task_that_was_opened(tmp_path):
    opened(tmp_path, [LONG.format("third")])
    around = (
        "Read all of this with great care, think of every step, and give no more than one word as "
        "your answer. "
    )

    assert look_at(tmp_path, made(around + LONG.format("third"))) == 2
    assert look_at(tmp_path, made(" ".join(LONG.split()[:15]))) == 2, "or with less of it"
    assert (
        look_at(tmp_path, made(around + "Which bird lays its eggs in the nests of all the others?"))
        == 1
    )


def test_what_an_earlier_version_recorded_is_counted_by_its_words(tmp_path):
    opened(tmp_path, ["Please add 2 and 3.", "Add 4 and 5."])
    path = tmp_path / "evolve/opened.jsonl"
    said = json.loads(path.read_bytes())
    for task in said["tasks"]:
        task.pop("asked", None)
    path.write_text(json.dumps(said) + "\n", encoding="utf-8")

    assert (
        look_at(tmp_path, made("please add 2 and 3"))
        == look_at(tmp_path, made("Please add 4 and 5."))
        == 2
    )
    assert look_at(tmp_path, made("Add 2 and 4.")) == 1


def test_what_a_run_reserves_counts_until_it_is_decided_and_no_line_from_elsewhere_frees_it(
    tmp_path,
):
    log, taskset = OpenedTaskLog.in_library(tmp_path), made("Add 2 and 3.", "Add 4 and 5.")
    sketches = tuple(sketch_tasks(taskset.tasks, taskset.files))
    mine = TaskOpening("one", "f", "digest", (), sketches)

    assert [log.reserve(mine), log.reserve(mine)] == [1, 1], "the same run continued"
    assert log.reserve(replace(mine, run="two", test="another digest", sketches=sketches[1:])) == 2
    log.import_lines(
        b'{"run":"one","finalist":"f","test":"","program":[],"tasks":[],"state":"decided"}\n'
    )
    assert log.count_looks(sketches) == [1, 2]

    log.add(replace(mine, sketches=sketches[:1]))
    log.decide("one", "f")
    assert log.count_looks(sketches) == [1, 1], (
        "what it opened stays opened; the other is fresh but for run two"
    )


@pytest.mark.process
def test_of_processes_that_open_one_test_at_once_only_one_has_the_first_look(tmp_path):
    # Each has the tasks in another order and with other spaces, so that every set has a digest of
    # its own.
    child = f"""
import json, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from evolvable_evolve.evolution.tasks.holdout import HeldOutTest, TestAccessLog, hold_out_test
from evolvable_evolve.evolution.tasks.opened_tasks import OpenedTaskLog
from evolvable_evolve.evolution.tasks.reader import read_taskset
home, number = Path({str(tmp_path)!r}), int(sys.argv[1])
order, space = [*range(number, 20), *range(number)], " " * number
same = {{"expected": "7", "split": "test"}}
tasks = [{{"id": f"t{{n}}", "prompt": f"Add {{n}} {{space}} and 3.", **same}} for n in order]
lines = "".join(json.dumps(task) + "\\n" for task in tasks)
taskset = read_taskset("set", {{"tasks.jsonl": lines.encode()}})
sealed, accesses = hold_out_test(taskset)[1], TestAccessLog.in_library(home)
test = HeldOutTest(sealed, accesses, lambda files: None, OpenedTaskLog.in_library(home))
print("ready", flush=True)
input()
print(test.open(f"run-{{number}}", "f")[1])
"""
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([sys.executable, "-c", child, str(n)], **piped) for n in range(3)]
    assert [one.stdout.readline() for one in children] == ["ready\n"] * 3
    for one in children:
        one.stdin.write("go\n")
        one.stdin.flush()

    assert sorted(int(one.communicate(timeout=60)[0]) for one in children) == [1, 2, 3]


def test_a_damaged_record_is_an_error_and_not_a_first_look(tmp_path):
    opened(tmp_path, ["Add 2 and 3."])
    path = tmp_path / "evolve/opened.jsonl"
    path.write_bytes(path.read_bytes() + b'{"half": ')
    assert look_at(tmp_path, made("Add 2 and 3.")) == 2, (
        "a line that was not finished opened nothing"
    )
    path.write_bytes(b"{}\n" + path.read_bytes())

    with pytest.raises(LibraryCorrupt, match="cannot be counted"):
        look_at(tmp_path, made("Add 2 and 3."))


def test_the_alpha_of_all_looks_together_stays_at_five_percent():
    assert alpha_of_look(1) == 0.04 and alpha_of_look(2) == pytest.approx(0.00608, abs=1e-5)
    assert sum(map(alpha_of_look, range(1, 5_000))) <= 0.05
    with pytest.raises(InvalidArgument):
        alpha_of_look(0)


def test_alike_tasks_are_one_group_and_a_persons_names_can_join_groups_and_not_part_them():
    texts = {
        "a": LONG.format("third"),
        "b": LONG.format("fifth"),
        "c": "Add 2 and 3.",
        "d": "Take 2 from 4.",
    }

    assert find_groups(texts) == {"a": "a", "b": "a", "c": "c", "d": "d"}
    assert find_groups(texts | {"e": "Now take 2 from 4, please."})["e"] == "d"
    assert find_groups(texts, {"a": "x", "b": "y", "c": "x"}) == {
        "a": "a",
        "b": "a",
        "c": "a",
        "d": "d",
    }


def test_a_group_is_dealt_to_one_part_of_the_set():
    lines = [
        {
            "id": f"t{n}",
            "prompt": f"Question {n} of page {n // 5}",
            "expected": "7",
            "group": f"page {n // 5}",
        }
        for n in range(100)
    ]
    files = {
        "tasks.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode(),
        "ENVIRONMENT.md": ONLY_WORDS,
    }
    taskset = read_taskset("made", files)

    parts = {
        task.group: {one.split for one in taskset.tasks if one.group == task.group}
        for task in taskset.tasks
    }
    assert len(parts) == 20 and all(len(splits) == 1 for splits in parts.values())
    assert {split: len(taskset.of(split)) for split in Split} == {
        Split.TRAIN: 25,
        Split.VAL: 25,
        Split.TEST: 50,
    }


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


def test_those_who_ask_at_once_whether_a_run_is_driven_take_none_of_themselves_for_its_driver(
    tmp_path,
):
    def ask(_: int) -> list[bool]:
        return [RunDirectory(tmp_path).is_driven for _ in range(200)]

    with ThreadPoolExecutor(4) as threads:
        assert not any(itertools.chain.from_iterable(threads.map(ask, range(4))))
        with RunDirectory(tmp_path).driver_lock():
            assert all(itertools.chain.from_iterable(threads.map(ask, range(4))))
    assert not RunDirectory(tmp_path).is_driven
