"""Task sets: read from lines or folders with every fault at once, dealt out, sealed, and written
down.
"""

import json
import pickle
import threading
from collections import Counter
from datetime import UTC, datetime

import pytest

from evolvable_evolve.evolution.task import Split, SplitRatios, task_fixtures
from evolvable_evolve.evolution.tasks import holdout
from evolvable_evolve.evolution.tasks.holdout import (
    OpenTasks,
    SealedTest,
    hold_out_test,
)
from evolvable_evolve.evolution.tasks.locate import (
    TaskSetNotFound,
    count_unassigned,
    load_taskset,
    read_taskset_path,
    refuse_untrusted,
    render_splits,
    write_files,
)
from evolvable_evolve.evolution.tasks.reader import InvalidTaskSet, read_taskset, scorer_files
from evolvable_store.errors import InvalidArgument, LibraryCorrupt, Refused
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit


def lines(*records, **files):
    """The files of a task set: its tasks as lines, and others by path."""
    text = "\n".join(
        record if isinstance(record, str) else json.dumps(record) for record in records
    )
    about = b"---\nname: sums\nalike: only-words\n---\n"  # sums that are no two of one kind
    return {"tasks.jsonl": text.encode("utf-8", "surrogatepass"), "ENVIRONMENT.md": about} | {
        path: data.encode() for path, data in files.items()
    }


def task(number, **fields):
    return {
        "id": f"t{number}",
        "prompt": f"What is {number} and {number}?",
        "expected": str(2 * number),
    } | fields


def read(*records, ratios=None, **files):
    return read_taskset("sums", lines(*records, **files), ratios)


def problems(*records, **files):
    with pytest.raises(InvalidTaskSet) as refusal:
        read(*records, **files)
    return refusal.value.problems


# Reading


def test_a_line_is_a_task_with_every_default_filled_in():
    one = read(task(1)).tasks[0]

    assert (one.scorer.type, one.category, one.timeout_s, one.weight, one.source) == (
        *("numeric_strict", "other", 600.0, 1.0, "human"),
    )
    assert (one.expected, one.files, one.setup, one.tags) == ("2", None, (), ())


def test_everything_a_record_can_say_is_taken_over():
    record = task(
        *(1,),
        category="sums",
        files="fixtures/one",
        setup=[["git", "init"]],
        timeout_s=5,
        scorer={"type": "command", "args": {"argv": ["{python}", "{taskset}/check.py"]}},
        weight=2,
        split="test",
        tags=["a"],
        source="session:abc",
    )
    files = {
        "fixtures/one/in.txt": "x",
        "fixtures/one/deep/b.txt": "y",
        "check.py": "pass",
        "ENVIRONMENT.md": "-",
    }
    taskset = read(record, **files)
    one = taskset.tasks[0]

    assert (one.split, one.setup, one.timeout_s, one.weight, one.tags) == (
        Split.TEST,
        (("git", "init"),),
        5.0,
        2.0,
        ("a",),
    )
    assert task_fixtures(one, taskset.files) == {"in.txt": b"x", "deep/b.txt": b"y"}
    assert scorer_files(taskset) == {"check.py": b"pass"}


def test_an_expected_answer_that_is_no_text_is_kept_as_json():
    assert (
        read(task(1, expected={"b": 1, "a": [True]}, scorer="json_subset")).tasks[0].expected
        == '{"a": [true], "b": 1}'
    )


def test_a_folder_for_each_task_reads_as_lines_do():
    files = {
        "tasks/t1/task.json": b'{"category": "sums"}',
        "tasks/t1/prompt.md": b"\xef\xbb\xbfWhat is 1 and 1?\n",
        "tasks/t1/expected.txt": b"2\n",
        "tasks/t1/files/in.txt": b"x",
        "tasks/t2/prompt.md": "Wie groß?".encode(),
        "tasks/t2/expected.json": b"[1, 2]",
    }
    first, second = (taskset := read_taskset("sums", files)).tasks

    assert (first.id, first.prompt, first.expected, first.category) == (
        "t1",
        "What is 1 and 1?",
        "2",
        "sums",
    )
    assert task_fixtures(first, taskset.files) == {"in.txt": b"x"}
    assert (second.id, second.prompt, second.expected) == ("t2", "Wie groß?", "[1, 2]")


