"""Task sets from tables."""

import json

import pytest
from command_line import CommandLine

from evolvable_evolve.evolution.tasks.holdout import redact_file
from evolvable_evolve.evolution.tasks.reader import InvalidTaskSet, read_taskset
from evolvable_evolve.evolution.tasks.table_import import TableColumns, read_table
from evolvable_store.errors import InvalidArgument

COLUMNS = TableColumns("question", "answer", category="kind")
CSV = (
    'question,answer,kind\n"What is 1, and 1?",2,sums\nWhat is 2 and 2?,4,sums\n'
    "What is 2 and 2?,4,sums\n,5,sums\n"
)


def test_a_table_becomes_a_task_set_and_empty_or_equal_rows_are_counted(tmp_path):
    table = tmp_path / "My sums.csv"
    table.write_text("\ufeff" + CSV, encoding="utf-8")
    ref, files, made = read_table(table, COLUMNS)
    first, _ = read_taskset("x", files).tasks

    assert (str(ref), made.tasks, made.skipped) == ("environment:my-sums", 2, 2)
    assert (first.prompt, first.expected, first.category) == ("What is 1, and 1?", "2", "sums")
    lines = "".join(
        json.dumps({"question": f"q {n}?", "answer": n, "kind": None}) + "\n" for n in (1, 2)
    )
    (tmp_path / "a.jsonl").write_text(lines, encoding="utf-8")
    assert read_table(tmp_path / "a.jsonl", COLUMNS, "named")[2].tasks == 2


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        ("a,b\n1,2\n", COLUMNS, "There is no column 'question'"),
        ('question,answer,kind\nq,"' + "x" * (2**20 + 1) + '",k\n', COLUMNS, "no CSV file"),
        ("", COLUMNS, "it has no tasks"),
        (
            'question,answer,kind\n"What is 1?,2,k\nWhat is 2?,4,k\n',
            COLUMNS,
            "no CSV file: unexpected end of data",
        ),
        (
            "question,answer,kind\nq?,1,k\nWhat is 1, and 1?,2,k\n",
            COLUMNS,
            "line 3 has 4 cells, and the header 3",
        ),
        (CSV, TableColumns("question", "answer", id="question"), "id"),
        (
            "question,answer,kind,answer\nq?,1,k,2\n",
            COLUMNS,
            "the header names the column 'answer' twice",
        ),
    ],
)
def test_a_table_that_is_none_says_what_and_where(tmp_path, text, columns, said):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises((InvalidArgument, InvalidTaskSet), match=said):
        read_table(tmp_path / "t.csv", columns)


def test_an_answer_of_zero_is_an_answer_and_what_is_no_text_is_kept_as_json(tmp_path):
    answers = [0, False, [4, "a"], {"x": True}, None, ""]
    lines = "".join(
        json.dumps({"question": f"q {n}?", "answer": answer, "kind": 0}) + "\n"
        for n, answer in enumerate(answers)
    )
    (tmp_path / "a.jsonl").write_text(lines, encoding="utf-8")
    _, files, made = read_table(tmp_path / "a.jsonl", COLUMNS)
    tasks = read_taskset("x", files).tasks

    assert {task.expected for task in tasks} == {"0", "false", '[4, "a"]', '{"x": true}'}
    assert made.skipped == 2 and {task.category for task in tasks} == {"0"}


def test_a_separator_inside_of_a_text_ends_no_line(tmp_path):
    row = {"question": "one\u2028two\x85three?", "answer": "3", "kind": "sums"}
    (tmp_path / "a.jsonl").write_text(
        json.dumps(row, ensure_ascii=False) + "\r\n", encoding="utf-8", newline=""
    )
    _, files, _ = read_table(tmp_path / "a.jsonl", COLUMNS)
    [task] = read_taskset("x", files).tasks

    assert task.prompt == row["question"]
    line = json.loads(files["tasks.jsonl"]) | {"split": "train"}
    shown = redact_file(
        "tasks.jsonl", {"tasks.jsonl": json.dumps(line, ensure_ascii=False).encode()}
    ).decode()
    assert "0 tasks of the sealed test" in shown and row["question"] in shown


def test_the_command_adds_the_environment_once_and_then_its_next_version(tmp_path):
    evolvable = CommandLine(tmp_path)
    table = evolvable.project / "sums.csv"
    table.write_text(CSV, encoding="utf-8")
    evolvable("init", "--yes")
    command = ("taskset", "import", table, "--question", "question", "--answer", "answer")

    assert "environment:sums: 2 tasks; 2 rows without" in evolvable(*command).out
    assert "environment:sums" in evolvable(*command, code=1).err
    table.write_text(CSV + "What is 3 and 3?,6,sums\n", encoding="utf-8")
    assert evolvable(*command, "--replace", "--json").json["tasks"] == 3