def test_every_fault_is_told_at_once_with_its_line():
    said = problems(
        task(1),
        "{not json",
        "",
        task(1),
        task(3, scorrer="exact"),
        task(4, scorer="magic"),
        task(5, setup="git init"),
        {"id": "../up", "prompt": " "},
        task(6, files="nowhere"),
        task(7, files="../out"),
        task(8, timeout_s=0, weight=-1),
        [1],
        task(9, source="me"),
        task(10, expected=None),
        task(11, prompt="\ud800"),
        '{"id": "t12", "prompt": "x", "expected": 1, "weight": NaN}',
    )

    for line, what in (
        *(
            (2, "no JSON"),
            (5, "scorrer"),
            (6, "no scorer"),
            (7, "list of commands"),
            (8, "id"),
            (8, "prompt"),
        ),
        *(
            (9, "no file below it"),
            (10, "no folder inside"),
            (11, "timeout_s"),
            (11, "weight"),
            (12, "JSON object"),
        ),
        *(
            (13, "source"),
            (14, "needs an expected answer"),
            (15, "not valid Unicode"),
            (16, "NaN is no JSON"),
        ),
    ):
        assert any(each.startswith(f"line {line}:") and what in each for each in said), (
            line,
            what,
            said,
        )
    assert "two tasks have the id t1" in said


@pytest.mark.parametrize(
    "data", [b"", b"\n \n", b"\xff\xfe{", b"[" * 100_000, b'{"id": "a"}', b"null"]
)
def test_what_is_no_task_set_is_refused_and_nothing_else_happens(data):
    with pytest.raises(InvalidTaskSet):
        read_taskset("x", {"tasks.jsonl": data})


def test_ids_that_differ_only_by_case_and_two_forms_at_once_are_refused():
    [problem] = problems(task(1), task(2, id="T1"))
    assert "two tasks" in problem and "T1" in problem
    assert "keep one of them" in problems(task(1), **{"tasks/a/task.json": "{}"})[0]


def test_a_workspace_that_would_show_the_tasks_is_refused():
    files = {
        "tasks/t1/prompt.md": b"What?",
        "tasks/t1/expected.txt": b"2",
        "tasks/t1/task.json": b'{"files": "tasks"}',
    }
    with pytest.raises(InvalidTaskSet, match="could read what is expected"):
        read_taskset("x", files)


# What a task is


def test_the_digest_is_of_what_decides_the_task_and_of_nothing_else():
    def digest(**fields):
        return read(task(1, **fields), **{"f/a": "x"}).tasks[0].digest

    base = digest()
    for same in (
        {"id": "other"},
        {"split": "test"},
        {"tags": ["x"]},
        {"category": "x"},
        {"source": "session:a"},
    ):
        assert digest(**same) == base
    for other in (
        {"prompt": "x"},
        {"expected": "3"},
        {"scorer": "exact"},
        {"files": "f"},
        {"timeout_s": 1},
    ):
        assert digest(**other) != base


def test_known_answers_are_no_part_of_a_task_and_a_command_s_files_are():
    scorer = {"type": "command", "args": {"argv": ["check"]}}
    known = {"type": "command", "args": {"argv": ["check"], "good": ["2"]}}
    one = read(task(1, scorer=scorer), **{"check.py": "a"}).tasks[0].digest

    assert read(task(1, scorer=known), **{"check.py": "a"}).tasks[0].digest == one
    assert read(task(1, scorer=scorer), **{"check.py": "b"}).tasks[0].digest != one


def test_the_test_s_digest_changes_with_the_test_alone():
    def digest(*records):
        return read(*records).test_digest

    base = digest(task(1, split="test"), task(2, split="train"))
    assert digest(task(2, split="train", prompt="new"), task(1, split="test", id="renamed")) == base
    assert digest(task(1, split="test", expected="9"), task(2, split="train")) != base


# Dealing out


def deal(sizes, ratios=None, **fields):
    """Returns how many tasks of each category went where: {category: {split: n}}."""
    records = [
        task(1000 * at + n, id=f"{name}-{n}", category=name, **fields)
        for at, (name, size) in enumerate(sizes.items())
        for n in range(size)
    ]
    found = Counter((one.category, one.split) for one in read(*records, ratios=ratios).tasks)
    return {name: tuple(found[name, split] for split in Split) for name in sizes}


def test_each_share_is_the_floor_of_all_tasks_over_the_categories_by_largest_remainder():
    assert deal({"a": 160}) == {"a": (40, 40, 80)}
    # 26 * .25 is 6.5: six of train and six of val, though each category by itself would round down
    # to five.
    assert deal({"a": 14, "b": 7, "c": 5}) == {"a": (3, 3, 8), "b": (2, 2, 3), "c": (1, 1, 3)}
    assert sum(deal({"a": 246}, SplitRatios(0.05, 0.07))["a"][:2]) == 12 + 17


def test_every_category_of_two_or_more_is_in_train_and_val():
    dealt = deal({"big": 60, "pair": 2, "three": 3}, SplitRatios(0.1, 0.1))

    assert all(train and val for train, val, _ in dealt.values())
    assert [sum(each[at] for each in dealt.values()) for at in range(3)] == [6, 6, 53]


def test_single_ones_are_dealt_together_and_a_last_one_is_learned_from():
    dealt = deal({"a": 20, "x": 1, "y": 1, "z": 1})
    assert sum(dealt[name][0] for name in "xyz") == 1
    assert sum(dealt[name][1] for name in "xyz") == 1
    assert deal({"a": 20, "x": 1})["x"] == (1, 0, 0)


def test_a_task_keeps_its_split_when_others_come_and_whatever_their_order():
    records = [task(n) for n in range(100)]
    first = {one.id: one.split for one in read(*records).tasks}
    again = {one.id: one.split for one in read(*records[::-1]).tasks}
    more = {one.id: one.split for one in read(*records, *(task(n) for n in range(100, 110))).tasks}

    assert again == first
    assert sum(more[id_] != split for id_, split in first.items()) <= 5


def test_a_split_that_is_given_stays_and_counts():
    given = [task(n, split="train") for n in range(8)]
    found = Counter(one.split for one in read(*given, *(task(n) for n in range(8, 32))).tasks)

    assert found == {Split.TRAIN: 8, Split.VAL: 8, Split.TEST: 16}


def test_equal_tasks_stay_together_and_what_was_made_up_is_learned_from():
    twins = [task(n // 2, id=f"t{n}") for n in range(60)]
    splits = {one.id: one.split for one in read(*twins).tasks}
    assert all(splits[f"t{n}"] == splits[f"t{n + 1}"] for n in range(0, 60, 2))
    assert {one.split for one in read(*(task(n, source="synthetic") for n in range(9))).tasks} == {
        Split.TRAIN
    }


@pytest.mark.parametrize("ratios", [(0.6, 0.6), (-0.1, 0.2), (float("nan"), 0.1)])
def test_shares_that_are_none_are_refused(ratios):
    with pytest.raises(InvalidArgument):
        SplitRatios(*ratios)


# The seal


@pytest.fixture
def taskset():
    records = [
        task(n, split=split, files=f"in/{n}")
        for n, split in enumerate(["train", "val", "test", "test"])
    ]
    return read(
        *records, **{f"in/{n}/a.txt": f"file {n}" for n in range(4)}, **{"check.py": "pass"}
    )


def test_what_the_search_gets_holds_no_test_row_nor_its_files(taskset):
    open_, test = hold_out_test(taskset)

    assert [one.id for one in (*open_.train, *open_.val)] == ["t0", "t1"]
    assert sorted(open_.files) == ["ENVIRONMENT.md", "check.py", "in/0/a.txt", "in/1/a.txt"]
    assert test.size == 2
    for shown in (repr(test), repr(open_), str(vars(SealedTest)), str(dir(test))):
        assert "t2" not in shown
        assert "What is 2" not in shown


def test_a_folder_of_tasks_gives_the_search_workspaces_alone():
    files = {f"tasks/t{n}/prompt.md": f"What is {n}?".encode() for n in range(2)}
    files |= {f"tasks/t{n}/expected.txt": b"5" for n in range(2)} | {
        f"tasks/t{n}/files/a": b"x" for n in range(2)
    }
    files |= {
        f"tasks/t{n}/task.json": json.dumps({"split": s}).encode()
        for n, s in enumerate(("train", "test"))
    }

    assert sorted(hold_out_test(read_taskset("x", files))[0].files) == ["tasks/t0/files/a"]


def test_a_test_row_can_be_put_nowhere_before_the_test_is_opened(taskset):
    row = taskset.of(Split.TEST)[0]
    with pytest.raises(holdout.TestSealed):
        OpenTasks("x", "", "", (row,), (), {})
    with pytest.raises(holdout.TestSealed):
        pickle.dumps(hold_out_test(taskset)[1])


def test_every_further_look_at_a_test_is_counted_and_a_killed_run_has_its_own_again(
    taskset, tmp_path
):
    looks = holdout.TestAccessLog(
        tmp_path / "evolve/looks.jsonl", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC)
    )
    test = hold_out_test(taskset)[1]

    assert [
        test.open(looks, run, finalist).look for run, finalist in ("ax", "ax", "ay", "bx", "ax")
    ] == [1, 1, 2, 3, 1]
    assert [one.id for one in test.open(looks, "a", "x").tasks] == ["t2", "t3"]
    assert [(look.number, look.run) for look in looks.of(test.digest)] == [
        (1, "a"),
        (2, "a"),
        (3, "b"),
    ]
    assert looks.take("another test", "a", "x") == 1


def test_a_look_that_was_half_written_was_none_and_damage_is_not_passed_over(tmp_path):
    path = tmp_path / "looks.jsonl"
    looks = holdout.TestAccessLog(path)
    looks.take("t", "a", "x")
    with path.open("ab") as file:
        file.write(b'{"test": "t", "numb')

    assert len(looks.of("t")) == 1
    assert looks.take("t", "b", "x") == 2
    assert len(looks.of("t")) == 2
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(LibraryCorrupt):
        looks.take("t", "c", "x")


def test_many_runs_at_once_get_a_number_each(tmp_path):
    numbers = []
    threads = [
        threading.Thread(
            target=lambda run=run: numbers.append(
                holdout.TestAccessLog(tmp_path / "looks.jsonl").take("t", f"{run}", "x")
            )
        )
        for run in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(numbers) == list(range(1, 9))


def test_a_test_that_is_not_there_is_not_opened(tmp_path):
    with pytest.raises(holdout.TestSealed, match="no test"):
        hold_out_test(read(task(1, split="train")))[1].open(
            holdout.TestAccessLog(tmp_path / "looks.jsonl"), "a", "x"
        )


# Places


def test_a_task_set_is_a_folder_a_file_or_an_environment(tmp_path):
    folder = tmp_path / "Sums"
    folder.mkdir()
    for path, data in lines(task(1)).items():
        (folder / path).write_bytes(data)
    about = "---\nname: sums\ndescription: Sums of two numbers.\n---\n\nSums.\n"
    person = Caller(Actor.HUMAN)
    with Library.open(tmp_path / "home", create=True) as library:
        ref = Ref.parse("environment:sums")
        files = {path: data.decode() for path, data in lines(task(1)).items()} | {
            "ENVIRONMENT.md": about
        }
        edit.update_resource(library, person, ref, "first", files=files, create=True)
        edit.update_resource(
            library,
            person,
            ref,
            "second",
            files=dict.fromkeys(["tasks.jsonl"], json.dumps(task(2))),
        )
        first, number = load_taskset(library, person, ref.at(1))
        newest, newer = load_taskset(library, person, ref)

    of_folder, of_file = read_taskset_path(folder), read_taskset_path(folder / "tasks.jsonl")
    assert (of_folder.name, of_file.name, first.name) == ("sums", "tasks", "sums")
    assert of_folder.tasks == of_file.tasks == first.tasks
    assert (number, newer, newest.tasks[0].id) == (1, 2, "t2")


def test_a_place_without_a_task_set_is_told(tmp_path):
    with pytest.raises(TaskSetNotFound, match="nothing-here"):
        read_taskset_path(tmp_path / "nothing-here")
    (tmp_path / "a").symlink_to("/etc/hostname")
    with pytest.raises(InvalidTaskSet, match="symlink"):
        read_taskset_path(tmp_path)


def test_commands_that_only_an_agent_vouches_for_are_not_run(tmp_path):
    about = "---\nname: sums\ndescription: Sums of two numbers.\n---\n\nSums.\n"
    record = task(1, scorer={"type": "command", "args": {"argv": ["check"]}})
    files = {"tasks.jsonl": json.dumps(record), "ENVIRONMENT.md": about}
    ref, agent = Ref.parse("environment:sums"), Caller(Actor.AGENT, session="s")
    with Library.open(tmp_path / "home", create=True) as library:
        edit.update_resource(library, agent, ref, "first", files=files, create=True)
        taskset, _ = load_taskset(library, agent, ref)
        with pytest.raises(Refused, match="no person approved it"):
            refuse_untrusted(library, agent, ref, taskset)
        edit.update_resource(library, Caller(Actor.HUMAN), ref, "mine", files={"notes.md": "read"})
        refuse_untrusted(library, agent, ref, taskset)


def test_an_id_has_no_line_break_not_even_at_its_end():
    with pytest.raises(InvalidTaskSet, match="does not match"):
        read_taskset("sums", lines(task(1, id="t1\n")))


# Writing splits down


def test_splits_are_written_down_and_all_else_stays_as_it_was(tmp_path):
    path = tmp_path / "tasks.jsonl"
    said = json.dumps(task(0, split="test"))
    path.write_text(
        "\n\n".join([said, *(json.dumps(task(n), ensure_ascii=False) for n in range(1, 20))]),
        encoding="utf-8",
    )
    before = read_taskset_path(path)
    write_files(path, render_splits(before))
    after = read_taskset_path(path)

    assert after.tasks == before.tasks
    assert (count_unassigned(before), count_unassigned(after)) == (19, 0)
    assert path.read_text(encoding="utf-8").split("\n")[0] == said


def test_the_splits_of_a_folder_of_tasks_are_written_into_each_task(tmp_path):
    for n in range(8):
        place = tmp_path / f"tasks/t{n}"
        place.mkdir(parents=True)
        (place / "prompt.md").write_text(f"What is {n}?", encoding="utf-8")
        (place / "expected.txt").write_text(f"{n}", encoding="utf-8")
    before = read_taskset_path(tmp_path)
    write_files(tmp_path, render_splits(before))

    assert (after := read_taskset_path(tmp_path)).tasks == before.tasks
    assert count_unassigned(after) == 0
